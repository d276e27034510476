"""Planning several attachments at once: all of them or none, in one plan that is undone as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from vgpumgr.model.mig import MigProfileName
from vgpumgr.plan.attach import (
    AttachObserved,
    AttachRequest,
    build_attach,
    check_free,
    check_scopes,
    choose_for,
    observe_live_parts,
)
from vgpumgr.plan.domain_steps import AttachDevices
from vgpumgr.plan.record import AttachmentRecord
from vgpumgr.plan.step import Plan, Step, is_account
from vgpumgr.plan.world import World

T = TypeVar("T")


@dataclass(frozen=True)
class ForAttachment:
    """A step of one of the several attachments that a plan is about."""

    id: str
    step: Step[World]

    @property
    def kind(self) -> str:
        """The step's own."""
        return self.step.kind

    @property
    def target(self) -> Mapping[str, object]:
        """The step's own, and the attachment."""
        return {**self.step.target, "of": self.id}

    @property
    def is_account(self) -> bool:
        """The step's own."""
        return is_account(self.step)

    def describe(self) -> str:
        """The step's own."""
        return self.step.describe()

    def do(self, world: World) -> None:
        """Does it with this attachment's record."""
        world.turn_to(self.id)
        self.step.do(world)

    def undo(self, world: World) -> None:
        """Undoes it with this attachment's record."""
        world.turn_to(self.id)
        self.step.undo(world)

    def observe(self, world: World) -> bool:
        """Looks with this attachment's record."""
        world.turn_to(self.id)
        return self.step.observe(world)


def plan_attaches(
    request: AttachRequest, observed: AttachObserved, name: MigProfileName
) -> tuple[tuple[AttachmentRecord, ...], Plan[World]]:
    """The new attachments' records and the plan for all slices of that profile that are forwarded;
    raises what stands in the way, before anything is changed.
    """
    check_free(request, observed.vm, observed.records)
    live = observe_live_parts(observed.vm, request.transport, request.count)
    check_scopes(request, observed.vm, live)
    seats = choose_for(request, observed, name)
    return plan_each(
        observed, seats, lambda seen, seat: build_attach(request, seen, name, seat, live)
    )


def plan_each(
    observed: AttachObserved,
    things: Sequence[T],
    build: Callable[[AttachObserved, T], tuple[AttachmentRecord, Plan[World]]],
) -> tuple[tuple[AttachmentRecord, ...], Plan[World]]:
    """An attachment for each thing, all in one plan; each sees the records of those before it."""
    records: list[AttachmentRecord] = []
    plans: list[Plan[World]] = []
    names = ((observed.id, observed.paths), *observed.more)
    for thing, (id_, paths) in zip(things, names, strict=True):
        seen = replace(observed, id=id_, paths=paths, records=(*observed.records, *records))
        record, plan = build(seen, thing)
        records.append(record)
        plans.append(plan)
    return tuple(records), plans[0] if len(plans) == 1 else _merge(records, plans)


def _merge(records: list[AttachmentRecord], plans: list[Plan[World]]) -> Plan[World]:
    """Everything is recorded first and marked last: in between, a crash leaves halves, which are
    undone.
    """
    first: list[Step[World]] = []
    middle: list[Step[World]] = []
    last: list[Step[World]] = []
    for record, plan in zip(records, plans, strict=True):
        steps = [ForAttachment(record.id, _without_digest(s, not first)) for s in plan.steps]
        first.append(steps[0])
        middle += steps[1:-1]
        last.append(steps[-1])
    head = plans[0]
    single = ("attachment", "placement", "gpu", "gpu_index", "devices")
    result = {
        **{key: value for key, value in head.result.items() if key not in single},
        "attachments": [record.id for record in records],
        "devices": [device for plan in plans for device in _list_devices(plan)],
        "seats": [{key: plan.result[key] for key in single} for plan in plans],
    }
    notes = tuple(dict.fromkeys(note for plan in plans for note in plan.notes))
    return replace(
        head,
        steps=(*first, *middle, *last),
        notes=notes,
        result=result,
        repair=f"vgpumgr detach {head.subject} --all",
    )


def _list_devices(plan: Plan[World]) -> Sequence[str]:
    return cast(Sequence[str], plan.result["devices"])


def _without_digest(step: Step[World], is_first: bool) -> Step[World]:
    """Only the first change of the definition finds it as it was planned on."""
    if isinstance(step, AttachDevices) and not is_first:
        return replace(step, digest=None)
    return step
