"""Creating and destroying slices: what is asked of NVML, and what is left after a failure at each step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.boards import make_gpu, make_uuid
from tests.support.fake_nvml import FakeNvml
from vgpumgr.errors import (
    MigInstanceNotFoundError,
    MigModePendingError,
    MigNotSupportedError,
    NvmlError,
    NvmlInUseError,
    NvmlNotFoundError,
    ReadBackError,
)
from vgpumgr.mig.instances import (
    create_slice,
    destroy_slice,
    ensure_mig_mode,
    find_instance,
    observe_instances,
    observe_slice,
)
from vgpumgr.mig.placement import find_profile
from vgpumgr.model.gpu import Gpu, GpuProcess, ProcessKind
from vgpumgr.model.identity import MigUuid
from vgpumgr.model.mig import MigActivation, MigMode, MigProfile, MigProfileName, Placement
from vgpumgr.model.slice import Slice, SliceKind


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


def create(nvml: FakeNvml, gpu: Gpu, name: str = "2g.20gb", start: int = 4) -> Slice:
    profile = get_profile(gpu, name)
    return create_slice(nvml, gpu.uuid, profile, Placement(start, profile.placements[0].size))


def test_a_slice_is_created_read_back_and_destroyed(nvml: FakeNvml, gpu: Gpu) -> None:
    slice_ = create(nvml, gpu)
    assert (slice_.kind, slice_.profile) == (SliceKind.MIG, "2g.20gb")
    assert slice_.mig is not None
    assert slice_.mig.placement == Placement(4, 2)
    assert observe_slice(nvml, slice_)
    found = find_instance(nvml, gpu.uuid, get_profile(gpu, "2g.20gb"), Placement(4, 2))
    assert found is not None
    assert found.id == slice_.mig.gpu_instance_id
    assert find_instance(nvml, gpu.uuid, get_profile(gpu, "2g.20gb"), Placement(0, 2)) is None
    destroy_slice(nvml, slice_)
    assert observe_instances(nvml, gpu.uuid) == ()
    assert not observe_slice(nvml, slice_)
    destroy_slice(nvml, slice_)


def test_a_smaller_compute_instance_names_itself(nvml: FakeNvml, gpu: Gpu) -> None:
    profile = get_profile(gpu, "3g.40gb")
    slice_ = create_slice(nvml, gpu.uuid, profile, Placement(0, 4), compute_slices=1)
    assert slice_.profile == "1c.3g.40gb"


@pytest.mark.parametrize("failure", [NvmlError("no"), KeyboardInterrupt()])
def test_a_failed_second_step_undoes_the_first(
    nvml: FakeNvml, gpu: Gpu, failure: Exception
) -> None:
    nvml.fail["create_compute_instance"] = failure
    with pytest.raises(type(failure)):
        create(nvml, gpu)
    assert observe_instances(nvml, gpu.uuid) == ()


def test_an_instance_elsewhere_than_asked_is_not_kept(nvml: FakeNvml, gpu: Gpu) -> None:
    original = nvml.create_gpu_instance
    nvml.create_gpu_instance = (  # type: ignore[method-assign]
        lambda gpu, profile_id, placement: original(gpu, profile_id, Placement(0, placement.size))
    )
    with pytest.raises(ReadBackError, match="at 4:2, it was put at 0:2"):
        create(nvml, gpu)
    assert observe_instances(nvml, gpu.uuid) == ()


def test_destroying_goes_on_where_it_was_interrupted(nvml: FakeNvml, gpu: Gpu) -> None:
    slice_ = create(nvml, gpu)
    nvml.fail["destroy_gpu_instance"] = NvmlInUseError("busy")
    with pytest.raises(NvmlInUseError):
        destroy_slice(nvml, slice_)
    assert observe_instances(nvml, gpu.uuid)[0].compute_instances == ()
    destroy_slice(nvml, slice_)
    assert observe_instances(nvml, gpu.uuid) == ()


def test_what_vanished_meanwhile_is_no_error(nvml: FakeNvml, gpu: Gpu) -> None:
    slice_ = create(nvml, gpu)
    nvml.fail["destroy_compute_instance"] = NvmlNotFoundError("gone")
    with pytest.raises(NvmlError):
        # the fake keeps the compute instance, so the next step refuses: nothing is claimed
        destroy_slice(nvml, slice_)
    destroy_slice(nvml, slice_)


def test_somebody_elses_instance_in_the_same_place_is_left_alone(nvml: FakeNvml, gpu: Gpu) -> None:
    slice_ = create(nvml, gpu)
    assert slice_.mig is not None
    stale = replace(slice_, mig=replace(slice_.mig, uuid=MigUuid(make_uuid("MIG", 7, 7))))
    with pytest.raises(MigInstanceNotFoundError) as caught:
        destroy_slice(nvml, stale)
    assert "is now 2g.20gb at 4:2" in str(caught.value.why)
    assert observe_slice(nvml, slice_)
    assert not observe_slice(nvml, stale)


def test_success_without_effect_is_noticed(nvml: FakeNvml, gpu: Gpu) -> None:
    slice_ = create(nvml, gpu)
    nvml.destroy_gpu_instance = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(ReadBackError, match="still there"):
        destroy_slice(nvml, slice_)


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


def test_only_mig_slices(nvml: FakeNvml, gpu: Gpu) -> None:
    whole = Slice(SliceKind.GPU, gpu.uuid, "passthrough", 1)
    with pytest.raises(ValueError, match="not a MIG slice"):
        destroy_slice(nvml, whole)
