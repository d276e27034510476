"""Running an operation in a child that is killed (SIGKILL) at a chosen point.

The parent has one thread and everything imported, so a child is a fork away. Points are numbered in
the order in which the operation passes them: around every change of the machine, of the state file,
and around every write of the journal, half-written lines included.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.recovery.scenarios import Scenario
from tests.recovery.world import World

Breakage = Callable[[], None]
#: more than any operation passes
ALL_POINTS = frozenset(range(1, 5000))


@dataclass
class Counter:
    """Counts points and kills at one of them."""

    kill_at: int | None
    count: int = 0

    def __call__(self, _name: str) -> None:
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def is_next(self) -> bool:
        """Whether it is the next point that matters."""
        return self.kill_at == self.count + 1


@dataclass
class Copier(Counter):
    """Keeps what a kill at each of the points would leave: a copy of the machine as it is then."""

    root: Path = Path()
    to: Path = Path()
    wanted: frozenset[int] = frozenset()

    def __call__(self, name: str) -> None:
        super().__call__(name)
        if self.count in self.wanted:
            copy_machine(self.root, self.to / str(self.count))

    def is_next(self) -> bool:
        """Whether the next point is kept."""
        return self.count + 1 in self.wanted


def hook_journal(point: Counter) -> None:
    """Points before, in the middle of and after every write of the journal, and after its sync."""
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def write(descriptor: int, data: bytes, offset: int) -> int:
        point("before journal")
        if point.is_next():
            pwrite(descriptor, data[: len(data) // 2], offset)
        point("half of a line")
        written = pwrite(descriptor, data, offset)
        point("before sync")
        return written

    def sync(descriptor: int) -> None:
        fdatasync(descriptor)
        point("after sync")

    os.pwrite, os.fdatasync = write, sync  # type: ignore[assignment]


@dataclass(frozen=True)
class Outcome:
    """How a child ended; ``points`` only if it was not killed."""

    killed: bool
    points: int = 0
    #: writes to the kernel and the driver
    writes: int = 0
    #: questions to libvirt
    asked: int = 0
    #: those that gave a running machine a device of the host
    plugged: Sequence[int] = ()
    answer: Any = None
    error: str | None = None


def run_child(
    root: Path, act: Callable[[World], Any], kill_at: int | None, breakage: Breakage | None = None
) -> Outcome:
    """Does ``act`` on the machine in ``root`` in a process of its own."""
    return fork_child(root, act, Counter(kill_at), breakage)


def run_and_copy(
    root: Path,
    act: Callable[[World], Any],
    wanted: frozenset[int],
    to: Path,
    breakage: Breakage | None = None,
) -> Outcome:
    """Does ``act`` once, undisturbed; the machine as it is at each wanted point is left in ``to``, under
    the point's number.
    """
    return fork_child(root, act, Copier(None, root=root, to=to, wanted=wanted), breakage)


def fork_child(
    root: Path, act: Callable[[World], Any], counter: Counter, breakage: Breakage | None
) -> Outcome:
    """A process of its own, whose points ``counter`` gets."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _work(root, act, counter, breakage, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return Outcome(killed=True)
    return Outcome(False, **json.loads(text))


def _work(
    root: Path,
    act: Callable[[World], Any],
    counter: Counter,
    breakage: Breakage | None,
    writer: int,
) -> None:
    result: dict[str, Any] = {}
    try:
        hook_journal(counter)
        if breakage is not None:
            breakage()
        world = World(root, counter)
        result["answer"] = act(world)
        result |= {"points": counter.count, "writes": world.writes}
        result |= {"asked": world.hypervisor.asked, "plugged": world.hypervisor.plugged}
    except BaseException:
        result["error"] = traceback.format_exc()
    os.write(writer, json.dumps(result).encode())
    os._exit(0)


def copy_machine(template: Path, to: Path) -> None:
    """A copy of all files; not of places in a lock's queue, which are FIFOs of processes."""
    shutil.copytree(template, to, ignore=shutil.ignore_patterns("*.queue"))


@contextmanager
def copied(template: Path, to: Path) -> Iterator[Path]:
    """A fresh copy of the machine."""
    copy_machine(template, to)
    try:
        yield to
    finally:
        shutil.rmtree(to)


def do_recover(world: World) -> dict[str, Any]:
    """``vgpumgr recover``, and whether it changed anything at all."""
    changes = world.changes
    before = fingerprint(world.root)
    from vgpumgr.app.operations.recovery import Policy

    document = world.recovery.recover(Policy())
    return {
        "actions": [action.as_data() for action in document.actions],
        "drift": [drift.as_data() for drift in document.drift],
        "unchanged": changes == world.changes and before == fingerprint(world.root),
    }


def recover_twice(world: World) -> list[dict[str, Any]]:
    """Recovery, and once more on what is on disk then."""
    return [do_recover(world), do_recover(World(world.root))]


def fingerprint(root: Path) -> tuple[bytes, ...]:
    """Our own state on disk."""
    state = root / "state"
    return tuple(
        path.read_bytes() if path.exists() else b""
        for path in (state / "state.sqlite", state / "state.copy", state / "journal")
    )


@dataclass
class Judge:
    """Knows the states before and after an operation; judges what a crash and its recovery leave."""

    old: dict[str, Any]
    new: dict[str, Any]
    old_drift: list[str]

    def judge(self, root: Path, breakage: Breakage | None = None) -> list[str]:
        """What is wrong after a crash: recovers, looks, and recovers once more."""
        outcome = run_child(root, recover_twice, None, breakage)
        if outcome.error:
            return [f"recovery failed: {outcome.error}"]
        wrong = self.check(root)
        drift = [d["text"] for d in outcome.answer[0]["drift"]]
        if drift and drift != self.old_drift:
            wrong.append(f"differs after recovery: {drift}")
        second = outcome.answer[1]
        if not second["unchanged"] or second["actions"]:
            wrong.append(f"a second recovery does something: {second}")
        return wrong

    def check(self, root: Path) -> list[str]:
        """Whether the machine is as before or as after."""
        world = World(root)
        now = world.summary()
        wrong = []
        if world.parts.open_journal().unfinished():
            wrong.append("the journal has unfinished operations")
        if now not in (self.old, self.new):
            wrong.append("neither old nor new")
            for name, then in (("old", self.old), ("new", self.new)):
                wrong += [f"not {name}: {text}" for text in list_differences(now, then)]
        return wrong


def list_differences(now: Any, then: Any, path: str = "") -> Iterator[str]:
    """The smallest parts that differ, with the way to them."""
    if now == then:
        return
    if isinstance(now, dict) and isinstance(then, dict):
        for key in now.keys() | then.keys():
            yield from list_differences(now.get(key), then.get(key), f"{path}/{key}")
    elif isinstance(now, tuple) and isinstance(then, tuple) and len(now) == len(then):
        for number, (one, other) in enumerate(zip(now, then, strict=True)):
            yield from list_differences(one, other, f"{path}/{number}")
    else:
        yield f"{path}: {now!r} was {then!r}"


def prepare(scenario: Scenario, template: Path, scratch: Path) -> tuple[Judge, Outcome]:
    """Builds the machine, runs the operation once undisturbed; also how that ended."""
    scenario.build(World(template))
    old = World(template)
    with copied(template, scratch) as root:
        done = run_child(root, scenario.run, None)
        assert done.error is None, done.error
        new = World(root).summary()
    with copied(template, scratch) as root:
        scenario.check(run_child(root, scenario.run_whole, None).error)
    with copied(template, scratch) as root:
        quiet = run_child(root, do_recover, None)
        assert quiet.error is None, quiet.error
        repaired = World(root).summary()
    drift = [d["text"] for d in quiet.answer["drift"]]
    before = old.summary()
    # what recovery itself repairs in the state before is no difference to that state
    judge = Judge(repaired if repaired != before else before, new, drift)
    return judge, done
