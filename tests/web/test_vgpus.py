"""vGPUs and virtual functions are made and removed from the page, on machines whose ``/sys`` behaves."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.conftest import AXE, Session, open_session
from tests.web.scene import Scene, run_scene
from tests.web.test_page import run_axe
from tests.web.test_stories import agree, read_command, read_plan, stop_polls

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

#: Intel's, which NVML does not know
FLEX = "0000:4d:00.0"
A100 = "0000:41:00.0"
TYPE = "NVIDIA A100-10C"


@pytest.fixture(scope="module")
def host(browser: Browser) -> Iterator[tuple[Scene, Session]]:
    """An A100 with virtual functions, which carry mediated devices."""
    with (
        run_scene("vgpu-a100", ("vm01",), behaves=True) as scene,
        open_session(scene, browser) as session,
    ):
        scene.post("/1.0/vfs/enable", {"selector": A100})
        yield scene, session


@pytest.fixture
def gpu(host: tuple[Scene, Session]) -> Iterator[Page]:
    """The view of it. What was made there is gone afterwards."""
    scene, session = host
    page = session.open(f"gpu/{scene.get('/1.0/gpus')['gpus'][0]['uuid']}")
    page.locator("main h1").wait_for()
    yield page
    page.close()
    if scene.list_vms()["vm01"]:
        scene.post("/1.0/attachments/vm01/detach", {"every": True})
    for vgpu in list_vgpus(scene):
        scene.post(f"/1.0/vgpus/{vgpu['uuid']}/delete", {})


def count_vfs(scene: Scene, address: str) -> int:
    found = scene.get(f"/1.0/vfs?selector={address}")["physicals"]
    return int(found[0]["count"])


def list_vgpus(scene: Scene) -> list[dict[str, Any]]:
    return list(scene.get("/1.0/vgpus")["vgpus"])


def list_rows(page: Page, table: str) -> list[list[str]]:
    rows = page.get_by_role("region", name=table, exact=True).last.locator("tbody tr")
    return [row.split("\t") for row in rows.all_inner_texts()]


def test_virtual_functions_are_enabled_and_disabled(browser: Browser) -> None:
    """Of a GPU that NVML does not know, whose view the overview leads to."""
    with (
        run_scene("intel-flex", ("vm01",), behaves=True) as scene,
        open_session(scene, browser) as session,
    ):
        page = session.open()
        page.get_by_role("link", name=FLEX).click()
        page.get_by_text("0 of 31").wait_for()
        page.get_by_role("button", name=f"Enable virtual functions of {FLEX}").click()
        page.get_by_label("How many, at most 31").fill("3")
        page.get_by_label("Again at every boot").check()
        page.get_by_role("button", name="Show plan").click()
        assert read_plan(page) == [f"+ make 3 virtual functions of {FLEX}"]
        assert read_command(page) == ["vf", "enable", FLEX, "--count", "3", "--persist"]
        assert count_vfs(scene, FLEX) == 0, "nothing is done before consent"
        agree(page)
        page.get_by_text("3 of 31").wait_for()
        assert len(list_rows(page, "Virtual functions")) == count_vfs(scene, FLEX) == 3
        assert scene.get(f"/1.0/vfs?selector={FLEX}")["physicals"][0]["persist"]
        page.get_by_role("button", name=f"Disable the virtual functions of {FLEX}").click()
        assert read_plan(page)[0].startswith("- ")
        assert read_command(page) == ["vf", "disable", FLEX]
        agree(page)
        page.get_by_text("0 of 31").wait_for()
        assert count_vfs(scene, FLEX) == 0


def test_a_vgpu_is_created_and_deleted(host: tuple[Scene, Session], gpu: Page) -> None:
    scene = host[0]
    gpu.get_by_role("button", name=f"Create a vGPU of type {TYPE}").click()
    gpu.get_by_label("With a definition: it can be started again").check()
    shown = gpu.locator("dialog .command code").inner_text()
    with gpu.expect_request(
        lambda request: request.method == "POST" and request.url.endswith("/1.0/vgpus")
    ) as planned:
        gpu.get_by_role("button", name="Show plan").click()
    body = json.loads(planned.value.post_data or "")
    assert body["gpu"] == scene.get("/1.0/gpus")["gpus"][0]["uuid"]
    step = read_plan(gpu)[0]
    command = read_command(gpu)
    assert shlex.split(shown)[1:] == command
    uuid = command[command.index("--uuid") + 1]
    assert command == ["mdev", "create", TYPE, "--gpu", "0", "--uuid", uuid, "--define"]
    assert step.startswith(f"+ create vGPU {TYPE}")
    assert not list_vgpus(scene), "nothing is done before consent"
    agree(gpu)
    gpu.get_by_role("button", name=f"Stop {TYPE} {uuid}").wait_for()
    made = list_vgpus(scene)[0]
    assert (made["uuid"], made["type"], made["state"], made["gpu_index"]) == (
        uuid,
        TYPE,
        "active",
        0,
    )
    act(gpu, f"Stop {TYPE} {uuid}", "stop", uuid)
    act(gpu, f"Start {TYPE} {uuid}", "start", uuid)
    act(gpu, f"Delete {TYPE} {uuid}", "delete", uuid)
    gpu.get_by_role("region", name="vGPUs", exact=True).first.wait_for(state="detached")
    assert not list_vgpus(scene)


def act(page: Page, button: str, verb: str, uuid: str) -> None:
    """A button of a vGPU, its plan and consent."""
    page.get_by_role("button", name=button).click()
    assert read_plan(page)[0][0] == {"start": "+"}.get(verb, "-")
    assert read_command(page) == ["mdev", verb, uuid]
    agree(page)


def test_what_a_vm_has_is_not_removed_and_the_refusal_says_whose_it_is(
    host: tuple[Scene, Session], gpu: Page
) -> None:
    scene = host[0]
    scene.post("/1.0/attachments", {"vm": "vm01", "profile": TYPE, "gpu": "0"})
    gpu.get_by_role("button", name=f"Delete {TYPE}").click()
    refusal = gpu.locator(".refusal")
    refusal.wait_for()
    assert "vm01" in refusal.inner_text()
    assert "vgpumgr detach vm01" in refusal.locator("code").inner_text()
    gpu.get_by_role("button", name="Close").last.click()
    gpu.get_by_role("button", name=f"Disable the virtual functions of {A100}").click()
    refusal.wait_for()
    assert "vm01" in refusal.inner_text()
    assert count_vfs(scene, A100) == 16
    assert len(list_vgpus(scene)) == 1


def test_what_the_command_line_makes_shows(host: tuple[Scene, Session], gpu: Page) -> None:
    scene = host[0]
    stop_polls(gpu)
    made = scene.vgpumgr("mdev", "create", TYPE, "--gpu", "0", "-o", "name").strip()
    gpu.get_by_role("button", name=f"Delete {TYPE} {made}").wait_for()
    gpu.locator('.board[aria-label*="A100-10C"]').wait_for()
    scene.vgpumgr("mdev", "delete", made)
    gpu.get_by_role("button", name=f"Delete {TYPE} {made}").wait_for(state="detached")


def test_what_the_command_line_asks_about_is_shown_and_agreed_to(gpu: Page) -> None:
    """As where the definition of a VM names a virtual function; what was not shown is not agreed to."""
    concern = "the definition of vm09 names 0000:41:00.4"
    sent: list[dict[str, Any]] = []
    shown: list[str] = []

    def answer(route: Route) -> None:
        body = json.loads(route.request.post_data or "{}")
        if body.get("dry_run"):
            answered = route.fetch()
            route.fulfill(response=answered, json={**answered.json(), "concerns": shown})
        else:
            sent.append(body)
            route.abort()

    gpu.route("**/1.0/vfs/disable", answer)
    for shown in ([concern], []):
        gpu.get_by_role("button", name=f"Disable the virtual functions of {A100}").click()
        read_plan(gpu)
        assert gpu.locator("dialog .note.warn").all_inner_texts() == shown
        gpu.get_by_role("button", name="Do it").click()
        gpu.locator('[data-phase="refused"]').wait_for()
        gpu.keyboard.press("Escape")
    assert sent == [{"selector": A100, "confirmed": True}, {"selector": A100}]


def test_views_and_dialogs_of_vgpus_with_the_keyboard_and_a_screen_reader(
    host: tuple[Scene, Session], gpu: Page
) -> None:
    scene = host[0]
    scene.post("/1.0/vgpus", {"type": TYPE, "gpu": "0"})
    button = gpu.get_by_role("button", name=f"Create a vGPU of type {TYPE}")
    button.wait_for()
    gpu.get_by_role("button", name=f"Delete {TYPE}").wait_for()
    gpu.evaluate(AXE.read_text())
    found = run_axe(gpu, "a GPU of vGPUs")
    button.focus()
    gpu.keyboard.press("Enter")
    gpu.get_by_label("It starts at every boot").focus()
    gpu.keyboard.press("Space")
    found += run_axe(gpu, "the form of a vGPU")
    gpu.keyboard.press("Enter")
    assert read_plan(gpu)[0].startswith(f"+ create vGPU {TYPE}")
    assert "--auto" in read_command(gpu)
    gpu.keyboard.press("Escape")
    gpu.locator("dialog").wait_for(state="detached")
    assert button.evaluate("(one) => one === document.activeElement"), "the focus is back"
    gpu.get_by_role("button", name=f"Enable virtual functions of {A100}").focus()
    gpu.keyboard.press("Enter")
    gpu.get_by_text("NVIDIA's tool enables all 16.").wait_for()
    found += run_axe(gpu, "the form of virtual functions")
    gpu.keyboard.press("Escape")
    assert not found
    gpu.set_viewport_size({"width": 320, "height": 900})
    assert gpu.evaluate("document.documentElement.scrollWidth") <= 320
