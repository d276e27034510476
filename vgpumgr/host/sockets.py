"""Sockets of a service: who is at the other end, as the kernel attests it (unix(7)); the one that systemd listens on,
and notifications to systemd (sd_listen_fds(3), sd_notify(3)); the kernel's events of devices (netlink(7)).
The format of an event is that of the kernel's lib/kobject_uevent.c: ``ACTION@DEVPATH``, then KEY=VALUE, each with
a zero byte behind it. A simulated machine has no kernel of its own, and so no events.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Mapping, MutableMapping
from dataclasses import field
from typing import Protocol, Self

from vgpumgr.model.callers import NetworkCaller
from vgpumgr.model.frozen import dataclass

_UCRED = struct.Struct("iII")
# include/uapi/asm-generic/socket.h, since Linux 4.13
_SO_PEERGROUPS = 59
_NO_ID = 0xFFFFFFFF
#: the user of who calls over a network
NO_USER = -1
# as many as getsockopt() of Python takes (1024 bytes); who is in more groups has only the primary one
_MAX_GROUPS = 256


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as it was when it connected; ``groups`` with its primary one. Of a ``caller`` over a network there are
    none of them: see ``from_network``.
    """

    pid: int
    uid: int
    groups: frozenset[int]
    caller: NetworkCaller | None = None

    @classmethod
    def from_network(cls, caller: NetworkCaller) -> Self:
        """One that is no process of this host."""
        return cls(0, NO_USER, frozenset(), caller)

    @property
    def key(self) -> object:
        """Of one user, or of one token, all have the same one."""
        if self.caller is None:
            return self.uid
        return self.caller.id or self.caller.address

    def identify(self) -> dict[str, object]:
        """As the audit log names it."""
        if self.caller is None:
            return {"uid": self.uid, "pid": self.pid}
        return {"uid": None, "token": self.caller.name, "address": self.caller.address}

    def __str__(self) -> str:
        return f"user {self.uid}" if self.caller is None else str(self.caller)


def read_peer(connection: socket.socket) -> Peer | None:
    """The peer of a connected unix socket; None where the kernel names none."""
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    except OSError:
        return None
    pid, uid, gid = _UCRED.unpack(data)
    if pid == 0 or uid == _NO_ID:
        return None
    return Peer(pid, uid, frozenset({gid, *_read_groups(connection)}))


def _read_groups(connection: socket.socket) -> array.array[int]:
    groups = array.array("I")
    try:
        groups.frombytes(
            connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_GROUPS * groups.itemsize)
        )
    except OSError:
        return array.array("I")
    return groups


_FIRST_FD = 3


def take_listening_socket(
    environ: MutableMapping[str, str] | None = None,
) -> socket.socket | None:
    """The socket that systemd listens on for us; None if it did not start us through one.

    The variables are taken away: they are not meant for our children.
    """
    env = os.environ if environ is None else environ
    wanted = {name: env.pop(name, None) for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if wanted.get("LISTEN_PID") != str(os.getpid()) or wanted.get("LISTEN_FDS") != "1":
        return None
    os.set_inheritable(_FIRST_FD, False)
    return socket.socket(fileno=_FIRST_FD)


def notify(message: str, environ: Mapping[str, str] | None = None) -> bool:
    """Sends e.g. ``READY=1``; False where no service manager listens."""
    env = os.environ if environ is None else environ
    path = env.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    if path.startswith("@"):
        path = "\0" + path[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(message.encode(), path)
    except OSError:
        return False
    return True


def read_watchdog_s(environ: Mapping[str, str] | None = None) -> float | None:
    """How often to notify ``WATCHDOG=1``: half of what systemd waits for; None without a watchdog."""
    env = os.environ if environ is None else environ
    usec = env.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or env.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return max(int(usec) / 2e6, 0.05)


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
    """Where events come from; a descriptor to wait on, and the events that have arrived."""

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
    pairs = (part.decode(errors="replace").partition("=") for part in rest)
    fields = {key: value for key, equals, value in pairs if equals}
    subsystem = fields.get("SUBSYSTEM")
    if subsystem is None:
        return None
    return Uevent(action, subsystem, os.path.basename(path), fields.get("DRIVER"))  # noqa: PTH119
