"""Attachments whose slices a change of layout destroys, because --allow-disruptive names them.

Their workers are ended before, for they hold the slices. Afterwards each goes to a slice of its
profile that is there now, its old one where the change was undone, and its worker starts again; one
for which there is none is detached.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing

from vgpumgr.daemon.parts import Parts
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.errors import VmNotFoundError
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, StepKind
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.slice import MigInstanceRef
from vgpumgr.plan.channel_steps import StartChannel
from vgpumgr.plan.detach import DetachObserved, plan_detach
from vgpumgr.plan.domain_steps import WriteNote
from vgpumgr.plan.executor import Executor
from vgpumgr.plan.record import AttachmentRecord
from vgpumgr.plan.step import OnFailure, Plan, Step
from vgpumgr.plan.world import World
from vgpumgr.virtio.channel import RING_BYTES


class Victims:
    """Those of one plan; the caller holds the machine's lock."""

    def __init__(self, parts: Parts, plan: LayoutPlan) -> None:
        self._parts = parts
        self.records = tuple(
            record
            for record in parts.store.list_attachments()
            if record.channel is not None and any(_takes(spec, record) for spec in plan.steps)
        )

    def stop(self) -> None:
        """Ends their workers."""
        for record in self.records:
            self._parts.channels.stop(record.id)

    def settle(self) -> list[str]:
        """Gives each another slice or detaches it; returns what was done, in words."""
        return [self._settle(record) for record in self.records]

    def _settle(self, record: AttachmentRecord) -> str:
        gpus = self._parts.read_inventory().gpus
        records = self._parts.store.list_attachments()
        ref = _find_slice(gpus, record, records)
        vm = self._find_vm(record)
        what = f"{record.vm_name}: {record.profile}"
        if ref is None:
            self._run(plan_detach(DetachObserved(record, vm, gpus, records)), record)
            return f"{what} is gone with its slice, and was detached"
        moved = record.with_mig(
            placement=ref.placement, ref=ref, gpu_instance_id=ref.gpu_instance_id
        )
        self._parts.store.save_attachment(moved)
        steps: list[Step[World]] = [
            StartChannel(record.id, record.vm_name, record.has_ring, record.has_serial, RING_BYTES)
        ]
        if vm is not None:
            steps.append(WriteNote(vm.name, vm.uuid, record.id))
        result = {"attachment": record.id, "vm": record.vm_name}
        plan = Plan("recover", record.vm_name, tuple(steps), OnFailure.STOP, (), result)
        self._run(plan, moved)
        return f"{what} is at {ref.placement} now; its programs in the guest have to start anew"

    def _find_vm(self, record: AttachmentRecord) -> Vm | None:
        try:
            return self._parts.hypervisor.read_vm(record.vm_uuid)
        except VmNotFoundError:
            return None

    def _run(self, plan: Plan[World], record: AttachmentRecord) -> None:
        world = self._parts.make_world(record)
        with closing(self._parts.open_journal()) as journal:
            executor = Executor(world, journal, list_late=self._parts.list_late)
            executor.run(plan, secrets.token_hex(8), world.facts)


def _takes(spec: MigStepSpec, record: AttachmentRecord) -> bool:
    if spec.kind not in (StepKind.GI_DESTROY, StepKind.CI_DESTROY) or record.mig is None:
        return False
    if (spec.gpu_uuid, spec.instance_id) != (record.gpu, record.mig.gpu_instance_id):
        return False
    return spec.compute_instance_id in (None, record.mig.compute_instance_id)


def _find_slice(
    gpus: Sequence[Gpu], record: AttachmentRecord, records: Sequence[AttachmentRecord]
) -> MigInstanceRef | None:
    """A slice of the record's profile on its GPU that nobody has; best at its old place."""
    name = MigProfileName.parse(record.profile)
    taken = {r.mig.uuid for r in records if r.mig and r.id != record.id}
    found = [
        MigInstanceRef(instance.id, compute.id, instance.placement, compute.uuid)
        for gpu in gpus
        if gpu.uuid == record.gpu
        for instance in gpu.instances
        if instance.profile == name.gpu_instance
        and not any(process.gpu_instance_id == instance.id for process in gpu.processes)
        for compute in instance.compute_instances
        if compute.uuid is not None
        and compute.uuid not in taken
        and compute.slices == (name.compute_slices or instance.slices)
    ]
    return min(found, key=lambda ref: ref.placement != record.placement, default=None)
