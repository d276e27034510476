"""Every route times six kinds of caller, on a real socket with real credentials."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.routing import Route as ServedRoute

from tests.api.conftest import ROOT, Daemon, needs_root
from tests.support.api_daemon import ADMIN_GID, VIEWER_GID
from vgpumgr.errors import AccessDeniedError
from vgpumgr.host.machine import Machine
from vgpumgr.host.sockets import Peer
from vgpumgr.model.routes import BY_OPERATION, ROUTES, SYSTEM_ROUTES, Kind, Role, Route
from vgpumgr.server import routes as rest
from vgpumgr.server.access import Access
from vgpumgr.server.audit import verify_audit
from vgpumgr.server.connections import Limits
from vgpumgr.server.routes import build_api
from vgpumgr.server.server import build_context
from vgpumgr.server.settings import LimitSettings
from vgpumgr.server.workers import WorkerPools

ALL = (*ROUTES, *SYSTEM_ROUTES)


@dataclass(frozen=True)
class Caller:
    """Who connects, and what that makes of him."""

    name: str
    uid: int
    groups: tuple[int, ...]
    role: Role
    headers: str = ""


FORGED = "X-Remote-User: root\r\nX-Forwarded-User: root\r\nAuthorization: Basic cm9vdDo=\r\nX-Role: admin\r\n"
CALLERS = (
    Caller("root", 0, (0,), Role.ROOT),
    Caller("administrator", 65533, (ADMIN_GID,), Role.ADMIN),
    Caller("viewer", 65533, (VIEWER_GID,), Role.VIEWER),
    Caller("other user", 65533, (100,), Role.NONE),
    Caller("unknown uid", 4_000_000_001, (4_000_000_001,), Role.NONE),
    Caller("forged headers", 65533, (100,), Role.NONE, FORGED),
)
SCRIPT = """
import json, os, socket, sys
path, uid, groups, headers, requests = json.loads(sys.argv[1])
os.setgroups(groups); os.setgid(4_000_000_002); os.setuid(uid)
for method, target in requests:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path); s.settimeout(60)
        s.sendall(f"{method} {target} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n{headers}"
                  "Content-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}".encode())
        print(s.recv(64).split()[1].decode(), flush=True)
"""


def target(route: Route) -> str:
    path = route.path.replace("{id}", "0123").replace("{selector}", "nobody")
    return re.sub(r"\{\w+\}", "none", path)


def ask_all(daemon: Daemon, caller: Caller) -> list[int]:
    requests = [(route.method, target(route)) for route in ALL]
    what = [str(daemon.socket), caller.uid, caller.groups, caller.headers, requests]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(what)],
        capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    return [int(line) for line in done.stdout.split()]


@needs_root
@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_every_route_for_every_caller(daemon: Daemon, caller: Caller) -> None:
    for route, status in zip(ALL, ask_all(daemon, caller), strict=True):
        if caller.role >= route.role:
            assert status not in (403, 500), (route, status)
        else:
            assert status == 403, (route, status)


def test_every_route_that_is_served_has_a_role(daemon: Daemon) -> None:
    """What FastAPI serves is what the table says; a route beside it would be open to viewers."""
    paths = daemon.get("/1.0/openapi.json")["paths"]
    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    table = {(r.method, r.path) for r in ALL if r.operation != "show_openapi"}
    assert served == table
    assert all(route.role in (Role.VIEWER, Role.ADMIN, Role.ROOT) for route in ALL)
    # a POST that only asks (a layout file is too long for a query) is a viewer's, as a GET is
    asking = {r for r in ALL if r.kind is Kind.READ and r.method in ("GET", "POST")}
    assert all(route.role >= Role.ADMIN for route in ALL if route not in asking)


def test_the_framework_serves_the_table_and_nothing_else() -> None:
    """Covers routes that the description omits: documentation pages, redirects, HEAD."""
    context: Any = None
    served = [
        (m, r.path)
        for r in build_api(context).routes
        if isinstance(r, ServedRoute)
        for m in r.methods or ()
    ]
    assert sorted(served) == sorted((route.method, route.path) for route in ALL)


async def call_without_gate(api: Any, route: Route, peer: Peer | None) -> int:
    """The status of a request that bypasses the gate."""
    statuses: list[int] = []
    messages = [
        {"type": "http.request", "body": b'{"gpu": "0", "enabled": true}', "more_body": False}
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": route.method, "scheme": "http",
        "path": target(route), "raw_path": target(route).encode(), "root_path": "", "query_string": b"", "headers": [],
        "state": {"peer": peer, "role": Role.ADMIN},
    }  # fmt: skip
    await api(scope, receive, send)
    return statuses[0]


def test_the_role_is_checked_where_the_operation_runs(tmp_path: Path) -> None:
    """A request that bypasses the gate is refused, and the audit log has it."""
    machine = Machine("fakes", tmp_path, tmp_path, tmp_path, "test:///default")
    opened: list[str] = []

    async def scene() -> None:
        limits = Limits(LimitSettings(), Access(frozenset({0}), ADMIN_GID, VIEWER_GID))
        metrics: Any = None
        pools = WorkerPools(lambda: nullcontext(cast(Any, opened.append("opened"))))
        api = build_api(context := build_context(machine, pools, limits, metrics))
        for route in ALL:
            assert await call_without_gate(api, route, None) == 403, route
            if route.role >= Role.ADMIN:
                viewer = Peer(1, 61040, frozenset({VIEWER_GID}))
                assert await call_without_gate(api, route, viewer) == 403, route
        context.refusals.close()
        pools.close()

    asyncio.run(scene())
    assert not opened
    assert "61040" in (tmp_path / "audit.jsonl").read_text()


def test_the_call_of_an_operation_checks_the_role() -> None:
    """Independent of the gate and the framework's routes. An operation without a row is refused to root too."""
    context: Any = SimpleNamespace(access=Access(frozenset({0}), ADMIN_GID, VIEWER_GID))
    calls: list[str] = []
    application: Any = SimpleNamespace(
        recover=lambda: calls.append("recover"), reboot=lambda: calls.append("reboot")
    )
    recover = BY_OPERATION["recover"]
    for peer in (None, Peer(1, 61041, frozenset({VIEWER_GID})), Peer(1, 61041, frozenset({100}))):
        with pytest.raises(AccessDeniedError):
            rest._call(context, application, recover, peer, {})
    undeclared = Route("POST", "/1.0/reboot", "reboot", Kind.LONG, Role.VIEWER, "Not in the table.")
    with pytest.raises(AccessDeniedError, match="no role is declared for reboot"):
        rest._call(context, application, undeclared, Peer(1, 0, frozenset()), {})
    assert not calls
    rest._call(context, application, recover, Peer(1, 0, frozenset()), {})
    assert calls == ["recover"]


@needs_root
def test_refusals_are_on_record_but_do_not_fill_the_log(daemon: Daemon) -> None:
    stranger = Caller("stranger", 64999, (100,), Role.NONE)
    for _ in range(3):
        assert set(ask_all(daemon, stranger)) == {403}
    log = daemon.directory / "audit.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    mine = [e for e in entries if e.get("uid") == 64999]
    assert [e["event"] for e in mine] == ["refused"]
    assert verify_audit(log) is None
    assert log.stat().st_mode & 0o777 == 0o600
    assert daemon.socket.stat().st_mode & 0o777 == 0o666


TOP_AS_VIEWER = """
import json, os, sys
from functools import partial
from contextlib import nullcontext
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.cli.top import _run_line
path, uid, groups = json.loads(sys.argv[1])
options = GlobalOptions()
backend = HttpBackend(partial(connect_unix, path), Streams(options))
session = Session(options, Streams(options), lambda _: nullcontext(backend))
lines = [["gpu", "drain"], ["detach"], ["virtio", "restart"]]
for step in ("root", "viewer"):
    if step == "viewer":  # what these import is loaded now: this user may not read it
        os.setgroups(groups); os.setgid(4_000_000_002); os.setuid(uid)
    ends = [_run_line(session, [*verb, option, "0"]) for verb in lines for option in ("--dry-run", "--yes")]
print(json.dumps([[end.code, end.text] for end in ends]))
print(json.dumps(sorted(backend.call("list_gpus"))))
"""


@needs_root
def test_a_viewer_sees_in_top_and_is_refused_by_the_daemon(daemon: Daemon) -> None:
    viewer = CALLERS[2]
    what = json.dumps([str(daemon.socket), viewer.uid, viewer.groups])
    done = subprocess.run(
        [sys.executable, "-c", TOP_AS_VIEWER, what],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    ends, seen = (json.loads(line) for line in done.stdout.splitlines())
    assert "gpus" in seen
    assert len(ends) == 6
    for code, text in ends:
        assert (code, AccessDeniedError.id in text) == (int(AccessDeniedError.exit_code), True), (
            text
        )
