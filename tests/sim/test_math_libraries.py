# SPDX-License-Identifier: Apache-2.0
"""The simulated cuFFT, cuSOLVER, cuSPARSE and cuRAND, directly on the simulated driver: what they compute, what they
refuse, and how they behave.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.sim.cuda_harness import LIB, Machine, exported
from tests.sim.test_blas import cases_of, run
from vgpumgr.sim.machine import create_machine
from vgpumgr.virtio.codegen.coverage import math_implemented

pytestmark = pytest.mark.native

#: libraries by the beginning of their programs' names
NAMES = {"fft": "cufft", "solver": "cusolver", "sparse": "cusparse", "rand": "curand"}
RELEASES = [(short, release) for short in ("fft", "solver") for release in ("11", "12")]
RELEASES += [("sparse", "12"), ("rand", "10")]
#: each in a process of its own: some end their context
BEHAVIOUR = [(short, case) for short in NAMES for case in cases_of(f"{short}_behaviour")]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    return Machine(create_machine("dgx-a100"))


@pytest.mark.parametrize(("short", "release"), RELEASES)
def test_all_cases(machine: Machine, short: str, release: str) -> None:
    cases = cases_of(f"{short}_cases")
    assert cases
    run(machine, f"{short}_cases", *cases, **{f"{short.upper()}_RELEASE": release})


@pytest.mark.parametrize(("short", "case"), BEHAVIOUR)
def test_behaviour(machine: Machine, short: str, case: str) -> None:
    run(machine, f"{short}_behaviour", case)


def test_no_address_of_a_reduction_is_taken_unseen(machine: Machine) -> None:
    assert int(run(machine, "solver_refusals")) > 30


@pytest.mark.parametrize(("short", "release"), RELEASES)
def test_names_and_versions_are_the_genuine_ones(short: str, release: str) -> None:
    name = NAMES[short]
    library = LIB / f"lib{name}.so.{release}"
    dynamic = subprocess.run(
        ["readelf", "-d", library], text=True, capture_output=True, check=True
    ).stdout
    assert f"soname: [{library.name}]" in dynamic
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], text=True, capture_output=True, check=True
    ).stdout
    versions = {line.partition("@@")[2] for line in listed.splitlines() if " T " in line}
    assert versions == {library.name}
    names = exported(library) - {library.name}
    assert names == math_implemented()[name], "all that is forwarded, and no more"
