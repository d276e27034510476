"""Programs compiled by nvcc, from the runtime's shim down to the simulated driver in the worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.build_programs import build_programs
from tests.unit.calls_rig import run_program, simulated_channel
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

PROGRAMS = (
    "vectoradd",
    "matmul",
    "reduction",
    "histogram",
    "overlap",
    "device_functions",
    "errors",
    "vectoradd12",
)


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return build_programs(PROGRAMS)


@pytest.fixture(scope="module", params=["ring", "serial"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with simulated_channel(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_right_results(name: str, rig: Rig, programs: dict[str, Path]) -> None:
    done = run_program(rig, str(programs[name]))
    assert done.returncode == 0, (done.stdout, done.stderr, rig.status())
    assert rig.status().violations.count == 0
