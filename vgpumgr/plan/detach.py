"""Planning a detach: pure. Works with whatever is left of an attachment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpumgr.domain.devices import control_alias, ring_alias
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.errors import NotAttachedError
from vgpumgr.model.gpu import Gpu
from vgpumgr.plan.channel_steps import StopChannel
from vgpumgr.plan.domain_steps import DetachDevices, RemoveNote
from vgpumgr.plan.mig_steps import DestroyComputeInstance, DestroyGpuInstance, DisableMigMode
from vgpumgr.plan.record import AttachmentRecord, AttachmentState
from vgpumgr.plan.record_steps import ForgetAttachment, HandOverMigMode, MarkAttachment
from vgpumgr.plan.step import OnFailure, Plan, Step
from vgpumgr.plan.world import World

RELEASE_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class DetachObserved:
    """What is: the attachment's record, its VM (None: undefined), all GPUs, all attachments."""

    record: AttachmentRecord
    vm: Vm | None
    gpus: Sequence[Gpu]
    records: Sequence[AttachmentRecord]


def find_attachment(records: Sequence[AttachmentRecord], selector: str) -> AttachmentRecord | None:
    """The attachment of a VM by its name or UUID, or by its own id."""
    for key in ("id", "vm_uuid", "vm_name"):
        for record in records:
            if getattr(record, key) == selector:
                return record
    return None


def plan_detach(observed: DetachObserved, timeout_s: float = RELEASE_TIMEOUT_S) -> Plan[World]:
    """The plan: guest first, then the worker, then the slice, the record last of all."""
    record, notes = observed.record, []
    steps: list[Step[World]] = [
        MarkAttachment(record.id, AttachmentState.DETACHING, record.state),
        *_domain_steps(observed, timeout_s),
        StopChannel(record.id),
    ]
    gpu = next((g for g in observed.gpus if g.uuid == record.gpu), None)
    if gpu is None:
        notes.append(f"GPU {record.gpu} is gone, and its slice with it")
    else:
        steps += [DestroyComputeInstance(gpu, record), DestroyGpuInstance(gpu, record)]
        mode_steps, mode_notes = _mode_steps(observed, gpu)
        steps += mode_steps
        notes += mode_notes
    if observed.vm is None:
        notes.append(f'vm "{record.vm_name}" is no longer defined')
    steps.append(ForgetAttachment(record.id))
    return Plan(
        operation="detach",
        subject=record.vm_name,
        steps=tuple(steps),
        on_failure=OnFailure.STOP,
        notes=tuple(notes),
        result={
            "attachment": record.id,
            "vm": record.vm_name,
            "profile": record.profile,
            "gpu": str(record.gpu),
        },
    )


def plan_cleanup(vm: Vm, timeout_s: float = RELEASE_TIMEOUT_S) -> Plan[World]:
    """The plan for a VM with devices of ours that nobody remembers (a lost state file)."""
    steps: list[Step[World]] = []
    for scope in (Scope.LIVE, Scope.CONFIG):
        definition = vm.definition(scope)
        aliases = definition.own_aliases() if definition else ()
        if aliases:
            steps.append(DetachDevices(vm.name, vm.uuid, aliases, scope, timeout_s))
    if vm.note is not None:
        scope = Scope.CONFIG if vm.config is not None else Scope.LIVE
        steps.append(RemoveNote(vm.name, vm.uuid, scope))
    if not steps:
        raise NotAttachedError(
            f"{vm} has nothing attached", hint="vgpumgr vm list", why="no attachment is recorded"
        )
    notes = ("its attachment is not recorded here; only its devices are taken away",)
    return Plan("detach", vm.name, tuple(steps), OnFailure.STOP, notes, {"vm": vm.name})


def _domain_steps(observed: DetachObserved, timeout_s: float) -> list[Step[World]]:
    record, vm = observed.record, observed.vm
    if vm is None:
        return []
    aliases = (ring_alias(record.id), control_alias(record.id))
    steps: list[Step[World]] = []
    for scope in (Scope.LIVE, Scope.CONFIG):
        if vm.definition(scope) is not None:
            steps.append(DetachDevices(vm.name, vm.uuid, aliases, scope, timeout_s))
    if vm.note is not None:
        scope = Scope.CONFIG if vm.config is not None else Scope.LIVE
        steps.append(RemoveNote(vm.name, vm.uuid, scope))
    return steps


def _mode_steps(observed: DetachObserved, gpu: Gpu) -> tuple[list[Step[World]], list[str]]:
    """MIG mode is left as it was found: whoever turned it on turns it off, or hands that over."""
    record = observed.record
    if not record.mig_mode_enabled:
        return [], []
    others = [r for r in observed.records if r.gpu == gpu.uuid and r.id != record.id]
    if others:
        return [HandOverMigMode(gpu.uuid, others[0])], []
    if any(i.placement != record.placement for i in gpu.instances):
        return [], [f"MIG mode of {gpu} stays on: it has instances that are not vgpumgr's"]
    why = "attach turned it on, nobody else uses it"
    return [DisableMigMode(gpu)], [f"MIG mode of {gpu} goes off again: {why}"]
