# SPDX-License-Identifier: Apache-2.0
"""vGPUs without mediated devices (kernel 6.8 and later): files of a VF, and how they order with MIG and mixed size."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.sim import nvml_support as support
from tests.sim.sim_tree import SimFiles, refused, sim_files

pytestmark = pytest.mark.native

L40S = "0000:3a:00.0"
RTX = "0000:d8:00.0"
Q12, Q24, C12 = 1151, 1153, 1168


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimFiles]:
    with sim_files("vgpu-l40s", tmp_path, monkeypatch) as files:
        yield files


@pytest.fixture
def nvml() -> Iterator[ModuleType]:
    """Set up after ``files`` in the tests that name both."""
    with support.nvml() as module:
        yield module


def vf(number: int, gpu: str = L40S) -> str:
    """The ``nvidia`` directory of a VF."""
    slot = number + 4
    return f"/sys/bus/pci/devices/{gpu[:8]}{slot >> 3:02x}.{slot & 7}/nvidia"


def creatable(files: SimFiles, directory: str) -> dict[int, str]:
    heading, *rows = files.read(f"{directory}/creatable_vgpu_types").splitlines()
    assert ":" in heading
    pairs = (row.split(" : ") for row in rows)
    return {int(number): name for number, name in pairs}


def test_a_type_is_given_and_taken_back(files: SimFiles) -> None:
    files.write("/.sim/sriov", f"-e {L40S}")
    assert creatable(files, vf(0))[Q12] == "NVIDIA L40S-12Q"
    assert files.read(vf(0) + "/current_vgpu_type") == "0"
    for name in ("gpu_instance_id", "placement_id", "vgpu_params"):
        with refused(errno.ENXIO):
            files.read(f"{vf(0)}/{name}")
    files.write(vf(0) + "/current_vgpu_type", Q12)
    assert files.read(vf(0) + "/current_vgpu_type") == str(Q12)
    assert creatable(files, vf(0)) == {}
    assert set(creatable(files, vf(1))) == {Q12, 1161, C12}, "one size, any series"
    for wrong in (Q12, Q24):
        with refused(errno.EPERM):
            files.write(vf(0) + "/current_vgpu_type", wrong)
    with refused(errno.EIO):
        files.write(vf(1) + "/current_vgpu_type", Q24)
    with refused(errno.EINVAL):
        files.write(vf(1) + "/current_vgpu_type", 471)
    files.write(vf(0) + "/current_vgpu_type", 0)
    files.write(vf(0) + "/current_vgpu_type", 0)
    assert Q24 in creatable(files, vf(1))


def test_a_fifth_quarter_does_not_fit(files: SimFiles) -> None:
    files.write("/.sim/sriov", "-e ALL")
    for number in range(4):
        files.write(vf(number) + "/current_vgpu_type", (Q12, C12)[number % 2])
    assert [files.read(vf(n) + "/placement_id") for n in range(4)] == ["0", "12", "24", "36"]
    assert creatable(files, vf(4)) == {}
    with refused(errno.EIO):
        files.write(vf(4) + "/current_vgpu_type", Q12)
    assert Q24 in creatable(files, vf(4, "0000:b1:00.0"))


def test_while_a_vm_has_it_nothing_changes(files: SimFiles, nvml: ModuleType) -> None:
    files.write("/.sim/sriov", f"-e {L40S}")
    with refused(errno.ENODEV):
        files.write("/.sim/hold", f"{L40S[:8]}00.4 vm1")
    files.write(vf(0) + "/current_vgpu_type", Q12)
    files.write(vf(0) + "/vgpu_params", "enable_uvm=1")
    files.write("/.sim/hold", f"{L40S[:8]}00.4 vm1")
    for value in (0, Q12):
        with refused(errno.EPERM):
            files.write(vf(0) + "/current_vgpu_type", value)
    with refused(errno.EPERM):
        files.write(vf(0) + "/vgpu_params", "enable_uvm=0")
    with refused(errno.EBUSY):
        files.write("/.sim/sriov", f"-d {L40S}")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    (active,) = nvml.nvmlDeviceGetActiveVgpus(gpu)
    assert nvml.nvmlVgpuInstanceGetVmID(active)[0] == b"vm1"
    assert nvml.nvmlVgpuInstanceGetType(active) == Q12
    with support.refused(nvml.NVML_ERROR_NOT_SUPPORTED):
        nvml.nvmlVgpuInstanceGetMdevUUID(active)
    files.write("/.sim/release", f"{L40S[:8]}00.4")
    with support.refused(nvml.NVML_ERROR_NOT_FOUND):
        nvml.nvmlVgpuInstanceGetType(active)
    files.write(vf(0) + "/current_vgpu_type", 0)


def test_a_late_release_clears_the_next_user(files: SimFiles) -> None:
    files.write("/.sim/sriov", f"-e {L40S}")
    files.write(vf(0) + "/current_vgpu_type", Q12)
    files.write(vf(0) + "/current_vgpu_type", 0)
    files.write(vf(0) + "/current_vgpu_type", Q12)  # for another VM, which has not opened it yet
    files.write(vf(0) + "/current_vgpu_type", 0)  # the first VM's, late: nothing tells them apart
    assert files.read(vf(0) + "/current_vgpu_type") == "0"


def test_a_vf_stays_with_its_driver(files: SimFiles) -> None:
    files.write("/.sim/sriov", f"-e {L40S}")
    device = "/sys/bus/pci/devices/0000:3a:00.4"
    assert files.resolve(f"{device}/driver") == "/sys/bus/pci/drivers/nvidia"
    (vfio,) = files.list(f"{device}/vfio-dev")
    assert vfio in files.list("/dev/vfio/devices")
    files.write("/sys/bus/pci/drivers/nvidia/unbind", "0000:3a:00.4")
    files.write(f"{device}/driver_override", "vfio-pci")
    with refused(errno.EINVAL):
        files.write("/sys/bus/pci/drivers/vfio-pci/bind", "0000:3a:00.4")
    files.write("/sys/bus/pci/drivers_probe", "0000:3a:00.4")
    assert "driver" not in files.list(device)


def test_mixed_size_places_types_side_by_side(files: SimFiles, nvml: ModuleType) -> None:
    files.write("/.sim/sriov", f"-e {L40S}")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetVgpuHeterogeneousMode(gpu, nvml.NVML_FEATURE_ENABLED)
    files.write(vf(0) + "/current_vgpu_type", Q12)
    files.write(vf(1) + "/current_vgpu_type", Q24)
    assert files.read(vf(1) + "/placement_id") == "24"
    assert 1154 not in creatable(files, vf(2)), "no 48 GB left"
    files.write(vf(0) + "/placement_id", 12)
    with refused(errno.EIO):
        files.write(vf(0) + "/placement_id", 24)
    with refused(errno.EINVAL):
        files.write(vf(0) + "/placement_id", 5)
    assert set(nvml.nvmlDeviceGetCreatableVgpus(gpu)) == set(creatable(files, vf(2)))
    with support.refused(nvml.NVML_ERROR_IN_USE):
        nvml.nvmlDeviceSetVgpuHeterogeneousMode(gpu, nvml.NVML_FEATURE_DISABLED)
    files.write("/.sim/sriov", f"-d {L40S}")
    files.write("/.sim/sriov", f"-e {L40S}")
    again = nvml.nvmlDeviceGetVgpuHeterogeneousMode(gpu)
    assert again == nvml.NVML_FEATURE_DISABLED, "new VFs, equal size"


def test_without_mixed_size_placements_are_the_drivers(files: SimFiles) -> None:
    files.write("/.sim/sriov", f"-e {L40S}")
    files.write(vf(0) + "/current_vgpu_type", Q12)
    with refused(errno.EPERM):
        files.write(vf(0) + "/placement_id", 12)


def test_mig_mode_then_vfs_then_instances_then_types(files: SimFiles, nvml: ModuleType) -> None:
    gpu = nvml.nvmlDeviceGetHandleByPciBusId(RTX.encode())
    assert nvml.nvmlDeviceSetMigMode(gpu, 1) == nvml.NVML_SUCCESS
    files.write("/.sim/sriov", f"-e {RTX}")
    assert creatable(files, vf(0, RTX)) == {}, "no GPU instance yet"
    with support.refused(nvml.NVML_ERROR_NOT_SUPPORTED):
        nvml.nvmlDeviceGetVgpuHeterogeneousMode(gpu)
    types = {
        nvml.nvmlVgpuTypeGetName(t).rsplit(" ", 1)[1]: t
        for t in nvml.nvmlDeviceGetSupportedVgpus(gpu)
    }
    profile = nvml.nvmlVgpuTypeGetGpuInstanceProfileId(types["DC-1-3Q"])
    instance = nvml.nvmlDeviceCreateGpuInstance(gpu, profile)
    assert types["DC-1-3Q"] in creatable(files, vf(0, RTX))
    assert types["DC-3Q"] not in creatable(files, vf(0, RTX)), "time-sliced"
    for number in range(8):
        files.write(vf(number, RTX) + "/current_vgpu_type", types["DC-1-3Q"])
    number = nvml.nvmlGpuInstanceGetInfo(instance).id
    assert files.read(vf(7, RTX) + "/gpu_instance_id") == str(number)
    assert files.read(vf(7, RTX) + "/placement_id") == "21"
    with refused(errno.EIO):
        files.write(vf(8, RTX) + "/current_vgpu_type", types["DC-1-3Q"])
    with support.refused(nvml.NVML_ERROR_IN_USE):
        nvml.nvmlGpuInstanceDestroy(instance)
    assert nvml.nvmlDeviceSetMigMode(gpu, 0) == nvml.NVML_ERROR_IN_USE
    files.write("/.sim/sriov", f"-d {RTX}")
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    with support.refused(nvml.NVML_ERROR_INVALID_ARGUMENT):
        nvml.nvmlGpuInstanceGetInfo(instance)
    assert nvml.nvmlDeviceSetMigMode(gpu, 0) == nvml.NVML_SUCCESS
