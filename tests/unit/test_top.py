"""``vgpumgr top``: the picture at 80x24 and elsewhere, keys, and a terminal that never waits for the machine."""

from __future__ import annotations

import asyncio
import copy
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.boards import A30_NAME, A100, make_gpu
from tests.support.cli import Cli
from tests.support.clock import FakeClock
from tests.support.fake_nvml import FakeNvml
from tests.support.screen import read_screen
from tests.support.service import make_bench
from vgpumgr.app.application import Application
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.cli.session import Backend, GlobalOptions, Session, Streams
from vgpumgr.cli.top import _run_line as run_line
from vgpumgr.errors import LibvirtError, NvmlError, VgpumgrError
from vgpumgr.host.machine import Machine
from vgpumgr.model.gpu import GpuProcess, LostGpu, ProcessKind, Utilisation
from vgpumgr.model.request import AttachRequest
from vgpumgr.tui.app import TopApp
from vgpumgr.tui.frame import Tone, draw, draw_once
from vgpumgr.tui.rows import ASCII, UNICODE, Column, Order, list_tree
from vgpumgr.tui.sample import HISTORY, History, take_sample
from vgpumgr.tui.view import Command, Outcome, Page, View, choose_command

Golden = Callable[[str, str], None]
GIB = 1 << 30
LONG_S = 60.0


class World:
    """The documents of a small machine; a test changes them, makes calls fail or hang."""

    def __init__(self, directory: Path) -> None:
        warm = {"temperature_c": 34, "power_mw": 56_300, "power_limit_mw": 400_000}
        hot = {"temperature_c": 61, "power_mw": 120_000, "power_limit_mw": 165_000}
        busy = Utilisation(0.25, 0.03)
        gpus = [
            replace(make_gpu(A100, 0, None), **warm, ecc_errors=0),
            replace(make_gpu(A30_NAME, 1, None), **hot, ecc_errors=2, utilisation=busy),
            make_gpu(A100, 2, None, [GpuProcess(815, "Xorg", ProcessKind.GRAPHICS, GIB)]),
        ]
        bench = make_bench(directory, gpus)
        bench.channels.hello = True
        bench.service.attach(AttachRequest(vm="vm01", profile="1g.10gb", gpu="0"))
        bench.service.attach(AttachRequest(vm="vm02", profile="3g.40gb", gpu="0"))
        ids = {record.vm_name: record.id for record in bench.store.list_attachments()}
        bench.channels.stop(ids["vm02"])
        nvml = FakeNvml(list(bench.nvml.gpus.values()), [LostGpu(3, 15, "GPU is lost")])
        machine = Machine("test", directory, directory, directory, "test:///default")
        application = Application(
            machine, replace(bench.service.parts, nvml=nvml, read_inventory=nvml.read_inventory)
        )
        self.application, self.hypervisor, self.bench = application, bench.hypervisor, bench
        self.documents: dict[str, Any] = {
            "list_gpus": application.list_gpus().as_data(),
            "list_vms": bench.service.list_vms().as_data(),
        }
        lane = {"id": 1, "pid": 412, "name": "matmul", "transport": "ring"}
        lane |= {"calls": 1000, "bytes_in": 5, "bytes_out": 6, "memory_bytes": 12 << 20}
        vm01 = next(vm for vm in self.documents["list_vms"]["vms"] if vm["name"] == "vm01")
        vm01["channels"][0]["lanes"] = [lane]
        vm01["channels"][0]["memory_bytes"] = 12 << 20
        vm01["channels"][0]["calls"] = 1000
        self.channel: dict[str, Any] = vm01["channels"][0]
        self.errors: dict[str, VgpumgrError] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0
        self.lines: list[list[str]] = []
        self.line_gate = threading.Event()
        self.line_gate.set()

    def call(self, operation: str) -> dict[str, Any]:
        self.calls += 1
        self.gate.wait(LONG_S)
        if operation in self.errors:
            raise self.errors[operation]
        found: dict[str, Any] = copy.deepcopy(self.documents[operation])
        return found

    @contextmanager
    def open(self) -> Iterator[Callable[[str], dict[str, Any]]]:
        yield self.call

    def run(self, words: Sequence[str]) -> Outcome:
        """The genuine command line on the genuine application."""
        self.lines.append(list(words))
        if "--dry-run" not in words:
            self.line_gate.wait(LONG_S)
        options = GlobalOptions()
        return run_line(Session(options, Streams(options), self.open_backend), words)

    @contextmanager
    def open_backend(self, _options: GlobalOptions) -> Iterator[Backend]:
        yield LocalBackend(self.application)

    def changes(self) -> list[list[str]]:
        return [words for words in self.lines if "--dry-run" not in words]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def view(world: World) -> View:
    """After three looks, two seconds apart, with more calls each time."""
    clock, view = FakeClock(), View(UNICODE)
    for calls in (1000, 1500, 4500):
        world.channel["calls"] = calls
        view.show(take_sample(world.call, clock))
        clock.sleep(2)
    return view


def text_of(view: View, width: int = 80, height: int = 24) -> str:
    return "".join(line.text.rstrip() + "\n" for line in draw(view, width, height))


@pytest.mark.parametrize("page", ["tree", "vms", "details", "help", "ascii"])
def test_pages_at_80x24(view: View, golden: Golden, page: str) -> None:
    view.move(1)
    if page == "ascii":
        view.symbols = ASCII
        assert text_of(view).isascii()
    elif page == "vms":
        view.switch()
    elif page == "details":
        view.open()
    elif page == "help":
        view.show_help()
    golden(f"top-{page}.txt", re.sub(r"(attachment +)[0-9a-f]{8}", r"\1ab12cd34", text_of(view)))


def test_once_says_everything_without_textual(view: View, golden: Golden) -> None:
    golden("top-once.txt", "\n".join(draw_once(view, 80)) + "\n")


@given(
    width=st.integers(1, 250),
    height=st.integers(1, 70),
    page=st.sampled_from(Page),
    ascii_only=st.booleans(),
)
def test_the_picture_has_the_size_of_the_terminal(
    top_world: World, width: int, height: int, page: Page, ascii_only: bool
) -> None:
    view = View(ASCII if ascii_only else UNICODE, page=page)
    view.show(take_sample(top_world.call, FakeClock()))
    lines = draw(view, width, height)
    assert [len(line.text) for line in lines] == [width] * height


@pytest.fixture(scope="module")
def top_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("top"))


KEYS = [
    "down",
    "up",
    "open",
    "back",
    "toggle",
    "switch",
    "leave",
    "show_help",
    "show_details",
    "sort",
    "reverse",
    "more",
    "less",
]


@given(keys=st.lists(st.sampled_from(KEYS)))
def test_no_sequence_of_keys_breaks_the_view(top_world: World, keys: list[str]) -> None:
    view, clock = View(UNICODE), FakeClock()
    gpus = top_world.documents["list_gpus"]["gpus"]
    for key in keys:
        if key in ("more", "less"):
            sample = take_sample(top_world.call, clock)
            view.show(
                replace(
                    sample,
                    gpus=gpus if key == "more" else gpus[:1],
                    vms=sample.vms if key == "more" else (),
                )
            )
        elif key in ("down", "up"):
            view.move(1 if key == "down" else -1)
        else:
            getattr(view, key)()
        lines = draw(view, 80, 24)
        assert len(lines) == 24
        if view.page in (Page.TREE, Page.VMS) and view.list_rows():
            assert sum(line.tone is Tone.CURSOR for line in lines) == 1


def test_the_load_is_calls_per_second(view: View) -> None:
    rows = {row.name.strip(): row for row in view.list_rows()}
    assert view.history.read("vm:vm01") == (None, 250.0, 1500.0)
    assert rows["├ 1g.10gb at 6:1"].load == "1.5k/s"
    # the driver says nothing of a GPU in MIG mode: its VMs do
    assert rows["▾ 0 A100-SXM4-80GB"].load == "1.5k/s"
    assert rows["1 A30"].load == "25%"


def test_another_worker_is_no_negative_load(view: View, world: World) -> None:
    world.channel["calls"], world.channel["worker_pid"] = 3, 9999
    clock = FakeClock()
    clock.sleep(100)
    view.show(take_sample(world.call, clock))
    assert view.history.read("vm:vm01")[-1] is None


def test_history_is_bounded_and_forgets_who_is_gone(view: View, world: World) -> None:
    clock = FakeClock()
    for _ in range(3 * HISTORY):
        clock.sleep(1)
        view.show(take_sample(world.call, clock))
    assert len(view.history.read("vm:vm01")) == HISTORY
    world.documents["list_vms"]["vms"] = []
    view.show(take_sample(world.call, clock))
    assert view.history.read("vm:vm01") == ()


def test_what_cannot_be_read_stays_and_is_said(view: View, world: World) -> None:
    rows = [row.key for row in view.list_rows()]
    world.errors = {
        "list_gpus": NvmlError("cannot read the GPUs", cause="GPU is lost (NVML 15)"),
        "list_vms": LibvirtError("libvirt does not answer"),
    }
    view.show(take_sample(world.call, FakeClock()))
    assert [row.key for row in view.list_rows()] == rows
    title = draw(view, 200, 24)[0]
    assert "! cannot read the GPUs: GPU is lost (NVML 15)  ! libvirt does not answer" in title.text
    assert title.tone is Tone.ALERT
    world.errors = {}
    view.show(take_sample(world.call, FakeClock()))
    assert draw(view, 200, 24)[0].tone is Tone.TITLE


def test_a_filter_keeps_what_it_belongs_to(view: View) -> None:
    view.wanted = "MatMul"
    assert [row.name.strip(" │├└") for row in view.list_rows()] == [
        "▾ 0 A100-SXM4-80GB",
        "1g.10gb at 6:1",
        "matmul (412)",
    ]
    view.wanted = "a100-sxm4"  # the case of what is shown matters as little
    shown = [row.name for row in view.list_rows()]
    assert shown
    assert all("A100-SXM4" in name for name in shown)
    view.wanted = "nobody"
    assert "nothing contains 'nobody'" in text_of(view)
    view.leave()
    assert len(view.list_rows()) > 3


def test_the_cursor_stays_in_sight_and_with_its_row(view: View) -> None:
    view.move(1_000_000)
    assert any(line.tone is Tone.CURSOR for line in draw(view, 80, 8))
    last = view.current()
    view.toggle()
    view.move(-1_000_000)
    assert view.current() is not last
    assert draw(view, 80, 8)[2].tone is Tone.CURSOR


def drive(
    world: World, story: Callable[[TopApp, Any], Awaitable[None]], *, interval_s: float = 30.0
) -> None:
    """Runs the application in a terminal of 80x24."""

    async def run() -> None:
        app = TopApp(View(UNICODE), world.open, world.run, FakeClock(), interval_s)
        async with app.run_test(size=(80, 24)) as pilot:
            await story(app, pilot)

    asyncio.run(run())


async def until(pilot: Any, condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        await pilot.pause(0.01)
        if condition():
            return
    raise AssertionError("it never came true")


def test_the_terminal_shows_the_picture(world: World, golden: Golden) -> None:
    async def story(app: TopApp, pilot: Any) -> None:
        await until(pilot, lambda: app.view.sample is not None)
        await pilot.pause()
        screen = read_screen(app)
        golden("top-screen.txt", "\n".join(screen) + "\n")
        assert screen == [line.text.rstrip() for line in draw(app.view, 80, 24)]

    drive(world, story)


def test_keys(world: World) -> None:
    async def story(app: TopApp, pilot: Any) -> None:
        await until(pilot, lambda: app.view.sample is not None)
        view = app.view
        keys = [row.key for row in view.list_rows()]
        for key, at in (
            ("j", 1),
            ("down", 2),
            ("k", 1),
            ("up", 0),
            ("G", -1),
            ("g", 0),
            ("end", -1),
            ("home", 0),
        ):
            await pilot.press(key)
            row = view.current()
            assert row is not None
            assert row.key == keys[at], key
        await pilot.press("space")
        assert len(view.list_rows()) < len(keys)
        await pilot.press("l")
        assert [row.key for row in view.list_rows()] == keys
        await pilot.press("j", "enter")
        assert view.page is Page.DETAILS
        assert "1g.10gb" in "\n".join(read_screen(app))
        await pilot.press("h")
        assert view.page is Page.TREE
        await pilot.press("v")
        assert view.page is Page.VMS
        await pilot.press("tab")
        assert view.page is Page.TREE
        await pilot.press("question_mark")
        assert "vgpumgr detach VM" in "\n".join(read_screen(app))
        await pilot.press("escape")
        await pilot.press("slash", *"vm01", "enter")
        assert view.wanted == "vm01"
        assert "filter: vm01" in read_screen(app)[-1]
        await pilot.press("escape")
        assert view.wanted == ""
        # while typing, letters are letters
        await pilot.press("slash", *"qjv")
        assert view.wanted == "qjv"
        await pilot.press("escape")
        assert (view.wanted, view.page) == ("", Page.TREE)
        calls = world.calls
        await pilot.press("r")
        await until(pilot, lambda: world.calls > calls)
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    drive(world, story)


def test_a_machine_that_hangs_does_not_hold_up_a_key(world: World) -> None:
    """Every key here is answered while a question is open; with a terminal that waits, none would be."""

    async def story(app: TopApp, pilot: Any) -> None:
        await until(pilot, lambda: app.view.sample is not None)
        world.gate.clear()
        calls = world.calls
        await pilot.press("r")
        await until(pilot, lambda: world.calls > calls)
        await pilot.press("j", "question_mark")
        assert app.view.page is Page.HELP
        await pilot.press("escape", "v")
        assert app.view.page is Page.VMS
        clock = app.poller._clock
        clock.sleep(12)
        await until(pilot, lambda: "no answer for 12 s" in read_screen(app)[0])
        world.gate.set()
        await until(pilot, lambda: "no answer" not in read_screen(app)[0])
        world.gate.clear()
        await pilot.press("r", "q")

    try:
        drive(world, story)
    finally:
        world.gate.set()


def test_a_machine_that_cannot_be_opened_is_said(world: World) -> None:
    @contextmanager
    def refuse() -> Iterator[Callable[[str], dict[str, Any]]]:
        raise VgpumgrError("no simulated machine runs")
        yield world.call

    world.open = refuse  # type: ignore[method-assign]

    async def story(app: TopApp, pilot: Any) -> None:
        await until(pilot, lambda: "no simulated machine runs" in read_screen(app)[0])

    drive(world, story)


def test_the_command_refuses_what_is_no_terminal(tmp_path: Path) -> None:
    result = Cli(FakeNvml([make_gpu()]), tmp_path).run("top")
    assert (result.code, "vgpumgr top --once" in result.err) == (2, True)


def test_columns_give_way_where_the_terminal_is_narrow(view: View) -> None:
    shown = {}
    for width in (60, 80, 92, 100, 160):
        header, first, second, *_ = [line.text for line in draw(view, width, 24)][1:]
        second = next(line.text for line in draw(view, width, 24) if " 1 A30" in line.text)
        shown[width] = [name for name in ("TEMP", "POWER", "HEALTH") if name in header]
        for name, cool, hot in (
            ("TEMP", "34C", "61C"), ("POWER", "56/400W", "120/165W"), ("HEALTH", "ok", "2 ECC")
        ):  # fmt: skip
            assert (cool in first, hot in second) == (name in header, name in header), (width, name)
    assert shown == {
        60: [],
        80: ["TEMP"],
        92: ["TEMP", "POWER"],
        100: ["TEMP", "POWER", "HEALTH"],
        160: ["TEMP", "POWER", "HEALTH"],
    }
    view.switch()
    assert "TEMP" not in draw(view, 160, 24)[1].text


def test_details_have_temperature_power_and_health(view: View) -> None:
    view.open()
    lines = [line.split() for line in text_of(view, height=120).splitlines()]
    assert ["temperature", "c", "34"] in lines
    assert ["power", "w", "56.3"] in lines
    assert ["power", "limit", "w", "400.0"] in lines
    assert ["ecc", "errors", "0"] in lines


def test_sorting_moves_a_gpu_with_its_slices(view: View) -> None:
    def gpus() -> list[str]:
        return [row.label[0] for row in view.list_rows() if not row.depth]

    tree = [row.name for row in view.list_rows()]
    by_column = {}
    for column in Column:
        view.sort()
        assert view.order.column is column
        assert str(column) in view.message
        by_column[column] = gpus()
        assert len(view.list_rows()) == len(tree)
    # what has no value comes last, whatever the direction
    assert by_column[Column.TEMPERATURE] == ["1", "0", "2", "3"]
    assert by_column[Column.POWER] == ["1", "0", "2", "3"]
    assert by_column[Column.HEALTH] == ["1", "0", "2", "3"]
    assert by_column[Column.NAME] == ["0", "1", "2", "3"]
    view.reverse()
    assert gpus() == ["0", "2", "1", "3"]
    view.sort()
    assert view.order.column is None
    assert [row.name for row in view.list_rows()] == tree
    while view.order.column is not Column.LOAD:
        view.sort()
    rows = [row.name for row in view.list_rows()]
    assert "LOAD▼" in draw(view, 80, 24)[1].text
    assert rows[rows.index("▾ 0 A100-SXM4-80GB") + 1 :][:3] == [
        "  ├ 1g.10gb at 6:1", "  │ └ matmul (412)", "  └ 3g.40gb at 0:4"
    ]  # fmt: skip
    view.reverse()
    assert "LOAD▲" in draw(view, 80, 24)[1].text
    view.reverse()
    view.sort(), view.reverse()
    assert "sort" in view.message


def test_numbers_in_names_are_numbers(view: View, world: World) -> None:
    gpus = world.documents["list_gpus"]["gpus"]
    gpus += [copy.deepcopy(gpus[1]) | {"index": 10, "uuid": "GPU-ten"}]
    view.show(take_sample(world.call, FakeClock()))
    view.sort()
    found = [row.label.split()[0] for row in view.list_rows() if not row.depth]
    assert found == ["0", "1", "2", "3", "10"]


def test_shares_of_a_gpu_are_rows_below_it_with_their_holders(world: World, tmp_path: Path) -> None:
    bench = make_bench(tmp_path / "shares", [make_gpu(A100, 0, None)])
    bench.channels.hello = True
    bench.service.attach(AttachRequest("vm01", "share:8GiB,30%"))
    bench.service.attach(AttachRequest("vm02", "share:16GiB,20%"))
    machine = Machine("test", tmp_path, tmp_path, tmp_path, "test:///default")
    application = Application(machine, bench.service.parts)
    world.documents = {
        "list_gpus": application.list_gpus().as_data(),
        "list_vms": bench.service.list_vms().as_data(),
    }
    holder = {"pid": 7, "name": "vgpumgr-hold", "kind": "compute", "memory_bytes": GIB}
    world.documents["list_gpus"]["gpus"][0]["processes"] = [holder, {**holder, "name": "Xorg"}]
    sample = take_sample(world.call, FakeClock())
    rows = list_tree(sample, History(), (), Order(), UNICODE)
    assert [row.label for row in rows[1:]] == ["share:8GiB,30%", "share:16GiB,20%", "Xorg (7)"]
    assert "vm01" in rows[1].used_by
    assert rows[1].memory == "0.0/8 GiB"
    command = choose_command("detach", rows[2])
    assert isinstance(command, Command)
    assert (command.verb, command.names) == (("detach",), ("vm02",))
