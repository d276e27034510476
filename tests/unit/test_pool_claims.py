"""A pool from the command line: ``pool init|join|status|serve`` and ``claim``, on SQLite and on a real etcd."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import A100, make_gpu
from tests.support.cli import Cli, Result
from tests.support.etcd import Etcd
from tests.support.fake_nvml import FakeNvml
from vgpumgr.pool.control.records import VERSION
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.store.interface import Put, Transaction


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A host with two GPUs, whose state is a directory of the test."""
    use_machine(tmp_path / "a", monkeypatch)
    return Cli(FakeNvml([make_gpu(A100, 0, None), make_gpu(A100, 1, None)]), tmp_path)


def use_machine(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commands are those of another machine."""
    directory.mkdir(exist_ok=True)
    monkeypatch.setenv("VGPUMGR_SIM", str(directory))
    monkeypatch.setenv("VGPUMGR_STATE_DIR", str(directory / "state"))
    monkeypatch.setenv("VGPUMGR_RUN_DIR", str(directory / "run"))


@contextmanager
def serving() -> Iterator[list[str]]:
    """``pool serve`` of this machine, in a thread; what it reports."""
    is_over, said, failed = threading.Event(), list[str](), list[BaseException]()

    def serve() -> None:
        try:
            with open_pool(None) as pool:
                pool.serve(is_over.is_set, said.append)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        await_true(lambda: bool(said or failed))
        yield said
    finally:
        is_over.set()
        wake()
        thread.join(30)
    assert not failed


def wake() -> None:
    """Any change of the pool does."""
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Put("p/test", ""),)))


def await_true(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def ok(result: Result) -> Any:
    """The document of a command that has done what was asked for."""
    assert result.code == 0, result.err
    return json.loads(result.out)


def refused(result: Result, number: str, code: int) -> dict[str, Any]:
    """The error of one that has not."""
    assert result.code == code, result.err
    error: dict[str, Any] = json.loads(result.err)["error"]
    assert error["id"] == number
    return error


def find_host(one: Any) -> str | None:
    """Where the lease of a claim is."""
    return one["lease"] and one["lease"]["host"]


def is_on(cli: Cli, name: str, host: str) -> bool:
    return find_host(ok(cli.run("claim", "show", name, "-o", "json"))["claim"]) == host


def make_pool(cli: Cli, *words: str) -> None:
    ok(cli.run("pool", "init", *words, "-o", "json"))
    assert ok(cli.run("pool", "join", "--name", "a", "-o", "json"))["gpus"] == 2


def claim(cli: Cli, name: str, profile: str, *words: str) -> Any:
    return ok(cli.run("claim", "create", name, "--profile", profile, *words, "-o", "json"))["claim"]


def test_claims_of_one_host(cli: Cli) -> None:
    make_pool(cli)
    first = claim(cli, "early", "whole")
    assert (first["state"], first["place"], first["lease"]) == ("waiting", 1, None)
    assert first["why"] == "no host of the pool with GPUs is ready"
    with serving() as said:
        assert said == ["host a leads the pool"]
        assert cli.run("pool", "serve").code == 6  # one process of a host does
        await_true(lambda: is_on(cli, "early", "a"))
        share = claim(cli, "train", "share:8GiB,30%")
        assert (share["state"], share["lease"]["gpu_milli"]) == ("granted", 300)
        assert len(share["lease"]["gpu_uuids"]) == 1
        # both GPUs are used: it waits, and says why
        large = claim(cli, "large", "whole")
        assert (large["state"], large["place"], large["lease"]) == ("waiting", 1, None)
        assert large["why"] == "all are in use: 0 GPUs of 2 idle, and the claim needs 1"
        # another share of the same GPU fits; then the first gets more, as long as that fits
        second = claim(cli, "second", "share:40GiB,10%")
        assert second["lease"]["gpu_indices"] == share["lease"]["gpu_indices"]
        words = ("claim", "resize", "train", "-o", "json", "--profile")
        grown = ok(cli.run(*words, "share:8GiB,50%"))["claim"]
        assert (grown["lease"]["gpu_milli"], grown["why"]) == (500, None)
        assert grown["lease"]["token"] > share["lease"]["token"]
        kept = ok(cli.run(*words, "share:8GiB,60%"))["claim"]
        assert (kept["lease"]["gpu_milli"], kept["compute_percent"]) == (500, 60)
        assert "it keeps what it has" in kept["why"]
        status = ok(cli.run("pool", "status", "-o", "json"))
        assert status["claims"] == {"granted": 3, "waiting": 1, "ending": 0, "idle": 0}
        assert [gpu["free_milli"] for gpu in status["hosts"][0]["gpus"]] == [0, 0]
        assert (status["leader"], status["hosts"][0]["state"]) == ("a", "ready")
        assert ok(cli.run("claim", "delete", "early", "-o", "json"))["deleted"]
        await_true(lambda: is_on(cli, "large", "a"))
        assert cli.run("claim", "list", "-o", "name").out.split() == ["train", "large", "second"]
    # without a host that serves, a lease stays until its host has ended what runs
    result = cli.run("claim", "delete", "large", "-o", "json")
    assert result.code == 8
    assert not json.loads(result.out)["deleted"]
    with serving():
        await_true(lambda: cli.run("claim", "show", "large").code == 5)


def test_what_people_read(cli: Cli) -> None:
    make_pool(cli)
    with serving():
        assert cli.run("claim", "create", "train", "--profile", "share:8GiB,30%").code == 0
        shown = cli.run("claim", "show", "train").out
        assert shown.startswith("claim train\n")
        assert "8 GiB" in shown
        table = cli.run("claim", "list", terminal=True).out.splitlines()
        assert table[0].split()[:2] == ["NAME", "STATE"]
        assert table[1].split()[:2] == ["train", "granted"]
        result = cli.run("pool", "status", terminal=True)
        assert result.out.splitlines()[1].split()[:2] == ["a", "ready"]
        assert result.err == "1.7 of 2 GPUs free; claims: 1 granted; leader: a\n"


@pytest.mark.parametrize("words", ["status", "join --name a", "serve"])
def test_without_a_pool_every_command_says_so(cli: Cli, words: str) -> None:
    result = cli.run("pool", *words.split())
    assert result.code == 5
    assert "vgpumgr pool init" in result.err
    assert cli.run("claim", "list").code == 5


def test_a_host_that_did_not_join_cannot_serve(cli: Cli) -> None:
    ok(cli.run("pool", "init", "-o", "json"))
    result = cli.run("pool", "serve")
    assert result.code == 6
    assert "vgpumgr pool join" in result.err


def test_joining_again_changes_nothing_or_what_has_changed(cli: Cli) -> None:
    make_pool(cli)
    before = ok(cli.run("pool", "status", "-o", "json"))
    make = cli.run("pool", "join", "-o", "json")
    assert ok(make)["gpus"] == 2
    assert ok(cli.run("pool", "status", "-o", "json"))["hosts"] == before["hosts"]
    cli.nvml = FakeNvml([make_gpu(A100, 0, None)])
    assert ok(cli.run("pool", "join", "--name", "a", "-o", "json"))["gpus"] == 1
    assert ok(cli.run("pool", "status", "-o", "json"))["gpus"] == 1


def test_a_pool_of_another_version_is_refused_by_name(cli: Cli) -> None:
    make_pool(cli)
    with open_pool(None) as pool:
        entry = pool.store.get("p/pool")
        assert entry is not None
        text = entry.value.replace(f'"version":{VERSION}', f'"version":{VERSION + 1}')
        pool.store.transact(Transaction((), (Put("p/pool", text),)))
    error = refused(cli.run("pool", "status", "-o", "json"), "VG382", 7)
    assert f"version {VERSION + 1}" in error["error"]


def test_files_that_cannot_be_read_are_one_clear_error(cli: Cli, tmp_path: Path) -> None:
    make_pool(cli)
    path = tmp_path / "a/state/pool.json"
    good = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("{")
    refused(cli.run("pool", "status", "-o", "json"), "VG373", 1)
    path.write_text(good)
    with open_pool(None) as pool:
        pool.store.transact(Transaction((), (Put("p/claim/x", "{}"),)))
    error = refused(cli.run("claim", "list", "-o", "json"), "VG373", 1)
    assert "p/claim/x" in error["error"]


def test_two_machines_share_an_etcd(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etcd").mkdir()
    with Etcd(tmp_path / "etcd").running() as etcd:
        url = etcd.urls[0]
        make_pool(cli, "--etcd", url)
        with serving():
            use_machine(tmp_path / "b", monkeypatch)
            error = refused(cli.run("pool", "init", "--etcd", url, "-o", "json"), "VG379", 6)
            assert error["held_by"] == [url]
            error = refused(
                cli.run("pool", "join", "--etcd", url, "--name", "a", "-o", "json"), "VG377", 6
            )
            assert "another machine is host a" in error["error"]
            ok(cli.run("pool", "join", "--etcd", url, "--name", "b", "-o", "json"))
            claims = [claim(cli, f"c{n}", "whole") for n in range(3)]
            assert list(map(find_host, claims)) == ["a", "a", None]
            with serving() as said:
                await_true(lambda: is_on(cli, "c2", "b"))
                assert said == ["host b is heard; another host leads the pool"]
                etcd.members[0].kill()
                await_true(lambda: "goes on without the store" in said[-1])
                error = refused(cli.run("pool", "status", "-o", "json"), "VG373", 1)
                assert "does not answer" in error["error"]
                etcd.members[0].start()
                etcd.await_leader()
                await_true(lambda: "goes on" not in said[-1])
                status = ok(cli.run("pool", "status", "-o", "json"))
                assert status["claims"]["granted"] == 3
                assert status["pool"]["engine"] == "etcd"


def test_a_join_that_failed_can_be_tried_again(cli: Cli, tmp_path: Path) -> None:
    directory = tmp_path / "etcd"
    directory.mkdir()
    words = ("pool", "join", "--name", "a", "-o", "json", "--etcd")
    refused(cli.run(*words, "http://127.0.0.1:1"), "VG373", 1)
    refused(cli.run("pool", "status", "-o", "json"), "VG378", 5)
    with Etcd(directory).running() as etcd:
        refused(cli.run(*words, etcd.urls[0]), "VG378", 5)
        ok(cli.run("pool", "init", "--etcd", etcd.urls[0], "-o", "json"))
        assert ok(cli.run(*words, etcd.urls[0]))["gpus"] == 2
        assert ok(cli.run(*words, etcd.urls[0]))["gpus"] == 2
