"""Tests of the channel's calls once more, on channels whose time on the GPU an arbiter grants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/unit/test_calls_programs.py", "tests/unit/test_calls_channel.py")
#: host functions, captures, graphs, threads, errors and kills; what nvcc compiles is not needed for that
CHOSEN = "ring and (host or capture or graph or killed or threads or sticky or order) and not as_on_the_driver"
pytestmark = pytest.mark.native


@pytest.mark.parametrize("policy", ["burst", "fixed"])
def test_calls_are_the_same_with_a_share(policy: str) -> None:
    env = os.environ | {"VGPUMGR_TEST_SHARE": policy}
    env.pop("PYTEST_XDIST_WORKER", None)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*words, *TESTS, "-k", CHOSEN],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert "passed" in done.stdout
