# SPDX-License-Identifier: Apache-2.0
"""Mediated devices of the simulated machines: the kernel's files with NVIDIA's rules behind them."""

from __future__ import annotations

import errno
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.sim_tree import SimFiles, refused, sim_files, wake
from tests.sim.test_pcibus import links
from vgpumgr.sim import lifecycle

pytestmark = pytest.mark.native

UUID = "11111111-2222-3333-4444-55555555555{}"
BUS = "/sys/bus/mdev/devices"


@pytest.fixture
def a100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimFiles]:
    with sim_files("vgpu-a100", tmp_path, monkeypatch) as files:
        yield files


@pytest.fixture
def t4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimFiles]:
    with sim_files("vgpu-t4", tmp_path, monkeypatch) as files:
        yield files


def types(parent: str, number: int = 471) -> str:
    """``nvidia-471`` is A100-10C, four on a GPU."""
    return f"/sys/class/mdev_bus/{parent}/mdev_supported_types/nvidia-{number}"


def available(files: SimFiles, parent: str) -> dict[str, int]:
    """What is available of each type that there is any of, by name."""
    base = f"/sys/class/mdev_bus/{parent}/mdev_supported_types"
    found = {
        files.read(f"{base}/{kind}/name"): int(files.read(f"{base}/{kind}/available_instances"))
        for kind in files.list(base)
    }
    return {name: count for name, count in found.items() if count}


def test_vfs_come_by_nvidias_tool_only(a100: SimFiles) -> None:
    assert a100.list("/sys/class/mdev_bus") == []
    with refused(errno.ENOENT):
        a100.write("/sys/bus/pci/devices/0000:41:00.0/sriov_numvfs", 4)
    a100.write("/.sim/sriov", "-e 0000:41:00.0")
    assert len(a100.list("/sys/class/mdev_bus")) == 16
    a100.write("/.sim/sriov", "-e ALL")
    assert len(a100.list("/sys/class/mdev_bus")) == 32
    a100.write("/.sim/sriov", "-d 0000:41:00.0")
    assert len(a100.list("/sys/class/mdev_bus")) == 16
    with refused(errno.ENODEV):
        a100.write("/.sim/sriov", "-e 0000:42:00.0")


def test_one_device_a_vf_and_one_size_a_gpu(a100: SimFiles) -> None:
    a100.write("/.sim/sriov", "-e ALL")
    assert a100.read(types("0000:41:00.4") + "/description") == (
        "num_heads=1, frl_config=60, framebuffer=10240M, max_resolution=4096x2160, max_instance=4"
    )
    a100.write(types("0000:41:00.4") + "/create", UUID.format(0))
    assert available(a100, "0000:41:00.4") == {}
    assert available(a100, "0000:41:00.5") == {"NVIDIA A100-10C": 1}
    assert len(available(a100, "0000:c1:00.4")) == 6, "the other GPU is free"
    with refused(errno.ENOSPC):
        a100.write(types("0000:41:00.4") + "/create", UUID.format(1))
    with refused(errno.EIO):
        a100.write(types("0000:41:00.5", 470) + "/create", UUID.format(1))
    for vf in (5, 6, 7):
        a100.write(types(f"0000:41:00.{vf}") + "/create", UUID.format(vf))
    assert available(a100, "0000:41:01.0") == {}
    with refused(errno.ENOSPC):
        a100.write(types("0000:41:01.0") + "/create", UUID.format(8))


def test_create_refuses_what_is_no_new_uuid(a100: SimFiles) -> None:
    a100.write("/.sim/sriov", "-e ALL")
    for wrong in ("", "1", UUID.format("x"), UUID.format("00")):
        with refused(errno.EINVAL):
            a100.write(types("0000:41:00.4") + "/create", wrong)
    a100.write(types("0000:41:00.4") + "/create", UUID.format("a"))
    with refused(errno.EEXIST):
        a100.write(types("0000:c1:00.4") + "/create", UUID.format("A"))


def test_a_device_stands_where_the_kernel_puts_it(a100: SimFiles) -> None:
    a100.write("/.sim/sriov", "-e 0000:41:00.0")
    uuid = UUID.format(0)
    a100.write(types("0000:41:00.4") + "/create", uuid)
    home = f"/sys/devices/pci0000:41/0000:41:00.4/{uuid}"
    assert a100.resolve(f"{BUS}/{uuid}") == home
    assert a100.list(types("0000:41:00.4") + "/devices") == [uuid]
    assert a100.resolve(f"{home}/mdev_type").endswith(
        "/0000:41:00.4/mdev_supported_types/nvidia-471"
    )
    assert a100.resolve(f"{home}/driver") == "/sys/bus/mdev/drivers/vfio_mdev"
    group = a100.resolve(f"{home}/iommu_group")
    assert a100.list(f"{group}/devices") == [uuid]
    for link in links(a100.tree.root(), ""):
        a100.tree.find(link)
    a100.write(f"{home}/remove", 1)
    assert a100.list(BUS) == []
    assert available(a100, "0000:41:00.4")["NVIDIA A100-4C"] == 1


def test_parameters_only_before_a_vm_has_it(a100: SimFiles) -> None:
    a100.write("/.sim/sriov", "-e 0000:41:00.0")
    a100.write(types("0000:41:00.4") + "/create", UUID.format(0))
    params = f"{BUS}/{UUID.format(0)}/nvidia/vgpu_params"
    a100.write(params, "frame_rate_limiter=0, disable_vnc=1")
    assert a100.read(params) == "frame_rate_limiter=0, disable_vnc=1"
    with refused(errno.EINVAL):
        a100.write(params, "colour=green")
    a100.write("/.sim/hold", f"{UUID.format(0)} vm1")
    with refused(errno.EPERM):
        a100.write(params, "frame_rate_limiter=1")
    assert a100.read(f"{BUS}/{UUID.format(0)}/nvidia/vm_name") == "vm1"
    with refused(errno.EBUSY):
        a100.write("/.sim/hold", f"{UUID.format(0)} vm2")


def test_removed_while_held_is_a_ghost_until_released(t4: SimFiles) -> None:
    kind = types("0000:3b:00.0", 226)
    uuid = UUID.format(0)
    t4.write(kind + "/create", uuid)
    t4.write("/.sim/hold", f"{uuid} vm1")
    asleep = t4.write(f"{BUS}/{uuid}/remove", 1)
    assert not wake(asleep)
    assert t4.list(BUS) == []
    with refused(errno.ENOENT):
        t4.write(f"{BUS}/{uuid}/remove", 1)
    with refused(errno.EEXIST):
        t4.write(kind + "/create", uuid)
    t4.write(kind + "/create", UUID.format(1))
    assert t4.read(kind + "/available_instances") == "6"
    t4.write("/.sim/release", uuid)
    assert wake(asleep)
    assert t4.read(kind + "/available_instances") == "7"
    t4.write(kind + "/create", uuid)


def test_without_sriov_the_gpu_is_the_parent(t4: SimFiles) -> None:
    assert t4.list("/sys/class/mdev_bus") == ["0000:3b:00.0", "0000:af:00.0"]
    assert t4.read("/sys/bus/pci/devices/0000:3b:00.0/sriov_totalvfs") == "16"
    before = available(t4, "0000:3b:00.0")
    assert before["GRID T4-2A"] == 8
    t4.write(types("0000:3b:00.0", 226) + "/create", UUID.format(0))
    assert available(t4, "0000:3b:00.0") == {
        "GRID T4-2A": 7, "GRID T4-2B": 7, "GRID T4-2Q": 7
    }  # fmt: skip
    assert available(t4, "0000:af:00.0") == before
    with refused(errno.ENODEV):
        t4.write("/.sim/sriov", "-e 0000:3b:00.0")


def test_vfs_in_use_stay(a100: SimFiles) -> None:
    a100.write("/.sim/sriov", "-e ALL")
    a100.write(types("0000:41:00.4") + "/create", UUID.format(0))
    a100.write("/.sim/hold", f"{UUID.format(0)} vm1")
    with refused(errno.EBUSY):
        a100.write("/.sim/sriov", "-d 0000:41:00.0")
    a100.write("/.sim/release", UUID.format(0))
    a100.write("/.sim/sriov", "-d 0000:41:00.0")
    assert a100.list(BUS) == []


def test_through_the_mount_a_removal_sleeps_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    directory, snapshot = lifecycle.start("vgpu-a100")
    assert snapshot is None
    root = directory / "root"
    try:
        subprocess.run([root / "usr/lib/nvidia/sriov-manage", "-e", "ALL"], check=True, timeout=60)
        (root / types("0000:41:00.4").strip("/") / "create").write_text(UUID.format(0))
        (root / ".sim/hold").write_text(f"{UUID.format(0)} vm1")
        busy = subprocess.run(
            [root / "usr/lib/nvidia/sriov-manage", "-d", "ALL"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert (busy.returncode, "unbindLock" in busy.stderr) == (1, True)
        remove = root / BUS.strip("/") / UUID.format(0) / "remove"
        writer = subprocess.Popen(["sh", "-c", f"echo 1 >{remove}"])
        while remove.exists():
            assert writer.poll() is None
        writer.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(0.2)  # not even SIGKILL wakes it, as measured on a real kernel
        (root / ".sim/release").write_text(UUID.format(0))
        assert writer.wait(60) == -signal.SIGKILL
    finally:
        lifecycle.stop("vgpu-a100")
