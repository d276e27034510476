"""``vgpumgr sim`` as a user runs it: state, /sys and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.forked import run_vgpumgr

pytestmark = pytest.mark.native

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    env = os.environ | {"VGPUMGR_SIM_ROOT": str(tmp_path / "sim")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_vgpumgr(*arguments, env=env)

    yield call
    for row in json.loads(call("sim", "list", "-o", "json").stdout)["machines"]:
        if row["running"]:
            call("sim", "stop", row["name"])


@pytest.mark.parametrize("name", ["dgx-a100", "hgx-h100", "a30-pair", "rtx-pro-6000"])
def test_every_machine_starts_and_its_gpus_agree_with_sysfs(
    run: Run, tmp_path: Path, name: str
) -> None:
    assert run("sim", "start", name).returncode == 0
    gpus = json.loads(run("--machine", name, "gpu", "list", "-o", "json").stdout)["gpus"]
    root = tmp_path / "sim" / name / "root"
    for gpu in gpus:
        device = root / "sys/bus/pci/devices" / gpu["pci"]
        assert (device / "vendor").read_text() == "0x10de\n"
        assert int((device / "numa_node").read_text()) == gpu["numa_node"]
        assert (device / "iommu_group").resolve().name == str(gpu["iommu_group"]["number"])
        info = root / f"proc/driver/nvidia/gpus/{gpu['pci']}/information"
        assert gpu["uuid"] in info.read_text()
    assert run("sim", "stop", name).returncode == 0
    assert not (tmp_path / "sim" / name).exists()


def test_sysfs_behaves_and_keeps_its_state_between_commands(run: Run, tmp_path: Path) -> None:
    run("sim", "start", "a30-pair")
    gpu = json.loads(run("--machine", "a30-pair", "gpu", "show", "0", "-o", "json").stdout)
    address = gpu["gpu"]["pci"]
    pci = tmp_path / "sim/a30-pair/root/sys/bus/pci"
    with pytest.raises(OSError, match="No such device"):
        (pci / "drivers/vfio-pci/bind").write_text(address)
    (pci / "drivers/nvidia/unbind").write_text(address)
    (pci / "devices" / address / "driver_override").write_text("vfio-pci\n")
    (pci / "drivers_probe").write_text(address)
    assert (pci / "devices" / address / "driver").resolve().name == "vfio-pci"
    with pytest.raises(PermissionError):
        (pci / "devices" / address / "vendor").write_text("0x1")


def test_what_cannot_be_is_refused_with_the_right_exit_code(run: Run, tmp_path: Path) -> None:
    unknown = run("sim", "start", "dgx-z9")
    assert unknown.returncode == 5
    assert "dgx-a100" in unknown.stderr
    assert run("sim", "start", "a30-pair").returncode == 0
    twice = run("sim", "start", "a30-pair")
    assert twice.returncode == 6
    assert "sim stop a30-pair" in twice.stderr
    assert run("--machine", "a30-pair", "gpu", "list").returncode == 0
    for name, code in (("hgx-h100", 5), ("../x", 5), ("", 2)):
        stopped = run("sim", "stop", name)
        assert stopped.returncode == code
        assert "Traceback" not in stopped.stderr
    assert (tmp_path / "sim" / "a30-pair").is_dir()


def test_what_a_machine_is_told_wrongly_is_refused(run: Run) -> None:
    run("sim", "start", "a30-pair")
    for words, said in (
        (["fly"], "understands"),
        (["../x", "y"], "understands"),
        (["hold"], "words"),
        (["fly", "-vfio-pci"], "understands"),
    ):
        told = run("sim", "tell", "a30-pair", *words)
        assert told.returncode == 2, told.stderr
        assert said in told.stderr
        assert "usage:" not in told.stderr
    unloaded = run("sim", "tell", "a30-pair", "driver", "-vfio-pci")
    assert unloaded.returncode == 0, unloaded.stderr


def test_env_lets_an_ordinary_nvml_program_see_the_machine(run: Run) -> None:
    run("sim", "start", "hgx-h100")
    script = (
        "import pynvml as n; n.nvmlInit(); "
        "print(n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(7)))"
    )
    exports = run("sim", "env", "hgx-h100").stdout
    shell = subprocess.run(
        ["sh", "-c", f'{exports}\nexec "$@"', "sh", sys.executable, "-c", script],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shell.stdout.split(maxsplit=1) == ["8", "NVIDIA H100 80GB HBM3\n"]


def test_a_bound_on_the_memory_of_all_programs(run: Run) -> None:
    refused = run("sim", "start", "a30-pair", "--memory", "2GB")
    assert refused.returncode == 2
    assert "2GiB" in refused.stderr
    assert run("sim", "start", "a30-pair", "--memory", "2GiB").returncode == 0
    program = (
        "import ctypes as c; d = c.CDLL('libcuda.so.1'); x, n = c.c_void_p(), c.c_size_t(1 << 31)\n"
        "assert not d.cuInit(0) and not d.cuCtxCreate_v2(c.byref(x), 0, 0)\n"
        "print(d.cuMemAlloc_v2(c.byref(x), n), d.cuMemAlloc_v2(c.byref(x), c.c_size_t(1 << 20)))\n"
    )
    exports = run("sim", "env", "a30-pair").stdout
    shell = subprocess.run(
        ["sh", "-c", f'{exports}\nexec "$@"', "sh", sys.executable, "-c", program],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shell.stdout == "2 0\n"  # CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS


def test_a_reader_who_has_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "vgpumgr", "sim", "list", "-o", "json"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
