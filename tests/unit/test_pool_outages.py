"""What a pool's store that does not answer holds up, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.pool_host import PoolHost, choose_machine
from tests.unit.test_pool_attach import SHARE, attach, refuse, stop_store
from tests.unit.test_pool_attach import host as host
from vgpumgr.errors import ClaimExistsError, PoolStoreError, RolledBackError
from vgpumgr.host.lock import lock_file
from vgpumgr.pool.membership import LOCK_NAME, Membership, write_membership, write_seen
from vgpumgr.state.leases import SeenPool


def test_a_hold_that_was_refused_is_not_asked_for(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was written: the rollback is complete, also where the store does not answer then."""
    host.claim("train", SHARE)

    def fail(*_: object) -> None:
        raise PoolStoreError("the pool's store does not answer")

    monkeypatch.setattr(host.leases, "hold", fail)
    monkeypatch.setattr(host.leases, "is_held", fail)
    released: list[object] = []
    monkeypatch.setattr(host.leases, "release", lambda *which: released.append(which))
    refuse(RolledBackError, lambda: attach(host))
    assert host.bench.store.list_attachments() == ()
    assert host.parts.open_journal().unfinished() == {}
    assert released == []


def test_a_release_waits_for_no_store_that_is_known_not_to_answer(
    host: PoolHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim("train", SHARE)
    attach(host)
    (record,) = host.bench.store.list_attachments()
    assert record.claim is not None
    part = record.claim
    write_seen(host.machine, SeenPool("a", "waits for it", 0.0, is_answering=False))
    opened: list[object] = []
    monkeypatch.setattr("vgpumgr.pool.leases.open_pool_of", opened.append)
    with lock_file(host.machine.run_dir / LOCK_NAME, 0, what="pool serve"):
        error = refuse(PoolStoreError, lambda: host.leases.release(part, record.id))
    assert (error.cause, opened) == ("waits for it", [])


def test_a_host_that_has_never_served_has_nothing_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joined, and its store does not answer: no claim was used here, and recover says nothing of claims."""
    choose_machine(tmp_path / "a", monkeypatch)
    host = PoolHost(tmp_path, [make_gpu(A100, 0, None)])
    stop_store(monkeypatch)
    assert [text for text, _ in host.recover()] == [
        "not compared with what the pool's store has: the pool's store does not answer"
    ]
    (host.machine.state_dir / "pool-seen.json").unlink()
    assert host.recover() == []
    write_membership(host.machine, Membership("machine"))
    assert host.recover() == []


def test_a_claim_that_ends_is_not_resized(host: PoolHost) -> None:
    host.claim("train", SHARE)
    host.ask("delete", "train")
    error = refuse(ClaimExistsError, lambda: host.ask("resize", "train", "share:4GiB,10%", None))
    assert error.error == "claim train is being deleted"
