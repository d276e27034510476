# SPDX-License-Identifier: Apache-2.0
"""The simulated cuSOLVER, directly on the simulated driver: what it computes, what it refuses, and how it behaves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.sim.cuda_harness import LIB, Machine, exported
from tests.sim.test_blas import cases_of, run
from vgpumgr.sim.machine import create_machine
from vgpumgr.virtio.codegen.coverage import math_implemented

pytestmark = pytest.mark.native

RELEASES = ("11", "12")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    return Machine(create_machine("dgx-a100"))


@pytest.mark.parametrize("release", RELEASES)
def test_all_cases(machine: Machine, release: str) -> None:
    cases = cases_of("solver_cases")
    assert cases
    run(machine, "solver_cases", *cases, SOLVER_RELEASE=release)


@pytest.mark.parametrize("case", cases_of("solver_behaviour"))
def test_behaviour(machine: Machine, case: str) -> None:
    run(machine, "solver_behaviour", case)


@pytest.mark.parametrize("release", RELEASES)
def test_names_and_versions_are_the_genuine_ones(release: str) -> None:
    library = LIB / f"libcusolver.so.{release}"
    dynamic = subprocess.run(
        ["readelf", "-d", library], text=True, capture_output=True, check=True
    ).stdout
    assert f"soname: [libcusolver.so.{release}]" in dynamic
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], text=True, capture_output=True, check=True
    ).stdout
    versions = {line.partition("@@")[2] for line in listed.splitlines() if " T " in line}
    assert versions == {f"libcusolver.so.{release}"}
    names = exported(library) - {library.name}
    assert names == math_implemented()["cusolver"], "all that is forwarded, and no more"
