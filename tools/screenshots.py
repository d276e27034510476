"""Pictures of the web page: ``./run screenshots [DIRECTORY]`` writes one PNG for each scene, in ``docs/web``.

The page is the built one, behind the genuine daemon and ``vgpumgr web``; the machine is simulated. Debian's
chromium draws.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = "/usr/bin/chromium"
MACHINE = "dgx-a100"
#: commands that make the machine worth a picture
PREPARE: tuple[tuple[str, ...], ...] = (
    ("mig", "enable", "0"),
    ("mig", "create", "0", "3g.40gb"),
    ("mig", "create", "0", "1g.10gb", "--count", "2"),
    ("gpu", "drain", "7", "--reason", "a fan is to be replaced"),
)
#: the name of each picture, and what follows /ui/ in its address
SCENES: tuple[tuple[str, str], ...] = (
    ("overview", ""),
    ("operations", "#/operations"),
    ("checks", "#/checks"),
)
WIDTH, HEIGHT = 1280, 800


def vgpumgr(*words: str) -> list[str]:
    """A command on the simulated machine."""
    return [sys.executable, "-m", "vgpumgr", "--machine", MACHINE, *words]


@contextmanager
def running(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command in the foreground, for the time of the block."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def page_address() -> Iterator[str]:
    """The address of the page of a simulated machine. Raises SystemExit where there is none."""
    with tempfile.TemporaryDirectory(prefix="vgshots.") as directory:
        os.environ["VGPUMGR_SIM_ROOT"] = directory
        start = [sys.executable, "-m", "vgpumgr", "sim", "start", MACHINE]
        subprocess.run([*start, "--libvirt", "test:///default"], check=True, stdout=sys.stderr)
        try:
            with running(vgpumgr("daemon")):
                wait_for_daemon()
                for words in PREPARE:
                    subprocess.run(vgpumgr(*words), check=True, stdout=sys.stderr)
                with running(vgpumgr("--quiet", "web")) as web:
                    assert web.stdout is not None
                    address = web.stdout.readline().strip()
                    if not address:
                        raise SystemExit("screenshots: there is no page to draw")
                    yield address
        finally:
            subprocess.run([*start[:3], "sim", "stop", MACHINE], check=False, stdout=sys.stderr)


def wait_for_daemon() -> None:
    """Until the daemon answers. Raises SystemExit if it ends before."""
    from vgpumgr.host.clock import SystemClock

    clock = SystemClock()
    end_s = clock.monotonic_s() + 60
    while subprocess.run(
        vgpumgr("api", "GET", "/1.0"), capture_output=True, check=False
    ).returncode:
        if clock.monotonic_s() > end_s:
            raise SystemExit("screenshots: the daemon does not answer")
        clock.sleep(0.2)


def draw(address: str, target: Path) -> Iterator[Path]:
    """One picture for each scene."""
    from playwright.sync_api import sync_playwright

    target.mkdir(parents=True, exist_ok=True)
    base = address.partition("?")[0]
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(address)
        for name, path in SCENES:
            page.goto(f"{base}{path}")
            # the event stream never ends, so that the network is never idle: the page is drawn once it has a heading
            page.wait_for_selector("h1, h2")
            page.wait_for_timeout(1000)
            path_of = target / f"{name}.png"
            page.screenshot(path=path_of)
            yield path_of
        browser.close()


def main(arguments: list[str]) -> int:
    """Draws all scenes, and prints the names of the pictures."""
    if len(arguments) > 1 or any(word.startswith("-") for word in arguments):
        raise SystemExit("usage: ./run screenshots [DIRECTORY]")
    with page_address() as address:
        for picture in draw(address, Path(arguments[0] if arguments else ROOT / "docs/web")):
            print(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
