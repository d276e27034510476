"""What is planned and refused for a run: skipped GPUs are named, and a run is called a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import make_gpu
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.runs import start_run
from vgpumgr.backends.forward import AttachRequest
from vgpumgr.errors import AlreadyAttachedError, NotAttachedError, SeveralAttachmentsError

WHO = "process 4711 (create_gpu_instance)"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path, [make_gpu(layout=None), make_gpu(index=1, layout=None)])


def start(bench: Bench, name: str = "train", **how: Any) -> Any:
    parts = how.pop("parts", bench.service.parts)
    return start_run(
        parts, name=name, command="train.py", profile="1g.10gb", pid=os.getpid(), **how
    )


def test_a_gpu_that_is_left_alone_is_named_with_its_reason(bench: Bench) -> None:
    uuids = {gpu.index: str(gpu.uuid) for gpu in bench.nvml.gpus.values()}
    parts = replace(bench.service.parts, list_late_gpus=lambda: {uuids[0]: WHO})
    for dry_run in (True, False):
        plan = start(bench, parts=parts, dry_run=dry_run).plan
        (note,) = [note for note in plan.notes if note.startswith("left alone: ")]
        assert "GPU 0" in note
        assert WHO in note


def test_what_a_run_has_not_is_said_of_a_run(bench: Bench) -> None:
    start(bench)
    with pytest.raises(NotAttachedError) as caught:
        bench.service.detach("train", attachment="deadbeef")
    assert caught.value.error.startswith('run "train"')
    assert caught.value.hint == "vgpumgr virtio show train"


def test_a_name_that_means_a_run_and_a_vm_is_refused_with_both(bench: Bench) -> None:
    start(bench)
    bench.service.attach(AttachRequest("vm01", "1g.10gb"))
    vm = next(r for r in bench.store.list_attachments() if r.run is None)
    bench.hypervisor.machines[vm.vm_uuid].name = "train"
    bench.store.save_attachment(replace(vm, vm_name="train"))
    with pytest.raises(SeveralAttachmentsError) as caught:
        bench.service.detach("train")
    held_by = caught.value.held_by
    assert sorted(text.partition(" ")[0] for text in held_by) == ["run", "vm"]


def test_a_name_that_is_taken_is_refused_alike_whoever_has_it(bench: Bench) -> None:
    start(bench)
    for name in ("train", "vm01"):
        with pytest.raises(AlreadyAttachedError) as caught:
            start(bench, name)
        assert f'"{name}"' in caught.value.error
        assert caught.value.hint == f"vgpumgr run --name {name}-2, or another name"
