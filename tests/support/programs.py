"""Programs of Debian's archive, which the set-up unpacks into the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def find_program(name: str, variable: str = "") -> Path:
    """Skips the test where it is not there. ``variable`` may name another one."""
    if chosen := os.environ.get(variable):
        return Path(chosen)
    program = Path(os.environ.get("VGPUMGR_CACHE", ROOT / ".cache")) / name
    if not program.exists():
        pytest.skip(f"{name} is not there: ./run setup")
    return program
