# SPDX-License-Identifier: Apache-2.0
"""vgpumgr-simstate: what it refuses, and that a refused machine leaves nothing behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.sim import nvml_support as support
from vgpumgr.sim.machine import load_machine

pytestmark = pytest.mark.native


def _create(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [support.TOOL, "create", directory], input=text, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu.name A100\n", "line 1: gpu.name: Invalid argument"),
        ("gpu\ngpu.colour green\n", "line 2: gpu.colour: No such file"),
        ("gpu\ngpu.minor -1\n", "line 2: gpu.minor: Numerical result out of range"),
        ("gpu\ngpu.minor 4294967296\n", "out of range"),
        ("gpu\ngpu.minor 1x\n", "Invalid argument"),
        ("gpu\ngpu.lost 2\n", "out of range"),
        (f"gpu\ngpu.name {'x' * 96}\n", "out of range"),
        ("gpu\n" * 17, "line 17: gpu: Argument list too long"),
        ("gpu\nprofile\n" + "placement 0 1\n" * 9, "line 11: placement: Argument list too long"),
        ("gpu\nprofile\nplacement 0\n", "line 3: placement: Invalid argument"),
        ("machine.name x", "line 1"),
        ("nonsense\n", "line 1: nonsense: Invalid argument"),
    ],
)
def test_wrong_lines(tmp_path: Path, text: str, said: str) -> None:
    done = _create(tmp_path, text)
    assert done.returncode == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_machine_is_not_overwritten(tmp_path: Path) -> None:
    assert _create(tmp_path, "gpu\n").returncode == 0
    again = _create(tmp_path, "gpu\n")
    assert (again.returncode, "File exists" in again.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_shows_what_it_was_given(tmp_path: Path) -> None:
    lines = list(load_machine("rtx-pro-6000").state_lines())
    assert _create(tmp_path, "".join(f"{line}\n" for line in lines)).returncode == 0
    shown = subprocess.run(
        [support.TOOL, "show", tmp_path], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert set(lines) <= set(shown)


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    assert _create(tmp_path, "gpu\n").returncode == 0
    state = tmp_path / "state"
    whole = state.read_bytes()
    for damaged in (b"", whole[:4096], b"x" * len(whole), b"\xff" * 4096 + whole[4096:]):
        state.write_bytes(damaged)
        done = subprocess.run(
            [support.TOOL, "show", tmp_path], capture_output=True, text=True, check=False
        )
        assert (done.returncode, "Protocol error" in done.stderr) == (1, True)
