"""How long the command line takes to say anything, and to change one GPU without a daemon."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from unittest import mock

from bench.commands import HELP, LIST, ON_MACHINE, PLAN, VGPUMGR, compare, layout_file
from bench.daemon import running_daemon
from bench.machine import NAME, simulated
from bench.registry import Figure, make_goal, seconds
from vgpumgr.sim.machine import machine_text

SIMULATED = "simulated driver"
#: two layouts of one GPU; each command changes one into the other
ONE_GPU = ('{"3g.40gb": 1}', '{"1g.10gb": 2}')
_ONE_GPU_LAYOUT = """
version: v1
mig-configs:
  one:
    - devices: [0]
      mig-enabled: true
      mig-devices: %s
"""
PARTED = "nvidia-mig-parted"


def run(small: bool = False) -> Iterable[Figure]:
    """``--help``, completion and a listing against their budgets; commands without a daemon."""
    runs = 1 if small else 15
    complete = [*VGPUMGR, "completion", "--line", "vgpumgr attach vm01 --pro"]
    yield make_goal("vgpumgr --help", seconds(HELP, runs=runs)[0], 0.2, "host")
    yield make_goal("completion of an option", seconds(complete, runs=runs)[0], 0.15, "host")
    with running_daemon():
        # the values that the daemon is asked for
        complete = [*ON_MACHINE, "completion", "--line", f"vgpumgr --machine {NAME} gpu show "]
        listed, completed = seconds(LIST, complete, runs=runs)
        yield make_goal("gpu list through the daemon", listed, 0.2, SIMULATED)
        yield make_goal("completion of a GPU through the daemon", completed, 0.15, SIMULATED)
    with simulated(), layout_file() as layout:
        yield compare("gpu list, no daemon", LIST, 5, runs)
        yield compare("mig layout plan, no daemon", [*PLAN, layout], 2.5, runs)
    with simulated("large", machine_text(16, 16, "A100-SXM4-80GB", "mdev")):
        doctor = [*VGPUMGR, "--machine", "large", "doctor"]
        # a problem may be found, as of this host's libvirt
        taken = seconds(doctor, runs=min(runs, 5), accepted=(0, 3))[0]
        yield make_goal("doctor on 16 GPUs, no daemon", taken, 2.0, SIMULATED)
    yield from _apply(runs)


def _apply(runs: int) -> Iterator[Figure]:
    """``mig layout apply`` of one GPU; beside nvidia-mig-parted where this machine has it."""
    with ExitStack() as stack:
        machine = stack.enter_context(simulated())
        files = [stack.enter_context(layout_file(_ONE_GPU_LAYOUT % text)) for text in ONE_GPU]
        ours = [[*ON_MACHINE, "mig", "layout", "apply", file, "--yes"] for file in files]
        # the first one turns MIG mode on
        seconds(ours[1], runs=1)
        taken = statistics.mean(seconds(*ours, runs=runs))
        yield make_goal("mig layout apply of one GPU, no daemon", taken, 0.5, SIMULATED)
        if shutil.which(PARTED) is None:
            return
        stack.enter_context(mock.patch.dict("os.environ", machine.variables))
        theirs = [[PARTED, "apply", "-f", file, "-c", "one"] for file in files]
        # it may want the kernel driver's own files, which this machine has not
        if subprocess.run(theirs[1], check=False, capture_output=True).returncode == 0:
            floor = statistics.mean(seconds(*theirs, runs=runs))
            yield Figure(
                "mig layout apply of one GPU, no daemon", taken, floor, "s", PARTED, "none",
                True, SIMULATED,
            )  # fmt: skip
