"""A few tests that failed in a whole run pass it where they pass alone; anything else fails it as before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import sys, pytest
from tests.support.again import Failures, run_again
failures = Failures()
words = ["-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", "--no-skips"]
sys.exit(run_again(int(pytest.main(words, plugins=[failures])), failures))
"""
ONCE = """
import pathlib, pytest
def fails_once(name):
    seen = pathlib.Path(__file__).with_name(name)
    first = not seen.exists()
    seen.touch()
    assert not first
@pytest.mark.xdist_group("some")
@pytest.mark.parametrize("word", ["a@b"])
def test_racy(word): fails_once("racy")
def test_good(): pass
"""


@pytest.mark.parametrize(
    ("more", "good"),
    [
        ("", True),
        ("def test_bad(): assert False", False),
        (
            "@pytest.mark.parametrize('n', range(3))\ndef test_many(n): fails_once(f'many{n}')",
            False,
        ),
        ("def test_skipped(): pytest.skip('no such thing here')", False),
        ("def test_later():\n fails_once('later')\n pytest.skip('no such thing here')", False),
    ],
    ids=["races", "fails", "many", "skips", "skips-again"],
)
def test_what_fails_once(tmp_path: Path, more: str, good: bool) -> None:
    (tmp_path / "test_it.py").write_text(ONCE + more + "\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p tests.conftest\n")
    run = run_in(tmp_path)
    assert (run.returncode == 0) == good, run.stdout + run.stderr
    assert ("passed alone" in run.stdout) == good
    assert good == ("test_it.py::test_racy[a@b]\n" in run.stdout.rpartition("to be found:")[2])


def test_a_file_that_cannot_be_read_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(ONCE)
    (tmp_path / "test_other.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p tests.conftest\n")
    assert run_in(tmp_path).returncode != 0


def run_in(directory: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    for name in ("PYTEST_XDIST_WORKER", "VGPUMGR_TESTS_BEGAN"):
        env.pop(name, None)
    return subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
