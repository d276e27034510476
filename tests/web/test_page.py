"""The page itself: size, widths, accessibility, many GPUs, many events, and the way through Cockpit."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.conftest import AXE, BUNDLE, Session
from tests.web.scene import Scene
from tests.web.test_stories import card, choose, watch_cards

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWS = ("", "vms", "drift", "operations", "events", "checks", "audit")
#: of the bundle, in all
MAX_BYTES = 250_000


def list_paths(scene: Scene) -> list[str]:
    """Every view, with a GPU's and a VM's own."""
    gpu = scene.get("/1.0/gpus")["gpus"][0]["uuid"]
    vm = scene.get("/1.0/vms")["vms"][1]["uuid"]
    return [*VIEWS, f"gpu/{gpu}", f"vm/{vm}"]


def show(page: Page, path: str) -> None:
    """Another view, drawn."""
    page.goto(f"{page.url.partition('#')[0]}#/{path}")
    page.locator("main h1").first.wait_for()


def test_the_bundle_is_small_and_needs_nothing_else() -> None:
    assets = [path for path in BUNDLE.rglob("*") if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes())) for path in assets) <= MAX_BYTES
    for name in ("index.html", "cockpit.html"):
        text = (BUNDLE / name).read_text()
        assert not re.search(r"<style|style=|onload=|<script(?![^>]* src=)|https?://", text)
        assert "../base1/cockpit.js" not in text or name == "cockpit.html"
        for asset in re.findall(r'(?:src|href)="\./([^"]+)"', text):
            assert (BUNDLE / asset).is_file()
    scripts = "".join(path.read_text() for path in BUNDLE.rglob("*.js"))
    addresses = set(re.findall(r"https?://[\w.-]+", scripts))
    assert addresses <= {"http://www.w3.org"}, "names of XML, and no other host"


@pytest.mark.parametrize("width", [320, 2560])
def test_no_view_scrolls_sideways(scene: Scene, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for path in list_paths(scene):
        show(page, path)
        over = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert over <= 0, path
    show(page, "")
    page.get_by_role("button", name="Attach a slice to vm03").click()
    box = page.locator("dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def test_axe_finds_nothing_serious(scene: Scene, page: Page) -> None:
    page.evaluate(AXE.read_text())
    found = []
    for path in list_paths(scene):
        show(page, path)
        found += run_axe(page, path)
    show(page, "")
    page.get_by_label("7g.80gb: 0. Why does it not fit?").click()
    page.locator("dialog .reasons").first.wait_for()
    found += run_axe(page, "why")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Attach a slice to vm01").click()
    found += run_axe(page, "attach")
    choose(page, "vm01", "1g.10gb")
    page.locator(".refusal").wait_for()
    found += run_axe(page, "refusal")
    page.get_by_role("button", name="Back").click()
    page.locator("input[name=add]").check()
    page.get_by_role("button", name="Show plan").click()
    page.locator('[data-phase="planned"]').wait_for()
    found += run_axe(page, "plan")
    assert not found


def run_axe(page: Page, where: str) -> list[str]:
    """What is serious or critical; in the dark, contrast."""
    found = []
    for scheme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        result = page.evaluate(
            "(options) => axe.run(document, {resultTypes: ['violations'], ...options})", options
        )
        found += [
            f"{where or 'overview'} {scheme}: {rule['id']}: {rule['nodes'][0]['html'][:160]}"
            for rule in result["violations"]
            if rule["impact"] in ("serious", "critical")
        ]
    return found


def make_gpus(document: dict[str, Any], holder: str) -> dict[str, Any]:
    """64 copies of GPU 0 with eight slices each, all of them vm01's but the last, which is the holder's."""
    first = document["gpus"][0]
    slices = []
    for number in range(8):
        held = {"vm": "vm01", "holder": {"kind": "vm", "name": "vm01"}, "compute_instances": []}
        place = {"start": number, "size": 1}
        slices.append(
            {
                **first["instances"][0],
                **held,
                "id": number + 1,
                "placement": place,
                "profile": "1g.10gb",
            }
        )
    gpus = [{**first, "index": n, "uuid": f"GPU-{n:08x}", "instances": slices} for n in range(64)]
    last = {**slices[7], "vm": holder, "holder": {"kind": "vm", "name": holder}}
    gpus[63] = {**gpus[63], "instances": [*slices[:7], last]}
    return {**document, "gpus": gpus}


def test_64_gpus_with_512_slices(scene: Scene, session: Session) -> None:
    """The simulator has at most 16: the answers are made of a genuine one."""
    holder = "vm01"
    document = scene.get("/1.0/gpus")
    page = session.context.new_page()
    page.route("**/1.0/gpus", lambda route: route.fulfill(json=make_gpus(document, holder)))
    page.goto(session.address)
    page.locator(".connection.live").wait_for()
    assert page.locator("[data-gpu]").count() == 64
    assert page.locator(".area.vm").count() == 512
    watch_cards(page)
    holder = "vm02"
    scene.post("/1.0/gpus/7/drain", {})
    card(page, 63).locator('.board[aria-label*="vm02"]').wait_for()
    scene.post("/1.0/gpus/7/resume", {})
    assert page.evaluate("[...window.touched]") == ["63"]
    for width in (320, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_vgpus_and_virtual_functions_are_areas(scene: Scene, session: Session) -> None:
    """Answers as a host of vGPUs has them, made of a genuine one."""
    document = scene.get("/1.0/gpus")
    device = {
        "kind": "vgpu", "name": "u1", "function": "0000:47:00.4", "profile": "NVIDIA A100-20C", "vm": "vm01",
        "memory_bytes": 20 << 30, "attachment": None, "driver": None, "gpu_instance": None,
    }  # fmt: skip
    document["gpus"][2] |= {"devices": [device], "vfs_enabled": 16}
    functions = [
        {**device, "kind": "vf", "profile": "vf", "name": f"v{n}", "memory_bytes": None, "vm": vm}
        for n, vm in enumerate(("vm02", None))
    ]
    other = {
        "pci": "0000:4d:00.0", "model": "Another GPU", "devices": functions, "vfs_enabled": 4, "vms": [],
        "boot_display": False, "drained": None, "sensors": None,
    }  # fmt: skip
    document["others"] = [other]
    page = session.context.new_page()
    page.route("**/1.0/gpus", lambda route: route.fulfill(json=document))
    page.goto(session.address)
    page.locator(".connection.live").wait_for()
    board = card(page, 2).locator(".board")
    assert "NVIDIA A100-20C at 0000:47:00.4: vm01." in str(board.get_attribute("aria-label"))
    taken, rest = (board.locator(f".area.{kind}") for kind in ("vgpu", "free"))
    assert float(str(taken.get_attribute("width")).rstrip("%")) == pytest.approx(25, abs=1)
    assert float(str(rest.get_attribute("width")).rstrip("%")) == pytest.approx(75, abs=1)
    assert card(page, 2).get_by_text("whole GPU").count() == 0
    functions_of = page.get_by_role("article", name="0000:4d:00.0")
    assert functions_of.locator(".area").count() == 3, "one in a VM, one in none, and two more"
    assert functions_of.locator(".chip").all_inner_texts() == ["virtual functions: 3 more"]
    page.close()


def test_the_bundle_has_files_that_the_daemon_serves() -> None:
    from vgpumgr.server.page import _KINDS

    assert {path.suffix for path in BUNDLE.rglob("*") if path.is_file()} <= set(_KINDS)


def make_events(first: int, count: int) -> str:
    """Server-sent events of an operation that goes on and on."""
    events = []
    for number in range(first, first + count):
        step = {"time_s": float(number), "word": "do", "description": f"step {number}"}
        event = {
            "id": number, "type": "operation", "time_s": float(number), "operation": f"{number // 4:016x}",
            "name": "attach", "subject": "vm01", "status": "running", "step": step,
        }  # fmt: skip
        events.append(f"id: {number}\nevent: operation\ndata: {json.dumps(event)}\n\n")
    return "".join(events)


def test_many_events_take_a_bounded_memory(session: Session) -> None:
    sent = allowed = 0

    def answer(route: Any) -> None:
        nonlocal sent
        body = ": none\n\n"
        if sent < allowed:
            body = make_events(sent, 6000)
            sent += 6000
        route.fulfill(body=body, content_type="text/event-stream")

    page = session.context.new_page()
    page.route("**/1.0/events", answer)
    page.goto(f"{session.address}#/events")
    devtools = session.context.new_cdp_session(page)

    def heap_after(events: int) -> int:
        # the stream ends with its answer, and the page asks for what comes next
        nonlocal allowed
        allowed = events
        while sent < events:
            page.wait_for_timeout(50)
        page.get_by_text(f"step {events - 1}").first.wait_for()
        devtools.send("HeapProfiler.collectGarbage")
        return int(devtools.send("Runtime.getHeapUsage")["usedSize"])

    few = heap_after(6000)
    assert page.locator("tbody tr").count() == 300
    many = heap_after(18000)
    assert many < few * 1.1
    page.close()


#: Cockpit's interface as its documentation has it, over the page's own address
BRIDGE = """
window.cockpit = { http(socket, options) {
  window.bridge = {socket, options, paths: []};
  return { request({method, path, body, headers}) {
    window.bridge.paths.push(method + ' ' + path);
    const controller = new AbortController();
    let onText = null, onHead = null;
    const {Host, ...rest} = headers;
    rest['X-Vgpumgr-Page'] = localStorage.getItem('vgpumgr-key');
    const asked = {method, headers: rest, body: body || undefined, signal: controller.signal};
    const work = fetch(path, asked).then(async (answer) => {
      onHead?.(answer.status, Object.fromEntries(answer.headers));
      const {status} = answer;
      if (status >= 400) throw Object.assign(new Error('bad'), {status, data: await answer.text()});
      if (!onText) return answer.text();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) { const {done, value} = await reader.read(); if (done) return ''; onText(value); }
    });
    const call = {
      then: (done, failed) => work.then(done, (error) => failed(error, error.data)),
      stream(callback) { onText = callback; return call; },
      response(callback) { onHead = callback; return call; },
      close() { controller.abort(); },
    };
    return call;
  } };
} };
"""


def test_inside_cockpit_all_goes_through_its_bridge(scene: Scene, session: Session) -> None:
    page = session.context.new_page()
    page.add_init_script(BRIDGE)
    page.goto(session.address)
    page.locator(".connection.live").wait_for()
    bridge = page.evaluate("window.bridge")
    assert bridge["socket"] == "/run/vgpumgr/vgpumgr.sock"
    assert bridge["options"] == {"superuser": "try"}
    assert {"GET /1.0", "GET /1.0/events", "GET /1.0/gpus"} <= set(bridge["paths"])
    scene.post("/1.0/gpus/6/drain", {})
    card(page, 6).get_by_text("drained").wait_for()
    scene.post("/1.0/gpus/6/resume", {})
    page.get_by_role("button", name="Attach a slice to vm01").click()
    page.locator("input[name=profile]").fill("1g.10gb")
    page.get_by_role("button", name="Show plan").click()
    page.get_by_text('vm "vm01" has 3g.40gb already').wait_for()
    page.close()


def show_as(page: Page, state: str) -> None:
    """A browser says ``hidden`` of a tab behind another one."""
    page.evaluate(
        "(state) => { Object.defineProperty(document, 'visibilityState', {value: state, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        state,
    )


def test_a_page_that_is_not_seen_ends_its_stream(scene: Scene, session: Session) -> None:
    page = session.context.new_page()
    page.clock.install()
    # opened behind another tab
    page.add_init_script(
        "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})"
    )
    streams: list[str] = []
    page.on(
        "request", lambda request: streams.append(request.url) if "/events" in request.url else None
    )
    page.goto(session.address)
    page.locator(".connection.connecting").wait_for()
    page.clock.fast_forward(61_000)

    assert not streams
    show_as(page, "visible")
    page.locator(".connection.live").wait_for()
    show_as(page, "hidden")
    page.locator(".connection.connecting").wait_for()
    scene.post("/1.0/gpus/4/drain", {})
    page.clock.fast_forward(61_000)
    assert len(streams) == 1
    assert card(page, 4).get_by_text("drained").count() == 0
    with page.expect_request("**/1.0/events"):
        show_as(page, "visible")
    card(page, 4).get_by_text("drained").wait_for()
    assert len(streams) == 2
    scene.post("/1.0/gpus/4/resume", {})
    page.close()


def test_a_user_whom_the_daemon_refuses_reads_why(session: Session) -> None:
    parts: dict[str, Any] = {
        "id": "VG353", "error": "you may not", "cause": None, "why": "no group of yours may read", "held_by": [],
        "try": "usermod -aG vgpumgr-ro you", "exit_code": 4,
    }  # fmt: skip
    page = session.context.new_page()
    page.route("**/1.0", lambda route: route.fulfill(status=403, json={"error": parts}))
    page.goto(session.address)
    page.get_by_text("The daemon refuses this user").wait_for()
    assert "no group of yours may read" in page.locator(".refusal").inner_text()
    page.unroute("**/1.0")
    page.locator(".connection.live").wait_for()
    assert page.locator(".refusal").count() == 0
    page.close()
