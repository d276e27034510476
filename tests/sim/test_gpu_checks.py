"""The checks of a GPU (bench/gpu) on a simulated one: there they must find nothing, and they must still run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim import cuda_harness
from tests.unit.transport_rig import LIB
from vgpumgr.sim import machine as machines

pytestmark = [pytest.mark.native, pytest.mark.cuda]

MACHINE = "hgx-h100"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As on a GPU host, with the simulated driver in the place of NVIDIA's."""
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    machines.create_machine(MACHINE)
    return {
        **os.environ,
        **machines.machine_env(MACHINE),
        "GPU_LIBCUDA": str(LIB / "sim" / "libcuda.so.1"),
        "GPU_ARCH": "sm_80",
        "VGPUMGR_NVCC": str(cuda_harness.nvcc()),
        "PYTHONPATH": str(cuda_harness.ROOT),
    }


def run(environment: dict[str, str], check: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"bench.gpu.{check}", *arguments],
        env=environment, cwd=cuda_harness.ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_driver_starts_in_the_whole_sandbox(
    environment: dict[str, str], tmp_path: Path
) -> None:
    run(environment, "probe", str(tmp_path / "mode"))
    assert (tmp_path / "mode").read_text() == "enforce"


def test_random_calls_give_the_same_directly_and_forwarded(
    environment: dict[str, str], tmp_path: Path
) -> None:
    kept = str(tmp_path / "answers.json")
    assert "0 differ; 0 violations" in run(environment, "sequences", "4", "1", "--answers", kept)
    assert "0 differ" in run(environment, "sequences", "4", "1", "--against", kept)


def test_instructions_and_random_kernels_compute_the_same(environment: dict[str, str]) -> None:
    environment["VGPUMGR_PTX_GPU"] = environment["GPU_LIBCUDA"]
    found = run(environment, "kernels", "20", "1")
    assert '"forms": 127, "different": 0, "failed": 0' in found
    assert '"kernels": 20, "different": 0' in found


def test_programs_pass_each_way(environment: dict[str, str]) -> None:
    found = run(environment, "programs", "--only", "vectoradd", "--only", "errors", "guest")
    assert "direct: 2 of 2 pass" in found
    assert "our runtime: 2 of 2 pass" in found
    for way in ("ring", "private", "serial"):
        assert f"{way}: 3 of 3 pass" in found
