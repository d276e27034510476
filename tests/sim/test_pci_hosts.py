# SPDX-License-Identifier: Apache-2.0
"""Hosts with GPUs of Intel and AMD, a workstation, VFIO files, and the faults that a test asks a machine for."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pynvml
import pytest

from tests.sim import nvml_support as support
from tests.sim.sim_tree import SimFiles, refused, sim_files, wake
from vgpumgr.sim import lifecycle

pytestmark = pytest.mark.native

DEVICES = "/sys/bus/pci/devices"
DRIVERS = "/sys/bus/pci/drivers"
FLEX = f"{DEVICES}/0000:4d:00.0"
ARC = f"{DEVICES}/0000:9b:00.0"

Make = Callable[[str], SimFiles]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Start one machine."""
    opened = []

    def start(name: str) -> SimFiles:
        opened.append(sim_files(name, tmp_path, monkeypatch))
        return opened[-1].__enter__()

    yield start
    for machine in opened:
        machine.__exit__(None, None, None)


def give_to_vfio(files: SimFiles, address: str) -> None:
    """As driverctl does it."""
    driver = files.resolve(f"{DEVICES}/{address}/driver")
    files.write(f"{DEVICES}/{address}/driver_override", "vfio-pci")
    files.write(f"{driver}/unbind", address)
    files.write("/sys/bus/pci/drivers_probe", address)
    assert files.resolve(f"{DEVICES}/{address}/driver").endswith("/vfio-pci")


def test_intel_vfs_come_by_number_and_the_host_takes_them(make: Make) -> None:
    files = make("intel-flex")
    files.write(f"{FLEX}/sriov_numvfs", 2)
    assert files.resolve(f"{FLEX}/virtfn1/driver") == f"{DRIVERS}/i915"
    with refused(errno.EBUSY):
        files.write(f"{FLEX}/sriov_numvfs", 3)
    files.write(f"{FLEX}/sriov_numvfs", 0)
    files.write(f"{FLEX}/sriov_drivers_autoprobe", 0)
    files.write(f"{FLEX}/sriov_numvfs", 31)
    assert "driver" not in files.list(f"{FLEX}/virtfn30")
    with refused(errno.ERANGE):
        files.write(f"{ARC}/sriov_numvfs", 25)


def test_i915_quotas_share_what_there_is(make: Make) -> None:
    files = make("intel-flex")
    base = f"{FLEX}/drm/card1/prelim_iov"
    assert files.read(f"{base}/pf/auto_provisioning") == "1"
    files.write(f"{base}/vf1/gt/lmem_quota", 3 << 30)
    files.write(f"{base}/vf1/gt/exec_quantum_ms", 20)
    assert files.read(f"{base}/vf1/gt/exec_quantum_ms") == "20"
    assert files.read(f"{base}/pf/auto_provisioning") == "0"
    with refused(errno.ENOSPC):
        files.write(f"{base}/vf2/gt/lmem_quota", 3 << 30)
    for wrong in ("much", -1):
        with refused(errno.EINVAL):
            files.write(f"{base}/vf1/gt/exec_quantum_ms", wrong)
    assert "lmem_quota" not in files.list(f"{base}/pf/gt")
    files.write(f"{FLEX}/sriov_numvfs", 1)
    assert files.resolve(f"{base}/vf1/device") == files.resolve(f"{FLEX}/virtfn0")
    files.write(f"{FLEX}/sriov_numvfs", 0)
    assert files.read(f"{base}/vf1/gt/lmem_quota") == "0"


def test_xe_shares_one_or_all(make: Make) -> None:
    files = make("intel-flex")
    base = f"{ARC}/sriov_admin"
    files.write(f"{base}/.bulk_profile/exec_quantum_ms", 10)
    files.write(f"{base}/vf3/profile/exec_quantum_ms", 40)
    shares = [files.read(f"{base}/vf{n}/profile/exec_quantum_ms") for n in (1, 3, 24)]
    assert shares == ["10", "40", "10"]
    files.write(f"{base}/pf/profile/sched_priority", "normal")
    assert files.read(f"{base}/vf1/profile/sched_priority") == "low [normal] high"
    with refused(errno.EINVAL):
        files.write(f"{base}/pf/profile/sched_priority", "urgent")
    files.write(f"{base}/vf1/profile/vram_quota", 20 << 30)
    with refused(errno.ENOSPC):
        files.write(f"{base}/vf2/profile/vram_quota", 4 << 30)
    assert files.resolve(f"{base}/pf/device") == files.resolve(ARC)


def test_i915_gives_all_or_what_it_is_told(make: Make) -> None:
    files = make("intel-flex")
    base = f"{FLEX}/drm/card1/prelim_iov"
    files.write(f"{FLEX}/sriov_numvfs", 2)
    assert files.read(f"{base}/vf2/gt/lmem_quota") == str(2534 << 20)
    files.write(f"{FLEX}/sriov_numvfs", 0)
    files.write(f"{base}/vf1/gt/lmem_quota", (1 << 30) - 1)
    assert files.read(f"{base}/vf1/gt/lmem_quota") == str(1 << 30), "in steps"
    with refused(errno.EPERM):
        files.write(f"{base}/pf/auto_provisioning", 1)
    files.write(f"{FLEX}/sriov_numvfs", 2)
    assert files.read(f"{base}/vf2/gt/lmem_quota") == "0", "what is set by hand is all there is"
    files.write(f"{FLEX}/sriov_numvfs", 0)
    files.write(f"{base}/pf/auto_provisioning", 1)
    files.write(f"{FLEX}/sriov_numvfs", 2)
    assert files.read(f"{base}/vf2/gt/lmem_quota") == str(2534 << 20)


def test_xe_gives_memory_that_nobody_set(make: Make) -> None:
    files = make("intel-flex")
    base = f"{ARC}/sriov_admin"
    files.write(f"{ARC}/sriov_numvfs", 2)
    assert files.read(f"{base}/vf1/profile/vram_quota") == str(12240 << 20)
    with refused(errno.ENOSPC):
        files.write(f"{base}/vf1/profile/vram_quota", 13 << 30)
    files.write(f"{ARC}/sriov_numvfs", 0)
    files.write(f"{base}/vf1/profile/vram_quota", 13 << 30)
    files.write(f"{ARC}/sriov_numvfs", 2)
    assert files.read(f"{base}/vf2/profile/vram_quota") == "0"


def test_a_host_without_nvidia_has_no_nvml(make: Make) -> None:
    make("intel-flex")
    with support.refused(pynvml.NVML_ERROR_DRIVER_NOT_LOADED), support.nvml():
        pass


def test_amd_vfs_are_there_and_their_number_is_the_drivers(make: Make) -> None:
    files = make("amd-mi300")
    gpu = f"{DEVICES}/0000:05:00.0"
    assert files.read(f"{gpu}/sriov_numvfs") == "1"
    assert files.read("/sys/module/gim/parameters/vf_num") == "1"
    with refused(errno.ENOENT):
        files.write(f"{gpu}/sriov_numvfs", 0)
    vf = files.resolve(f"{gpu}/virtfn0").rpartition("/")[2]
    files.write(f"{DEVICES}/{vf}/driver_override", "vfio-pci")
    files.write("/sys/bus/pci/drivers_probe", vf)
    assert files.resolve(f"{DEVICES}/{vf}/driver") == f"{DRIVERS}/vfio-pci"
    bare = f"{DEVICES}/0000:65:00.0"
    assert files.read(f"{bare}/available_compute_partition") == "SPX, DPX, QPX, CPX"
    files.write(f"{bare}/current_compute_partition", "CPX")
    assert files.read(f"{bare}/current_compute_partition") == "CPX"
    with refused(errno.EINVAL):
        files.write(f"{bare}/current_compute_partition", "TPX")


def test_a_workstation_shows_who_uses_what(make: Make) -> None:
    files = make("workstation")
    assert files.read(f"{DEVICES}/0000:01:00.0/boot_vga") == "1"
    assert files.list("/sys/kernel/iommu_groups/1/devices") == [
        "0000:00:01.0", "0000:01:00.0", "0000:01:00.1", "0000:01:00.2", "0000:01:00.3"
    ]  # fmt: skip
    assert files.list(f"{DEVICES}/0000:01:00.0/graphics") == ["fb0"]
    assert files.read("/sys/class/vtconsole/vtcon1/bind") == "1"
    number = files.read("/sys/class/block/nvme0n1/dev")
    assert f" {number} / / rw" in files.read("/proc/1/mountinfo")
    assert int(files.read("/sys/class/net/enp6s0/flags"), 0) & 1
    files.write(f"{DRIVERS}/igb/unbind", "0000:06:00.0")
    assert files.list("/sys/class/net") == []


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The root of a workstation whose files are mounted."""
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    directory, snapshot = lifecycle.start("workstation")
    assert snapshot is None
    yield directory / "root"
    lifecycle.stop("workstation")


def start_vm(*files: Path) -> tuple[subprocess.Popen[str], str]:
    """A pretended VM and what it says."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vgpumgr.sim.pretend_vm", "-name", "guest=vm7", *map(str, files)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    return process, process.stdout.readline().strip()


def write(path: Path, value: str) -> None:
    """One write, as ``echo`` makes it."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def bind(root: Path, address: str) -> None:
    """To vfio-pci."""
    device = root / f"sys/bus/pci/devices/{address}"
    write(device / "driver_override", "vfio-pci")
    write(device / "driver/unbind", address)
    write(root / "sys/bus/pci/drivers_probe", address)


def eventually(condition: Callable[[], bool]) -> None:
    """Within a minute; what is asynchronous in FUSE takes a moment."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(process: subprocess.Popen[str]) -> None:
    stdin: IO[str] | None = process.stdin
    assert stdin
    stdin.close()
    assert process.wait(60) == 0


def test_a_vm_opens_a_whole_group_and_holds_it(mounted: Path) -> None:
    for function in range(4):
        before, said = start_vm(mounted / "dev/vfio/1")
        assert said != "open", "a driver of the host has a function of the group"
        assert before.wait(60) == 1
        bind(mounted, f"0000:01:00.{function}")
    vm, said = start_vm(mounted / "dev/vfio/1")
    assert said == "open"
    second, said = start_vm(mounted / "dev/vfio/1")
    assert "busy" in said
    assert second.wait(60) == 1
    unbind = subprocess.Popen(
        ["sh", "-c", f"echo 0000:01:00.0 >{mounted}/sys/bus/pci/drivers/vfio-pci/unbind"]
    )
    device = mounted / "sys/bus/pci/devices/0000:01:00.0"
    eventually(lambda: not (device / "driver").exists())
    eventually(lambda: (mounted / f"proc/{unbind.pid}/wchan").exists())
    where = (mounted / f"proc/{unbind.pid}/wchan").read_text()
    assert where == "vfio_unregister_group_dev"
    assert (device / "vendor").read_text() == "0x10de\n", "what needs no lock answers"
    assert unbind.poll() is None
    end(vm)
    assert unbind.wait(60) == 0
    assert (device / "driver_override").read_text() == "vfio-pci\n"


def test_hot_unplug_of_a_held_function_stalls_the_core(make: Make) -> None:
    files = make("intel-flex")
    give_to_vfio(files, "0000:51:00.0")
    files.write("/.sim/hold", "0000:51:00.0 vm1")
    asleep = files.write(f"{DEVICES}/0000:51:00.0/remove", 1)
    rescan = files.write("/sys/bus/pci/rescan", 1)
    elsewhere = files.write(f"{ARC}/sriov_numvfs", 2)
    assert not wake(asleep)
    assert not wake(rescan)
    assert not wake(elsewhere)
    files.write("/.sim/release", "0000:51:00.0")
    assert wake(asleep)
    assert "0000:51:00.0" not in files.list(DEVICES)
    assert wake(rescan)
    files.write("/sys/bus/pci/rescan", 1)
    assert files.resolve(f"{DEVICES}/0000:51:00.0/driver") == f"{DRIVERS}/i915"


def test_a_stuck_unbind_locks_the_device_and_no_other(make: Make) -> None:
    files = make("intel-flex")
    give_to_vfio(files, "0000:51:00.0")
    files.write("/.sim/hold", "0000:51:00.0 vm1")
    asleep = files.write(f"{DRIVERS}/vfio-pci/unbind", "0000:51:00.0")
    assert "driver" not in files.list(f"{DEVICES}/0000:51:00.0")
    again = files.write("/sys/bus/pci/drivers_probe", "0000:51:00.0")
    assert not wake(again)
    give_to_vfio(files, "0000:9b:00.0")
    files.write("/.sim/release", "0000:51:00.0")
    assert wake(asleep)
    files.write("/sys/bus/pci/drivers_probe", "0000:51:00.0")
    assert files.resolve(f"{DEVICES}/0000:51:00.0/driver") == f"{DRIVERS}/vfio-pci"


def test_missing_drivers_and_lost_devices(make: Make) -> None:
    files = make("intel-flex")
    files.write("/.sim/driver", "-vfio-pci")
    assert "vfio-pci" not in files.list(DRIVERS)
    with refused(errno.EBUSY):
        files.write("/.sim/driver", "-i915")
    files.write("/.sim/driver", "vfio-pci")
    give_to_vfio(files, "0000:51:00.0")
    files.write("/.sim/gone", "0000:51:00.0")
    files.write("/sys/bus/pci/rescan", 1)
    assert "0000:51:00.0" not in files.list(DEVICES)


def test_faults_of_writes(mounted: Path) -> None:
    override = mounted / "sys/bus/pci/devices/0000:06:00.0/driver_override"
    write(mounted / ".sim/fault", "ignore */driver_override")
    write(override, "vfio-pci")
    assert override.read_text() == "(null)\n", "accepted, but nothing was done"
    write(mounted / ".sim/fault", "fail */driver_override EIO 2")
    for _ in range(2):
        with refused(errno.EIO):
            write(override, "vfio-pci")
    write(mounted / ".sim/fault", "hang */driver_override")
    writer = subprocess.Popen(["sh", "-c", f"echo vfio-pci >{override}"])
    eventually(lambda: (mounted / f"proc/{writer.pid}").exists())
    assert override.read_text() == "(null)\n"
    write(mounted / ".sim/fault", "clear")
    assert writer.wait(60) == 0
    assert override.read_text() == "vfio-pci\n"
    with refused(errno.EINVAL):
        write(mounted / ".sim/fault", "explode *")


def test_nvml_knows_the_gpus_that_its_driver_has(make: Make) -> None:
    files = make("workstation")
    with support.nvml() as nvml:
        second = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(1))
        first = nvml.nvmlDeviceGetHandleByIndex(0)
        give_to_vfio(files, "0000:01:00.0")
        assert nvml.nvmlDeviceGetCount() == 1
        assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0)) == second
        with support.refused(nvml.NVML_ERROR_NOT_FOUND):
            nvml.nvmlDeviceGetHandleByPciBusId(b"0000:01:00.0")
        with support.refused(nvml.NVML_ERROR_GPU_IS_LOST):
            nvml.nvmlDeviceGetName(first)
        files.write(f"{DRIVERS}/vfio-pci/unbind", "0000:01:00.0")
        files.write(f"{DEVICES}/0000:01:00.0/driver_override", "")
        files.write(f"{DRIVERS}/nvidia/bind", "0000:01:00.0")
        assert nvml.nvmlDeviceGetCount() == 2
        files.write("/.sim/gone", "0000:04:00.0")
        with support.refused(nvml.NVML_ERROR_GPU_IS_LOST):
            nvml.nvmlDeviceGetHandleByIndex(1)


def test_the_driver_leaves_no_gpu_that_somebody_computes_on(make: Make) -> None:
    files = make("workstation")
    library = support.LIBRARY.with_name("libvgpumgr-simstate.so")
    with support.Client(library, 1) as client:
        assert client.result == 0
        asleep = files.write(f"{DRIVERS}/nvidia/unbind", "0000:04:00.0")
        assert not wake(asleep)
        assert "driver" not in files.list(f"{DEVICES}/0000:04:00.0")
        client.kill()
    assert wake(asleep)


def test_a_parent_that_loses_its_driver_loses_its_vgpus(make: Make) -> None:
    files = make("vgpu-t4")
    uuids = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(2)]
    for uuid in uuids:
        files.write("/sys/class/mdev_bus/0000:3b:00.0/mdev_supported_types/nvidia-226/create", uuid)
    files.write("/.sim/hold", f"{uuids[0]} vm1")
    asleep = files.write(f"{DRIVERS}/nvidia/unbind", "0000:3b:00.0")
    assert files.list("/sys/bus/mdev/devices") == []
    assert not wake(asleep)
    files.write("/.sim/release", uuids[0])
    assert wake(asleep)
    files.write(f"{DRIVERS}/nvidia/bind", "0000:3b:00.0")
    kind = "/sys/class/mdev_bus/0000:3b:00.0/mdev_supported_types/nvidia-226"
    assert files.read(f"{kind}/available_instances") == "8"
