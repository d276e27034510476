# SPDX-License-Identifier: Apache-2.0
"""vGPU functions of the simulated NVML, and that they and the simulated /sys are two views of one state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sim import nvml_support as support
from tests.sim.sim_tree import SimFiles, sim_files
from vgpumgr.sim.machine import load_machine

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimFiles]:
    with (
        pytest.MonkeyPatch.context() as patch,
        sim_files("vgpu-a100", tmp_path_factory.mktemp("sim"), patch) as machine,
    ):
        yield machine


@pytest.fixture(scope="module")
def nvml(files: SimFiles) -> Iterator[ModuleType]:
    assert files.directory.is_dir(), "the machine runs"
    with support.nvml() as module:
        yield module


def test_a_host_without_the_vgpu_manager_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with support.running("a30-pair", tmp_path, monkeypatch), support.nvml() as nvml:
        gpu = nvml.nvmlDeviceGetHandleByIndex(0)
        for call in (
            nvml.nvmlDeviceGetSupportedVgpus,
            nvml.nvmlDeviceGetHostVgpuMode,
            nvml.nvmlDeviceGetActiveVgpus,
        ):
            with support.refused(nvml.NVML_ERROR_NOT_SUPPORTED):
                call(gpu)


def test_types_say_what_the_data_says(nvml: ModuleType) -> None:
    family = load_machine("vgpu-a100").gpus[0].family
    assert family
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetSupportedVgpus(gpu) == [kind.id for kind in family.types]
    for kind in family.types:
        assert nvml.nvmlVgpuTypeGetName(kind.id) == kind.name
        assert nvml.nvmlVgpuTypeGetClass(kind.id) == "Compute"
        assert nvml.nvmlVgpuTypeGetFramebufferSize(kind.id) == kind.framebuffer_mib << 20
        assert nvml.nvmlVgpuTypeGetMaxInstances(gpu, kind.id) == kind.max_instances
        assert nvml.nvmlVgpuTypeGetNumDisplayHeads(kind.id) == 1
        assert nvml.nvmlVgpuTypeGetResolution(kind.id) == (4096, 2160)
        assert nvml.nvmlVgpuTypeGetFrameRateLimit(kind.id) == 60
        assert nvml.nvmlVgpuTypeGetMaxInstancesPerVm(kind.id) == 16
        assert nvml.nvmlVgpuTypeGetLicense(kind.id).startswith("NVIDIA-vComputeServer")
        assert nvml.nvmlVgpuTypeGetDeviceID(kind.id)[0] == 0x20F110DE
        profile = nvml.nvmlVgpuTypeGetGpuInstanceProfileId(kind.id)
        assert (profile == 0xFFFFFFFF) == (kind.gi is None)
    with support.refused(nvml.NVML_ERROR_INVALID_ARGUMENT):
        nvml.nvmlVgpuTypeGetName(1)


def test_modes_of_hosts(nvml: ModuleType) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetHostVgpuMode(gpu) == nvml.NVML_HOST_VGPU_MODE_SRIOV
    assert nvml.nvmlDeviceGetVirtualizationMode(gpu) == 3
    with support.refused(nvml.NVML_ERROR_INVALID_ARGUMENT):
        nvml.nvmlVgpuTypeGetMaxInstances(gpu, 1151)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["create", "remove", "hold", "release", "vfs"]),
        st.integers(0, 2),
        st.sampled_from([468, 471, 472, 474, 478]),
    ),
    max_size=25,
)


@given(OPERATIONS, st.booleans())
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_both_views_agree_whatever_happens(
    files: SimFiles, nvml: ModuleType, operations: list[tuple[str, int, int]], mig: bool
) -> None:
    """What NVML calls creatable is what a free VF offers; what VMs hold is what NVML calls active."""
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    files.write("/.sim/sriov", "-d ALL")
    assert nvml.nvmlDeviceSetMigMode(gpu, mig) == nvml.NVML_SUCCESS
    files.write("/.sim/sriov", "-e ALL")
    if mig:
        nvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    for verb, vf, kind in operations:
        apply(files, verb, f"0000:41:00.{vf + 4}", f"00000000-0000-0000-0000-00000000000{vf}", kind)
    base = "/sys/class/mdev_bus/0000:41:02.3/mdev_supported_types"
    offered = {
        int(name.removeprefix("nvidia-"))
        for name in files.list(base)
        if files.read(f"{base}/{name}/available_instances") != "0"
    }
    assert set(nvml.nvmlDeviceGetCreatableVgpus(gpu)) == offered
    held = {path for path in files.list("/sys/bus/mdev/devices") if holder(files, path)}
    active = nvml.nvmlDeviceGetActiveVgpus(gpu)
    assert {nvml.nvmlVgpuInstanceGetMdevUUID(a) for a in active} >= held
    for uuid in held:
        files.write("/.sim/release", uuid)
    for vf in range(3):
        ghost = f"00000000-0000-0000-0000-00000000000{vf}"
        apply(files, "release", "", ghost, 0)


def holder(files: SimFiles, uuid: str) -> str:
    return files.read(f"/sys/bus/mdev/devices/{uuid}/nvidia/vm_name")


def apply(files: SimFiles, verb: str, vf: str, uuid: str, kind: int) -> None:
    """One operation; what is refused changes nothing."""
    try:
        if verb == "create":
            files.write(f"/sys/class/mdev_bus/{vf}/mdev_supported_types/nvidia-{kind}/create", uuid)
        elif verb == "remove":
            files.write(f"/sys/bus/mdev/devices/{uuid}/remove", 1)
        elif verb == "vfs":
            files.write("/.sim/sriov", "-e ALL")
        else:
            files.write(f"/.sim/{verb}", f"{uuid} vm" if verb == "hold" else uuid)
    except OSError:
        pass
