"""``gpu drain`` and ``gpu resume``: a GPU that takes no new slice; what is on it goes on, and comes back at boot. Also
what the kernel's log has of Xids, as events of GPUs: for the daemon, and for commands where none runs.
"""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vgpumgr.app.context import Parts
from vgpumgr.app.documents.base import list_steps
from vgpumgr.app.documents.gpus import GpuDrainDocument, describe_drain
from vgpumgr.app.host_observation import list_gpu_users
from vgpumgr.app.transactions import open_change
from vgpumgr.engine.recovery import Family, Recovered, Unfinished
from vgpumgr.engine.step import Plan
from vgpumgr.errors import GpuNotFoundError, UsageError, VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.host.kernel_log import KernelLog, LoggedXid
from vgpumgr.host.process import name_caller
from vgpumgr.mig.selection import select_any
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import MAX_REASON, Drain, DrainStore, Gpu, Inventory, PciGpu, list_drains
from vgpumgr.model.health import GpuEvent
from vgpumgr.model.pci import PciAddress
from vgpumgr.steps.record import DrainGpu, ResumeGpu

DRAIN, RESUME = "drain", "resume"
#: of reports
SUBJECT = "gpu"


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The GPU that is meant, and its drains; ``gpu`` is None where it has left the host."""

    address: PciAddress
    gpu: Gpu | PciGpu | None
    #: one, unless a card came into a slot that was drained without its UUID
    drains: Sequence[Drain]

    @property
    def index(self) -> int | None:
        return self.gpu.index if isinstance(self.gpu, Gpu) else None

    @property
    def uuid(self) -> str | None:
        return str(self.gpu.uuid) if isinstance(self.gpu, Gpu) else None

    def __str__(self) -> str:
        return str(self.gpu or f"GPU {self.address} (not there)")


_Step = DrainGpu | ResumeGpu


def drain_gpu(
    parts: Parts, *, selector: str, reason: str | None = None, dry_run: bool = False
) -> GpuDrainDocument:
    """No new slice on the GPU until it is resumed; once more only changes the reason. Raises GpuNotFoundError,
    GpuAmbiguousError, UsageError.
    """
    text = clean_reason(reason)

    def make(chosen: _Chosen) -> tuple[_Step, ...]:
        known = next((d for d in chosen.drains if d.fault is None), None)
        if known is not None and text in (None, known.reason):
            return ()
        uuid = known.uuid if known is not None else chosen.uuid
        new = Drain(chosen.address, uuid, name_caller(), parts.clock.wall_s(), text)
        return (DrainGpu(new, known),)

    return _change(parts, DRAIN, selector, make, dry_run)


def resume_gpu(parts: Parts, *, selector: str, dry_run: bool = False) -> GpuDrainDocument:
    """New slices on the GPU again, also where it has left the host. Raises GpuNotFoundError, GpuAmbiguousError."""

    def make(chosen: _Chosen) -> tuple[_Step, ...]:
        return tuple(ResumeGpu(drain) for drain in chosen.drains if not drain.is_heat)

    return _change(parts, RESUME, selector, make, dry_run)


def clean_reason(reason: str | None) -> str | None:
    """The reason in one line without anything that a terminal obeys. Raises UsageError where it is too long."""
    if reason is None:
        return None
    if len(reason) > MAX_REASON:
        raise UsageError(
            f"the reason is longer than {MAX_REASON} characters",
            hint="--reason 'a few words, or the number of a ticket'",
        )
    # controls, formats such as a change of direction, separators, surrogates
    kept = (" " if unicodedata.category(c)[0] in "CZ" else c for c in reason)
    return " ".join("".join(kept).split()) or None


def _change(
    parts: Parts,
    operation: str,
    selector: str,
    make: Callable[[_Chosen], tuple[_Step, ...]],
    dry_run: bool,
) -> GpuDrainDocument:
    def observe() -> tuple[Inventory, _Chosen, Plan]:
        inventory = parts.read_inventory()
        chosen = _select(inventory, list_drains(parts.store, inventory.gpus), selector)
        back = RESUME if operation == DRAIN else DRAIN
        repair = f"vgpumgr gpu {back} {chosen.address}"
        plan = Plan(operation, str(chosen.address), make(chosen), repair=repair)
        return inventory, chosen, plan

    if dry_run:
        return _describe(parts, *observe(), [], dry_run=True)
    with open_change(parts, f"{operation} a GPU") as transaction:
        inventory, chosen, plan = observe()
        transaction.execute(plan, parts.make_context())
    return _describe(parts, inventory, chosen, plan, transaction.notes, dry_run=False)


def _select(inventory: Inventory, drains: Sequence[Drain], selector: str) -> _Chosen:
    """Raises GpuNotFoundError, GpuAmbiguousError, GpuLostError."""

    def choose(address: PciAddress, gpu: Gpu | PciGpu, uuid: str | None) -> _Chosen:
        return _Chosen(address, gpu, [drain for drain in drains if drain.is_of(address, uuid)])

    try:
        gpu = select_any(inventory, selector)
    except GpuNotFoundError:
        text = selector.strip().lower()
        names = (text, PciAddress.read(text))
        for drain in drains:
            if drain.address in names or (drain.uuid or "").lower() == text:
                of_it = [one for one in drains if one.is_of(drain.address, drain.uuid)]
                return _Chosen(drain.address, None, of_it)
        raise
    if isinstance(gpu, PciGpu):
        return choose(gpu.address, gpu, None)
    return choose(gpu.pci, gpu, str(gpu.uuid))


def _describe(
    parts: Parts,
    inventory: Inventory,
    chosen: _Chosen,
    plan: Plan,
    notes: Sequence[str],
    *,
    dry_run: bool,
) -> GpuDrainDocument:
    ended = [step.drain for step in plan.steps if isinstance(step, ResumeGpu)]
    begun = [step.drain for step in plan.steps if isinstance(step, DrainGpu)]
    left = [drain for drain in chosen.drains if drain not in ended]
    if plan.operation == DRAIN:  # of several reasons the one that this is about
        left.sort(key=lambda drain: drain.fault is not None)
    after = next(iter([*begun, *left]), None)
    users = list_gpu_users(parts, inventory, chosen.gpu) if chosen.gpu is not None else []
    name = chosen.index if chosen.index is not None else chosen.address
    hot = [f"{drain}: {drain.describe_end(name)}" for drain in chosen.drains if drain.is_heat]
    return GpuDrainDocument(
        change="drain" if plan.operation == DRAIN else "resume",
        pci=str(chosen.address),
        index=chosen.index,
        uuid=chosen.uuid,
        name=str(chosen),
        dry_run=dry_run,
        steps=list_steps(plan),
        drained=describe_drain(after),
        used_by=users,
        notes=[*notes, *hot],
    )


class DrainFamily(Family):
    """How an interrupted drain or resume is undone: one record, which outlives boots."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def describe(self, found: Unfinished) -> tuple[str, str]:
        """Which operation on which GPU."""
        return SUBJECT, f"the interrupted {found.operation} of {found.subject}"

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:  # noqa: ARG002
        """No helper does it."""
        return False

    def recover(self, found: Unfinished) -> Recovered:
        """Writes what was recorded before."""
        context = self._parts.make_context()
        for step in reversed(found.begun):
            step.undo(context)
        return Recovered.describe(SUBJECT, f"{self.describe(found)[1]} was undone")


class Seen(NamedTuple):
    """How often an event was reported, and when last."""

    times: int = 0
    last_s: float = 0.0

    def add(self, when_s: float) -> Seen:
        """Once more."""
        return Seen(self.times + 1, max(self.last_s, when_s))

    def join(self, other: Seen) -> Seen:
        """Both."""
        return Seen(self.times + other.times, max(self.last_s, other.last_s))


def make_events(
    logged: Sequence[LoggedXid],
    read_inventory: Callable[[], Inventory],
    store: DrainStore,
    clock: Clock,
) -> Mapping[GpuEvent, Seen]:
    """The events that they are. A GPU that NVML lists no more has the UUID that it was known by, or none.

    May raise StoreError.
    """
    events = dict[GpuEvent, Seen]()
    if not logged:
        return events
    uuids = {health.address: health.uuid for health in store.list_health() if health.uuid}
    with contextlib.suppress(VgpumgrError):
        uuids |= {gpu.pci: str(gpu.uuid) for gpu in read_inventory().gpus}
    booted_s = clock.wall_s() - clock.monotonic_s()
    for one in logged:
        event = GpuEvent(one.address, uuids.get(one.address, ""), one.xid, one.gpu_instance_id)
        when_s = min(booted_s + one.at_s, clock.wall_s())
        events[event] = events.get(event, Seen()).add(when_s)
    return events


def record_logged(parts: Parts, log: KernelLog, logged: Sequence[LoggedXid]) -> None:
    """Records these Xids: no daemon hears them. Raises nothing: what needs the state file will say that it cannot be
    used.
    """
    with contextlib.suppress(VgpumgrError):
        for event, seen in make_events(
            logged, parts.read_inventory, parts.store, parts.clock
        ).items():
            parts.store.save_event(event, seen.last_s, seen.times)
        log.write_position(logged[-1].number)
