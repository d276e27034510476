"""The Xids that NVIDIA's module writes to the kernel's log: also those that came while no process heard NVML's events.

``/dev/kmsg`` gives one record for each read (kernel: Documentation/ABI/testing/dev-kmsg): ``PRIORITY,NUMBER,TIME,FLAGS;
TEXT``, and lines of details that begin with a blank. The kernel numbers records from 0 in each boot, counts the time in
microseconds from it, and gives what a program writes there another facility than its own. The form of an Xid is
NVIDIA's: XID Errors, "Viewing Xid Error Messages".
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from vgpumgr.errors import UntrustedPathError
from vgpumgr.host.files import make_directory, read_private, replace_file
from vgpumgr.host.machine import KERNEL_LOG, Machine, read_boot_id
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import PciAddress

_POSITION = "kernel-log"
#: more than the longest record
_READ_BYTES = 16384
#: the kernel's buffer has at most so much, whatever writes to it meanwhile
_MOST_BYTES = 64 << 20
_RECORD = re.compile(rb"(\d{1,9}),(\d{1,19}),(\d{1,19}),[^;\n]*;(.*)")
_XID = re.compile(
    rb"NVRM: Xid \(PCI:(?P<slot>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?: GPU-I:(?P<instance>\d{1,3}))?\): "
    rb"(?P<xid>\d{1,6})(?!\d)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LoggedXid:
    """An Xid in the log. ``at_s`` counts from the boot."""

    number: int
    at_s: float
    address: PciAddress
    xid: int
    gpu_instance_id: int | None = None


def parse_record(line: bytes) -> LoggedXid | None:
    """The Xid that a record reports. None: it reports none, or is not the kernel's own."""
    record = _RECORD.match(line)
    if record is None:
        return None
    priority, number, time_us, text = record.groups()
    # the facility is in the bits above the level; the kernel's is 0
    found = _XID.match(text) if int(priority) < 8 else None
    address = PciAddress.read(f"{found['slot'].decode()}.0") if found else None
    if found is None or address is None:
        return None
    instance = None if found["instance"] is None else int(found["instance"])
    return LoggedXid(int(number), int(time_us) / 1e6, address, int(found["xid"]), instance)


class KernelLog:
    """The log of a machine, read on from where this or another process has come to. Where it cannot be read (it needs
    root) it has nothing.
    """

    def __init__(self, machine: Machine) -> None:
        self._path = machine.path(KERNEL_LOG)
        self._position_path = machine.run_dir / _POSITION
        self._boot_id = read_boot_id(machine)
        self._descriptor = -1
        self._number = self._read_position()

    def read(self) -> list[LoggedXid]:
        """What came since the last call, or since the position that another process has written."""
        found = [
            xid
            for line in self._read_lines()
            for xid in [parse_record(line)]
            if xid is not None and xid.number > self._number
        ]
        self._number = max([self._number, *(xid.number for xid in found)])
        return found

    def write_position(self, number: int) -> None:
        """All up to that record is known: no other process reads it again."""
        with contextlib.suppress(OSError, UntrustedPathError):
            make_directory(self._position_path.parent)
            replace_file(self._position_path, f"{self._boot_id} {number}\n")

    def close(self) -> None:
        """Lets the file go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read_position(self) -> int:
        try:
            boot, number = read_private(self._position_path).decode().split()
            return int(number) if boot == self._boot_id else -1
        except (OSError, UntrustedPathError, ValueError):
            return -1

    def _read_lines(self) -> Iterator[bytes]:
        rest, count = b"", 0
        for part in self._read_parts():
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
            count += len(part)
            if count > _MOST_BYTES:
                break

    def _read_parts(self) -> Iterator[bytes]:
        try:
            if self._descriptor < 0:
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags)
            while True:
                try:
                    part = os.read(self._descriptor, _READ_BYTES)
                except BrokenPipeError:
                    continue  # records that were not read yet are overwritten; the next one is there
                if not part:
                    return
                yield part
        except OSError:
            return  # no more (EAGAIN), or not to be read here
