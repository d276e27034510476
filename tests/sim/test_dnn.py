# SPDX-License-Identifier: Apache-2.0
"""The simulated cuDNN, directly on the simulated driver: what it computes, what it refuses, and how it behaves."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.sim.cuda_harness import LIB, ROOT, Machine, exported
from tests.sim.test_blas import cases_of, run
from vgpumgr.sim.machine import create_machine

pytestmark = pytest.mark.native

LIBRARY = LIB / "libcudnn.so.9"
#: programs whose cases can share a process; the others may end their context
PROGRAMS = ("dnn_backend", "dnn_graphs", "dnn_norm", "dnn_layers", "dnn_errors")
#: what programs are linked with and the library does not compute
REFUSED = frozenset(
    re.findall(r"^REFUSED\((\w+)\)", (ROOT / "vgpumgr/sim/native/dnn/refused.c").read_text(), re.M)
)
#: cuDNN's functions that PyTorch 2.14 is linked with
OF_PYTORCH = frozenset((Path(__file__).parent / "dnn_pytorch.txt").read_text().split())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    return Machine(create_machine("dgx-a100"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_cases(machine: Machine, program: str) -> None:
    cases = cases_of(program)
    assert cases
    run(machine, program, *cases)


@pytest.mark.parametrize("case", cases_of("dnn_behaviour"))
def test_behaviour(machine: Machine, case: str) -> None:
    run(machine, "dnn_behaviour", case)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_calls_come_back(machine: Machine, seed: int) -> None:
    done = run(machine, "dnn_random", str(seed), "6000")
    executed, statuses = re.findall(r"\d+", done)
    assert int(executed) > 100, "plans came of the calls"
    assert int(statuses) >= 4


def test_name_and_version_are_the_genuine_ones() -> None:
    dynamic = subprocess.run(
        ["readelf", "-d", LIBRARY], text=True, capture_output=True, check=True
    ).stdout
    assert "soname: [libcudnn.so.9]" in dynamic
    assert "openblas" not in dynamic, "found at run time only"
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARY], text=True, capture_output=True, check=True
    ).stdout
    versions = {line.partition("@@")[2] for line in listed.splitlines() if " T " in line}
    assert versions == {"libcudnn.so.9"}


def test_pytorch_finds_all_its_functions() -> None:
    assert exported(LIBRARY) >= OF_PYTORCH
    assert REFUSED <= OF_PYTORCH, "nothing else is there by name only"


def test_without_openblas_it_computes_all_the_same(machine: Machine, tmp_path: Path) -> None:
    """Products are plain loops then."""
    (tmp_path / "libopenblas.so.0").write_text("no library")
    path = f"{tmp_path}:{machine.environment()['LD_LIBRARY_PATH']}"
    run(machine, "dnn_backend", "types", LD_LIBRARY_PATH=path)
    run(machine, "dnn_graphs", "products", LD_LIBRARY_PATH=path)
