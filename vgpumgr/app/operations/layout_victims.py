"""Attachments whose slices a change of layout destroys, because --allow-disruptive names them.

Their workers are ended before, for they hold the slices. Afterwards each has a slice of its profile that is there now,
its old one where the change was undone, and its worker starts again; one for which there is none is detached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vgpumgr.app.parts import Parts
from vgpumgr.engine.step import OnFailure, Plan, Step
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import VmNotFoundError
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState

if TYPE_CHECKING:
    from vgpumgr.domain.hypervisor import Vm


class Victims:
    """Those of one plan."""

    def __init__(self, parts: Parts, plan: LayoutPlan, transaction: Transaction) -> None:
        self._parts = parts
        self._transaction = transaction
        self._ids = tuple(
            record.id
            for record in parts.store.list_attachments()
            if record.channel is not None and any(_takes(spec, record) for spec in plan.steps)
        )

    def enclose(self, plan: Plan) -> Plan:
        """The plan with their steps around it."""
        if not self._ids:
            return plan
        from vgpumgr.steps.lost_slices import ReleaseSlices, TakeSlices

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
        from vgpumgr.virtio.channel import RING_BYTES

        vm = self._find_vm(record)
        what = f"{record.vm_name}: {record.profile}"
        if record.state is AttachmentState.DETACHING:
            self._run(plan_detach(record, vm, Snapshot(self._parts)), record)
            return f"{what} is gone with its slice, and was detached"
        steps: list[Step] = [
            StartChannel(record.id, record.vm_name, record.has_ring, record.has_serial, RING_BYTES)
        ]
        if vm is not None:
            steps.append(WriteNote(vm.name, vm.uuid, record.id))
        result = {"attachment": record.id, "vm": record.vm_name}
        plan = Plan("recover", record.vm_name, tuple(steps), OnFailure.STOP, (), result)
        self._run(plan, record)
        return f"{what} is at {record.placement} now; its programs in the guest have to start anew"

    def _find_vm(self, record: AttachmentRecord) -> Vm | None:
        try:
            return self._parts.hypervisor.read_vm(record.vm_uuid)
        except VmNotFoundError:
            return None

    def _run(self, plan: Plan, record: AttachmentRecord) -> None:
        self._transaction.execute(plan, self._parts.make_context(record))


def _takes(spec: MigStepSpec, record: AttachmentRecord) -> bool:
    if spec.kind not in (StepKind.GI_DESTROY, StepKind.CI_DESTROY) or record.mig is None:
        return False
    if (spec.gpu_uuid, spec.instance_id) != (record.gpu, record.mig.gpu_instance_id):
        return False
    return spec.compute_instance_id in (None, record.mig.compute_instance_id)
