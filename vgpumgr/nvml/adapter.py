"""NVML to our models, inside the helper process. Methods and what they answer are those of ``protocol.Nvml``."""

from __future__ import annotations

from contextlib import suppress
from ctypes import CDLL, c_void_p, cast
from typing import TYPE_CHECKING, Any

import pynvml

from vgpumgr.host.helper_server import HelperFaultError
from vgpumgr.model.codec import decode
from vgpumgr.model.gpu import (
    Gpu,
    GpuMemory,
    GpuProcess,
    Inventory,
    LostGpu,
    ProcessKind,
    ProcessTime,
    ProcessTimes,
    Utilisation,
)
from vgpumgr.model.health import GpuEvent
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import (
    ComputeInstance,
    GpuInstance,
    MigActivation,
    MigMode,
    MigModeChange,
    MigProfile,
    Placement,
)
from vgpumgr.model.pci import PciAddress
from vgpumgr.nvml import calls
from vgpumgr.nvml.calls import ABSENT, call, error_text, id_or_none, text, try_call

if TYPE_CHECKING:
    from vgpumgr.model.vgpu import GpuVgpus

_LIBRARY = "libnvidia-ml.so.1"
#: a GPU that reports without end must not keep the helper
_EVENTS_AT_ONCE = 64
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
}
_AMPERE = 7
_ACTIVATIONS = {
    pynvml.NVML_SUCCESS: MigActivation.DONE,
    pynvml.NVML_ERROR_IN_USE: MigActivation.IN_USE,
}
# One GPU in such a state must not hide the others.
_LOST = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_IRQ_ISSUE,
        pynvml.NVML_ERROR_CORRUPTED_INFOROM,
        pynvml.NVML_ERROR_INSUFFICIENT_POWER,
        pynvml.NVML_ERROR_UNKNOWN,
    }
)


class Adapter:
    """Answers calls; NVML is initialised by the first and stays so."""

    def __init__(self) -> None:
        self._ready = False
        self._events: _Events | None = None

    def read_inventory(self) -> Inventory:
        """See ``protocol.Nvml``."""
        self._init()
        driver = text(call("nvmlSystemGetDriverVersion"))
        gpus, lost = [], []
        for index in range(call("nvmlDeviceGetCount")):
            try:
                gpus.append(_read_gpu(index, call("nvmlDeviceGetHandleByIndex", index), driver))
            except HelperFaultError as fault:
                if fault.data["code"] not in _LOST:
                    raise
                lost.append(LostGpu(index, fault.data["code"], fault.data["text"]))
        cuda = try_call("nvmlSystemGetCudaDriverVersion_v2")
        return Inventory(
            driver_version=driver,
            nvml_version=text(call("nvmlSystemGetNVMLVersion")),
            cuda_version=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
            gpus=tuple(gpus),
            lost=tuple(lost),
        )

    def list_processes(self, gpu: str) -> tuple[GpuProcess, ...]:
        """See ``protocol.Nvml``."""
        return _list_processes(self._handle(gpu))

    def read_process_times(self, gpu: str, since_us: int) -> ProcessTimes:
        """See ``client.NvmlClient``; nvml.h: nvmlDeviceGetProcessUtilization."""
        try:
            samples = call("nvmlDeviceGetProcessUtilization", self._handle(gpu), since_us)
        except HelperFaultError as error:
            if error.data["code"] == pynvml.NVML_ERROR_NOT_FOUND:  # no process had any
                return ProcessTimes(())
            if error.data["code"] in ABSENT:
                return ProcessTimes(None)
            raise
        return ProcessTimes(tuple(ProcessTime(one.pid, one.smUtil / 100) for one in samples))

    def list_gpu_instances(self, gpu: str) -> tuple[GpuInstance, ...]:
        """See ``protocol.Nvml``."""
        handle = self._handle(gpu)
        if not _read_mig_mode(handle).current:
            return ()
        return calls.list_instances(handle, calls.list_profiles(handle))

    def set_mig_mode(self, gpu: str, enabled: bool) -> MigModeChange:
        """See ``protocol.Nvml``. Handles are fetched again: the call may have reset the GPU."""
        status = call("nvmlDeviceSetMigMode", self._handle(gpu), int(enabled))
        mode = _read_mig_mode(self._handle(gpu))
        return MigModeChange(
            current=mode.current,
            pending=mode.pending,
            activation=_ACTIVATIONS.get(status, MigActivation.RESET_REQUIRED),
            status_code=status,
            status_text=error_text(status),
        )

    def create_gpu_instance(self, gpu: str, profile_id: int, placement: Any) -> GpuInstance:
        """See ``protocol.Nvml``."""
        place = decode(Placement, placement)
        return calls.create_instance(self._handle(gpu), profile_id, place)

    def create_compute_instance(
        self, gpu: str, gpu_instance_id: int, slices: int, placement: Any = None
    ) -> ComputeInstance:
        """See ``protocol.Nvml``."""
        place = None if placement is None else decode(Placement, placement)
        return calls.create_compute(self._handle(gpu), gpu_instance_id, slices, place)

    def destroy_compute_instance(
        self, gpu: str, gpu_instance_id: int, compute_instance_id: int
    ) -> None:
        """See ``protocol.Nvml``."""
        gi = call("nvmlDeviceGetGpuInstanceById", self._handle(gpu), gpu_instance_id)
        ci = call("nvmlGpuInstanceGetComputeInstanceById", gi, compute_instance_id)
        call("nvmlComputeInstanceDestroy", ci)

    def destroy_gpu_instance(self, gpu: str, gpu_instance_id: int) -> None:
        """See ``protocol.Nvml``."""
        gi = call("nvmlDeviceGetGpuInstanceById", self._handle(gpu), gpu_instance_id)
        call("nvmlGpuInstanceDestroy", gi)

    def list_vgpus(self) -> tuple[GpuVgpus, ...]:
        """See ``protocol.Nvml``."""
        self._init()
        return calls.list_vgpus()

    def set_mixed_sizes(self, gpu: str, enabled: bool) -> None:
        """See ``protocol.Nvml``."""
        call("nvmlDeviceSetVgpuHeterogeneousMode", self._handle(gpu), int(enabled))

    def take_events(self) -> tuple[GpuEvent, ...]:
        """What event sets have heard since the last call; the first begins to listen."""
        self._init()
        try:
            self._events = self._events or _Events()
            return self._events.take()
        except HelperFaultError as error:
            if self._events is not None:
                self._events.close()
                self._events = None
            if error.data["code"] == pynvml.NVML_ERROR_GPU_IS_LOST:
                return ()  # the next set is one of those that are left
            # of a driver that was unloaded NVML says no more until it is initialised again
            with suppress(HelperFaultError):
                call("nvmlShutdown")
            self._ready = False
            raise

    def _init(self) -> None:
        if self._ready:
            return
        try:
            call("nvmlInit")
        except HelperFaultError as error:
            if error.data["code"] != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise
            data = {**error.data, "load_error": _find_load_error()}
            raise HelperFaultError(error.kind, data) from error
        self._ready = True

    def _handle(self, gpu: str) -> Any:
        self._init()
        return call("nvmlDeviceGetHandleByUUID", gpu.encode())


def _find_load_error() -> str | None:
    """What the loader says of a library that is there and cannot be loaded; None: it is not there."""
    try:
        CDLL(_LIBRARY)
    except OSError as error:
        missing = f"{_LIBRARY}: cannot open shared object file: No such file"
        return None if str(error).startswith(missing) else str(error)
    return None


class _Events:
    """An event set with every GPU that answers."""

    def __init__(self) -> None:
        #: where each is, and its UUID: a lost one would no longer say
        self._gpus: dict[int | None, tuple[PciAddress, str]] = {}
        self._set = call("nvmlEventSetCreate")
        for index in range(call("nvmlDeviceGetCount")):
            with suppress(HelperFaultError):  # one that is lost, or has no events, hides no other
                self._register(call("nvmlDeviceGetHandleByIndex", index))

    def _register(self, handle: Any) -> None:
        pci = call("nvmlDeviceGetPciInfo", handle)
        wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        types = call("nvmlDeviceGetSupportedEventTypes", handle) & wanted
        if types:
            place = PciAddress(pci.domain, pci.bus, pci.device)
            self._gpus[_number(handle)] = (place, text(call("nvmlDeviceGetUUID", handle)))
            call("nvmlDeviceRegisterEvents", handle, types, self._set)

    def take(self) -> tuple[GpuEvent, ...]:
        """All that have come since; a GPU that is lost is an error once its events are taken."""
        found: list[GpuEvent] = []
        while self._gpus and len(found) < _EVENTS_AT_ONCE:
            try:
                data = call("nvmlEventSetWait_v2", self._set, 0)
            except HelperFaultError as error:
                if found or error.data["code"] == pynvml.NVML_ERROR_TIMEOUT:
                    break
                raise
            if (gpu := self._gpus.get(_number(data.device))) is not None:
                found.append(_read_event(gpu, data))
        return tuple(found)

    def close(self) -> None:
        """Ends the set."""
        with suppress(HelperFaultError):
            call("nvmlEventSetFree", self._set)


def _number(handle: Any) -> int | None:
    """Handles are equal where their pointers are."""
    return cast(handle, c_void_p).value


def _read_event(gpu: tuple[PciAddress, str], data: Any) -> GpuEvent:
    if data.eventType == pynvml.nvmlEventTypeDoubleBitEccError:
        return GpuEvent(*gpu)
    gi, ci = id_or_none(data.gpuInstanceId), id_or_none(data.computeInstanceId)
    return GpuEvent(*gpu, int(data.eventData), gi, ci)


def _read_gpu(index: int, handle: Any, driver_version: str) -> Gpu:
    pci = call("nvmlDeviceGetPciInfo", handle)
    memory = call("nvmlDeviceGetMemoryInfo", handle)
    serial = try_call("nvmlDeviceGetSerial", handle)
    mode = _read_mig_mode(handle)
    profiles: tuple[MigProfile, ...] = calls.list_profiles(handle) if mode.supported else ()
    instances: tuple[GpuInstance, ...] = ()
    if mode.current:
        instances = calls.list_instances(handle, profiles)
    return Gpu(
        index=index,
        uuid=GpuUuid(text(call("nvmlDeviceGetUUID", handle))),
        model=text(call("nvmlDeviceGetName", handle)),
        pci=PciAddress(pci.domain, pci.bus, pci.device),
        pci_device_id=pci.pciDeviceId,
        pci_subsystem_id=pci.pciSubSystemId,
        memory=GpuMemory(memory.total, memory.used, _read_reserved(handle)),
        mig=mode,
        driver_version=driver_version,
        architecture=_ARCHITECTURES.get(try_call("nvmlDeviceGetArchitecture", handle) or 0),
        compute_capability=try_call("nvmlDeviceGetCudaComputeCapability", handle),
        serial=None if serial is None else text(serial),
        utilisation=_read_utilisation(handle),
        profiles=profiles,
        instances=instances,
        processes=_list_processes(handle),
        temperature_c=try_call("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU),
        slowdown_c=_read_slowdown(handle),
        ecc_errors=_count_ecc_errors(handle),
        power_mw=try_call("nvmlDeviceGetPowerUsage", handle),
        power_limit_mw=try_call("nvmlDeviceGetEnforcedPowerLimit", handle),
    )


def _read_reserved(handle: Any) -> int:
    """Drivers before R510 do not say."""
    memory = try_call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    return 0 if memory is None else int(memory.reserved)


def _read_slowdown(handle: Any) -> int | None:
    kind = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    found: int | None = try_call("nvmlDeviceGetTemperatureThreshold", handle, kind)
    return found


def _count_ecc_errors(handle: Any) -> int | None:
    """Uncorrectable ones since the driver was loaded."""
    kind, since = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    found: int | None = try_call("nvmlDeviceGetTotalEccErrors", handle, kind, since)
    return found


def _read_mig_mode(handle: Any) -> MigMode:
    modes = try_call("nvmlDeviceGetMigMode", handle)
    if modes is None:
        return MigMode(supported=False)
    ampere = try_call("nvmlDeviceGetArchitecture", handle) == _AMPERE
    return MigMode(True, bool(modes[0]), bool(modes[1]), needs_reset=ampere)


def _read_utilisation(handle: Any) -> Utilisation | None:
    """NVML has none for a GPU in MIG mode."""
    rates = try_call("nvmlDeviceGetUtilizationRates", handle)
    return None if rates is None else Utilisation(rates.gpu / 100, rates.memory / 100)


def _list_processes(handle: Any) -> tuple[GpuProcess, ...]:
    found: dict[tuple[int, int | None, int | None], GpuProcess] = {}
    for kind, name in (
        (ProcessKind.COMPUTE, "nvmlDeviceGetComputeRunningProcesses"),
        (ProcessKind.GRAPHICS, "nvmlDeviceGetGraphicsRunningProcesses"),
    ):
        for info in try_call(name, handle) or ():
            process = GpuProcess(
                pid=info.pid,
                name=None,
                kind=kind,
                memory_bytes=info.usedGpuMemory,
                gpu_instance_id=id_or_none(info.gpuInstanceId),
                compute_instance_id=id_or_none(info.computeInstanceId),
            )
            key = (process.pid, process.gpu_instance_id, process.compute_instance_id)
            found.setdefault(key, process)
    return tuple(found.values())
