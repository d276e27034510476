"""The web page's files, as the daemon serves them: those of the bundle, and no others."""

from __future__ import annotations

import json
import socket

import pytest

from tests.api.conftest import Daemon, needs_root
from tests.api.test_web import has_policy, page, run_web
from tests.support.api_daemon import ADMIN_GID, VIEWER_GID
from tests.support.browser import ASSETS, INDEX, PATIENCE_S, SECRET, Answer, receive
from tests.support.callers import make_request, send_as

__all__ = ["page"]


def ask_daemon(daemon: Daemon, data: bytes) -> Answer:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(daemon.socket))
        connection.sendall(data)
        return receive(connection)


def get_page(daemon: Daemon, target: str, method: str = "GET") -> Answer:
    return ask_daemon(daemon, make_request(method, target).encode("latin-1"))


def test_the_daemon_serves_the_files_of_the_bundle(page: Daemon) -> None:
    moved = get_page(page, "/ui")
    assert (moved.status, moved.headers["location"]) == (308, "/ui/")
    index = get_page(page, "/ui/")
    assert (index.status, index.body) == (200, INDEX)
    assert index.headers["cache-control"] == "no-cache"
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    for name, data in ASSETS.items():
        asset = get_page(page, f"/ui/assets/{name}")
        assert (asset.status, asset.body) == (200, data)
        assert "immutable" in asset.headers["cache-control"]
        assert has_policy(asset)
    assert has_policy(moved)
    assert has_policy(index)
    head = get_page(page, "/ui/", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(INDEX))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_the_page_is_only_read(page: Daemon, method: str) -> None:
    answer = get_page(page, "/ui/", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


TRICKS = [
    "/ui/assets/", "/ui/assets", "/ui//", "/ui/index.html", "/ui/cockpit.html", "/ui/secret.js",
    "/ui/assets/../secret.js", "/ui/assets/..%2fsecret.js", "/ui/assets/..%5csecret.js",
    "/ui/assets/%2e%2e/secret.js", "/ui/assets/../../secret.js", "/ui/../secret.js",
    "/ui/assets//app-1a2B_c.js", "/ui/assets/./app-1a2B_c.js", "/ui/assets/app-1a2B_c.js/",
    "/ui/assets/app-1a2B_c.js%00", "/ui/assets/app-1a2B_c.js%0a", "/ui/assets/app%2d1a2B_c.js",
    "/ui/assets/secret.js%00.js", "/ui/assets/.hidden.js", "/ui/assets/link.js",
    "/ui/assets/folder.js", "/ui/assets/secret.pem", "/ui/assets/app-1a2B_c", "/ui/assets/~root",
    "/UI/", "/ui%2f", "/%75i/", "/ui/assets/" + "a" * 5000 + ".js",
    "/ui/assets/app-1a2B_c.js;x", "/uix/", "/ui/1.0/gpus",
]  # fmt: skip


def test_no_trick_with_a_path_reaches_another_file(page: Daemon) -> None:
    for target in TRICKS:
        answer = get_page(page, target)
        assert (target, answer.status) == (target, 404)
        assert SECRET not in answer.body
        assert str(page.directory).encode() not in answer.body
    for target in (
        "/ui/assets/\xe4.js",
        "/ui/assets/app-1a2B_c.js\x00",
        "/ui/assets/app-1a2B_c.js\n",
    ):
        answer = get_page(page, target)
        assert answer.status == 400
        assert b"console" not in answer.body


def test_without_a_bundle_the_error_says_how_to_build_it(page: Daemon) -> None:
    web = page.directory / "web"
    web.rename(page.directory / "away")
    try:
        answer = get_page(page, "/ui/")
        assert answer.status == 404
        assert "./run setup" in json.loads(answer.body)["error"]["try"]
        done = run_web(page, "--port", "0")
        assert done.returncode == 5
        assert "./run setup" in done.stderr
        assert done.stdout == ""
    finally:
        (page.directory / "away").rename(web)


@needs_root
def test_a_viewer_sees_the_page_and_a_stranger_nothing(page: Daemon) -> None:
    asked = [make_request("GET", at) for at in ("/ui/", "/ui/assets/app-1a2B_c.js", "/ui")]
    assert [r.status for r in send_as(page.socket, 1234, [VIEWER_GID], asked)] == [200, 200, 308]
    replies = send_as(page.socket, 1234, [7], [*asked, make_request("GET", "/ui/assets/none.js")])
    assert [reply.status for reply in replies] == [403] * 4
    audit = make_request("GET", "/1.0/audit")
    assert send_as(page.socket, 1234, [VIEWER_GID], [audit])[0].status == 403
    (reply,) = send_as(page.socket, 1234, [ADMIN_GID], [audit])
    assert json.loads(reply.body)["entries"][0]["event"] == "operation"
