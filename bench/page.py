"""The web page of a host with 16 GPUs in Debian's Chromium, over ``vgpumgr web``.

Measured is the time until the first card is drawn and until an event of the daemon is seen, what an open page takes of
the processor, and with ``--minutes`` the memory of a page that is open so long.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.commands import VGPUMGR
from bench.daemon import cpu_s, running_daemon
from bench.registry import ROOT, Figure, at_most, make_goal
from vgpumgr.sim.machine import machine_text

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

CHROMIUM = "/usr/bin/chromium"
MACHINE, GPUS = "large", 16
BACKEND = "simulated driver"
#: from the request for the page to its first card, and from an event of the daemon to what it changes on the page
FIRST_GOAL_S, UPDATE_GOAL_S = 1.0, 0.1
#: of one processor
CPU_GOAL_RATIO = 0.01
#: of what the page had once its lists of events and operations were full
MEMORY_GOAL_RATIO = 1.1
#: two changes in this time, each with its operation and its events
PACE_S = 2.0
#: the page keeps 300 events and 100 operations
FULL_AFTER = 200
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
#: ``window.seen`` has when the first card was there, and when the badges of each changed; in milliseconds since 1970
WATCH = """
window.seen = {first: 0, changed: {}};
const now = () => performance.timeOrigin + performance.now();
new MutationObserver((changes) => {
  if (!window.seen.first && document.querySelector('[data-gpu]')) window.seen.first = now();
  for (const {target} of changes) {
    const badges = (target.nodeType === 1 ? target : target.parentElement)?.closest('.badges');
    if (badges) window.seen.changed[badges.closest('[data-gpu]')?.dataset.gpu] ??= now();
  }
}).observe(document, {subtree: true, childList: true, characterData: true});
"""


@dataclass
class Rig:
    """A daemon, ``vgpumgr web`` before it, and a browser with its cookie and key."""

    daemon: int
    web: int
    path: str
    address: str
    context: BrowserContext

    def open(self) -> Page:
        """A page of its own, connected, with nothing of it in the browser's cache."""
        page = self.context.new_page()
        devtools = self.context.new_cdp_session(page)
        devtools.send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.add_init_script(WATCH)
        page.goto(self.address)
        page.locator(".connection.live").wait_for()
        return page

    def post(self, path: str, body: object) -> None:
        """A change, once it has ended."""
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nPrefer: wait=60\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(self.path)
            stream.sendall(head.encode() + data)
            with stream.makefile("rb") as file:
                answer = file.read()
        if not answer.startswith(b"HTTP/1.1 20") or b'"succeeded"' not in answer:
            raise ConnectionError(answer.decode())

    def change(self, number: int) -> None:
        """The GPUs one after another are drained, and then resumed."""
        verb = "resume" if number // GPUS % 2 else "drain"
        self.post(f"/1.0/gpus/{number % GPUS}/{verb}", {})


def run(small: bool = False) -> Iterable[Figure]:
    """Times and the processor's part; ``small``: to see that it runs."""
    runs, period_s = (1, 1.0) if small else (15, 60.0)
    with open_rig() as rig:
        first = statistics.median(list(_draw(rig, runs)))
        yield make_goal(f"page: first card of {GPUS} GPUs", first, FIRST_GOAL_S, BACKEND)
        updates = sorted(_update(rig, runs))
        yield make_goal(
            "page: an event is seen", statistics.median(updates), UPDATE_GOAL_S, BACKEND
        )
        yield make_goal("page: an event is seen, slowest", updates[-1], UPDATE_GOAL_S, BACKEND)
        alone = _cpu(rig, period_s)
        page = rig.open()
        opened = _cpu(rig, period_s)
        page.close()
        yield _share("page: daemon, none is open (CPU)", alone[0], period_s)
        yield _share("page: daemon, what an open one adds (CPU)", opened[0] - alone[0], period_s)
        yield _share("page: vgpumgr web, one is open (CPU)", opened[1], period_s)


def run_long(minutes: float, full_after: int = FULL_AFTER) -> Iterable[Figure]:
    """The page's memory after so many minutes at the pace of a busy host, against that when its lists were full."""
    with open_rig() as rig:
        page = rig.open()
        devtools = rig.context.new_cdp_session(page)
        full, number = 0.0, 0
        ends = time.monotonic() + minutes * 60
        while time.monotonic() < ends or number < 2 * full_after:
            began = time.monotonic()
            rig.change(number)
            number += 1
            if number == full_after:
                full = _heap(page, devtools)
            page.wait_for_timeout(max(0.0, PACE_S / 2 - (time.monotonic() - began)) * 1000)
        after = _heap(page, devtools)
        nodes = devtools.send("Memory.getDOMCounters")["nodes"]
        page.close()
    print(f"page: {number} changes in {minutes:g} minutes; {nodes} nodes at the end")
    goal, met = at_most(MEMORY_GOAL_RATIO, after, full)
    yield Figure(
        f"page: memory after {minutes:g} minutes", after / 2**20, full / 2**20, "MiB", f"after {full_after} changes",
        goal, met, BACKEND,
    )  # fmt: skip


def _draw(rig: Rig, runs: int) -> Iterator[float]:
    for _ in range(runs):
        page = rig.open()
        assert page.locator("[data-gpu]").count() == GPUS
        yield page.evaluate("(window.seen.first - performance.timeOrigin) / 1000")
        page.close()


def _update(rig: Rig, runs: int) -> Iterator[float]:
    """From the time that the daemon writes on the event to the change of the card."""
    page = rig.open()
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(rig.path)
        stream.settimeout(60)
        stream.sendall(b"GET /1.0/events HTTP/1.1\r\nHost: x\r\n\r\n")
        with stream.makefile("rb") as events:
            for _ in range(runs):
                for verb in ("drain", "resume"):
                    page.evaluate("window.seen.changed = {}")
                    rig.post(f"/1.0/gpus/3/{verb}", {})
                    event = _await_event(events)
                    # the page's policy allows no wait_for_function
                    while not (seen_ms := page.evaluate("window.seen.changed[3]")):
                        page.wait_for_timeout(20)
                    yield seen_ms / 1000 - event["time_s"]
    page.close()


def _await_event(events: Any) -> dict[str, Any]:
    """The next operation that has ended."""
    for line in events:
        if line.startswith(b"data:"):
            event: dict[str, Any] = json.loads(line[5:])
            if event["type"] == "operation" and event["status"] == "succeeded":
                return event
    raise ConnectionError("the events end")


def _cpu(rig: Rig, period_s: float) -> tuple[float, float]:
    """Processor seconds of the daemon and of ``vgpumgr web`` while nothing changes."""
    before = [cpu_s(pid) for pid in (rig.daemon, rig.web)]
    time.sleep(period_s)
    after = [cpu_s(pid) for pid in (rig.daemon, rig.web)]
    return after[0] - before[0], after[1] - before[1]


def _share(name: str, taken_s: float, period_s: float) -> Figure:
    # the kernel counts ticks
    ours = max(taken_s, _TICK_S) / period_s
    goal, met = at_most(1, ours, CPU_GOAL_RATIO)
    return Figure(name, ours * 100, CPU_GOAL_RATIO * 100, "%", "1 % of one", goal, met, BACKEND)


def _heap(page: Page, devtools: Any) -> float:
    """The least of some: what was just read is no part of it."""
    found = []
    for _ in range(5):
        page.wait_for_timeout(1000)
        devtools.send("HeapProfiler.collectGarbage")
        found.append(float(devtools.send("Runtime.getHeapUsage")["usedSize"]))
    return min(found)


@contextmanager
def open_rig() -> Iterator[Rig]:
    """A daemon of a host with 16 GPUs, its page, and a browser that has entered."""
    from playwright.sync_api import sync_playwright

    text = machine_text(GPUS, 16, "A100-SXM4-80GB", "mdev")
    with running_daemon(MACHINE, text) as (daemon, path), sync_playwright() as playwright:
        web = subprocess.Popen(
            [*VGPUMGR, "--machine", MACHINE, "web"], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert web.stdout is not None
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            address = web.stdout.readline().strip()
            context = browser.new_context(viewport={"width": 1400, "height": 900})
            page = context.new_page()
            page.goto(address)
            page.locator(".connection.live").wait_for()
            page.close()
            yield Rig(daemon, web.pid, path, address.partition("?")[0], context)
        finally:
            browser.close()
            web.terminate()
            web.wait()
