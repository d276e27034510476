"""The page in a browser: a simulated machine with its daemon, ``vgpumgr web``, and Debian's Chromium."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.places import short
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.errors import VgpumgrError
from vgpumgr.sim.machine import machine_env

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "vgpumgr" / "_web"
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = "/usr/bin/chromium"


# before pytest-xdist, which writes the groups into the ids
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One browser and one daemon for all of them."""
    for item in items:
        if "tests/web/" in item.nodeid:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("web"))


@dataclass
class Scene:
    """A daemon on a simulated machine, and what reaches it."""

    root: Path
    env: dict[str, str]
    daemon: subprocess.Popen[bytes]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def client(self) -> HttpBackend:
        return HttpBackend(
            partial(connect_unix, f"{self.env['VGPUMGR_SIM']}/host/run/vgpumgr.sock")
        )

    def get(self, path: str) -> dict[str, Any]:
        return self.client.request("GET", path).document()

    def post(self, path: str, body: object) -> dict[str, Any]:
        """A change, when it has ended well."""
        answer = self.client.request("POST", path, json.dumps(body).encode(), Prefer="wait=60")
        document = answer.document()
        if "operation" in document:
            assert document["operation"]["status"] == "succeeded", document
        return document

    def vgpumgr(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """The output of a command."""
        done = subprocess.run(
            [sys.executable, "-m", "vgpumgr", *arguments], env=self.env, cwd=ROOT,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in codes, (arguments, done.stdout, done.stderr)
        return done.stdout

    def open_web(self, *options: str) -> str:
        """The address of a new ``vgpumgr web``."""
        process = subprocess.Popen(
            [sys.executable, "-m", "vgpumgr", "web", *options], env=self.env, cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    @contextmanager
    def file(self, name: str) -> Iterator[None]:
        """While it is there, what it says holds: see ``page_daemon``."""
        (self.root / name).touch()
        try:
            yield
        finally:
            (self.root / name).unlink(missing_ok=True)

    def list_vms(self) -> dict[str, list[dict[str, Any]]]:
        """Attachments by name of the VM."""
        return {vm["name"]: vm["attachments"] for vm in self.get("/1.0/vms")["vms"]}


@contextmanager
def run_scene(name: str) -> Iterator[Scene]:
    """A machine of this name with its daemon."""
    root = Path(tempfile.mkdtemp(prefix="vgw.", dir=short()))
    env = {**os.environ, "VGPUMGR_SIM_ROOT": str(root / "sim"), "PYTHONPATH": str(ROOT)}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.web.page_daemon", str(root), name], env=env, cwd=ROOT
    )
    env["VGPUMGR_SIM"] = str(root / "sim" / name)
    scene = Scene(root, env, daemon)
    try:
        _await_daemon(scene)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("VGPUMGR_SIM_ROOT", str(root / "sim"))
            env |= machine_env(name)
        yield scene
    finally:
        for process in scene.processes:
            process.terminate()
            process.wait(30)
        with suppress(VgpumgrError):
            for vm, attachments in scene.list_vms().items():
                if attachments:
                    scene.post(f"/1.0/attachments/{vm}/detach", {"every": True})
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
        shutil.rmtree(root, ignore_errors=True)


def _await_daemon(scene: Scene) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(VgpumgrError):
            scene.get("/1.0")
            return
        assert scene.daemon.poll() is None, "the daemon ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)


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

    def open(self, path: str = "", *, ready: bool = True) -> Page:
        page: Page = self.context.new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._hear)
        page.on("dialog", lambda dialog: self.problems.append(f"a dialog: {dialog.message}"))
        page.goto(f"{self.address}#/{path}")
        if ready:
            page.locator(".connection.live").wait_for()
        return page

    def _hear(self, message: Any) -> None:
        # a refused request is an answer; what the policy refuses, or what is thrown, is a fault
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)


@contextmanager
def open_session(scene: Scene, browser: Browser, *options: str) -> Iterator[Session]:
    """A browser of its own with a ``vgpumgr web`` of its own."""
    address = scene.open_web(*options)
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    context.set_default_timeout(20_000)
    try:
        page = context.new_page()
        page.goto(address)
        page.close()
        yield Session(address.partition("?")[0], context)
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
