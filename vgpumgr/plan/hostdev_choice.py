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
from vgpumgr.passthrough.values import NVIDIA, VFIO, Function
from vgpumgr.plan.hostdev_host import HostObserved


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


def choose_whole_gpu(host: HostObserved, selector: str | None) -> WholeGpu:
    """The GPU that ``selector`` names, or the first that nobody has or uses.

    Raises GpuNotFoundError and what stands in the way; NoDeviceError where no GPU is free.
    """
    if selector is not None:
        function = find_selected(host, selector)
        check_whole_gpu(host, function)
        what = (
            "asked for by name"
            if function.is_gpu
            else f"asked for by name, though no GPU ({function.kind})"
        )
        return _make_whole(host, function, what)
    reasons = []
    for function in _list_gpus(host):
        try:
            check_whole_gpu(host, function)
        except VgpumgrError as error:
            reasons.append(_tell(error))
            continue
        return _make_whole(host, function, "nobody has or uses it")
    raise _no_device("no GPU can go to a VM as a whole", reasons, "vgpumgr passthrough list")


def choose_vf(host: HostObserved, selector: str | None, count: int | None) -> OneVf:
    """A virtual function of the GPU that ``selector`` names (or that one itself), or the first that
    is free. ``count``: into how many the GPU is cut where it is not yet, else it must be cut so.

    Raises GpuNotFoundError and what stands in the way; NoDeviceError where none is free.
    """
    if selector is not None:
        function = find_selected(host, selector)
        if function.physical is not None:
            return _take_named(host, function)
        return _choose_of(host, function, count)
    reasons = []
    # first what is cut already
    for function in sorted(_list_gpus(host), key=lambda f: not f.vfs):
        if not function.vf_total:
            continue
        try:
            return _choose_of(host, function, count)
        except VgpumgrError as error:
            reasons.append(_tell(error))
    raise _no_device("no virtual function is free", reasons, "vgpumgr vf list")


def find_selected(host: HostObserved, selector: str) -> Function:
    """The PCI function by its address, or by NVML's names of the GPU: index, UUID, prefix; also of
    one that NVML does not see any more because it was bound away. Raises GpuNotFoundError,
    GpuAmbiguousError.
    """
    address = _read_address(selector)
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


def check_whole_gpu(host: HostObserved, function: Function) -> None:
    """Raises what stands in the way of giving the function away, with those of its card."""
    if function.is_bridge:
        raise BackendUnsupportedError(
            f"{function.address} is a bridge", why="bridges stay with the host"
        )
    if function.vfs:
        raise PciBusyError(
            f"{function.address} has {len(function.vfs)} virtual functions",
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
    given = (function, *host.list_companions(function))
    _check_group(host, function, given)
    for one in given:
        check_free(host, one)


def check_free(host: HostObserved, function: Function) -> None:
    """Raises DeviceTakenError or PciBusyError if somebody has or uses the function."""
    if owner := host.taken.get(function.address):
        raise DeviceTakenError(
            f"{function.address} is taken", held_by=[owner], hint="vgpumgr vm list"
        )
    if users := host.users.get(function.address):
        raise PciBusyError(
            f"{function.address} is in use",
            held_by=[str(user) for user in users],
            hint="stop them, then repeat",
        )


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
    blockers = [
        f for f in host.functions if f.group in groups and f.address not in known and not f.is_free
    ]
    if blockers:
        raise GroupNotViableError(
            f"the IOMMU group {function.group} of {function.address} is not viable",
            why="other functions in it belong to the host's drivers",
            held_by=[str(blocker) for blocker in blockers],
            hint=f"vgpumgr passthrough bind {blockers[0].address}",
        )


def _make_whole(host: HostObserved, function: Function, why: str) -> WholeGpu:
    gpu, binding = host.find_gpu(function.address), host.find_binding(function.address)
    uuid = gpu.uuid if gpu else None
    if uuid is None and binding is not None and binding.gpu_uuid:
        uuid = GpuUuid(binding.gpu_uuid)
    return WholeGpu(function, host.list_companions(function), uuid, f"{function.address}: {why}")


def _list_gpus(host: HostObserved) -> list[Function]:
    return [f for f in host.functions if f.is_gpu and f.physical is None]


def _choose_of(host: HostObserved, physical: Function, count: int | None) -> OneVf:
    _check_physical(physical)
    if not physical.vfs:
        return _make_first(host, physical, count or 1)
    if count is not None and count != len(physical.vfs):
        raise VfCountError(
            f"{physical.address} is cut into {len(physical.vfs)} virtual functions, not {count}",
            why="a driver changes their number only by removing all of them",
            hint=f"--profile vf, or vgpumgr vf disable {physical.address} first",
        )
    reasons = []
    for index, address in enumerate(physical.vfs):
        function = host.find(address)
        if function is None:
            continue
        try:
            _check_vf(host, function)
        except VgpumgrError as error:
            reasons.append(_tell(error))
            continue
        why = f"virtual function {index} of {len(physical.vfs)} of {physical.address} is free"
        return OneVf(physical, index, address, None, why, function)
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
            hint="name a type as the profile: vgpumgr mdev types",
        )


def _make_first(host: HostObserved, physical: Function, count: int) -> OneVf:
    if count > physical.vf_total:
        raise VfCountError(
            f"{physical.address} cannot be cut into {count} virtual functions",
            why=f"it can have {physical.vf_total}",
            hint=f"--profile vf:{physical.vf_total}",
        )
    if owner := host.taken.get(physical.address):
        raise DeviceTakenError(
            f"{physical.address} is taken as a whole", held_by=[owner], hint="vgpumgr vm list"
        )
    if physical.driver is None or physical.driver == VFIO:
        raise VfUnsupportedError(
            f"{physical.address} makes no virtual functions",
            why=f"it has {physical.driver or 'no driver'}; the GPU's own driver makes them",
            hint=f"vgpumgr passthrough unbind {physical.address}",
        )
    why = f"{physical.address} is not cut yet: {count} of up to {physical.vf_total}"
    return OneVf(physical, 0, physical.locate_vf(0), count, why)


def _take_named(host: HostObserved, function: Function) -> OneVf:
    assert function.physical is not None
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


def _read_address(selector: str) -> PciAddress | None:
    try:
        return PciAddress.parse(selector)
    except ValueError:
        return None


def _tell(error: VgpumgrError) -> str:
    held = f" ({', '.join(error.held_by)})" if error.held_by else ""
    return f"{error.error}{held}"


def _no_device(what: str, reasons: Sequence[str], hint: str) -> NoDeviceError:
    why = "; ".join(dict.fromkeys(reasons)) or "this machine has none"
    return NoDeviceError(what, why=why, hint=hint)
