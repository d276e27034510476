"""Refusal hints: lost GPUs, similar names, and commands that enable the virtual functions that vGPUs need.

No other operation enables virtual functions on the way. Enabling may interrupt the users of the GPU
(``SrIovDriver.interruption``); and until they exist, the kernel does not report by which framework they take a
vGPU, so that no plan can be shown before. MIG mode comes first, because it does not change beside virtual
functions; types come last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from vgpumgr.app.context import Parts
from vgpumgr.errors import (
    GpuNotFoundError,
    MigNotSupportedError,
    UsageError,
    VgpuFunctionsOffError,
    VgpumgrError,
    VgpuNoRoomError,
    VgpuNotSupportedError,
    VgpuTypeNotFoundError,
)
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.choices import PROFILE_WORDS
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu, Inventory
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.pci import NVIDIA, Function, PciAddress
from vgpumgr.model.request import VgpuRequest, parse_profile_request
from vgpumgr.model.shares import is_share_text
from vgpumgr.model.text import list_near
from vgpumgr.model.vgpu import NvmlVgpuType
from vgpumgr.passthrough.sriov import find_driver
from vgpumgr.planning.vgpu_selection import NO_HOST
from vgpumgr.steps.vgpu import list_holders

_NO_TYPES = "the drivers of these GPUs have no vGPU types"
#: on a host whose GPUs have neither MIG nor vGPU types
_OTHER_PROFILES = "vgpumgr passthrough list; what they take: --profile passthrough or vf"


@contextlib.contextmanager
def adding_hints(parts: Parts, gpu: str | None, profile: str | None = None) -> Iterator[None]:
    """Around planning: a GPU that has fallen off is called lost, not unknown; a profile that nobody
    knows gets the names that look like it, and a vGPU type that waits for virtual functions the
    command that enables these. Who keeps the room of vGPUs that were removed is named. Nothing is
    asked unless something is refused.
    """
    try:
        yield
    except GpuNotFoundError as error:
        inventory = _read(parts)
        if gpu is not None and inventory is not None and inventory.lost:
            with contextlib.suppress(GpuNotFoundError):
                select_gpu(inventory.gpus, gpu, inventory.lost)
        if gpu is not None:
            with contextlib.suppress(VgpumgrError):  # it only explains
                _explain_taken(parts, gpu, error)
        raise error from error.__cause__
    except VgpuNoRoomError as error:
        error.held_by = tuple(dict.fromkeys((*error.held_by, *_list_room_holders(parts))))
        if profile is not None and (found := list_vfs_off(parts, profile, gpu)):
            told = f"{error.why}; " if error.why else ""
            error.why = f"{told}{found[0].gpu} would have room with its virtual functions"
            error.hint = found[0].commands
        raise
    except MigNotSupportedError as error:
        inventory = _read(parts)
        if inventory is not None and not inventory.gpus and inventory.others:
            error.why = f"no GPU here has MIG: {_name_models(inventory)}"
            error.hint = _OTHER_PROFILES
        raise
    except (UsageError, VgpuNotSupportedError, VgpuTypeNotFoundError) as error:
        if profile is not None and is_share_text(profile):
            if not (error.hint or "").startswith("--profile"):
                error.hint = "vgpumgr gpu list, which says what still fits on each GPU"
            raise
        if profile is not None and (found := list_vfs_off(parts, profile, gpu)):
            raise explain_vfs_off(found, error.error) from error
        near = _list_near(parts, profile) if profile is not None else []
        if isinstance(error, VgpuNotSupportedError) and _has_profiles(parts, profile):
            # on a MIG host an unknown profile does not mean a vGPU type
            error.error = error.error.replace(NO_HOST, f'no profile here is called "{profile}"')
            error.why = f"did you mean {' or '.join(near)}?" if near else "it is no MIG profile"
            error.hint = "vgpumgr mig profiles"
            raise
        if not near and not _may_have_types(parts):
            error.why, error.hint = _NO_TYPES, _OTHER_PROFILES
            raise
        # a backend that was asked has said so by itself
        if near and "did you mean" not in (error.why or ""):
            told = f"{error.why}; " if error.why else ""
            error.why = f"{told}did you mean {' or '.join(near)}?"
        raise


def explain_no_mig(parts: Parts) -> MigNotSupportedError | None:
    """Where NVML is missing: the refusal on a host that has only GPUs of other vendors. There no driver of NVIDIA's is
    to be loaded.
    """
    inventory = _read(parts)
    if inventory is None or any(other.vendor_id == NVIDIA for other in inventory.others):
        return None
    why = f"this machine has {_name_models(inventory)}"
    return MigNotSupportedError("no GPU here has MIG", why=why, hint=_OTHER_PROFILES)


def _name_models(inventory: Inventory) -> str:
    return ", ".join(sorted({other.model for other in inventory.others}))


def _list_room_holders(parts: Parts) -> list[str]:
    """Who has vGPUs of ours open that the kernel does not show any more."""
    found: list[str] = []
    with contextlib.suppress(VgpumgrError):
        for record in parts.vgpu_store.list_vgpus():
            if record.takes_room and parts.vgpus.find_device(record.spec) is None:
                found += list_holders(parts.vgpus, record)
    return found


def _explain_taken(parts: Parts, name: str, error: VgpumgrError) -> None:
    """Says of a GPU that was taken from NVML where it is now, and who has it."""
    text = name.strip().lower()
    for binding in parts.pci.list_bindings():
        names = {str(binding.gpu_index), (binding.gpu_uuid or "").lower()}
        if binding.boot_id != parts.pci.boot_id or text not in names or not text:
            continue
        model = f" ({binding.model})" if binding.model else ""
        error.why = f"it was {binding.address}{model}, which was given to {binding.driver}"
        devices = ((r, d) for r in parts.store.list_attachments() for d in r.host_devices)
        error.held_by = tuple(
            f'vm "{r.vm_name}" ({r.profile})' for r, d in devices if d.address == binding.address
        )
        error.hint = f"--gpu {binding.address}; or vgpumgr passthrough unbind {binding.address}"


def _list_near(parts: Parts, profile: str) -> list[str]:
    with contextlib.suppress(ValueError):
        if not isinstance(parse_profile_request(profile), VgpuRequest):
            return []
    inventory = _read(parts)
    names = {str(p.name): None for g in (inventory.gpus if inventory else ()) for p in g.profiles}
    text = profile.strip().lower()
    if begun := [name for name in names if name.startswith(f"{text}.")]:
        return begun[:3]
    return list_near(text, [*names, *PROFILE_WORDS], n=3, cutoff=0.7)


def _has_profiles(parts: Parts, profile: str | None) -> bool:
    """Whether the profile may be meant as one of MIG, and GPUs have such."""
    inventory = _read(parts) if profile is not None else None
    return any(gpu.profiles for gpu in inventory.gpus) if inventory else False


def _read(parts: Parts) -> Inventory | None:
    try:
        return parts.read_inventory()
    except VgpumgrError:
        return None


@dataclass(frozen=True, slots=True)
class VfsOff:
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


def list_vfs_off(parts: Parts, wanted: str, selector: str | None = None) -> list[VfsOff]:
    """GPUs that know the type (by id, full or short name, or the MIG profile that backs it), or the
    one that is named, and whose virtual functions are off. Raises nothing: it only explains.
    """
    try:
        reported = {str(one.pci): one for one in parts.nvml.list_vgpus() if one.sr_iov}
        if not reported:
            return []
        gpus: Sequence[Gpu] = parts.read_inventory().gpus
        if selector is not None:
            gpus = [select_gpu(gpus, selector)]
        awake = {board.name for board in parts.vgpus.read_host().boards}
    except VgpumgrError:
        return []
    return [
        VfsOff(gpu, type_)
        for gpu in gpus
        if str(gpu.pci) in reported and str(gpu.pci) not in awake
        for type_ in _choose(gpu, reported[str(gpu.pci)].types, wanted)
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


def explain_vfs_off(found: Sequence[VfsOff], what: str) -> VgpuFunctionsOffError:
    """The refusal that names the command."""
    names = ", ".join(str(one.gpu) for one in found)
    gpu = found[0].gpu
    driver = find_driver(Function(gpu.pci, NVIDIA, 0, 0))  # NVML reports no other vendor's
    why = f"the virtual functions of {names} are not enabled, and its vGPUs live on these"
    if driver.interruption is not None:
        why += f"; {driver.interruption}, so that is not done on the way"
    return VgpuFunctionsOffError(
        what,
        why=why,
        hint=found[0].commands,
    )


def find_enabling(parts: Parts, parent: str) -> str | None:
    """The command that makes the function at an address; None where it exists, where ``restore`` makes
    it, or where the kernel does not report whose it would be. Raises nothing.
    """
    try:
        address = PciAddress.parse(parent)
        functions = parts.pci.list_functions()
        kept = {s.physical for s in parts.pci.list_vf_settings() if s.persist}
    except (ValueError, VgpumgrError):
        return None
    for function in functions:
        places = (function.locate_vf(index) for index in range(function.vf_total))
        if not function.vfs and function.address not in kept and address in places:
            return f"vgpumgr vf enable {function.address} --persist"
    return None


def explain_no_types(parts: Parts) -> str:
    """Why a machine offers no vGPU types now, with the command that helps if there is one. Raises
    nothing.
    """
    if (gpu := _find_vfs_off(parts)) is not None:
        return f"no GPU offers vGPU types before it has virtual functions: vgpumgr vf enable {gpu} --persist"
    if not _may_have_types(parts):
        return f"{_NO_TYPES}; what can be given: vgpumgr passthrough list"
    return "no GPU here offers vGPU types; it takes the vGPU driver on the host"


def explain_vfs_needed(gpu: int) -> str:
    """What a GPU whose vGPUs live on virtual functions needs before it offers types."""
    return f"no vGPU types before it has virtual functions: vgpumgr vf enable {gpu} --persist"


def _may_have_types(parts: Parts) -> bool:
    """False where the drivers of all GPUs are known to have no vGPU types."""
    try:
        drivers = [find_driver(f) for f in parts.pci.list_functions() if f.is_gpu]
    except VgpumgrError:
        return True
    return not drivers or any(driver.needs_type for driver in drivers)


def _find_vfs_off(parts: Parts) -> int | None:
    """The first GPU whose driver makes vGPUs on functions that are off."""
    try:
        reported = [str(one.gpu) for one in parts.nvml.list_vgpus() if one.sr_iov]
        return select_gpu(parts.read_inventory().gpus, reported[0]).index if reported else None
    except VgpumgrError:
        return None
