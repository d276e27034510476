"""``vgpumgr top --once`` on a simulated machine with attachments."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.attached_machine import Attached, attached_machine
from tests.support.screen import read_screen
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.cli.main import main
from vgpumgr.cli.session import Backend, GlobalOptions, Session, Streams
from vgpumgr.cli.top import _run_line
from vgpumgr.errors import LibvirtError
from vgpumgr.host.clock import SystemClock
from vgpumgr.tui.app import TopApp
from vgpumgr.tui.rows import UNICODE
from vgpumgr.tui.view import Outcome, View

pytestmark = [pytest.mark.native, pytest.mark.xdist_group("attached-machine")]


@pytest.fixture(scope="module")
def attached() -> Iterator[Attached]:
    with attached_machine() as scene:
        yield scene


def run_once(attached: Attached, *words: str) -> tuple[int, str]:
    @contextmanager
    def open_backend(_options: GlobalOptions) -> Iterator[Backend]:
        yield LocalBackend(attached.application)

    out, options = io.StringIO(), GlobalOptions()
    session = Session(options, Streams(options, out, io.StringIO()), open_backend)
    return main(["top", "--once", *words], session), out.getvalue()


def test_once_is_the_machine_as_it_is(
    attached: Attached, golden: Callable[[str, str], None]
) -> None:
    code, text = run_once(attached, "--ascii")
    assert code == 0
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    # what the simulated driver reserves for a slice is its own affair
    golden("top-once-dgx.txt", re.sub(r"\d\.\d/", "N.N/", text))


def test_once_tells_by_its_code_that_something_is_missing(attached: Attached) -> None:
    attached.hypervisor.fail["list_vms"] = LibvirtError("libvirt does not answer")
    code, text = run_once(attached)
    assert code == 1
    assert text.splitlines()[-1] == "! libvirt does not answer"
    assert "3g.40gb" in text


def test_a_running_worker_is_restarted_and_its_slice_detached(attached: Attached) -> None:
    """The keys of a terminal, the genuine keeper and worker of vm01, and the driver's own slices."""

    @contextmanager
    def open_backend(_options: GlobalOptions) -> Iterator[Backend]:
        yield LocalBackend(attached.application)

    @contextmanager
    def open_call() -> Iterator[Callable[[str], dict[str, Any]]]:
        yield attached.call

    def run(words: Sequence[str]) -> Outcome:
        options = GlobalOptions()
        return _run_line(Session(options, Streams(options), open_backend), words)

    def read_worker() -> Any:
        return attached.call("show_channel", selector="vm01")["channel"]["worker_pid"]

    async def story() -> None:
        app = TopApp(View(UNICODE), open_call, run, SystemClock(), interval_s=0.5)
        async with app.run_test(size=(110, 30)) as pilot:

            async def until(condition: Callable[[], bool]) -> None:
                for _ in range(3000):
                    await pilot.pause(0.02)
                    if condition():
                        return
                raise AssertionError("\n".join(read_screen(app)))

            await until(lambda: app.view.sample is not None)
            screen = read_screen(app)
            assert re.search(r"TEMP +POWER +HEALTH", screen[1])
            assert re.search(r"\d+C +\d+/400W +", screen[2])
            await pilot.press("tab")
            for key, done in (
                ("R", "done: restarted the channel of vm01"),
                ("d", "done: detached"),
            ):
                await pilot.press("home")
                current = app.view.current()
                assert current is not None
                assert current.key == "vm01"
                await pilot.press(key)
                await until(app.view.has_seen_all)
                await pilot.press("y")
                await until(lambda done=done: read_screen(app)[-1].startswith(done))  # type: ignore[misc]
            await pilot.press("q")

    before = read_worker()
    assert before
    restarted: list[Any] = []
    restart = attached.application.restart_channel
    attached.application.restart_channel = lambda **asked: (  # type: ignore[method-assign]
        restart(**asked), restarted.append(read_worker())
    )[0]  # fmt: skip
    try:
        asyncio.run(story())
        assert restarted[-1] not in (None, before)
        gpu = attached.call("show_gpu", selector="0")["gpu"]
        assert [one["profile"] for one in gpu["instances"]] == ["3g.40gb"]
    finally:
        del attached.application.restart_channel  # type: ignore[method-assign]
        attached.application.attach(vm="vm01", profile="1g.10gb")
