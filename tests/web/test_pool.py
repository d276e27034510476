"""The view of the pool: what the command line prints of hosts, claims, the queue, tenants, and why a claim is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.conftest import AXE, Session, open_session
from tests.web.page_daemon import MARKUP
from tests.web.scene import Scene, run_scene
from tests.web.test_page import run_axe, show
from vgpumgr.pool.control.records import alive_key
from vgpumgr.pool.membership import FILE_NAME
from vgpumgr.pool.store.interface import Delete

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SHARE = ("--profile", "share:8GiB,30%")
#: what is read each ten seconds, on a machine that is busy
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def hosts() -> Iterator[Scene]:
    """A machine with two VMs that is in no pool yet."""
    with run_scene("dgx-a100", ("vm01", "vm02")) as made:
        yield made


def read(scene: Scene, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(scene.vgpumgr(*words, "-o", "json"))
    return found


def row(page: Page, kind: str, name: str) -> str:
    """The row of a table, once it is there, as words."""
    found = page.locator(f'tr[data-{kind}="{name}"]')
    found.wait_for(timeout=PATIENCE_MS)
    return " ".join(found.inner_text().split())


def list_commands(page: Page) -> list[str]:
    return page.locator("main .command code").all_inner_texts()


def test_a_pool_is_made_on_the_command_line_and_its_view_shows(
    hosts: Scene, browser: Browser
) -> None:
    with open_session(hosts, browser) as session:
        page = session.open()
        page.get_by_role("link", name="VMs").first.wait_for()
        link = page.get_by_role("navigation").get_by_role("link", name="Pool")
        assert link.count() == 0, "this machine is in no pool"
        hosts.vgpumgr("pool", "init")
        hosts.vgpumgr("pool", "join", "--name", "a")
        link.wait_for(timeout=PATIENCE_MS)
        hosts.vgpumgr("tenant", "create", "vision", "--gpus", "0.5")
        hosts.vgpumgr("claim", "create", "train", *SHARE, "--tenant", "vision")
        hosts.vgpumgr("claim", "create", "more", *SHARE, "--tenant", "vision")
        lease = read(hosts, "claim", "show", "train")["claim"]["lease"]
        assert lease["host"] == "a"
        hosts.add_host("b", 2)
        link.focus()
        page.keyboard.press("Enter")
        check_hosts(hosts, page, lease)
        check_queue_and_tenants(hosts, page)
        check_reservations(hosts, page)
        # a claim of the command line shows by itself, and so does what uses one
        hosts.vgpumgr("claim", "create", "late", "--profile", "share:4GiB,10%")
        assert "granted" in row(page, "claim", "late")
        check_use(hosts, page)
        check_explained(hosts, page)
        check_widths_and_names(page, session)
        check_outage(hosts, page)
        check_history(hosts, page)
        page.close()
        assert not session.problems


def check_hosts(scene: Scene, page: Page, lease: dict[str, Any]) -> None:
    printed = read(scene, "pool", "status")
    for host in printed["hosts"]:
        card = page.locator(f'[data-host="{host["name"]}"]')
        card.wait_for(timeout=PATIENCE_MS)
        assert card.locator(".board").count() == len(host["gpus"])
        assert host["state"] in card.locator(".badges").inner_text()
        free = sum(gpu["free_milli"] for gpu in host["gpus"]) / 1000
        assert f"{free:g} of {len(host['gpus'])} GPUs free" in card.inner_text()
    board = page.locator(f'[data-host="{lease["host"]}"] .board').nth(lease["gpu_indices"][0])
    said = str(board.get_attribute("aria-label"))
    assert "train: 0.3, used by nothing." in said
    assert said.endswith("0.7 free.")
    # by a texture and a title, not by a colour alone
    area = board.locator(".area.idle")
    assert area.locator(".texture").count() == 1
    assert area.locator("> title").text_content() == "train: 0.3, vision, used by nothing"
    totals = page.locator(".pool-totals").inner_text()
    assert f"{printed['gpu_free_milli'] / 1000:g} of {printed['gpus']} GPUs free" in totals
    assert f"Host {printed['leader']} leads." in totals
    assert "vgpumgr pool status" in " ".join(list_commands(page))


def check_queue_and_tenants(scene: Scene, page: Page) -> None:
    more = read(scene, "claim", "show", "more")["claim"]
    waiting = row(page, "claim", "more")
    assert more["why"] in waiting
    assert waiting.startswith(f"{more['place']} more vision default")
    assert page.locator('tr[data-claim="more"]').count() == 1, "it has no lease"
    (tenant,) = read(scene, "tenant", "list")["tenants"]
    assert "0.3 of 0.5 GPUs" in row(page, "tenant", "vision")
    meter = page.locator('tr[data-tenant="vision"] meter')
    assert meter.get_attribute("value") == str(tenant["used_milli"]) == "300"
    assert meter.get_attribute("max") == str(tenant["quota_milli"])
    assert meter.get_attribute("aria-label") == "vision has 0.3 of its quota of 0.5 GPUs"


def check_reservations(scene: Scene, page: Page) -> None:
    """They show by themselves, with their GPUs, and on these."""
    times = ("--from", "2099-12-07T08:00", "--until", "2099-12-07T12:00", "--every", "week")
    size = ("--profile", "whole", "--gpus", "1", "--zone", "UTC")
    scene.vgpumgr("reservation", "create", "course", "--tenant", "vision", *size, *times)
    (printed,) = read(scene, "reservation", "list")["reservations"]
    words = row(page, "reservation", "course")
    assert words.startswith(
        "course planned tenant vision whole GPU 2099-12-07 08:00 to 2099-12-07 12:00, every week, UTC"
    )
    (place,) = printed["places"]
    assert place in words
    assert any(one.endswith("reservation list") for one in list_commands(page))
    host, index = place.split("/")
    board = page.locator(f'[data-host="{host}"] .board').nth(int(index))
    assert "Reserved for tenant vision from 2099-12-07 08:00" in str(
        board.get_attribute("aria-label")
    )


def check_use(scene: Scene, page: Page) -> None:
    scene.post("/1.0/attachments", {"vm": "vm01", "claim": "train"})
    used = page.locator('[data-host="a"] .board[aria-label*="train: 0.3, used by vm vm01."]')
    used.wait_for(timeout=PATIENCE_MS)
    link = page.locator('tr[data-claim="train"]').get_by_role("link", name="vm01")
    assert str(link.get_attribute("href")).startswith("#/vm/")


def check_explained(scene: Scene, page: Page) -> None:
    """The picture and its table are what ``claim explain`` prints."""
    page.locator('tr[data-claim="late"]').get_by_role("link", name="late").click()
    explained = page.locator("tr[data-candidate]")
    explained.first.wait_for(timeout=PATIENCE_MS)
    assert list_commands(page)[-1].endswith("claim explain late")
    printed = read(scene, "claim", "explain", "late")["hosts"]
    assert len(printed) == explained.count() == 2
    lengths = []
    for host in printed:
        words = row(page, "candidate", host["name"])
        assert host["why"] in words
        assert ("yes" in words) == host["chosen"]
        bar = page.locator(f'[data-bar="{host["name"]}"]')
        assert ("chosen" in bar.inner_text()) == host["chosen"]
        width = str(bar.locator(".score-bar").first.get_attribute("width"))
        lengths.append(float(width.removesuffix("%")))
    scores = [host["score"] for host in printed]
    assert scores[0] != scores[1]
    assert lengths[0] != lengths[1]
    assert (lengths[0] < lengths[1]) == (scores[0] < scores[1]), "the least score has the shortest"
    picture = str(
        page.locator('[role="img"][aria-label*="could hold"]').get_attribute("aria-label")
    )
    chosen = next(host["name"] for host in printed if host["chosen"])
    assert picture.startswith(f"2 of 2 hosts could hold the claim; {chosen} is chosen.")
    # one that waits has reasons, and no bar
    show(page, "pool/more")
    reason = read(scene, "claim", "explain", "more")["hosts"][0]["why"]
    assert "vision" in reason
    assert reason in row(page, "candidate", "a")
    assert page.locator(".score-bar.none").count() == 2
    assert page.locator(".score-bar.chosen").count() == 0


def check_widths_and_names(page: Page, session: Session) -> None:
    page.evaluate(AXE.read_text())
    found = []
    for path, drawn in (("pool", "[data-host]"), ("pool/late", "[data-candidate]")):
        show(page, path)
        page.locator(drawn).first.wait_for(timeout=PATIENCE_MS)
        found += run_axe(page, path)
        for width in (320, 2560, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            over = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert over <= 0, (path, width)
    assert not found
    assert not session.problems


def check_outage(scene: Scene, page: Page) -> None:
    """The file that says which pool it is cannot be read: the view says so and keeps what it has."""
    show(page, "pool")
    page.locator('[data-host="b"]').wait_for()
    path = Path(scene.env["VGPUMGR_SIM"]) / "host/state" / FILE_NAME
    text = path.read_text()
    path.write_text("{")
    try:
        page.locator("main .refusal").wait_for(timeout=PATIENCE_MS)
        assert "cannot read which pool this host is in" in page.locator(".refusal").inner_text()
        assert re.search(r"What is shown of the pool is \d+", page.locator("main").inner_text())
        assert page.locator('[data-host="b"]').count() == 1
        # the rest goes on, and says nothing of it
        show(page, "")
        assert page.locator("[data-gpu]").count() == 8
        scene.vgpumgr("gpu", "drain", "4", "--reason", "a new fan")
        page.locator('[data-gpu="4"]').get_by_text("drained").wait_for(timeout=PATIENCE_MS)
        assert page.locator(".refusal").count() == 0
        show(page, "pool")
        page.locator("main .refusal").wait_for(timeout=PATIENCE_MS)
    finally:
        path.write_text(text)
    # one that is not heard any more is suspect
    scene.write_pool(Delete(alive_key("b")))
    page.locator('[data-host="b"] .badge.warn').wait_for(timeout=PATIENCE_MS)
    assert page.locator('[data-host="b"] .badge.warn').inner_text() == "suspect"
    assert page.locator(".refusal").count() == 0
    # one that takes nothing new says why, and has no lease
    closed = page.locator('[data-host="a"] .board[aria-label^="GPU 4 "][aria-label*="a new fan"]')
    closed.wait_for(timeout=PATIENCE_MS)
    assert closed.locator(".area.going .texture").count() == 1
    assert closed.locator(".area.free").count() == 0


def check_history(scene: Scene, page: Page) -> None:
    plot = page.locator('[data-figure="gpu_unusable_ratio"]')
    plot.wait_for(timeout=PATIENCE_MS)
    figures = {one["figure"] for one in scene.get("/1.0/history?pool=true")["series"]}
    shown = {str(one.get_attribute("data-figure")) for one in page.locator(".plot").all()}
    assert shown == figures
    assert len(figures) == 4
    assert "%" in plot.locator("h3").inner_text()


def multiply(status: dict[str, Any], claims: dict[str, Any]) -> None:
    """400 hosts and 2000 claims, made of a genuine one; the last ones have names that are markup."""
    (host, *_), (claim, *_) = status["hosts"], claims["claims"]
    names = [*(f"host-{n}" for n in range(399)), MARKUP]
    status["hosts"] = [{**host, "name": name} for name in names]
    many = []
    for number in range(2000):
        name = names[number % len(names)]
        lease = {**claim["lease"], "host": name}
        is_last = number == 1999
        use = {"host": name, "kind": "vm", "name": MARKUP, "uuid": None, "attachment": "a"}
        many.append(
            {**claim, "name": MARKUP if is_last else f"c{number}", "lease": lease, "used_by": use}
        )
    claims["claims"] = many


def test_a_large_pool_is_drawn_in_parts_and_its_names_stay_text(
    hosts: Scene, browser: Browser
) -> None:
    if not hosts.get("/1.0")["pool"]:
        hosts.vgpumgr("pool", "init")
        hosts.vgpumgr("pool", "join", "--name", "a")
        hosts.vgpumgr("claim", "create", "train", *SHARE)
    status, claims = hosts.get("/1.0/pool"), hosts.get("/1.0/pool/claims")
    multiply(status, claims)
    with open_session(hosts, browser) as session:
        page = session.context.new_page()
        page.on("dialog", lambda dialog: session.problems.append(dialog.message))
        page.on("pageerror", lambda error: session.problems.append(str(error)))
        page.route("**/1.0/pool", lambda route: route.fulfill(json=status))
        page.route("**/1.0/pool/claims", lambda route: route.fulfill(json=claims))
        page.goto(f"{session.address}#/pool")
        page.locator("[data-host]").first.wait_for(timeout=PATIENCE_MS)
        assert page.locator("[data-host]").count() == 60
        assert page.locator("tr[data-claim]").count() == 200
        assert "60 of 400 are shown" in page.locator("main").inner_text()
        page.get_by_label("Filter hosts by name").fill(MARKUP[:8])
        page.locator(".pool-hosts h3", has_text=MARKUP).wait_for()
        assert page.locator("[data-host]").count() == 1
        page.get_by_label("Filter claims by name, tenant or host").fill(MARKUP[:8])
        row = page.locator("tr[data-claim]").last
        page.get_by_role("link", name=MARKUP, exact=True).wait_for()
        assert f"vm {MARKUP}" in row.inner_text()
        assert page.locator("main img").count() == 0
        page.set_viewport_size({"width": 320, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        page.close()
        assert not session.problems
