"""The web page from outside: files of the bundle and no others, and a gateway that lets one browser in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.api.conftest import ROOT, Daemon, make_daemon, needs_root
from tests.support.browser import (
    INDEX,
    PATIENCE_S,
    Answer,
    Browser,
    Served,
    Stream,
    find_token,
    receive,
    serving,
    write_bundle,
)
from tests.support.clock import FakeClock
from vgpumgr.cli.gateway import server as gateway_module
from vgpumgr.cli.gateway.gate import MAX_WRONG
from vgpumgr.model.page import SECURITY_HEADERS
from vgpumgr.server.events import EventHub

JSON = "application/json"


@pytest.fixture(scope="module")
def page(daemon: Daemon) -> Daemon:
    """The daemon with a bundle."""
    write_bundle(daemon.directory)
    return daemon


@pytest.fixture(scope="module")
def served(page: Daemon) -> Iterator[Served]:
    with serving(page.client) as found:
        yield found


@pytest.fixture(scope="module")
def browser(served: Served) -> Browser:
    return served.browse()


def has_policy(answer: Answer) -> bool:
    return all(answer.headers.get(name.lower()) == value for name, value in SECURITY_HEADERS)


def count_operations(daemon: Daemon) -> int:
    return len(daemon.get("/1.0/operations")["operations"])


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


# who comes in


def test_an_address_works_once(page: Daemon) -> None:
    with serving(page.client) as served:
        browser = served.browse(entered=False)
        outside = browser.ask("GET", "/ui/")
        assert outside.status == 401
        assert b"vgpumgr web" in outside.body
        first = browser.enter()
        assert (first.status, first.headers["location"]) == (303, f"/ui/#code={browser.code}")
        assert len({browser.code, browser.key, browser.token}) == 3
        assert len(browser.key) == len(browser.code) == 43
        name, _, attributes = first.headers["set-cookie"].partition("=")
        assert name.startswith(f"vgpumgr-{served.port}-")
        assert attributes.split("; ")[1:] == ["HttpOnly", "SameSite=Strict", "Path=/"]
        assert browser.ask("GET", "/ui/").body == INDEX
        assert browser.ask("GET", "/").headers["location"] == "/ui/"
        again = Browser(served.port, browser.token)
        assert again.enter().status == 401
        # the same browser may reload the address; the token goes nowhere
        reloaded = browser.ask("GET", f"/ui/?token={browser.token}")
        assert (reloaded.status, reloaded.headers["location"]) == (303, "/ui/")
        assert "set-cookie" not in reloaded.headers
        for answer in [*browser.answers, *again.answers]:
            assert has_policy(answer)
            text = f"{answer.headers}".encode() + answer.body
            assert browser.token.encode() not in text
        with_key = [a for a in browser.answers if browser.key in f"{a.headers}{a.body!r}"]
        assert [json.loads(a.body) for a in with_key] == [{"key": browser.key}]


def test_two_gateways_have_names_and_secrets_of_their_own(page: Daemon, browser: Browser) -> None:
    with serving(page.client) as other:
        theirs = other.browse()
        assert theirs.cookie.partition("=")[0] != browser.cookie.partition("=")[0]
        both = f"{browser.cookie}; {theirs.cookie}"
        assert theirs.ask("GET", "/ui/", cookie=both).status == 200
        assert browser.ask("GET", "/ui/", cookie=both).status == 200
        assert theirs.ask("GET", "/ui/", cookie=browser.cookie).status == 401


@pytest.mark.parametrize("target", ["/ui/", "/ui/assets/app-1a2B_c.js", "/1.0", "/1.0/gpus", "/"])
def test_without_the_cookie_there_is_nothing(browser: Browser, target: str) -> None:
    name, _, value = browser.cookie.partition("=")
    wrong = ["", f"{name}=", f"{name}={value[:-1]}", f"{name}={value}x", f"{name}x={value}", value]
    for cookie in [*wrong, f"{name}=x; {name}={value}", f"{name}={value}, {name}={value}"]:
        answer = browser.ask("GET", target, cookie=cookie)
        assert (cookie, answer.status) == (cookie, 401)
        assert value.encode() not in answer.body
    assert browser.ask("GET", target, cookie="", host="").status == 421


def test_wrong_tokens_are_limited_and_the_right_one_never_is(page: Daemon) -> None:
    clock = FakeClock()
    with serving(page.client, clock=clock) as served:
        browser = served.browse(entered=False)
        wrong = [browser.enter("x" * 43).status for _ in range(MAX_WRONG + 3)]
        assert wrong == [401] * MAX_WRONG + [429] * 3
        for bad in ("", f"{browser.token}x", browser.token[:-1], "%00", f"{browser.token}&token=x"):
            assert browser.enter(bad or "%20").status == 429
        assert browser.enter().status == 303
        clock.now_s += 61
        assert browser.ask("GET", "/ui/?token=x", cookie="").status == 401


def test_a_session_expires_with_its_streams(page: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    with serving(page.client, clock=clock, expires_s=100) as served:
        browser = served.browse()
        clock.now_s += 99
        assert browser.ask("GET", "/1.0").status == 200
        clock.now_s += 1
        answer = browser.ask("GET", "/1.0")
        assert (answer.status, answer.headers["content-type"]) == (401, JSON)
        assert json.loads(answer.body)["error"]["try"] == "vgpumgr web"
    with serving(page.client, clock=FakeClock(), expires_s=100) as unused:
        assert unused.gate is not None
        late = unused.browse(entered=False)
        unused.gate._clock.now_s += 100  # type: ignore[attr-defined]
        assert late.enter().status == 401
    monkeypatch.setattr(gateway_module, "_EXPIRY_S", 0.1)
    clock = FakeClock()
    with (
        serving(page.client, clock=clock, expires_s=1000) as asleep,
        asleep.browse().follow() as stream,
    ):
        stream.wait_for(b": vgpumgr events")
        # as after a sleep, in which the event loop's own clock has stood still
        clock.now_s += 1000
        stream.wait_for_end()


FOREIGN = [
    ("another host", {"host": "evil.example"}, 421),
    ("another port", {"host": "127.0.0.1:1"}, 421),
    ("no port", {"host": "localhost"}, 421),
    ("a name that begins so", {"host": "127.0.0.1:PORT.evil.example"}, 421),
    ("another address", {"host": "127.0.0.2:PORT"}, 421),
    ("two hosts", {"line": "Host: 127.0.0.1:PORT"}, 400),
    ("another origin", {"line": "Origin: http://evil.example"}, 403),
    ("an origin that is hidden", {"line": "Origin: null"}, 403),
    ("another port's origin", {"line": "Origin: http://127.0.0.1:1"}, 403),
    ("the other name's origin", {"line": "Origin: http://localhost:PORT"}, 403),
    ("another scheme", {"line": "Origin: https://127.0.0.1:PORT"}, 403),
    ("another site", {"line": "Sec-Fetch-Site: cross-site"}, 403),
    ("another port", {"line": "Sec-Fetch-Site: same-site"}, 403),
    ("two origins", {"line": "Origin: http://127.0.0.1:PORT\r\nOrigin: http://evil.example"}, 400),
]


@pytest.mark.parametrize(("case", "how", "status"), FOREIGN, ids=[row[0] for row in FOREIGN])
def test_another_page_gets_nothing_through_this_browser(
    page: Daemon, browser: Browser, case: str, how: dict[str, str], status: int
) -> None:
    assert case
    before = count_operations(page)
    how = {key: value.replace("PORT", str(browser.port)) for key, value in how.items()}
    line = how.pop("line", None)
    lines = [line] if line else []
    for method, target in (("GET", "/1.0/gpus"), ("POST", "/1.0/recover"), ("GET", "/ui/")):
        answer = browser.ask(method, target, b"{}" if method == "POST" else b"", *lines, **how)
        assert answer.status == status
        assert "access-control-allow-origin" not in answer.headers
    assert count_operations(page) == before


def test_the_pages_own_requests_pass(browser: Browser) -> None:
    for host in (f"127.0.0.1:{browser.port}", f"localhost:{browser.port}"):
        lines = [f"Origin: http://{host}", "Sec-Fetch-Site: same-origin"]
        answer = browser.ask("POST", "/1.0/recover", b"{}", *lines, host=host)
        assert answer.status == 202
        assert browser.ask("GET", answer.headers["location"], *lines, host=host).status == 200
    assert browser.ask("GET", "/1.0", "Sec-Fetch-Site: none").status == 200
    head = browser.ask("HEAD", "/1.0")
    assert (head.status, head.body) == (200, b"")
    # the daemon's refusals come as they are
    assert browser.ask("GET", "/1.0/nothing").status == 404
    assert browser.ask("GET", "/ui/assets/none.js").status == 404
    # and so is what neither of the two has, for who has the key
    assert browser.ask("GET", "/elsewhere").status == 401
    assert browser.ask("GET", "/elsewhere", f"X-Vgpumgr-Page: {browser.key}").status == 404
    # no browser keeps an answer of the API
    for target in ("/1.0", "/1.0/gpus", "/1.0/nothing", answer.headers["location"]):
        assert browser.ask("GET", target).headers["cache-control"] == "no-store"
    denied = browser.ask("POST", "/1.0/attachments", b'{"vm": "none", "profile": "1g.10gb"}')
    operation = json.loads(denied.body)["operation"]["id"]
    ended = browser.ask("GET", f"/1.0/operations/{operation}/wait")
    assert json.loads(ended.body)["operation"]["error"]["id"] is not None


@pytest.mark.parametrize("line", ["X-Other: 1", "X-Vgpumgr-Page: 1", "X-Vgpumgr-Page: KEY, KEY"])
def test_the_cookie_alone_reaches_no_api(page: Daemon, browser: Browser, line: str) -> None:
    """Another user's page on another port of this host gets the cookie by the browser's own rules, and no key."""
    before = count_operations(page)
    line = line.replace("KEY", browser.key)
    for method in ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"):
        for target in ("/1.0", "/1.0/gpus", "/1.0/events", "/1.0/recover"):
            body = b"" if method in ("GET", "HEAD") else b"{}"
            assert browser.ask(method, target, body, line, key="").status == 401
    # what has no secret in it is served
    files = browser.ask("GET", "/ui/", line, key="")
    assert files.body == INDEX
    assert browser.key.encode() not in f"{files.headers}".encode()
    assert count_operations(page) == before
    # and the key alone is not enough either
    assert browser.ask("GET", "/1.0", cookie="").status == 401
    # the address that brought it brings it once
    again = browser.ask("GET", f"/ui/?token={browser.token}")
    assert (again.status, again.headers["location"]) == (303, "/ui/")


def test_a_read_only_page_changes_nothing(page: Daemon) -> None:
    before = count_operations(page)
    with serving(page.client, read_only=True) as served:
        browser = served.browse()
        assert json.loads(browser.ask("GET", "/1.0").body)["role"] == "viewer"
        assert browser.ask("HEAD", "/1.0").status == 200
        assert json.loads(page.client.request("GET", "/1.0").body)["role"] == "admin"
        for method in ("POST", "DELETE", "PUT"):
            answer = browser.ask(method, "/1.0/recover", b"{}")
            assert answer.status == 403
            assert "--read-only" in json.loads(answer.body)["error"]["why"]
        assert browser.ask("GET", "/ui/").status == 200
        # what the routes give to administrators alone
        assert browser.ask("GET", "/1.0/audit?limit=1").status == 403
        assert page.client.request("GET", "/1.0/audit?limit=1").status == 200
    assert count_operations(page) == before


@needs_root
def test_another_user_of_the_host_has_no_way_in(browser: Browser) -> None:
    script = (
        "import os, socket, sys; ''.encode('idna'); os.setgroups([]); os.setuid(1234)\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "s.sendall(f'GET {sys.argv[2]} HTTP/1.1\\r\\nHost: 127.0.0.1:{sys.argv[1]}\\r\\n\\r\\n'.encode())\n"
        "print(s.makefile('rb').read().decode())"
    )
    for target in ("/1.0/gpus", "/ui/", "/ui/?token=" + "A" * 43):
        words = [sys.executable, "-c", script, str(browser.port), target]
        said = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout
        assert said.split()[1] in ("401", "429")
        assert "Set-Cookie" not in said


# what is no request


BROKEN = [
    ("two lengths", "POST", ["Content-Length: 3", "Content-Length: 2"], 400),
    ("two equal lengths", "POST", ["Content-Length: 2", "Content-Length: 2"], 400),
    ("a length and chunks", "POST", ["Content-Length: 2", "Transfer-Encoding: chunked"], 400),
    ("chunks", "POST", ["Transfer-Encoding: chunked"], 400),
    ("chunks, hidden", "POST", ["Content-Length: 2", "Transfer-Encoding:\tx, chunked"], 400),
    ("a sign", "POST", ["Content-Length: +2"], 400),
    ("another base", "POST", ["Content-Length: 0x2"], 400),
    ("a negative one", "POST", ["Content-Length: -2"], 400),
    ("a list", "POST", ["Content-Length: 2, 2"], 400),
    ("too much", "POST", ["Content-Length: 1048577"], 413),
    ("far too much", "POST", ["Content-Length: 99999999999"], 400),
    ("a read with a body", "GET", ["Content-Length: 2"], 400),
    ("a space before the colon", "GET", ["Cookie : x"], 400),
    ("a folded line", "GET", ["A: b\r\n c"], 400),
    ("a bare line feed", "GET", ["A: b\nCookie: x"], 400),
    ("a bare return", "GET", ["A: b\rCookie: x"], 400),
    ("a null", "GET", ["A: \x00"], 400),
    ("no name", "GET", [": b"], 400),
    # a reader that goes back at each space never ends with these
    ("spaces", "GET", ["A:" + " " * 30_000 + "\x00"], 400),
    ("spaces within", "GET", ["Cookie: a" + " ;" * 15_000 + "\x00"], 400),
]


@pytest.mark.parametrize(
    ("case", "method", "lines", "status"), BROKEN, ids=[row[0] for row in BROKEN]
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(
    page: Daemon, browser: Browser, case: str, method: str, lines: list[str], status: int
) -> None:
    assert case
    before = count_operations(page)
    head = [f"{method} /1.0/recover HTTP/1.1", f"Host: 127.0.0.1:{browser.port}"]
    head += [f"Cookie: {browser.cookie}", f"X-Vgpumgr-Page: {browser.key}", *lines, "", ""]
    inner = browser.make("POST", "/1.0/recover", b"{}")
    answer = browser.send("\r\n".join(head).encode("latin-1") + b"0\r\n\r\n" + inner)
    assert answer.status == status
    assert answer.headers["connection"] == "close"
    assert answer.body.count(b"HTTP/1.1") == 0
    assert count_operations(page) == before


@pytest.mark.parametrize(
    "line",
    [
        "GET /1.0", "GET /1.0 HTTP/1.0", "GET /1.0 HTTP/2.0", "GET  /1.0 HTTP/1.1", "get /1.0 HTTP/1.1",
        "GET http://127.0.0.1/1.0 HTTP/1.1", "GET * HTTP/1.1", "CONNECT 127.0.0.1:22 HTTP/1.1",
        "GET /1.0\tHTTP/1.1", "GET /1.0 HTTP/1.1 x", "\x16\x03\x01", "PRI * HTTP/2.0", "",
    ],
)  # fmt: skip
def test_a_first_line_that_is_none_is_refused(browser: Browser, line: str) -> None:
    rest = f"\r\nHost: 127.0.0.1:{browser.port}\r\nCookie: {browser.cookie}\r\n\r\n"
    assert browser.send((line + rest).encode("latin-1")).status == 400


def test_what_follows_a_request_is_never_another_one(page: Daemon, browser: Browser) -> None:
    before = count_operations(page)
    change = browser.make("POST", "/1.0/recover", b"{}")
    answer = browser.send(browser.make("GET", "/1.0") + change * 3)
    assert (answer.status, answer.body.count(b"HTTP/1.1")) == (200, 0)
    # the length counts: what is behind it is dropped
    assert browser.send(change + change).status == 202
    assert count_operations(page) == before + 1
    # a request in a path or in a field stays one
    for target in ("/1.0/gpus?a=%0d%0a%0d%0aPOST%20/1.0/recover", "/1.0/gpus/%0d%0a"):
        assert browser.ask("GET", target).status in (200, 400, 404)
    assert count_operations(page) == before + 1


def test_long_heads_are_refused(browser: Browser) -> None:
    line = "A: " + "b" * 8000
    assert browser.ask("GET", "/1.0", *[line] * 3).status == 200
    assert browser.ask("GET", "/1.0", *[line] * 5).status == 413
    assert browser.send(b"GET /" + b"a" * 100_000).status == 413
    assert browser.ask("GET", "/1.0/gpus?" + "a" * 9000).status == 400


def test_bodies_of_strangers_are_not_read(browser: Browser) -> None:
    """The refusal comes before the body does."""
    with browser.connect() as connection:
        head = browser.make("POST", "/1.0/recover", b"", cookie="")
        connection.sendall(head.replace(b"Length: 0", b"Length: 1000000"))
        assert receive(connection).status == 401


def test_a_client_may_ask_whether_to_send_its_body(browser: Browser) -> None:
    with browser.connect() as connection:
        head = browser.make("POST", "/1.0/recover", b"", "Expect: 100-continue")
        connection.sendall(head.replace(b"Length: 0", b"Length: 2"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert receive(connection).status == 202


def test_slow_heads_and_bodies_end(page: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(page.client) as served:
        browser = served.browse()
        monkeypatch.setattr(gateway_module, "HEAD_S", 1.5)
        monkeypatch.setattr(gateway_module, "_BODY_S", 1.5)
        with browser.connect() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost:")
            assert receive(connection).status == 408
        with browser.connect() as connection:
            head = browser.make("POST", "/1.0/recover", b"")
            connection.sendall(head.replace(b"Length: 0", b"Length: 9") + b"{")
            assert receive(connection).status == 408


def test_who_does_not_read_the_answer_is_hung_up_on(
    page: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "_WRITE_S", 2.0)
    monkeypatch.setattr(gateway_module, "_LINGER_S", 2.0)
    with serving(page.client) as served:
        browser = served.browse()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", served.port))
            connection.sendall(browser.make("GET", "/1.0/openapi.json"))
            wait_until(lambda: bool(served.gateway._tasks))
            wait_until(lambda: not served.gateway._tasks and not served.gateway._calls)


def test_hundreds_of_silent_connections_keep_no_other_out(page: Daemon) -> None:
    with serving(page.client) as served:
        browser = served.browse()
        silent = [browser.connect() for _ in range(300)]
        try:
            assert browser.ask("GET", "/ui/").status == 200
            assert browser.ask("GET", "/1.0").status == 200
            wait_until(lambda: len(served.gateway._tasks) <= gateway_module.MAX_WAITING)
            # the first ones were ended
            assert receive(silent[0]).status == 0
            # those that have their answer and stay count, too
            for connection in silent[-200:]:
                with suppress(OSError):
                    connection.sendall(b"GET /ui/ HTTP/1.1\r\n\r\n")
            assert browser.ask("GET", "/1.0").status == 200
            wait_until(lambda: len(served.gateway._tasks) <= gateway_module.MAX_WAITING)
        finally:
            for connection in silent:
                connection.close()
        wait_until(lambda: not served.gateway._tasks)


# streams


def test_events_arrive_while_the_stream_is_open(browser: Browser) -> None:
    with browser.follow() as one, browser.follow() as two:
        one.wait_for(b": vgpumgr events")
        two.wait_for(b": vgpumgr events")
        assert b"text/event-stream" in one.data
        browser.ask("POST", "/1.0/recover", b"{}")
        said = one.wait_for(b'"succeeded"')
        two.wait_for(b'"succeeded"')
    numbers = [int(line[4:]) for line in said.splitlines() if line.startswith(b"id: ")]
    with browser.follow(f"Last-Event-ID: {numbers[0]}") as resumed:
        resumed.wait_for(b"id: %d" % numbers[-1])
        assert b"id: %d\n" % numbers[0] not in resumed.data


def test_who_hangs_up_frees_the_connection(served: Served, browser: Browser) -> None:
    wait_until(lambda: not served.gateway._calls)
    streams = [browser.connect() for _ in range(20)]
    for connection in streams:
        connection.sendall(browser.make("GET", "/1.0/events"))
    for connection in streams:
        Stream(connection).wait_for(b": vgpumgr events")
    assert len(served.gateway._calls) == 20
    assert browser.ask("GET", "/1.0").status == 200
    for connection in streams:
        connection.close()
    wait_until(lambda: not served.gateway._calls)
    # no thread is left in a read: as many streams again
    with browser.follow() as stream:
        stream.wait_for(b": vgpumgr events")


def test_a_stream_that_catches_up_notices_its_end() -> None:
    """Between two of a thousand missed events the loop has its turn."""

    async def count_turns() -> int:
        loop = asyncio.get_running_loop()
        hub = EventHub(FakeClock())
        for _ in range(50):
            hub.publish("x")
        await asyncio.sleep(0.01)
        turns: list[None] = []
        stream = hub.stream(0)
        for _ in range(51):
            loop.call_soon(turns.append, None)
            await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        return len(turns)

    assert asyncio.run(count_turns()) >= 49


def test_more_requests_than_there_are_places_are_told_so(
    page: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "MAX_CALLS", 3)
    with serving(page.client) as served:
        browser = served.browse()
        streams = [browser.connect() for _ in range(3)]
        for connection in streams:
            connection.sendall(browser.make("GET", "/1.0/events"))
            Stream(connection).wait_for(b": vgpumgr events")
        busy = browser.ask("GET", "/1.0")
        assert (busy.status, busy.headers["retry-after"]) == (503, "1")
        for connection in streams:
            connection.close()
        wait_until(lambda: browser.ask("GET", "/1.0").status == 200)


def test_the_daemon_ends_and_comes_back() -> None:
    for daemon in make_daemon():
        write_bundle(daemon.directory)
        with serving(daemon.client) as served:
            browser = served.browse()
            with browser.follow() as stream:
                stream.wait_for(b": vgpumgr events")
                daemon.end(signal.SIGKILL)
                stream.wait_for_end()
            away = browser.ask("GET", "/1.0/gpus")
            assert (away.status, away.headers["retry-after"]) == (503, "1")
            assert json.loads(away.body)["error"]["id"] == "VG350"
            assert has_policy(away)
            assert browser.ask("POST", "/1.0/recover", b"{}").status == 503
            daemon.start()
            assert browser.ask("GET", "/1.0/gpus").status == 200
            with browser.follow() as stream:
                stream.wait_for(b": vgpumgr events")


# the command


def make_environment(daemon: Daemon) -> dict[str, str]:
    places = {"VGPUMGR_RUN_DIR": str(daemon.directory), "VGPUMGR_STATE_DIR": str(daemon.directory)}
    return {**os.environ, **places, "PYTHONPATH": str(ROOT)}


def run_web(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vgpumgr", "web", *words], env=make_environment(daemon),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_an_address_and_ends_with_a_signal(
    page: Daemon, number: signal.Signals, tmp_path: Path
) -> None:
    said = tmp_path / "stderr"
    with said.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "vgpumgr", "web", "--port", "0"], env=make_environment(page),
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address, _, _ = line.strip().partition("/ui/")
        browser = Browser(int(address.rpartition(":")[2]), find_token(line))
        assert browser.enter().status == 303
        assert browser.ask("GET", "/ui/").body == INDEX
        busy = run_web(page, "--port", str(browser.port))
        assert busy.returncode == 2
        assert f"127.0.0.1:{browser.port}" in busy.stderr
        with browser.follow() as stream:
            stream.wait_for(b": vgpumgr events")
            process.send_signal(number)
            stream.wait_for_end()
            assert process.wait(PATIENCE_S) == 0
        # one line and one remark; neither request nor token in them
        assert process.stdout.read() == ""
        assert said.read_text().splitlines()[0].startswith("open it in a browser")
        assert len(said.read_text().splitlines()) == 1
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("text", ["0h", "12", "31d", "h", "1.5h", "-1h", "12h "])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    from vgpumgr.cli.web import read_duration
    from vgpumgr.errors import UsageError

    with pytest.raises(UsageError):
        read_duration(text)
    assert read_duration("90m") == 5400


def test_without_a_daemon_the_command_says_so(tmp_path: Path) -> None:
    done = run_web(Daemon(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "no daemon answers" in done.stderr
