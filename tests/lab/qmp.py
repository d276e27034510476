"""QEMU's monitor of the lab host: for what no GPU does on request."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any


class Monitor:
    """One connection; a command at a time."""

    def __init__(self, path: Path, timeout_s: float = 300) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._lines.readline()
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """Give a command; its return value. Events in between are passed over."""
        message = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(message).encode() + b"\n")
        while line := self._lines.readline():
            answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise ConnectionError(f"QEMU went away before it answered {command}")

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()
