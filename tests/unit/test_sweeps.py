"""Sweeps of a late run: one part of each is done, the others are left out and named, and all else is done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.sweeps import BEGAN, BY_FILE, BY_PARAMETERS, LATE_S

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest
@pytest.mark.parametrize("part", range(4))
def test_one(part): pass
@pytest.mark.parametrize("part", range(3))
def test_other(part): pass
def test_no_sweep(): pass
"""


@pytest.mark.parametrize(("age_s", "done"), [(LATE_S - 600, 8), (LATE_S + 600, 3)])
def test_a_late_run_does_one_part_of_each(tmp_path: Path, age_s: int, done: int) -> None:
    place = tmp_path / "tests" / "recovery"
    place.mkdir(parents=True)
    (place / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--no-skips"]
    command += ["-p", "tests.conftest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path]
    env = os.environ | {BEGAN: str(int(time.time()) - age_s), "PYTHONPATH": str(ROOT)}
    env.pop("PYTEST_XDIST_WORKER", None)
    run = subprocess.run(
        [*command, place / "test_it.py"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(" PASSED") == done
    assert "test_no_sweep PASSED" in run.stdout
    left_out = "5 parts of sweeps left out" in run.stdout
    assert left_out == (done == 3)


def test_what_is_named_is_there() -> None:
    """A file that was renamed would be swept no more."""
    assert [name for name in (*BY_PARAMETERS, *BY_FILE) if not (ROOT / name).exists()] == []
