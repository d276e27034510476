"""The pool by the API: what the command line prints, for viewers, and no other request waits for its store."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.api.conftest import ROOT, Daemon, make_daemon, needs_root
from tests.api.test_access_matrix import CALLERS
from tests.api.test_pool import SHARE, ask, await_true, choose, leave, make_pool, serves
from tests.support.callers import make_request, send_as
from vgpumgr.host.machine import find_machine
from vgpumgr.model.routes import POOL, SYSTEM_ROUTES, Role
from vgpumgr.pool.membership import Membership, open_pool, write_membership
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.store.gateway import Endpoints

PATHS = [
    route.path.replace("{claim}", "train")
    .replace("{tenant}", "vision")
    .replace("{reservation}", "course")
    for route in SYSTEM_ROUTES
    if route.path.startswith(POOL) and route.method == "GET"
]
#: the path with the words of the command line that print the same
COMMANDS = {
    "": "pool status",
    "/claims": "claim list",
    "/claims/train": "claim show train",
    "/claims/train/explain": "claim explain train",
    "/tenants": "tenant list",
    "/tenants/vision": "tenant show vision",
    "/classes": "pool class list",
    "/reservations": "reservation list",
    "/reservations/course": "reservation show course",
}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    for daemon in make_daemon():
        choose(daemon, monkeypatch)
        yield daemon


def print_json(words: str) -> Any:
    """What a command prints on the machine that this process has chosen."""
    done = subprocess.run(
        [sys.executable, "-m", "vgpumgr", *words.split(), "-o", "json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def refuse(daemon: Daemon, path: str) -> tuple[int, dict[str, Any]]:
    answer = daemon.client.request("GET", path)
    return answer.status, json.loads(answer.body).get("error", {})


def test_each_route_says_what_its_command_prints(daemon: Daemon) -> None:
    assert daemon.get("/1.0")["pool"] is False
    for path in PATHS:
        status, error = refuse(daemon, path)
        assert (status, error["id"]) == (404, "VG378"), path
        assert error["try"].startswith("vgpumgr pool init")
    make_pool(daemon)
    assert daemon.get("/1.0")["pool"] is True
    await_true(lambda: serves(daemon))
    with open_pool(None) as pool:
        for name, quota in (("vision", 500), ("batch", None)):
            PoolOperations(pool).tenants.create(name, quota, 0, 1)
        PoolOperations(pool).reservations.create(
            "course", "2099-01-01T08:00", "2099-01-01T12:00", SHARE, 1, tenant="vision"
        )
    assert ask("create", "train", "default", SHARE, 1, "keep", "vision")["state"] == "granted"
    assert ask("create", "more", "default", SHARE, 1, "keep", "vision")["state"] == "waiting"
    await_true(lambda: len(daemon.get(f"{POOL}/claims")["claims"]) == 2)
    for path, words in COMMANDS.items():
        await_true(partial(same, daemon, path, words))
    found = daemon.get(POOL)
    assert daemon.get(f"{POOL}/hosts")["hosts"] == found["hosts"]
    assert found["claims"] == {"granted": 1, "waiting": 1, "ending": 0, "idle": 0}
    assert ask("measure") == {
        "gpu_allocated_milli": found["gpu_allocated_milli"],
        "gpu_free_milli": found["gpu_free_milli"],
        "gpu_unusable_ratio": found["gpu_unusable_milli"] / found["gpus"] / 1000,
        "claims_waiting": 1,
    }
    assert found["gpu_allocated_milli"] + found["gpu_free_milli"] == found["gpus"] * 1000
    assert refuse(daemon, f"{POOL}/claims/trian")[1]["id"] == "VG383"
    assert "did you mean train" in str(refuse(daemon, f"{POOL}/claims/trian")[1])
    assert refuse(daemon, f"{POOL}/tenants/none")[0] == 404
    for name in ("more", "train"):
        ask("delete", name)
    daemon.get(POOL)
    assert leave() == "a"
    assert refuse(daemon, POOL)[1]["id"] == "VG378"


def same(daemon: Daemon, path: str, words: str) -> bool:
    """The store's revision moves with each heartbeat's round: two that differ in it alone are the same."""
    mine, printed = daemon.get(f"{POOL}{path}"), print_json(words)
    for one in (mine, printed):
        one.get("pool", {}).pop("revision", None)
    return bool(mine == printed)


@needs_root
def test_viewers_read_it_and_strangers_do_not(daemon: Daemon) -> None:
    make_pool(daemon)
    ask("create", "train", "default", SHARE, 1, "keep")
    await_true(lambda: daemon.get(f"{POOL}/claims")["claims"])
    requests = [make_request("GET", path) for path in PATHS]
    for role, expected in ((Role.VIEWER, 200), (Role.NONE, 403)):
        replies = send_as(daemon.socket, *CALLERS[role], requests)
        # the pool has neither a tenant nor a reservation
        found = {
            reply.status
            for path, reply in zip(PATHS, replies, strict=True)
            if "tenants/" not in path and "reservations/" not in path
        }
        assert found == {expected}


@dataclass
class Silence:
    """Servers that take connections and never answer: members of an etcd that hang."""

    urls: tuple[str, ...]
    connections: list[socket.socket]


@pytest.fixture
def silence() -> Iterator[Silence]:
    found = Silence((), [])
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]

    def take(listener: socket.socket) -> None:
        try:
            while True:
                found.connections.append(listener.accept()[0])
        except OSError:
            return

    for listener in listeners:
        threading.Thread(target=take, args=(listener,), daemon=True).start()
    found.urls = tuple(f"http://127.0.0.1:{one.getsockname()[1]}" for one in listeners)
    yield found
    for one in (*listeners, *found.connections):
        one.close()


def await_recovery(daemon: Daemon) -> None:
    """The one at the daemon's start asks the store, too."""
    await_true(lambda: daemon.get("/1.0/operations")["operations"][0]["status"] == "succeeded")


def test_a_store_that_hangs_holds_up_no_other_request(
    silence: Silence, monkeypatch: pytest.MonkeyPatch
) -> None:
    for daemon in make_daemon(settings="[pool]\nserve = false\n[history]\nkeep = false\n"):
        choose(daemon, monkeypatch)
        await_recovery(daemon)
        etcd = Endpoints(silence.urls, timeout_s=600)
        write_membership(find_machine(None), Membership("m", etcd, "a", "p"))
        ended: list[int] = []
        with ThreadPoolExecutor(len(PATHS)) as pool:
            asked = [pool.submit(refuse, daemon, path) for path in PATHS]
            await_true(lambda: silence.connections)
            # more than the daemon has threads for reads wait for the store now
            for _ in range(3):
                answer = daemon.client.request("GET", "/1.0/gpus?unshared=1")
                assert answer.document()["gpus"]
                ended.append(sum(one.done() for one in asked))
            found = [one.result() for one in asked]
        assert ended == [0, 0, 0]
        assert {(status, error["id"]) for status, error in found} == {(503, "VG373")}
        # one read for all: it asks each member once
        assert len(silence.connections) <= len(silence.urls)


def test_the_audit_log_has_commands_of_administrators_alone(daemon: Daemon) -> None:
    path = f"{POOL}/commands"
    words = {"words": ["claim", "delete", "train"]}
    for role, expected in ((Role.VIEWER, 403), (Role.NONE, 403), (Role.ADMIN, 200)):
        (reply,) = send_as(
            daemon.socket, *CALLERS[role], [make_request("POST", path, json.dumps(words))]
        )
        assert reply.status == expected, role
    bad: list[Any] = [
        {}, {"words": []}, {"words": "x"}, {"words": [1]}, {"words": ["x" * 513]}, {"words": ["x"] * 65},
        {**words, "uid": 0}, {**words, "event": "operation"}, [], None,
    ]  # fmt: skip
    for body in bad:
        (reply,) = send_as(
            daemon.socket, *CALLERS[Role.ADMIN], [make_request("POST", path, json.dumps(body))]
        )
        assert reply.status == 400, body
    entries = daemon.get("/1.0/audit?limit=1000")["entries"]
    recorded = [entry for entry in entries if entry["event"] == "pool-command"]
    assert [(one["uid"], one["words"]) for one in recorded] == [
        (CALLERS[Role.ADMIN][0], words["words"])
    ]
