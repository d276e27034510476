"""The key of the web page's API: a code brings it once. And what the page learns of its session."""

from __future__ import annotations

import json

import pytest

from tests.api.conftest import Daemon
from tests.support.browser import serving, write_bundle
from vgpumgr.cli.gateway.gate import MAX_WRONG


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
