"""Pools of the version before: what serves together, what waits for an upgrade, and GPUs that take nothing new."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.cli import Cli
from tests.support.pool_host import PoolHost, choose_machine
from tests.unit.test_pool_claims import await_true, claim, make_pool, ok, refused, serving
from tests.unit.test_pool_claims import cli as cli
from vgpumgr.errors import PoolVersionError
from vgpumgr.host.machine import find_machine, read_boot_id
from vgpumgr.model.gpu import Drain
from vgpumgr.model.request import AttachRequest
from vgpumgr.pool.control.host import HostAgent
from vgpumgr.pool.control.records import (
    POOL,
    VERSION,
    ClaimRecord,
    GpuRecord,
    HostRecord,
    LeaseRecord,
    Life,
    TenantRecord,
    Timing,
    View,
    alive_key,
    format_record,
    put,
)
from vgpumgr.pool.links import write_offer
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.store.interface import At, Delete, Put, Transaction
from vgpumgr.pool.store.steps import drive
from vgpumgr.state.store import STATE_FILE, Store

SHARE = "share:8GiB,30%"


def write(*changes: Put | Delete) -> None:
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), changes))


def make_old() -> None:
    """The pool is as the program before this one has made it."""
    with open_pool(None) as pool:
        record = pool.record(pool.view())
    write(Put(POOL, format_record(replace(record, version=VERSION - 1))))


def test_what_the_version_before_does_not_know_is_not_written() -> None:
    """These are its fields: it refuses a record with others."""
    known = {
        "name", "class_name", "gpus", "memory_bytes", "compute_percent", "if_lost", "is_ending", "host", "why",
    }  # fmt: skip
    assert json.loads(format_record(ClaimRecord("x", "default"))).keys() == known
    lease = json.loads(format_record(LeaseRecord("x", "a", (0,), 1000)))
    assert lease.keys() == {
        "claim", "host", "gpus", "milli", "memory_bytes", "compute_percent", "if_lost", "is_ending",
    }  # fmt: skip
    tenant = json.loads(format_record(TenantRecord("t")))
    assert tenant.keys() == {"name", "gpu_milli", "priority", "weight"}
    gpu = json.loads(format_record(GpuRecord("a", 0, "GPU-0", "A100", 1)))
    assert gpu.keys() == {"host", "index", "uuid", "model", "memory_bytes", "grants"}
    assert json.loads(format_record(ClaimRecord("x", "default", tenant="t")))["tenant"] == "t"


def test_a_pool_of_the_version_before_works_but_for_what_is_new(cli: Cli) -> None:
    make_pool(cli)
    make_old()
    drain(0)
    with serving():
        assert claim(cli, "train", SHARE)["lease"]["gpu_indices"] in ([0], [1])
        ok(cli.run("tenant", "create", "old", "-o", "json"))
        times = ("--from", "2099-01-01T08:00", "--until", "2099-01-01T12:00")
        for words in (
            ("tenant", "create", "t", "--preemptible"),
            ("tenant", "set", "old", "--preemptible", "yes"),
            ("pool", "class", "create", "k", "--preemptible"),
            ("reservation", "create", "r", "--tenant", "old", "--profile", SHARE, *times),
            ("claim", "create", "ends", "--profile", SHARE, "--until", "2099-01-01T12:00"),
            ("claim", "create", "ends", "--profile", SHARE, "--for", "2h"),
            ("claim", "create", "vm", "--profile", SHARE, "--preemptible-vm"),
        ):
            error = refused(cli.run(*words, "-o", "json"), "VG382", 7)
            assert error["try"].startswith("vgpumgr pool upgrade")
        with open_pool(None) as pool:
            assert not write_offer(pool, pool.view(), "an authority", ("10.0.0.5:7443",))
            text = "".join(entry.value for entry in pool.store.range("p/").entries.values())
        names = (
            "granted_s",
            "until_s",
            "for_s",
            "preempt",
            "nominated",
            '"ca"',
            '"links"',
            '"via"',
        )
        assert not any(name in text for name in names)
        done = ok(cli.run("pool", "upgrade", "-o", "json"))
        assert (done["before"], done["version"], done["not_heard"]) == (VERSION - 1, VERSION, [])
        with open_pool(None) as pool:
            pool.change_anew(write_offer_anew, PoolVersionError("others write"))
        (host,) = ok(cli.run("pool", "status", "-o", "json"))["hosts"]
        assert host["links"] == ["10.0.0.5:7443"]
        ok(cli.run("tenant", "create", "t", "--preemptible", "-o", "json"))
        lease = claim(cli, "ends", SHARE, "--until", "2099-01-01T12:00")["lease"]
        assert lease["until_s"] is not None
        # the process that serves has seen it
        await_true(lambda: list_closed(cli) == [0])
    assert ok(cli.run("pool", "upgrade", "-o", "json"))["before"] == VERSION
    assert "as before" in cli.run("pool", "upgrade").out


def write_offer_anew(view: View) -> tuple[list[At], list[Put]]:
    """The heartbeat writes the same record."""
    record = replace(view.hosts["a"], ca="an authority", links=("10.0.0.5:7443",))
    return [view.at(record.key)], [put(record)]


def list_closed(cli: Cli) -> list[int]:
    (host,) = ok(cli.run("pool", "status", "-o", "json"))["hosts"]
    return [gpu["index"] for gpu in host["gpus"] if gpu["closed"]]


def test_an_upgrade_waits_for_the_hosts_that_are_heard(cli: Cli) -> None:
    make_pool(cli)
    make_old()
    old = HostRecord("old", "machine")
    write(Put(alive_key("old"), "machine boot"), Put(old.key, format_record(old)))
    error = refused(cli.run("pool", "upgrade", "-o", "json"), "VG382", 7)
    assert error["held_by"] == ["host old"]
    write(Delete(alive_key("old")))
    result = cli.run("pool", "upgrade")
    assert result.code == 0
    assert "host old is not heard" in result.err


def test_an_older_pool_and_attachments_by_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its own host; what hosts use of each other is in tests/unit/test_pool_links.py."""
    choose_machine(tmp_path / "machine", monkeypatch)
    host = PoolHost(tmp_path, [make_gpu(A100, 0, None)])
    host.claim("train", SHARE)
    make_old()
    host.service.attach(AttachRequest("vm01", claim="train", hello_timeout_s=0))
    (record,) = host.bench.store.list_attachments()
    assert record.claim is not None
    assert (record.claim.host, record.claim.via) == ("a", "")


def test_an_updated_program_serves_on_at_once(cli: Cli) -> None:
    """Its entry of before is of the same boot; that of another boot is waited for."""
    make_pool(cli)
    with open_pool(None) as pool:
        machine = pool.membership.machine
        for boot, serves in (("boot", True), ("other", False)):
            lease = pool.store.grant_lease(60)
            write_life = Put(alive_key("a"), f"{machine} {boot}", lease)
            pool.store.transact(Transaction((), (write_life,)))
            agent = HostAgent(HostRecord("a", machine), Timing(), lambda: 1.0, boot="boot")
            drive(pool.store, agent.step(lambda _: None))
            assert agent.is_heard is serves
            entry = pool.store.get(alive_key("a"))
            assert entry is not None
            assert Life.read(entry) == Life(machine, boot, VERSION if serves else 1)


def test_a_drained_gpu_is_granted_to_nothing_new(cli: Cli) -> None:
    make_pool(cli)
    with serving():
        (kept,) = claim(cli, "kept", SHARE)["lease"]["gpu_indices"]
        drain(kept)
        await_true(lambda: list_closed(cli) == [kept])
        claim(cli, "whole", "whole")
        shown = ok(cli.run("claim", "show", "whole", "-o", "json"))["claim"]
        assert shown["lease"]["gpu_indices"] == [1 - kept]
        waits = claim(cli, "waits", SHARE)
        assert waits["lease"] is None
        assert f"GPU {kept} of host a takes nothing new: drained by" in waits["why"]
        assert "a test" in waits["why"]
        # what it has it keeps, and may become smaller
        assert resize(cli, "kept", "share:4GiB,10%")["gpu_milli"] == 100
        assert resize(cli, "kept", "share:8GiB,30%")["gpu_milli"] == 100
        (found,) = ok(cli.run("claim", "explain", "waits", "-o", "json"))["hosts"]
        assert found["score"] is None
        assert "takes nothing new" in found["why"]
        status = ok(cli.run("pool", "status", "-o", "json"))
        assert status["gpu_free_milli"] == 0
        # joining again, with the same GPUs, forgets nothing
        ok(cli.run("pool", "join", "-o", "json"))
        assert list_closed(cli) == [kept]
        drain(kept, is_over=True)
        await_true(lambda: show(cli, "waits")["lease"] is not None)
        await_true(lambda: show(cli, "kept")["lease"]["gpu_milli"] == 300)


def drain(index: int, *, is_over: bool = False) -> None:
    """As ``vgpumgr gpu drain`` and ``resume`` record it."""
    machine, gpu = find_machine(None), make_gpu(A100, index, None)
    store = Store(machine.state_dir / STATE_FILE, read_boot_id(machine))
    record = Drain(gpu.pci, gpu.uuid, "root", 0.0, reason="a test")
    (store.forget_drain if is_over else store.save_drain)(record)


def resize(cli: Cli, name: str, profile: str) -> dict[str, Any]:
    words = ("claim", "resize", name, "--profile", profile, "-o", "json")
    lease: dict[str, Any] = ok(cli.run(*words))["claim"]["lease"]
    return lease


def show(cli: Cli, name: str) -> dict[str, Any]:
    found: dict[str, Any] = ok(cli.run("claim", "show", name, "-o", "json"))["claim"]
    return found


def test_a_grant_that_is_under_way_finds_the_gpu_closed(cli: Cli) -> None:
    """The closing moves the revision that the grant compares."""
    make_pool(cli)
    with open_pool(None) as pool:
        before = pool.view()
        gpu = before.gpus["a/0000"]
        write(Put(gpu.key, format_record(replace(gpu, closed="drained"))))
        late = Transaction((before.at(gpu.key),), (Put(gpu.key, format_record(gpu)),))
        assert pool.store.transact(late) is None


def test_a_claim_of_whole_gpus_gives_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size only says which GPU is large enough."""
    choose_machine(tmp_path / "machine", monkeypatch)
    host = PoolHost(tmp_path, [make_gpu(A100, 0, None)])
    assert host.claim("train", SHARE, class_name="whole")["lease"]["gpu_milli"] == 1000
    (gpu,) = host.leases.find("train")
    assert (gpu.memory_bytes, gpu.compute_percent) == (None, None)
