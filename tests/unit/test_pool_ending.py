"""Leases that end while something uses them: what the command hears, and what the host ends by itself."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.pool_host import PoolHost, choose_machine
from tests.unit.test_pool_attach import SHARE, attach
from tests.unit.test_pool_claims import await_true
from vgpumgr.app.operations.claims import list_over, read_notice
from vgpumgr.cli.notice import LeaseWatch
from vgpumgr.errors import RouteNotFoundError
from vgpumgr.host.clock import SleeplessClock
from vgpumgr.host.foreground import run_in_foreground
from vgpumgr.model.attachment import GRACE_S
from vgpumgr.pool.control.records import put
from vgpumgr.pool.control.times import EndRecord
from vgpumgr.pool.membership import open_pool, read_seen, write_seen
from vgpumgr.pool.store.interface import Transaction

WHY = "it is preempted by claim urgent, of priority 9"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolHost:
    """A host with one GPU, in a pool of its own, and a VM by claim train."""
    choose_machine(tmp_path / "a", monkeypatch)
    host = PoolHost(tmp_path, [make_gpu(A100, 0, None)])
    host.claim("train", SHARE)
    attach(host, claim="train")
    host.round()
    return host


def end_lease(host: PoolHost, *, now: bool = True) -> None:
    """As a controller writes it."""
    lease = host.view().leases["a/train"]
    changes = [put(EndRecord("train", "a", WHY))]
    changes += [put(replace(lease, is_ending=True))] if now else []
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), tuple(changes)))
    host.round()


def let_pass(host: PoolHost, duration_s: float) -> None:
    """The lease is to end since then; a round of the host keeps that."""
    seen = read_seen(host.machine)
    assert seen is not None
    since_s = SleeplessClock().monotonic_s() - duration_s
    leases = tuple(replace(one, ending_since_s=since_s) for one in seen.leases)
    write_seen(host.machine, replace(seen, leases=leases))
    host.round()


def test_the_host_ends_what_is_left_after_the_grace(host: PoolHost) -> None:
    assert read_notice(host.parts, "train").notice is None
    end_lease(host, now=False)
    found = read_notice(host.parts, "train")
    assert (found.notice, found.ending, found.grace_s) == (WHY, False, GRACE_S)
    assert host.ask("show", "train")["lease"]["notice"] == WHY
    end_lease(host)
    assert read_notice(host.parts, "train").ending
    # within the grace nothing is ended, and the lease stays as long as it is used
    let_pass(host, GRACE_S - 10)
    assert not any("freed" in text for text, _ in host.recover())
    assert "a/train" in host.view().leases
    let_pass(host, GRACE_S + 1)
    texts = [text for text, done in host.recover() if done]
    assert any(f"the lease of claim train ends: {WHY}" in text for text in texts), texts
    assert host.bench.store.list_attachments() == ()
    for _ in range(2):
        host.round()
    assert host.view().uses == {}
    assert not any(lease.is_ending for lease in host.view().leases.values())


def test_a_boot_begins_the_clock_anew(host: PoolHost) -> None:
    end_lease(host)
    records = host.bench.store.list_attachments()
    assert list_over(host.parts, records) == []
    let_pass(host, -1000)
    assert len(list_over(host.parts, records)) == 1


class Host:
    """What ``read_notice`` answers, as the test sets it."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {"notice": None, "ending": False, "grace_s": 0.3}
        self.asked = 0

    @contextmanager
    def open(self) -> Iterator[Host]:
        yield self

    def call(self, operation: str, **params: Any) -> Mapping[str, Any]:
        assert (operation, params) == ("read_notice", {"claim": "train"})
        self.asked += 1
        return self.found


def test_a_command_hears_that_its_lease_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets SIGTERM; one that goes on all the same gets SIGKILL after the grace."""
    monkeypatch.setattr("vgpumgr.cli.notice._ASK_S", 0.01)
    host, said = Host(), list[str]()
    watch = LeaseWatch("train", host.open, said.append)  # type: ignore[arg-type]
    watch.start()
    await_true(lambda: host.asked > 0)
    assert (watch.ask(), said) == (None, [])
    host.found = {**host.found, "notice": "its time ends at 12:00"}
    await_true(lambda: bool(said))
    assert watch.ask() is None
    ready = tmp_path / "ready"
    script = (
        f"trap 'echo heard > {tmp_path}/heard' TERM; touch {ready}; while :; do sleep 0.05; done"
    )

    def ask() -> signal.Signals | None:
        if ready.exists():
            host.found = {**host.found, "ending": True}
        return watch.ask()

    code = run_in_foreground("/bin/sh", ["sh", "-c", script], dict(os.environ), ask)
    watch.stop()
    assert code == 128 + signal.SIGKILL
    assert (tmp_path / "heard").read_text() == "heard\n"
    assert said[0] == "the lease of claim train ends: its time ends at 12:00"
    assert said[1].endswith("the command gets SIGTERM now, and SIGKILL in 0.3 s")
    assert len(said) == 2


def test_a_daemon_of_before_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpumgr.cli.notice._ASK_S", 0.01)
    asked: list[str] = []

    class Old(Host):
        def call(self, operation: str, **_params: Any) -> Mapping[str, Any]:
            asked.append(operation)
            raise RouteNotFoundError("no such route")

    watch = LeaseWatch("train", Old().open, lambda _text: None)  # type: ignore[arg-type]
    watch.start()
    watch._thread.join(10)
    assert (asked, watch.ask()) == (["read_notice"], None)


def test_a_file_of_the_version_before_is_read(host: PoolHost) -> None:
    path = host.machine.state_dir / "pool-seen.json"
    data = json.loads(path.read_text())
    for lease in data["leases"]:
        del lease["notice"], lease["ending_since_s"]
    path.write_text(json.dumps(data))
    assert read_notice(host.parts, "train").notice is None
