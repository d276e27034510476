"""Channels whose host has the mathematics libraries that compute on the CPU, and the host's own tests through them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.calls_rig import run_python, simulated_channel
from tests.unit.transport_rig import LIB, Rig

MATH = f"--math={LIB / 'sim'}"
TRANSPORTS = ("ring", "private", "serial")


@contextmanager
def channel(transport: str, root: Path, *more: str) -> Iterator[Rig]:
    """A channel whose host has the libraries."""
    with simulated_channel(transport, root, *(more or (MATH,))) as rig:
        yield rig


def run_case(rig: Rig, begin: str, case: str, guest: str) -> None:
    """A test of the host's, ``MODULE.NAME``, by the guest's library: ``guest`` is what ``begin`` calls it."""
    module, _, name = case.partition(".")
    code = f"from tests.sim import {module}\n{module}.{name}({guest})\n"
    assert run_python(rig, begin + code) == ""
