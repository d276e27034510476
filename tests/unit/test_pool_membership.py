"""Which pool a machine is in: made, joined, lost, restored and left; no hint leads in a circle."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.cli import Cli
from tests.support.etcd import Etcd
from tests.support.fake_nvml import FakeNvml
from tests.unit.test_pool_claims import (
    await_true,
    claim,
    make_pool,
    ok,
    refused,
    serving,
    use_machine,
)
from vgpumgr.pool.control.records import ClaimRecord, put
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.store.interface import Delete, Transaction


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    use_machine(tmp_path / "a", monkeypatch)
    return Cli(FakeNvml([make_gpu(A100, 0, None), make_gpu(A100, 1, None)]), tmp_path)


ROOT = Path(__file__).parents[2]
JOIN = ("pool", "join", "--name", "a", "-o", "json")
STATUS = ("pool", "status", "-o", "json")


def empty() -> None:
    """As an etcd whose data was removed."""
    with open_pool(None) as pool:
        keys = list(pool.store.range("p/").entries)
        pool.store.transact(Transaction((), tuple(Delete(key) for key in keys)))


def test_a_lost_membership_is_joined_again(cli: Cli, tmp_path: Path) -> None:
    make_pool(cli)
    before = ok(cli.run(*STATUS))
    (tmp_path / "a/state/pool.json").unlink()
    hint = str(refused(cli.run("pool", "init", "-o", "json"), "VG379", 6)["try"])
    assert hint == "vgpumgr pool join"
    assert ok(cli.run(*JOIN))["gpus"] == 2
    assert ok(cli.run(*STATUS))["hosts"] == before["hosts"]


def test_a_lost_store_is_made_again(cli: Cli, tmp_path: Path) -> None:
    make_pool(cli)
    refused(cli.run("pool", "init", "-o", "json"), "VG379", 6)
    for path in (tmp_path / "a/state").glob("pool.sqlite*"):
        path.unlink()
    assert "pool init" in str(refused(cli.run(*STATUS), "VG378", 5)["try"])
    make_pool(cli)
    empty()
    assert "pool init" in str(refused(cli.run(*STATUS), "VG378", 5)["try"])
    make_pool(cli)
    assert ok(cli.run(*STATUS))["gpus"] == 2


def test_a_join_elsewhere_that_failed_keeps_the_pool_of_before(cli: Cli, tmp_path: Path) -> None:
    ok(cli.run("pool", "init", "-o", "json"))
    before = (tmp_path / "a/state/pool.json").read_text()
    refused(cli.run(*JOIN, "--etcd", "http://127.0.0.1:1"), "VG373", 1)
    assert (tmp_path / "a/state/pool.json").read_text() == before
    assert ok(cli.run(*STATUS))["pool"]["engine"] == "sqlite"


def test_the_same_pool_at_another_url(cli: Cli, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with Etcd(tmp_path / "one").running() as one, Etcd(tmp_path / "two").running() as two:
        url, other = one.urls[0], two.urls[0]
        make_pool(cli, "--etcd", url)
        moved = url.replace("127.0.0.1", "localhost")
        ok(cli.run(*JOIN, "--etcd", moved))
        assert ok(cli.run(*STATUS))["pool"]["store"] == moved
        refused(cli.run(*JOIN, "--etcd", other), "VG378", 5)
        (tmp_path / "a/state/pool.json").rename(tmp_path / "kept")
        ok(cli.run("pool", "init", "--etcd", other, "-o", "json"))
        (tmp_path / "kept").rename(tmp_path / "a/state/pool.json")
        refused(cli.run(*JOIN, "--etcd", other), "VG379", 6)
        assert ok(cli.run(*STATUS))["pool"]["store"] == moved


def test_a_full_disk_is_called_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("vgpumgr.pool.membership.replace_file", fail)
    error = refused(cli.run("pool", "init", "-o", "json"), "VG373", 1)
    assert error["why"] == "the disk is full"


def test_a_store_without_its_revision_is_damaged(cli: Cli, tmp_path: Path) -> None:
    make_pool(cli)
    connection = sqlite3.connect(tmp_path / "a/state/pool.sqlite")
    connection.execute("DELETE FROM head")
    connection.commit()
    connection.close()
    error = refused(cli.run(*STATUS), "VG373", 1)
    assert "damaged" in error["why"]


def test_a_host_leaves_once_nothing_is_granted_there(cli: Cli) -> None:
    make_pool(cli)
    leave = ("pool", "leave", "-o", "json")
    with serving():
        assert claim(cli, "train", "whole")["lease"]
        error = refused(cli.run(*leave), "VG132", 6)  # it serves
        assert error["try"] == "end vgpumgr pool serve first"
    error = refused(cli.run(*leave), "VG377", 6)
    assert error["held_by"] == ["claim train"]
    with serving():
        ok(cli.run("claim", "delete", "train", "-o", "json"))
    assert ok(cli.run(*leave))["host"] == "a"
    refused(cli.run(*STATUS), "VG378", 5)
    assert ok(cli.run("pool", "join", "--name", "other", "-o", "json"))["gpus"] == 2
    status = ok(cli.run(*STATUS))
    assert [host["name"] for host in status["hosts"]] == ["other"]


def test_a_dead_host_is_removed_by_who_says_that_it_is_dead(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etcd").mkdir()
    with Etcd(tmp_path / "etcd").running() as etcd:
        make_pool(cli, "--etcd", etcd.urls[0])
        remove = ("pool", "remove", "a", "-o", "json")
        with serving():
            assert claim(cli, "one", "whole")["lease"]
            assert claim(cli, "two", "whole")["lease"]
            refused(cli.run(*remove, "--confirm-dead"), "VG377", 6)
        use_machine(tmp_path / "b", monkeypatch)
        words = ("pool", "join", "--etcd", etcd.urls[0], "--name", "b", "-o", "json")
        ok(cli.run(*words))
        await_true(lambda: not ok(cli.run(*STATUS))["hosts"][0]["heard"])
        result = cli.run("claim", "delete", "one")
        assert result.code == 8
        assert "vgpumgr pool remove a --confirm-dead" in result.out
        refused(cli.run("pool", "remove", "x", "--confirm-dead", "-o", "json"), "VG378", 5)
        error = refused(cli.run(*remove), "VG214", 2)
        assert error["held_by"] == ["claim one", "claim two"]
        assert ok(cli.run(*remove, "--confirm-dead"))["claims"] == ["one", "two"]
        status = ok(cli.run(*STATUS))
        assert [host["name"] for host in status["hosts"]] == ["b"]
        assert cli.run("claim", "list", "-o", "name").out.split() == ["two"]
        # what was said to be dead, and lives, is no host any more
        use_machine(tmp_path / "a", monkeypatch)
        result = cli.run("pool", "serve")
        assert result.code == 6
        assert "pool join" in result.err


def test_a_claim_that_no_controller_has_seen_says_so(cli: Cli) -> None:
    make_pool(cli)
    with open_pool(None) as pool:
        record = ClaimRecord("new", "default")
        pool.store.transact(Transaction((), (put(record),)))
    found = ok(cli.run("claim", "show", "new", "-o", "json"))["claim"]
    assert found["why"] == "no controller has answered yet"


def test_sigterm_resigns(cli: Cli) -> None:
    make_pool(cli)
    words = [sys.executable, "-m", "vgpumgr", "pool", "serve"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
    try:
        await_true(lambda: ok(cli.run(*STATUS))["leader"] == "a")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        with open_pool(None) as pool:
            assert pool.store.get("p/leader") is None
    finally:
        process.kill()
        process.communicate()


def test_a_host_that_serves_waits_for_an_etcd_that_starts_later(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    with Etcd(tmp_path / "etcd").running() as etcd:
        make_pool(cli, "--etcd", etcd.urls[0])
        etcd.members[0].kill()
        over, said = threading.Event(), list[str]()

        def serve() -> None:
            with open_pool(None) as pool:
                pool.serve(over.is_set, said.append)

        thread = threading.Thread(target=serve)
        thread.start()
        await_true(lambda: bool(said))
        assert "host a waits for the store" in said[0]
        etcd.members[0].start()
        etcd.await_leader()
        await_true(lambda: said[-1] == "host a leads the pool")
        over.set()
        thread.join(60)
