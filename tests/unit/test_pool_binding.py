"""Claims that bind late: a lease while a command runs by them, or from ``claim bind`` to ``claim release``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.cli import Cli
from tests.support.pool_host import PoolHost, choose_machine
from tests.unit.test_pool_attach import SHARE, attach, refuse
from tests.unit.test_pool_claims import await_true, make_pool, ok, refused, serving
from tests.unit.test_pool_claims import cli as cli
from tests.unit.test_pool_tenants import make_store, run, share, write
from vgpumgr.app.application import Application
from vgpumgr.app.operations.runs import bind_claim
from vgpumgr.errors import (
    ClaimInUseError,
    ClaimNotGrantedError,
    ClaimUnusableError,
    DaemonNotRunningError,
    PoolStoreError,
    RunnerGoneError,
    VgpumgrError,
)
from vgpumgr.pool.control.records import HostRecord, View, WantRecord, alive_key, put, want_key
from vgpumgr.pool.membership import Pool, open_pool
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.store.interface import Delete, Transaction


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolHost:
    """A host with one GPU, in a pool of its own."""
    choose_machine(tmp_path / "a", monkeypatch)
    return PoolHost(tmp_path, [make_gpu(A100, 0, None)])


@contextmanager
def process() -> Iterator[int]:
    """One that runs until the end of the block."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield child.pid
    finally:
        child.communicate(b"\n")


def state(host: PoolHost, name: str) -> str:
    return str(host.ask("show", name)["state"])


def test_a_lease_begins_and_ends_with_what_wants_it(host: PoolHost) -> None:
    host.claim("one", "whole", late=True)
    host.claim("two", "whole", late=True)
    assert (state(host, "one"), state(host, "two")) == ("idle", "idle")
    assert host.view().leases == {}
    error = refuse(ClaimNotGrantedError, lambda: attach(host, claim="one"))
    assert error.hint == "vgpumgr claim bind one"
    assert host.ask("bind", "one")["state"] == "granted"
    waits = host.ask("bind", "two")
    assert (waits["state"], waits["place"]) == ("waiting", 1)
    assert "all are in use" in waits["why"]
    attach(host, claim="one")
    refuse(ClaimInUseError, lambda: host.ask("release", "one"))
    host.service.detach("vm01")
    for _ in range(3):
        host.round()
    assert (state(host, "one"), state(host, "two")) == ("idle", "granted")
    assert host.ask("show", "one")["why"] is None
    host.ask("release", "two")
    for _ in range(2):
        host.round()
    assert (state(host, "two"), host.view().leases, host.view().wants) == ("idle", {}, {})


def test_a_process_that_has_ended_wants_nothing(host: PoolHost) -> None:
    host.claim("one", "whole", late=True)
    with process() as pid:
        found = bind_claim(host.parts, "one", pid)
        assert (found.state, found.binding, found.answered) == ("waiting", "late", False)
        host.round()
        found = bind_claim(host.parts, "one", pid)
        assert (found.state, found.why, found.answered) == ("granted", None, True)
        # another one has it: both name it
        error = refuse(ClaimInUseError, lambda: bind_claim(host.parts, "one", os.getpid()))
        assert error.held_by == (f"process {pid} on host a",)
        assert bind_claim(host.parts, "one", pid).state == "granted"
        host.round()
        assert state(host, "one") == "granted"
    with process() as pid:  # no round since the first one has ended
        assert bind_claim(host.parts, "one", pid).state == "granted"
        attach(host, claim="one")
    with process() as pid:
        refuse(ClaimInUseError, lambda: bind_claim(host.parts, "one", pid))
    host.service.detach("vm01")
    for _ in range(2):
        host.round()
    assert (state(host, "one"), host.view().wants) == ("idle", {})
    refuse(RunnerGoneError, lambda: bind_claim(host.parts, "one", pid))


def test_a_lease_that_still_ends_is_not_the_next_ones(host: PoolHost) -> None:
    """A command right after another one, by the same claim: the host has not removed the first lease yet."""
    host.claim("one", "whole", late=True)
    with process() as first:
        bind_claim(host.parts, "one", first)
        host.round()
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Delete(want_key("one")),)))
        pool.follow_up(lambda view: view.leases["a/one"].is_ending)
    with process() as second:
        found = bind_claim(host.parts, "one", second)
        assert (found.state, found.answered) == ("waiting", False)
        error = refuse(ClaimNotGrantedError, lambda: attach(host, claim="one"))
        assert str(error.why).startswith("it waits")
        for _ in range(3):
            host.round()
        assert bind_claim(host.parts, "one", second).state == "granted"
        attach(host, claim="one")


def test_the_number_of_a_process_alone_is_not_the_process(host: PoolHost) -> None:
    """One of another boot had it: the entry is written anew, and not removed with that one."""
    host.claim("one", "whole", late=True)
    with process() as pid:
        bind_claim(host.parts, "one", pid)
        want = host.view().wants["one"]
        with open_pool(None) as pool:
            older = put(replace(want, boot="before", start_ticks=1))
            pool.store.transact(Transaction((), (older,)))
        bind_claim(host.parts, "one", pid)
        host.round()
        assert host.view().wants["one"] == want


class Answers:
    """A backend that answers ``bind_claim`` so, one after the other."""

    def __init__(self, *answers: dict[str, Any] | VgpumgrError) -> None:
        self._answers = list(answers)

    def call(self, operation: str, **_: object) -> dict[str, Any]:
        assert operation == "bind_claim"
        answer = self._answers.pop(0)
        if isinstance(answer, VgpumgrError):
            raise answer
        return answer


WAITS = {"state": "waiting", "binding": "late", "answered": True, "place": 1, "why": "in use"}
GRANTED = {**WAITS, "state": "granted", "place": None, "why": None}


def wait(*answers: dict[str, Any] | VgpumgrError, wait_s: float | None = None) -> list[str]:
    """What ``vgpumgr run`` says while it waits."""
    from vgpumgr.cli.run import _Runner

    said: list[str] = []
    session: Any = SimpleNamespace(streams=SimpleNamespace(note=said.append))
    runner = _Runner(session, {"claim": "one", "pid": 1}, wait_s)
    backend: Any = Answers(*answers)
    runner._await_lease(backend)
    assert backend._answers == []
    return said


def test_who_waits_outlives_a_store_and_a_daemon_that_do_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vgpumgr.cli.run._ASK_LATER_S", 0.01)
    away = DaemonNotRunningError("no daemon runs")
    silent = PoolStoreError("the pool's store does not answer")
    assert wait(WAITS, silent, silent, away, WAITS, GRANTED) == [
        "claim one waits, place 1: in use",
        "claim one waits: the pool's store does not answer",
        "claim one waits: no daemon runs",
        "claim one waits, place 1: in use",
    ]
    for error in (silent, away):  # at the beginning it is a refusal, and after the time too
        with pytest.raises(type(error)):
            wait(error)
        with pytest.raises(type(error)):
            wait(WAITS, error, error, wait_s=0.02)
    ends = {**GRANTED, "state": "ending"}
    assert wait(WAITS, ends) == ["claim one waits, place 1: in use"]


def test_claim_wait_outlives_a_store_that_does_not_answer(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("one", "whole")
    host.claim("two", "whole")
    said: list[str] = []
    with open_pool(None) as pool:
        operations = PoolOperations(pool)
        show = operations.show
        answers: list[Any] = [show, show, None, None, show]

        def answer(name: str) -> Any:
            if (act := answers.pop(0)) is None:
                raise PoolStoreError("the pool's store does not answer")
            return act(name)

        monkeypatch.setattr(operations, "show", answer)
        monkeypatch.setattr("vgpumgr.pool.operations._WAIT_S", 0.01)
        with pytest.raises(IndexError):  # it would wait on
            operations.wait("two", None, said.append)
    assert [("does not answer" in text) for text in said] == [False, True, False]


@pytest.mark.parametrize("other", [{"start_ticks": 1}, {"boot": "another"}])
def test_a_process_of_the_same_number_is_another_one(host: PoolHost, other: dict[str, Any]) -> None:
    host.claim("one", "whole", late=True)
    with process() as pid:
        bind_claim(host.parts, "one", pid)
        want = host.view().wants["one"]
        with open_pool(None) as pool:
            pool.store.transact(Transaction((), (put(replace(want, **other)),)))
        host.round()
        assert host.view().wants == {}


def test_a_command_does_not_wait_for_what_it_cannot_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_machine(tmp_path / "a", monkeypatch)
    host = PoolHost(tmp_path, [make_gpu(A100, 0, None), make_gpu(A100, 1, None)])
    host.claim("two", SHARE, gpus=2, late=True)
    host.claim("moves", SHARE, if_lost="move")
    for name in ("two", "moves"):
        with process() as pid:
            refuse(ClaimUnusableError, lambda: bind_claim(host.parts, name, pid))  # noqa: B023
    assert host.view().wants == {}


def test_what_is_attached_keeps_the_lease_after_its_process(host: PoolHost) -> None:
    """As a VM that a command attached: it is the attachment that uses the claim."""
    host.claim("one", SHARE, late=True)
    with process() as pid:
        bind_claim(host.parts, "one", pid)
        host.round()
        attach(host, claim="one")
    for _ in range(3):
        host.round()
    assert state(host, "one") == "granted"
    assert not host.view().leases["a/one"].is_ending
    host.service.detach("vm01")
    for _ in range(2):
        host.round()
    assert (state(host, "one"), host.view().leases) == ("idle", {})


def test_of_several_gpus_the_last_one_ends_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_machine(tmp_path / "a", monkeypatch)
    host = PoolHost(tmp_path, [make_gpu(A100, 0, None), make_gpu(A100, 1, None)])
    host.claim("one", SHARE, gpus=2, late=True)
    host.ask("bind", "one")
    first, second = attach(host, claim="one").attachments
    host.service.detach("vm01", attachment=first.id)
    host.round()
    assert state(host, "one") == "granted"
    assert not host.view().leases["a/one"].is_ending
    host.service.detach("vm01", attachment=second.id)
    for _ in range(2):
        host.round()
    assert state(host, "one") == "idle"


def test_a_lease_is_not_held_for_what_has_gone_meanwhile(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and its writing: the store compares."""
    host.claim("one", SHARE, late=True)
    host.ask("bind", "one")
    change = Pool.change

    def lose(pool: Pool, compares: Any, changes: Any, refusal: Any) -> None:
        monkeypatch.setattr(Pool, "change", change)
        pool.store.transact(Transaction((), (Delete(want_key("one")),)))
        change(pool, compares, changes, refusal)

    monkeypatch.setattr(Pool, "change", lose)
    with pytest.raises(VgpumgrError, match="claim one"):
        attach(host, claim="one")
    assert host.view().uses == {}


def test_a_lease_that_another_host_wants_is_not_used_here(host: PoolHost) -> None:
    host.claim("one", SHARE, late=True)
    host.ask("bind", "one")
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (put(WantRecord("one", "b")),)))
    error = refuse(ClaimNotGrantedError, lambda: attach(host, claim="one"))
    assert error.hint == "vgpumgr claim bind one"


def test_a_grant_compares_what_wants_it() -> None:
    from vgpumgr.pool.control.controller import Controller
    from vgpumgr.pool.control.records import Timing

    store = make_store(hosts=1)
    want = WantRecord("late", "h0", 1)
    write(store, put(replace(share("late"), late=True)), put(want))
    view = View(store.range("p/"))
    (grant,) = list(Controller("c", Timing(), lambda: 0.0).plan(view))
    write(store, Delete(want.key))
    assert store.transact(grant) is None


def test_it_gets_gpus_of_the_host_that_wants_it() -> None:
    store = make_store(hosts=3)
    for number in range(3):
        write(store, put(replace(share(f"c{number}", percent=90), late=True)))
    write(store, *(put(WantRecord(f"c{number}", "h1", 1)) for number in range(3)))
    view = run(store)
    assert {lease.host for lease in view.leases.values()} == {"h1"}
    assert len(view.leases) == 2
    (left,) = [claim for claim in view.claims.values() if claim.host is None]
    assert left.why.startswith("all are in use: ")
    # its host is not there
    write(store, Delete(alive_key("h1")))
    assert run(store).claims[left.name].why == "it asks for host h1, and no such host is ready"
    # another host wants one that is granted: the lease of before ends first
    held = next(iter(view.leases.values())).claim
    write(store, put(WantRecord(held, "h2", 1)))
    assert run(store).leases[f"h1/{held}"].is_ending
    write(store, Delete(f"p/lease/h1/{held}"))
    assert run(store).claims[held].host == "h2"


def test_a_claim_that_is_deleted_leaves_nothing(host: PoolHost) -> None:
    host.claim("one", "whole", late=True)
    host.ask("bind", "one")
    host.ask("delete", "one")
    for _ in range(3):
        host.round()
    view = host.view()
    assert (view.claims, view.leases, view.wants) == ({}, {}, {})


def test_by_command(cli: Cli) -> None:
    make_pool(cli)
    with serving():
        words = ("claim", "create", "one", "--profile", "whole", "--binding", "late", "-o", "json")
        found = ok(cli.run(*words))["claim"]
        assert (found["state"], found["binding"], found["wanted_by"]) == ("idle", "late", None)
        assert ok(cli.run("pool", "status", "-o", "json"))["claims"]["idle"] == 1
        assert cli.run("claim", "wait", "one").code == 8
        bound = ok(cli.run("claim", "bind", "one", "-o", "json"))["claim"]
        assert (bound["lease"]["host"], bound["wanted_by"]) == ("a", {"host": "a", "pid": None})
        (row,) = ok(cli.run("pool", "bindings", "-o", "json"))["bindings"]
        assert (row["host"], row["name"], row["used_by"]) == ("a", "one", None)
        table = cli.run("pool", "bindings", terminal=True).out.splitlines()
        assert table[0].split() == [
            "HOST", "GPU", "NAME", "TENANT", "GPUS", "MEMORY", "STATE", "USED_BY", "MEMORY_USED",
            "GPU_TIME", "PROCESSES",
        ]  # fmt: skip
        ok(cli.run("claim", "release", "one", "-o", "json"))
        ok(cli.run("claim", "release", "one", "-o", "json"))
        show = ("claim", "show", "one", "-o", "json")
        await_true(lambda: ok(cli.run(*show))["claim"]["state"] == "idle")
        ok(cli.run("claim", "create", "two", "--profile", "whole", "-o", "json"))
        assert ok(cli.run("claim", "bind", "two", "-o", "json"))["claim"]["state"] == "granted"
    refused(cli.run("claim", "release", "two", "-o", "json"), "VG100", 2)
    refused(cli.run("claim", "bind", "none", "-o", "json"), "VG383", 5)
    refused(cli.run("claim", "release", "none", "-o", "json"), "VG383", 5)


def test_on_a_host_that_it_does_not_ask_for(cli: Cli) -> None:
    make_pool(cli)
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (put(HostRecord("b", "other")),)))
        gpu = pool.view().gpus["a/0000"]
        other = put(replace(gpu, host="b"))
        pool.store.transact(Transaction((), (other,)))
    words = ("--profile", "whole", "--binding", "late", "--where", "b", "-o", "json")
    ok(cli.run("claim", "create", "one", *words))
    error = refused(cli.run("claim", "bind", "one", "-o", "json"), "VG388", 6)
    assert error["why"] == "it may be on b, and this is host a"


def test_an_application_without_a_pool_binds_nothing(host: PoolHost) -> None:
    application = Application(host.machine, host.bench.service.parts)
    refuse(VgpumgrError, lambda: application.bind_claim("one", os.getpid()))
