"""``vgpumgr top``: commands for the row are planned, asked about and done as on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.screen import read_screen
from tests.unit.test_top import World, drive, until
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.cli.session import Backend, GlobalOptions
from vgpumgr.errors import NotPermittedError
from vgpumgr.tui.app import TopApp
from vgpumgr.tui.rows import UNICODE
from vgpumgr.tui.sample import take_sample
from vgpumgr.tui.view import Page, View


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def select(app: TopApp, pilot: Any, label: str) -> None:
    """Moves to the row that begins so."""
    await until(pilot, lambda: app.view.sample is not None)
    app.view.cursor = next(r.key for r in app.view.list_rows() if r.label.startswith(label))


async def ask(app: TopApp, pilot: Any, label: str, key: str) -> list[str]:
    """Selects, presses the key, waits for the question; answers the screen."""
    await select(app, pilot, label)
    await pilot.press(key)
    await until(pilot, lambda: app.view.page is Page.QUESTION)
    await until(pilot, app.view.has_seen_all)
    return read_screen(app)


def test_detach_shows_what_the_command_line_shows_and_y_does_it(world: World) -> None:
    shown = world.run(["-q", "detach", "vm01", "--dry-run"]).text.splitlines()
    assert shown[0] == "would detach 1g.10gb from vm01:"
    world.lines.clear()

    async def story(app: TopApp, pilot: Any) -> None:
        for label in ("1g.10gb at 6:1", "vm01"):
            if label == "vm01":
                await pilot.press("escape", "tab")
            screen = await ask(app, pilot, label, "d")
            assert screen[1] == "vgpumgr detach vm01"
            text = " ".join(" ".join(screen).split())
            assert all(" ".join(line.split()) in text for line in shown)
            assert screen[-1] == "y does it   any other key does not"
            if label != "vm01":
                await pilot.press("n")
        await pilot.press("y")
        await until(pilot, lambda: "done: detached 1g.10gb from vm01" in read_screen(app)[-1])
        assert app.view.page is Page.VMS

    drive(world, story)
    assert world.changes() == [["detach", "--yes", "vm01"]]
    assert [record.vm_name for record in world.bench.store.list_attachments()] == ["vm02"]


def test_any_other_key_does_not(world: World) -> None:
    keys = "n Y enter escape q ctrl+c ctrl+q slash"

    async def story(app: TopApp, pilot: Any) -> None:
        for key in keys.split():
            await ask(app, pilot, "1g.10gb", "d")
            await pilot.press(key)
            await pilot.pause()
            assert app.is_running
            assert app.view.page is Page.TREE
            assert read_screen(app)[-1] == "not done: vgpumgr detach vm01", key
            await pilot.press("y")
            assert app.view.page is Page.TREE

    drive(world, story)
    assert world.changes() == []


def test_a_vm_that_goes_away_before_the_yes(world: World) -> None:
    async def story(app: TopApp, pilot: Any) -> None:
        await ask(app, pilot, "1g.10gb", "d")
        world.application.detach(vm="vm01")
        await pilot.press("y")
        await until(pilot, lambda: app.view.page is Page.ERROR)
        await pilot.pause()
        text = "\n".join(read_screen(app))
        assert 'error:   vm "vm01" has nothing attached' in text
        assert "try:" in text
        await pilot.press("h")
        assert app.view.page is Page.TREE

    drive(world, story)
    assert world.changes() == []


def test_another_plan_is_asked_about_again(world: World) -> None:
    async def story(app: TopApp, pilot: Any) -> None:
        await ask(app, pilot, "1g.10gb", "d")
        world.application.detach(vm="vm01")
        world.application.attach(vm="vm01", profile="2g.20gb")
        await pilot.press("y")
        await until(pilot, lambda: app.view.page is Page.QUESTION)
        await pilot.pause()
        screen = "\n".join(read_screen(app))
        assert "The machine has changed since" in screen
        assert "would detach 2g.20gb from vm01" in screen
        assert world.changes() == []
        await pilot.press("y")
        await until(pilot, lambda: "done: detached 2g.20gb" in read_screen(app)[-1])

    drive(world, story)


def test_refusals_are_shown_whole(world: World) -> None:
    """As a daemon refuses a viewer."""
    holder = (
        "matmul (412), which has been there for a long time and whose name is as long as this line"
    )

    @contextmanager
    def refuse(_options: GlobalOptions) -> Iterator[Backend]:
        raise NotPermittedError(
            "viewers change nothing", cause="role viewer", held_by=[holder], hint="vgpumgr status"
        )
        yield LocalBackend(world.application)

    world.open_backend = refuse  # type: ignore[method-assign]

    async def story(app: TopApp, pilot: Any) -> None:
        await select(app, pilot, "1 A30")
        await pilot.press("D")
        await until(pilot, lambda: app.view.page is Page.ERROR)
        await pilot.pause()
        text = " ".join(" ".join(read_screen(app)).split())
        for part in ("viewers change nothing", "role viewer", holder, "try: vgpumgr status"):
            assert part in text

    drive(world, story)
    assert world.lines == [["gpu", "resume", "--dry-run", "1"]]


def test_a_small_terminal_is_not_enough_for_a_yes(world: World) -> None:
    async def story(app: TopApp, pilot: Any) -> None:
        await ask(app, pilot, "1g.10gb", "d")
        for size in ((39, 24), (80, 6), (20, 3), (1, 1)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: app.size == size)  # type: ignore[misc]
            await pilot.press("y")
            await pilot.pause()
            assert app.view.page is Page.QUESTION, size
        assert world.changes() == []
        await pilot.resize_terminal(40, 8)
        await until(pilot, lambda: app.size == (40, 8))
        await pilot.press("y")
        assert "Page Down" in read_screen(app)[-1]
        while "Page Down" in read_screen(app)[-1]:
            await pilot.press("pagedown")
        assert world.changes() == []
        await pilot.press("y")
        await until(pilot, lambda: "done: detached" in read_screen(app)[-1])

    drive(world, story)


def test_the_frame_goes_on_while_a_command_runs(world: World) -> None:
    async def story(app: TopApp, pilot: Any) -> None:
        await ask(app, pilot, "1g.10gb", "d")
        world.line_gate.clear()
        await pilot.press("y")
        await until(pilot, lambda: bool(world.changes()))
        assert read_screen(app)[-1] == "running: vgpumgr detach vm01"
        calls = world.calls
        await pilot.press("r")
        await until(pilot, lambda: world.calls > calls)
        await pilot.press("question_mark")
        assert app.view.page is Page.HELP
        await pilot.press("escape", "d")
        assert len(world.changes()) == 1
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert "ends after vgpumgr detach vm01" in read_screen(app)[-1]
        assert app.is_running
        world.line_gate.set()
        await until(pilot, lambda: not app.is_running)

    try:
        drive(world, story)
    finally:
        world.line_gate.set()
    assert len(world.bench.store.list_attachments()) == 1


def test_the_second_ctrl_c_leaves_a_command_that_hangs(world: World) -> None:
    async def story(app: TopApp, pilot: Any) -> None:
        await ask(app, pilot, "1g.10gb", "d")
        world.line_gate.clear()
        await pilot.press("y")
        await until(pilot, lambda: bool(world.changes()))
        await pilot.press("ctrl+c", "ctrl+c")
        await until(pilot, lambda: not app.is_running)

    try:
        drive(world, story)
    finally:
        world.line_gate.set()


def test_drain_and_resume_are_one_key(world: World) -> None:
    async def story(app: TopApp, pilot: Any) -> None:
        for verb in ("drain", "resume"):
            screen = await ask(app, pilot, "2 A100", "D")
            assert screen[1] == f"vgpumgr gpu {verb} 2"
            await pilot.press("y")
            await until(pilot, lambda: app.view.message.startswith("done: "))
            world.documents["list_gpus"] = world.application.list_gpus().as_data()
            await pilot.press("r")
            drained = "drained, " if verb == "drain" else "MIG off"
            await until(pilot, lambda d=drained: str(app.view.current().used_by).startswith(d))  # type: ignore[misc,union-attr]

    drive(world, story)
    assert [words[:2] for words in world.changes()] == [["gpu", "drain"], ["gpu", "resume"]]


def test_a_key_that_fits_no_row_says_so(world: World) -> None:
    rows = [("0 A100", "d"), ("Xorg", "R"), ("3 lost", "D"), ("3 lost", "d"), ("1g.10gb", "D")]

    async def story(app: TopApp, pilot: Any) -> None:
        for label, key in rows:
            await select(app, pilot, label)
            await pilot.press(key)
            assert read_screen(app)[-1].startswith("select a "), label

    drive(world, story)
    assert world.lines == []


def test_names_that_a_shell_or_an_option_would_take(world: World) -> None:
    view = View(UNICODE)
    view.show(take_sample(world.call, FakeClock()))
    view.sample.vms[0]["name"] = "-rf x"  # type: ignore[index,union-attr]
    view.switch()
    view.address = lambda line: line.replace("vgpumgr ", "vgpumgr --machine dgx ")
    view.cursor = "-rf x"
    command = view.choose("detach")
    assert command is not None
    assert command.text == "vgpumgr --machine dgx detach -- '-rf x'"
    assert command.line("--yes") == ["detach", "--yes", "--", "-rf x"]
