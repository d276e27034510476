"""Priorities of shares on fakes: asked for, recorded, handed to the channel, changed and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import GIB
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.app.operations.shares import set_share
from vgpumgr.engine.executor import Executor
from vgpumgr.errors import UsageError
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.choices import Priority
from vgpumgr.model.request import AttachRequest
from vgpumgr.state.domain_metadata import rebuild_records


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """One A100 of 80 GiB without MIG mode."""
    return make_bench(tmp_path)


def attach(bench: Bench, profile: str = "share:8GiB,30%", **more: Any) -> Any:
    return bench.service.attach(AttachRequest("vm01", profile, **more))


def get_record(bench: Bench) -> AttachmentRecord:
    (record,) = bench.store.list_attachments()
    return record


def get_priorities(bench: Bench) -> tuple[str, str]:
    """As it is recorded, and as the channel keeps it."""
    record = get_record(bench)
    assert record.share_part is not None
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == (record,)
    return record.share_part.priority, bench.channels.priorities[record.id]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(None, "normal"), ("low", "low"), ("normal", "normal"), ("high", "high")],
)
def test_a_share_has_the_priority_that_was_asked_for(
    bench: Bench, asked: str | None, expected: str
) -> None:
    document = attach(bench, priority=asked)
    assert get_priorities(bench) == (expected, expected)
    assert bench.channels.specs[get_record(bench).id].priority == expected
    assert document.attachment.share.priority == expected
    (start,) = [step for step in document.plan.steps if step.kind == "channel.start"]
    assert (f"{expected} priority" in start.description) == (expected != "normal")


def test_set_changes_it_at_once_and_leaves_the_rest(bench: Bench) -> None:
    attach(bench)
    dry = set_share(bench.service.parts, vm="vm01", priority="high", dry_run=True)
    assert [s.description for s in dry.plan.steps] == ["change its priority from normal to high"]
    assert get_priorities(bench) == ("normal", "normal")
    set_share(bench.service.parts, vm="vm01", priority="high")
    assert get_priorities(bench) == ("high", "high")
    assert get_record(bench).profile == "share:8GiB,30%"
    set_share(bench.service.parts, vm="vm01", compute=50, memory_bytes=4 * GIB)
    assert get_priorities(bench) == ("high", "high")
    assert set_share(bench.service.parts, vm="vm01", priority="high").plan.steps == []


def test_a_channel_that_keeps_to_another_is_repaired_by_the_same_set(bench: Bench) -> None:
    attach(bench, priority="low")
    bench.channels.priorities[get_record(bench).id] = "high"
    set_share(bench.service.parts, vm="vm01", priority="low")
    assert get_priorities(bench) == ("low", "low")


def test_what_is_no_priority_or_no_share_changes_nothing(bench: Bench) -> None:
    before = bench.snapshot()
    for more, words in (
        ({"priority": "urgent"}, "no priority 'urgent'"),
        ({"profile": "1g.10gb", "priority": "high"}, "--priority is for shares"),
        ({"profile": "passthrough", "priority": "high"}, "--priority is for shares"),
    ):
        with pytest.raises(UsageError, match=words):
            attach(bench, **more)
    assert bench.snapshot() == before
    attach(bench)
    before = bench.snapshot()
    with pytest.raises(UsageError, match="no priority 'urgent'"):
        set_share(bench.service.parts, vm="vm01", priority="urgent")
    assert bench.snapshot() == before


def test_a_command_that_is_killed_leaves_the_earlier_priority(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(bench, priority="low")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "_fail", die)
        bench.channels.killed_in_set = True
        with pytest.raises(KeyboardInterrupt):
            set_share(bench.service.parts, vm="vm01", priority="high")
    bench.channels.killed_in_set = False
    reports = Recovery(bench.service.parts).recover(Policy()).actions
    assert any("was undone" in action.text for action in reports)
    assert get_priorities(bench) == ("low", "low")


def test_a_later_keeper_has_it(bench: Bench) -> None:
    attach(bench, priority="high")
    bench.channels.running.clear()
    bench.channels.specs.clear()
    Recovery(bench.service.parts).recover(Policy())
    assert bench.channels.specs[get_record(bench).id].priority is Priority.HIGH
