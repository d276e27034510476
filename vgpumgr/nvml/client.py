"""``protocol.Nvml`` over a helper process with a deadline for every call; GPUs of a machine as NVML and ``/sys`` list
them, and those that only ``/sys`` lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from vgpumgr.errors import (
    GpuLostError,
    HelperDiedError,
    NvmlError,
    NvmlInsufficientResourcesError,
    NvmlInUseError,
    NvmlMissingError,
    NvmlNotFoundError,
    NvmlNotSupportedError,
    NvmlPermissionError,
)
from vgpumgr.host.clock import Clock
from vgpumgr.host.helper import HelperFaultError, HelperOnDemand
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import (
    has_mdev_parents,
    list_bar_sizes,
    list_functions,
    name_pci_device,
)
from vgpumgr.host.process import read_name
from vgpumgr.model.codec import decode
from vgpumgr.model.gpu import Gpu, GpuProcess, Inventory, PciGpu, ProcessTimes
from vgpumgr.model.health import GpuEvent
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, MigModeChange, Placement
from vgpumgr.model.pci import Function, IommuGroup, PciAddress
from vgpumgr.nvml.protocol import Nvml

if TYPE_CHECKING:
    from vgpumgr.model.vgpu import GpuVgpus


#: how a late call of this kind is recorded
READ_INVENTORY = "read_inventory"
STUCK = "the GPUs are not read again while an earlier read is stuck"
T = TypeVar("T")
READ_TIMEOUT_S = 30.0
# Destroying takes about a second, a mode change may reset the GPU.
CHANGE_TIMEOUT_S = 120.0
#: nvml.h, nvmlReturn_t
_IN_USE = 19


class NvmlClient:
    """One machine's NVML. The helper starts with the first call; a late one is replaced by the
    next.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        helper: HelperOnDemand | None = None,
        clock: Clock | None = None,
        read_timeout_s: float = READ_TIMEOUT_S,
        change_timeout_s: float = CHANGE_TIMEOUT_S,
    ) -> None:
        self._helper = helper or HelperOnDemand(machine, "vgpumgr.nvml.helper", clock=clock)
        self._read_timeout_s = read_timeout_s
        self._change_timeout_s = change_timeout_s
        self._names: dict[GpuUuid, str] = {}

    def read_inventory(self) -> Inventory:
        """See ``Nvml``."""
        inventory = self._read(Inventory, "read the GPUs", READ_INVENTORY)
        gpus = tuple(replace(gpu, processes=_name_all(gpu.processes)) for gpu in inventory.gpus)
        self._names |= {gpu.uuid: str(gpu) for gpu in gpus}
        return replace(inventory, gpus=gpus)

    def _name(self, gpu: GpuUuid) -> str:
        """The GPU as people call it, if it was read before."""
        return self._names.get(gpu, str(gpu))

    def list_processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        """See ``Nvml``."""
        what = f"list the processes on {self._name(gpu)}"
        return _name_all(self._read(tuple[GpuProcess, ...], what, "list_processes", gpu=gpu))

    def read_process_times(self, gpu: GpuUuid, since_us: int) -> ProcessTimes:
        """What part of the GPU's time each process has had since then, in microseconds since 1970. No part of
        ``Nvml``: a daemon alone compares it. Raises what its reads raise.
        """
        what = f"read the time of processes on {self._name(gpu)}"
        asked = {"gpu": gpu, "since_us": since_us}
        return self._read(ProcessTimes, what, "read_process_times", **asked)

    def list_gpu_instances(self, gpu: GpuUuid) -> tuple[GpuInstance, ...]:
        """See ``Nvml``."""
        what = f"list the MIG instances of {self._name(gpu)}"
        return self._read(tuple[GpuInstance, ...], what, "list_gpu_instances", gpu=gpu)

    def set_mig_mode(self, gpu: GpuUuid, enabled: bool) -> MigModeChange:
        """See ``Nvml``."""
        what = f"turn {'on' if enabled else 'off'} MIG mode of {self._name(gpu)}"
        from vgpumgr.host.holders import end_monitors

        # an A100 changes its mode by a reset, which waits for all that have the GPU open
        self._helper.close()
        end_monitors(self._helper.records)
        return self._change(MigModeChange, what, "set_mig_mode", gpu, enabled=enabled)

    def create_gpu_instance(
        self, gpu: GpuUuid, profile_id: int, placement: Placement
    ) -> GpuInstance:
        """See ``Nvml``."""
        what = f"create a GPU instance (profile {profile_id} at {placement}) on {self._name(gpu)}"
        asked = {"profile_id": profile_id, "placement": placement}
        return self._change(GpuInstance, what, "create_gpu_instance", gpu, **asked)

    def create_compute_instance(
        self,
        gpu: GpuUuid,
        gpu_instance_id: int,
        slices: int,
        placement: Placement | None = None,
    ) -> ComputeInstance:
        """See ``Nvml``."""
        where = f"instance {gpu_instance_id} of {self._name(gpu)}"
        what = f"create a compute instance of {slices} slices in {where}"
        asked = {"gpu_instance_id": gpu_instance_id, "slices": slices, "placement": placement}
        return self._change(ComputeInstance, what, "create_compute_instance", gpu, **asked)

    def destroy_compute_instance(
        self, gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int
    ) -> None:
        """See ``Nvml``."""
        where = f"instance {gpu_instance_id} of {self._name(gpu)}"
        what = f"destroy compute instance {compute_instance_id} in {where}"
        asked = {"gpu_instance_id": gpu_instance_id, "compute_instance_id": compute_instance_id}
        self._change(NoneType, what, "destroy_compute_instance", gpu, **asked)

    def destroy_gpu_instance(self, gpu: GpuUuid, gpu_instance_id: int) -> None:
        """See ``Nvml``."""
        what = f"destroy GPU instance {gpu_instance_id} on {self._name(gpu)}"
        asked = {"gpu_instance_id": gpu_instance_id}
        self._change(NoneType, what, "destroy_gpu_instance", gpu, **asked)

    def list_vgpus(self) -> tuple[GpuVgpus, ...]:
        """See ``Nvml``."""
        from vgpumgr.model.vgpu import GpuVgpus

        return self._read(tuple[GpuVgpus, ...], "read the vGPU types", "list_vgpus")

    def set_mixed_sizes(self, gpu: GpuUuid, enabled: bool) -> None:
        """See ``Nvml``."""
        what = f"turn mixed vGPU sizes {'on' if enabled else 'off'} on {self._name(gpu)}"
        self._change(NoneType, what, "set_mixed_sizes", gpu, enabled=enabled)

    def take_events(self) -> tuple[GpuEvent, ...]:
        """What GPUs have reported since the last call; the first one begins to listen. No part of ``Nvml``: a
        daemon alone stays to hear it. Raises HelperDiedError where the helper has ended: a command wants the GPUs
        without it for a while.
        """
        what = "cannot hear what GPUs report"
        if self._helper.has_ended:
            self._helper.close()
            raise HelperDiedError(what)
        try:
            answer = self._helper.call("take_events", {}, self._read_timeout_s)
        except HelperFaultError as fault:
            raise make_error(what, fault.data) from None
        return decode(tuple[GpuEvent, ...], answer)

    def close(self) -> None:
        """Ends the helper; the next call would start another."""
        self._helper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, kind: type[T], what: str, method: str, **params: Any) -> T:
        try:
            try:
                answer = self._helper.call(method, params, self._read_timeout_s)
            except HelperDiedError:
                # ended by a command that takes a GPU from the driver; a read may be made again
                answer = self._helper.call(method, params, self._read_timeout_s)
            return decode(kind, answer)
        except HelperFaultError as fault:
            raise make_error(f"cannot {what}", fault.data) from None

    def _change(self, kind: type[T], what: str, method: str, gpu: GpuUuid, **params: Any) -> T:
        try:
            answer = self._helper.call(method, {"gpu": gpu, **params}, self._change_timeout_s)
        except HelperFaultError as fault:
            held_by = self._list_holders(gpu, params) if fault.data["code"] == _IN_USE else ()
            raise make_error(f"cannot {what}", fault.data, held_by) from None
        return decode(kind, answer)

    def _list_holders(self, gpu: GpuUuid, params: dict[str, Any]) -> list[str]:
        """Processes on the GPU, or on the instance that the failed call named."""
        try:
            processes = self.list_processes(gpu)
        except NvmlError:
            return []
        wanted = params.get("gpu_instance_id")
        return [str(p) for p in processes if wanted is None or p.gpu_instance_id == wanted]


def _name_all(processes: tuple[GpuProcess, ...]) -> tuple[GpuProcess, ...]:
    return tuple(replace(process, name=read_name(process.pid)) for process in processes)


#: nvml.h, nvmlReturn_t: the class of each code, why it is, and what helps
_ERRORS: Mapping[int, tuple[type[NvmlError], str | None, str | None]] = {
    1: (NvmlMissingError, "NVML was not initialised, or the driver went away meanwhile", None),
    3: (NvmlNotSupportedError, None, None),
    4: (
        NvmlPermissionError,
        "this needs root, or read access to the capability under /proc/driver/nvidia/capabilities",
        "repeat as root",
    ),
    6: (NvmlNotFoundError, "it has gone, or never was there", "vgpumgr gpu list; vgpumgr mig list"),
    9: (
        NvmlMissingError,
        "the NVIDIA kernel driver is not loaded",
        "modprobe nvidia; or vgpumgr --machine NAME for a simulated machine",
    ),
    12: (
        NvmlMissingError,
        "libnvidia-ml.so.1 is not installed: this host has no NVIDIA driver",
        "install the NVIDIA driver; or vgpumgr --machine NAME for a simulated machine",
    ),
    13: (NvmlNotSupportedError, "the installed driver is too old for this function", None),
    15: (
        GpuLostError,
        "the GPU does not answer on the bus any more",
        "nvidia-smi --gpu-reset, or reboot; dmesg names the Xid",
    ),
    16: (GpuLostError, "the GPU works again only after a reset", "nvidia-smi --gpu-reset"),
    18: (
        NvmlMissingError,
        "the kernel module and libnvidia-ml.so.1 are of different versions, as after an update",
        "reboot, or reload the nvidia modules",
    ),
    _IN_USE: (
        NvmlInUseError,
        "a process, or a compute instance, still uses it",
        "stop the holders, then repeat",
    ),
    23: (
        NvmlInsufficientResourcesError,
        "no free place or compute slices, or an instance is already there",
        "vgpumgr mig list",
    ),
}


def make_error(error: str, data: Mapping[str, Any], held_by: Sequence[str] = ()) -> NvmlError:
    """The error for a failed call; ``data`` as ``calls.fault`` made it, ``error`` in the user's
    words.
    """
    code = int(data["code"])
    kind, why, hint = _ERRORS.get(code, (NvmlError, None, None))
    cause = f"{data['call']}: {data['text']} (NVML {code})"
    if load_error := data.get("load_error"):
        cause = f"{data['call']}: {load_error} (NVML {code})"
        why = "libnvidia-ml.so.1 is installed, but cannot be loaded"
        hint = "install the NVIDIA driver's libraries again, for this architecture"
    return kind(error, cause=cause, why=why, held_by=held_by, hint=hint)


_Functions = Mapping[PciAddress, Function]


def read_machine_inventory(nvml: Nvml, machine: Machine) -> Inventory:
    """NVML's inventory with NUMA node, IOMMU group and driver of each GPU filled in, and the GPUs
    without NVML. Raises NvmlMissingError only where there is no GPU at all.
    """
    try:
        inventory = nvml.read_inventory()
    except NvmlMissingError:
        others = list_pci_gpus(machine)
        if not others:
            raise
        parents = has_mdev_parents(machine)
        return Inventory("", "", None, (), others=others, has_vgpu_parents=parents)
    return complete_inventory(inventory, machine)


def complete_inventory(inventory: Inventory, machine: Machine) -> Inventory:
    """The same inventory with what only ``/sys`` says; NVML is not asked again."""
    functions = _read_functions(machine)
    gpus = tuple(_complete(gpu, functions) for gpu in inventory.gpus)
    others = _list_others(machine, functions, {gpu.pci for gpu in gpus})
    if inventory.lost:
        # NVML counts these, but does not say where they are
        others = tuple(gpu for gpu in others if gpu.driver != "nvidia")
    parents = any(gpu.vfs for gpu in gpus) or has_mdev_parents(machine)
    return replace(inventory, gpus=gpus, others=others, has_vgpu_parents=parents)


def list_pci_gpus(machine: Machine, known: Collection[PciAddress] = ()) -> tuple[PciGpu, ...]:
    """All display controllers and processing accelerators but those that are ``known`` already, by address; their
    virtual functions are none.
    """
    return _list_others(machine, _read_functions(machine), known)


def _read_functions(machine: Machine) -> _Functions:
    return {function.address: function for function in list_functions(machine)}


def _list_others(
    machine: Machine, functions: _Functions, known: Collection[PciAddress]
) -> tuple[PciGpu, ...]:
    return tuple(
        _describe(machine, function, functions)
        for function in functions.values()
        if function.is_gpu and function.address not in known and not function.physical
    )


def _complete(gpu: Gpu, functions: _Functions) -> Gpu:
    function = functions.get(gpu.pci)
    if function is None:
        return gpu
    return replace(
        gpu,
        numa_node=function.numa_node,
        iommu_group=_find_group(function, functions),
        driver=function.driver,
        vfs=_list_vfs(function, functions),
        vfs_enabled=len(function.vfs),
        vfs_total=function.vf_total or None,
    )


def _list_vfs(function: Function, functions: _Functions) -> tuple[Function, ...]:
    return tuple(functions[address] for address in function.vfs if address in functions)


def _find_group(function: Function, functions: _Functions) -> IommuGroup | None:
    if function.group is None:
        return None
    members = (f.address for f in functions.values() if f.group == function.group)
    return IommuGroup(function.group, tuple(members))


def _describe(machine: Machine, function: Function, functions: _Functions) -> PciGpu:
    has_vfs = function.vf_total > 0
    return PciGpu(
        address=function.address,
        vendor_id=function.vendor_id,
        device_id=function.device_id,
        class_code=function.class_code,
        model=name_pci_device(function.vendor_id, function.device_id),
        driver=function.driver,
        numa_node=function.numa_node,
        iommu_group=_find_group(function, functions),
        bar_bytes=list_bar_sizes(machine, function.address) or (),
        vfs_total=function.vf_total if has_vfs else None,
        vfs_enabled=len(function.vfs) if has_vfs else None,
        vfs=_list_vfs(function, functions),
        is_boot_display=function.boot_display,
    )
