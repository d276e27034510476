"""Planning an attach, whatever backend gives it: pure. All attachments of a request are planned as one,
which is undone as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from vgpumgr.backends.base import (
    DeviceGrant,
    NewAttachment,
    Scopes,
    Target,
    Wanted,
    read_limits,
    read_profile,
)
from vgpumgr.backends.registry import BACKENDS, find_backend
from vgpumgr.backends.slices import check_no_policy
from vgpumgr.domain.attaching import add_devices
from vgpumgr.domain.devices import attachment_of
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.engine.step import Plan, Step
from vgpumgr.errors import AlreadyAttachedError, BackendUnsupportedError, UsageError, VgpumgrError
from vgpumgr.model.attachment import (
    AttachmentRecord,
    AttachmentState,
    ClaimPart,
    lowest_free_number,
)
from vgpumgr.model.choices import MAX_COUNT, BackendChoice, Display, Numa
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.request import MAX_HELLO_TIMEOUT_S, AttachRequest, ShareRequest
from vgpumgr.model.text import format_vm
from vgpumgr.passthrough.control import PciControl
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.claim import HoldClaim
from vgpumgr.steps.domain import AttachDevices, WriteNote, list_controllers
from vgpumgr.steps.pci import BindDriver
from vgpumgr.steps.record import MarkAttachment, RecordAttachment
from vgpumgr.steps.vf import CreateVfs, find_stall

_AUTO = BackendChoice.AUTO
#: what a plan's result says of a single attachment
_SINGLE = ("attachment", "placement", "gpu", "gpu_index", "devices")


def check_request(request: AttachRequest) -> Wanted:
    """What is asked for and the backends that may do it; needs nothing observed.

    Raises:
        UsageError: a profile of no known form, or contradicting options.
        BackendUnsupportedError: the profile does not reach a VM by that backend.
    """
    profile = read_profile(request.profile)
    names = (_AUTO, *BackendName)
    if request.backend not in names:
        raise UsageError(f"no backend {request.backend!r}", why=f"there are: {', '.join(names)}")
    if request.display not in tuple(Display):
        raise UsageError(f"no display {request.display!r}", why=f"there are: {', '.join(Display)}")
    possible = tuple(backend.name for backend in BACKENDS if backend.match(profile))
    chosen = possible if request.backend == _AUTO else (BackendName(request.backend),)
    if chosen[0] not in possible:
        raise BackendUnsupportedError(
            f"cannot attach {request.profile} by backend {request.backend}",
            why=f"{profile.noun} reaches a VM by {' or '.join(possible)}",
            hint=f"vgpumgr attach {format_vm(request.vm)} {request.option} --backend {possible[0]}",
        )
    wanted = Wanted(request, profile, chosen, Display(request.display))
    backend = find_backend(chosen[0])
    if wanted.display is not Display.OFF and not backend.has_display(profile):
        raise UsageError("--display is for mediated devices", hint="--display off")
    _check_options(request)
    for option, given in (
        ("--limit", request.limits),
        ("--allow-unconfined", request.allow_unconfined),
    ):
        if given and not backend.has_worker:
            raise UsageError(
                f"{option} is for slices whose calls are forwarded", hint="--backend forward"
            )
    if not isinstance(profile, ShareRequest):
        check_no_policy(request)
    backend.check(wanted)
    return wanted


def _check_options(request: AttachRequest) -> None:
    if not 0 <= request.hello_timeout_s <= MAX_HELLO_TIMEOUT_S:  # false for nan as well
        raise UsageError(f"--hello-timeout must be from 0 to {MAX_HELLO_TIMEOUT_S:g} seconds")
    if not 1 <= request.count <= MAX_COUNT:
        raise UsageError(f"--count must be from 1 to {MAX_COUNT}")
    if request.numa not in tuple(Numa):
        raise UsageError(f"--numa cannot be {request.numa!r}", why="prefer, strict or off")
    read_limits(request.limits)


def plan_attach(
    request: AttachRequest, target: Target, snapshot: Snapshot
) -> tuple[tuple[AttachmentRecord, ...], Plan]:
    """The new attachments' records and the plan, by whichever backend. Raises what stands in the way,
    before anything is changed.
    """
    wanted, vm = _choose_link(check_request(request), target), target.vm
    backend = find_backend(wanted.backends[0])
    _check_free(request, vm, snapshot.records)
    try:
        backend.check_vm(wanted, vm)
    except VgpumgrError:
        backend.check_profile(wanted, snapshot)
        raise
    try:
        grants = [
            grant
            for one, part in _list_parts(wanted, target)
            for grant in backend.choose(one, part, snapshot)
        ]
    except VgpumgrError as error:
        backend.explain(error, wanted, target, snapshot)
        raise
    scopes = backend.choose_scopes(wanted, vm, grants)
    records, plan = _plan_grants(wanted, target, snapshot.records, grants, scopes)
    if request.backend == _AUTO and backend.auto_note:
        plan = replace(plan, notes=(backend.auto_note, *plan.notes))
    return records, plan


def _choose_link(wanted: Wanted, target: Target) -> Wanted:
    """What a lease on another host gives comes by no backend of this host."""
    if any(one.link is not None for one in target.leased):
        return replace(wanted, backends=(BackendName.LINK,))
    return wanted


def _list_parts(wanted: Wanted, target: Target) -> Iterator[tuple[Wanted, Target]]:
    """A claim gives one attachment of each GPU of its lease; what is asked for without one is planned together."""
    if not target.leased:
        yield wanted, target
    for leased, name in zip(target.leased, target.names if target.leased else (), strict=True):
        request = replace(wanted.request, gpu=leased.gpu, count=1)
        yield replace(wanted, request=request), replace(target, names=(name,), leased=(leased,))


def check_not_stalled(plan: Plan, pci: PciControl) -> None:
    """Raises PciStalledError where a step would wait for the whole PCI core: before the plan begins."""
    for step in plan.steps:
        if isinstance(step, CreateVfs) and (error := find_stall(pci, step.describe())):
            raise error


def _check_free(request: AttachRequest, vm: Vm, records: Sequence[AttachmentRecord]) -> None:
    own = [record for record in records if record.vm_uuid == vm.uuid]
    if own and not request.add:
        raise AlreadyAttachedError(
            f"{vm} has {' and '.join(record.profile for record in own)} already",
            why="; ".join(f"attachment {record.id} is {record.state}" for record in own)
            + "; one more takes --add, and detach gives back what it has",
            held_by=[f"attachment {r.id} ({r.profile} on {r.gpu_word})" for r in own],
            hint=f"vgpumgr attach {format_vm(vm.name, vm.uuid)} {request.option} --add",
        )
    known = {record.id for record in own}
    aliases = vm.config.own_aliases() if vm.config else ()
    strays = sorted(alias for alias in aliases if attachment_of(alias) not in known)
    if strays:
        raise AlreadyAttachedError(
            f"{vm} has devices of an attachment that is not recorded here",
            why=f"its definition has {', '.join(strays)}; recover records it again, detach removes it",
            held_by=strays,
            hint="vgpumgr recover",
        )


def _plan_grants(
    wanted: Wanted,
    target: Target,
    known: Sequence[AttachmentRecord],
    grants: Sequence[DeviceGrant],
    scopes: Scopes,
) -> tuple[tuple[AttachmentRecord, ...], Plan]:
    """An attachment for each grant, all in one plan; each sees the records of those before it."""
    records: list[AttachmentRecord] = []
    plans: list[Plan] = []
    in_slots = len(grants) > 1 and any(grant.has_several for grant in grants)
    definition = target.vm.config
    claims: Sequence[ClaimPart | None] = [one.part for one in target.leased]
    claims = claims or [None] * len(grants)
    for name, grant, claim in zip(target.names, grants, claims, strict=True):
        record = _make_record(target, (*known, *records), name, grant, claim)
        if scopes.config and len(grants) == 1:
            controllers = list_controllers(target.vm.config)
            record = replace(record, controllers_before=controllers)
        planned, plan = _plan_one(wanted, target.vm, record, grant, scopes, definition, in_slots)
        definition = planned
        records.append(record)
        plans.append(plan)
    if len(plans) == 1:
        return tuple(records), plans[0]
    return tuple(records), _merge(records, plans)


def _make_record(
    target: Target,
    known: Sequence[AttachmentRecord],
    name: NewAttachment,
    grant: DeviceGrant,
    claim: ClaimPart | None,
) -> AttachmentRecord:
    return AttachmentRecord(
        id=name.id,
        vm_name=target.vm.name,
        vm_uuid=target.vm.uuid,
        gpu=grant.gpu,
        profile=grant.profile,
        memory_bytes=grant.memory_bytes,
        backend=grant.backend,
        created_s=target.now_s,
        number=lowest_free_number(known, target.vm.uuid),
        claim=claim,
        **grant.parts,
    )


def _plan_one(
    wanted: Wanted,
    vm: Vm,
    record: AttachmentRecord,
    grant: DeviceGrant,
    scopes: Scopes,
    definition: Domain | None,
    in_slots: bool,
) -> tuple[Domain | None, Plan]:
    """The definition with its devices, and its plan: the host first, then the domain, the record around
    both.
    """
    steps: list[Step] = [RecordAttachment(record.id, vm.name, vm.uuid)]
    if record.claim is not None and record.claim.is_bound:
        steps.append(HoldClaim.of_record(record))
    steps += grant.list_host_steps(record, vm, scopes)
    digest: str | None = vm.digest
    if scopes.config:
        devices = grant.make_devices(record, Scope.CONFIG, definition, in_slots=in_slots)
        steps.append(AttachDevices(vm.name, vm.uuid, devices, Scope.CONFIG, digest))
        digest = None
        # the next one's slot must not be this one's
        definition = add_devices(definition, devices) if definition and in_slots else definition
    if scopes.live:
        devices = grant.make_devices(record, Scope.LIVE, None, in_slots=False)
        steps.append(AttachDevices(vm.name, vm.uuid, devices, Scope.LIVE, digest))
        steps += grant.list_guest_steps(record)
    steps.append(WriteNote(vm.name, vm.uuid, record.id))
    steps += grant.list_last_steps(record, vm, scopes)
    steps.append(MarkAttachment(record.id, AttachmentState.ATTACHED, AttachmentState.ATTACHING))
    return definition, Plan(
        operation="attach",
        subject=vm.name,
        steps=tuple(steps),
        notes=(
            *_describe_claim(record),
            f"backend {grant.backend}: {grant.why}",
            *grant.notes,
            *grant.describe_time(vm, wanted.request, scopes),
            *grant.advise(vm),
        ),
        result=_describe(vm, record, grant, scopes),
    )


def _describe_claim(record: AttachmentRecord) -> tuple[str, ...]:
    if record.claim is None:
        return ()
    if not record.claim.is_bound:
        when = "from a program's first CUDA call until the last program has ended"
        return (f"claim {record.claim.name} binds late: it has a lease {when}",)
    return (f"claim {record.claim.name} reserves {record.profile} on host {record.claim.host}",)


def _describe(
    vm: Vm, record: AttachmentRecord, grant: DeviceGrant, scopes: Scopes
) -> dict[str, object]:
    details = grant.details
    return {
        "attachment": record.id,
        "vm": vm.name,
        "profile": record.profile,
        "backend": str(record.backend),
        "transport": details["transport"],
        "gpu": str(grant.gpu) if grant.gpu else None,
        "gpu_index": details["gpu_index"],
        "placement": details["placement"],
        "devices": details["devices"],
        "live": scopes.live,
        "config": scopes.config,
        "not_live_because": [] if scopes.live else list(scopes.reasons),
        **({"claim": record.claim.name} if record.claim else {}),
    }


def _merge(records: Sequence[AttachmentRecord], plans: Sequence[Plan]) -> Plan:
    """Everything is recorded first and marked last: in between, a crash leaves halves, which are
    undone.
    """
    first: list[Step] = []
    middle: list[Step] = []
    last: list[Step] = []
    for record, plan in zip(records, plans, strict=True):
        steps = [replace(_without_digest(s, not first), of=record.id) for s in plan.steps]
        first.append(steps[0])
        middle += steps[1:-1]
        last.append(steps[-1])
    # claims are held before anything is taken by them, and all functions are taken from the host before
    # the domain gets any: one of a group cannot be plugged while the host's driver has another
    middle.sort(
        key=lambda step: (not isinstance(step, HoldClaim), not isinstance(step, BindDriver))
    )
    head = plans[0]
    result = {
        **{key: value for key, value in head.result.items() if key not in _SINGLE},
        "attachments": [record.id for record in records],
        "devices": [one for plan in plans for one in cast(Sequence[str], plan.result["devices"])],
        "seats": [{key: plan.result[key] for key in _SINGLE} for plan in plans],
    }
    notes = tuple(dict.fromkeys(note for plan in plans for note in plan.notes))
    return replace(
        head,
        steps=(*first, *middle, *last),
        notes=notes,
        result=result,
        repair=f"vgpumgr detach {format_vm(head.subject)} --all",
    )


def _without_digest(step: Step, is_first: bool) -> Step:
    """Only the first change of the definition finds it as it was planned on."""
    if isinstance(step, AttachDevices) and not is_first:
        return replace(step, digest=None)
    return step
