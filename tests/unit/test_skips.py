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
    plain = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *options, suite],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    assert ("./run setup should" in done.stdout) == bool(code)
