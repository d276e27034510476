"""The command lines that benchmarks run, and how they are compared."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.machine import NAME
from bench.registry import Figure, at_most, seconds

VGPUMGR = [sys.executable, "-m", "vgpumgr"]
HELP = [*VGPUMGR, "--help"]
ON_MACHINE = [*VGPUMGR, "--machine", NAME]
LIST = [*ON_MACHINE, "gpu", "list"]
#: exits 3: there is something to do
PLAN = [*ON_MACHINE, "mig", "layout", "plan"]
#: a layout that every GPU of the machine has to be changed for
ALL_GPUS = """
version: v1
mig-configs:
  all-1g.10gb:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 7
"""


@contextmanager
def layout_file(text: str = ALL_GPUS) -> Iterator[str]:
    """A file with a layout."""
    with TemporaryDirectory(prefix="vgb") as directory:
        path = Path(directory, "layout.yaml")
        path.write_text(text)
        yield str(path)


def compare(name: str, command: list[str], limit: float, runs: int) -> Figure:
    """A command against ``--help``."""
    ours, floor = seconds(command, HELP, runs=runs, accepted=(0, 3))
    goal, met = at_most(limit, ours, floor)
    return Figure(name, ours, floor, "s", "vgpumgr --help", goal, met, "simulated driver")
