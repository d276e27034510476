"""``--no-skips``: a run in which something was missing is no success."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = """
import pytest

def test_one():
    pytest.skip({reason!r})

@pytest.mark.skipif({mark}, reason="no systemd-analyze here")
def test_two():
    pass
"""


#: the file is called so, and that is what is looked for
LOADER = """
import mmap

def load():
    with open({path!r}) as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

{held}

def test_one():
    global again
    again = {expression}
"""


def run_suite(suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    plain = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *options, suite],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "held", "expression", "code", "says"),
    [
        ("libcuda.so.1", "held = load()", "0", 4, "a test module loads a libcuda"),
        ("libcuda.so.1", "", "load()", 1, "has loaded a libcuda into this process"),
        ("libcudart.so.1", "held = load()", "load()", 0, "1 passed"),
    ],
)
def test_no_test_loads_a_driver_into_the_process_of_the_others(
    tmp_path: Path, name: str, held: str, expression: str, code: int, says: str
) -> None:
    path = tmp_path / name
    path.write_text("text")
    suite = tmp_path / "test_suite.py"
    suite.write_text(LOADER.format(path=str(path), held=held, expression=expression))
    done = run_suite(suite)
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done.stdout


@pytest.mark.parametrize(
    ("reason", "mark", "options", "code"),
    [
        ("this machine has a libcuda.so.1", False, ["--no-skips"], 0),
        ("no FUSE", False, ["--no-skips"], 1),
        ("this machine has a libcuda.so.1", True, ["--no-skips", "-p", "xdist.plugin", "-n1"], 1),
        ("no FUSE", True, [], 0),
    ],
)
def test_what_was_skipped_counts(
    tmp_path: Path, reason: str, mark: bool, options: list[str], code: int
) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE.format(reason=reason, mark=mark))
    done = run_suite(suite, *options)
    assert done.returncode == code, done.stdout
    assert ("./run setup should" in done.stdout) == bool(code)
