"""The journal: torn lines, flipped bits, order; the executor that writes it."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, cast
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpumgr.engine import journal as journal_module
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.executor import Executor
from vgpumgr.engine.journal import Journal, parse_journal
from vgpumgr.engine.step import NothingDoneError, OnFailure, Plan, Step
from vgpumgr.errors import JournalError, RollbackIncompleteError, RolledBackError, VgpumgrError
from vgpumgr.model.frozen import dataclass


def write(path: Path, count: int) -> None:
    journal = Journal(path, "boot")
    for number in range(count):
        journal.append(f"op{number}", "begin", {"number": number, "text": "ä\n"})
    journal.close()


def test_reads_what_was_written_and_counts_on(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal"
    write(path, 2)
    write(path, 1)
    events = list(Journal(path, "boot").read())
    assert [(e.seq, e.op, e.data["number"]) for e in events] == [
        (1, "op0", 0),
        (2, "op1", 1),
        (3, "op0", 0),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


@given(st.integers(min_value=0, max_value=400))
@settings(max_examples=60, deadline=None)
def test_torn_at_any_byte_the_whole_lines_remain(cut: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        write(path, 3)
        whole = path.read_bytes()
        path.write_bytes(whole[:cut])
        lines = whole[:cut].count(b"\n")
        journal = Journal(path, "boot")
        assert len(list(journal.read())) == lines
        journal.append("next", "begin", {})
        journal.close()
        events = list(journal.read())
        assert [e.seq for e in events] == list(range(1, lines + 2))
        assert len(list(Path(directory).iterdir())) == 1


def test_a_line_that_somebody_took_out_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, 3)
    first, _, third, *_ = path.read_bytes().splitlines(keepends=True)
    contents = parse_journal(first + third)
    assert contents.problem == "line 2 does not check, and later ones do"
    assert contents.events == ()


@pytest.mark.parametrize("junk", [b"not a journal", b"\n", b"0123abcd\n", b"\0\nabc\n", b"0a\n0b"])
@pytest.mark.parametrize("lines", [0, 2])
def test_what_no_crash_leaves_is_no_torn_line(tmp_path: Path, junk: bytes, lines: int) -> None:
    """Of a line that is cut off the beginning or zeros are there, and it is one line."""
    path = tmp_path / "journal"
    write(path, lines)
    data = b"".join(path.read_bytes().splitlines(keepends=True)[:lines]) if lines else b""
    contents = parse_journal(data + junk)
    where = f"what follows line {lines}" if lines else "line 1"
    assert contents.problem == f"{where} is no line that was cut off"
    assert contents.events == ()


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
@settings(max_examples=60, deadline=None)
def test_flipped_anywhere_it_is_noticed_and_never_stops_us(where: int, bits: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        write(path, 3)
        data = bytearray(path.read_bytes())
        data[where % len(data)] ^= bits
        path.write_bytes(data)
        journal = Journal(path, "boot")
        journal.append("next", "begin", {})
        journal.close()
        events = list(Journal(path, "boot").read())
        assert events[-1].op == "next"
        kept = [p for p in Path(directory).iterdir() if "corrupt" in p.name]
        # moved aside and kept, unless only the last line was hit, which looks torn
        assert [p.read_bytes() for p in kept] in ([bytes(data)], [])
        assert bool(kept) == (len(events) == 1) or len(events) == 3


@pytest.mark.parametrize(("last", "rotated"), [("end", True), ("intent", False)])
def test_a_large_journal_is_put_away_once_all_is_finished(
    tmp_path: Path, last: str, rotated: bool
) -> None:
    path = tmp_path / "journal"
    journal = Journal(path, "boot")
    journal.append("op", "begin", {"text": "x" * (1 << 20)})
    journal.append("op", last, {})
    journal.close()
    journal = Journal(path, "boot")
    journal.append("next", "begin", {})
    journal.close()
    assert (tmp_path / "journal.old").exists() == rotated
    assert [e.seq for e in Journal(path, "boot").read()][-1] == 3, "numbers go on"


def test_what_was_read_of_a_journal_is_not_parsed_again(tmp_path: Path) -> None:
    """All its lines are kept, however many operations it has seen; and it does not grow without end."""
    path = tmp_path / "journal"
    for number in range(1000):
        journal = Journal(path, "c0ffee00-0000-4000-8000-000000000000")
        journal.append(f"operation-{number}", "begin", {"vm": "vm01", "steps": [{"name": "x"}] * 4})
        journal.append(f"operation-{number}", "end", {})
        if number % 100 == 0:
            assert path.stat().st_size <= journal_module._ROTATE_BYTES + journal_module._CHUNK_BYTES
            journal.look()
            with mock.patch.object(journal_module, "_decode", side_effect=AssertionError):
                assert journal.look().events[-1].op == f"operation-{number}"
            journal.append("other", "begin", {})
            with mock.patch.object(journal_module, "_decode", wraps=journal_module._decode) as one:
                assert [*journal.look().unfinished] == ["other"]
            assert one.call_count == 1
            journal.append("other", "end", {})
        journal.close()
    assert (tmp_path / "journal.old").exists()


def test_nothing_is_done_that_cannot_be_journalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    plan = Plan("attach", "vm", (Put("a"),))

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(JournalError) as caught:
        Executor(world, Journal(tmp_path / "journal", "boot")).run(plan, "op")
    assert "Input/output error" in str(caught.value.cause)
    assert world.things == []


def test_intent_is_on_disk_before_the_step(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    seen: list[list[str]] = []

    @dataclass(frozen=True)
    class Look(Put):
        kind: ClassVar[str] = "test.look"

        def do(self, context: OperationContext) -> None:
            world = cast(World, context)
            assert world.things == []
            seen.append([e.event for e in Journal(path, "boot").read()])

    Executor(World(), Journal(path, "boot")).run(Plan("x", "y", (Look("a"), Look("b"))), "op")
    assert seen == [["begin", "intent"], ["begin", "intent", "done", "intent"]]
    assert Journal(path, "boot").unfinished() == {}


def test_a_new_journal_is_safe_in_its_directory(tmp_path: Path) -> None:
    """Also one that takes the place of another: its name is synced before anything relies on it."""
    path = tmp_path / "journal"

    def open_anew() -> int:
        with mock.patch.object(os, "fsync", wraps=os.fsync) as sync:
            journal = Journal(path, "boot")
            journal.append("a", "begin", {})
            journal.close()
        return sync.call_count

    assert [open_anew(), open_anew()] == [1, 0]
    path.unlink()
    assert [open_anew(), open_anew()] == [1, 0]
    Journal(path, "boot").put_away("failed")
    assert open_anew() == 1
    # that another process has made it says nothing
    journal_module._safe_names.clear()
    assert open_anew() == 1


# ---- executor, on a world that is a list


class World(OperationContext):
    """Things that are there, in the order in which they came."""

    maybe_record = None

    def __init__(self) -> None:
        self.things: list[str] = []
        self.notes: list[str] = []


class StepError(VgpumgrError):
    """A failure on request."""


@dataclass(frozen=True)
class Put(Step):
    """Puts a thing there; fails before or after that, and undoing may fail too."""

    name: str
    fails: str = ""
    undo_fails: bool = False
    kind: ClassVar[str] = "test.put"

    def describe(self) -> str:
        return f"put {self.name}"

    def do(self, context: OperationContext) -> None:
        world = cast(World, context)
        if self.fails == "nothing":
            raise NothingDoneError(StepError("refused"))
        if self.fails == "before":
            raise StepError("before")
        world.things.append(self.name)
        if self.fails == "after":
            raise StepError("after")
        if self.fails == "bug":
            raise ZeroDivisionError

    def undo(self, context: OperationContext) -> None:
        world = cast(World, context)
        if self.undo_fails:
            raise StepError("stuck")
        assert world.things[-1] == self.name or world.things[-1] in self.stuck(world)
        world.things.remove(self.name)

    def stuck(self, world: World) -> Sequence[str]:
        return [thing for thing in world.things if thing.startswith("stuck")]

    def observe(self, context: OperationContext) -> bool:
        world = cast(World, context)
        return self.name in world.things


@given(
    st.lists(st.booleans(), min_size=1, max_size=6),
    st.integers(min_value=0, max_value=6),
    st.sampled_from(["nothing", "before", "after", "bug"]),
)
@settings(max_examples=150, deadline=None)
def test_executor_undoes_in_reverse_and_lists_what_is_left(
    stuck: list[bool], failing: int, how: str
) -> None:
    steps = [
        Put(f"{'stuck' if s else 'thing'}{i}", how if i == failing else "", s)
        for i, s in enumerate(stuck)
    ]
    world = World()
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(Path(directory) / "journal", "boot")
        executor = Executor(world, journal)
        plan = Plan("attach", "vm", tuple(steps))
        happened = steps[: failing + (how in ("after", "bug"))]
        left = [step.name for step in happened if step.undo_fails]
        if failing >= len(steps):
            executor.run(plan, "op")
            assert world.things == [step.name for step in steps]
        elif left:
            with pytest.raises(RollbackIncompleteError) as caught:
                executor.run(plan, "op")
            assert all(name in str(caught.value.why) for name in left)
            assert world.things == left
            assert list(journal.unfinished()) == ["op"]
        else:
            expected = StepError if not happened and how != "bug" else RolledBackError
            with pytest.raises(expected):
                executor.run(plan, "op")
            assert world.things == []
        if not left:
            assert journal.unfinished() == {}
        journal.close()


def test_a_plan_that_stops_leaves_what_was_done(tmp_path: Path) -> None:
    world = World()
    plan = Plan("detach", "vm", (Put("a"), Put("b", "before"), Put("c")), OnFailure.STOP)
    with pytest.raises(StepError, match="before"):
        Executor(world, Journal(tmp_path / "journal", "boot")).run(plan, "op")
    assert world.things == ["a"]


@pytest.mark.parametrize("failing", range(4))
def test_the_first_steps_of_a_plan_that_stops_may_be_revocable(
    tmp_path: Path, failing: int
) -> None:
    world, journal = World(), Journal(tmp_path / "journal", "boot")
    steps = [Put(name, "after" if n == failing else "") for n, name in enumerate("abcd")]
    plan = Plan("restart", "vm", tuple(steps), OnFailure.STOP, revocable=2)
    with pytest.raises(RolledBackError if failing < 2 else StepError):
        Executor(world, journal).run(plan, "op")
    assert world.things == ([] if failing < 2 else list("abcd"[: failing + 1]))
    assert journal.unfinished() == {}
    journal.close()
