"""A new attach stays away from a GPU on which a call has not come back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.boards import make_gpu
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.errors import Exit, GpuStuckError, HelperLateError, NoRoomError, OutcomePendingError
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.process import read_identity
from vgpumgr.model.request import AttachRequest

WHO = "process 4711 (create_gpu_instance)"


def make(
    directory: Path, stuck: Mapping[int, str], late: Sequence[str] = ()
) -> tuple[Bench, AttachmentService]:
    """Two GPUs; on those in ``stuck`` (by index) a helper is."""
    bench = make_bench(directory, [make_gpu(layout=None), make_gpu(index=1, layout=None)])
    uuids = {gpu.index: str(gpu.uuid) for gpu in bench.nvml.gpus.values()}
    parts = replace(
        bench.service.parts,
        list_late_gpus=lambda: {uuids[index]: who for index, who in stuck.items()},
        list_late=lambda: late,
    )
    return bench, AttachmentService(parts)


@pytest.mark.parametrize("stuck", [0, 1])
def test_another_gpu_is_chosen_and_the_reason_told(tmp_path: Path, stuck: int) -> None:
    bench, service = make(tmp_path, {stuck: WHO})
    dry = service.attach(AttachRequest("vm01", "1g.10gb"), dry_run=True)
    done = service.attach(AttachRequest("vm01", "1g.10gb"))
    used = [gpu.index for gpu in bench.nvml.gpus.values() if gpu.instances]
    assert used == [1 - stuck]
    for plan in (dry.plan, done.plan):
        (note,) = [note for note in plan.notes if note.startswith("left alone: ")]
        assert f"GPU {stuck}" in note
        assert f"{WHO} has not come back" in note


def test_the_gpu_that_is_asked_for_is_refused(tmp_path: Path) -> None:
    bench, service = make(tmp_path, {0: WHO})
    before = bench.snapshot()
    with pytest.raises(GpuStuckError) as caught:
        service.attach(AttachRequest("vm01", "1g.10gb", gpu="0"))
    assert caught.value.exit_code is Exit.BUSY
    assert WHO in caught.value.held_by[0]
    assert bench.snapshot() == before
    service.attach(AttachRequest("vm01", "1g.10gb", gpu="1"))


def test_where_all_are_stuck_nothing_is_begun(tmp_path: Path) -> None:
    bench, service = make(tmp_path, {0: WHO, 1: WHO})
    before = bench.snapshot()
    with pytest.raises(GpuStuckError) as caught:
        service.attach(AttachRequest("vm01", "1g.10gb"))
    assert len(caught.value.held_by) == 2
    assert bench.snapshot() == before


def test_where_the_others_are_full_the_stuck_one_is_named(tmp_path: Path) -> None:
    _, service = make(tmp_path, {0: WHO})
    service.attach(AttachRequest("vm01", "7g.80gb", gpu="1"))
    with pytest.raises(NoRoomError) as caught:
        service.attach(AttachRequest("vm02", "1g.10gb"))
    assert any(WHO in text for text in caught.value.held_by)


def test_an_attach_that_waits_there_counts_whoever_the_helper_is(tmp_path: Path) -> None:
    """The helper of a command that was killed says nothing of its GPU; the record does."""
    bench, service = make(tmp_path, {}, ["process 4711 (a call of a command that was killed)"])
    bench.nvml.fail["create_gpu_instance"] = HelperLateError("no answer")
    with pytest.raises(OutcomePendingError):
        service.attach(AttachRequest("vm01", "1g.10gb", gpu="0"))
    done = service.attach(AttachRequest("vm02", "1g.10gb"))
    assert [gpu.index for gpu in bench.nvml.gpus.values() if gpu.instances] == [1]
    assert any("vm01 is half attaching there" in note for note in done.plan.notes)


def test_a_late_helper_is_recorded_with_its_gpu(tmp_path: Path) -> None:
    records = LateRecords(tmp_path)
    mine = read_identity(os.getpid())
    assert mine is not None
    records.record(mine, "create_gpu_instance", "GPU-1")
    assert [late.subject for late in records.list_late()] == ["GPU-1"]
