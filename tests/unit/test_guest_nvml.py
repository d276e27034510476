"""NVML in the guest: its slices as GPUs, to programs of others."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.calls_rig import guest_env, run_program, simulated_channel, start_python
from tests.unit.transport_rig import Rig

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif("VGPUMGR_TEST_LIB" in os.environ, reason="has no shims"),
]

HOLD = """
import sys
ctx = context(); p = memory(64 << 20)
print("holds", flush=True); sys.stdin.readline()
"""


@pytest.fixture(scope="module", params=["ring", "serial"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with simulated_channel(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


@pytest.fixture
def holder(rig: Rig) -> Iterator[subprocess.Popen[str]]:
    """A guest process with 64 MiB of device memory."""
    process = start_python(rig, HOLD)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    yield process
    process.kill()
    process.communicate()


def ask(rig: Rig, code: str) -> str:
    """Runs a guest process that has NVIDIA's binding as ``nvml``, initialised."""
    done = run_program(rig, sys.executable, "-c", f"import pynvml as nvml\nnvml.nvmlInit()\n{code}")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_what_it_is(rig: Rig) -> None:
    found = json.loads(
        ask(
            rig,
            """
import json
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
uuid = nvml.nvmlDeviceGetUUID(gpu)
pci = nvml.nvmlDeviceGetPciInfo(gpu)
nvml.nvmlDeviceGetHandleByUUID(uuid); nvml.nvmlDeviceGetHandleByPciBusId(pci.busId)
print(json.dumps({
    "count": nvml.nvmlDeviceGetCount(), "name": nvml.nvmlDeviceGetName(gpu), "uuid": uuid,
    "capability": nvml.nvmlDeviceGetCudaComputeCapability(gpu),
    "cuda": nvml.nvmlSystemGetCudaDriverVersion(), "mig": nvml.nvmlDeviceIsMigDeviceHandle(gpu).value,
    "total": nvml.nvmlDeviceGetMemoryInfo(gpu).total, "bus": pci.bus,
}))
""",
        )
    )
    assert found["name"] == "NVIDIA A30"
    assert re.fullmatch("GPU-[0-9a-f-]{36}", found["uuid"])
    assert (found["count"], found["capability"], found["mig"]) == (1, [8, 0], 0)
    assert found["cuda"] == 13000
    assert 23 << 30 < found["total"] < 25 << 30
    assert found["bus"]


def test_what_it_does_not_know_is_refused(rig: Rig) -> None:
    ask(
        rig,
        """
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
def refused(code, call, *arguments):
    try:
        call(*arguments)
    except nvml.NVMLError as error:
        assert error.value == code, (call, error.value)
    else:
        raise AssertionError(call)
for call in (nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetUtilizationRates, nvml.nvmlDeviceGetMigMode):
    refused(nvml.NVML_ERROR_NOT_SUPPORTED, call, gpu)
refused(nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetHandleByIndex, 7)
refused(nvml.NVML_ERROR_NOT_FOUND, nvml.nvmlDeviceGetHandleByUUID, "GPU-none")
import ctypes
nobodys = ctypes.cast(5, nvml.c_nvmlDevice_t)
refused(nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.nvmlDeviceGetName, nobodys)
import os
child = os.fork()
if not child:
    refused(nvml.NVML_ERROR_UNINITIALIZED, nvml.nvmlDeviceGetCount)
    nvml.nvmlInit(); assert nvml.nvmlDeviceGetCount() == 1
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == 0, "the parent's connection is its own"
nvml.nvmlShutdown()
refused(nvml.NVML_ERROR_UNINITIALIZED, nvml.nvmlDeviceGetCount)
""",
    )


def test_it_counts_memory_and_names_processes(rig: Rig, holder: subprocess.Popen[str]) -> None:
    code = """
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
print(memory.used, memory.total - memory.free)
for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
    print(process.pid, process.usedGpuMemory, nvml.nvmlSystemGetProcessName(process.pid))
"""
    used, process = ask(rig, code).splitlines()
    assert used == f"{64 << 20} {64 << 20}"
    assert process == f"{holder.pid} {64 << 20} {sys.executable}"
    holder.kill()
    holder.wait()
    end = time.monotonic() + 60
    while ask(rig, code).splitlines() != ["0 0"]:
        assert time.monotonic() < end


def test_it_outlives_its_worker(rig: Rig) -> None:
    code = """
import sys
import pynvml as nvml
nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
for line in sys.stdin:
    try:
        print(nvml.nvmlDeviceGetMemoryInfo(gpu).used, flush=True)
    except nvml.NVMLError as error:
        print(error, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=guest_env(rig), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    pid = rig.status().worker.pid
    end = time.monotonic() + 60
    while answers[-1:] != ["0"] or pid:
        assert time.monotonic() < end, answers
        process.stdin.write("\n")
        process.stdin.flush()
        answers.append(process.stdout.readline().strip())
        if pid and answers == ["0"]:
            os.kill(pid, signal.SIGKILL)
            pid = 0
            answers.append("killed")
    process.stdin.close()
    assert process.wait(60) == 0


def test_gpustat_shows_it(rig: Rig, holder: subprocess.Popen[str]) -> None:
    done = run_program(rig, sys.executable, "-m", "gpustat", "--json")
    assert done.returncode == 0, done.stderr
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert (gpu["name"], gpu["memory.used"]) == ("NVIDIA A30", 64)
    assert [(p["pid"], p["gpu_memory_usage"]) for p in gpu["processes"]] == [(holder.pid, 64)]


def test_nvitop_shows_it(rig: Rig, holder: subprocess.Popen[str]) -> None:
    done = run_program(rig, sys.executable, "-m", "nvitop", "--once", "--ascii")
    assert done.returncode == 0, done.stderr
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert "A30" in text
    assert re.search(rf"\b{holder.pid}\b.*64\.?0*MiB", text), text


def test_without_a_channel_there_is_no_driver(rig: Rig, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"],
        env=guest_env(rig) | {"VGPUMGR_AGENT": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Driver Not Loaded" in done.stderr
