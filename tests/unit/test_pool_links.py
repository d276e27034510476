"""Attachments on a GPU of another host of the pool: who may have it, and what each host remembers of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.pool_host import PoolHost, choose_machine
from vgpumgr.app.operations.late_links import ask_late, bind_late, release_late, release_unused
from vgpumgr.app.operations.runs import start_run
from vgpumgr.errors import (
    AlreadyAttachedError,
    BackendUnsupportedError,
    ClaimInUseError,
    ClaimNotGrantedError,
    PoolMemberError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.host.process import ProcessId, read_identity
from vgpumgr.model.attachment import ServedPart
from vgpumgr.model.request import AttachRequest
from vgpumgr.pool.control.records import (
    LINKS,
    POOL,
    GpuRecord,
    HostRecord,
    HostState,
    Life,
    alive_key,
    format_record,
    put,
    use_key,
)
from vgpumgr.pool.leaving import leave_pool, remove_host
from vgpumgr.pool.links import list_ended, list_seen, write_offer, write_seen_links
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.store.interface import Delete, Put, Transaction
from vgpumgr.state.domain_metadata import describe_record, rebuild_records
from vgpumgr.state.leases import LinkRequest
from vgpumgr.virtio.links import LINK_DIRECTORY, read_peers

SHARE, ADDRESS = "share:8GiB,30%", "10.0.0.5:7443"
B = HostRecord("b", "machine-b", HostState.READY, "the authority of b", (ADDRESS,))
_OWN = read_identity(os.getpid())
assert _OWN is not None
DIALER = _OWN


def write(*changes: Put | Delete) -> None:
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), changes))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolHost:
    """Host ``a``, of fakes, beside host ``b``, which is heard and offers its GPU over the network."""
    choose_machine(tmp_path / "a", monkeypatch)
    made = PoolHost(tmp_path, [make_gpu(A100, 0, None)])
    gpu = GpuRecord("b", 0, "GPU-b", "A100", 80 << 30)
    here = replace(made.view().hosts["a"], ca="the authority of a")
    write(put(here), put(B), put(gpu), Put(alive_key("b"), str(Life("machine-b"))))
    return made


def attach(host: PoolHost, vm: str = "vm01", claim: str = "train", **more: Any) -> Any:
    return host.service.attach(AttachRequest(vm, claim=claim, hello_timeout_s=0, **more))


def refuse(kind: type[VgpumgrError], act: Callable[[], object]) -> VgpumgrError:
    with pytest.raises(kind) as caught:
        act()
    return caught.value


def test_a_vm_gets_what_a_lease_on_another_host_reserves(host: PoolHost) -> None:
    assert host.claim("train", SHARE, where=["b"])["lease"]["host"] == "b"
    plan = host.service.attach(AttachRequest("vm01", claim="train"), dry_run=True).plan
    assert host.view().uses == {}
    assert "claim train reserves share:8GiB,30% on host b" in plan.notes
    assert any("GPU of host b, over TCP with TLS 1.3" in note for note in plan.notes)
    document = attach(host)
    (one,) = document.attachments
    assert (one.backend, one.gpu, one.profile, one.claim) == ("link", None, SHARE, "train")
    kinds = [step.kind for step in document.plan.steps]
    assert kinds[:3] == ["attachment.record", "claim.hold", "channel.start"]
    (use,) = host.view().uses.values()
    assert (use.key, use.via, use.attachment) == (use_key("b", "train"), "a", one.id)
    link = host.bench.channels.specs[one.id].link
    assert link is not None
    assert (link.own, link.host, link.claim, link.is_late) == ("a", "b", "train", False)
    # what the channel is started with after a boot, without the store
    assert read_peers(host.machine.state_dir)["b"].addresses == (ADDRESS,)
    assert host.ask("show", "train")["used_by"]["host"] == "a"
    assert host.list_drift() == []
    host.claim("other", SHARE, where=["b"])
    again = refuse(AlreadyAttachedError, lambda: attach(host, claim="other"))
    assert again.held_by == (f"attachment {one.id} ({SHARE} on host b)",)
    host.service.detach("vm01")
    assert host.view().uses == {}
    assert host.view().leases.keys() == {"b/train", "b/other"}


def test_a_command_runs_on_a_gpu_of_another_host(host: PoolHost) -> None:
    host.claim("train", SHARE, where=["b"])
    asked: dict[str, Any] = {"name": "r", "command": "c", "pid": os.getpid(), "claim": "train"}
    dry = start_run(host.parts, dry_run=True, **asked)
    assert (dry.plan.result["gpu"], dry.plan.result["profile"]) == (None, SHARE)
    document = start_run(host.parts, **asked)
    assert document.attachment is not None
    assert document.attachment.backend == "link"
    assert [use.noun for use in host.view().uses.values()] == ["run"]
    refuse(ClaimInUseError, lambda: start_run(host.parts, **asked | {"name": "other"}))


def test_a_host_that_others_do_not_know_attaches_nothing_of_theirs(host: PoolHost) -> None:
    host.claim("train", SHARE, where=["b"])
    write(put(replace(host.view().hosts["a"], ca="")))
    error = refuse(ClaimNotGrantedError, lambda: attach(host))
    assert "other hosts do not know this one yet" in str(error.why)
    assert host.view().uses == {}


def refuse_with(host: PoolHost, kind: type[VgpumgrError], text: str, **more: Any) -> None:
    before = host.bench.snapshot()
    error = refuse(kind, lambda: attach(host, **more))
    assert text in f"{error.error}: {error.why}"
    assert error.hint
    assert host.bench.snapshot() == before
    assert host.view().uses == {}


def test_what_is_refused_changes_nothing(host: PoolHost) -> None:
    host.claim("train", SHARE, where=["b"])
    why = "its lease is on host b, and this is host a"
    for name in ("passthrough", "vf"):
        refuse_with(host, BackendUnsupportedError, "only calls are forwarded between", backend=name)
    options: tuple[dict[str, Any], ...] = (
        {"limits": ("calls=none",)},
        {"priority": "high"},
        {"compute_policy": "fixed"},
    )
    for more in options:
        refuse_with(host, UsageError, "is not for a GPU of another host", **more)
    write(put(replace(B, links=())))
    refuse_with(host, ClaimNotGrantedError, f"{why}, which offers no GPUs over the network")
    write(put(B), Delete(alive_key("b")))
    refuse_with(host, ClaimNotGrantedError, f"{why}, and that is not heard")
    write(Put(alive_key("b"), str(Life("machine-b"))))
    with open_pool(None) as pool:
        record = pool.record(pool.view())
        assert not write_offer_of_a(LINKS - 1, record)
        refuse_with(host, ClaimNotGrantedError, f"of a version before {LINKS}")
        assert "links" not in pool.store.get("p/host/a").value  # type: ignore[union-attr]
        assert write_offer_of_a(LINKS, record)
        assert host.view().hosts["a"].links == (ADDRESS,)
    attach(host)


def write_offer_of_a(version: int, record: Any) -> bool:
    """In a pool of that version."""
    write(Put(POOL, format_record(replace(record, version=version))))
    with open_pool(None) as pool:
        return write_offer(pool, pool.view(), "the authority of a", (ADDRESS,))


def test_several_gpus_are_not_used_over_the_network(host: PoolHost) -> None:
    write(put(GpuRecord("b", 1, "GPU-b1", "A100", 80 << 30)))
    host.claim("train", SHARE, where=["b"], gpus=2)
    refuse_with(host, ClaimNotGrantedError, "of 2 GPUs none is used over the network")


def test_each_host_recovers_the_uses_of_its_own_attachments(host: PoolHost) -> None:
    """A use of a lease here by another host's attachment is left alone, also where nothing here knows it."""
    host.claim("train", SHARE, where=["b"])
    host.claim("mine", SHARE, where=["a"])
    id_ = attach(host).attachments[0].id
    (use,) = host.view().uses.values()
    lease = host.view().leases["a/mine"]
    theirs = replace(use, claim="mine", host="a", via="b", attachment="other", uuid="other")
    write(put(replace(theirs, token=host.view().find_token(lease))))
    assert host.recover() == []
    write(Delete(use.key))
    assert host.recover() == [('holds it for vm "vm01" again', True)]
    assert host.view().uses["b/train"] == use
    host.bench.store.delete_attachment(id_)
    host.bench.channels.running.clear()
    host.bench.hypervisor.forget("vm01") if hasattr(host.bench.hypervisor, "forget") else None
    assert host.view().uses["a/mine"].attachment == "other"


def test_who_uses_gpus_of_others_does_not_leave_and_who_is_removed_uses_none(
    host: PoolHost,
) -> None:
    host.claim("train", SHARE, where=["b"])
    attach(host)
    error = refuse(PoolMemberError, lambda: leave_pool(None))
    assert 'vm "vm01" on host a' in error.held_by[0]
    write(Delete(alive_key("a")))
    with open_pool(None) as pool:
        remove_host(pool, "a")
    view = host.view()
    assert view.uses == {}
    assert list_ended(view, "b", {"x": ServedPart("a", "train", "other", 1)}) == ["x"]


def test_what_is_served_ends_with_the_use_the_lease_and_the_host(host: PoolHost) -> None:
    """As host ``b`` sees it."""
    host.claim("train", SHARE, where=["b"])
    id_ = attach(host).attachments[0].id
    view = host.view()
    token = view.find_token(view.leases["b/train"])
    part = ServedPart("a", "train", id_, token)
    served = {
        "kept": part,
        "claim": replace(part, claim="other"),
        "attachment": replace(part, attachment="other"),
        "host": replace(part, host="b"),
        "token": replace(part, token=token - 1),
    }
    assert set(list_ended(view, "b", served)) == served.keys() - {"kept"}
    assert set(list_ended(view, "a", served)) == served.keys()
    write(put(replace(view.leases["b/train"], is_ending=True)))
    view = host.view()
    now = view.find_token(view.leases["b/train"])
    (use,) = view.uses.values()
    write(put(replace(use, token=now)))
    served["now"] = replace(part, token=now)
    assert set(list_ended(host.view(), "b", served)) == served.keys()


def test_a_host_serves_what_the_store_says_only(host: PoolHost) -> None:
    """Host ``a`` is asked for its own GPU by an attachment of ``b``."""
    host.claim("mine", SHARE, where=["a"])
    view = host.view()
    lease = view.leases["a/mine"]
    wanted = LinkRequest("b", "mine", "there")
    refuse(ClaimNotGrantedError, lambda: host.leases.find_served(wanted))
    host.claim("train", SHARE, where=["b"])
    attach(host)
    (use,) = host.view().uses.values()
    token = view.find_token(lease)
    use = replace(use, claim="mine", host="a", via="b", attachment="there", token=token)
    write(put(use))
    leased, user = host.leases.find_served(wanted)
    assert (leased.gpu, leased.memory_bytes, user.name) == (
        view.gpus["a/0000"].uuid,
        8 << 30,
        "vm01",
    )
    for other in (
        replace(wanted, host="a"),
        replace(wanted, attachment="x"),
        replace(wanted, host="c"),
    ):
        refuse(ClaimNotGrantedError, lambda other=other: host.leases.find_served(other))  # type: ignore[misc]
    write(put(replace(use, token=token - 1)))
    refuse(ClaimNotGrantedError, lambda: host.leases.find_served(wanted))


def test_what_has_become_of_the_other_host_is_drift(host: PoolHost) -> None:
    host.claim("train", SHARE, where=["b"])
    attach(host)

    def see() -> list[str]:
        view, records = host.view(), host.bench.store.list_attachments()
        write_seen_links(host.machine, list_seen(view, records))
        return host.list_drift()

    assert see() == []
    write(put(replace(B, links=())))
    assert see() == ["link-down"]
    write(put(B), Delete(alive_key("b")))
    assert see() == ["link-down"]
    lease = host.view().leases["b/train"]
    write(Put(alive_key("b"), str(Life("machine-b"))), put(lease))
    assert see() == ["claim-lost"]
    write(Delete(lease.key))
    assert see() == ["claim-lost"]


def test_a_claim_that_binds_late_has_its_lease_while_programs_run(host: PoolHost) -> None:
    host.claim("late", SHARE, late=True)
    document = attach(host, claim="late")
    (one,) = document.attachments
    assert not any(step.kind == "claim.hold" for step in document.plan.steps)
    assert any("from a program's first CUDA call" in note for note in document.plan.notes)
    assert (host.view().uses, host.view().wants, host.view().leases) == ({}, {}, {})
    directory = host.machine.run_dir / "channels" / one.id
    (directory / LINK_DIRECTORY).mkdir(parents=True)
    assert "claim late waits" in str(ask_late(host.parts, one.id, DIALER))
    host.round()
    assert ask_late(host.parts, one.id, DIALER) is None
    assert host.view().leases.keys() == {"b/late"}
    peer = bind_late(host.parts, one.id, DIALER, directory)
    assert not isinstance(peer, str)
    assert (peer.name, peer.addresses) == ("b", (ADDRESS,))
    assert (directory / LINK_DIRECTORY / "peer.name").read_text() == "b\n"
    assert (directory / LINK_DIRECTORY / "peer.pem").read_text() == B.ca
    (use,) = host.view().uses.values()
    assert (use.host, use.via, use.attachment) == ("b", "a", one.id)
    assert host.list_drift() == []
    assert host.recover() == []
    release_late(host.parts, one.id, DIALER)
    assert (host.view().uses, host.view().wants) == ({}, {})
    assert [r.claim.host for r in host.bench.store.list_attachments() if r.claim] == [""]
    host.round()
    host.service.detach("vm01")


def test_a_lease_that_nothing_gave_back_ends_when_no_program_runs(host: PoolHost) -> None:
    """The daemon was ended with its dialer's connection."""
    host.claim("late", SHARE, late=True)
    id_ = attach(host, claim="late").attachments[0].id
    directory = host.machine.run_dir / "channels" / id_
    (directory / LINK_DIRECTORY).mkdir(parents=True)
    ask_late(host.parts, id_, DIALER)
    host.round()
    bind_late(host.parts, id_, DIALER, directory)
    release_unused(host.parts, [])
    assert host.view().uses
    release_unused(host.parts, [id_])
    assert host.view().uses == {}


def test_who_waits_no_more_wants_nothing(host: PoolHost) -> None:
    write(put(replace(B, links=(ADDRESS,))))
    host.claim("all", "whole", where=["b"])
    host.claim("late", SHARE, late=True, where=["b"])
    id_ = attach(host, claim="late").attachments[0].id
    assert ask_late(host.parts, id_, DIALER) is not None
    host.round()
    assert "place 1" in str(ask_late(host.parts, id_, DIALER))
    assert host.view().wants.keys() == {"late"}
    release_late(host.parts, id_, replace_process())
    assert host.view().wants.keys() == {"late"}
    release_late(host.parts, id_, DIALER)
    assert host.view().wants == {}


def replace_process() -> ProcessId:
    """Another dialer."""
    return ProcessId(DIALER.pid + 1, 0)


@pytest.mark.parametrize("late", [False, True])
def test_a_record_comes_back_from_the_domain(host: PoolHost, late: bool) -> None:
    host.claim("train", SHARE, where=["b"], late=late)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    vm = host.bench.hypervisor.read_vm("vm01")
    assert vm.notes == (describe_record(record),)
    assert rebuild_records(vm) == (record,)
