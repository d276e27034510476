"""Planning a detach: pure. Works with whatever is left of an attachment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vgpumgr.backends.registry import find_backend
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.engine.step import OnFailure, Plan, Step
from vgpumgr.errors import NotAttachedError, SeveralAttachmentsError
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.text import format_vm
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.state.domain_metadata import list_claims
from vgpumgr.steps.claim import ReleaseClaim
from vgpumgr.steps.domain import DetachDevices, RemoveNote
from vgpumgr.steps.record import ForgetAttachment, MarkAttachment

RELEASE_TIMEOUT_S = 20.0


def find_attachments(
    records: Sequence[AttachmentRecord],
    selector: str,
    known: Vm | None = None,
    *,
    verb: str,
    which: str | None = None,
) -> tuple[AttachmentRecord, ...]:
    """The attachments of the VM of that name or UUID, in their order, else the one with that id; where
    ``which`` is an id, that one of all that ``selector`` can mean. ``known``: the VM that libvirt has by
    that name.

    Raises:
        SeveralAttachmentsError: it can mean several things. ``verb`` is for the hint.
    """
    vms = {r.vm_uuid: r.vm_name for r in records if selector in (r.vm_uuid, r.vm_name)}
    if known is not None:
        vms[known.uuid] = known.name
    named = [r for r in records if r.vm_uuid in vms]
    others = [r for r in records if r.id == selector and r.vm_uuid not in vms]
    exact = [r for r in (*named, *others) if which is not None and r.id == which]
    if exact:
        return tuple(exact)
    if len(vms) + len(others) > 1:
        raise _refuse_ambiguous(selector, vms, named, others, verb)
    return tuple(sorted(named or others, key=lambda record: record.number))


def _refuse_ambiguous(
    selector: str,
    vms: Mapping[str, str],
    named: Sequence[AttachmentRecord],
    others: Sequence[AttachmentRecord],
    verb: str,
) -> SeveralAttachmentsError:
    meanings = []
    for uuid, name in vms.items():
        own = [r for r in named if r.vm_uuid == uuid]
        holder = own[0].holder if own else f'vm "{name}"'
        has = ", ".join(map(_name, own)) or "no attachment"
        meanings.append(f"{holder} ({uuid}) with {has}")
    meanings += [f"attachment {_name(r)} of {r.holder} ({r.vm_uuid})" for r in others]
    hint = f"vgpumgr {verb} {next(iter(vms))}"
    if verb == "detach":
        hint = f"vgpumgr detach {format_vm(selector)} --attachment {[*named, *others][0].id}"
    return SeveralAttachmentsError(
        f'"{selector}" can mean {len(meanings)} things',
        why="a VM or a run is named as another one, or as an attachment of another one",
        held_by=meanings,
        hint=hint,
    )


def choose_attachments(
    records: Sequence[AttachmentRecord],
    selector: str,
    which: str | None,
    every: bool,
    known: Vm | None = None,
) -> tuple[AttachmentRecord, ...]:
    """Those that a detach means: the only one of a VM, those with the id or the profile ``which``,
    or all; empty where nothing is recorded. ``known``: the VM that libvirt has by that name.

    Raises:
        SeveralAttachmentsError: it is not clear which.
        NotAttachedError: the VM has none like that.
    """
    found = find_attachments(records, selector, known, verb="detach", which=which)
    if which is not None:
        named = tuple(r for r in found if which in (r.id, r.profile) or _is_short(which, r))
        if found and not named:
            one, verb = found[0], "vm show" if found[0].run is None else "virtio show"
            raise NotAttachedError(
                f"{one.holder} has no attachment {which!r}",
                why=f"it has {', '.join(map(_name, found))}",
                hint=f"vgpumgr {verb} {one.vm_word}",
            )
        found = named
    if len(found) > 1 and not every:
        name = found[0].vm_name
        raise SeveralAttachmentsError(
            f'vm "{name}" has {len(found)} attachments that could be meant',
            why="detach takes one of them, or with --all every one",
            held_by=[f"attachment {_name(record)}" for record in found],
            hint=f"vgpumgr detach {found[0].vm_word} --attachment {found[-1].id}",
        )
    return found


def _is_short(which: str, record: AttachmentRecord) -> bool:
    """Whether it is the short name of the attachment's vGPU type, as attach takes it (A100-4C)."""
    return record.profile.lower().endswith(f" {which.lower()}")


def _name(record: AttachmentRecord) -> str:
    return f"{record.id} ({record.profile})"


def plan_detach(
    record: AttachmentRecord,
    vm: Vm | None,
    snapshot: Snapshot,
    timeout_s: float = RELEASE_TIMEOUT_S,
) -> Plan:
    """The plan: the guest first, then the host, the record last of all. ``vm`` None: it is undefined."""
    revocation = find_backend(record.backend).revoke(record, vm, snapshot, timeout_s)
    steps: list[Step] = [
        MarkAttachment(record.id, AttachmentState.DETACHING, record.state),
        *revocation.domain,
    ]
    notes = [*revocation.kept, *revocation.notes]
    if record.run is not None:
        pass  # no VM has it
    elif vm is None:
        notes.append(f'vm "{record.vm_name}" is no longer defined')
    elif vm.find_note(record.id) is not None:
        steps.append(RemoveNote(vm.name, vm.uuid, record.id))
    steps += revocation.host
    if record.claim is not None and record.claim.is_bound:
        steps.append(ReleaseClaim.of_record(record))
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


def plan_cleanup(vm: Vm, timeout_s: float = RELEASE_TIMEOUT_S) -> Plan:
    """The plan for a VM with devices of ours that nobody remembers (a lost state file)."""
    steps: list[Step] = []
    for scope in (Scope.LIVE, Scope.CONFIG):
        definition = vm.definition(scope)
        aliases = definition.own_aliases() if definition else ()
        if aliases:
            steps.append(DetachDevices(vm.name, vm.uuid, aliases, scope, timeout_s))
    # before the notes that say so are removed
    steps += [
        ReleaseClaim(claim.name, claim.host, claim.token, id_, claim.number, claim.via)
        for id_, claim in list_claims(vm)
    ]
    if vm.notes:
        steps.append(RemoveNote(vm.name, vm.uuid))
    if not steps:
        raise NotAttachedError(
            f"{vm} has nothing attached", hint="vgpumgr vm list", why="no attachment is recorded"
        )
    notes = ("its attachment is not recorded here; only its devices are taken away",)
    return Plan("detach", vm.name, tuple(steps), OnFailure.STOP, notes, {"vm": vm.name})


def merge_detaches(plans: Sequence[Plan]) -> Plan:
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


def leave_out(record: AttachmentRecord, snapshot: Snapshot) -> Snapshot:
    """The snapshot as it is to be once the attachment is detached."""
    left = [other for other in snapshot.records if other.id != record.id]
    return find_backend(record.backend).leave_out(record, snapshot.replace(records=left))
