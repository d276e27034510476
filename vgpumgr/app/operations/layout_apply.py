"""Applies layouts: one transaction with the steps of a plan, and new slices for attachments that lose theirs.

``Victims`` are attachments whose slices a change destroys, because --allow-disruptive names them. Their workers are
ended before, for they hold the slices. Afterwards each has a slice of its profile that is there now, its old one
where the change was undone, and its worker starts again; one for which there is none is detached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from vgpumgr.app.context import Parts
from vgpumgr.app.transactions import open_change
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.step import OnFailure, Plan, Step
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import (
    MigModePendingError,
    OutcomePendingError,
    RolledBackError,
    VgpumgrError,
    VmNotFoundError,
)
from vgpumgr.mig.layout.change import LayoutPlan, StepKind
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.planning.layouts import check_fresh, make_plan, takes_slice
from vgpumgr.steps.layouts import RememberLayouts

if TYPE_CHECKING:
    from vgpumgr.domain.hypervisor import Vm


@dataclass(frozen=True)
class LayoutOutcome:
    """What was done. ``gpus`` are the GPUs as NVML shows them afterwards."""

    plan: LayoutPlan
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...] = ()


@dataclass
class LayoutChange:
    """The machine while its layout is changed; planning comes after it was opened."""

    parts: Parts
    transaction: Transaction

    def run(self, plan: LayoutPlan, *, partial: bool = False) -> LayoutOutcome:
        """Does the steps of a plan, in order, and reads the result back. The GPUs that the plan explains get
        this layout back after a boot. ``partial``: the plan is about the instances alone that it creates and destroys.

        Raises:
            LayoutChangedError, LayoutBusyError: what was planned for is no more; nothing was done.
            MigModePendingError: MIG mode waits for a reset; everything else is as before.
            RolledBackError: a step failed; the layout of before is back, with the same placements.
            RollbackIncompleteError: so did a step back; what is left is listed.
            OutcomePendingError: a call of the driver has not come back.
        """
        parts = self.parts
        gpus = parts.read_inventory().gpus
        check_fresh(plan, gpus, parts.list_owners(gpus))
        victims = Victims(parts, plan, self.transaction)
        last = plan_remembering(parts, plan, gpus, partial=partial)
        try:
            self._run_steps(plan, victims, gpus, last)
        except OutcomePendingError:
            raise  # until then nobody knows which slices there are: recover does the rest
        except VgpumgrError as error:
            told = (error.why, *victims.restart())
            error.why = "; ".join(text for text in told if text)
            raise
        notes = (*self.transaction.notes, *victims.restart())
        return LayoutOutcome(plan, parts.read_inventory().gpus, notes)

    def _run_steps(
        self,
        plan: LayoutPlan,
        victims: Victims,
        gpus: Sequence[Gpu],
        last: Sequence[RememberLayouts],
    ) -> None:
        """Runs a plan's steps in the journal, and at the end what is to be remembered of them."""
        context = self.parts.make_context(gpus=gpus)
        if plan.steps:
            whole = victims.enclose(make_plan(plan))
            whole = replace(whole, steps=(*whole.steps, *last))
            execute_layout(self.transaction, whole, context)
            return
        for step in last:
            step.do(context)


@contextmanager
def open_layout_change(parts: Parts) -> Iterator[LayoutChange]:
    """A transaction on layouts."""
    with open_change(parts, "change MIG instances") as transaction:
        yield LayoutChange(parts, transaction)


def plan_remembering(
    parts: Parts, plan: LayoutPlan, gpus: Sequence[Gpu], *, partial: bool = False
) -> tuple[RememberLayouts, ...]:
    """The step that remembers the GPUs of a plan, without what belongs to attachments; none where the
    plan is about no GPU with MIG. ``partial``: as for ``LayoutChange.run``; nothing new is remembered of a GPU
    where instances only go.
    """
    asked = {uuid for uuid, _ in plan.explanations} | {step.gpu_uuid for step in plan.steps}
    known = parts.store.read_layouts()
    if partial:
        made = {step.gpu_uuid for step in plan.steps if step.kind is StepKind.GI_CREATE}
        asked = made | {step.gpu_uuid for step in plan.steps if step.gpu_uuid in known}
    chosen = tuple(gpu.uuid for gpu in gpus if str(gpu.uuid) in asked and gpu.mig.supported)
    if not chosen:
        return ()
    earlier = tuple(known[gpu] for gpu in chosen if gpu in known)
    changed = [
        (GpuUuid(step.gpu_uuid), step.placement)
        for step in plan.steps
        if partial and step.kind in (StepKind.GI_CREATE, StepKind.GI_DESTROY) and step.placement
    ]
    return (RememberLayouts(chosen, earlier, tuple(changed)),)


def execute_layout(
    transaction: Transaction,
    plan: Plan,
    context: OperationContext,
) -> None:
    """Runs any plan on the MIG layout in its context."""
    try:
        transaction.execute(plan, context)
    except RolledBackError as error:
        if isinstance(error.__cause__, MigModePendingError):
            raise _explain_pending(error.__cause__) from error
        raise


def _explain_pending(error: MigModePendingError) -> MigModePendingError:
    """Not a failure: the mode waits. What was done before it was undone, so it can be repeated."""
    return MigModePendingError(
        error.error,
        cause=error.cause,
        why=f"{error.why}; the layout is as before, and is to be applied after that",
        held_by=error.held_by,
        hint=error.hint,
    )


class Victims:
    """Those of one plan."""

    def __init__(self, parts: Parts, plan: LayoutPlan, transaction: Transaction) -> None:
        self._parts = parts
        self._transaction = transaction
        self._ids = tuple(
            record.id
            for record in parts.store.list_attachments()
            if record.channel is not None and any(takes_slice(spec, record) for spec in plan.steps)
        )

    def enclose(self, plan: Plan) -> Plan:
        """The plan with their steps around it."""
        if not self._ids:
            return plan
        from vgpumgr.steps.layouts import ReleaseSlices, TakeSlices

        return replace(plan, steps=(ReleaseSlices(self._ids), *plan.steps, TakeSlices(self._ids)))

    def restart(self) -> list[str]:
        """Starts the worker of each that has none, or detaches it; returns what was done, in words."""
        return [
            self._restart(record)
            for record in self._parts.store.list_attachments()
            if record.id in self._ids and self._parts.channels.read_status(record.id) is None
        ]

    def _restart(self, record: AttachmentRecord) -> str:
        # most changes of layout end no worker
        from vgpumgr.backends.detach import plan_detach
        from vgpumgr.planning.snapshot import Snapshot
        from vgpumgr.steps.channel import StartChannel
        from vgpumgr.steps.domain import WriteNote

        vm = self._find_vm(record)
        what = f"{record.vm_name}: {record.profile}"
        if record.state is AttachmentState.DETACHING:
            self._run(plan_detach(record, vm, Snapshot(self._parts)), record)
            return f"{what} is gone with its slice, and was detached"
        steps: list[Step] = [StartChannel.for_record(record)]
        if vm is not None:
            steps.append(WriteNote(vm.name, vm.uuid, record.id))
        result = {"attachment": record.id, "vm": record.vm_name}
        plan = Plan("recover", record.vm_name, tuple(steps), OnFailure.STOP, (), result)
        self._run(plan, record)
        return f"{what} is at {record.placement} now; its programs in the guest have to start anew"

    def _find_vm(self, record: AttachmentRecord) -> Vm | None:
        if record.run is not None:
            return None
        try:
            return self._parts.hypervisor.read_vm(record.vm_uuid)
        except VmNotFoundError:
            return None

    def _run(self, plan: Plan, record: AttachmentRecord) -> None:
        self._transaction.execute(plan, self._parts.make_context(record))
