"""Every route times six kinds of caller, on a real socket with real credentials."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.api.conftest import Daemon, needs_root
from tests.support.api_daemon import ADMIN_GID, VIEWER_GID
from vgpumgr.daemon.audit import verify_audit
from vgpumgr.model.routes import ROUTES, SYSTEM_ROUTES, Kind, Role, Route

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
    Caller("root", 0, (0,), Role.ADMIN),
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
    return (
        route.path.replace("{id}", "0123").replace("{selector}", "nobody").replace("{vm}", "none")
    )


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
    assert all(route.role in (Role.VIEWER, Role.ADMIN) for route in ALL)
    # a POST that only asks (a layout file is too long for a query) is a viewer's, as a GET is
    asking = {r for r in ALL if r.kind is Kind.READ and r.method in ("GET", "POST")}
    assert all(route.role is Role.ADMIN for route in ALL if route not in asking)


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
