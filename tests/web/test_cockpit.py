"""The page inside Debian's own Cockpit: its menu, its bridge to the daemon's socket, and its policy."""

from __future__ import annotations

import json
import pwd
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.cockpit import run_cockpit
from tests.web.page_daemon import ADMINISTRATORS, READERS
from tests.web.scene import ROOT, Scene
from vgpumgr.host.machine import find_machine
from vgpumgr.server.access import ADMIN_GROUP, VIEWER_GROUP
from vgpumgr.server.server import SOCKET

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator


@pytest.fixture(scope="module")
def cockpit(scene: Scene) -> Iterator[str]:
    with run_cockpit(scene) as address:
        yield address


@pytest.fixture
def frame(cockpit: str, browser: Browser) -> Iterator[FrameLocator]:
    """The page behind its entry of Cockpit's menu, connected."""
    with open_frame(cockpit, browser) as found:
        found.locator(".connection.live").wait_for()
        yield found


@contextmanager
def open_frame(cockpit: str, browser: Browser) -> Iterator[FrameLocator]:
    """The page behind its entry of Cockpit's menu. What it reports as an error fails the test."""
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    context.set_default_timeout(20_000)
    page = context.new_page()

    def hear(message: Any) -> None:
        # Cockpit's own pages have errors of their own
        if message.type == "error" and "/vgpumgr/" in message.location["url"]:
            problems.append(message.text)

    def fail(error: Any) -> None:
        if "/vgpumgr/" in (error.stack or ""):
            problems.append(str(error))

    page.on("console", hear)
    page.on("pageerror", fail)
    page.goto(cockpit)
    page.get_by_role("link", name="GPUs").click()
    yield page.frame_locator('iframe[name$="/vgpumgr"]')
    context.close()
    assert not problems


def test_the_menu_leads_to_the_page_and_it_shows_the_gpus(frame: FrameLocator) -> None:
    assert frame.locator("[data-gpu]").count() == 8
    label = frame.locator('[data-gpu="0"] .board').get_attribute("aria-label")
    assert "3g.40gb" in str(label)
    assert "vm01" in str(label)
    # of the style sheet: what the policy refuses is not there
    assert frame.locator("body").evaluate("(body) => getComputedStyle(body).margin") == "0px"


def test_a_change_on_the_command_line_shows(scene: Scene, frame: FrameLocator) -> None:
    badge = frame.locator('[data-gpu="3"]').get_by_text("drained")
    assert badge.count() == 0
    scene.vgpumgr("gpu", "drain", "3", "--reason", "a new fan")
    badge.wait_for()
    scene.vgpumgr("gpu", "resume", "3")
    badge.wait_for(state="detached")
    # what is read every ten seconds would show the badge, too; this comes as a stream alone
    frame.get_by_role("link", name="Events").click()
    frame.get_by_role("row").filter(has_text="drain").first.wait_for()


def test_attach_shows_its_plan_and_waits_for_consent(
    scene: Scene, frame: FrameLocator, vm03: str
) -> None:
    show_plan(frame, vm03, "1g.10gb")
    steps = frame.locator(".steps li").all_inner_texts()
    assert any("create GPU instance 1g.10gb" in step for step in steps)
    assert not scene.list_vms()[vm03]
    frame.get_by_role("button", name="Do it").click()
    frame.locator('[data-phase="ended"]').get_by_text("Done.").wait_for()
    assert [attachment["profile"] for attachment in scene.list_vms()[vm03]] == ["1g.10gb"]
    frame.locator(".buttons").get_by_role("button", name="Close").click()
    board = frame.locator('.board[aria-label*="vm03"]')
    board.wait_for()


def test_refusals_come_with_their_cause_through_the_bridge(
    scene: Scene, frame: FrameLocator, vm03: str
) -> None:
    """Of a request that cannot be done, and of a plan that is no longer true."""
    frame.get_by_role("button", name="Attach a slice to vm01").click()
    frame.locator("input[name=profile]").fill("1g.10gb")
    frame.get_by_role("button", name="Show plan").click()
    frame.get_by_text('vm "vm01" has 3g.40gb already').wait_for()
    frame.get_by_role("button", name="Back").click()
    frame.locator("select[name=vm]").select_option(label=vm03)
    frame.locator("input[name=profile]").fill("share:1/4")
    frame.get_by_role("button", name="Show plan").click()
    frame.locator('[data-phase="planned"]').wait_for()
    scene.post("/1.0/attachments", {"vm": vm03, "profile": "1g.10gb"})
    frame.get_by_role("button", name="Do it").click()
    frame.locator(".refusal").get_by_text(re.compile("VG352")).first.wait_for()
    assert [attachment["profile"] for attachment in scene.list_vms()[vm03]] == ["1g.10gb"]


#: who owns nothing; every Debian has it
USER = "games"


@pytest.mark.parametrize("group", [ADMINISTRATORS, READERS])
def test_a_member_of_a_group_has_its_rights(
    scene: Scene, browser: Browser, vm03: str, group: int
) -> None:
    """In a session that is not root's: the bridge connects as the user, and the kernel names the user to the daemon."""
    with (
        run_cockpit(scene, pwd.getpwnam(USER).pw_uid, group) as address,
        open_frame(address, browser) as frame,
    ):
        frame.locator(".connection.live").wait_for()
        assert frame.locator("[data-gpu]").count() == 8
        button = frame.get_by_role("button", name=f"Attach a slice to {vm03}")
        if group == READERS:
            frame.get_by_text("change nothing: your role is viewer.").wait_for()
            assert button.is_disabled()
            return
        show_plan(frame, vm03, "1g.10gb")
        frame.get_by_role("button", name="Do it").click()
        frame.locator('[data-phase="ended"]').get_by_text("Done.").wait_for()
        assert [attachment["profile"] for attachment in scene.list_vms()[vm03]] == ["1g.10gb"]


def test_another_user_reads_what_to_do(scene: Scene, browser: Browser) -> None:
    user = pwd.getpwnam(USER).pw_uid
    with run_cockpit(scene, user) as address, open_frame(address, browser) as frame:
        frame.locator(".connection.refused").wait_for()
        text = frame.locator("main").inner_text()
        assert f"user {user} may not do this" in text
        assert "Turn on administrative access in Cockpit" in text
        commands = frame.locator("main .note code").all_inner_texts()
        assert commands == [
            f'sudo usermod -aG {group} "$USER"' for group in (VIEWER_GROUP, ADMIN_GROUP)
        ]
        for waiting in ("Reading the host's state", "Not connected"):
            assert waiting not in frame.locator("body").inner_text()


def test_the_menu_has_the_page_where_the_daemon_listens() -> None:
    """Of Cockpit's condition, which Debian 12's does not know yet, and of what the page opens."""
    path = str(find_machine(None, {}).run_dir / SOCKET)
    manifest = json.loads((ROOT / "packaging/cockpit/manifest.json").read_text())
    assert manifest["conditions"] == [{"path-exists": path}]
    assert f'const SOCKET = "{path}";' in (ROOT / "web/src/transport.ts").read_text()


def show_plan(frame: FrameLocator, vm: str, profile: str) -> None:
    """The form of an attach, up to the plan."""
    frame.get_by_role("button", name=f"Attach a slice to {vm}").click()
    frame.locator("input[name=profile]").fill(profile)
    frame.get_by_role("button", name="Show plan").click()
    frame.locator('[data-phase="planned"]').wait_for()
