"""How the page follows events: what is seen is read first, and no late answer replaces a newer one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.web.scene import Scene
from tests.web.test_stories import card, stop_polls

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

GPU = 5


@contextmanager
def hear(page: Page) -> Iterator[list[str]]:
    """Requests as they begin, and with a point before them as they end."""
    heard: list[str] = []
    # those of before have ended here, too
    page.wait_for_timeout(200)
    page.on("request", lambda request: heard.append(request.url.partition("/1.0/")[2]))
    page.on(
        "requestfinished", lambda request: heard.append("." + request.url.partition("/1.0/")[2])
    )
    yield heard


@contextmanager
def drained(scene: Scene) -> Iterator[None]:
    """A GPU takes no new slice meanwhile."""
    scene.post(f"/1.0/gpus/{GPU}/drain", {})
    try:
        yield
    finally:
        scene.post(f"/1.0/gpus/{GPU}/resume", {})


#: what is seen first has no longer than this on a host; here it has as long as this machine takes
NO_HURRY = """
const {setTimeout} = window;
window.setTimeout = (call, ms, ...rest) => setTimeout(call, ms > 100 && ms < 1000 ? 60_000 : ms, ...rest);
"""


def test_what_is_seen_is_read_first_and_only_what_the_event_names(scene: Scene, page: Page) -> None:
    page.add_init_script(NO_HURRY)
    stop_polls(page)
    with hear(page) as heard, drained(scene):
        card(page, GPU).get_by_text("drained").wait_for()
        # the last that a drain concerns
        while ".status" not in heard:
            page.wait_for_timeout(20)
    assert heard.index(".gpus") < heard.index("mig/profiles") < heard.index("status")
    assert {"vms", "channels"}.isdisjoint(heard[: heard.index(".status")])


def test_what_does_not_answer_keeps_nothing_else_back(scene: Scene, page: Page, vm03: str) -> None:
    stop_polls(page)
    held: list[Route] = []
    page.route("**/1.0/vms", lambda route: held.append(route))
    with hear(page) as heard:
        scene.post("/1.0/attachments", {"vm": vm03, "profile": "1g.10gb"})
        page.locator('.board[aria-label*="vm03"]').first.wait_for()
        deadline = time.monotonic() + 30
        while not {".mig/profiles", ".channels", ".status"} <= set(heard):
            assert time.monotonic() < deadline, heard
            page.wait_for_timeout(20)
        assert held
        assert ".vms" not in heard
    # what was held goes on
    page.unroute("**/1.0/vms")
    page.locator('[data-vm="vm03"]').get_by_text("1g.10gb").wait_for()


def test_a_late_answer_replaces_no_newer_one(scene: Scene, page: Page) -> None:
    """The first answer is from before the second event, and arrives after it."""
    stop_polls(page)
    held: list[Route] = []
    stale = scene.get("/1.0/gpus")

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/1.0/gpus", hold_first)
    with drained(scene):
        while not held:
            page.wait_for_timeout(20)
        # of the event that is not read yet
        scene.post(f"/1.0/gpus/{GPU + 1}/drain", {})
        try:
            page.goto(f"{page.url.partition('#')[0]}#/events")
            page.get_by_role("row").filter(has_text="drain").nth(1).wait_for()
            page.wait_for_timeout(300)
            held[0].fulfill(json=stale)
            page.goto(f"{page.url.partition('#')[0]}#/")
            for gpu in (GPU, GPU + 1):
                card(page, gpu).get_by_text("drained").wait_for()
            page.wait_for_timeout(300)
            assert card(page, GPU).get_by_text("drained").count() == 1
        finally:
            scene.post(f"/1.0/gpus/{GPU + 1}/resume", {})


#: events come from the test, and the answer of ``/1.0/gpus`` is the one of before, at once
STUB = """
const {fetch} = window, encoder = new TextEncoder();
let kept = null;
window.reads = 0;
window.fetch = async (path, options) => {
  if (path === '/1.0/events') {
    return new Response(new ReadableStream({start(stream) {
      window.emit = (event) => stream.enqueue(encoder.encode(`data: ${JSON.stringify(event)}\\n\\n`)); }}));
  }
  if (path !== '/1.0/gpus') return fetch(path, options);
  window.reads += 1;
  kept ??= await (await fetch(path, options)).text();
  return new Response(kept);
};
"""
#: for a second; the answer is how often the GPUs were read, and how long it took. Then one more is read, too
BURST = """
async () => {
  window.reads = 0;
  const began = performance.now();
  for (let id = 1; performance.now() < began + 1000; id += 1) {
    window.emit({id, type: 'device', time_s: 0});
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const during = window.reads;
  const took = performance.now() - began;
  window.emit({id: 100000, type: 'device', time_s: 0});
  while (window.reads === during) await new Promise((resolve) => setTimeout(resolve, 10));
  return [during, took];
}
"""


def test_a_burst_is_read_ten_times_a_second_at_most_and_its_end_is_read(page: Page) -> None:
    page.add_init_script(STUB)
    stop_polls(page)
    # ends with a read of what came last
    during, took_ms = page.evaluate(BURST)
    assert 1 <= during <= took_ms / 100 + 2
