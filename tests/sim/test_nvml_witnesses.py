# SPDX-License-Identifier: Apache-2.0
"""Programs of others on the simulated NVML: gpustat, nvitop, and a C client compiled against NVIDIA's header."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim import nvml_support as support
from vgpumgr.sim.machine import load_machine

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def simstate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state library for clients."""
    return support.build_simstate(tmp_path_factory.mktemp("simstate"))


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C client, linked with the simulated library."""
    program = tmp_path_factory.mktemp("walk") / "walk"
    source = Path(__file__).with_name("nvml_walk.c")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{support.nvml_header().parent}"]
    libraries = [f"-L{support.LIBRARY.parent}", "-lnvidia-ml"]
    subprocess.run(
        ["cc", *flags, "-o", str(program), str(source), *libraries], check=True, timeout=120
    )
    return program


def _run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("name", support.MIG_MACHINES)
def test_gpustat_shows_the_machine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simstate: Path
) -> None:
    machine = load_machine(name)
    with (
        support.running(name, tmp_path, monkeypatch),
        support.Client(simstate, 1, memory=3 << 30) as client,
    ):
        shown = json.loads(_run(sys.executable, "-m", "gpustat", "--json"))
        assert [(gpu["uuid"], gpu["name"], gpu["memory.total"]) for gpu in shown["gpus"]] == [
            (gpu.uuid, gpu.board.name, gpu.board.memory_mib) for gpu in machine.gpus
        ]
        assert shown["driver_version"] == machine.data.driver_version
        processes = [(p["pid"], p["gpu_memory_usage"]) for p in shown["gpus"][1]["processes"]]
        assert processes == [(client.pid, 3072)]


def test_nvitop_shows_gpus_mig_devices_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simstate: Path
) -> None:
    with support.running("dgx-a100", tmp_path, monkeypatch):
        with support.nvml() as nvml:
            gpu = nvml.nvmlDeviceGetHandleByIndex(0)
            nvml.nvmlDeviceSetMigMode(gpu, 1)
            instance = nvml.nvmlDeviceCreateGpuInstance(gpu, 9)
            compute = nvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
            mig = nvml.nvmlComputeInstanceGetInfo(compute).device
            uuid = nvml.nvmlDeviceGetUUID(mig)
        with support.Client(simstate, 0, 2, 0, memory=5 << 30) as client:
            script = (
                "from nvitop import Device\n"
                "for d in Device.all():\n"
                "    print(d.index, d.uuid(), d.name(), d.memory_total(), d.is_mig_mode_enabled())\n"
                "    for m in d.mig_devices():\n"
                "        print('mig', m.uuid(), m.name(), m.memory_used(), sorted(m.processes()))\n"
            )
            lines = _run(sys.executable, "-c", script).splitlines()
            once = re.sub(r"\x1b\[[0-9;]*m", "", _run(sys.executable, "-m", "nvitop", "--once"))
        machine = load_machine("dgx-a100")
        for line, device in zip([x for x in lines if x[:3] != "mig"], machine.gpus, strict=True):
            board = device.board
            assert f"{device.uuid} {board.name} {board.memory_mib << 20}" in line
        assert [x for x in lines if x[:3] == "mig"] == [
            f"mig {uuid} {machine.gpus[0].board.name} MIG 3g.40gb {5 << 30} [{client.pid}]"
        ]
        assert once.count("A100-SXM4-80GB") >= 8
        assert str(client.pid) in once


@pytest.mark.parametrize("name", support.MIG_MACHINES)
def test_c_client_walks_the_mig_interface(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walk: Path
) -> None:
    machine = load_machine(name)
    table = machine.gpus[0].mig
    assert table
    with support.running(name, tmp_path, monkeypatch) as directory:
        shown = {tuple(line.rsplit(" ", 2)) for line in _run(walk).splitlines()}
        assert support.show(directory) == []
    assert shown == {
        (f"MIG {p.name}", str(p.gi_profile_id), str(len(p.placements))) for p in table.profiles
    }
