"""A lane without our libraries, for guest processes of tests that attack: in a process of its own,
``from tests.unit.guest_lane import *``. The page docs/wire-format.md in Python, without its checks.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import mmap
import os
import socket
import struct
import sys
import time

__all__ = [
    "ALIGN", "BULK_IN", "BULK_OUT", "ECHO", "LARGE", "LOAD", "NULL", "REFUSE", "STORE", "WANTS_REPLY",
    "Lane", "RefusedError", "become", "connect", "ctypes", "fcntl", "mmap", "os", "readable",
    "request", "say", "socket", "struct", "sys", "time",
]  # fmt: skip

ECHO, REFUSE, NULL, STORE, LOAD, LARGE = 1, 9, 11, 12, 13, 15
WANTS_REPLY, BULK_IN, BULK_OUT = 1, 2, 4
ALIGN = 32
_PAGE = 4096
_LANES = 24576
_MAGIC = 0x41475631


class RefusedError(Exception):
    """The agent gave no lane, and says why."""


def become(uid: int, *groups: int) -> None:
    """From here on this process is an ordinary one of that user."""
    os.setgroups(groups)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: as if it had been started by that user


def say(*words: object) -> None:
    """A line for the test."""
    print(*words, flush=True)


def readable(path: str, flags: int = os.O_RDONLY) -> bool:
    """Whether this user can open it so."""
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True


def connect() -> socket.socket:
    """To the agent."""
    made = socket.socket(socket.AF_UNIX)
    made.connect(os.environ["VGPUMGR_AGENT"])  # waits where the agent is busy
    made.settimeout(60)
    return made


def request(version: int = 3) -> bytes:
    """What a process sends first."""
    return struct.pack("<II32s32sII", _MAGIC, version, b"1.0.0", b"attacker", 0, 0)


class Lane:
    """A lane of the test worker. Public fields are what the agent answered."""

    def __init__(self, fds_along: int = 0) -> None:
        self.socket = connect()
        own = [os.open("/dev/null", os.O_RDONLY) for _ in range(fds_along)]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", own))] if own else []
        self.socket.sendmsg([request()], rights)
        data, self.fds, _, _ = socket.recv_fds(self.socket, 256, 8)
        if len(data) < 256:
            raise RefusedError("no answer")
        _, error, self.transport, self.number, self.generation, self.size = struct.unpack_from(
            "<IiIIQQ", data
        )
        if error:
            raise RefusedError(data[56:].split(b"\0")[0].decode())
        self.sequence = 0
        if self.transport == 1:
            self._map()

    def _map(self) -> None:
        self.memory = mmap.mmap(self.fds[0], self.size)
        lane_size, self.submit_size, self.reply_size, self.window_size = struct.unpack_from(
            "<4I", self.memory, 32
        )
        self.base = _LANES + (self.number - 1) * lane_size
        self.submit = self.base + _PAGE
        self.reply = self.submit + self.submit_size
        self.window = self.reply + self.reply_size
        self.head = self.tail = 0

    def word(self, offset: int) -> int:
        """A word of the control page."""
        return int(struct.unpack_from("<Q", self.memory, self.base + offset)[0])

    def set_word(self, offset: int, value: int) -> None:
        """The same, written."""
        struct.pack_into("<Q", self.memory, self.base + offset, value)

    @property
    def lost(self) -> bool:
        """Whether the lane has ended."""
        return self.word(640) != self.generation

    def ring(self) -> None:
        """The doorbell."""
        os.write(self.fds[1], struct.pack("<Q", 1))

    def post(
        self, op: int, payload: bytes = b"", flags: int = 0, bulk: bytes = b"", room: int = 0
    ) -> int:
        """A frame with bulk at the window's beginning; room is what may come back there. Its sequence number."""
        self.sequence += 64
        size = ALIGN + len(payload)
        if bulk:
            self.memory[self.window : self.window + len(bulk)] = bulk
        header = struct.pack("<IIIIIIQ", size, op, self.sequence, flags, 0, len(bulk) or room, 0)
        at = self.submit + self.head % self.submit_size
        self.memory[at : at + size] = header + payload
        self.head += (size + ALIGN - 1) // ALIGN * ALIGN
        assert self.head <= self.submit_size, "this is made for few frames"
        self.set_word(0, self.head)
        self.ring()
        return self.sequence

    def answer(self, timeout_s: float = 120.0) -> tuple[int, bytes]:
        """The next reply's status and data."""
        end = time.monotonic() + timeout_s
        while self.word(384) == self.tail:
            if self.lost or time.monotonic() > end:
                raise RefusedError("the lane has ended" if self.lost else "no reply")
            time.sleep(0.001)
        at = self.reply + self.tail % self.reply_size
        size, status = struct.unpack_from("<Ii", self.memory, at)
        data = self.memory[at + ALIGN : at + size]
        self.tail += (size + ALIGN - 1) // ALIGN * ALIGN
        self.set_word(512, self.tail)
        return int(status), data

    def call(
        self, op: int, payload: bytes = b"", flags: int = 0, bulk: bytes = b"", room: int = 0
    ) -> bytes:
        """A frame and its reply's data."""
        self.post(op, payload, flags | WANTS_REPLY, bulk, room)
        status, data = self.answer()
        assert status == 0, status
        return data

    def send(self, kind: int, body: bytes, lane: int | None = None) -> None:
        """A message of the serial transport."""
        number = self.number if lane is None else lane
        self.socket.sendall(struct.pack("<IIII", 0x31534756, number, kind, len(body)) + body)
