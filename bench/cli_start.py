"""How long the command line takes to say anything."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.machine import NAME, simulated
from bench.registry import Figure, at_most, seconds

VGPUMGR = [sys.executable, "-m", "vgpumgr"]
HELP = [*VGPUMGR, "--help"]
LIST = [*VGPUMGR, "--machine", NAME, "gpu", "list"]
#: exits 3: there is something to do
PLAN = [*VGPUMGR, "--machine", NAME, "mig", "layout", "plan"]
_LAYOUT = """
version: v1
mig-configs:
  all-1g.10gb:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 7
"""


def run(small: bool = False) -> Iterable[Figure]:
    """``--help`` against a bare interpreter; commands without a daemon against ``--help``."""
    runs = 1 if small else 15
    ours, floor = seconds(HELP, [sys.executable, "-c", "pass"], runs=runs)
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
    with simulated(), layout_file() as layout:
        yield compare("gpu list, no daemon", LIST, 5, runs)
        yield compare("mig layout plan, no daemon", [*PLAN, layout], 2, runs)


@contextmanager
def layout_file() -> Iterator[str]:
    """A layout that every GPU of the machine has to be changed for."""
    with TemporaryDirectory(prefix="vgb") as directory:
        path = Path(directory, "layout.yaml")
        path.write_text(_LAYOUT)
        yield str(path)


def compare(name: str, command: list[str], limit: float, runs: int) -> Figure:
    """A command against ``--help``."""
    ours, floor = seconds(command, HELP, runs=runs, accepted=(0, 3))
    goal, met = at_most(limit, ours, floor)
    return Figure(name, ours, floor, "s", "vgpumgr --help", goal, met, "simulated driver")
