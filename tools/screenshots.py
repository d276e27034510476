"""Pictures of the web page: ``./run screenshots [DIRECTORY]`` writes one PNG for each scene, in ``docs/web``.

The page is the built one, behind the genuine daemon and ``vgpumgr web``; the machine is simulated,
and libvirt is the fake of the page's tests. Debian's chromium draws.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.web.scene import ROOT, Scene, run_scene

if TYPE_CHECKING:
    from playwright.sync_api import BrowserType, Page

CHROMIUM = "/usr/bin/chromium"
PICTURES = ROOT / "docs/web"
FONTS = ROOT / "tools/fonts.conf"
VMS = ("web01", "train01", "notebook03", "render02")
WIDTH, HEIGHT = 1280, 800
#: milliseconds until what was asked for is drawn
DRAWN_MS = 600


def prepare(scene: Scene) -> None:
    """A machine that is worth a picture."""
    for gpu in ("0", "1"):
        scene.post("/1.0/mig/mode", {"gpu": gpu, "enabled": True})
    for vm, profile, gpu in (
        ("train01", "3g.40gb", "0"), ("web01", "1g.10gb", "0"), ("notebook03", "share:16GiB,25%", "2"),
        ("render02", "share:32GiB,50%", "2"),
    ):  # fmt: skip
        scene.post("/1.0/attachments", {"vm": vm, "profile": profile, "gpu": gpu})
    scene.post("/1.0/mig/create", {"gpu": "1", "profile": "2g.20gb", "count": 2})
    scene.post("/1.0/gpus/7/drain", {"reason": "a fan is to be replaced"})


def join_pool(scene: Scene) -> None:
    """A pool of this host with claims of two tenants, one of which waits."""
    scene.vgpumgr("pool", "init")
    scene.vgpumgr("pool", "join", "--name", "gpu-a")
    scene.vgpumgr("tenant", "create", "vision", "--gpus", "2.5")
    scene.vgpumgr("tenant", "create", "teaching", "--gpus", "0.5")
    for name, tenant, profile in (
        ("train", "vision", "whole"), ("detect", "vision", "share:24GiB,40%"), ("label", "vision", "share:8GiB,30%"),
        ("lesson-1", "teaching", "share:8GiB,25%"), ("lesson-2", "teaching", "share:8GiB,25%"),
        ("lesson-3", "teaching", "share:8GiB,25%"),
    ):  # fmt: skip
        scene.vgpumgr("claim", "create", name, "--tenant", tenant, "--profile", profile)
    scene.post("/1.0/attachments", {"vm": "web01", "claim": "detect"})
    scene.add_host("gpu-b", 4)
    scene.add_host("gpu-c", 2)


def show_pool(page: Page) -> None:
    """The view of the pool."""
    page.get_by_role("navigation").get_by_role("link", name="Pool").click()
    page.locator("tr[data-claim]").first.wait_for()


def show_explained(page: Page) -> None:
    """The hosts of a claim."""
    show_pool(page)
    page.locator("tr[data-claim=detect]").get_by_role("link").first.click()
    page.locator("tr[data-candidate]").first.wait_for()


def show_plan(page: Page) -> None:
    """An attach before consent."""
    page.get_by_role("button", name="2g.20gb: 1 more").first.click()
    page.locator("select[name=vm]").select_option(label="web01")
    page.locator("input[name=add]").check()
    page.get_by_role("button", name="Show plan").click()
    page.locator('[data-phase="planned"]').wait_for()


def show_layout(page: Page) -> None:
    """The layout of a GPU while it is edited."""
    page.get_by_role("link", name="GPU 0").click()
    page.get_by_role("button", name="Edit layout").click()
    page.locator(".adding .chip").first.click()


Scenes = Sequence[tuple[str, Callable[[Any], None] | None]]
#: the name of each picture, and what is done before it; those of the pool are of a machine of its own
SCENES: Scenes = (
    ("overview", None),
    ("plan", show_plan),
    ("layout", show_layout),
)
POOL_SCENES: Scenes = (("pool", show_pool), ("explain", show_explained))
#: what makes each machine, and its pictures
MACHINES = ((prepare, SCENES), (join_pool, POOL_SCENES))


def draw(
    chromium: BrowserType, address: str, target: Path, scenes: Scenes = SCENES
) -> Iterator[Path]:
    """One picture for each scene; beside the first ones the overview in the dark and on a narrow screen. Everywhere in
    the same font.
    """
    target.mkdir(parents=True, exist_ok=True)
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    env: dict[str, str | float | bool] = {**os.environ, "FONTCONFIG_FILE": str(FONTS)}
    browser = chromium.launch(executable_path=CHROMIUM, args=options, env=env)
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    with open_page(context.new_page(), address):
        # the context has the cookie and the key from here on
        base = address.partition("?")[0]
    for name, act in scenes:
        with open_page(context.new_page(), base) as page:
            if act is not None:
                act(page)
            yield save(page, target / f"{name}.png")
    if scenes is SCENES:
        with open_page(context.new_page(), base) as page:
            page.emulate_media(color_scheme="dark")
            yield save(page, target / "dark.png")
            page.set_viewport_size({"width": 320, "height": HEIGHT})
            yield save(page, target / "narrow.png")
    browser.close()


@contextmanager
def open_page(page: Page, base: str) -> Iterator[Page]:
    """The overview, connected."""
    page.goto(base)
    page.locator(".connection.live").wait_for()
    yield page
    page.close()


def save(page: Page, path: Path) -> Path:
    """The picture."""
    page.wait_for_timeout(DRAWN_MS)
    page.screenshot(path=path)
    return path


def main(arguments: list[str]) -> int:
    """Draws all scenes, and prints the names of the pictures."""
    from playwright.sync_api import sync_playwright

    if len(arguments) > 1 or any(word.startswith("-") for word in arguments):
        print("usage: ./run screenshots [DIRECTORY]", file=sys.stderr)
        return 2
    target = Path(arguments[0]) if arguments else PICTURES
    with sync_playwright() as playwright:
        for make, scenes in MACHINES:
            with run_scene("dgx-a100", VMS) as scene:
                make(scene)
                for picture in draw(playwright.chromium, scene.open_web(), target, scenes):
                    print(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
