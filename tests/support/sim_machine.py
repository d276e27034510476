"""A simulated machine for the time of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vgpumgr.sim import machine as machines


@contextmanager
def running(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine that runs below ``root``, and this process's environment pointing to it."""
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(root))
    directory = machines.create_machine(name)
    for key, value in machines.machine_env(name).items():
        monkeypatch.setenv(key, value)
    try:
        yield directory
    finally:
        machines.destroy_machine(name)
