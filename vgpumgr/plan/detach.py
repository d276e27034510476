"""Planning a detach: pure. Works with whatever is left of an attachment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpumgr.domain.devices import control_alias, ring_alias
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.errors import NotAttachedError, SeveralAttachmentsError
from vgpumgr.model.gpu import Gpu
from vgpumgr.plan.channel_steps import StopChannel
from vgpumgr.plan.domain_steps import DetachDevices, RemoveNote
from vgpumgr.plan.hostdev_detach import plan_return, plan_unplug, tell_kept
from vgpumgr.plan.mig_steps import DestroyComputeInstance, DestroyGpuInstance, DisableMigMode
from vgpumgr.plan.record import AttachmentRecord, AttachmentState, list_sharers
from vgpumgr.plan.record_steps import ForgetAttachment, HandOverMigMode, MarkAttachment
from vgpumgr.plan.step import OnFailure, Plan, Step
from vgpumgr.plan.vgpu_record import VgpuInstance
from vgpumgr.plan.world import World

RELEASE_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class DetachObserved:
    """What is: the attachment's record, its VM (None: undefined), all GPUs, all attachments."""

    record: AttachmentRecord
    vm: Vm | None
    gpus: Sequence[Gpu]
    records: Sequence[AttachmentRecord]
    #: GPU instances that were made for vGPUs, by the UUID of each that lives in one; None: it has none
    homes: Mapping[str, VgpuInstance | None] = field(default_factory=dict)


def find_attachments(
    records: Sequence[AttachmentRecord], selector: str
) -> tuple[AttachmentRecord, ...]:
    """The attachments of a VM by its name or UUID, in their order, or the one with that id."""
    for key in ("id", "vm_uuid", "vm_name"):
        found = [record for record in records if getattr(record, key) == selector]
        if found:
            return tuple(sorted(found, key=lambda record: record.number))
    return ()


def choose_attachments(
    records: Sequence[AttachmentRecord], selector: str, which: str | None, every: bool
) -> tuple[AttachmentRecord, ...]:
    """Those that a detach means: the only one of a VM, those with the id or the profile ``which``,
    or all; empty where nothing is recorded.

    Raises:
        SeveralAttachmentsError: it is not clear which.
        NotAttachedError: the VM has none like that.
    """
    found = find_attachments(records, selector)
    if which is not None:
        named = tuple(r for r in found if which in (r.id, r.profile) or _is_short(which, r))
        if found and not named:
            raise NotAttachedError(
                f'vm "{found[0].vm_name}" has no attachment {which!r}',
                why=f"it has {', '.join(map(_tell, found))}",
                hint=f"vgpumgr vm show {found[0].vm_name}",
            )
        found = named
    if len(found) > 1 and not every:
        name = found[0].vm_name
        raise SeveralAttachmentsError(
            f'vm "{name}" has {len(found)} attachments that could be meant',
            why="detach takes one of them, or with --all every one",
            held_by=[f"attachment {_tell(record)}" for record in found],
            hint=f"vgpumgr detach {name} --attachment {found[-1].id}",
        )
    return found


def _is_short(which: str, record: AttachmentRecord) -> bool:
    """Whether it is the short name of the attachment's vGPU type, as attach takes it (A100-4C)."""
    return record.profile.lower().endswith(f" {which.lower()}")


def _tell(record: AttachmentRecord) -> str:
    return f"{record.id} ({record.profile})"


def plan_detach(observed: DetachObserved, timeout_s: float = RELEASE_TIMEOUT_S) -> Plan[World]:
    """The plan: guest first, then the worker, then the slice, the record last of all."""
    record, notes = observed.record, []
    steps: list[Step[World]] = [
        MarkAttachment(record.id, AttachmentState.DETACHING, record.state),
        *_domain_steps(observed, timeout_s),
    ]
    if record.channel is not None:
        steps.append(StopChannel(record.id))
    steps += plan_return(record, observed.records, observed.gpus, observed.homes)
    notes += tell_kept(record, observed.gpus, observed.homes)
    gpu = next((g for g in observed.gpus if g.uuid == record.gpu), None)
    if record.mig_part is None:
        pass
    elif gpu is None:
        notes.append(f"GPU {record.gpu} is gone, and its slice with it")
    else:
        steps.append(DestroyComputeInstance(gpu, record))
        if sharers := list_sharers(record, observed.records):
            names = ", ".join(f"{r.id} ({r.vm_name})" for r in sharers)
            notes.append(f"its GPU instance stays: attachment {names} is in it, too")
        else:
            steps.append(DestroyGpuInstance(gpu, record))
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
            "gpu": record.gpu and str(record.gpu),
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
    if vm.notes:
        steps.append(RemoveNote(vm.name, vm.uuid))
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
    steps: list[Step[World]] = []
    if record.host_devices:
        steps += plan_unplug(record, vm, timeout_s)
    if record.channel is not None:
        aliases = (ring_alias(record.id), control_alias(record.id))
        for scope in (Scope.LIVE, Scope.CONFIG):
            if vm.definition(scope) is not None:
                steps.append(DetachDevices(vm.name, vm.uuid, aliases, scope, timeout_s))
    if vm.find_note(record.id) is not None:
        steps.append(RemoveNote(vm.name, vm.uuid, record.id))
    return steps


def merge_detaches(plans: Sequence[Plan[World]]) -> Plan[World]:
    """One plan to show for several that are carried out one after the other."""
    results = [plan.result for plan in plans]
    result = {
        "attachments": [r["attachment"] for r in results],
        "vm": results[0]["vm"],
        "profile": ", ".join(str(r["profile"]) for r in results),
    }
    steps = tuple(step for plan in plans for step in plan.steps)
    notes = tuple(dict.fromkeys(note for plan in plans for note in plan.notes))
    return Plan("detach", plans[0].subject, steps, OnFailure.STOP, notes, result)


def leave_out(observed: DetachObserved) -> DetachObserved:
    """What there is to be once the attachment is detached; its record is still that one's."""
    gone = observed.record
    left = [record for record in observed.records if record.id != gone.id]
    heir = next((r for r in left if r.gpu == gone.gpu and r.mig_part), None)
    if heir is not None and gone.mig_mode_enabled:
        left = [r.with_mig(mode_enabled=True) if r is heir else r for r in left]
    gpus = list(observed.gpus)
    if not list_sharers(gone, observed.records):
        gpus = [
            replace(gpu, instances=tuple(i for i in gpu.instances if i.placement != gone.placement))
            if gpu.uuid == gone.gpu
            else gpu
            for gpu in observed.gpus
        ]
    uuids = {device.vgpu.uuid for device in gone.host_devices if device.vgpu is not None}
    homes = {uuid: home for uuid, home in observed.homes.items() if uuid not in uuids}
    return replace(observed, records=left, gpus=gpus, homes=homes)


def _mode_steps(observed: DetachObserved, gpu: Gpu) -> tuple[list[Step[World]], list[str]]:
    """MIG mode is left as it was found: whoever turned it on turns it off, or hands that over."""
    record = observed.record
    if not record.mig_mode_enabled:
        return [], []
    others = [r for r in observed.records if r.gpu == gpu.uuid and r.id != record.id and r.mig_part]
    if others:
        return [HandOverMigMode(gpu.uuid, others[0])], []
    if any(i.placement != record.placement for i in gpu.instances):
        return [], [f"MIG mode of {gpu} stays on: it has instances that are not vgpumgr's"]
    why = "attach turned it on, nobody else uses it"
    return [DisableMigMode(gpu)], [f"MIG mode of {gpu} goes off again: {why}"]
