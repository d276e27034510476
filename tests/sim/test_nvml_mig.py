# SPDX-License-Identifier: Apache-2.0
"""MIG on the simulated NVML, case by case: the driver's order, its error codes, handles, names."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.sim import nvml_support as support

pytestmark = pytest.mark.native


@pytest.fixture
def dgx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A running dgx-a100."""
    with support.running("dgx-a100", tmp_path, monkeypatch) as directory, support.nvml():
        yield directory


@pytest.fixture
def gpu(dgx: Path) -> Any:
    """Its first GPU, in MIG mode."""
    assert dgx
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceSetMigMode(device, 1) == pynvml.NVML_SUCCESS
    return device


@pytest.fixture(scope="module")
def simstate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state library for clients."""
    return support.build_simstate(tmp_path_factory.mktemp("simstate"))


def _place(instance: Any) -> tuple[int, int, int]:
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    return info.id, info.placement.start, info.placement.size


def _placement(start: int, size: int) -> Any:
    return pynvml.byref(pynvml.c_nvmlGpuInstancePlacement_t(start, size))


def _create(gpu: Any, *profiles: int) -> list[tuple[int, int, int]]:
    return [_place(pynvml.nvmlDeviceCreateGpuInstance(gpu, profile)) for profile in profiles]


def test_order_and_ids_of_unplaced_instances_are_those_of_nvidias_transcripts(gpu: Any) -> None:
    # MIG user guide: nvidia-smi mig -cgi 19,14,5 gives the instances 13, 5 and 1
    assert _create(gpu, 19, 14, 5) == [(13, 6, 1), (5, 4, 2), (1, 0, 4)]


def test_3g_after_two_1g_and_a_2g_does_not_fit_but_3g_first_does(gpu: Any) -> None:
    _create(gpu, 19, 19, 14)
    with support.refused(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
        _create(gpu, 9)
    pynvml.nvmlDeviceSetMigMode(gpu, 0)
    pynvml.nvmlDeviceSetMigMode(gpu, 1)
    assert len(_create(gpu, 9, 14, 19, 19)) == 4


def test_a_2g_and_five_1g(gpu: Any) -> None:
    assert [start for _, start, _ in _create(gpu, 14, 19, 19, 19, 19, 19)] == [4, 6, 0, 1, 2, 3]


def test_two_3g_leave_a_slice_without_memory(gpu: Any) -> None:
    _create(gpu, 9, 9)
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19) == 0
    with support.refused(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
        _create(gpu, 19)


def test_placement_must_be_one_of_the_profiles(gpu: Any) -> None:
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 19, _placement(7, 1))
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, _placement(0, 3))
    first = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, _placement(0, 4))
    assert _place(first) == (1, 0, 4)
    with support.refused(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
        pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 5, _placement(0, 4))
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlDeviceCreateGpuInstance(gpu, 999)


def test_only_one_instance_with_media_engines(gpu: Any) -> None:
    _create(gpu, 20)
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 20) == 0
    with support.refused(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
        _create(gpu, 20)


def test_without_mig_mode(dgx: Path) -> None:
    assert dgx
    device = pynvml.nvmlDeviceGetHandleByIndex(3)
    info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device, 0)
    placements = (pynvml.c_nvmlGpuInstancePlacement_t * 8)()
    count = pynvml.c_uint(8)
    list_placements = pynvml.nvmlLib.nvmlDeviceGetGpuInstancePossiblePlacements_v2
    assert list_placements(device, info.id, placements, pynvml.byref(count)) == 0
    assert [(p.start, p.size) for p in placements[: count.value]] == [(n, 1) for n in range(7)]
    for call in (
        lambda: pynvml.nvmlDeviceCreateGpuInstance(device, info.id),
        lambda: pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device, info.id),
        lambda: pynvml.nvmlDeviceGetGpuInstanceById(device, 0),
    ):
        with support.refused(pynvml.NVML_ERROR_NOT_SUPPORTED):
            call()
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(device) == 0
    with support.refused(pynvml.NVML_ERROR_NOT_FOUND):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)


def test_too_small_buffer_states_the_need(gpu: Any) -> None:
    placements = (pynvml.c_nvmlGpuInstancePlacement_t * 2)()
    count = pynvml.c_uint(2)
    list_placements = pynvml.nvmlLib.nvmlDeviceGetGpuInstancePossiblePlacements_v2
    answer = list_placements(gpu, 19, placements, pynvml.byref(count))
    assert (answer, count.value) == (pynvml.NVML_ERROR_INSUFFICIENT_SIZE, 7)


def test_destroy_wants_the_compute_instances_gone(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, 9)
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    with support.refused(pynvml.NVML_ERROR_IN_USE):
        pynvml.nvmlGpuInstanceDestroy(instance)
    pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlGpuInstanceGetInfo(instance)


def test_a_handle_does_not_outlive_its_instance_even_in_the_same_place(gpu: Any) -> None:
    old = pynvml.nvmlDeviceCreateGpuInstance(gpu, 0)
    pynvml.nvmlGpuInstanceDestroy(old)
    new = pynvml.nvmlDeviceCreateGpuInstance(gpu, 0)
    assert _place(new) == (0, 0, 8)
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlGpuInstanceDestroy(old)


def test_mig_devices_have_names_memory_and_uuids_that_last(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, _placement(4, 4))
    # the 2c first: in a 3g it can only start at 0
    parts = [pynvml.nvmlGpuInstanceCreateComputeInstance(instance, n) for n in (1, 0)]
    devices = [pynvml.nvmlComputeInstanceGetInfo(part).device for part in parts]
    names = [pynvml.nvmlDeviceGetName(device) for device in devices]
    assert names == [f"NVIDIA A100-SXM4-80GB MIG {n}c.3g.40gb" for n in (2, 1)]
    uuids = [pynvml.nvmlDeviceGetUUID(device) for device in devices]
    assert len(set(uuids)) == 2
    for n, device in enumerate(devices):
        assert pynvml.nvmlDeviceIsMigDeviceHandle(device)
        assert pynvml.nvmlDeviceGetGpuInstanceId(device) == 2
        assert pynvml.nvmlDeviceGetComputeInstanceId(device) == n
        assert pynvml.nvmlDeviceGetMemoryInfo(device).total == 40192 << 20
        assert _same(pynvml.nvmlDeviceGetHandleByUUID(uuids[n]), device)
        assert _same(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device), gpu)
        attributes = pynvml.nvmlDeviceGetAttributes(device)
        assert attributes.multiprocessorCount == 14 * (2 - n)
        assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (
            3,
            2 - n,
        )
    for part in parts:
        pynvml.nvmlComputeInstanceDestroy(part)
    again = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlComputeInstanceGetInfo(again).device) == uuids[0]


def _same(a: Any, b: Any) -> bool:
    cast = pynvml.cast
    return bool(cast(a, pynvml.c_void_p).value == cast(b, pynvml.c_void_p).value)


def test_mig_devices_are_listed_without_gaps(gpu: Any) -> None:
    for profile in (19, 14, 5):
        instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, profile)
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 7
    devices = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, n) for n in range(3)]
    assert [pynvml.nvmlDeviceGetGpuInstanceId(d) for d in devices] == [1, 5, 13]
    assert [pynvml.nvmlDeviceGetIndex(d) for d in devices] == [0, 1, 2]
    with support.refused(pynvml.NVML_ERROR_NOT_FOUND):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 3)


_CI_COUNTS = {  # MIG user guide: instances of each size in a GPU instance, by its profile id
    19: {0: 1},
    14: {0: 2, 1: 1},
    9: {0: 3, 1: 1, 2: 1},
    5: {0: 4, 1: 2, 3: 1},
    0: {0: 7, 1: 3, 2: 2, 3: 1, 4: 1},
}


@pytest.mark.parametrize("profile", _CI_COUNTS)
def test_compute_instances_by_the_user_guide(gpu: Any, profile: int) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, profile)
    for ci_profile in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        expected = _CI_COUNTS[profile].get(ci_profile)
        if expected is None:
            with support.refused(pynvml.NVML_ERROR_NOT_SUPPORTED):
                pynvml.nvmlGpuInstanceCreateComputeInstance(instance, ci_profile)
            continue
        made = [
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, ci_profile)
            for _ in range(expected)
        ]
        assert pynvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, ci_profile) == 0
        with support.refused(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, ci_profile)
        for compute in made:
            pynvml.nvmlComputeInstanceDestroy(compute)


class _ProfileInfoV3(ctypes.Structure):
    """nvmlGpuInstanceProfileInfo_v3_t, which nvidia-ml-py does not have."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("version", "id", "slices", "instances", "sms")),
        *((name, ctypes.c_uint) for name in ("copy", "decoders", "encoders", "jpegs", "ofas")),
        ("memorySizeMB", ctypes.c_ulonglong),
        ("name", ctypes.c_char * 96),
        ("capabilities", ctypes.c_uint),
    )


def test_versioned_profile_information(gpu: Any) -> None:
    info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 9, 2)
    assert (info.id, info.name, info.memorySizeMB) == (15, "MIG 1g.20gb", 19968)
    fn = pynvml.nvmlLib.nvmlDeviceGetGpuInstanceProfileInfoV
    newer = _ProfileInfoV3(version=ctypes.sizeof(_ProfileInfoV3) | 3 << 24)
    assert fn(gpu, 9, pynvml.byref(newer)) == pynvml.NVML_SUCCESS
    assert (newer.id, newer.name, newer.memorySizeMB) == (15, b"MIG 1g.20gb", 19968)
    newer.version = 7
    assert fn(gpu, 9, pynvml.byref(newer)) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    with support.refused(pynvml.NVML_ERROR_NOT_SUPPORTED):
        pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, pynvml.NVML_GPU_INSTANCE_PROFILE_8_SLICE)
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)


def test_instances_in_use(gpu: Any, simstate: Path) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    device = pynvml.nvmlComputeInstanceGetInfo(compute).device
    with support.Client(simstate, 0, 13, 0, memory=1 << 30) as client:
        assert client.result == 0
        with support.refused(pynvml.NVML_ERROR_IN_USE):
            pynvml.nvmlComputeInstanceDestroy(compute)
        assert pynvml.nvmlDeviceGetMemoryInfo(device).used == 1 << 30
        for handle in (device, gpu):
            (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            assert (process.pid, process.usedGpuMemory) == (client.pid, 1 << 30)
            assert (process.gpuInstanceId, process.computeInstanceId) == (13, 0)
        assert "python" in pynvml.nvmlSystemGetProcessName(client.pid)
        client.kill()
        # what a killed process held is free without anybody's help
        assert pynvml.nvmlDeviceGetMemoryInfo(device).used == 0
        pynvml.nvmlComputeInstanceDestroy(compute)


def test_mode_stays_pending_on_ampere_while_a_client_is_there(dgx: Path, simstate: Path) -> None:
    assert dgx
    device = pynvml.nvmlDeviceGetHandleByIndex(1)
    with support.Client(simstate, 1) as client:
        assert client.result == 0
        assert pynvml.nvmlDeviceSetMigMode(device, 1) == pynvml.NVML_ERROR_IN_USE
        assert pynvml.nvmlDeviceGetMigMode(device) == [0, 1]
    assert pynvml.nvmlDeviceSetMigMode(device, 1) == pynvml.NVML_SUCCESS
    assert pynvml.nvmlDeviceGetMigMode(device) == [1, 1]


def test_hopper_keeps_no_pending_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simstate: Path
) -> None:
    with support.running("hgx-h100", tmp_path, monkeypatch), support.nvml() as nvml:
        device = nvml.nvmlDeviceGetHandleByIndex(0)
        with support.Client(simstate, 0):
            assert nvml.nvmlDeviceSetMigMode(device, 1) == nvml.NVML_ERROR_IN_USE
            assert nvml.nvmlDeviceGetMigMode(device) == [0, 0]
        assert nvml.nvmlDeviceSetMigMode(device, 1) == nvml.NVML_SUCCESS
        assert nvml.nvmlDeviceGetMigMode(device) == [1, 1]
        (field,) = nvml.nvmlDeviceGetFieldValues(
            device, [nvml.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED]
        )
        assert field.value.uiVal == 1


def test_a_change_of_mode_takes_the_instances_away(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, 0)
    assert pynvml.nvmlDeviceSetMigMode(gpu, 1) == pynvml.NVML_SUCCESS
    assert pynvml.nvmlGpuInstanceGetInfo(instance).id == 0
    pynvml.nvmlDeviceSetMigMode(gpu, 0)
    pynvml.nvmlDeviceSetMigMode(gpu, 1)
    with support.refused(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlGpuInstanceGetInfo(instance)


def test_all_media_engines_exclude_everything_but_profiles_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with support.running("rtx-pro-6000", tmp_path, monkeypatch), support.nvml() as nvml:
        device = nvml.nvmlDeviceGetHandleByIndex(0)
        nvml.nvmlDeviceSetMigMode(device, 1)
        everything = nvml.nvmlDeviceCreateGpuInstance(device, 65)
        with support.refused(nvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
            nvml.nvmlDeviceCreateGpuInstance(device, 14)
        assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device, 67) == 3
        nvml.nvmlDeviceCreateGpuInstance(device, 67)
        nvml.nvmlGpuInstanceDestroy(everything)
        nvml.nvmlDeviceCreateGpuInstance(device, 14)
        with support.refused(nvml.NVML_ERROR_INSUFFICIENT_RESOURCES):
            nvml.nvmlDeviceCreateGpuInstance(device, 65)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_unprivileged_user_may_look_but_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
assert n.nvmlDeviceGetMigMode(gpu) == [0, 0]
for call in (lambda: n.nvmlDeviceSetMigMode(gpu, 1), lambda: n.nvmlDeviceSetPersistenceMode(gpu, 0)):
    try:
        call()
    except n.NVMLError_NoPermission:
        continue
    raise SystemExit(3)
"""
    # pytest's own directories are closed to others
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        with support.running("a30-pair", root, monkeypatch):
            assert support.as_nobody(code) == 0


def test_a_lost_gpu(dgx: Path) -> None:
    device = pynvml.nvmlDeviceGetHandleByIndex(2)
    support.set_gpu(dgx, 2, "lost", 1)
    with support.refused(pynvml.NVML_ERROR_GPU_IS_LOST):
        pynvml.nvmlDeviceGetName(device)
    assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(3))
    (field,) = pynvml.nvmlDeviceGetFieldValues(device, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    assert field.value.uiVal == pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    support.set_gpu(dgx, 2, "lost", 0)
    assert pynvml.nvmlDeviceGetName(device)
