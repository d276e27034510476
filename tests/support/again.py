"""A few tests that failed in a whole run are run once more, one after the other with nothing beside them.

A whole run keeps the machine busy for an hour, and there are thousands of tests with processes that race. What passes
alone is named at the end: it is a race to be found, of the test or of what it tests, and no reason to lose the rest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from tests.support.skips import list_unexpected_skips
from tests.support.sweeps import BEGAN

#: more than these are no accident
MOST = 3
#: seconds after the beginning of set-up at which all must be done
END_S = 5200
#: what pytest-xdist adds to an id
GROUP = re.compile(r"@[^\]]*$")


class Failures:
    """A plugin of pytest that keeps which tests of a run failed, and whether it failed for anything else."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.others = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        if report.failed:
            self.names[GROUP.sub("", report.nodeid)] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Called by pytest for each file."""
        self.others |= report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Called by pytest at the end."""
        self.others |= bool(list_unexpected_skips(session.config))
        self.others |= bool(session.shouldstop or session.shouldfail)


def run_again(status: int, failures: Failures) -> int:
    """The exit status of a run: OK too where all that failed, a few tests, passes alone."""
    left_s = END_S - (time.time() - int(os.environ.get(BEGAN, str(int(time.time())))))
    if status != pytest.ExitCode.TESTS_FAILED or failures.others or left_s < 0:
        return status
    if not 0 < len(failures.names) <= MOST:
        return status
    names = list(failures.names)
    print(f"\n{len(names)} failed; once more, alone, at most {left_s:.0f} s", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "--no-skips", "-v", *names]
    # as a run that begins now, which leaves nothing out
    env = {name: value for name, value in os.environ.items() if name != BEGAN}
    try:
        done = subprocess.run(command, env=env, check=False, timeout=left_s).returncode
    except subprocess.TimeoutExpired:
        done = status
    if done == pytest.ExitCode.OK:
        print(
            "\n".join(
                ["failed in the whole run and passed alone; each is a race to be found:", *names]
            )
        )
    return done
