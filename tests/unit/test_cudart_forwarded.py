# SPDX-License-Identifier: Apache-2.0
"""The same programs without a VM: guest libraries and agent here, the worker on the simulated driver."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.build_programs import NAMES, build_programs
from tests.unit.cudart.libraries import library
from tests.unit.transport_rig import Rig
from vgpumgr.sim.machine import create_machine, destroy_machine, machine_env

pytestmark = [pytest.mark.native, pytest.mark.cuda]

MACHINE = "a30-pair"
_GUEST = library(13).parent
_LIB = _GUEST.parent
_TIMEOUT_S = 300


@pytest.fixture(scope="module", params=["ring", "serial"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A channel whose worker has the devices of a simulated machine."""
    root = tmp_path_factory.mktemp("forwarded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGPUMGR_SIM_ROOT", str(root))
        create_machine(MACHINE)
        patch.setenv("VGPUMGR_SIM", machine_env(MACHINE)["VGPUMGR_SIM"])
        driver = ["--cuda", str(_LIB / "sim/libcuda.so.1")]
        worker = _LIB / "bin/vgpumgr-worker"
        with Rig(request.param, worker=worker, worker_args=driver) as made:
            yield made
        destroy_machine(MACHINE)


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return build_programs()


@pytest.mark.parametrize("name", NAMES)
def test_forwarded_program(name: str, programs: dict[str, Path], rig: Rig) -> None:
    env = rig.env | {"LD_LIBRARY_PATH": str(_GUEST)}
    del env["VGPUMGR_SIM"]  # the program has the channel and nothing else
    # a process that still ends gives memory back, while this one counts what is free
    rig.wait_status(lambda s: not s.lanes, "alone")
    done = subprocess.run(
        [programs[name]], env=env, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert done.stdout.splitlines()[-1].startswith(f"PASS {name} "), done.stdout + done.stderr
    assert done.returncode == 0
