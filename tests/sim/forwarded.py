"""Channels whose host has the mathematics libraries that compute on the CPU, and programs that use these libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.calls_rig import (
    PROGRAM_S,
    null_channel,
    simulated_channel,
    start_python,
)
from tests.unit.transport_rig import LIB, Rig

MATH = f"--math={LIB / 'sim'}"
TRANSPORTS = ("ring", "private", "serial")


@contextmanager
def channel(transport: str, root: Path, *more: str) -> Iterator[Rig]:
    """A channel whose host has the libraries."""
    with simulated_channel(transport, root, *(more or (MATH,))) as rig:
        yield rig


def begin(name: str) -> str:
    """What a program begins with that uses a library of the guest: ``NAME_client``, and ``NAME``, the library."""
    return f"""
import numpy as np
from tests.sim.{name}_client import *
from tests.sim.{name}_guest import Guest
from tests.unit.guest_cuda import waits
{name} = Guest()
"""


def list_complaints_without_library(code: str) -> list[str]:
    """What a program prints on standard error, sorted, where the host has no mathematics library at all."""
    with null_channel("ring", LD_LIBRARY_PATH="") as rig:
        process = start_python(rig, code)
        _, errors = process.communicate(timeout=PROGRAM_S)
        assert process.returncode == 0, errors
        return sorted(errors.splitlines())
