"""Destroying instances and changing MIG mode: what is asked of NVML, and what is left after a failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.boards import make_gpu
from tests.support.fake_nvml import FakeNvml
from vgpumgr.errors import (
    MigModePendingError,
    MigNotSupportedError,
    NvmlError,
    NvmlInUseError,
    NvmlNotFoundError,
    ReadBackError,
)
from vgpumgr.mig.instances import destroy_instance, ensure_mig_mode, find_instance
from vgpumgr.mig.placement import find_profile
from vgpumgr.model.gpu import Gpu, GpuProcess, ProcessKind
from vgpumgr.model.mig import (
    GpuInstance,
    MigActivation,
    MigMode,
    MigProfile,
    MigProfileName,
    Placement,
)


def get_profile(gpu: Gpu, name: str) -> MigProfile:
    profile = find_profile(gpu, MigProfileName.parse(name))
    assert profile is not None
    return profile


@pytest.fixture
def gpu() -> Gpu:
    return make_gpu()


@pytest.fixture
def nvml(gpu: Gpu) -> FakeNvml:
    return FakeNvml([gpu])


def create(nvml: FakeNvml, gpu: Gpu) -> GpuInstance:
    """2g.20gb at 4:2 with its compute instance."""
    profile = get_profile(gpu, "2g.20gb")
    instance = nvml.create_gpu_instance(gpu.uuid, profile.id, Placement(4, 2))
    nvml.create_compute_instance(gpu.uuid, instance.id, profile.slices)
    return instance


def test_an_instance_is_found_at_its_place_only(nvml: FakeNvml, gpu: Gpu) -> None:
    instance, profile = create(nvml, gpu), get_profile(gpu, "2g.20gb")
    found = find_instance(nvml, gpu.uuid, profile, Placement(4, 2))
    assert found is not None
    assert found.id == instance.id
    assert find_instance(nvml, gpu.uuid, profile, Placement(0, 2)) is None
    assert find_instance(nvml, gpu.uuid, get_profile(gpu, "1g.20gb"), Placement(4, 2)) is None


def test_destroying_is_restartable(nvml: FakeNvml, gpu: Gpu) -> None:
    instance = create(nvml, gpu)
    nvml.fail["destroy_gpu_instance"] = NvmlInUseError("busy")
    with pytest.raises(NvmlInUseError):
        destroy_instance(nvml, gpu.uuid, instance.id)
    assert nvml.list_gpu_instances(gpu.uuid)[0].compute_instances == ()
    destroy_instance(nvml, gpu.uuid, instance.id)
    assert nvml.list_gpu_instances(gpu.uuid) == ()
    destroy_instance(nvml, gpu.uuid, instance.id)


def test_what_vanished_meanwhile_is_no_error(nvml: FakeNvml, gpu: Gpu) -> None:
    instance = create(nvml, gpu)
    nvml.fail["destroy_compute_instance"] = NvmlNotFoundError("gone")
    with pytest.raises(NvmlError):
        # the fake keeps the compute instance, so the next step refuses: nothing is claimed
        destroy_instance(nvml, gpu.uuid, instance.id)
    destroy_instance(nvml, gpu.uuid, instance.id)


def test_success_without_effect_is_noticed(nvml: FakeNvml, gpu: Gpu) -> None:
    instance = create(nvml, gpu)
    nvml.destroy_gpu_instance = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(ReadBackError, match="still there"):
        destroy_instance(nvml, gpu.uuid, instance.id)


def test_mig_mode_that_is_right_is_not_touched(nvml: FakeNvml, gpu: Gpu) -> None:
    assert ensure_mig_mode(nvml, gpu, True) is False
    assert nvml.calls == []
    off = make_gpu(layout=None)
    assert ensure_mig_mode(FakeNvml([off]), off, True) is True


def test_mig_mode_waits_for_a_reset() -> None:
    off = make_gpu(layout=None)
    nvml = FakeNvml([off])
    nvml.activation = MigActivation.RESET_REQUIRED
    with pytest.raises(MigModePendingError) as caught:
        ensure_mig_mode(nvml, off, True)
    assert (caught.value.exit_code, caught.value.hint) == (8, "nvidia-smi -i 0 --gpu-reset")
    assert "words of NVML" in str(caught.value.cause)


def test_mig_mode_names_who_keeps_it() -> None:
    process = GpuProcess(4711, "python3", ProcessKind.COMPUTE, 1)
    off = make_gpu(layout=None, processes=[process])
    nvml = FakeNvml([off])
    nvml.activation = MigActivation.IN_USE
    with pytest.raises(MigModePendingError) as caught:
        ensure_mig_mode(nvml, off, True)
    assert caught.value.held_by == ("process 4711 (python3)",)
    assert "stays pending" in str(caught.value.why)


def test_mig_mode_needs_a_gpu_that_has_it(gpu: Gpu) -> None:
    without = replace(gpu, mig=MigMode(False))
    with pytest.raises(MigNotSupportedError):
        ensure_mig_mode(FakeNvml([without]), without, True)
