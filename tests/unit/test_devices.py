"""Several slices in one process: the same program on two devices directly and over two channels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim import cuda_harness
from tests.unit.several_rig import Guest, run_simulated

pytestmark = [pytest.mark.native, pytest.mark.cuda]

CASES = re.findall(r'\{ "(\w+)", \w+ \}', (cuda_harness.PROGRAMS / "devices.c").read_text())


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    out = tmp_path_factory.mktemp("devices")
    kernels = cuda_harness.compile_kernels(out / "kernels.ptx", "-ptx", "-arch=sm_80")
    return cuda_harness.compile_program("devices", out), kernels


@pytest.fixture(scope="module", params=["ring", "private", "serial"])
def guest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with run_simulated(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


@pytest.mark.parametrize("case", CASES)
def test_two_devices_are_as_on_the_driver_itself(
    guest: Guest, program: tuple[Path, Path], case: str
) -> None:
    done = guest.run(str(program[0]), case, KERNELS=str(program[1]))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert all(keeper.status().violations.count == 0 for keeper in guest.keepers)
