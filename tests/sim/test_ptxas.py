"""The assembler of a simulated machine, called as Triton calls NVIDIA's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.sim import cuda_harness as harness
from tests.sim.cuda_harness import Machine
from vgpumgr.sim.machine import create_machine, machine_env

pytestmark = pytest.mark.native


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    return Machine(create_machine("dgx-a100"))


@pytest.fixture
def ptxas(machine: Machine) -> str:
    """Where `sim env` says that it is."""
    env = machine_env(machine.directory.name)
    assert env["TRITON_PTXAS_PATH"] == env["TRITON_PTXAS_BLACKWELL_PATH"]
    return env["TRITON_PTXAS_PATH"]


def call(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_says_a_version_that_triton_reads(ptxas: str) -> None:
    done = call(ptxas, "--version")
    assert done.returncode == 0
    assert re.search(r".*release (\d+\.\d+).*", done.stdout, flags=re.MULTILINE)


@pytest.mark.cuda
def test_what_it_writes_runs(machine: Machine, ptxas: str, tmp_path: Path) -> None:
    source, image = tmp_path / "kernel.ptx", tmp_path / "kernel.ptx.o"
    harness.compile_kernels(source, "-ptx", "-arch=sm_80")
    done = call(
        ptxas, "-lineinfo", "-v", "--opt-level", "3", "--gpu-name=sm_80", source, "-o", image
    )
    assert (done.returncode, done.stderr) == (0, "")
    program = harness.compile_program("launches", tmp_path)
    machine.run(program, "vector_add", KERNELS=str(image))


def test_what_is_no_ptx_is_refused_with_its_line(ptxas: str, tmp_path: Path) -> None:
    source, image = tmp_path / "kernel.ptx", tmp_path / "kernel.o"
    source.write_text(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { add.u32 1; }\n")
    done = call(ptxas, source, "-o", image)
    assert done.returncode == 255
    assert f"ptxas fatal   : {source}: line 4: " in done.stderr
    assert not image.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no input file specified"),
        (("a.ptx", "b.ptx"), "only one input file is supported"),
        (("-arch", "sm_80", "nowhere.ptx"), "nowhere.ptx: No such file or directory"),
        (("good.ptx", "-o", "no/such/folder"), "no/such/folder: No such file or directory"),
        (("good.ptx", "-o"), ": No such file or directory"),
    ],
)
def test_wrong_calls(
    ptxas: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.ptx").write_text(".version 8.0\n.target sm_80\n.address_size 64\n")
    done = call(ptxas, *arguments)
    assert done.returncode == 255
    assert message in done.stderr
