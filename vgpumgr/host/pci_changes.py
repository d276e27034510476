"""Changes of PCI functions, and sensors of GPUs, through helper processes with a deadline for every call."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from typing import Any

from vgpumgr.errors import PciNotFoundError, PciWriteError, SysfsPermissionError, VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.host.helper import HelperFaultError, HelperOnDemand
from vgpumgr.host.holders import end_monitors
from vgpumgr.host.machine import Machine
from vgpumgr.host.sensor_helper import has_sensors
from vgpumgr.model.gpu import Sensors
from vgpumgr.model.pci import PciAddress

#: a driver that resets its GPU on the way takes a few seconds
BIND_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 15.0
SENSORS_TIMEOUT_S = 3.0
#: each virtual function takes a driver up to a second
VF_TIMEOUT_S = 60.0
#: the words that begin the name of a call that changes the number of virtual functions
SET_VFS = "set sriov_numvfs"
_READ_SENSORS = "read sensors of GPUs"
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENXIO)


class PciChanges:
    """What changes PCI functions of one machine; see ``pci_helper.Changes`` for the calls."""

    def __init__(
        self, machine: Machine, clock: Clock | None = None, bind_timeout_s: float = BIND_TIMEOUT_S
    ) -> None:
        root = str(machine.root)
        self._helper = HelperOnDemand(machine, "vgpumgr.host.pci_helper", root, clock=clock)
        self._clock = clock
        self._bind_timeout_s = bind_timeout_s

    def read_override(self, address: PciAddress) -> str | None:
        """What ``driver_override`` says."""
        what = f"read driver_override of {address}"
        return _text(self._call("read_override", what, READ_TIMEOUT_S, address=address))

    def bind(self, address: PciAddress, driver: str) -> str | None:
        """Answers whose it is afterwards."""
        what = f"bind {address} to {driver}"
        asked = {"address": address, "driver": driver}
        return _text(self._call("bind", what, self._bind_timeout_s, **asked))

    def end_monitors(self) -> None:
        """Ends our own NVML clients: the driver lets no GPU go that they have open."""
        end_monitors(self._helper.records, self._clock)

    def release(self, address: PciAddress, driver: str | None, override: str | None) -> str | None:
        """Answers whose it is afterwards."""
        what = f"give {address} back to {driver or 'no driver'}"
        asked = {"address": address, "driver": driver, "override": override}
        return _text(self._call("release", what, self._bind_timeout_s, **asked))

    def unbind(self, addresses: Sequence[PciAddress]) -> None:
        """Leaves functions without a driver."""
        what = f"unbind {', '.join(map(str, addresses))}"
        self._call("unbind", what, self._bind_timeout_s, addresses=list(addresses))

    def set_vf_count(self, address: PciAddress, count: int) -> None:
        """Writes the number of virtual functions."""
        what = f"{SET_VFS} of {address} to {count}"
        self._call("set_vf_count", what, VF_TIMEOUT_S, address=address, count=count)

    def run_program(
        self, path: str, arguments: Sequence[str], timeout_s: float, *, repeat_on: str
    ) -> str | None:
        """Runs a vendor's program of the machine; returns what it complains of, None where it succeeded.

        ``repeat_on``: a complaint that passes by itself.
        """
        what = " ".join([path.rpartition("/")[2], *arguments])
        asked = {"path": path, "arguments": list(arguments), "repeat_on": repeat_on}
        return _text(self._call("run_program", what, timeout_s, **asked))

    def load_module(self, name: str) -> str | None:
        """What modprobe complains of, None where it succeeded."""
        return _text(self._call("load_module", f"load module {name}", VF_TIMEOUT_S, name=name))

    def write_attributes(
        self, address: PciAddress, values: Sequence[tuple[str, str]]
    ) -> list[str | None]:
        """What they say afterwards; None for what cannot be read."""
        what = f"set {', '.join(name for name, _ in values)} of {address}"
        asked = {"address": address, "values": list(values)}
        return list(self._call("write_attributes", what, self._bind_timeout_s, **asked))

    def read_attributes(self, address: PciAddress, names: Sequence[str]) -> list[str | None]:
        """What they say; None for what cannot be read."""
        what = f"read attributes of {address}"
        asked = {"address": address, "names": list(names)}
        return list(self._call("read_attributes", what, READ_TIMEOUT_S, **asked))

    def close(self) -> None:
        """Ends the helper; the next call would start another."""
        self._helper.close()

    def _call(self, method: str, what: str, timeout_s: float, **params: Any) -> Any:
        try:
            return self._helper.call(method, params, timeout_s, what)
        except HelperFaultError as fault:
            raise make_error(what, fault.data) from None


class GpuSensors:
    """What the kernel's drivers show of a machine's GPUs without NVML; see ``sensor_helper``."""

    def __init__(
        self, machine: Machine, clock: Clock | None = None, timeout_s: float = SENSORS_TIMEOUT_S
    ) -> None:
        self._root = machine.root
        self._helper = HelperOnDemand(
            machine, "vgpumgr.host.sensor_helper", str(machine.root), clock=clock
        )
        self._timeout_s = timeout_s
        self._lock = threading.Lock()

    def read(self, addresses: Sequence[PciAddress]) -> dict[PciAddress, Sensors]:
        """Of each function what its driver shows; one without sensors is left out, and all while an earlier read is
        stuck. Raises nothing.
        """
        asked = [str(a) for a in addresses if has_sensors(self._root, str(a))]
        if not asked:
            return {}
        try:
            with self._lock:
                self._helper.records.check_not_stuck(_READ_SENSORS, _READ_SENSORS)
                answer = self._helper.call(
                    "read", {"addresses": asked}, self._timeout_s, _READ_SENSORS
                )
        except (VgpumgrError, HelperFaultError):
            return {}
        return {PciAddress.parse(a): Sensors(**found) for a, found in answer.items() if found}

    def close(self) -> None:
        """Ends the helper; the next read would start another."""
        with self._lock:
            self._helper.close()


def _text(answer: Any) -> str | None:
    return None if answer is None else str(answer)


def make_error(what: str, data: Any) -> VgpumgrError:
    """The error of a write that the kernel refused, with errno, path and value."""
    number = int(data["errno"])
    name = errno.errorcode.get(number, str(number))
    written = "" if data["value"] is None else f' "{data["value"]}"'
    cause = f"write{written} to {data['path']}: {data['text']} ({name})"
    if number in (errno.EACCES, errno.EPERM):
        return SysfsPermissionError(f"cannot {what}", cause=cause, hint="repeat it with sudo")
    if number in _GONE and data["path"].endswith(("driver_override", "/driver", "sriov_numvfs")):
        gone = "the function has left the bus, or its driver has no such attribute"
        return PciNotFoundError(
            f"cannot {what}", cause=cause, why=gone, hint="vgpumgr passthrough list"
        )
    return PciWriteError(f"cannot {what}", cause=cause, hint="dmesg | tail")
