"""Finding the GPU that a user means with ``--gpu``: any name that some tool taught them works."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vgpumgr.errors import (
    GpuAmbiguousError,
    GpuLostError,
    GpuNotFoundError,
    NotPermittedError,
    ProfileNotFoundError,
    SliceNotFoundError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.model.gpu import Gpu, Inventory, LostGpu, PciGpu
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigProfile, MigProfileName
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.text import list_near

# A shorter prefix of a UUID is more likely a slip.
_SHORTEST_PREFIX = 2


def select_any(inventory: Inventory, selector: str) -> Gpu | PciGpu:
    """As ``select_gpu``, and the GPUs without NVML, too."""
    other = find_other(inventory.others, selector)
    return other or select_gpu(inventory.gpus, selector, inventory.lost, inventory.others)


def select_gpu(
    gpus: Sequence[Gpu],
    selector: str,
    lost: Sequence[LostGpu] = (),
    others: Sequence[PciGpu] = (),
) -> Gpu:
    """The one GPU that ``selector`` names; ``lost`` are those that have only an index left, ``others`` those without
    NVML, which a refusal names.

    Accepted: the index, the UUID or a unique prefix of it (with or without ``GPU-``), the full or
    short bus address, the UUID (or unique prefix) of a MIG device on the GPU. Raises
    GpuNotFoundError, GpuAmbiguousError or GpuLostError.
    """
    text = selector.strip()
    exact = [gpu for gpu in gpus if _is_exact(gpu, text)]
    found = exact or [gpu for gpu in gpus if _has_prefix(gpu, text)]
    if len(found) == 1:
        return found[0]
    for gpu in lost:
        if text == str(gpu.index):
            raise GpuLostError(
                f"GPU {gpu.index} is out of reach",
                cause=f"{gpu.text} ({gpu.code})",
                hint="nvidia-smi --gpu-reset, or reboot; dmesg names the Xid",
            )
    raise _explain(gpus, selector, found, others)


def find_mig_device(
    gpus: Sequence[Gpu], selector: str
) -> tuple[Gpu, GpuInstance, ComputeInstance] | None:
    """The MIG device that ``selector`` names by its UUID or a unique prefix of it, with ``MIG-``; None for
    anything else.
    """
    text = selector.strip().lower()
    if not text.startswith("mig-") or len(text.removeprefix("mig-")) < _SHORTEST_PREFIX:
        return None
    devices = [
        (gpu, instance, compute)
        for gpu in gpus
        for instance in gpu.instances
        for compute in instance.compute_instances
        if compute.uuid is not None and compute.uuid.lower().startswith(text)
    ]
    exact = [found for found in devices if str(found[2].uuid).lower() == text]
    found = exact or devices
    return found[0] if len(found) == 1 else None


def select_instance(
    gpus: Sequence[Gpu], selector: str, lost: Sequence[LostGpu] = ()
) -> tuple[Gpu, GpuInstance, ComputeInstance | None]:
    """The GPU instance that ``selector`` names, as GPU/INSTANCE or by the MIG UUID (or a unique prefix) of a
    compute instance in it, which is then the third. Raises SliceNotFoundError, and for the GPU what
    ``select_gpu`` does.
    """
    if (device := find_mig_device(gpus, selector)) is not None:
        return device
    name, slash, number = selector.strip().rpartition("/")
    if not slash:
        raise _explain_instance(gpus, selector)
    gpu = select_gpu(gpus, name, lost)
    for instance in gpu.instances:
        if number == str(instance.id):
            return gpu, instance, None
    there = ", ".join(f"{gpu.index}/{i.id} ({i.profile})" for i in gpu.instances)
    raise SliceNotFoundError(
        f'no GPU instance is "{selector}"',
        why=f"{gpu} has {there or 'none'}",
        hint=f"vgpumgr mig list --gpu {gpu.index}",
    )


def _explain_instance(gpus: Sequence[Gpu], selector: str) -> SliceNotFoundError:
    text, uuids = selector.strip().lower(), [u for gpu in gpus for u in _names(gpu)[1:]]
    fits = [uuid for uuid in uuids if text.startswith("mig-") and uuid.lower().startswith(text)]
    hint = "vgpumgr mig list"
    if fits:
        why = f"it fits {', '.join(fits[:4])}{' and more' if len(fits) > 4 else ''}"
    elif any(_is_exact(gpu, selector.strip()) for gpu in gpus):
        why, hint = "it is a whole GPU", f"--all {selector} for all its instances; vgpumgr mig list"
    else:
        near = list_near(selector, uuids, n=2, cutoff=0.7)
        why = f"did you mean {' or '.join(near)}?" if near else ""
        why = why or "name a MIG UUID, or GPU/INSTANCE as in 0/3"
    return SliceNotFoundError(f'no GPU instance is "{selector}"', why=why, hint=hint)


def select_profile(gpu: Gpu, selector: str) -> MigProfile:
    """The profile of a GPU instance that ``selector`` names: its name or a unique beginning, or its id, as
    ``nvidia-smi mig -lgip`` lists it. Raises UsageError, ProfileNotFoundError.
    """
    text = selector.strip().lower().removeprefix("mig ")
    known = {str(profile.name): profile for profile in gpu.profiles}
    if text in known:
        return known[text]
    found = [p for p in gpu.profiles if text == str(p.id)]
    found = found or [p for name, p in known.items() if text and name.startswith(text)]
    if len(found) == 1:
        return found[0]
    hint = f"vgpumgr mig profiles --gpu {gpu.index}"
    if found:
        names = ", ".join(str(p.name) for p in found)
        raise UsageError(f'"{selector}" is not one profile', why=f"it fits {names}", hint=hint)
    try:
        name = MigProfileName.parse(text)
    except ValueError:
        near = list_near(text, known, n=2)
    else:
        from vgpumgr.mig.layout.board import list_near_profiles  # mistakes are rare

        if str(name.gpu_instance) in known:
            raise UsageError(
                f"{selector} is a compute instance, and GPU instances are made here",
                why=f"{name.gpu_instance} is its GPU instance",
                hint="vgpumgr mig layout apply, for a file with compute: in it",
            )
        near = list_near_profiles(gpu.profiles, name)
    why = f"{gpu.model} has near it: {', '.join(near)}" if near else f"{gpu.model} has none like it"
    raise ProfileNotFoundError(f"{gpu} has no profile {selector}", why=why, hint=hint)


def check_visible(gpus: Iterable[Gpu]) -> None:
    """Raises NotPermittedError where the driver hides a GPU's instances and places from this user:
    it would look as if there were none.
    """
    for gpu in gpus:
        if gpu.profiles and not any(profile.placements for profile in gpu.profiles):
            raise NotPermittedError(
                f"cannot see the MIG instances of {gpu} as this user",
                why="NVML tells only root which instances there are, and where one fits",
                hint="the same command with sudo",
            )


def find_other(others: Sequence[PciGpu], selector: str) -> PciGpu | None:
    """The GPU without NVML at the full or short bus address ``selector``: it has no other name."""
    try:
        address = PciAddress.parse(selector)
    except ValueError:
        return None
    return next((gpu for gpu in others if gpu.address == address), None)


def _is_exact(gpu: Gpu, text: str) -> bool:
    if text.isascii() and text.isdigit() and len(text) <= 3:
        return gpu.index == int(text)
    return text.lower() in (name.lower() for name in _names(gpu)) or _is_address(gpu, text)


def _is_address(gpu: Gpu, text: str) -> bool:
    try:
        return PciAddress.parse(text) == gpu.pci
    except ValueError:
        return False


def _has_prefix(gpu: Gpu, text: str) -> bool:
    text = text.lower()
    if len(text.removeprefix("gpu-").removeprefix("mig-")) < _SHORTEST_PREFIX:
        return False
    return any(
        name.lower().startswith(text) or name.lower().partition("-")[2].startswith(text)
        for name in _names(gpu)
    )


def _names(gpu: Gpu) -> list[str]:
    migs = [c.uuid for i in gpu.instances for c in i.compute_instances if c.uuid is not None]
    return [gpu.uuid, *migs]


def _explain(
    gpus: Sequence[Gpu], selector: str, found: Sequence[Gpu], others: Sequence[PciGpu]
) -> VgpumgrError:
    if found:
        return GpuAmbiguousError(
            f'"{selector}" is not one GPU',
            why="it fits " + ", ".join(f"{gpu.index} {gpu.uuid}" for gpu in found),
            hint="write more of the UUID, or the index",
        )
    names = [str(name) for gpu in gpus for name in (gpu.index, gpu.pci, gpu.pci.short, gpu.uuid)]
    names += [name for other in others for name in (str(other.address), other.address.short)]
    near = list_near(selector, names, n=2, cutoff=0.7)
    known = [f"GPUs 0 to {gpus[-1].index}" if len(gpus) > 1 else "GPU 0"] if gpus else []
    known += [str(other.address) for other in others]
    told = f"this machine has {', '.join(known) or 'no GPU'}"
    why = f"did you mean {' or '.join(near)}?" if near else told
    return GpuNotFoundError(f'no GPU is "{selector}"', why=why, hint="vgpumgr gpu list")
