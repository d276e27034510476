"""Every route times methods, roles and forms of a request: a caller without the role changes nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.api.conftest import ROOT, Daemon, make_daemon, needs_root
from tests.support.api_daemon import ADMIN_GID, VIEWER_GID
from tests.support.callers import Reply, make_request, send_as
from vgpumgr.model.routes import ROUTES, SYSTEM_ROUTES, Role, Route

pytestmark = needs_root
ALL = (*ROUTES, *SYSTEM_ROUTES)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "post")
LAYOUT = {
    "text": (
        "version: v1\nmig-configs:\n  x:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {1g.10gb: 2}\n"
    ),
    "source": "x",
}
UUID = "11111111-1111-4111-8111-111111111111"
#: valid bodies: an administrator changes the machine with them
BODIES: dict[str, dict[str, object]] = {
    "attach": {"vm": "vm01", "profile": "1g.10gb"},
    "drain_gpu": {"reason": "fan"},
    "bind_claim": {"pid": 1},
    "record_pool_command": {"words": ["claim", "delete", "train"]},
    "start_run": {"name": "one", "command": "true", "profile": "1g.10gb", "pid": 1},
    "apply_layout": {**LAYOUT, "allow": []},
    "restore_mig": LAYOUT,
    "plan_layout": LAYOUT,
    "assert_layout": LAYOUT,
    "create_mig": {"gpu": "1", "profile": "1g.10gb"},
    "destroy_mig": {"gpus": ["1"]},
    "set_mig_mode": {"gpu": "0", "enabled": True},
    "restore": {"timeout_s": 1},
    "bind_pci": {"selector": "0000:01:00.0", "confirmed": True},
    "unbind_pci": {"selector": "0000:01:00.0", "confirmed": True},
    "enable_vfs": {"selector": "0000:01:00.0", "count": 1, "confirmed": True},
    "disable_vfs": {"selector": "0000:01:00.0"},
    "create_vgpu": {"type": "GRID A100-4C", "define": True},
    "define_vgpu": {"type": "GRID A100-4C"},
}
CALLERS = {
    Role.VIEWER: (65533, [VIEWER_GID]),
    Role.NONE: (65533, [100]),
    Role.ADMIN: (65532, [ADMIN_GID]),
}


@pytest.fixture(scope="module")
def victim() -> Iterator[Daemon]:
    """A daemon whose machine must stay as it is."""
    yield from make_daemon()


def fill(route: Route) -> str:
    path = route.path.replace("{id}", "0123456789abcdef").replace("{vgpu}", UUID)
    selector = "0" if "/gpus/" in path else "vm01"
    return (
        path.replace("{selector}", selector)
        .replace("{vm}", "vm01")
        .replace("{claim}", "train")
        .replace("{tenant}", "vision")
        .replace("{reservation}", "course")
    )


def list_paths(path: str) -> list[str]:
    """Non-canonical forms of a path."""
    first, last = path.rsplit("/", 1)
    inner = path.replace("/1.0/", "/1.0//", 1)
    return [
        *(path + end for end in ("%0A", "%0a", "%0D", "%0D%0A", "%00", "%20", "%0A%0A", "%0B", "%C2%85", "%E2%80%A8")),
        *(path + end for end in ("/", "//", "%2F", "/.", "/%2e", "/%2e%2e", "/..", ";", ";a=b", "%3B", "#x", "%23x")),
        f"{first}%2F{last}", f"{first}//{last}", f"{first}/./{last}", f"{first}/x/../{last}", f"{first}/%2e/{last}",
        f"{first}/x/%2e%2e/{last}", f"{first}/x/..%2f{last}", f"{first}\\{last}", f"{first}%5C{last}",
        f"{first}/%{ord(last[0]):02x}{last[1:]}", f"{first}/%25{ord(last[0]):02x}{last[1:]}", f"{first}/{last.upper()}",
        "/" + path, inner, path.upper(), path.title(), f"/x/..{path}", f"/%2e{path}", path[1:], f"*{path}",
        f"http://vgpumgr{path}", f"http://vgpumgr{path}%0A", f"http:{path}", f"//vgpumgr{path}", f"@{path}",
        f"{path}%0A?x=1", f"{path}%3Fx=1", path.replace("/1.0", "/1%2E0", 1), path.replace("/1.0", "/1.0/1.0", 1),
        path.replace("/1.0", "", 1), path.replace("/1.0", "/1", 1),
    ]  # fmt: skip


def list_tricks(route: Route, path: str, body: str) -> Iterator[str]:
    """The canonical path, with headers or a body that could turn the request into another one."""
    chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    typed = "Content-Type: application/json\r\n"
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        yield make_request("POST", path, body, f"{name}: {route.method}\r\n")
        yield make_request("GET", path, body, f"{name}: {route.method}\r\n")
        yield make_request(
            "POST", "/1.0", body, f"{name}: {route.method}\r\nX-Original-URL: {path}\r\n"
        )
    for name in (
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Forwarded-Uri",
        "X-Forwarded-Prefix",
        "Content-Location",
    ):
        yield make_request("POST", "/1.0/mig/layout/plan", body, f"{name}: {path}\r\n")
    for query in (
        f"_method={route.method}",
        "_method=GET",
        "method=POST",
        "role=admin&uid=0",
        "dry_run=true",
        "%0A",
    ):
        yield make_request(route.method, f"{path}?{query}", body)
        yield make_request("GET", f"{path}?{query}", body)
    for kind in (
        "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml",
        "application/json; charset=utf-16", "application/json, text/plain",
    ):  # fmt: skip
        for data in (body, "_method=" + route.method):
            yield make_request(
                "POST", path, data, f"Content-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
            )
    yield make_request(route.method, path, "", f"{typed}Transfer-Encoding: chunked\r\n") + chunked
    yield make_request(route.method, path, body, "Transfer-Encoding: chunked\r\n")
    yield make_request(route.method, path, body, "Content-Length: 0\r\n")
    yield make_request(route.method, path, body, "Host: vgpumgr\r\n")
    yield make_request(
        route.method,
        path,
        body,
        "If-Match: *\r\nIf-Match: *\r\nPrefer: wait=1\r\nPrefer: wait=2\r\n",
    )
    yield make_request(route.method, path, body, "Expect: 100-continue\r\n")
    yield make_request(route.method, path, body, "Upgrade: h2c\r\nHTTP2-Settings: AA\r\n")
    yield make_request(route.method, path, body, "Upgrade: websocket\r\nConnection: upgrade\r\n")
    yield make_request(
        route.method, path, body, "X-Remote-User: root\r\nX-Role: admin\r\nX-Forwarded-For: ::1\r\n"
    )
    yield make_request(route.method, path, body).replace("HTTP/1.1", "HTTP/1.0")
    # a request hidden behind another one on the same connection, and in its body
    hidden = make_request(route.method, path, body)
    yield make_request("GET", "/1.0", "").replace("Connection: close\r\n", "") + hidden
    yield make_request("GET", "/1.0", hidden)
    yield make_request("POST", "/1.0/mig/layout/plan", hidden, "Transfer-Encoding: chunked\r\n")


def list_requests(route: Route) -> list[str]:
    path, body = fill(route), json.dumps(BODIES.get(route.operation, {}))
    found = [make_request(method, path, body) for method in METHODS if method != route.method]
    if route.role is Role.ADMIN:
        found.append(make_request(route.method, path, body))
    for method in {"GET", "POST", route.method}:
        found += [make_request(method, other, body) for other in list_paths(path)]
    return [*found, *list_tricks(route, path, body)] if route.role is Role.ADMIN else found


def read_state(daemon: Daemon) -> dict[str, object]:
    """The machine as an administrator sees it, and what others have asked of the daemon: it also works by itself."""
    paths = (
        "gpus", "mig/instances", "vms", "channels", "passthrough/functions", "vfs", "vgpus", "diff",
        "mig/layout/export?dialect=parted&label=x&placements=true",
    )  # fmt: skip
    asked = daemon.get("/1.0/operations")["operations"]
    return {path: daemon.get(f"/1.0/{path}") for path in paths} | {
        "operations": [operation for operation in asked if operation["uid"] != os.geteuid()]
    }


@pytest.mark.parametrize("role", [Role.VIEWER, Role.NONE], ids=["viewer", "nobody"])
def test_a_caller_without_the_role_changes_nothing(victim: Daemon, role: Role) -> None:
    before = read_state(victim)
    for route in ALL:
        requests = list_requests(route)
        replies = send_as(victim.socket, *CALLERS[role], requests)
        for request, reply in zip(requests, replies, strict=True):
            check_reply(route, role, request, reply)
    assert read_state(victim) == before


def check_reply(route: Route, role: Role, request: str, reply: Reply) -> None:
    """Refused with our envelope, or an answer that the role may have."""
    what = (route.operation, request.partition("\r\n")[0], request, reply)
    assert reply.status not in (0, 202), what
    assert reply.status < 500, what
    if role is Role.NONE:
        assert reply.status in (400, 403), what
    if reply.status >= 400 and not request.startswith("HEAD"):
        error = json.loads(reply.body)
        assert error["schema"] == "vgpumgr/v1", what
        assert error["error"]["error"], what


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN], ids=["viewer", "administrator"])
def test_only_canonical_paths_are_routes(victim: Daemon, role: Role) -> None:
    """Also for administrators: two readings of one path are a vulnerability."""
    before = read_state(victim)
    for route in ALL:
        path = fill(route)
        # a name may have a semicolon or a blank: there they make another VM
        named = "{" in route.path.rsplit("/", 1)[1]
        ends = (
            ";",
            ";a=b",
            "%3B",
            "%20",
            "%C2%85",
            "%E2%80%A8",
            "%5C",
            "%23x",
            "%3Fx=1",
            "%25",
            "#x",
        )
        others = [
            other for other in list_paths(path)
            if other != path and not (
                named and (any(end in other for end in ends) or other.rsplit("/", 1)[0] == path.rsplit("/", 1)[0]))
        ]  # fmt: skip
        requests = [
            make_request(route.method, other, json.dumps(BODIES.get(route.operation, {})))
            for other in others
        ]
        for other, reply in zip(
            others, send_as(victim.socket, *CALLERS[role], requests), strict=True
        ):
            assert reply.status in (400, 404, 405), (route.operation, other, reply)
    assert read_state(victim) == before


def test_the_same_requests_change_the_machine_for_an_administrator(daemon: Daemon) -> None:
    """Proves that the bodies of the matrix are valid."""
    for operation in ("set_mig_mode", "attach", "recover", "apply_layout"):
        (route,) = (route for route in ALL if route.operation == operation)
        body = json.dumps(BODIES.get(operation, {}))
        (reply,) = send_as(
            daemon.socket, *CALLERS[Role.ADMIN], [make_request("POST", route.path, body)]
        )
        assert reply.status == 202, reply
        operation_id = json.loads(reply.body)["operation"]["id"]
        assert daemon.client.wait_operation(operation_id)["status"] == "succeeded"


def test_a_viewer_cannot_cancel_an_operation(slow_daemon: Daemon) -> None:
    begun = slow_daemon.post("/1.0/attachments", BODIES["attach"]).document()["operation"]
    path = f"/1.0/operations/{begun['id']}"
    requests = [
        make_request("DELETE", path), make_request("DELETE", f"{path}%0A"), make_request("DELETE", f"{path[:-8]}"),
        make_request("POST", path, "", "X-HTTP-Method-Override: DELETE\r\n"),
        make_request("GET", f"{path}?_method=DELETE"), make_request("POST", f"{path}/cancel"),
    ]  # fmt: skip
    replies = send_as(slow_daemon.socket, *CALLERS[Role.VIEWER], requests)
    assert [reply.status for reply in replies] == [403, 404, 403, 405, 200, 404]
    assert slow_daemon.client.wait_operation(begun["id"])["status"] == "succeeded"


def test_a_viewer_cannot_read_the_body_of_a_request(daemon: Daemon) -> None:
    """A body may hold secrets such as attributes of drivers; only the audit log of root has it."""
    secret = "attribute=hunter2"
    asked = {"type": "GRID A100-4C", "attributes": [secret]}
    operation = daemon.post("/1.0/vgpus", asked).document()["operation"]
    daemon.client.wait_operation(operation["id"])
    paths = ("/1.0/operations", f"/1.0/operations/{operation['id']}", f"/1.0/operations/{operation['id']}/wait",
             "/1.0/metrics", "/1.0/status", "/1.0/vgpus")  # fmt: skip
    replies = send_as(
        daemon.socket, *CALLERS[Role.VIEWER], [make_request("GET", path) for path in paths]
    )
    assert [reply.status for reply in replies] == [200] * len(paths)
    assert all("hunter2" not in reply.body for reply in replies)
    log = daemon.directory / "audit.jsonl"
    assert "hunter2" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_api_command_is_refused_too(daemon: Daemon) -> None:
    """``vgpumgr api`` sends any path as it is typed."""
    before = read_state(daemon)
    # the other user may not be able to read the interpreter's files, so all of them are loaded before
    work = (
        "import os, pkgutil, subprocess, sys; from importlib import import_module; import vgpumgr.cli as cli;"
        "[import_module(f'vgpumgr.cli.{found.name}') for found in pkgutil.iter_modules(cli.__path__)];"
        "from vgpumgr.cli.main import main; gid = int(sys.argv.pop(1)); asked = sys.argv[:];"
        "sys.argv[3:] = ['/1.0/nothing']; main(); sys.argv[:] = asked; print('asked', file=sys.stderr);"
        "os.setgroups([gid]); os.setgid(gid); os.setuid(65533); sys.exit(main())"
    )
    for path in (
        "/1.0/mig/mode",
        "/1.0/mig/mode%0A",
        "/1.0/mig/mode\n",
        "//1.0/mig/mode",
        "/1.0/MIG/mode",
    ):
        done = subprocess.run(
            [sys.executable, "-c", work, str(VIEWER_GID), "api", "POST", path,
             "--data", '{"gpu": "0", "enabled": true}'],
            cwd=ROOT, env={**os.environ, "VGPUMGR_RUN_DIR": str(daemon.directory), "VGPUMGR_MACHINE": ""},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (2, 4, 5), (path, done)
        told = done.stderr.partition("asked\n")[2]
        assert re.search(r"VG(353|354|100)", told), (path, done)
        assert "Traceback" not in told, (path, done)
    assert read_state(daemon) == before
