"""The sweep of pairs: ``python -m tests.recovery.pairs [--every N] [--then VERB] [NAME...]``.

NAME is that of a machine, or of a verb that is killed.

On each machine each verb is killed at each of its points; then each other verb runs, as the next command would;
then ``recover`` does, twice. Afterwards the machine is as if one of both, both or none had been done, undisturbed;
the second verb did what it does on an undisturbed machine, and was refused only where it is refused there; and a
third verb does what it does on an undisturbed machine. With ``--every N`` only each N-th pair of a point and a verb.

Prints what was reached: pairs of verbs, points, and pairs of the step that was begun last and the verb that followed.
Exits 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.recovery.breakages import BREAKAGES
from tests.recovery.invariants import describe_machine, list_broken_links
from tests.recovery.killing import ALL_POINTS, copied, do_recover, run_and_copy, run_child
from tests.recovery.scenarios import name_ids
from tests.recovery.sweep import _scratch
from tests.recovery.verbs import MACHINES, VERBS, Prepared, Verb
from tests.recovery.world import World
from vgpumgr.errors import VgpumgrError

#: how far behind the second verb the third stands
_THIRD = 8
_BY_NAME = {verb.name: verb for verb in VERBS}
DONE = "done"
RESTORE = "restore"
#: verbs that lead to a state, and those of which the last ends as the verb did that led to it
Way = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Ended:
    """How a verb ended on a machine, and how the machine is afterwards."""

    outcome: str
    state: list[str]
    broken: list[str]


@dataclass
class Reached:
    """What a sweep has tried."""

    cases: int = 0
    pairs: set[tuple[str, str]] = field(default_factory=set)
    points: set[tuple[str, str, int]] = field(default_factory=set)
    steps: set[tuple[str, str]] = field(default_factory=set)

    def count(self) -> dict[str, int]:
        return {
            "cases": self.cases,
            "pairs": len(self.pairs),
            "points": len(self.points),
            "steps": len(self.steps),
        }


def run_verb(world: World, verb: Verb, prefix: str) -> str:
    """``done``, or the id of its error; what is no error of ours is a traceback."""
    name_ids(prefix)
    try:
        verb.act(world)
    except VgpumgrError as error:
        return f"{error.id}: {error}"
    except Exception:
        return f"BUG {traceback.format_exc()}"
    return DONE


def _id_of(outcome: str) -> str:
    return outcome.partition(":")[0]


class Machine:
    """One prepared machine in a directory, with what each verb does on it and on what others make of it."""

    def __init__(self, prepared: Prepared, directory: Path) -> None:
        self.prepared = prepared
        self.directory = directory
        self.root = directory / "machine"
        prepared.build(self.root)
        self._ended: dict[tuple[str, ...], Ended] = {}

    def try_verbs(self, *names: str) -> Ended:
        """How the last of some verbs ends, each after the one before; undisturbed, and recovered at the end."""
        if names not in self._ended:
            with copied(self.root, self.directory / "undisturbed") as root:
                done = run_child(root, lambda world: _run_all(world, names), None)
                assert done.error is None, done.error
                self._ended[names] = Ended(*done.answer)
        return self._ended[names]

    def list_working(self) -> list[Verb]:
        """Verbs that do something on this machine."""
        return [verb for verb in VERBS if self.try_verbs(verb.name).outcome == DONE]

    def read_state(self, names: tuple[str, ...]) -> list[str]:
        """The machine after some verbs."""
        return self.try_verbs(*(names or ("recover",))).state

    def find_same(self, known: Sequence[Way], state: list[str]) -> list[Way]:
        """Those after which the machine is in that state."""
        return [way for way in known if self.read_state(way[0]) == state]

    def list_ends(self, ways: Sequence[tuple[str, ...]]) -> list[str]:
        """How the last verb ends on each way."""
        return [self.try_verbs(*names).outcome for names in ways]

    def ends_so(self, ways: Sequence[tuple[str, ...]], outcome: str) -> bool:
        """Whether the last verb ends like this on one of the ways: done, or with the same error."""
        return any(_id_of(self.try_verbs(*names).outcome) == _id_of(outcome) for names in ways)


def _run_all(world: World, names: Sequence[str]) -> tuple[str, list[str], list[str]]:
    outcome = DONE
    for number, name in enumerate(names):
        outcome = run_verb(World(world.root), _BY_NAME[name], f"bb{number:02d}")
    for _ in range(2):
        do_recover(World(world.root))
    after = World(world.root)
    return outcome, describe_machine(after), list_broken_links(after)


def _follow(world: World, second: Verb, third: Verb, last: Sequence[str]) -> dict[str, Any]:
    """What comes after the kill: the second verb, what ends it all, ``recover`` twice, and the third verb."""
    root = world.root
    answer: dict[str, Any] = {"outcome": run_verb(world, second, "cccc")}
    for name in last:
        run_verb(World(root), _BY_NAME[name], "eeee")
    recovered = [do_recover(World(root)) for _ in range(2)]
    after = World(root)
    answer["second"] = recovered[1]
    answer["state"] = describe_machine(after)
    answer["broken"] = list_broken_links(after)
    answer["again"] = run_verb(World(root), third, "dddd")
    return answer


def judge(machine: Machine, first: Verb, second: Verb, third: Verb, root: Path) -> list[str]:
    """What is wrong after ``first`` was killed on a machine, of which ``root`` is what it left."""
    # a restore does one thing after another, and is repeated where it was interrupted
    last = (RESTORE,) if first.name == RESTORE else ()
    done = run_child(root, lambda world: _follow(world, second, third, last), None)
    if done.error:
        return [f"recover failed: {done.error}"]
    answer = done.answer
    wrong = []
    if answer["outcome"].startswith("BUG"):
        wrong.append(f"{second.name} ended in a bug: {answer['outcome']}")
    if not answer["second"]["unchanged"] or answer["second"]["actions"]:
        wrong.append(f"a second recover does something: {answer['second']['actions']}")
    undone, done_before = (second.name,), (first.name, second.name)
    # the states that are right, and how the second verb was done then
    known = [
        ((*undone, *last), undone),
        (last, undone),
        ((first.name, *last), done_before),
        ((*done_before, *last), done_before),
    ]
    found = machine.find_same(known[:2], answer["state"])
    if last or not found or not machine.ends_so([way for _, way in found], answer["outcome"]):
        found += machine.find_same(known[2:], answer["state"])
    if not found:
        return [*wrong, *_describe_differences(machine, [n for n, _ in known], answer["state"])]
    same = [names for names, _ in found]
    # what a boot took is not broken by us
    before = [text for names in same for text in machine.try_verbs(*(names or ("recover",))).broken]
    wrong += [text for text in answer["broken"] if text not in before]
    ways = [way for _, way in found]
    # what is half attached can be detached; undisturbed there is nothing, or all of it
    if second.name != "detach" and not machine.ends_so(ways, answer["outcome"]):
        wrong.append(f"{second.name}: {answer['outcome']}, undisturbed {machine.list_ends(ways)}")
    again = [(*names, third.name) for names in same]
    if not machine.ends_so(again, answer["again"]):
        wrong.append(
            f"then {third.name}: {answer['again']}, undisturbed {machine.list_ends(again)}"
        )
    return wrong


def _describe_differences(
    machine: Machine, known: Sequence[tuple[str, ...]], state: list[str]
) -> Iterator[str]:
    for names in known:
        other = machine.read_state(names)
        lost = [text for text in other if text not in state]
        more = [text for text in state if text not in other]
        yield f"not as after {' and '.join(names) or 'nothing'}: lacks {lost}, has {more}"


def sweep_pairs(
    machine: Machine,
    verbs: Sequence[Verb],
    every: int,
    reached: Reached,
    followers: Sequence[str] = (),
) -> Iterator[tuple[str, list[str]]]:
    """Yields (case, what is wrong)."""
    points = machine.directory / "points"
    for first in machine.list_working():
        if verbs and first not in verbs:
            continue
        with copied(machine.root, machine.directory / "killed") as root:
            done = run_and_copy(
                root, partial(run_verb, verb=first, prefix="bbbb"), ALL_POINTS, points
            )
        chosen = [i for i, v in enumerate(VERBS) if not followers or v.name in followers]
        cases = [(n, i) for n in range(1, done.points + 1) for i in chosen]
        start = crc32(f"{machine.prepared.name}/{first.name}".encode()) % every
        for number, index in cases[start % max(len(cases), 1) :: every]:
            second, third = VERBS[index], VERBS[(index + _THIRD) % len(VERBS)]
            with copied(points / str(number), machine.directory / "root") as root:
                step = find_step(root)
                wrong = judge(machine, first, second, third, root)
            yield f"{machine.prepared.name}: {first.name} @{number}, {second.name}", wrong
            reached.cases += 1
            reached.pairs.add((first.name, second.name))
            reached.points.add((machine.prepared.name, first.name, number))
            reached.steps.add((step, second.name))
        if points.exists():
            shutil.rmtree(points)


def find_step(root: Path) -> str:
    """The kind of the step that was begun last, of an operation that has no end."""
    contents = World(root).parts.open_journal().look()
    kinds = [
        str(event.data["kind"])
        for events in contents.unfinished.values()
        for event in events
        if event.event in ("intent", "undo")
    ]
    return kinds[-1] if kinds else "none"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of the points")
    parser.add_argument("--then", action="append", default=[], metavar="VERB", help="that follows")
    parser.add_argument("--break", dest="breakage", choices=sorted(BREAKAGES))
    parser.add_argument("names", nargs="*", help="machines, and verbs that are killed")
    options = parser.parse_args()
    machines = [m for m in MACHINES if m.name in options.names]
    verbs = [verb for verb in VERBS if verb.name in options.names]
    if options.breakage:
        BREAKAGES[options.breakage]()
    reached = Reached()
    wrong: dict[str, list[str]] = {}
    for prepared in machines or MACHINES:
        with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
            machine = Machine(prepared, Path(directory))
            swept = sweep_pairs(machine, verbs, options.every, reached, options.then)
            for case, problems in swept:
                if problems:
                    wrong[case] = problems
                    print(case, *problems, sep="\n    ", file=sys.stderr, flush=True)
    print(json.dumps({**reached.count(), "wrong": wrong}, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
