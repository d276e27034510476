"""The page in a browser: a simulated machine with its daemon, ``vgpumgr web``, and Debian's Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.scene import ROOT, Scene, run_scene

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

BUNDLE = ROOT / "vgpumgr" / "_web"
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
NONE: Mapping[str, object] = MappingProxyType({})
CHROMIUM = "/usr/bin/chromium"


# before pytest-xdist, which writes the groups into the ids
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One browser and one daemon for all of them."""
    for item in items:
        if "tests/web/" in item.nodeid:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("web"))


@pytest.fixture(scope="session")
def scene() -> Iterator[Scene]:
    """Eight A100; GPU 0 is in MIG mode, vm01 has a slice of it, vm02 a share of GPU 1."""
    with run_scene("dgx-a100") as made:
        made.post("/1.0/mig/mode", {"gpu": "0", "enabled": True})
        made.post("/1.0/attachments", {"vm": "vm01", "profile": "3g.40gb"})
        made.post("/1.0/attachments", {"vm": "vm02", "profile": "share:8GiB,30%", "gpu": "1"})
        yield made


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    assert (BUNDLE / "index.html").is_file(), (
        "the page is not built: cd web && npm ci && npm run build"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def session(scene: Scene, browser: Browser) -> Iterator[Session]:
    """A browser that the token let in."""
    with open_session(scene, browser) as made:
        yield made


@dataclass
class Session:
    """Pages that share a cookie; what a page reports as an error fails the test."""

    address: str
    context: Any
    problems: list[str] = field(default_factory=list)

    def open(
        self, path: str = "", answers: Mapping[str, object] = NONE, *, ready: bool = True
    ) -> Page:
        """A view. ``answers``: documents in the place of the daemon's, by the end of their path."""
        page: Page = self.context.new_page()
        for name, document in answers.items():
            page.route(f"**/1.0/{name}", make_answer(document))
        page.goto(f"{self.address}#/{path}")
        if ready:
            page.locator(".connection.live").wait_for()
        return page

    def watch(self, page: Page) -> None:
        """Hears what any of its pages reports."""
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._hear)
        page.on("dialog", lambda dialog: self.problems.append(f"a dialog: {dialog.message}"))

    def _hear(self, message: Any) -> None:
        # a refused request is an answer; what the policy refuses, or what is thrown, is a fault
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)


def make_answer(document: object) -> Callable[[Route], None]:
    """Answers requests with a document, as it is when they come."""

    def answer(route: Route) -> None:
        route.fulfill(json=document)

    return answer


@contextmanager
def open_session(scene: Scene, browser: Browser, *options: str) -> Iterator[Session]:
    """A browser of its own with a ``vgpumgr web`` of its own."""
    address = scene.open_web(*options)
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    context.set_default_timeout(20_000)
    made = Session(address.partition("?")[0], context)
    context.on("page", made.watch)
    try:
        page = context.new_page()
        page.goto(address)
        # until it has its key
        page.locator(".connection.live, .connection.ended").first.wait_for()
        page.close()
        yield made
        assert not made.problems
    finally:
        context.close()


@pytest.fixture
def page(session: Session) -> Iterator[Page]:
    """The overview, connected."""
    made = session.open()
    yield made
    made.close()
    assert not session.problems
    session.problems.clear()


@pytest.fixture
def vm03(scene: Scene) -> Iterator[str]:
    """A VM that has nothing, before and after."""
    assert not scene.list_vms()["vm03"]
    yield "vm03"
    if scene.list_vms()["vm03"]:
        scene.post("/1.0/attachments/vm03/detach", {"every": True})
