"""A simulated vGPU host with the whole application on it: the genuine helper, files that behave."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from vgpumgr.app.application import Application, open_application
from vgpumgr.sim import lifecycle

UUID = "11111111-2222-3333-4444-5555555555{:02}"
MDEVS = "sys/bus/mdev/devices"


@dataclass
class VgpuMachine:
    """One running machine with one process of ours on it, as a daemon is."""

    name: str
    directory: Path
    _open: ExitStack = field(default_factory=ExitStack)
    _application: Application | None = None

    @property
    def root(self) -> Path:
        """Its file system."""
        return self.directory / "root"

    def call(self, operation: str, **asked: Any) -> Any:
        """An operation's document."""
        if self._application is None:
            self._application = self._open.enter_context(open_application(self.name))
        return getattr(self._application, operation)(**asked)

    def forget(self) -> None:
        """Our process ends; the next call is another one's."""
        self._application = None
        self._open.close()

    def reboot(self) -> None:
        """All that ran is dead."""
        self.forget()
        lifecycle.reboot(self.name)

    def write(self, path: str, text: str) -> None:
        """As some other program would."""
        (self.root / path).write_text(text)

    def read(self, path: str) -> str:
        """An attribute."""
        return (self.root / path).read_text().strip()

    def enable_functions(self, which: str = "ALL") -> None:
        """NVIDIA's tool."""
        tool = self.root / "usr/lib/nvidia/sriov-manage"
        subprocess.run([tool, "-e", which], check=True, timeout=60, capture_output=True)

    def list_uuids(self) -> list[str]:
        """The mediated devices that the kernel shows."""
        return sorted(entry.name for entry in (self.root / MDEVS).iterdir())

    def read_journal(self) -> list[dict[str, Any]]:
        """All events."""
        data = (self.directory / "host/state/journal").read_bytes().rstrip(b"\0")
        return [json.loads(line.partition(b" ")[2]) for line in data.splitlines()]

    def list_definitions(self) -> dict[str, dict[str, Any]]:
        """mdevctl's, by parent and UUID."""
        home = self.directory / "host/etc/mdevctl.d"
        found = sorted(home.glob("*/*-*")) if home.is_dir() else []
        return {str(path.relative_to(home)): json.loads(path.read_text()) for path in found}

    def free(self, name: str, gpu: str | None = None) -> int:
        """What we say can still be created of a type, over all GPUs or on one."""
        rows = self.call("list_vgpu_types", selector=gpu).types
        return sum(row.free for row in rows if row.name == name)


@contextmanager
def vgpu_machine(name: str, directory: Path) -> Iterator[VgpuMachine]:
    """Starts and stops one."""
    with mock.patch.dict(os.environ, VGPUMGR_SIM_ROOT=str(directory)):
        home, without_fuse = lifecycle.start(name)
        try:
            if without_fuse is not None:
                pytest.skip(f"no FUSE: {without_fuse}")
            machine = VgpuMachine(name, home)
            try:
                yield machine
            finally:
                machine.forget()
        finally:
            lifecycle.stop(name)
