"""The sweep of pairs with late helpers: ``python -m tests.recovery.late_pairs [--every N] [--then VERB] [NAME...]``.

NAME is that of a machine, or of a verb that is killed.

On each machine each verb is killed, or gives up, while one of its writes to the kernel or the driver does not return;
then each other verb runs while the helper process is still stuck in that write; then the write returns, with or
without effect; then ``recover`` runs, twice. Afterwards the machine is as if one of both, both or none had been done,
undisturbed: the second verb did what it does on an undisturbed machine, or was refused and changed nothing; and a
third verb does what it does on an undisturbed machine. With ``--every N`` only each N-th case.

Prints what was reached, and how often the second verb was done or refused, by error. Exits 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.recovery.breakages import BREAKAGES
from tests.recovery.invariants import describe_machine, list_broken_links
from tests.recovery.killing import copied, do_recover, run_child
from tests.recovery.pairs import (
    _BY_NAME,
    DONE,
    RESTORE,
    Machine,
    _describe_differences,
    _id_of,
    run_verb,
)
from tests.recovery.sweep import _scratch
from tests.recovery.verbs import MACHINES, VERBS, Verb
from tests.recovery.world import World
from vgpumgr.errors import VgpumgrError

#: how far behind the second verb the third stands
_THIRD = 11


def _beside(verb: Verb, index: int) -> Verb:
    """The same on a machine on which a call to that GPU is stuck: it is left alone."""

    def act(world: World) -> object:
        stuck = {str(g.uuid): "a call" for g in world.nvml.gpus.values() if g.index == index}
        world.parts = replace(world.parts, list_late_gpus=lambda: stuck)
        return verb.act(world)

    return Verb(f"{verb.name} beside GPU {index}", act)


_BESIDE = {verb.name: [_beside(verb, index) for index in range(2)] for verb in VERBS}
_BY_NAME.update({verb.name: verb for several in _BESIDE.values() for verb in several})


@dataclass(frozen=True)
class Case:
    """A write that does not return, what becomes of its command and of itself, and the verb meanwhile."""

    first: Verb
    #: of its writes
    number: int
    second: Verb
    #: its command is killed; else it gives up
    killed: bool
    takes_effect: bool

    def __str__(self) -> str:
        how = "killed" if self.killed else "given up"
        then = "effect" if self.takes_effect else "no effect"
        return f"{self.first.name} {how} in write {self.number}, {self.second.name}, {then}"


def list_cases(machine: Machine, firsts: Sequence[Verb], seconds: Sequence[Verb]) -> list[Case]:
    """All on one machine."""
    found = []
    for first in machine.list_working():
        if firsts and first not in firsts:
            continue
        with copied(machine.root, machine.directory / "counted") as root:
            done = run_child(root, partial(run_verb, verb=first, prefix="bbbb"), None)
        numbers = range(1, done.writes + 1)
        found += [
            Case(first, *one) for one in product(numbers, seconds, (True, False), (True, False))
        ]
    return found


def _run_second(world: World, verb: Verb, prefix: str) -> tuple[str, bool]:
    """As ``run_verb``; and whether it was refused because of the helper, which the refusal then names."""
    refusals: list[VgpumgrError] = []

    def act(world: World) -> object:
        try:
            return verb.act(world)
        except VgpumgrError as error:
            refusals.append(error)
            raise

    outcome = run_verb(world, Verb(verb.name, act), prefix)
    said = " ".join(f"{e} {e.why} {e.cause} {' '.join(e.held_by)}" for e in refusals)
    return outcome, any(word in said for word in ("process 4711", "has not ended", "half "))


def _begin(world: World, case: Case) -> str:
    world.late_at, world.dies_when_late = case.number, case.killed
    return run_verb(world, case.first, "bbbb")


def _follow(world: World, case: Case, third: Verb, last: Sequence[str]) -> dict[str, Any]:
    """The second verb, the helper's end, what ends it all, ``recover`` twice, and the third verb."""
    root = world.root
    outcome, waits = _run_second(world, case.second, "cccc")
    answer: dict[str, Any] = {"outcome": outcome, "waits": waits}
    after = World(root)
    answer["stuck"] = after.pending is not None
    if after.pending is not None:
        after.finish_late(takes_effect=case.takes_effect)
    for name in last:
        run_verb(World(root), _BY_NAME[name], "eeee")
    recovered = [do_recover(World(root)) for _ in range(2)]
    after = World(root)
    answer["first"], answer["second"] = recovered
    answer["state"] = describe_machine(after)
    answer["broken"] = list_broken_links(after)
    answer["unfinished"] = sorted(after.parts.open_journal().unfinished())
    answer["again"] = run_verb(World(root), third, "dddd")
    return answer


def judge(machine: Machine, case: Case, third: Verb, root: Path) -> tuple[str, list[str]]:
    """How the second verb ended, and what is wrong; ``root`` is what the first one left."""
    # a restore does one thing after another, and is repeated where it was interrupted
    names = (case.first.name, case.second.name)
    last = (RESTORE,) if RESTORE in names else ()
    done = run_child(root, lambda world: _follow(world, case, third, last), None)
    if done.error:
        return "error", [f"recover failed: {done.error}"]
    answer = done.answer
    outcome = _id_of(answer["outcome"])
    if outcome.startswith("BUG"):
        return "bug", [f"{case.second.name} ended in a bug: {answer['outcome']}"]
    wrong = []
    if not answer["second"]["unchanged"] or answer["second"]["actions"]:
        wrong.append(f"a second recover does something: {answer['second']['actions']}")
    if answer["unfinished"]:
        wrong.append(f"unfinished for ever: {answer['unfinished']}, {answer['first']['actions']}")
    first, second = names
    done_ways = [(second, *last), (first, second, *last)]
    for other in _BESIDE[second]:
        done_ways += [(other.name, *last), (first, other.name, *last)]
    none_ways = [tuple(last), (first, *last)]
    # what was refused may have been begun, and be undone or completed when the helper is through
    ways = done_ways if outcome == DONE else [*none_ways, *done_ways]
    same = [way for way in ways if machine.read_state(way) == answer["state"]]
    if not same:
        differences = _describe_differences(machine, ways, answer["state"])
        return outcome, [*wrong, answer["outcome"], *differences]
    before = [text for way in same for text in machine.try_verbs(*(way or ("recover",))).broken]
    wrong += [text for text in answer["broken"] if text not in before]
    undisturbed = [(second,), (first, second)]
    if not answer["waits"] and not machine.ends_so(undisturbed, answer["outcome"]):
        ends = machine.list_ends(undisturbed)
        wrong.append(f"{second}: {answer['outcome']}, undisturbed {ends}")
    again = [(*way, third.name) for way in same]
    if not machine.ends_so(again, answer["again"]):
        ends = machine.list_ends(again)
        wrong.append(f"then {third.name}: {answer['again']}, undisturbed {ends}")
    return outcome, wrong


def sweep_late_pairs(
    machine: Machine, firsts: Sequence[Verb], seconds: Sequence[Verb], every: int
) -> Iterator[tuple[Case, str, list[str]]]:
    """Yields each case, how the second verb ended, and what is wrong."""
    cases = list_cases(machine, firsts, seconds)
    start = crc32(machine.prepared.name.encode()) % every
    for case in cases[start % max(len(cases), 1) :: every]:
        third = VERBS[(VERBS.index(case.second) + _THIRD) % len(VERBS)]
        with copied(machine.root, machine.directory / "root") as root:
            run_child(root, partial(_begin, case=case), None)
            if World(root).pending is None:
                yield case, "unstuck", [f"write {case.number} was not reached"]
                continue
            yield case, *judge(machine, case, third, root)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of the cases")
    parser.add_argument("--then", action="append", default=[], metavar="VERB", help="that follows")
    parser.add_argument("--break", dest="breakage", choices=sorted(BREAKAGES))
    parser.add_argument("names", nargs="*", help="machines, and verbs that are killed")
    options = parser.parse_args()
    machines = [m for m in MACHINES if m.name in options.names]
    firsts = [verb for verb in VERBS if verb.name in options.names]
    seconds = [verb for verb in VERBS if not options.then or verb.name in options.then]
    if options.breakage:
        BREAKAGES[options.breakage]()
    pairs: set[tuple[str, str]] = set()
    outcomes: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for prepared in machines or MACHINES:
        with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
            machine = Machine(prepared, Path(directory))
            for case, outcome, problems in sweep_late_pairs(
                machine, firsts, seconds, options.every
            ):
                pairs.add((case.first.name, case.second.name))
                outcomes[outcome] += 1
                if problems:
                    name = f"{prepared.name}: {case}"
                    wrong[name] = problems
                    print(name, *problems, sep="\n    ", file=sys.stderr, flush=True)
    counts = {"cases": sum(outcomes.values()), "pairs": len(pairs)}
    print(json.dumps({**counts, "outcomes": outcomes, "wrong": wrong}, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
