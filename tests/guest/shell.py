"""Runs commands in a test guest through one of its ``test.shell`` ports (see ``image/init``)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MARK = b"\x1e"
LOOK_S = 5


@dataclass(frozen=True, slots=True)
class Result:
    """A command's exit status and what it printed, both streams together."""

    status: int
    output: str


class GuestShell:
    """One port of a guest; commands run one after another. ``look`` is called now and then until the guest is up."""

    def __init__(
        self, path: Path, timeout_s: float = 400, look: Callable[[], None] = lambda: None
    ) -> None:
        self._socket = self._connect(path, timeout_s)
        self._buffer = b""
        self._count = 0
        self._wait_ready(timeout_s, look)

    @staticmethod
    def _connect(path: Path, timeout_s: float) -> socket.socket:
        deadline = time.monotonic() + timeout_s
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
                return connection
            except OSError:
                connection.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _wait_ready(self, timeout_s: float, look: Callable[[], None]) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._until_mark(b"ready", LOOK_S)
                return
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
                look()

    def _until_mark(self, name: bytes, timeout_s: float) -> tuple[int, bytes]:
        deadline = time.monotonic() + timeout_s
        while True:
            head, found, rest = self._buffer.partition(MARK + name + b" ")
            line, newline, after = rest.partition(b"\n")
            if found and newline:
                self._buffer = after
                return int(line), head
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                raise TimeoutError(f"guest: no answer; so far {self._buffer!r}") from None
            if not data:
                raise ConnectionError(f"the guest went away; so far {self._buffer!r}")
            self._buffer += data

    def start(self, command: str) -> bytes:
        """Send a command without waiting for it; returns its name for ``finish``."""
        assert "\n" not in command
        self._count += 1
        name = b"%d" % self._count
        self._socket.sendall(name + b" " + command.encode() + b"\n")
        return name

    def finish(self, name: bytes, timeout_s: float = 400) -> Result:
        """Wait for a started command."""
        status, output = self._until_mark(name, timeout_s)
        return Result(status, output.decode(errors="replace"))

    def run(self, command: str, timeout_s: float = 400) -> Result:
        """Run a shell command in the guest."""
        return self.finish(self.start(command), timeout_s)

    def check(self, command: str, timeout_s: float = 400) -> str:
        """Run a command that must succeed; returns its output."""
        result = self.run(command, timeout_s)
        assert result.status == 0, f"{command}: exit {result.status}\n{result.output}"
        return result.output

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()
