"""The exhaustive sweep: ``python -m tests.recovery.sweep [--nested N] [--late|--libvirt] [NAME...]``.

Each scenario is killed at each of its points; then recovery is, at each of its own (or every N-th).
With ``--really N`` only each N-th of the points is a kill: for the others the scenario runs once, and what is on
disk at each of them is what its kill would leave, which the kills show. ``--nested-really N``: the same in recovery.
With ``--libvirt`` the connection to libvirt is lost at each call instead, before or after its effect, once or for
the rest of the command. With ``--late`` each of its writes to the kernel or the driver does not return in time: it
comes back after the command has ended or was killed and recovery has looked at it, with its effect or without.
Prints how many kills (late writes, lost connections) were planned and how many happened; exits 1 if anything is
wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.recovery.breakages import BREAKAGES
from tests.recovery.invariants import list_violations
from tests.recovery.killing import (
    ALL_POINTS,
    Breakage,
    Judge,
    copied,
    do_recover,
    list_differences,
    prepare,
    run_and_copy,
    run_child,
)
from tests.recovery.scenarios import SCENARIOS, Scenario
from tests.recovery.world import World
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.errors import OutcomePendingError
from vgpumgr.model.attachment import AttachmentState


def sweep(
    scenario: Scenario,
    directory: Path,
    nested_step: int,
    breakage: Breakage | None = None,
    every: int = 1,
    really: int = 1,
    nested_really: int = 1,
) -> Iterator[tuple[str, bool, list[str]]]:
    """Yields (case, whether all planned kills happened, what is wrong). Each ``really``-th is a kill of a
    process; the others are copies of the machine at that point of a single run, which a kill is
    compared with. ``nested_really``: the same for kills in recovery.
    """
    template, root, again = directory / "template", directory / "root", directory / "again"
    copies = directory / "points"
    judge, undisturbed = prepare(scenario, template, directory / "scratch")
    numbers = range(1 + len(scenario.name) % every, undisturbed.points + 1, every)
    if really > 1:
        with copied(template, root):
            run_and_copy(root, scenario.run, frozenset(numbers), copies, breakage)
    for number in numbers:
        case, copy = f"{scenario.name} @{number}", copies / str(number)
        if really > 1 and numbers.index(number) % really:
            there = copy.is_dir()
            yield case, there, judge.judge(copy, breakage) if there else []
            continue
        with copied(template, root):
            killed = run_child(root, scenario.run, number, breakage).killed
            differs = list_copy_differences(root, copy) if really > 1 else []
            if nested_step and number // every % nested_step == 0:
                yield from _nested(scenario, number, root, again, judge, breakage, nested_really)
            yield case, killed, differs + judge.judge(root, breakage)


def list_copy_differences(killed: Path, copy: Path) -> list[str]:
    """What a kill leaves that a copy at the same point has not; names of operations are random."""
    found, other = World(killed), World(copy)
    differs = list(list_differences(found.summary(), other.summary()))
    journals = [world.parts.open_journal().look() for world in (found, other)]
    events, copied_events = ([(e.event, e.data.get("kind")) for e in j.events] for j in journals)
    if events != copied_events or journals[0].torn != journals[1].torn:
        differs.append(f"journal: {events[-2:]} was {copied_events[-2:]}")
    return [f"a copy is not what a kill leaves: {text}" for text in differs]


def _nested(
    scenario: Scenario,
    number: int,
    root: Path,
    again: Path,
    judge: Judge,
    breakage: Breakage | None,
    really: int,
) -> Iterator[tuple[str, bool, list[str]]]:
    """Recovery killed at each of its points, each ``really``-th time in truth."""
    copies = again.with_name("nested points")
    with copied(root, again):
        points = run_and_copy(again, do_recover, ALL_POINTS, copies, breakage).points
    for second in range(1, points + 1):
        case, copy = f"{scenario.name} @{number}, recovery @{second}", copies / str(second)
        if second % really:  # never, if each is a kill
            yield case, copy.is_dir(), judge.judge(copy, breakage)
            continue
        with copied(root, again):
            killed = run_child(again, do_recover, second, breakage).killed
            differs = list_copy_differences(again, copy) if really > 1 else []
            yield case, killed, differs + judge.judge(again, breakage)
    if copies.exists():
        shutil.rmtree(copies)


def sweep_late(
    scenario: Scenario,
    directory: Path,
    breakage: Breakage | None = None,
    every: int = 1,
) -> Iterator[tuple[str, bool, list[str]]]:
    """As ``sweep``; whether a write got late, in the place of whether a kill happened."""
    template, root = directory / "template", directory / "root"
    judge, undisturbed = prepare(scenario, template, directory / "scratch")
    cases = [
        (number, killed, effect)
        for number in range(1, undisturbed.writes + 1)
        for killed in (False, True)
        for effect in (False, True)
    ]
    for number, killed, effect in cases[len(scenario.name) % every :: every]:

        def act(world: World, number: int = number, killed: bool = killed) -> None:
            world.late_at, world.dies_when_late = number, killed
            scenario.run(world)

        with copied(template, root):
            run_child(root, act, None, breakage)
            happened = World(root).pending is not None
            problems = _check_waiting(root, judge, breakage) if happened else []
            if happened:
                World(root).finish_late(takes_effect=effect)
            name = f"{scenario.name}, write {number}, killed {killed}, effect {effect}"
            # what stopped at the first of several leaves the others as they were
            checks = judge.judge(root, breakage)
            if scenario.is_several and not killed:
                checks = list_violations(World(root))
            yield name, happened, problems + checks


def sweep_libvirt(
    scenario: Scenario,
    directory: Path,
    breakage: Breakage | None = None,
    every: int = 1,
) -> Iterator[tuple[str, bool, list[str]]]:
    """As ``sweep``; whether the connection was lost, in the place of whether a kill happened.

    ``forgets``: QEMU has got a device of the host, and libvirt does not know of it afterwards.
    """
    template, root = directory / "template", directory / "root"
    judge, undisturbed = prepare(scenario, template, directory / "scratch")
    cases = [
        (number, late, stays, False)
        for number in range(1, undisturbed.asked + 1)
        for late in (False, True)
        for stays in (False, True)
    ][len(scenario.name) % every :: every]
    cases += [(at, True, stays, True) for at in undisturbed.plugged for stays in (False, True)]
    for number, late, stays, forgets in cases:

        def act(
            world: World, case: tuple[int, bool, bool, bool] = (number, late, stays, forgets)
        ) -> int:
            libvirt = world.hypervisor
            libvirt.cut_at, libvirt.cut_late, libvirt.stays_down, libvirt.forgets = case
            scenario.run(world)
            if libvirt.stays_down:
                # whoever looks meanwhile has no libvirt either
                world.recovery.recover(Policy())
            return libvirt.asked

        with copied(template, root):
            done = run_child(root, act, None, breakage)
            problems = [done.error] if done.error else []
            name = (
                f"{scenario.name}, libvirt lost at {number}, late {late}, for good {stays}, "
                f"forgets {forgets}"
            )
            checks = (
                _judge_forgotten(root, judge, breakage) if forgets else judge.judge(root, breakage)
            )
            if scenario.is_several:
                checks = list_violations(World(root))
            yield name, (done.answer or 0) >= number, problems + checks


def _judge_forgotten(root: Path, judge: Judge, breakage: Breakage | None) -> list[str]:
    """A device that QEMU has and libvirt does not know: nothing is taken from under the guest, whoever
    recovers is told who has it, and it is the host's again once the VM stops.
    """
    for _ in range(2):
        done = run_child(root, recover_and_look, None, breakage)
        if done.error:
            return [f"while QEMU has it: {done.error}"]
        if not any("held by QEMU of" in text for text in done.answer["waits"]):
            return [f"nobody says who has it: {done.answer}"]
        if done.answer["states"] != [str(AttachmentState.ATTACHING)]:
            return [f"recorded while QEMU has it: {done.answer['states']}"]
    world = World(root)
    stopped = [m for m in world.hypervisor.machines.values() if m.unseen is not None]
    for machine in stopped:
        machine.live = machine.unseen = None
    world.save()
    done = run_child(root, do_recover, None, breakage)
    if done.error:
        return [f"after the VM stopped: {done.error}"]
    world = World(root)
    for machine in stopped:
        started = world.hypervisor.machines[machine.uuid]
        started.live = started.config
    world.save()
    return judge.judge(root, breakage)


def recover_and_look(world: World) -> dict[str, Any]:
    """``recover``: what it could not do yet, and how the attachments stand afterwards."""
    actions = world.recovery.recover(Policy()).actions
    return {
        "waits": [action.text for action in actions if not action.done],
        "states": [record.state.value for record in world.store.list_attachments()],
    }


def _check_waiting(root: Path, judge: Judge, breakage: Breakage | None) -> list[str]:
    """While a write has not returned nothing is decided about it, and everybody gets an answer."""
    done = run_child(root, look_and_recover, None, breakage)
    if done.error:
        return [f"while it waits: {done.error}"]
    if not done.answer["late"]:
        return ["status names no late helper"]
    if not done.answer["open"] and judge.check(root):
        return ["the operation was closed while its write had not returned"]
    return []


def look_and_recover(world: World) -> dict[str, Any]:
    """``status``, then ``recover``; whether the operation is still open."""
    late = world.recovery.status().late
    with suppress(OutcomePendingError):
        world.recovery.recover(Policy())
    halves = [
        r.id for r in world.store.list_attachments() if r.state is not AttachmentState.ATTACHED
    ]
    unfinished = list(world.parts.open_journal().look().unfinished)
    return {"late": late, "open": halves + unfinished}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nested", type=int, default=1, metavar="N")
    parser.add_argument("--late", action="store_true", help="writes do not return in time")
    parser.add_argument("--libvirt", action="store_true", help="the connection is lost")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of the points")
    parser.add_argument(
        "--really", type=int, default=1, metavar="N", help="each N-th is killed, others are copies"
    )
    parser.add_argument(
        "--nested-really", type=int, default=1, metavar="N", help="the same for kills in recovery"
    )
    parser.add_argument("--break", dest="breakage", choices=sorted(BREAKAGES))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    chosen = [s for s in SCENARIOS if not options.names or s.name in options.names]
    breakage = BREAKAGES[options.breakage] if options.breakage else None
    planned = happened = 0
    wrong: dict[str, list[str]] = {}
    for scenario in chosen:
        with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
            where = Path(directory)
            if options.late or options.libvirt:
                instead = sweep_late if options.late else sweep_libvirt
                cases = instead(scenario, where, breakage, options.every)
            else:
                cases = sweep(
                    scenario,
                    where,
                    options.nested,
                    breakage,
                    options.every,
                    options.really,
                    options.nested_really,
                )
            for case, killed, problems in cases:
                planned, happened = planned + 1, happened + killed
                if problems:
                    wrong[case] = problems
    print(json.dumps({"planned": planned, "happened": happened, "wrong": wrong}, indent=1))
    return int(bool(wrong) or planned != happened)


def _scratch() -> str | None:
    """Memory, where there is some: nothing here asks for a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
