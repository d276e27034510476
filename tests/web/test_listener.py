"""The page over the network listener, in Chromium: from the form with a token to the live page, and its end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.network import Network, listening
from tests.web.conftest import BUNDLE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with listening() as found:
        shutil.copytree(BUNDLE, found.daemon.directory / "web")
        yield found


@pytest.fixture
def window(browser: Browser) -> Iterator[Any]:
    """Of a user who has accepted the certificate that vgpumgr made."""
    context = browser.new_context(ignore_https_errors=True)
    context.set_default_timeout(20_000)
    yield context
    context.close()


def log_in(page: Page, network: Network, token: str) -> None:
    page.goto(f"https://localhost:{network.port}/")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_a_token_opens_the_page_until_it_is_revoked(network: Network, window: Any) -> None:
    problems: list[str] = []
    page = window.new_page()
    page.on("console", lambda one: problems.append(one.text) if "policy" in one.text else None)
    log_in(page, network, "vgpumgr_wrong")
    page.get_by_role("alert").get_by_text("this token is not taken").wait_for()
    log_in(page, network, network.give("operator", name="desk"))
    page.locator(".connection.live").wait_for()
    page.locator("main h1").first.wait_for()
    assert page.url == f"https://localhost:{network.port}/ui/"
    # another tab, and the same one again
    other = window.new_page()
    other.goto(f"https://localhost:{network.port}/ui/")
    other.locator(".connection.live").wait_for()
    page.reload()
    page.locator(".connection.live").wait_for()
    network.tokens.revoke("desk")
    page.locator(".connection.ended").wait_for()
    page.reload()
    page.get_by_label("Token").wait_for()
    assert problems == []
