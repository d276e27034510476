"""Advice about managed memory, which guest and simulator keep by one rule, against a model of single pages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.sim.cuda_harness import cuda_include
from tests.unit.calls_rig import RULES

pytestmark = pytest.mark.native

STEPS = 40_000


def test_pieces_say_what_their_pages_would(tmp_path: Path) -> None:
    program = tmp_path / "advice"
    sources = (Path(__file__).parent / "advice.c", RULES / "advice.c")
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-g1", "-O1", "-Wall", "-Wextra", "-Werror")
    include = (f"-isystem{cuda_include()}", f"-I{RULES}", "-fsanitize=address,undefined")
    subprocess.run(["gcc", *flags, *include, *sources, "-o", program], check=True)
    done = subprocess.run([program, str(STEPS)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    _, compared, _, pieces = done.stdout.split()
    assert int(compared) == 4 * STEPS
    assert int(pieces) >= 20, "pages of all kinds lay side by side"
