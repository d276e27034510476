"""Applying layouts: one transaction with the steps of a plan, and new slices for attachments that lose theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vgpumgr.app.operations.layout_victims import Victims
from vgpumgr.app.parts import Parts
from vgpumgr.app.slice_owners import list_vgpu_owners
from vgpumgr.app.transactions import open_change
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.executor import Progress
from vgpumgr.engine.progress import report_step
from vgpumgr.engine.step import Plan
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import (
    MigModePendingError,
    OutcomePendingError,
    RolledBackError,
    VgpumgrError,
)
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.slice import SliceOwner
from vgpumgr.planning.layouts import check_fresh, make_plan
from vgpumgr.steps.desired_layout import RememberLayouts


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

    def run(
        self, plan: LayoutPlan, *, remember: bool = True, progress: Progress = report_step
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
        parts = self.parts
        gpus = parts.read_inventory().gpus
        check_fresh(plan, gpus, list_owners(parts))
        victims = Victims(parts, plan, self.transaction)
        last = plan_remembering(parts, plan, gpus) if remember else ()
        try:
            self._run_steps(plan, victims, gpus, progress, last)
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
        progress: Progress,
        last: Sequence[RememberLayouts],
    ) -> None:
        """Runs a plan's steps in the journal, and at the end what is to be remembered of them."""
        context = self.parts.make_context(gpus=gpus)
        if plan.steps:
            whole = victims.enclose(make_plan(plan))
            whole = replace(whole, steps=(*whole.steps, *last))
            execute_layout(self.transaction, whole, context, progress)
            return
        for step in last:
            step.do(context)

    def apply(self, plan: LayoutPlan) -> Sequence[str]:
        """See ``run``; its notes."""
        return self.run(plan).notes


@contextmanager
def open_layout_change(parts: Parts) -> Iterator[LayoutChange]:
    """A transaction on layouts."""
    with open_change(parts, "change MIG instances") as transaction:
        yield LayoutChange(parts, transaction)


def apply_layout(
    plan: LayoutPlan, parts: Parts, *, remember: bool = True, progress: Progress = report_step
) -> LayoutOutcome:
    """One plan as a transaction of its own; see ``LayoutChange.run``."""
    with open_layout_change(parts) as change:
        return change.run(plan, remember=remember, progress=progress)


def plan_remembering(
    parts: Parts, plan: LayoutPlan, gpus: Sequence[Gpu]
) -> tuple[RememberLayouts, ...]:
    """The step that remembers the GPUs of a plan, without what belongs to attachments; none where the
    plan is about no GPU with MIG.
    """
    asked = {uuid for uuid, _ in plan.explanations} | {step.gpu_uuid for step in plan.steps}
    chosen = tuple(gpu.uuid for gpu in gpus if str(gpu.uuid) in asked and gpu.mig.supported)
    if not chosen:
        return ()
    known = parts.store.read_layouts()
    earlier = tuple(known[gpu] for gpu in chosen if gpu in known)
    return (RememberLayouts(chosen, earlier),)


def list_owners(parts: Parts) -> list[SliceOwner]:
    """Whose slices are VMs'."""
    slices = [owner for r in parts.store.list_attachments() if (owner := r.owner) is not None]
    return slices + list_vgpu_owners(parts)


def execute_layout(
    transaction: Transaction,
    plan: Plan,
    context: OperationContext,
    progress: Progress = report_step,
) -> None:
    """Runs any plan on the MIG layout in its context."""
    try:
        transaction.execute(plan, context, progress)
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
