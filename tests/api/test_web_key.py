"""The key of the web page's API: a code brings it once. And what the page learns of its session."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.api.conftest import Daemon, make_daemon
from tests.support.browser import serving, write_bundle
from vgpumgr.cli import web
from vgpumgr.cli.gateway.gate import MAX_WRONG
from vgpumgr.cli.gateway.requests import Request
from vgpumgr.cli.gateway.server import Gateway
from vgpumgr.cli.main import main
from vgpumgr.host.clock import SleeplessClock


@pytest.fixture(scope="module")
def page(daemon: Daemon) -> Daemon:
    """The daemon with a bundle."""
    write_bundle(daemon.directory)
    return daemon


@pytest.mark.parametrize("read_only", [False, True])
def test_the_code_brings_the_key_once(page: Daemon, read_only: bool) -> None:
    """A browser writes the address with the code down; no address has the key."""
    with serving(page.client, read_only=read_only) as served:
        browser = served.browse(entered=False)
        for code in ("", "x", "x" * 43):
            assert browser.exchange(code).status == 401
        assert browser.enter().status == 303
        given = next(a for a in browser.answers if b'"key"' in a.body)
        assert (given.status, given.headers["cache-control"]) == (200, "no-store")
        assert browser.ask("GET", "/1.0").status == 200
        refused = [browser.exchange(browser.code) for _ in range(MAX_WRONG + 2)]
        assert [a.status for a in refused] == [401] * MAX_WRONG + [429] * 2
        assert browser.key.encode() not in b"".join(a.body for a in refused)
        assert browser.ask("GET", "/ui/key").status == 404
        assert browser.ask("GET", "/1.0").status == 200


def test_the_code_alone_and_another_page_bring_no_key(page: Daemon) -> None:
    with serving(page.client) as served:
        browser = served.browse(entered=False)
        entered = browser.ask("GET", f"/ui/?token={browser.token}")
        code = entered.headers["location"].partition("#code=")[2]
        cookie = entered.headers["set-cookie"].partition(";")[0]
        assert browser.exchange(code, cookie="").status == 401
        line = "Sec-Fetch-Site: same-site"
        asked = (f"X-Vgpumgr-Page: {code}", line)
        assert browser.ask("POST", "/ui/key", *asked, cookie=cookie).status == 403
        assert browser.exchange(code, cookie=cookie, host="evil.example").status == 421
        # what was refused did not use the code
        assert browser.exchange(code, cookie=cookie).status == 200


def test_the_page_learns_which_host_its_commands_are_for(page: Daemon) -> None:
    with serving(page.client, prefix="vgpumgr --host gpu1") as served:
        assert (
            json.loads(served.browse().ask("GET", "/1.0").body)["command"] == "vgpumgr --host gpu1"
        )


@pytest.fixture
def served(page: Daemon, monkeypatch: pytest.MonkeyPatch) -> list[Gateway]:
    """What ``vgpumgr web`` would serve in this process."""
    found: list[Gateway] = []

    async def serve(gateway: Gateway, _listener: object, _end: object) -> None:
        found.append(gateway)

    monkeypatch.setattr(Gateway, "serve", serve)
    monkeypatch.setattr(web, "open_daemon", lambda _options: page.client)
    for name in ("VGPUMGR_MACHINE", "VGPUMGR_HOST"):
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.mark.parametrize(
    ("environment", "words", "program"),
    [
        ({}, "", "vgpumgr"),
        ({}, "--host gpu1", "vgpumgr --host gpu1"),
        ({"VGPUMGR_HOST": "gpu1"}, "", "vgpumgr --host gpu1"),
        ({"VGPUMGR_HOST": "gpu1"}, "--host gpu2", "vgpumgr --host gpu2"),
        ({"VGPUMGR_MACHINE": "dgx-a100"}, "", "vgpumgr --machine dgx-a100"),
        ({"VGPUMGR_HOST": "a b"}, "", "vgpumgr --host 'a b'"),
    ],
)
def test_commands_of_the_page_name_its_host(
    served: list[Gateway],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    words: str,
    program: str,
) -> None:
    """They are pasted where the environment of ``vgpumgr web`` is not."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main([*shlex.split(words), "web"]) == 0
    (gateway,) = served
    assert gateway._said == {"command": program}
    host = gateway._gate.address.removeprefix("http://").partition("/")[0]
    outside = gateway._gate.check(Request("GET", "/ui/", "", (("host", host),), 0))
    assert outside is not None
    assert f"run again: {program} web\n" in outside.body.decode()
    # one clock for all that expires: that of a machine that may sleep
    assert isinstance(gateway._gate._clock, SleeplessClock)


def test_the_page_is_of_one_host(served: list[Gateway], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hosts", "gpu1,gpu2", "web"]) == 2
    assert "web shows one host" in capsys.readouterr().err
    assert not served


def test_a_daemon_without_history_offers_none(page: Daemon) -> None:
    """Then the page has no plots, and does not ask for them."""
    for daemon in make_daemon(settings="[history]\nkeep = false\n"):
        extensions = daemon.get("/1.0")["api_extensions"]
        assert "history" not in extensions
        assert "page" in extensions
    assert "history" in page.get("/1.0")["api_extensions"]
