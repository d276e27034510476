"""Other programs that use NVML during an attach: what they made is never touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.boards import make_gpu
from tests.support.service import Bench, make_bench
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.step import Plan
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import (
    LayoutChangedError,
    NvmlInUseError,
    RollbackIncompleteError,
    RolledBackError,
)
from vgpumgr.model.mig import GpuInstance, Placement
from vgpumgr.model.request import AttachRequest

#: the smallest profile
SMALL = 19
ASK = AttachRequest("vm01", "1g.10gb")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path, [make_gpu(layout=[])])


def act_before_each_try(patch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> list[Plan]:
    """Between planning and the first step of each attempt; answers the plans."""
    execute, tried = Transaction.execute, list[Plan]()

    def meddle(self: Transaction, plan: Plan, context: OperationContext) -> None:
        tried.append(plan)
        if len(tried) <= len(acts):
            acts[len(tried) - 1]()
        execute(self, plan, context)

    patch.setattr(Transaction, "execute", meddle)
    return tried


def make_foreign(bench: Bench, start: int) -> GpuInstance:
    return bench.nvml.create_gpu_instance(bench.gpu.uuid, SMALL, Placement(start, 1))


def test_an_attach_plans_anew_around_a_foreign_instance(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = act_before_each_try(monkeypatch, lambda: make_foreign(bench, 6))
    bench.service.attach(ASK)
    first, second = (plan.result["placement"] for plan in tried)
    assert first == {"start": 6, "size": 1}
    assert second == {"start": 5, "size": 1}
    assert sorted(i.placement.start for i in bench.gpu.instances) == [5, 6]


def test_an_attach_gives_up_when_the_gpu_changes_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = [lambda start=start: make_foreign(bench, start) for start in (0, 1)]
    act_before_each_try(monkeypatch, *acts)
    with pytest.raises(RolledBackError) as caught:
        bench.service.attach(ASK)
    assert isinstance(caught.value.__cause__, LayoutChangedError)
    assert [i.placement.start for i in bench.gpu.instances] == [0, 1]
    assert bench.store.list_attachments() == ()


def test_a_foreign_compute_instance_in_our_new_gpu_instance_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = bench.nvml.create_compute_instance

    def fail(*asked: object) -> None:
        create(*asked)  # type: ignore[arg-type]
        raise NvmlInUseError("in use")

    monkeypatch.setattr(bench.nvml, "create_compute_instance", fail)
    with pytest.raises(RollbackIncompleteError) as caught:
        bench.service.attach(ASK)
    assert "could not undo: create GPU instance" in (caught.value.why or "")
    (ours,) = bench.gpu.instances
    assert len(ours.compute_instances) == 1
    (record,) = bench.store.list_attachments()
    assert record.gpu_instance_id == ours.id
