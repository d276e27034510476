"""The web page over the network listener, as a browser and as who would use its session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote

import pytest

from tests.api.conftest import needs_root
from tests.api.test_listener import await_end
from tests.support.browser import INDEX, write_bundle
from tests.support.clock import FakeClock
from tests.support.network import Answer, Network, listening, write_request
from vgpumgr.model.page import SECURITY_HEADERS
from vgpumgr.server.gatekeeper import MAX_WRONG
from vgpumgr.server.page_sessions import MAX_SESSIONS, SESSION_S, Sessions

pytestmark = needs_root
ORIGIN = "Origin: https://gpu1:8443"


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with listening() as found:
        write_bundle(found.daemon.directory)
        yield found


@dataclass(frozen=True)
class Page:
    """A browser with a session."""

    network: Network
    cookie: str
    key: str

    def ask(self, method: str, path: str, body: str = "", *lines: str) -> Answer:
        own = [f"Cookie: {self.cookie}"] if self.cookie else []
        own += [f"X-Vgpumgr-Page: {self.key}"] if self.key else []
        return self.network.ask(method, path, None, body, *own, *lines)


def log_in(network: Network, token: str, *lines: str) -> Answer:
    form = f"token={quote(token, safe='')}"
    return network.ask("POST", "/ui/login", None, form, *(lines or [ORIGIN]))


def find_field(answer: Answer, name: str) -> str:
    rows = answer.head.split("\r\n")[1:]
    return next(row.partition(": ")[2] for row in rows if row.lower().startswith(f"{name}:"))


def enter(network: Network, token: str) -> Page:
    """As the page's own script does it."""
    answer = log_in(network, token)
    assert answer.status == 303
    cookie = find_field(answer, "set-cookie").partition(";")[0]
    code = find_field(answer, "location").removeprefix("/ui/#code=")
    brought = network.ask(
        "POST", "/ui/key", None, "", f"Cookie: {cookie}", f"X-Vgpumgr-Page: {code}", ORIGIN
    )
    key = json.loads(brought.body)["key"]
    assert len({token, code, key, cookie}) == 4
    # once
    again = network.ask(
        "POST", "/ui/key", None, "", f"Cookie: {cookie}", f"X-Vgpumgr-Page: {code}", ORIGIN
    )
    assert again.status == 401
    return Page(network, cookie, key)


def test_a_token_becomes_a_session(network: Network) -> None:
    token = network.give("operator", name="desk")
    form = network.ask("GET", "/ui/")
    assert (form.status, 'type="password"' in form.body) == (200, True)
    assert "form-action 'self'" in find_field(form, "content-security-policy")
    assert network.ask("GET", "/").head.count("location: /ui/") == 1
    answer = log_in(network, token)
    attributes = find_field(answer, "set-cookie").split("; ")
    assert attributes[0].startswith("__Host-vgpumgr=")
    assert attributes[1:] == ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"]
    page = enter(network, token)
    assert page.ask("GET", "/ui/").body == INDEX.decode()
    who = page.ask("GET", "/1.0/access")
    assert json.loads(who.body)["caller"] == "token desk"
    done = page.ask("POST", "/1.0/recover", "{}", ORIGIN, "Sec-Fetch-Site: same-origin")
    assert done.status == 202
    for one in (
        form,
        answer,
        who,
        done,
        page.ask("GET", "/ui/assets/none.js"),
        page.ask("GET", "/1.0/none"),
    ):
        assert find_field(one, "cache-control") in ("no-store", "no-cache")
        for name, value in SECURITY_HEADERS:
            if one is not form or name != "Referrer-Policy":
                assert find_field(one, name.lower()).split(";")[:5] == value.split(";")[:5]
        assert not any(secret in one.head + one.body for secret in (token, page.key))
    log = (network.daemon.directory / "audit.jsonl").read_text()
    assert '"token": "desk"' in log
    assert not any(secret in log for secret in (token, page.key, page.cookie[20:]))


def test_the_cookie_alone_reaches_no_api(network: Network) -> None:
    page, other = (enter(network, network.give("admin")) for _ in range(2))
    for key in ("", page.key[:-1], page.key + "x", other.key, f"{page.key}, {page.key}"):
        for method, path in (("GET", "/1.0"), ("GET", "/1.0/events"), ("POST", "/1.0/recover")):
            assert replace(page, key=key).ask(method, path).status == 401
    assert replace(page, key="").ask("GET", "/ui/").body == INDEX.decode()
    assert page.ask("GET", "/1.0", "", f"X-Vgpumgr-Page: {page.key}").status == 401
    assert page.ask("GET", "/1.0", "", f"Cookie: {other.cookie}").status == 401
    for cookie in ("", page.cookie[:-1], page.cookie + "x", page.cookie.replace("__Host-", "")):
        assert replace(page, cookie=cookie).ask("GET", "/1.0").status == 401
        assert 'type="password"' in replace(page, cookie=cookie).ask("GET", "/ui/").body
    assert replace(page, cookie="").ask("GET", "/ui/assets/app.js").status == 401


@pytest.mark.parametrize(
    "line",
    ["Origin: https://evil.example", "Origin: null", "Origin: http://gpu1:8443", "Sec-Fetch-Site: cross-site",
     "Sec-Fetch-Site: same-site"],
)  # fmt: skip
def test_another_page_gets_nothing(network: Network, line: str) -> None:
    token = network.give("admin")
    page = enter(network, token)
    for method, path in (
        ("GET", "/1.0/gpus"),
        ("POST", "/1.0/recover"),
        ("GET", "/ui/"),
        ("POST", "/ui/key"),
    ):
        assert page.ask(method, path, "", line).status == 403
    # nor does it log this browser in
    refused = log_in(network, token, line)
    assert (refused.status, "set-cookie" in refused.head) == (403, False)
    assert log_in(network, token, "X-None: 1").status == 403


def test_wrong_tokens_of_the_form_are_limited(network: Network) -> None:
    there, tenant = network.at("127.0.5.1"), network.give("tenant", "red")
    refused = log_in(there, tenant)
    assert (refused.status, "set-cookie" in refused.head) == (403, False)
    assert "opens no page" in refused.body
    found = [log_in(there, "vgpumgr_<b>").status for _ in range(MAX_WRONG + 2)]
    assert found == [401] * MAX_WRONG + [429] * 2
    assert log_in(there, network.give("viewer")).status == 303
    for form in ("", "token=", "token=a&token=b", "x=1", "token=" + "a" * 2000, "\xff"):
        answer = there.ask("POST", "/ui/login", None, form, ORIGIN)
        assert answer.status in (401, 413, 429)
        assert "set-cookie" not in answer.head
    for method in ("GET", "PUT", "DELETE"):
        assert network.ask(method, "/ui/login", None, "", ORIGIN).status == 401


def test_a_session_ends_with_its_token(network: Network) -> None:
    page = enter(network, network.give("viewer", name="short"))
    assert page.ask("POST", "/1.0/recover", "{}").status == 403
    lines = [f"Cookie: {page.cookie}", f"X-Vgpumgr-Page: {page.key}"]
    with network.connect() as stream:
        stream.sendall(write_request("GET", "/1.0/events", None, "", *lines))
        assert stream.recv(64).startswith(b"HTTP/1.1 200")
        network.tokens.revoke("short")
        await_end(stream)
    assert page.ask("GET", "/1.0").status == 401
    assert 'type="password"' in page.ask("GET", "/ui/").body


def test_sessions_expire_and_have_a_limit() -> None:
    clock = FakeClock()
    sessions = Sessions(clock)
    cookie, session = sessions.create("a")
    headers = [(b"cookie", f"x=1; __Host-vgpumgr={cookie}".encode())]
    clock.now_s += SESSION_S - 1
    assert sessions.find(headers) is session
    clock.now_s += 1
    assert sessions.find(headers) is None
    assert sessions.find_id(session.id) is None
    first = sessions.create("a")[1]
    for _ in range(MAX_SESSIONS):
        sessions.create("b")
    assert sessions.find_id(first.id) is None
