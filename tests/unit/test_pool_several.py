"""A VM by a claim of several GPUs: an attachment for each, all or none, and one VM at a time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.fake_host import GPU, OTHER_GPU, make_functions
from tests.support.pool_host import PoolHost, choose_machine
from tests.unit.test_pool_attach import SHARE, attach, refuse
from tests.unit.test_pool_attach import host as host
from vgpumgr.app.application import Application
from vgpumgr.app.operations.capacity import why
from vgpumgr.errors import (
    ClaimInUseError,
    ClaimNotGrantedError,
    ClaimUnusableError,
    PoolStoreError,
    RolledBackError,
)
from vgpumgr.model.request import AttachRequest
from vgpumgr.pool.control.records import put
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.store.interface import Delete, Transaction


def list_users(host: PoolHost) -> dict[str, str]:
    return {name: use.attachment for name, use in host.view().uses.items()}


def test_a_vm_gets_each_gpu_of_the_lease_and_gives_all_back(host: PoolHost) -> None:
    lease = host.claim("train", SHARE, gpus=2)["lease"]
    before = host.bench.snapshot()
    dry = host.service.attach(AttachRequest("vm01", claim="train"), dry_run=True)
    assert len(dry.plan.result["attachments"]) == 2
    document = attach(host)
    one, two = document.attachments
    assert [one.gpu, two.gpu] == lease["gpu_uuids"]
    assert (one.profile, two.profile) == (SHARE, SHARE)
    kinds = [step.kind for step in document.plan.steps]
    assert kinds[:4] == ["attachment.record"] * 2 + ["claim.hold"] * 2
    assert list_users(host) == {"a/train": one.id, "a/train/1": two.id}
    assert host.ask("show", "train")["used_by"]["attachments"] == [one.id, two.id]
    assert host.list_drift() == []
    assert host.recover() == []
    error = refuse(ClaimInUseError, lambda: host.ask("delete", "train"))
    assert len(error.held_by) == 2
    refuse(ClaimInUseError, lambda: attach(host, add=True))
    refuse(ClaimInUseError, lambda: attach(host, "vm02"))
    # one of them alone: the claim is still the VM's
    host.service.detach("vm01", attachment=one.id)
    assert list_users(host) == {"a/train/1": two.id}
    for act in (
        lambda: attach(host, "vm02"),
        lambda: host.ask("delete", "train"),
        lambda: host.ask("resize", "train", None, 1),
    ):
        refuse(ClaimInUseError, act)
    host.round()
    assert host.ask("show", "train")["state"] == "granted"
    host.service.detach("vm01")
    assert (list_users(host), host.bench.snapshot()) == ({}, before)
    assert host.ask("delete", "train")[0] is False
    host.round()
    assert host.view().leases == {}


def test_bindings_name_who_has_each_gpu(host: PoolHost) -> None:
    host.claim("train", SHARE, gpus=2)
    host.claim("idle", "share:4GiB,10%")
    one, two = attach(host).attachments
    rows = host.ask("list_bindings")
    shown = [
        (row["gpu_index"], row["name"], (row["used_by"] or {}).get("attachment")) for row in rows
    ]
    idle = host.ask("show", "idle")["lease"]["gpu_indices"][0]
    expected = [(0, "train", one.id), (1, "train", two.id), (idle, "idle", None)]
    assert shown == sorted(expected, key=lambda row: row[:2])
    assert {row["gpu_milli"] for row in rows if row["name"] == "train"} == {300}
    used = next(row for row in rows if row["name"] == "train")
    assert used["used_by"] == {"kind": "vm", "name": "vm01", "attachment": one.id}


def test_whole_gpus_are_passed_through_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_machine(tmp_path / "a", monkeypatch)
    gpus = [replace(make_gpu(A100, n, None), pci=pci) for n, pci in enumerate((GPU, OTHER_GPU))]
    host = PoolHost(tmp_path, gpus, functions=make_functions())
    host.claim("all", "whole", gpus=2)
    before = host.bench.snapshot()
    document = attach(host, "vm02", "all")
    assert [one.backend for one in document.attachments] == ["passthrough"] * 2
    kinds = [step.kind for step in document.plan.steps]
    last_hold = max(n for n, kind in enumerate(kinds) if kind == "claim.hold")
    assert last_hold < kinds.index("passthrough.bind")
    assert len(list_users(host)) == 2
    host.service.detach("vm02", every=True)
    assert (list_users(host), host.bench.snapshot()) == ({}, before)


def test_all_whole_gpus_are_given_by_the_same_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_machine(tmp_path / "a", monkeypatch)
    gpu = replace(make_gpu(A100, 0, None), pci=GPU)
    # the second one has no IOMMU group
    host = PoolHost(tmp_path, [gpu, make_gpu(A100, 1, None)], functions=make_functions())
    host.claim("all", "whole", gpus=2)
    dry = host.service.attach(AttachRequest("vm02", claim="all"), dry_run=True)
    seats = dry.plan.result["seats"]
    assert len(seats) == 2
    assert dry.plan.result["profile"] == "share:80GiB,100%"


def test_a_command_gets_none_of_several(host: PoolHost) -> None:
    host.claim("train", SHARE, gpus=2)
    application = Application(host.machine, host.parts)
    error = refuse(
        ClaimUnusableError,
        lambda: application.start_run(name="job", command="true", pid=os.getpid(), claim="train"),
    )
    assert "it has 2 GPUs" in str(error.why)
    assert list_users(host) == {}


def test_both_or_none(host: PoolHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.claim("train", SHARE, gpus=2)
    before, hold = host.bench.snapshot(), host.leases.hold

    def fail(part: Any, user: Any) -> None:
        if part.number:
            raise PoolStoreError("the pool's store does not answer")
        hold(part, user)

    monkeypatch.setattr(host.leases, "hold", fail)
    refuse(RolledBackError, lambda: attach(host))
    assert (list_users(host), host.bench.snapshot()) == ({}, before)
    assert host.bench.store.list_attachments() == ()


def test_of_two_vms_that_take_a_gpu_each_one_is_refused(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another VM takes the second GPU between the reading and the writing for the first: the store compares both."""
    from vgpumgr.pool.membership import Pool
    from vgpumgr.state.leases import ClaimUser

    host.claim("train", SHARE, gpus=2)
    change = Pool.change
    first, second = (one.part for one in host.leases.find("train"))

    def changing(pool: Pool, compares: Any, changes: Any, refusal: Any) -> None:
        monkeypatch.setattr(Pool, "change", change)
        host.leases.hold(second, ClaimUser("vm", "vm02", "other", "other"))
        change(pool, compares, changes, refusal)

    monkeypatch.setattr(Pool, "change", changing)
    user = ClaimUser("vm", "vm01", "this", "this")
    refuse(ClaimNotGrantedError, lambda: host.leases.hold(first, user))
    assert list_users(host) == {"a/train/1": "other"}


def test_a_lease_ends_once_its_last_gpu_is_given_back(host: PoolHost) -> None:
    """What the store says to end stays while either is used; see ``HostAgent.list_ended``."""
    host.claim("train", SHARE, gpus=2)
    one, two = attach(host).attachments
    with open_pool(None) as pool:
        view = pool.view()
        ending = put(replace(view.leases["a/train"], is_ending=True))
        pool.store.transact(Transaction((), (ending,)))
    host.round()
    assert "a/train" in host.view().leases
    host.service.detach("vm01", attachment=one.id)
    host.round()
    assert "a/train" in host.view().leases
    host.service.detach("vm01", attachment=two.id)
    host.round()
    assert "a/train" not in host.view().leases


def test_what_the_store_has_lost_of_one_is_held_again(host: PoolHost) -> None:
    host.claim("train", SHARE, gpus=2)
    _, two = attach(host).attachments
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Delete("p/use/a/train/1"),)))
    assert host.recover() == [('holds it for vm "vm01" again', True)]
    assert list_users(host)["a/train/1"] == two.id
    # and by the VM's metadata where the state file is lost
    for record in host.bench.store.list_attachments():
        host.bench.store.delete_attachment(record.id)
    host.recover()
    rebuilt = {one.id: one.claim for one in host.bench.store.list_attachments()}
    assert sorted(part.number for part in rebuilt.values() if part) == [0, 1]
    assert list_users(host)["a/train/1"] == two.id
    host.service.detach("vm01", every=True)
    assert list_users(host) == {}


def test_why_asks_of_each_leased_gpu(host: PoolHost) -> None:
    lease = host.claim("train", SHARE, gpus=2)["lease"]
    document = why(host.parts, claim="train")
    assert [row.gpu_uuid for row in document.gpus] == lease["gpu_uuids"]
    assert document.fits


def test_a_gpu_of_it_that_left_the_pool_is_named(host: PoolHost) -> None:
    host.claim("train", SHARE, gpus=2)
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Delete("p/gpu/a/0001"),)))
    error = refuse(ClaimNotGrantedError, lambda: attach(host))
    assert "its GPU 1 is not in the pool" in str(error.why)
