"""Choosing the PCI function that a VM gets: pure, and able to say why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpumgr.errors import (
    BackendUnsupportedError,
    DeviceTakenError,
    GpuNotFoundError,
    GroupNotViableError,
    NoDeviceError,
    NoIommuError,
    PciBusyError,
    VfCountError,
    VfUnsupportedError,
    VgpumgrError,
)
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.sizes import tell_count
from vgpumgr.passthrough.values import NVIDIA, Function, User, UserKind
from vgpumgr.plan.hostdev_host import HostObserved
from vgpumgr.plan.hostdev_together import (
    advise,
    fill,
    find_bundle,
    list_blockers,
    list_given,
    name_all,
)
from vgpumgr.plan.vfs import check_vf_driver

_NAME_A_TYPE = "name a type as the profile: vgpumgr mdev types"
#: uses that end when the driver does
_ASKED = (UserKind.DISPLAY, UserKind.NETWORK, UserKind.USB, UserKind.IDLE_DISK)


@dataclass(frozen=True, slots=True)
class WholeGpu:
    """A GPU that goes to a VM as a whole, with the other functions of its card."""

    gpu: Function
    companions: tuple[Function, ...]
    #: NVML's name of it, as far as it is or was known there
    uuid: GpuUuid | None
    why: str

    @property
    def functions(self) -> tuple[Function, ...]:
        """All that the VM gets, the GPU first."""
        return (self.gpu, *self.companions)


@dataclass(frozen=True, slots=True)
class OneVf:
    """A virtual function that goes to a VM. ``make``: how many are to be made first; None: it is
    there.
    """

    physical: Function
    index: int
    address: PciAddress | None
    make: int | None
    why: str
    function: Function | None = None


def choose_whole_gpus(
    host: HostObserved, selector: str | None, count: int = 1
) -> tuple[WholeGpu, ...]:
    """The GPU that ``selector`` names, or as many as are asked for of those that nobody has or uses:
    those near the VM first.

    Raises GpuNotFoundError and what stands in the way; NoDeviceError where there are too few,
    NoRoomError where they are on other NUMA nodes than the VM must have.
    """
    if selector is not None:
        return _take_named_gpus(host, selector, count)
    start = host
    found: list[WholeGpu] = []
    bundles: list[tuple[Function, ...]] = []
    reasons: list[str] = []
    for function in _list_near(host, _list_gpus(host)):
        try:
            check_whole_gpu(host, function)
        except VgpumgrError as error:
            reasons.append(_tell(error))
            bundle = find_bundle(start, function)
            if len(bundle) > 1 and not any(function in known for known in bundles):
                bundles += _list_possible(start, bundle, reasons)
            continue
        near = host.near.tell(function.numa_node)
        found.append(_make_whole(host, function, f"nobody has or uses it{near}"))
        if len(found) == count:
            return tuple(found)
        # what goes with one is not there for the next
        host = host.give(found[-1].functions)
    filled = fill(found, [_make_bundle(start, bundle) for bundle in bundles], count)
    if filled is not None:
        return tuple(filled)
    what = "no GPU can go to a VM as a whole"
    if found:
        what = f"only {len(found)} of {count} GPUs can go to a VM as a whole"
    hint = "vgpumgr passthrough list"
    raise _no_device(what, reasons, advise(bundles[0]) if bundles else hint)


def _list_possible(
    host: HostObserved, bundle: tuple[Function, ...], reasons: list[str]
) -> list[tuple[Function, ...]]:
    """The bundle, unless one of its GPUs cannot go for another reason."""
    try:
        _check_bundle(host, bundle)
    except VgpumgrError as error:
        reasons.append(_tell(error))
        return []
    return [bundle]


def _check_bundle(host: HostObserved, bundle: Sequence[Function]) -> None:
    _list_near(host, bundle)
    for function in bundle:
        check_whole_gpu(host, function, bundle)


def _make_bundle(host: HostObserved, bundle: Sequence[Function]) -> list[WholeGpu]:
    made = []
    for gpu in bundle:
        others = name_all([other for other in bundle if other is not gpu])
        why = f"together with {others}, of which the IOMMU cannot tell it apart"
        made.append(_make_whole(host, gpu, why))
    return made


def _take_named_gpus(host: HostObserved, selector: str, count: int) -> tuple[WholeGpu, ...]:
    """The one that is named; several only where it goes with just so many others."""
    function = find_selected(host, selector)
    bundle = find_bundle(host, function)
    if count > 1 and count == len(bundle):
        _check_bundle(host, bundle)
        return tuple(_make_bundle(host, bundle))
    if count > 1:
        raise NoDeviceError(
            f"{function.address} cannot go to a VM {count} times",
            why="--gpu names one device, and it goes as a whole"
            + (f", together with {len(bundle) - 1} others" if len(bundle) > 1 else ""),
            hint=advise(bundle) if len(bundle) > 1 else "leave --gpu out, or --count",
        )
    _list_near(host, [function])
    check_whole_gpu(host, function)
    what = "asked for by name"
    if not function.is_gpu:
        what += f", though no GPU ({function.kind})"
    return (_make_whole(host, function, what),)


def _list_near(host: HostObserved, functions: Sequence[Function]) -> list[Function]:
    """Those near the VM first, or those alone. Raises NoRoomError where that leaves none."""
    near = host.near
    left = [f for f in functions if not near.is_refused(f.numa_node)]
    if functions and not left:
        raise near.explain([f"{f.address} on {_name_node(f)}" for f in functions])
    return sorted(left, key=lambda f: near.is_far(f.numa_node))


def _name_node(function: Function) -> str:
    return "no known node" if function.numa_node is None else str(function.numa_node)


def choose_vfs(
    host: HostObserved, selector: str | None, cut: int | None, count: int = 1
) -> tuple[OneVf, ...]:
    """As many virtual functions as are asked for of the GPU that ``selector`` names (or that one
    itself), or of all that are free. ``cut``: into how many a GPU is cut where it is not yet, else
    it must be cut so; None: into as many as are needed.

    Raises GpuNotFoundError and what stands in the way; NoDeviceError where there are too few,
    NoRoomError where they are on other NUMA nodes than the VM must have.
    """
    if selector is not None:
        function = find_selected(host, selector)
        _list_near(host, [function])
        if function.physical is not None:
            return (_take_named(host, function, count),)
        found = _choose_of(host, function, cut, count)
        return _check_enough(found, count, [f"{function.address} has no more"])
    reasons: list[str] = []
    chosen: list[OneVf] = []
    able = [function for function in _list_gpus(host) if function.vf_total]
    # first what is cut already
    for function in sorted(_list_near(host, able), key=lambda f: (_is_far(host, f), not f.vfs)):
        if len(chosen) == count:
            break
        try:
            chosen += _choose_of(host, function, cut, count - len(chosen))
        except VgpumgrError as error:
            reasons.append(_tell(error))
    typed = bool(able) and all(function.vendor_id == NVIDIA for function in able)
    return _check_enough(chosen, count, reasons, _NAME_A_TYPE if typed else "vgpumgr vf list")


def _is_far(host: HostObserved, function: Function) -> bool:
    return host.near.is_far(function.numa_node)


def _check_enough(
    found: Sequence[OneVf], count: int, reasons: Sequence[str], hint: str = "vgpumgr vf list"
) -> tuple[OneVf, ...]:
    if len(found) == count:
        return tuple(found)
    what = "no virtual function is free"
    if found:
        what = f"only {len(found)} of {count} virtual functions are free"
    raise _no_device(what, reasons, hint)


def find_selected(host: HostObserved, selector: str) -> Function:
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


def check_whole_gpu(
    host: HostObserved, function: Function, bundle: Sequence[Function] = ()
) -> None:
    """Raises what stands in the way of giving the function away, with those of its card; ``bundle``
    are GPUs that are given together.
    """
    if function.is_bridge:
        raise BackendUnsupportedError(
            f"{function.address} is a bridge", why="bridges stay with the host"
        )
    if function.vfs:
        raise PciBusyError(
            f"{function.address} has {tell_count(len(function.vfs), 'virtual function')}",
            why="they would go away with it",
            held_by=[host.taken[vf] for vf in function.vfs if vf in host.taken],
            hint=f"vgpumgr vf disable {function.address}",
        )
    gpu = host.find_gpu(function.address)
    if gpu is not None and gpu.instances:
        raise PciBusyError(
            f"{gpu} is cut into {len(gpu.instances)} MIG instances",
            why="they would go away with the driver",
            hint=f"vgpumgr mig list --gpu {gpu.index}",
        )
    if lost := host.list_reserved(function.address):
        raise PciBusyError(
            f"{function.address} is kept for {len(lost)} slices that are to come back",
            why="they are gone since the boot, and it would be gone for them",
            held_by=[f"{instance.profile} at {instance.placement}" for instance in lost],
            hint="vgpumgr restore; or vgpumgr detach whom they belong to",
        )
    given = (function, *host.list_companions(function))
    _check_group(host, function, list_given(host, (function, *bundle)))
    for one in given:
        check_free(host, one)


def check_free(host: HostObserved, function: Function) -> None:
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
            hint=_tell_free(function, users),
        )


def _tell_free(function: Function, users: Sequence[User]) -> str:
    """What is there though nobody has it open goes when the function is taken, which asks first."""
    if all(user.kind in _ASKED for user in users):
        return f"vgpumgr passthrough bind {function.address}, then repeat"
    return "stop them, then repeat"


def _check_group(host: HostObserved, function: Function, given: Sequence[Function]) -> None:
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


def _check_tenants(host: HostObserved, function: Function, members: Sequence[Function]) -> None:
    """One VM at a time has a group: the kernel opens it once."""
    held = [
        f"{member.address}: {host.taken.get(member.address, 'another VM')}"
        for member in members
        if host.tenants.get(member.address, host.vm_uuid) != host.vm_uuid
    ]
    if held:
        raise DeviceTakenError(
            f"the IOMMU group {function.group} of {function.address} is another VM's",
            why="functions that the IOMMU cannot tell apart go to one VM only",
            held_by=held,
            hint="vgpumgr vm list",
        )


def _make_whole(host: HostObserved, function: Function, why: str) -> WholeGpu:
    gpu, binding = host.find_gpu(function.address), host.find_binding(function.address)
    uuid = gpu.uuid if gpu else None
    if uuid is None and binding is not None and binding.gpu_uuid:
        uuid = GpuUuid(binding.gpu_uuid)
    return WholeGpu(function, host.list_companions(function), uuid, f"{function.address}: {why}")


def _list_gpus(host: HostObserved) -> list[Function]:
    return [f for f in host.functions if f.is_gpu and f.physical is None]


def _choose_of(
    host: HostObserved, physical: Function, cut: int | None, count: int
) -> Sequence[OneVf]:
    """Up to so many of one GPU; raises why there is not even one."""
    _check_physical(physical)
    if not physical.vfs:
        return _make_some(host, physical, cut, count)
    if cut is not None and cut != len(physical.vfs):
        raise VfCountError(
            f"{physical.address} is cut into {len(physical.vfs)} virtual functions, not {cut}",
            why="a driver changes their number only by removing all of them",
            hint=f"--profile vf, or vgpumgr vf enable {physical.address} --count {cut} first",
        )
    found: list[OneVf] = []
    reasons = []
    near = host.near.tell(physical.numa_node)
    for index, address in enumerate(physical.vfs):
        function = host.find(address)
        if function is None or len(found) == count:
            continue
        try:
            _check_vf(host, function)
        except VgpumgrError as error:
            reasons.append(_tell(error))
            continue
        why = f"virtual function {index} of {len(physical.vfs)} of {physical.address} is free{near}"
        found.append(OneVf(physical, index, address, None, why, function))
    if found:
        return found
    what = f"none of the {len(physical.vfs)} virtual functions of {physical.address} is free"
    raise _no_device(what, reasons, "vgpumgr vf list")


def _check_physical(physical: Function) -> None:
    if not physical.vf_total:
        raise VfUnsupportedError(
            f"{physical.address} has no virtual functions",
            why="it has no SR-IOV capability",
            hint="--profile passthrough gives all of it",
        )
    if physical.vendor_id == NVIDIA:
        raise BackendUnsupportedError(
            f"a virtual function of {physical.address} alone is of no use",
            why="NVIDIA's driver gives it a size by a vGPU type",
            hint=_NAME_A_TYPE,
        )


def _make_some(
    host: HostObserved, physical: Function, cut: int | None, count: int
) -> Sequence[OneVf]:
    """Makes as many as are needed, or as are asked for; the first in line makes them for all.

    Places that somebody has already stay his: by a definition, or by an attachment that a restore
    will bring back.
    """
    _check_maker(host, physical)
    free = [i for i in range(physical.vf_total) if physical.locate_vf(i) not in host.taken]
    made = _choose_cut(host, physical, free[:count]) if cut is None else cut
    if made > physical.vf_total:
        raise VfCountError(
            f"{physical.address} cannot be cut into {made} virtual functions",
            why=f"it can have {physical.vf_total}",
            hint=f"--profile vf:{physical.vf_total}",
        )
    chosen = [index for index in free if index < made][:count]
    if not chosen:
        what = f"none of the {made} virtual functions that {physical.address} would have is free"
        places = [p for index in range(made) if (p := physical.locate_vf(index)) is not None]
        held = [f"{p} is taken ({host.taken[p]})" for p in places if p in host.taken]
        raise _no_device(what, held, "vgpumgr vm list")
    near = host.near.tell(physical.numa_node)
    why = f"{physical.address} is not cut yet: {made} of up to {physical.vf_total}{near}"
    return [
        OneVf(physical, index, physical.locate_vf(index), made if index == chosen[0] else None, why)
        for index in chosen
    ]


def _choose_cut(host: HostObserved, physical: Function, wanted: Sequence[int]) -> int:
    """So many that those are among them, and not fewer than a restore would make."""
    settings = (s for s in host.vf_settings if s.physical == physical.address and s.persist)
    usual = next((setting.count for setting in settings), 0)
    return max([usual, *(index + 1 for index in wanted)]) or physical.vf_total


def _check_maker(host: HostObserved, physical: Function) -> None:
    if owner := host.taken.get(physical.address):
        raise DeviceTakenError(
            f"{physical.address} is taken as a whole", held_by=[owner], hint="vgpumgr vm list"
        )
    check_vf_driver(physical)


def _take_named(host: HostObserved, function: Function, count: int) -> OneVf:
    assert function.physical is not None
    if count > 1:
        raise NoDeviceError(
            f"virtual function {function.address} cannot go to a VM {count} times",
            why="--gpu names one device",
            hint=f"--gpu {function.physical}, or leave --count out",
        )
    physical = host.find(function.physical)
    if physical is None or function.address not in physical.vfs:
        raise GpuNotFoundError(f"{function.address} belongs to no physical function")
    _check_physical(physical)
    _check_vf(host, function)
    index = physical.vfs.index(function.address)
    return OneVf(physical, index, function.address, None, "asked for by name", function)


def _check_vf(host: HostObserved, function: Function) -> None:
    _check_group(host, function, [function])
    check_free(host, function)


def _tell(error: VgpumgrError) -> str:
    held = f" ({', '.join(error.held_by)})" if error.held_by else ""
    return f"{error.error}{held}"


def _no_device(what: str, reasons: Sequence[str], hint: str) -> NoDeviceError:
    why = "; ".join(dict.fromkeys(reasons)) or "this machine has none"
    return NoDeviceError(what, why=why, hint=hint)
