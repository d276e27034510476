"""``attach --claim`` where something fails: what has a device keeps its claim, and nothing waits for long."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.fake_host import GPU, make_functions
from tests.support.pool_host import PoolHost, choose_machine
from tests.unit.test_pool_attach import SHARE, attach, refuse, stop_store
from vgpumgr.app.application import Application
from vgpumgr.app.operations.claims import recover_claims, recover_uses
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.errors import (
    ClaimInUseError,
    GpuLeasedError,
    LibvirtDownError,
    LockHeldError,
    PoolMemberError,
    PoolOutcomeError,
    PoolStoreError,
    RollbackIncompleteError,
    RolledBackError,
    VgpumgrError,
)
from vgpumgr.host.lock import lock_file
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.request import AttachRequest
from vgpumgr.pool.control.records import put
from vgpumgr.pool.membership import (
    LOCK_NAME,
    open_pool,
    read_membership,
    read_seen,
    write_membership,
    write_seen,
)
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.store.gateway import Endpoints
from vgpumgr.pool.store.interface import Delete, Put, Transaction
from vgpumgr.pool.store.sqlite import SqliteStore
from vgpumgr.server import pool_host
from vgpumgr.state.leases import ClaimUser, SeenPool
from vgpumgr.steps.claim import HoldClaim
from vgpumgr.steps.domain import AttachDevices, RemoveNote, WriteNote


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolHost:
    """A host with two GPUs, in a pool of its own."""
    choose_machine(tmp_path / "a", monkeypatch)
    return PoolHost(tmp_path, [make_gpu(A100, 0, None), make_gpu(A100, 1, None)])


def fail_libvirt(*_: object) -> None:
    raise LibvirtDownError("libvirt is down")


def list_aliases(host: PoolHost) -> tuple[str, ...]:
    config = host.parts.hypervisor.read_vm("vm01").config
    return config.own_aliases() if config else ()


def write(*changes: Put | Delete) -> None:
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), changes))


def use_etcd(host: PoolHost, *urls: str, **more: Any) -> None:
    """The file says that the pool is there."""
    membership = read_membership(host.machine)
    assert membership is not None
    write_membership(host.machine, replace(membership, etcd=Endpoints(urls, **more)))


def use_file(host: PoolHost) -> None:
    membership = read_membership(host.machine)
    assert membership is not None
    write_membership(host.machine, replace(membership, etcd=None))


def test_a_claim_stays_in_use_while_a_rollback_is_incomplete(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    with monkeypatch.context() as patch:
        patch.setattr(WriteNote, "do", fail_libvirt)
        patch.setattr(AttachDevices, "undo", fail_libvirt)
        refuse(RollbackIncompleteError, lambda: attach(host))
    (record,) = host.bench.store.list_attachments()
    assert list_aliases(host)
    assert host.view().uses["a/train"].attachment == record.id
    refuse(ClaimInUseError, lambda: host.ask("delete", "train"))
    host.service.detach("vm01")
    assert (list_aliases(host), host.view().uses) == ((), {})


@pytest.mark.parametrize("has_left", [False, True])
def test_a_claim_stays_in_use_while_a_device_of_the_host_is_left(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch, has_left: bool
) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    monkeypatch.setattr("vgpumgr.steps.claim.has_left", lambda _context: has_left)
    HoldClaim.of_record(record).undo(host.parts.make_context(record))
    assert ("a/train" in host.view().uses) == has_left


def test_a_host_that_is_not_heard_yet_keeps_the_leases_that_it_knows(host: PoolHost) -> None:
    """The first rounds after a reboot: the entry of the boot before is still there."""
    leased = host.claim("train", SHARE)["lease"]["gpu_uuids"][0]
    attach(host)
    with open_pool(None) as pool:
        entry = pool.store.get("p/alive/a")
        assert entry is not None
        machine = entry.value.partition(" ")[0]
        lease = pool.store.grant_lease(600)
        pool.store.transact(Transaction((), (Put("p/alive/a", f"{machine} otherboot", lease),)))
    host.restart()
    host.round()
    seen = read_seen(host.machine)
    assert seen is not None
    assert "waits until what it was before has ended" in seen.text
    assert [one.claim for one in seen.leases] == ["train"]
    assert host.list_drift() == []
    local = AttachRequest("vm02", "share:60GiB,60%", gpu=leased, hello_timeout_s=0)
    refuse(GpuLeasedError, lambda: host.service.attach(local))


def test_a_file_of_tls_that_is_gone_blocks_no_detach(host: PoolHost, tmp_path: Path) -> None:
    host.claim("train", SHARE)
    attach(host)
    use_etcd(host, "https://127.0.0.1:1", ca=str(tmp_path / "gone.crt"))
    notes = " ".join(host.service.detach("vm01").notes)
    assert "gone.crt" in notes
    assert "vgpumgr recover releases it" in notes
    assert host.bench.store.list_attachments() == ()
    use_file(host)
    assert [done for _, done in host.recover()] == [True]
    assert host.view().uses == {}


def test_who_only_asks_does_not_wait_for_a_store_that_is_known_not_to_answer(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    asked = list[str]()
    with lock_file(host.machine.run_dir / LOCK_NAME, 0, what="pool serve"):
        stop_store(monkeypatch)
        host.round()
        monkeypatch.setattr(SqliteStore, "range", lambda _, prefix: asked.append(prefix))
        application = Application(host.machine, host.parts)
        for act in (lambda: application.why(claim="train"), lambda: attach(host)):
            refuse(PoolStoreError, act)
    assert asked == []


def test_reads_wait_for_a_member_of_etcd_a_shorter_time_than_what_is_written(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    assert record.claim is not None
    part, waited = record.claim, list[float]()

    def open_store(endpoints: Endpoints, _clock: object) -> None:
        waited.append(endpoints.timeout_s)
        raise PoolStoreError("the pool's store does not answer")

    monkeypatch.setattr("vgpumgr.pool.membership.EtcdStore", open_store)
    use_etcd(host, "http://127.0.0.1:1", timeout_s=5)
    asks: tuple[Callable[[], object], ...] = (
        lambda: host.leases.find("train"),
        lambda: host.leases.is_held(part, record.id),
        host.leases.list_uses,
        lambda: host.leases.release(part, record.id),
        lambda: host.leases.hold(part, None),  # type: ignore[arg-type]
    )
    for ask in asks:
        refuse(PoolStoreError, ask)
    assert waited == [2, 2, 2, 2, 5]


def test_of_several_that_are_detached_one_waits_for_a_store_that_does_not_answer(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for claim in ("train", "more"):
        host.claim(claim, "share:4GiB,20%")
        attach(host, claim=claim, add=claim == "more")
    asked = list[str]()

    def fail(_: object, key: str) -> None:
        asked.append(key)
        raise PoolStoreError("the pool's store does not answer", cause="it is stopped")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "get", fail)
        notes = host.service.detach("vm01", every=True).notes
    assert len(asked) == 1
    assert sum("vgpumgr recover releases it" in note for note in notes) == 2
    # a recovery asks it anew
    assert [done for _, done in host.recover()] == [True, True]
    assert host.view().uses == {}


def test_a_store_is_asked_again_after_a_while(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    assert record.claim is not None
    part = record.claim
    with monkeypatch.context() as patch:
        stop_store(patch)
        refuse(PoolStoreError, lambda: host.leases.release(part, record.id))
    refuse(PoolStoreError, lambda: host.leases.release(part, record.id))
    monkeypatch.setattr("vgpumgr.pool.leases._PAUSE_S", 0.0)
    host.leases.release(part, record.id)
    assert host.view().uses == {}


def test_a_gpu_that_is_leased_and_bound_away_is_given_to_no_vm_without_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_machine(tmp_path / "a", monkeypatch)
    gpu = replace(make_gpu(A100, 0, None), pci=GPU)
    host = PoolHost(tmp_path, [gpu], functions=make_functions())
    host.claim("all", "whole")
    PassthroughService(host.parts).bind(selector=str(GPU), persist=True, confirmed=True)
    host.bench.nvml.gpus.clear()
    assert host.parts.read_inventory().gpus == ()
    named = AttachRequest("vm02", "passthrough", gpu=str(GPU), hello_timeout_s=0)
    error = refuse(GpuLeasedError, lambda: host.service.attach(named))
    assert error.held_by == ("claim all",)
    assert host.bench.store.list_attachments() == ()


def test_an_answer_that_is_lost_before_the_store_stops_is_said(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    original = SqliteStore.transact
    with monkeypatch.context() as patch:

        def transact(store: SqliteStore, transaction: Transaction) -> int | None:
            revision = original(store, transaction)
            if any("/use/" in change.key for change in transaction.changes):
                stop_store(patch)
                raise PoolOutcomeError("no answer")
            return revision

        patch.setattr(SqliteStore, "transact", transact)
        error = refuse(RolledBackError, lambda: attach(host))
    assert "claim train may still count as in use" in str(error.why)
    assert "vgpumgr recover releases it" in str(error.why)
    assert host.bench.store.list_attachments() == ()
    error = refuse(ClaimInUseError, lambda: host.ask("delete", "train"))
    dry = host.recovery.plan(Policy()).actions
    assert [(one.text, one.done) for one in dry] == host.recover()
    assert host.view().uses == {}
    attach(host)
    assert "vgpumgr recover there" in str(refuse(ClaimInUseError, lambda: attach(host, "vm02")).why)


def test_a_dry_run_says_what_becomes_of_claims_and_changes_nothing(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()

    def plan() -> list[str]:
        return [one.text for one in host.recovery.plan(Policy()).actions]

    assert plan() == []
    write(Delete("p/use/a/train"))
    (text,) = plan()
    assert text == 'holds it for vm "vm01" again'
    assert host.view().uses == {}
    host.recover()
    # a record that is rebuilt keeps its claim
    host.bench.store.delete_attachment(record.id)
    assert not any("not repaired" in text or "released" in text for text in plan())
    # one that is half attached is undone first
    host.bench.store.save_attachment(replace(record, state=AttachmentState.ATTACHING))
    write(Delete("p/use/a/train"))
    assert not any("holds it" in text for text in plan())


def test_a_host_that_was_removed_has_lost_its_leases(host: PoolHost) -> None:
    leased = host.claim("train", SHARE)["lease"]["gpu_uuids"][0]
    attach(host)
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Delete("p/alive/a"),)))
        PoolOperations(pool).remove_host("a")
        refuse(PoolMemberError, lambda: pool.serve(lambda: False, lambda _: None))
    assert host.list_drift() == ["claim-lost"]
    seen = read_seen(host.machine)
    assert seen is not None
    assert (seen.is_removed, seen.is_answering, seen.leases) == (True, False, ())
    # as the daemon says it
    server = pool_host.PoolServer(host.machine, host.parts.clock, lambda _: None)
    server._fail(PoolMemberError("host a of this machine is not in the pool"))
    assert host.list_drift() == ["claim-lost"]
    # its GPUs are no pool's
    local = AttachRequest("vm02", SHARE, gpu=leased, hello_timeout_s=0)
    assert host.service.attach(local, dry_run=True).dry_run


def test_a_host_that_has_another_name_has_lost_its_leases(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    membership = read_membership(host.machine)
    assert membership is not None
    write_membership(host.machine, replace(membership, host="b"))
    write_seen(host.machine, SeenPool("b", "is heard", 0.0, is_answering=True))
    (drift,) = host.recovery.diff().drift
    assert drift.kind == "claim-lost"
    assert "on host a of the pool, and this is host b now" in drift.text


def test_the_store_has_the_name_of_a_vm_that_was_renamed(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    host.bench.store.save_attachment(replace(record, vm_name="before"))
    host.recover()
    assert host.ask("show", "train")["used_by"]["name"] == "vm01"
    use = host.view().uses["a/train"]
    write(put(replace(use, name="before")))
    assert host.recover() == [('the pool\'s store names vm "vm01" now, and not vm before', True)]
    used = host.ask("show", "train")["used_by"]
    assert (used["name"], used["attachment"]) == ("vm01", record.id)
    assert host.recover() == []


def test_devices_without_a_record_and_without_metadata_keep_their_claim(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    vm = host.parts.hypervisor.read_vm("vm01")
    RemoveNote(vm.name, vm.uuid, record.id).do(host.parts.make_context(record))
    host.bench.store.delete_attachment(record.id)
    host.parts.channels.stop(record.id)
    (kept,) = recover_claims(host.parts)
    assert (kept.done, "not recorded" in kept.text) == (False, True)
    assert list_aliases(host)
    assert "a/train" in host.view().uses
    host.service.detach("vm01")  # only its devices are taken away
    assert [done for _, done in host.recover()] == [True]
    assert (list_aliases(host), host.view().uses) == ((), {})


def test_a_run_that_is_not_recorded_and_has_its_channel_keeps_its_claim(host: PoolHost) -> None:
    host.claim("train", SHARE)
    application = Application(host.machine, host.parts)
    started = application.start_run(name="job", command="true", pid=os.getpid(), claim="train")
    assert started.attachment is not None
    host.bench.store.delete_attachment(started.attachment.id)
    (kept,) = recover_claims(host.parts)
    assert (kept.done, "has a channel" in kept.text) == (False, True)
    assert "a/train" in host.view().uses
    host.parts.channels.stop(started.attachment.id)
    assert [one.done for one in recover_claims(host.parts)] == [True]
    assert host.view().uses == {}


def test_a_detach_of_what_is_not_recorded_releases_its_claim(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    host.bench.store.delete_attachment(record.id)
    for journal in host.machine.state_dir.glob("journal*"):
        journal.unlink()
    detached = host.service.detach("vm01")
    kinds = [step.kind for step in detached.plan.steps]
    assert kinds[-2:] == ["claim.release", "domain.note.remove"]
    assert (list_aliases(host), host.view().uses) == ((), {})
    assert host.ask("delete", "train") is not None


def make_context(
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Any],
    heard: list[Any],
    audit: list[Any] | None = None,
) -> Any:
    """A daemon whose rounds in the pool say what the test says, by what ``heard`` gets; ``run`` makes its changes."""

    class Serving:
        def __init__(
            self, _machine: object, _clock: object, report: Callable[[Any], None], _claims: object
        ) -> None:
            heard.append(report)

        def start(self) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(pool_host, "PoolServer", Serving)
    return SimpleNamespace(
        configuration=SimpleNamespace(settings=SimpleNamespace(pool=SimpleNamespace(serve=True))),
        cache=SimpleNamespace(forget=lambda: None),
        hub=SimpleNamespace(publish=lambda *_, **__: None),
        pools=SimpleNamespace(change=SimpleNamespace(run=run)),
        audit=SimpleNamespace(append=[].append if audit is None else audit.append),
        machine=None,
        clock=None,
    )


def test_the_daemon_compares_again_where_that_failed_and_after_each_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[Any] = []
    compared: list[VgpumgrError | None] = []
    results: list[VgpumgrError | None] = [LockHeldError("held"), LockHeldError("held"), None, None]

    async def run(_compare: object) -> None:
        compared.append(result := results.pop(0))
        if result is not None:
            raise result

    context = make_context(monkeypatch, run, heard)
    monkeypatch.setattr(pool_host, "RETRY_S", 0.0)
    answers = SeenPool("a", "leads the pool", 0.0, is_answering=True)

    async def turn() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def go() -> None:
        async with pool_host.serve_pool(context):
            heard[0](answers)
            await turn()
            assert [one is None for one in compared] == [False, False, True]
            heard[0](answers)
            await turn()
            assert len(compared) == 3
            # it did not serve meanwhile
            heard[0](PoolMemberError("does not serve"))
            heard[0](answers)
            await turn()
            assert len(compared) == 4

    asyncio.run(go())


def test_a_release_takes_nothing_from_another_attachment(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes late, or another one gets the claim between its reading and its writing."""
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    part = record.claim
    assert part is not None
    use = host.view().uses["a/train"]
    get = SqliteStore.get

    def get_and_change(store: SqliteStore, key: str) -> object:
        entry = get(store, key)
        monkeypatch.setattr(SqliteStore, "get", get)
        write(put(replace(use, name="vm02", attachment="other")))
        return entry

    monkeypatch.setattr(SqliteStore, "get", get_and_change)
    for _ in range(2):
        host.leases.release(part, record.id)
        assert host.view().uses["a/train"].attachment == "other"


def test_the_daemon_compares_each_minute_and_says_once_what_it_cannot_repair(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    attach(host)
    with open_pool(None) as pool:
        gone = tuple(Delete(f"p/{key}") for key in ("lease/a/train", "use/a/train", "claim/train"))
        pool.store.transact(Transaction((), gone))
    heard: list[Any] = []
    audit: list[Any] = []
    rounds: list[None] = []

    async def run(compare: Callable[[Any], None]) -> None:
        rounds.append(None)
        compare(SimpleNamespace(parts=host.parts))

    context = make_context(monkeypatch, run, heard, audit)
    monkeypatch.setattr(pool_host, "COMPARE_S", 0.01)

    async def go() -> None:
        async with pool_host.serve_pool(context):
            heard[0](SeenPool("a", "leads the pool", 0.0, is_answering=True))
            while len(rounds) < 4:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(go(), 30))
    (line,) = audit
    assert "not repaired" in line["actions"][0]["text"]


def test_a_comparison_without_an_answer_is_made_again(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon compares once the store answers again; where it does not answer after all, that is no result."""
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    host.service.detach("vm01")
    part = record.claim
    assert part is not None
    host.leases.hold(part, ClaimUser.of_record(record))  # what a detach without the store leaves
    with monkeypatch.context() as patch:
        patch.setattr(type(host.leases), "list_uses", _raise_store_error)
        with pytest.raises(PoolStoreError):
            recover_uses(host.parts)
    assert "a/train" in host.view().uses
    with monkeypatch.context() as patch:
        patch.setattr(type(host.leases), "release", _raise_store_error)
        with pytest.raises(PoolStoreError):
            recover_uses(host.parts)
    assert [one.done for one in recover_uses(host.parts)] == [True]
    assert host.view().uses == {}


def _raise_store_error(*_: object) -> NoReturn:
    raise PoolStoreError("the pool's store does not answer")


def test_a_hold_that_arrives_late_is_not_written(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is lost, and it is not there yet: what was refused to the user must not come true afterwards."""
    host.claim("train", SHARE)
    late: list[Transaction] = []
    transact = SqliteStore.transact

    def lose(store: SqliteStore, transaction: Transaction) -> int | None:
        if not late and any(change.key.startswith("p/use/") for change in transaction.changes):
            late.append(transaction)
            raise PoolOutcomeError("no answer")
        return transact(store, transaction)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "transact", lose)
        refuse(VgpumgrError, lambda: attach(host))
    with open_pool(None) as pool:
        assert pool.store.transact(late[0]) is None
    assert host.view().uses == {}
    attach(host)
