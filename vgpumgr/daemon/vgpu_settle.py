"""Settling operations on vGPUs that a crash, or a removal that could not end yet, interrupted.

What was to be removed is removed; anything else is undone. As long as a helper process of such an
operation still runs, its outcome is open: it is told, left alone, and hinders nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from vgpumgr.daemon.layout_store import open_layouts
from vgpumgr.daemon.parts import Parts
from vgpumgr.errors import NvmlMissingError, VgpumgrError
from vgpumgr.model.gpu import Gpu
from vgpumgr.plan.journal import Event, Journal
from vgpumgr.plan.layout_plan import MIG, claim_begun, read_layout_step
from vgpumgr.plan.remember_step import is_through
from vgpumgr.plan.step import NothingDoneError, Step
from vgpumgr.plan.vgpu_plan import FORWARD, OPERATIONS, read_step
from vgpumgr.plan.vgpu_record import make_inactive
from vgpumgr.plan.vgpu_world import VgpuOperation
from vgpumgr.plan.world import wait_until

#: a helper whose command was killed ends by itself when its call is done
_ORPHAN_WAIT_S = 5.0
#: steps on GPU and compute instances
_INSTANCE_KINDS = ("mig.gi.create", "mig.gi.destroy", "mig.ci.create", "mig.ci.destroy")


def make_world(parts: Parts, gpus: Sequence[Gpu]) -> VgpuOperation:
    """The world of one operation on vGPUs."""
    return VgpuOperation(
        parts.nvml,
        parts.clock,
        gpus,
        layouts=open_layouts(parts),
        vgpus=parts.vgpus,
        vgpu_store=parts.vgpu_store,
    )


def read_gpus(parts: Parts) -> tuple[Gpu, ...]:
    """NVML's GPUs; none on a host without NVML, which can have vGPUs all the same."""
    try:
        return parts.read_inventory().gpus
    except NvmlMissingError:
        return ()


def settle_vgpus(parts: Parts) -> list[str]:
    """As ``settle_all``, in words alone."""
    return [note for note, _ in settle_all(parts)]


def settle_all(parts: Parts) -> list[tuple[str, bool]]:
    """Settles all that can be settled now; returns what was done (True), or what it waits for.

    The caller holds the machine's lock.
    """
    notes: list[tuple[str, bool]] = []
    with closing(parts.open_journal()) as journal:
        for op, events in journal.look().unfinished.items():
            if events[0].data.get("operation") in OPERATIONS:
                notes.append(_settle_one(parts, journal, op, events))
    notes += [(note, True) for note in _forget_old(parts)]
    return notes


def _settle_one(
    parts: Parts, journal: Journal, op: str, events: Sequence[Event]
) -> tuple[str, bool]:
    begin = events[0].data
    what = f"the interrupted operation to {begin['operation']} {begin['subject']}"
    if is_through(events, open_layouts(parts)):
        journal.append(op, "end", {"outcome": "done"})
        return f"{what} was complete", True
    late: list[str] = []
    if events[0].boot == parts.boot_id:
        patience_s = 0.0 if events[-1].event == "late" else _ORPHAN_WAIT_S
        if not wait_until(parts.clock, lambda: not parts.list_late(), patience_s):
            late = list(parts.list_late())
    if late:
        return f"{what} waits for {'; '.join(late)}", False
    try:
        world = make_world(parts, read_gpus(parts))
        forward = begin["operation"] in FORWARD
        # instances end with their boot: what stands in their places now is not of this operation
        kept = events[0].boot != parts.boot_id
        (_finish if forward else _undo)(world, events, _INSTANCE_KINDS if kept else ())
    except (VgpumgrError, NothingDoneError) as stopped:
        error = stopped.error if isinstance(stopped, NothingDoneError) else stopped
        held_by = getattr(error, "held_by", ())
        held = f" ({', '.join(held_by)})" if held_by else ""
        return f"{what} is not settled: {error}{held}", False
    journal.append(op, "end", {"outcome": "recovered"})
    return f"{what} was {'finished' if forward else 'undone'}", True


def _read_steps(events: Sequence[Event]) -> list[Step[VgpuOperation]]:
    rows = events[0].data.get("steps", ())
    return [read_step(str(row["kind"]), row["target"]) for row in rows]


def _finish(world: VgpuOperation, events: Sequence[Event], kept: Sequence[str]) -> None:
    done = {int(e.data["step"]) for e in events if e.event == "done"}
    for number, step in enumerate(_read_steps(events)):
        if number not in done and step.kind not in kept and not step.observe(world):
            step.do(world)


def _undo(world: VgpuOperation, events: Sequence[Event], kept: Sequence[str]) -> None:
    begun = {int(e.data["step"]) for e in events if e.event == "intent"}
    steps = [
        step
        for number, step in enumerate(_read_steps(events))
        if number in begun and step.kind not in kept
    ]
    claim_begun(world, [read_layout_step(s.target) for s in steps if s.kind.startswith(MIG)])
    for step in reversed(steps):
        step.undo(world)  # also what may be half done: undoing is restartable


def _forget_old(parts: Parts) -> list[str]:
    """A boot takes every vGPU away: what is defined is only that now, the rest is simply gone.

    What belongs to an attachment is the attachment's: its restore brings it back.
    """
    notes = []
    for record in parts.vgpu_store.list_vgpus():
        if record.boot == parts.boot_id or not record.takes_room or record.attachment is not None:
            continue
        if parts.vgpus.find_device(record.spec) is not None:
            continue  # mdevctl has been here first, or the boot id is not what it seems
        if record.defined:
            gone = make_inactive(record, lost=True)
            parts.vgpu_store.save_vgpu(gone)
        else:
            parts.vgpu_store.delete_vgpu(record.spec.uuid)
            notes.append(f"vGPU {record.spec.uuid} ended with the boot it was made in")
    return notes
