"""How long the command line takes to say anything."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from bench.registry import Figure, at_most, seconds


def run() -> Iterable[Figure]:
    """``vgpumgr --help`` against a bare interpreter."""
    floor = seconds([sys.executable, "-c", "pass"])
    ours = seconds([str(Path(sys.executable).with_name("vgpumgr")), "--help"])
    goal, met = at_most(8, ours, floor)
    yield Figure(
        "vgpumgr --help",
        ours,
        floor,
        "s",
        "python3 -c pass",
        f"{goal}, 0.15 s",
        met and ours <= 0.15,
    )
