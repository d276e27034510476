"""Carrying out a planned change of layout: all of it or nothing, and remembered for the next boot."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from vgpumgr.daemon.layout_store import open_layouts, plan_remembering
from vgpumgr.daemon.layout_victims import Victims
from vgpumgr.daemon.parts import Parts
from vgpumgr.daemon.vgpu_owners import list_vgpu_owners
from vgpumgr.errors import (
    MigModePendingError,
    NotPermittedError,
    OutcomePendingError,
    RolledBackError,
    VgpumgrError,
)
from vgpumgr.host.lock import lock_file
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.slice import SliceOwner
from vgpumgr.plan.executor import Executor, Progress
from vgpumgr.plan.journal import Event, Journal
from vgpumgr.plan.layout_plan import (
    OPERATION,
    SUBJECT,
    check_fresh,
    claim_begun,
    list_begun,
    make_plan,
)
from vgpumgr.plan.layout_world import LayoutWorld
from vgpumgr.plan.remember_step import RememberLayouts, find_begun, is_through
from vgpumgr.plan.restore_steps import is_complete
from vgpumgr.plan.step import Plan, W


@dataclass(frozen=True)
class LayoutOutcome:
    """What was done. ``gpus`` are the GPUs as NVML shows them afterwards."""

    plan: LayoutPlan
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...] = ()


def apply_layout(
    plan: LayoutPlan,
    parts: Parts,
    *,
    remember: bool = True,
    progress: Progress | None = None,
) -> LayoutOutcome:
    """Does the steps of a plan, in order, and reads the result back.

    With ``remember`` the GPUs that the plan explains get this layout back after a boot.

    Raises:
        LayoutChangedError, LayoutBusyError: what was planned for is no more; nothing was done.
        MigModePendingError: MIG mode waits for a reset; everything else is as before.
        RolledBackError: a step failed; the layout of before is back, with the same placements.
        RollbackIncompleteError: so did a step back; what is left is listed.
        OutcomePendingError: a call of the driver has not come back.
    """
    check_permitted(parts)
    with lock_file(parts.run_dir / "vgpumgr.lock", clock=parts.clock):
        notes = settle_layouts(parts)
        gpus = parts.read_inventory().gpus
        check_fresh(plan, gpus, list_owners(parts))
        victims = Victims(parts, plan)
        victims.stop()
        try:
            last = plan_remembering(parts, plan, gpus) if remember else ()
            run_steps(plan, parts, gpus, progress, last)
        except OutcomePendingError:
            raise  # until then nobody knows which slices there are: recover does the rest
        except VgpumgrError as error:
            told = (error.why, *victims.settle())
            error.why = "; ".join(text for text in told if text)
            raise
        notes += victims.settle()
        after = parts.read_inventory().gpus
        if remember and victims.records:
            # by now it is known which slices are theirs
            world = make_layout_world(parts, after)
            for step in plan_remembering(parts, plan, after):
                step.do(world)
    return LayoutOutcome(plan, after, tuple(notes))


def check_permitted(parts: Parts) -> None:
    """Raises NotPermittedError."""
    if not parts.is_privileged:
        raise NotPermittedError(
            "cannot change MIG instances as this user",
            why="changing GPUs needs root",
            hint="repeat it with sudo",
        )


def list_owners(parts: Parts) -> list[SliceOwner]:
    """Whose slices are VMs'."""
    slices = [owner for r in parts.store.list_attachments() if (owner := r.owner) is not None]
    return slices + list_vgpu_owners(parts)


def make_layout_world(parts: Parts, gpus: Sequence[Gpu]) -> LayoutWorld:
    """The world of one operation on layouts."""
    return LayoutWorld(parts.nvml, parts.clock, gpus, layouts=open_layouts(parts))


def run_steps(
    plan: LayoutPlan,
    parts: Parts,
    gpus: Sequence[Gpu],
    progress: Progress | None = None,
    last: Sequence[RememberLayouts] = (),
) -> None:
    """Runs a plan's steps in the journal, and at the end what is to be remembered of them; the caller
    holds the lock.
    """
    world = make_layout_world(parts, gpus)
    if plan.steps:
        whole = make_plan(plan)
        run_plan(replace(whole, steps=(*whole.steps, *last)), world, parts, progress)
        return
    for step in last:
        step.do(world)


def run_plan(plan: Plan[W], world: W, parts: Parts, progress: Progress | None = None) -> None:
    """Runs any plan on the MIG layout in its world."""
    extra = {} if progress is None else {"progress": progress}
    with closing(parts.open_journal()) as journal:
        executor = Executor(world, journal, list_late=parts.list_late, **extra)
        try:
            executor.run(plan, secrets.token_hex(8))
        except RolledBackError as error:
            if isinstance(error.__cause__, MigModePendingError):
                raise _tell_pending(error.__cause__) from error
            raise


def _tell_pending(error: MigModePendingError) -> MigModePendingError:
    """Not a failure: the mode waits. What was done before it was undone, so it can be repeated."""
    return MigModePendingError(
        error.error,
        cause=error.cause,
        why=f"{error.why}; the layout is as before, and is to be applied after that",
        held_by=error.held_by,
        hint=error.hint,
    )


def settle_layouts(parts: Parts) -> list[str]:
    """Undoes changes of layout that a crash interrupted; returns what was done, in words.

    Raises OutcomePendingError while a helper process of then may still take effect.
    """
    notes = []
    with closing(parts.open_journal()) as journal:
        contents = journal.look()
        for op, events in contents.unfinished.items():
            begin = events[0].data
            if (begin.get("operation"), begin.get("subject")) == (OPERATION, SUBJECT):
                notes.append(_settle_one(parts, journal, op, events))
    return notes


def _settle_one(parts: Parts, journal: Journal, op: str, events: Sequence[Event]) -> str:
    if events[0].boot != parts.boot_id:
        journal.append(op, "end", {"outcome": "rebooted"})
        return "an interrupted change of layout ended with the boot it was made in"
    if is_complete(events):
        journal.append(op, "end", {"outcome": "done"})
        return "an interrupted restore of slices was complete"
    if is_through(events, open_layouts(parts)):
        journal.append(op, "end", {"outcome": "done"})
        return "an interrupted change of layout was complete"
    if late := parts.list_late():
        raise OutcomePendingError(
            "an interrupted change of layout waits for a helper process",
            why="it may still take effect",
            held_by=late,
            hint="vgpumgr status",
        )
    world = make_layout_world(parts, parts.read_inventory().gpus)
    steps = list_begun(events)
    claim_begun(world, steps)
    remembering = find_begun(events)
    for step in (*((remembering,) if remembering else ()), *reversed(steps)):
        try:
            step.undo(world)
        except VgpumgrError as error:
            error.error = f"cannot undo an interrupted change of layout: {error.error}"
            raise
    journal.append(op, "end", {"outcome": "recovered"})
    return "an interrupted change of layout was undone"
