"""``attach --claim``: a VM gets what a claim's lease reserves on this host, one VM and no other, while it is leased."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.cli import Cli
from tests.support.etcd import Etcd
from tests.support.fake_host import GPU, make_functions
from tests.support.fake_nvml import FakeNvml
from tests.support.pool_host import PoolHost, choose_machine
from vgpumgr.app.application import Application
from vgpumgr.app.metrics import Collected, list_samples
from vgpumgr.app.metrics_source import MetricsSource
from vgpumgr.app.operations.claims import recover_claims
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.app.operations.shares import set_share
from vgpumgr.errors import (
    AlreadyAttachedError,
    ClaimInUseError,
    ClaimNotFoundError,
    ClaimNotGrantedError,
    ClaimUnusableError,
    GpuLeasedError,
    LibvirtDownError,
    PoolNotFoundError,
    PoolStoreError,
    RolledBackError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.lock import lock_file
from vgpumgr.model.request import AttachRequest
from vgpumgr.pool.control.records import put, use_key
from vgpumgr.pool.membership import LOCK_NAME, open_pool, write_seen
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.store.gateway import Endpoints
from vgpumgr.pool.store.interface import Delete, Transaction
from vgpumgr.state.leases import SeenPool

SHARE = "share:8GiB,30%"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolHost:
    """A host with two GPUs, in a pool of its own."""
    choose_machine(tmp_path / "a", monkeypatch)
    return PoolHost(tmp_path, [make_gpu(A100, 0, None), make_gpu(A100, 1, None)])


def attach(host: PoolHost, vm: str = "vm01", claim: str = "train", **more: Any) -> Any:
    return host.service.attach(AttachRequest(vm, claim=claim, hello_timeout_s=0, **more))


def refuse(kind: type[VgpumgrError], act: Callable[[], object]) -> VgpumgrError:
    with pytest.raises(kind) as caught:
        act()
    return caught.value


def stop_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not answer."""

    def fail(*_: object) -> None:
        raise PoolStoreError("the pool's store does not answer", cause="it is stopped")

    for name in ("get", "range", "transact"):
        monkeypatch.setattr(f"vgpumgr.pool.store.sqlite.SqliteStore.{name}", fail)


def test_a_vm_gets_what_the_lease_reserves_and_gives_it_back(host: PoolHost) -> None:
    granted = host.claim("train", SHARE)
    dry = host.service.attach(AttachRequest("vm01", claim="train"), dry_run=True)
    assert dry.plan.result["profile"] == SHARE
    assert host.view().uses == {}
    document = attach(host)
    (one,) = document.attachments
    assert (one.profile, one.claim, one.gpu) == (SHARE, "train", granted["lease"]["gpu_uuids"][0])
    kinds = [step.kind for step in document.plan.steps]
    assert kinds[:2] == ["attachment.record", "claim.hold"]
    shown = host.ask("show", "train")
    assert shown["used_by"] == {
        "host": "a", "kind": "vm", "name": "vm01", "uuid": one.vm_uuid, "attachment": one.id,
        "attachments": [one.id],
    }  # fmt: skip
    assert host.list_drift() == []
    detached = host.service.detach("vm01")
    assert [step.kind for step in detached.plan.steps][-2:] == [
        "claim.release",
        "attachment.forget",
    ]
    after = host.ask("show", "train")
    assert (after["used_by"], after["lease"]) == (None, shown["lease"])
    attach(host, "vm02")  # the lease is still there


def test_a_claim_in_use_is_neither_given_twice_nor_deleted_nor_resized(host: PoolHost) -> None:
    host.claim("train", SHARE)
    id_ = attach(host).attachments[0].id
    before = host.bench.snapshot()
    holder = f'vm "vm01" on host a (attachment {id_})'
    for act in (
        lambda: attach(host, "vm02"),
        lambda: host.ask("delete", "train"),
        lambda: host.ask("resize", "train", "share:4GiB,10%", None),
    ):
        error = refuse(ClaimInUseError, act)
        assert error.held_by == (holder,)
        assert f"--attachment {id_}" in str(error.hint)
    host.round()
    assert host.bench.snapshot() == before
    assert host.ask("show", "train")["state"] == "granted"
    host.service.detach("vm01")
    assert host.ask("resize", "train", "share:4GiB,10%", None)["lease"]["gpu_milli"] == 100
    assert host.ask("delete", "train")[0] is False  # its host has to end it
    host.round()
    assert host.view().leases == {}


def test_of_two_that_plan_with_one_claim_one_is_refused(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    original, second = host.leases.hold, list[str]()

    def hold(part: Any, user: Any) -> None:
        if not second:
            second.append("vm02")
            original(part, replace(user, name="vm02", uuid="other", attachment="other"))
        original(part, user)

    monkeypatch.setattr(host.leases, "hold", hold)
    before = host.bench.snapshot()
    error = refuse(RolledBackError, lambda: attach(host))
    assert 'vm "vm02" on host a (attachment other)' in error.held_by
    assert host.bench.snapshot() == before
    assert host.view().uses["a/train"].name == "vm02"


@pytest.mark.parametrize("change", ["delete", "resize", "end the lease"])
def test_a_claim_that_changes_between_plan_and_hold_is_refused(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    host.claim("train", SHARE)
    original = host.leases.hold

    def hold(part: Any, user: Any) -> None:
        if change == "delete":
            host.ask("delete", "train")
        elif change == "resize":
            host.ask("resize", "train", "share:16GiB,50%", None)
        else:
            with open_pool(None) as pool:
                pool.store.transact(Transaction((), (Delete("p/lease/a/train"),)))
        original(part, user)

    monkeypatch.setattr(host.leases, "hold", hold)
    before = host.bench.snapshot()
    error = refuse(RolledBackError, lambda: attach(host))
    assert "claim train" in str(error)
    assert host.bench.snapshot() == before
    assert host.view().uses == {}


def test_a_claim_that_changes_while_it_is_held_is_refused(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading and the writing of ``hold`` itself: the store compares."""
    host.claim("train", SHARE)
    original = "vgpumgr.pool.membership.Pool.change"
    from vgpumgr.pool.membership import Pool

    change = Pool.change

    def changing(pool: Pool, compares: Any, changes: Any, refusal: Any) -> None:
        monkeypatch.setattr(original, change)
        claim = pool.view().claims["train"]
        pool.store.transact(Transaction((), (put(replace(claim, is_ending=True)),)))
        change(pool, compares, changes, refusal)

    monkeypatch.setattr(original, changing)
    error = refuse(RolledBackError, lambda: attach(host))
    assert "changed at the same time" in str(error)
    assert host.view().uses == {}
    assert host.bench.store.list_attachments() == ()


@pytest.mark.parametrize(
    ("profile", "more", "kind", "says"),
    [
        (SHARE, {"if_lost": "move"}, ClaimUnusableError, "a VM cannot follow it"),
    ],
)
def test_claims_that_no_attachment_can_have(
    host: PoolHost, profile: str, more: dict[str, Any], kind: type[VgpumgrError], says: str
) -> None:
    host.claim("train", profile, **more)
    assert says in str(refuse(kind, lambda: attach(host)).why)


def test_claims_without_a_lease_that_fits_are_refused(host: PoolHost) -> None:
    refuse(ClaimNotFoundError, lambda: attach(host, claim="none"))
    host.claim("one", "whole")
    host.claim("two", "whole")
    host.claim("train", SHARE)
    error = refuse(ClaimNotGrantedError, lambda: attach(host))
    assert "all are in use" in str(error.why)
    host.ask("delete", "two")
    host.round()
    host.round()
    # a size that its host has no place for: it keeps what it has
    host.claim("other", "share:40GiB,50%")
    host.ask("resize", "train", "share:60GiB,60%", None)
    error = refuse(ClaimNotGrantedError, lambda: attach(host))
    assert "another size" in str(error.why)
    with open_pool(None) as pool:
        view = pool.view()
        claim, lease = view.claims["other"], view.leases["a/other"]
        moved = replace(lease, host="b")
        changes = (put(replace(claim, host="b")), put(moved), Delete(lease.key))
        pool.store.transact(Transaction((), changes))
    error = refuse(ClaimNotGrantedError, lambda: attach(host, claim="other"))
    assert "on host b, and this is host a" in str(error.why)
    assert host.bench.store.list_attachments() == ()


@pytest.mark.parametrize(
    "more", [{"profile": SHARE}, {"gpu": "0"}, {"count": 2}], ids=["profile", "gpu", "count"]
)
def test_options_that_contradict_a_claim(host: PoolHost, more: dict[str, Any]) -> None:
    host.claim("train", SHARE)
    assert "contradict" in str(refuse(UsageError, lambda: attach(host, **more)))
    refuse(UsageError, lambda: host.service.attach(AttachRequest("vm01")))


def test_a_host_refuses_an_older_token(host: PoolHost) -> None:
    """A store that went back to a backup says what is over."""
    host.claim("train", SHARE)
    before = host.view().leases["a/train"]
    host.ask("resize", "train", "share:16GiB,30%", None)
    host.round()
    path = host.machine.state_dir / "pool-seen.json"
    seen = path.read_text()
    with open_pool(None) as pool:
        claim = pool.view().claims["train"]
        pool.store.transact(
            Transaction((), (put(before), put(replace(claim, memory_bytes=8 << 30))))
        )
    path.write_text(seen.replace('"revision": ', '"revision": 9'))
    error = refuse(ClaimNotGrantedError, lambda: attach(host))
    assert "older than what this host has seen" in str(error.why)
    token = host.leases.read_seen().find_lease("train").token  # type: ignore[union-attr]
    path.write_text(seen.replace(f'"token": {token}', f'"token": {token + 1000}'))
    refuse(ClaimNotGrantedError, lambda: attach(host))
    path.write_text(seen)
    attach(host)


def test_a_whole_gpu_is_passed_through_where_it_has_an_iommu_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_machine(tmp_path / "a", monkeypatch)
    gpu = replace(make_gpu(A100, 0, None), pci=GPU)
    host = PoolHost(tmp_path, [gpu], functions=make_functions())
    host.claim("all", "whole")
    dry = host.service.attach(AttachRequest("vm02", claim="all"), dry_run=True)
    assert (dry.plan.result["profile"], dry.plan.result["backend"]) == ("passthrough",) * 2
    share = host.service.attach(AttachRequest("vm02", claim="all", backend="forward"), dry_run=True)
    assert share.plan.result["profile"] == "share:80GiB,100%"
    for profile in ("passthrough", "1g.10gb", "share:1/1"):
        local = AttachRequest("vm02", profile, gpu="0", hello_timeout_s=0)
        refuse(GpuLeasedError, lambda local=local: host.service.attach(local))  # type: ignore[misc]
    before = host.bench.snapshot()
    assert attach(host, "vm02", "all").attachments[0].backend == "passthrough"
    assert host.list_drift() == []
    host.service.detach("vm02")
    assert host.bench.snapshot() == before
    functions = host.bench.pci.functions
    functions[GPU] = replace(functions[GPU], group=None)
    dry = host.service.attach(AttachRequest("vm02", claim="all"), dry_run=True)
    assert dry.plan.result["profile"] == "share:80GiB,100%"
    attach(host, "vm02", "all", backend="forward")
    host.service.detach("vm02")
    assert host.view().uses == {}


def test_what_is_attached_without_a_claim_leaves_leased_gpus_alone(host: PoolHost) -> None:
    leased = host.claim("train", SHARE)["lease"]["gpu_indices"][0]
    request = AttachRequest("vm01", SHARE, hello_timeout_s=0)
    error = refuse(GpuLeasedError, lambda: host.service.attach(replace(request, gpu=str(leased))))
    assert error.held_by == ("claim train",)
    for profile in ("1g.10gb", "passthrough"):
        named = replace(request, profile=profile, gpu=str(leased))
        refuse(VgpumgrError, lambda named=named: host.service.attach(named))  # type: ignore[misc]
    assert host.bench.store.list_attachments() == ()
    other = host.service.attach(request).attachments[0]
    assert other.gpu != host.view().gpus[f"a/{leased:04}"].uuid
    host.claim("second", "whole")
    error = refuse(GpuLeasedError, lambda: host.service.attach(replace(request, vm="vm02")))
    assert set(error.held_by) == {"claim train", "claim second"}


def test_without_the_store_nothing_is_attached_and_all_can_be_detached(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    host.claim("idle", SHARE)
    attach(host)
    before = host.bench.snapshot()
    with monkeypatch.context() as patch:
        stop_store(patch)
        refuse(PoolStoreError, lambda: attach(host, "vm02", "idle"))
        assert host.bench.snapshot() == before
        host.round()
        status = host.recovery.status()
        assert status.pool is not None
        assert not status.pool.answers
        assert status.pool.leases == 2
        assert host.list_drift() == []  # no lease is known to be gone
        leased = host.leases.read_seen().leases[0].gpus[0]  # type: ignore[union-attr]
        local = AttachRequest("vm02", SHARE, gpu=leased, hello_timeout_s=0)
        refuse(GpuLeasedError, lambda: host.service.attach(local))
        detached = host.service.detach("vm01")
        assert "vgpumgr recover releases it" in " ".join(detached.notes)
        assert host.bench.store.list_attachments() == ()
        ((text, done),) = host.recover()  # it says that the claim is not released yet
        assert (done, text.startswith("not compared with what the pool's store has")) == (
            False,
            True,
        )
    assert "a/train" in host.view().uses
    assert host.recover() == [
        (f"released it: vm vm01 has no attachment {detached.plan.result['attachment']} here", True)
    ]
    assert host.view().uses == {}
    assert host.recover() == []


def test_a_store_that_stops_during_an_attach_leaves_nothing(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    before = host.bench.snapshot()
    original = host.leases.hold

    def hold(part: Any, user: Any) -> None:
        original(part, user)
        stop_store(monkeypatch)
        raise PoolStoreError("the pool's store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(host.leases, "hold", hold)
        refuse(VgpumgrError, lambda: attach(host))
    assert host.bench.snapshot() == before


def test_a_lost_lease_is_drift_that_names_the_claim(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    with open_pool(None) as pool:
        lease = pool.view().leases["a/train"]
        pool.store.transact(Transaction((), (put(replace(lease, milli=299)),)))
    host.round()
    assert host.list_drift() == ["claim-lost"]
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Delete(lease.key),)))
    host.round()
    (drift,) = host.recovery.status().drift or []
    assert (drift.kind, "claim train" in drift.text) == ("claim-lost", True)
    assert "--attachment" in str(drift.hint)
    host.recovery.recover(Policy(release=True))
    assert len(host.bench.store.list_attachments()) == 1  # it is the administrator's to end
    host.service.detach("vm01")
    assert host.list_drift() == []


def test_a_host_keeps_a_lease_that_is_used_though_it_is_to_end(host: PoolHost) -> None:
    """As an older program, which knows no uses, may write."""
    host.claim("train", SHARE)
    attach(host)
    with open_pool(None) as pool:
        claim = pool.view().claims["train"]
        pool.store.transact(Transaction((), (put(replace(claim, is_ending=True)),)))
    for _ in range(2):
        host.round()
    host.restart()
    host.round()
    assert host.view().leases["a/train"].is_ending
    assert host.list_drift() == ["claim-lost"]
    host.service.detach("vm01")
    host.round()
    assert host.view().leases == {}


def test_a_record_is_rebuilt_with_its_claim(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    assert record.claim is not None
    host.bench.store.delete_attachment(record.id)
    host.recover()
    (rebuilt,) = host.bench.store.list_attachments()
    assert rebuilt.claim == record.claim
    # while the record is lost, and only the VM's metadata say it, the claim is not released
    host.bench.store.delete_attachment(record.id)
    (kept,) = recover_claims(host.parts)
    assert (kept.done, "not recorded" in kept.text) == (False, True)
    host.bench.hypervisor.fail["list_vms"] = LibvirtDownError("libvirt is down")
    (kept,) = recover_claims(host.parts)
    assert (kept.done, "libvirt is down" in kept.text) == (False, True)
    assert "a/train" in host.view().uses
    host.recover()
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Delete(use_key("a", "train")),)))
    assert host.recover() == [('holds it for vm "vm01" again', True)]
    assert host.view().uses["a/train"].attachment == record.id


def test_one_vm_has_several_claims(host: PoolHost) -> None:
    host.claim("train", SHARE)
    host.claim("more", "share:4GiB,20%")
    attach(host)
    error = refuse(AlreadyAttachedError, lambda: attach(host, claim="more"))
    assert "--claim more --add" in str(error.hint)
    attach(host, claim="more", add=True)
    assert sorted(use.claim for use in host.view().uses.values()) == ["more", "train"]
    host.service.detach("vm01", every=True)
    assert host.view().uses == {}


def test_a_host_in_no_pool_has_no_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_machine(tmp_path / "a", monkeypatch)
    host = PoolHost(tmp_path, [make_gpu(A100, 0, None)])
    (host.machine.state_dir / "pool.json").unlink()
    refuse(PoolNotFoundError, lambda: attach(host))
    assert host.service.attach(AttachRequest("vm01", SHARE, hello_timeout_s=0)).attachments


def test_on_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparisons, and a member that is stopped."""
    choose_machine(tmp_path / "a", monkeypatch)
    (tmp_path / "etcd").mkdir()
    with Etcd(tmp_path / "etcd").running() as etcd:
        host = PoolHost(tmp_path, [make_gpu(A100, 0, None)], Endpoints(etcd.urls, timeout_s=2))
        host.claim("train", SHARE)
        host.claim("idle", SHARE)
        attach(host)
        refuse(ClaimInUseError, lambda: attach(host, "vm02"))
        refuse(ClaimInUseError, lambda: host.ask("delete", "train"))
        etcd.members[0].kill()
        before = host.bench.snapshot()
        refuse(PoolStoreError, lambda: attach(host, "vm02", "idle"))
        assert host.bench.snapshot() == before
        assert "releases it" in " ".join(host.service.detach("vm01").notes)
        etcd.members[0].start()
        etcd.await_leader()
        assert [done for _, done in host.recover()] == [True]
        attach(host, "vm02", "idle")


def test_removing_a_dead_host_frees_its_claims(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Delete("p/alive/a"),)))
        assert PoolOperations(pool).remove_host("a") == ["train"]
        view = pool.view()
        assert (view.uses, view.leases) == ({}, {})
    assert host.ask("show", "train")["state"] == "waiting"


def test_a_command_runs_by_a_claim(host: PoolHost) -> None:
    host.claim("train", SHARE)
    application = Application(host.machine, host.parts)
    asked = {"name": "job", "command": "true", "pid": os.getpid(), "claim": "train"}
    assert application.start_run(**asked, dry_run=True).plan.result["profile"] == SHARE
    document = application.start_run(**asked)
    assert document.attachment.claim == "train"
    assert host.ask("show", "train")["used_by"]["kind"] == "run"
    refuse(ClaimInUseError, lambda: attach(host))
    application.detach(vm="job")
    assert host.view().uses == {}


def test_a_command_without_a_claim_leaves_leased_gpus_alone(host: PoolHost) -> None:
    host.claim("train", "whole")
    host.claim("second", "whole")
    application = Application(host.machine, host.parts)
    error = refuse(
        GpuLeasedError,
        lambda: application.start_run(name="job", command="true", pid=os.getpid(), profile=SHARE),
    )
    assert set(error.held_by) == {"claim train", "claim second"}


def test_a_store_that_did_not_answer_yet_has_lost_no_lease(host: PoolHost) -> None:
    host.claim("train", SHARE)
    attach(host)
    write_seen(host.machine, SeenPool("a", "waits", 0.0, is_answering=False))
    assert host.list_drift() == []


def test_drained_gpus_are_not_called_leased(host: PoolHost) -> None:
    leased = host.claim("train", SHARE)["lease"]["gpu_indices"][0]
    application = Application(host.machine, host.parts)
    application.drain_gpu(selector=str(1 - leased))
    request = AttachRequest("vm01", SHARE, hello_timeout_s=0)
    error = refuse(GpuLeasedError, lambda: host.service.attach(request))
    assert f"GPU {1 - leased}" not in str(error)
    assert "drained" in str(error.why)


def test_why_asks_of_the_leased_gpu(host: PoolHost) -> None:
    lease = host.claim("train", SHARE)["lease"]
    application = Application(host.machine, host.parts)
    (row,) = application.why(claim="train").gpus
    assert (row.gpu_uuid, row.fits) == (lease["gpu_uuids"][0], True)
    rows = application.why(SHARE).gpus
    assert {row.gpu_index: row.fits for row in rows} == {0: True, 1: True} | {
        lease["gpu_indices"][0]: False
    }
    assert any("held by claim train" in row.sentence for row in rows)
    rows = application.why("1g.10gb").gpus
    assert any("leased by the pool to claim train" in row.sentence for row in rows)
    attach(host)
    refuse(ClaimInUseError, lambda: application.why(claim="train"))


def test_the_size_of_a_claims_share_is_the_leases(host: PoolHost) -> None:
    host.claim("train", SHARE)
    id_ = attach(host).attachments[0].id
    for asked in ({"memory_bytes": 16 << 30}, {"compute": 50.0}):
        error = refuse(
            ClaimInUseError, lambda asked=asked: set_share(host.parts, vm="vm01", **asked)
        )  # type: ignore[misc]
        assert (error.held_by, id_ in str(error.hint)) == (("claim train",), True)
    set_share(host.parts, vm="vm01", priority="high")
    assert host.list_drift() == []


def test_metrics_say_whether_the_store_answers(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    source = MetricsSource(
        host.parts.read_inventory,
        host.bench.store,
        host.bench.channels,
        LateRecords(host.machine.run_dir),
        leases=host.leases,
    )

    def read() -> dict[str, float]:
        collected = Collected(source.observe(), success=True)
        samples = list_samples(collected, (), "1", "h")
        asked = ("pool_store_answers", "pool_leases")
        return {one.name: one.value for one in samples if one.name in asked}

    assert read() == {}  # nothing serves for the host
    with lock_file(host.machine.run_dir / LOCK_NAME, 0, what="pool serve"):
        assert read() == {"pool_store_answers": 1, "pool_leases": 1}
        stop_store(monkeypatch)
        host.round()
        assert read() == {"pool_store_answers": 0, "pool_leases": 1}


def test_names_of_claims_are_completed(host: PoolHost, tmp_path: Path) -> None:
    host.claim("train", SHARE)
    host.claim("test", "share:4GiB,10%")
    cli = Cli(FakeNvml([make_gpu()]), tmp_path)
    for line in ("attach vm01 --claim t", "run --claim t", "why --claim t", "claim show t"):
        done = cli.run("completion", "--line", f"vgpumgr {line}")
        assert (sorted(done.out.split()), done.err) == (["test", "train"], "")
