"""GPUs whose vGPUs live on virtual functions that are not enabled yet: which command enables them.

Nothing enables them on the way. NVIDIA's sriov-manage takes the GPU from its driver for a moment, with
whatever uses it; and until they are there, the kernel does not say by which framework they take a
vGPU, so that no plan could be shown before. MIG mode comes first, because it does not change beside
virtual functions; types come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpumgr.daemon.parts import Parts
from vgpumgr.errors import VgpuFunctionsOffError, VgpumgrError
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.vgpu import NvmlVgpuType


@dataclass(frozen=True, slots=True)
class Sleeping:
    """A GPU that would have the type."""

    gpu: Gpu
    type: NvmlVgpuType

    @property
    def commands(self) -> str:
        """What to run, in this order."""
        mode, wanted = self.gpu.mig.current, self.type.gpu_instance_profile_id is not None
        first = [] if mode == wanted else [f"vgpumgr mig {'enable' if wanted else 'disable'}"]
        return ", then ".join(
            [*(f"{verb} {self.gpu.index}" for verb in first),
             f"vgpumgr vf enable {self.gpu.index} --persist"]
        )  # fmt: skip


def list_sleeping(parts: Parts, wanted: str, selector: str | None = None) -> list[Sleeping]:
    """GPUs that know the type (by id, full or short name, or the MIG profile that backs it), or the
    one that is named, and whose virtual functions are off. Raises nothing: it only explains.
    """
    try:
        told = {str(one.pci): one for one in parts.nvml.list_vgpus() if one.sr_iov}
        if not told:
            return []
        gpus: Sequence[Gpu] = parts.read_inventory().gpus
        if selector is not None:
            gpus = [select_gpu(gpus, selector)]
        awake = {board.name for board in parts.vgpus.read_host().boards}
    except VgpumgrError:
        return []
    return [
        Sleeping(gpu, type_)
        for gpu in gpus
        if str(gpu.pci) in told and str(gpu.pci) not in awake
        for type_ in _choose(gpu, told[str(gpu.pci)].types, wanted)
    ]


def _choose(gpu: Gpu, types: Iterable[NvmlVgpuType], wanted: str) -> list[NvmlVgpuType]:
    """The first that fits, if any."""
    text = wanted.strip().lower()
    backing = _list_profile_ids(gpu, wanted)
    for type_ in types:
        names = (type_.name.lower(), type_.name.lower().rpartition(" ")[2], str(type_.id))
        if text in (*names, f"nvidia-{type_.id}") or type_.gpu_instance_profile_id in backing:
            return [type_]
    return []


def _list_profile_ids(gpu: Gpu, wanted: str) -> set[int | None]:
    try:
        name = MigProfileName.parse(wanted)
    except ValueError:
        return set()
    return {profile.id for profile in gpu.profiles if profile.name == name}


def explain_sleeping(found: Sequence[Sleeping], what: str) -> VgpuFunctionsOffError:
    """The refusal that names the command."""
    names = ", ".join(str(one.gpu) for one in found)
    return VgpuFunctionsOffError(
        what,
        why=f"the virtual functions of {names} are not enabled, and its vGPUs live on these; "
        "sriov-manage takes the GPU from its driver for a moment, so that is not done on the way",
        hint=found[0].commands,
    )
