"""Changes of a share that wait for its programs' end, on fakes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import GIB
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.app.operations.runs import start_run
from vgpumgr.app.operations.shares import set_share
from vgpumgr.engine.executor import Executor
from vgpumgr.errors import LibvirtDownError, ShareInUseError, UsageError
from vgpumgr.host.lock import DAEMON_LOCK, lock_file
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.request import AttachRequest
from vgpumgr.state.domain_metadata import rebuild_records
from vgpumgr.virtio.channel_status import refuse_memory


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """One A100 of 80 GiB, and vm01 with a share of 8 GiB of it, of which its programs use 5."""
    bench = make_bench(tmp_path)
    bench.service.attach(AttachRequest("vm01", "share:8GiB,30%"))
    use(bench, 5 * GIB)
    return bench


def get_record(bench: Bench, vm: str = "vm01") -> AttachmentRecord:
    return next(r for r in bench.store.list_attachments() if r.vm_name == vm)


def get_waiting(bench: Bench) -> tuple[str, int | None]:
    """The share that it has, and the memory that waits."""
    record = get_record(bench)
    assert record.share_part is not None
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == (record,)
    return record.profile, record.share_part.memory_at_exit


def use(bench: Bench, memory: int, vm: str = "vm01") -> None:
    bench.channels.used[get_record(bench, vm).id] = memory


def change(bench: Bench, vm: str = "vm01", **how: Any) -> Any:
    return set_share(bench.service.parts, vm=vm, **how)


def recover(bench: Bench) -> list[str]:
    return [action.text for action in Recovery(bench.service.parts).recover(Policy()).actions]


def test_memory_in_use_is_refused_without_at_exit_and_waits_with_it(bench: Bench) -> None:
    with pytest.raises(ShareInUseError) as caught:
        change(bench, memory_bytes=4 * GIB)
    assert "--at-exit" in (caught.value.hint or "")
    before = bench.snapshot()
    dry = change(bench, memory_bytes=4 * GIB, at_exit=True, dry_run=True)
    assert [s.description for s in dry.plan.steps] == ["shrink it to 4GiB at its programs' end"]
    assert bench.snapshot() == before
    done = change(bench, memory_bytes=4 * GIB, at_exit=True)
    assert get_waiting(bench) == ("share:8GiB,30%", 4 * GIB)
    assert bench.channels.shares[get_record(bench).id] == (8 * GIB, 30)
    assert any("its programs use 5 GiB, more than 4GiB" in note for note in done.plan.notes)
    assert any("no daemon runs here: vgpumgr recover" in note for note in done.plan.notes)


def test_a_daemon_is_said_to_carry_it_out(bench: Bench) -> None:
    lock = lock_file(bench.service.parts.run_dir / DAEMON_LOCK, timeout_s=1, what="the daemon")
    with lock:
        done = change(bench, memory_bytes=4 * GIB, at_exit=True)
    assert any("the daemon shrinks it at its next reconcile" in note for note in done.plan.notes)


def test_status_says_what_waits_and_recover_carries_it_out_once_it_can(bench: Bench) -> None:
    change(bench, memory_bytes=4 * GIB, at_exit=True)
    assert recover(bench) == []
    recovery = Recovery(bench.service.parts)
    assert recovery.diff().drift == []
    (warning,) = recovery.status().warnings
    assert warning == (
        "vm01: its share shrinks to 4GiB once its programs use no more than that; they use 5 GiB"
    )
    use(bench, 3 * GIB)
    (drift,) = recovery.status().drift or []
    assert (drift.kind, drift.hint) == ("shrink-due", "vgpumgr recover")
    dry = recovery.plan(Policy())
    assert "shrank its share to share:4GiB,30%" in dry.actions[0].text
    assert get_waiting(bench) == ("share:8GiB,30%", 4 * GIB)
    (done,) = recover(bench)
    assert done.startswith("shrank its share to share:4GiB,30%")
    assert get_waiting(bench) == ("share:4GiB,30%", None)
    assert bench.channels.shares[get_record(bench).id] == (4 * GIB, 30)
    assert recover(bench) == []
    assert recovery.status().warnings == []


def test_the_daemons_reconcile_carries_it_out(bench: Bench) -> None:
    change(bench, memory_bytes=4 * GIB, at_exit=True)
    use(bench, 0)
    done = Recovery(bench.service.parts).recover(Policy(readd=True), needs_libvirt=True)
    assert [action.done for action in done.actions] == [True]
    assert get_waiting(bench) == ("share:4GiB,30%", None)


def test_without_libvirt_the_daemon_carries_out_what_runs_wait_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_run(
        bench.service.parts, name="one", command="true", profile="share:8GiB,10%", pid=os.getpid()
    )
    use(bench, 5 * GIB, "one")
    for name in ("vm01", "one"):
        change(bench, name, memory_bytes=4 * GIB, at_exit=True)
    for name in ("vm01", "one"):
        use(bench, 1 * GIB, name)

    def refuse(*_: object) -> None:
        raise LibvirtDownError("libvirt does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(bench.hypervisor, "list_vms", refuse)
        patch.setattr(bench.hypervisor, "read_vm", refuse)
        with pytest.raises(LibvirtDownError):
            Recovery(bench.service.parts).recover(Policy(), needs_libvirt=True)
    assert get_record(bench, "one").profile == "share:4GiB,10%"
    assert get_waiting(bench) == ("share:8GiB,30%", 4 * GIB)
    assert len(recover(bench)) == 1
    assert get_waiting(bench) == ("share:4GiB,30%", None)


def test_what_they_take_again_meanwhile_is_waited_for(bench: Bench) -> None:
    change(bench, memory_bytes=4 * GIB, at_exit=True)
    use(bench, 3 * GIB)
    bench.channels.fail["set_share"] = ShareInUseError("more is used by now")
    assert recover(bench) == []
    assert get_waiting(bench) == ("share:8GiB,30%", 4 * GIB)
    assert len(recover(bench)) == 1
    assert get_waiting(bench) == ("share:4GiB,30%", None)


def test_what_is_not_used_shrinks_at_once_and_what_is_taken_meanwhile_waits(bench: Bench) -> None:
    change(bench, memory_bytes=6 * GIB, at_exit=True)
    assert get_waiting(bench) == ("share:6GiB,30%", None)
    bench.channels.fail["set_share"] = ShareInUseError("more is used by now")
    done = change(bench, memory_bytes=5 * GIB, at_exit=True)
    assert get_waiting(bench) == ("share:6GiB,30%", 5 * GIB)
    # the report is behind what the worker counts: no figure is said
    assert [note for note in done.plan.notes if "its programs use more than 5GiB; once" in note]


def test_a_refusal_says_a_figure_only_where_it_is_more_than_the_limit() -> None:
    for used in (None, 3 * GIB, 4 * GIB):
        error = refuse_memory(4 * GIB, used)
        assert error.why == "its programs use more than 4GiB now"
        assert error.hint == "a larger --memory; or --at-exit, which waits for its programs' end"
    error = refuse_memory(4 * GIB, 5 * GIB)
    assert error.why == "its programs use 5 GiB of it now"
    assert str(error.hint).startswith("--memory 5GiB or more; or --at-exit")


def test_time_changes_at_once_and_keeps_what_waits(bench: Bench) -> None:
    change(bench, memory_bytes=4 * GIB, compute=50, at_exit=True)
    assert get_waiting(bench) == ("share:8GiB,50%", 4 * GIB)
    assert bench.channels.shares[get_record(bench).id] == (8 * GIB, 50)
    change(bench, compute=20)
    assert get_waiting(bench) == ("share:8GiB,20%", 4 * GIB)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"memory_bytes": 3 * GIB, "at_exit": True}, ("share:8GiB,30%", 3 * GIB)),
        ({"memory_bytes": 8 * GIB}, ("share:8GiB,30%", None)),
        ({"memory_bytes": 7 * GIB}, ("share:7GiB,30%", None)),
        ({"memory_bytes": 9 * GIB}, ("share:9GiB,30%", None)),
    ],
)
def test_another_set_stands_in_its_place(
    bench: Bench, how: dict[str, Any], expected: tuple[str, int | None]
) -> None:
    change(bench, memory_bytes=4 * GIB, at_exit=True)
    use(bench, 5 * GIB)
    done = change(bench, **how)
    assert get_waiting(bench) == expected
    if expected[1] is None:
        assert "do not shrink it to 4GiB any more" in done.plan.steps[0].description
        use(bench, 0)
        assert recover(bench) == []
    assert change(bench, **how).plan.steps == []


def test_memory_that_waits_is_nobody_elses_until_the_next_set_finds_it_free(bench: Bench) -> None:
    bench.service.attach(AttachRequest("vm02", "share:8GiB,10%"))
    change(bench, memory_bytes=4 * GIB, at_exit=True)
    with pytest.raises(Exception, match="cannot change the share of vm02"):
        change(bench, "vm02", memory_bytes=74 * GIB)
    use(bench, 1 * GIB)
    done = change(bench, "vm02", memory_bytes=74 * GIB)
    assert "shrank the share of vm01 to share:4GiB,30%, which had waited" in done.notes
    assert get_waiting(bench) == ("share:4GiB,30%", None)
    assert get_record(bench, "vm02").profile == "share:74GiB,10%"


def test_detach_gives_up_what_waits(bench: Bench) -> None:
    change(bench, memory_bytes=4 * GIB, at_exit=True)
    bench.service.detach("vm01")
    assert recover(bench) == []
    assert not bench.store.list_attachments()


def test_at_exit_needs_memory_and_takes_no_less_than_a_context(bench: Bench) -> None:
    before = bench.snapshot()
    with pytest.raises(UsageError, match="--at-exit is for --memory"):
        change(bench, compute=10, at_exit=True)
    with pytest.raises(UsageError, match="cannot change the share"):
        change(bench, memory_bytes=1 << 20, at_exit=True)
    assert bench.snapshot() == before


@pytest.mark.parametrize("compute", [None, 50])
def test_a_command_that_is_killed_leaves_it_waiting_or_not_at_all(
    bench: Bench, compute: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    before = get_waiting(bench)
    with monkeypatch.context() as patch:
        patch.setattr(Executor, "_fail", die)
        bench.hypervisor.fail["set_notes config"] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            change(bench, memory_bytes=4 * GIB, compute=compute, at_exit=True)
    assert any("was undone" in text for text in recover(bench))
    assert get_waiting(bench) == before
    assert bench.channels.shares[get_record(bench).id] == (8 * GIB, 30)


def test_memory_that_was_just_freed_is_waited_for_until_it_is_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = bench.service.parts.clock
    begin_s, sleep = clock.monotonic_s(), clock.sleep

    def report(duration_s: float) -> None:
        sleep(duration_s)
        if clock.monotonic_s() - begin_s > 0.1:
            use(bench, 3 * GIB)

    monkeypatch.setattr(clock, "sleep", report)
    change(bench, memory_bytes=4 * GIB)
    assert get_waiting(bench) == ("share:4GiB,30%", None)
    assert 0.1 < clock.monotonic_s() - begin_s < 0.2


def test_no_report_is_waited_for_where_the_worker_has_said_it_or_nothing_is_in_the_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = bench.service.parts.clock
    begin_s, set_now = clock.monotonic_s(), bench.channels.set_share
    change(bench, memory_bytes=9 * GIB)
    use(bench, 3 * GIB)

    def take_first(*words: Any) -> None:
        use(bench, 5 * GIB)
        set_now(*words)

    monkeypatch.setattr(bench.channels, "set_share", take_first)
    change(bench, memory_bytes=4 * GIB, at_exit=True)
    assert get_waiting(bench) == ("share:9GiB,30%", 4 * GIB)
    assert clock.monotonic_s() == begin_s
