"""The kernel's events about devices: a netlink socket of the family ``NETLINK_KOBJECT_UEVENT``.

The format is that of the kernel's lib/kobject_uevent.c: ``ACTION@DEVPATH``, then KEY=VALUE, each with
a zero byte behind it. A simulated machine has no kernel of its own, and so no events.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, Self

#: linux/netlink.h
_NETLINK_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
_MAX_EVENT_BYTES = 16 << 10
_BUFFER_BYTES = 1 << 20
#: what can change anything of a GPU, its functions or its vGPUs
SUBSYSTEMS = frozenset({"pci", "mdev", "vfio", "vfio-dev", "iommu", "nvidia", "drm"})


@dataclass(frozen=True, slots=True)
class Uevent:
    """One event; ``name`` is the last part of the device's path: a PCI address, an mdev's UUID."""

    action: str
    subsystem: str
    name: str
    driver: str | None = None

    def __str__(self) -> str:
        driver = f" ({self.driver})" if self.driver else ""
        return f"{self.subsystem} {self.name}: {self.action}{driver}"


@dataclass(frozen=True, slots=True)
class UeventBatch:
    """What was there to read; ``lost``: more than the socket could hold."""

    events: tuple[Uevent, ...] = field(default=())
    lost: bool = False


class UeventSource(Protocol):
    """Where events come from; a descriptor to wait on, and what is there to read without waiting."""

    def fileno(self) -> int:
        """Readable when there is something to read."""

    def read(self) -> UeventBatch:
        """All that is there."""

    def close(self) -> None:
        """Listens no more."""


class KernelUevents:
    """The kernel's own. Raises OSError where this process may not listen."""

    def __init__(self) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_NETLINK, kind, _NETLINK_KOBJECT_UEVENT)
        with contextlib.suppress(OSError):  # a larger one is only better
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.bind((0, _KERNEL_GROUP))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def read(self) -> UeventBatch:
        """All that is there, as far as it matters here. What a process sent is not believed."""
        events, lost = [], False
        while True:
            try:
                data, (sender, _groups) = self._socket.recvfrom(_MAX_EVENT_BYTES)
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    lost = True
                    continue
                if error.errno in (errno.EAGAIN, errno.EINTR):
                    break
                raise
            event = parse_uevent(data) if sender == 0 else None
            if event is not None and event.subsystem in SUBSYSTEMS:
                events.append(event)
        return UeventBatch(tuple(events), lost)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def parse_uevent(data: bytes) -> Uevent | None:
    """One message; None if it is none of the kernel's form (udev's own messages are not)."""
    head, *rest = data.split(b"\0")
    action, at, path = head.decode(errors="replace").partition("@")
    if not at or not path.startswith("/"):
        return None
    fields = dict(_read_fields(rest))
    subsystem = fields.get("SUBSYSTEM")
    if subsystem is None:
        return None
    return Uevent(action, subsystem, os.path.basename(path), fields.get("DRIVER"))  # noqa: PTH119


def _read_fields(parts: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    for part in parts:
        key, equals, value = part.decode(errors="replace").partition("=")
        if equals:
            yield key, value
