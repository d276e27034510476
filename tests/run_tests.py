"""What ``./run test`` runs: all of pytest, three tests at a time on two processors, since many of them wait.
``--fast`` leaves out what boots a guest or the lab host, what trains with PyTorch, what drives a browser, and what sets
the project up on a fresh system.
"""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from tests.support import sweeps
from tests.support.again import Failures, run_again
from tests.support.places import make_scratch

#: no test starts after that; what hangs must end with a report, not with the end of who runs the tests
LIMIT_S = 4800


def main(arguments: list[str]) -> int:
    """Run the tests; arguments go to pytest."""
    count = min(3, 1 + (os.cpu_count() or 1))
    # in the order of tests/conftest.py
    options = ["-n", str(count), "--dist", "loadgroup", "--no-loadscope-reorder"]
    options += ["--durations", "15", "--session-timeout", str(LIMIT_S)]
    if "--fast" in arguments:
        arguments = [a for a in arguments if a != "--fast"]
        options += ["-m", "not guest and not lab and not fresh and not pytorch and not browser"]
    scratch = make_scratch()
    sweeps.begin()
    failures = Failures()
    status = int(pytest.main([*options, *arguments], plugins=[failures]))
    if "--no-skips" in arguments:
        status = run_again(status, failures)
    if scratch is not None and status == pytest.ExitCode.OK:
        shutil.rmtree(scratch, ignore_errors=True)
    elif scratch is not None:
        print(f"{scratch} has what the tests left that failed; the next run removes it")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
