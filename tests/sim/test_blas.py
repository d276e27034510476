# SPDX-License-Identifier: Apache-2.0
"""The simulated cuBLAS and cuBLASLt, directly on the simulated driver: what they compute, and how they behave."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.blas_cases import find_maker
from tests.sim.blas_client import read_specification
from tests.sim.cuda_harness import LIB, ROOT, Machine
from vgpumgr.sim.machine import create_machine

pytestmark = pytest.mark.native

RELEASES = ("12", "13")
LIBRARIES = ("cublas", "cublasLt")
#: functions that the channel forwards and the simulated library answers with "not supported"; none today
UNSUPPORTED: frozenset[str] = frozenset()
#: a function of each for what the tables do not cover
KEY_FUNCTIONS = {
    "cublas": (
        "cublasCreate_v2",
        "cublasSgemm_v2_64",
        "cublasGemmEx",
        "cublasSetWorkspace_v2",
        "cublasSgelsBatched",
    ),
    "cublasLt": (
        "cublasLtCreate",
        "cublasLtMatmul",
        "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatrixTransform",
    ),
}
ROOM = ROOT / "vgpumgr/sim/native/blas"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    return Machine(create_machine("dgx-a100"))


def run(machine: Machine, program: str, *arguments: str, **env: str) -> str:
    """Run one of the programs beside this file; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.sim.{program}", *arguments], cwd=ROOT, env=machine.environment(**env),
        text=True, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (
        f"{program} {arguments}: {done.returncode}: {done.stdout}{done.stderr}"
    )
    return done.stdout


def cases_of(program: str) -> list[str]:
    """The names of a program's cases, out of its source."""
    source = (Path(__file__).parent / f"{program}.py").read_text()
    listed = (
        source.partition("CASES = {")[2].partition("}")[0].partition("in (")[2].partition(")\n")[0]
    )
    return re.findall(r"\w+", listed)


@pytest.mark.parametrize("release", RELEASES)
def test_every_forwarded_function_computes_what_numpy_does(machine: Machine, release: str) -> None:
    """All functions of cublas.yaml, with random shapes, distances, transposes, types and both pointer modes."""
    functions = read_specification()
    supported = {name for name in functions if name not in UNSUPPORTED}
    assert {name for name in supported if find_maker(name) is None} == set()
    last = run(
        machine, "blas_run", "1" if release == "13" else "2", BLAS_RELEASE=release
    ).splitlines()[-1]
    assert last == f"reached {len(supported)} of {len(functions)}, 0 failed"


@pytest.mark.parametrize("case", cases_of("blas_behaviour"))
def test_behaviour(machine: Machine, case: str) -> None:
    run(machine, "blas_behaviour", case)


@pytest.mark.parametrize("case", cases_of("blas_graphs"))
def test_captured_work(machine: Machine, case: str) -> None:
    run(machine, "blas_graphs", case)


#: kernels of OpenBLAS, and what a processor must have for them
KERNELS = {"Prescott": "pni", "Haswell": "avx2", "SkylakeX": "avx512vl"}


def test_what_is_read_depends_on_no_processor(machine: Machine) -> None:
    """OpenBLAS has kernels for each kind of processor, and not all of them leave out what a factor of 0 leaves out."""
    flags = Path("/proc/cpuinfo").read_text().split()
    kernels = [name for name, flag in KERNELS.items() if flag in flags]
    assert kernels
    for name in kernels:
        run(machine, "blas_behaviour", "missing_operands", OPENBLAS_CORETYPE=name)


def test_the_driver_is_found_that_the_process_has(machine: Machine) -> None:
    """The library finds the driver by its SONAME, from whatever path it was loaded."""
    env = {k: v for k, v in machine.environment().items() if k != "LD_LIBRARY_PATH"}
    command = [sys.executable, "-m", "tests.sim.blas_behaviour", "missing_operands"]
    subprocess.run(command, cwd=ROOT, env=env, check=True)


@pytest.mark.parametrize("case", cases_of("blas_lt"))
def test_lt(machine: Machine, case: str) -> None:
    run(machine, "blas_lt", case)


@pytest.mark.parametrize("release", RELEASES)
def test_both_releases_serve_at_once(machine: Machine, release: str) -> None:
    run(machine, "blas_behaviour", "settings", BLAS_RELEASE=release)
    run(machine, "blas_lt", "handles", BLAS_RELEASE=release)


def symbols(library: Path) -> dict[str, str]:
    """Exported functions with their versions."""
    done = subprocess.run(
        ["nm", "-D", "--defined-only", library], text=True, capture_output=True, check=True
    )
    names = [line.split()[-1].partition("@@") for line in done.stdout.splitlines() if " T " in line]
    return {name: version for name, _, version in names}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", LIBRARIES)
def test_names_and_versions_are_the_genuine_ones(name: str, release: str) -> None:
    library = LIB / f"lib{name}.so.{release}"
    found = symbols(library)
    assert set(found.values()) == {library.name}
    assert set(KEY_FUNCTIONS[name]) <= set(found)
    dynamic = subprocess.run(
        ["readelf", "-d", library], text=True, capture_output=True, check=True
    ).stdout
    assert f"soname: [{library.name}]" in dynamic
    assert "openblas" not in dynamic, "found at run time only"


def test_all_forwarded_functions_are_exported_and_none_is_refused() -> None:
    refused = set(re.findall(r"\bcublas\w+\b(?!:)", (ROOM / "refused.txt").read_text()))
    forwarded = {f"cublas{name}" for name in read_specification() if name not in UNSUPPORTED}
    found = set(symbols(LIB / "libcublas.so.13"))
    assert forwarded <= found
    assert not forwarded & refused
    assert {name for name in refused if not name.startswith("cublasLt")} - {"cublas"} <= found


def test_without_openblas_a_call_is_not_supported(machine: Machine, tmp_path: Path) -> None:
    """A machine without the package has everything else of the simulated driver."""
    (tmp_path / "libopenblas.so.0").write_text("no library")
    code = (
        "from tests.sim.blas_behaviour import scal; from tests.sim.blas_client import Gpu; gpu = Gpu();"
        "x = gpu.alloc(4000); print(scal(gpu, 1.0, x), gpu.wait())"
    )
    env = machine.environment()
    env["LD_LIBRARY_PATH"] = f"{tmp_path}:{env['LD_LIBRARY_PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, text=True, capture_output=True, check=False
    )
    assert done.stdout.split() == ["15", "0"], done.stderr
