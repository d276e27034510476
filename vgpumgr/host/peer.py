"""Who is at the other end of a unix socket, as the kernel attests it (unix(7))."""

from __future__ import annotations

import array
import socket
import struct
from dataclasses import dataclass

_UCRED = struct.Struct("iII")
# include/uapi/asm-generic/socket.h, since Linux 4.13
_SO_PEERGROUPS = 59
_NO_ID = 0xFFFFFFFF
# as many as getsockopt() of Python takes (1024 bytes); who is in more groups has only the primary one
_MAX_GROUPS = 256


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as it was when it connected; ``groups`` with its primary one."""

    pid: int
    uid: int
    groups: frozenset[int]


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
