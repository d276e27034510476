"""Finding PCI functions, and whether a VM can have one: pure, and able to say why not.

VFIO gives an IOMMU group to one VM as a whole. Where the host's drivers have several GPUs of one group, none of
them can go alone; all of them can, together to the same VM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TypeVar

from vgpumgr.errors import (
    DeviceTakenError,
    GpuAmbiguousError,
    GpuDrainedError,
    GpuNotFoundError,
    GroupNotViableError,
    NoDeviceError,
    NoIommuError,
    PciBusyError,
    VgpumgrError,
)
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.pci import Function, PciAddress, User, UserKind
from vgpumgr.planning.snapshot import Snapshot

#: why a device was chosen that the request names
BY_NAME = "asked for by name"
#: uses that end when the driver does
_ASKED = (UserKind.DISPLAY, UserKind.NETWORK, UserKind.USB, UserKind.IDLE_DISK)


def list_focus(snapshot: Snapshot, selector: str | None) -> list[Function]:
    """GPUs with their companions and virtual functions; or those of the function that is named."""
    chosen = [f for f in snapshot.functions if f.is_gpu]
    if selector is not None:
        try:
            named = find_selected(snapshot, selector)
        except (GpuNotFoundError, GpuAmbiguousError):
            return []  # planning says so
        chosen = [named, *(f for f in snapshot.functions if f.physical == named.address)]
    found = {f.address: f for one in chosen for f in (one, *snapshot.list_companions(one))}
    return list(found.values())


def find_selected(host: Snapshot, selector: str) -> Function:
    """The PCI function by its address, or by NVML's names of the GPU: index, UUID, prefix; also of
    one that NVML does not see any more because it was bound away. Raises GpuNotFoundError,
    GpuAmbiguousError.
    """
    address = PciAddress.read(selector)
    if address is None:
        text = selector.strip().lower()
        away = [b for b in host.bindings if b.gpu_uuid and b.gpu_uuid.lower().startswith(text)]
        if len(away) == 1 and len(text) > len("gpu-"):
            address = away[0].address
        else:
            address = select_gpu(host.gpus, selector).pci if host.gpus else None
    function = None if address is None else host.find(address)
    if function is None:
        raise GpuNotFoundError(
            f'no PCI function is "{selector}"',
            why="GPUs without NVML are named by their address",
            hint="vgpumgr gpu list; vgpumgr passthrough list",
        )
    return function


def check_free(host: Snapshot, function: Function) -> None:
    """Raises DeviceTakenError or PciBusyError if somebody has or uses the function."""
    if owner := host.taken.get(function.address):
        mine = host.vm_uuid is not None and host.tenants.get(function.address) == host.vm_uuid
        raise DeviceTakenError(
            f"{function.address} is taken",
            why="the VM has it already; the functions of a card go together" if mine else None,
            held_by=[owner],
            hint="vgpumgr vm list",
        )
    if users := host.users.get(function.address):
        raise PciBusyError(
            f"{function.address} is in use",
            held_by=[str(user) for user in users],
            hint=_advise_free(function, users),
        )


def _advise_free(function: Function, users: Sequence[User]) -> str:
    """What is there though nobody has it open goes when the function is taken, which asks first."""
    if all(user.kind in _ASKED for user in users):
        return f"vgpumgr passthrough bind {function.address}, then repeat"
    return "stop them, then repeat"


def check_group(host: Snapshot, function: Function, given: Sequence[Function]) -> None:
    """VFIO gives a group away only as a whole: what is not given must have no driver of the host."""
    if function.group is None:
        raise NoIommuError(
            f"{function.address} is in no IOMMU group",
            why="the kernel uses no IOMMU, so a guest could write anywhere in the host's memory",
            hint="switch it on in the firmware, and boot with intel_iommu=on or amd_iommu=on",
        )
    groups = {f.group for f in given}
    known = {f.address for f in given}
    blockers = list_blockers(host, given)
    members = [f for f in host.functions if f.group in groups and f.address not in known]
    _check_tenants(host, function, members)
    if blockers:
        bundle = find_bundle(host, function) if function.physical is None else (function,)
        raise GroupNotViableError(
            f"the IOMMU group {function.group} of {function.address} is not viable",
            why="other functions in it belong to the host's drivers",
            held_by=[str(blocker) for blocker in blockers],
            hint=advise(bundle)
            if len(bundle) > 1
            else f"vgpumgr passthrough bind {blockers[0].address}",
        )


def _check_tenants(host: Snapshot, function: Function, members: Sequence[Function]) -> None:
    """One VM at a time has a group: the kernel opens it once."""
    held = [
        f"{member.address}: {host.taken.get(member.address, 'another VM')}"
        for member in members
        if host.tenants.get(member.address, host.vm_uuid) != host.vm_uuid
    ]
    if held:
        raise DeviceTakenError(
            f"the IOMMU group {function.group} of {function.address} is another VM's",
            why="functions that the IOMMU cannot isolate from each other go to one VM only",
            held_by=held,
            hint="vgpumgr vm list",
        )


def list_near(host: Snapshot, functions: Sequence[Function]) -> list[Function]:
    """Those near the VM first, or those alone. Raises NoRoomError where that leaves none."""
    near = host.numa
    left = [f for f in functions if not near.is_refused(f.numa_node)]
    if functions and not left:
        raise near.explain([f"{f.address} on {_name_node(f)}" for f in functions])
    return sorted(left, key=lambda f: near.is_far(f.numa_node))


def _name_node(function: Function) -> str:
    return "no known node" if function.numa_node is None else str(function.numa_node)


def list_gpus(host: Snapshot) -> list[Function]:
    return [f for f in host.functions if f.is_gpu and f.physical is None]


def describe_error(error: VgpumgrError) -> str:
    if isinstance(error, GpuDrainedError):
        return f"{error.error}, {error.why}"
    held = f" ({', '.join(error.held_by)})" if error.held_by else ""
    return f"{error.error}{held}"


def make_no_device(what: str, reasons: Sequence[str], hint: str) -> NoDeviceError:
    why = "; ".join(dict.fromkeys(reasons)) or "this machine has none"
    return NoDeviceError(what, why=why, hint=hint)


T = TypeVar("T")


def list_given(host: Snapshot, gpus: Iterable[Function]) -> tuple[Function, ...]:
    """All functions that go with these GPUs, each once."""
    found = {f.address: f for gpu in gpus for f in (gpu, *host.list_companions(gpu))}
    return tuple(found.values())


def list_blockers(host: Snapshot, given: Sequence[Function]) -> list[Function]:
    """What the host's drivers have of the groups of ``given``, and is not given."""
    groups = {f.group for f in given if f.group is not None}
    known = {f.address for f in given}
    return [
        f for f in host.functions if f.group in groups and f.address not in known and not f.is_free
    ]


def find_bundle(host: Snapshot, function: Function) -> tuple[Function, ...]:
    """The GPU with those that must go with it, itself first; alone where that would not help."""
    bundle = [function]
    while blockers := list_blockers(host, list_given(host, bundle)):
        more = next((f for f in blockers if f.is_gpu and f.physical is None), None)
        if more is None:
            return (function,)
        bundle.append(more)
    return tuple(bundle)


def fill(singles: Sequence[T], bundles: Sequence[Sequence[T]], count: int) -> list[T] | None:
    """Exactly so many: as many singles as possible, the rest of whole bundles."""
    for number in range(len(bundles) + 1):
        for chosen in combinations(bundles, number):
            together = [one for bundle in chosen for one in bundle]
            left = count - len(together)
            if 0 <= left <= len(singles):
                return [*singles[:left], *together]
    return None


def name_all(gpus: Sequence[Function]) -> str:
    """Their addresses, in a sentence."""
    return " and ".join(str(gpu.address) for gpu in gpus)


def advise(bundle: Sequence[Function]) -> str:
    """What to do about GPUs that go only together."""
    first, count = bundle[0].address, len(bundle)
    others = ", ".join(f"vgpumgr passthrough bind {gpu.address}" for gpu in bundle[1:])
    return (
        f"vgpumgr attach VM --profile passthrough --gpu {first} --count {count} gives all to one VM; "
        f"or, to leave the rest unused: {others}"
    )
