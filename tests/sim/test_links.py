"""GPUs over the network, by two hosts with their daemons: commands of host ``a`` run on the GPUs of host ``b``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sim.test_run import PROGRAM, PROGRAM_AND_MORE
from tests.support.link_hosts import LinkHosts, end_listener, find_listener, two_hosts
from tests.support.run_host import MACHINE, PATIENCE_S, Host, read_line, wait_for
from vgpumgr.pool.store.interface import Delete, Transaction

pytestmark = pytest.mark.native

SHARE = "share:2GiB,25%"
PYTHON = ("--", sys.executable, "-c")


@pytest.fixture(scope="module")
def module_hosts() -> Iterator[LinkHosts]:
    with two_hosts() as hosts:
        yield hosts


@pytest.fixture
def hosts(module_hosts: LinkHosts) -> Iterator[LinkHosts]:
    """Nothing is left on either of them afterwards."""
    yield module_hosts
    for host in (module_hosts.a, module_hosts.b):
        for process in host.started:
            process.kill()
            process.communicate()
        host.started.clear()
        host.call("recover")
    wait_for(lambda: list_served(module_hosts) == [], "nothing is served any more")
    for claim in module_hosts.a.read("claim", "list")["claims"]:
        # after a daemon was killed another host leads some seconds later
        module_hosts.b.call("claim", "delete", claim["name"], code=None)
    wait_for(lambda: not module_hosts.a.read("claim", "list")["claims"], "the claims are gone")
    for host in (module_hosts.a, module_hosts.b):
        wait_for(lambda host=host: host.list_left() == {}, "nothing is left")  # type: ignore[misc]


def list_served(hosts: LinkHosts) -> list[dict[str, Any]]:
    """The channels of host ``b``."""
    found: list[dict[str, Any]] = hosts.b.read("virtio", "list")["channels"]
    return found


def make_claim(hosts: LinkHosts, name: str, *more: str) -> None:
    hosts.a.call("claim", "create", name, "--profile", SHARE, "--where", "b", *more)


def start(hosts: LinkHosts, claim: str, program: str = PROGRAM_AND_MORE) -> Any:
    """A command that has a GPU of ``b``, and waits."""
    process = hosts.a.start("run", "--claim", claim, *PYTHON, program)
    assert read_line(process) == "12345"
    return process


def finish(process: Any, *, code: int = 0) -> str:
    out, errors = process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == code, errors
    return str(out)


def test_a_command_computes_on_another_hosts_gpu(hosts: LinkHosts) -> None:
    make_claim(hosts, "train")
    process = start(hosts, "train")
    (channel,) = list_served(hosts)
    assert (channel["vm"], channel["profile"]) == ("train.a", SHARE)
    assert channel["run"]["command"].endswith(" of host a")
    assert channel["lanes"]
    assert channel["share"]["compute"] == 25
    used = hosts.b.read("claim", "show", "train")["claim"]["used_by"]
    assert (used["host"], used["kind"]) == ("a", "run")
    (here,) = hosts.a.read("virtio", "list")["channels"]
    assert (here["device"], here["gpu_host"]) == (None, "b")
    shown = hosts.a.read("virtio", "show", here["id"])["links"]
    assert [(one["state"], one["connections"]) for one in shown if one["name"]] == [("up", 1)]
    assert "GPU of        host b" in hosts.a.call("virtio", "show", here["id"]).stdout
    assert f"offered at {hosts.address}" in hosts.b.call("status").stdout
    assert finish(process) == "more\n"
    wait_for(lambda: list_served(hosts) == [], "what was served ends with the use")
    assert hosts.a.read("claim", "show", "train")["claim"]["used_by"] is None


def test_a_lease_that_is_bound_late_comes_from_another_host(hosts: LinkHosts) -> None:
    make_claim(hosts, "late", "--binding", "late")
    done = hosts.a.call("run", "--claim", "late", *PYTHON, PROGRAM)
    assert done.stdout == "12345\n"
    wait_for(
        lambda: hosts.a.read("claim", "show", "late")["claim"]["state"] == "idle", "it is idle"
    )


def test_programs_outlive_both_daemons_and_the_listener(hosts: LinkHosts) -> None:
    make_claim(hosts, "train")
    process = start(hosts, "train")
    for name in ("a", "b"):
        hosts.end_daemon(name, signal.SIGKILL)
    listener = find_listener(hosts.b)
    end_listener(hosts.b, signal.SIGKILL)
    for name in ("b", "a"):
        hosts.start_daemon(name)
    wait_for(lambda: find_listener(hosts.b) not in (None, listener), "another listener runs")
    assert len(list_served(hosts)) == 1
    assert finish(process) == "more\n"
    assert hosts.a.call("run", "--claim", "train", *PYTHON, PROGRAM).stdout == "12345\n"


def test_what_runs_ends_with_the_use_of_the_lease(hosts: LinkHosts) -> None:
    """As where host ``a`` was removed from the pool."""
    make_claim(hosts, "train")
    process = start(hosts, "train")
    (use,) = [key for key in list_keys(hosts) if key.startswith("p/use/")]
    assert use == "p/use/b/train"
    store = hosts.etcd.open()
    store.transact(Transaction((), (Delete(use),)))
    store.close()
    wait_for(lambda: list_served(hosts) == [], "nothing is served")
    out, errors = process.communicate("\n", timeout=PATIENCE_S)
    assert (process.returncode, out) != (0, "more\n"), errors


def list_keys(hosts: LinkHosts) -> list[str]:
    """All of the store."""
    store = hosts.etcd.open()
    try:
        return list(store.range("p/").entries)
    finally:
        store.close()


@contextmanager
def hold_connections(path: Path, uid: int, count: int = 200) -> Iterator[None]:
    """Another user's process that connects, says nothing, and stays."""
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setresuid(uid, uid, uid)
            held = [socket.socket(socket.AF_UNIX) for _ in range(count)]
            for sock in held:
                with contextlib.suppress(OSError):
                    sock.settimeout(PATIENCE_S)
                    sock.connect(str(path))
            os.write(ready[1], b"x")
            os.close(done[1])
            os.read(done[0], 1)
        finally:
            os._exit(0)
    os.close(ready[1])
    os.close(done[0])
    assert os.read(ready[0], 1) == b"x"
    try:
        yield
    finally:
        os.close(done[1])
        os.close(ready[0])
        os.waitpid(child, 0)


def ask_broker(host: Host, question: object, uid: int = 0) -> dict[str, Any]:
    """As another process of that host would."""
    path = host.root / MACHINE / "host" / "run" / "link" / "broker.sock"
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setresuid(uid, uid, uid)
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PATIENCE_S)
                sock.connect(str(path))
                sock.sendall(json.dumps(question).encode() + b"\n")
                os.write(writer, sock.recv(4096))
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        answer: dict[str, Any] = json.loads(file.read() or "{}")
        return answer


@pytest.mark.skipif(os.geteuid() != 0, reason="other users are needed")
def test_the_broker_answers_root_only_and_what_the_store_says(hosts: LinkHosts) -> None:
    make_claim(hosts, "train")
    process = start(hosts, "train")
    (here,) = hosts.a.read("virtio", "list")["channels"]
    good = {"host": "a", "claim": "train", "attachment": here["id"], "pid": 1, "name": "x"}
    assert ask_broker(hosts.b, {"link": good}) == {"ok": True}
    assert "only root" in ask_broker(hosts.b, {"link": good}, uid=1)["error"]
    for other in (
        {"host": "b"},
        {"host": "c"},
        {"claim": "other"},
        {"attachment": "x"},
        {"host": 1},
    ):
        assert "error" in ask_broker(hosts.b, {"link": good | other})
    questions: list[object] = [[], {}, {"link": []}, {"dial": "../x"}, {"dial": here["id"]}]
    for question in questions:
        assert "error" in ask_broker(hosts.b, question)
    assert "error" in ask_broker(hosts.a, {"dial": here["id"]}, uid=1)
    assert len(list_served(hosts)) == 1
    # connections of other users take no place, however many there are
    path = hosts.b.root / MACHINE / "host" / "run" / "link" / "broker.sock"
    with hold_connections(path, uid=1):
        assert ask_broker(hosts.b, {"link": good}) == {"ok": True}
    finish(process)


def test_an_identity_that_is_rotated_is_known_within_seconds(hosts: LinkHosts) -> None:
    make_claim(hosts, "train")
    process = start(hosts, "train")
    for host in (hosts.a, hosts.b):
        before = host.read("pool", "identity")["identity"]["fingerprint"]
        after = host.read("pool", "identity", "--rotate")["identity"]
        assert after["fingerprint"] != before
        name = after["host"]
        wait_for(lambda: read_ca(hosts, name) == after["ca"], "the pool has it")  # noqa: B023
    assert finish(process) == "more\n"
    peers = hosts.b.root / MACHINE / "host" / "run" / "link" / "peers"
    wait_for(lambda: (peers / "a.pem").read_text() == read_ca(hosts, "a"), "b knows it")
    assert hosts.a.call("run", "--claim", "train", *PYTHON, PROGRAM).stdout == "12345\n"


def read_ca(hosts: LinkHosts, name: str) -> str:
    """As the store has it."""
    store = hosts.etcd.open()
    try:
        entry = store.get(f"p/host/{name}")
        assert entry is not None
        return str(json.loads(entry.value).get("ca"))
    finally:
        store.close()


def test_where_nothing_is_offered_the_reason_is_said(hosts: LinkHosts) -> None:
    hosts.a.call("claim", "create", "mine", "--profile", SHARE, "--where", "a")
    done = hosts.b.call("run", "--claim", "mine", *PYTHON, PROGRAM, code=6)
    assert "which offers no GPUs over the network" in done.stderr
    assert "[link] listen in vgpumgr.toml of host a" in done.stderr
