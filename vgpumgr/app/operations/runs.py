"""``run``: a slice and a channel for a command of the host, as ``forward`` gives a VM; ``detach`` takes both back.

There is no domain: the command's own guest agent takes the place of QEMU.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import uuid
from collections.abc import Sequence
from typing import Literal

from vgpumgr.app.context import LIBVIRT_ERRORS, Parts, find_stuck_gpus
from vgpumgr.app.documents.attachments import BindDocument, RunDocument, describe_attachment
from vgpumgr.app.documents.base import VgpuPlanDocument, describe_plan
from vgpumgr.app.host_observation import list_instances
from vgpumgr.app.operations.attachments import execute_anew
from vgpumgr.app.operations.claims import check_options, resolve_claim
from vgpumgr.app.refusal_hints import adding_hints
from vgpumgr.app.transactions import open_change
from vgpumgr.backends.base import NewAttachment, read_limits, read_profile
from vgpumgr.backends.link import make_link_channel, make_link_slice
from vgpumgr.backends.slices import Slice, check_slice, choose, list_notes, make_channel_part
from vgpumgr.engine.step import Plan, Step
from vgpumgr.errors import (
    AlreadyAttachedError,
    BackendUnsupportedError,
    RunnerGoneError,
    VmNotFoundError,
)
from vgpumgr.host.process import ProcessId, read_identity, read_owner
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, ClaimPart, RunPart
from vgpumgr.model.choices import Backend, Numa, Transport
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.request import AttachRequest, MigRequest, ShareRequest
from vgpumgr.planning.leased import list_leased
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.state.leases import LeasedGpu, refuse_several
from vgpumgr.steps.channel import StartChannel, check_confinable
from vgpumgr.steps.claim import HoldClaim
from vgpumgr.steps.record import MarkAttachment, RecordAttachment
from vgpumgr.virtio.channel import ChannelPaths, list_agent_options
from vgpumgr.virtio.keeper import AGENT_PROGRAM


def start_run(
    parts: Parts,
    *,
    name: str,
    command: str,
    pid: int,
    profile: str = "",
    gpu: str | None = None,
    transport: Literal["ring", "serial"] = "ring",
    spread: bool = False,
    limits: tuple[str, ...] = (),
    allow_unconfined: bool = False,
    compute_policy: str | None = None,
    priority: str | None = None,
    claim: str | None = None,
    dry_run: bool = False,
) -> RunDocument:
    """Gives the process ``pid`` a slice and a channel, which it has until ``detach`` or its end. ``name``
    is the run's, ``command`` what it will run. Raises what stands in the way before anything is
    changed, or what ended it after everything was undone.
    """
    request = AttachRequest(
        name,
        profile,
        gpu,
        Backend.FORWARD,
        transport=Transport(transport),
        spread=spread,
        numa=Numa.OFF,
        limits=limits,
        allow_unconfined=allow_unconfined,
        compute_policy=compute_policy,
        priority=priority,
        claim=claim,
    )
    run = _identify(parts, pid, command)

    def plan_now() -> tuple[list[AttachmentRecord], Plan, list[Gpu] | None]:
        new = NewAttachment(
            id_ := secrets.token_hex(4), parts.channels.paths(id_), str(uuid.uuid4())
        )
        asked, leased = resolve_claim(parts, request)
        if len(leased) > 1:
            raise refuse_several(str(request.claim), len(leased))
        part = leased[0].part if leased else None
        if leased and leased[0].link is not None:
            return _plan_linked(parts, asked, run, new, leased[0])
        with adding_hints(parts, asked.gpu, asked.profile):
            snapshot = Snapshot(
                parts,
                stuck=find_stuck_gpus(parts),
                instances=list_instances(parts),
                leased=list_leased(parts.leases.read_seen()) if part is None else {},
            )
            record, plan = plan_run(asked, run, new, snapshot, parts.clock.wall_s(), part)
            check_confinable([record], parts.channels)
        gpus = snapshot.observed_gpus
        return [record], plan, None if gpus is None else list(gpus)

    check_options(request)
    # what a claim gives is known once what was interrupted is recovered
    if request.claim is None:
        with adding_hints(parts, request.gpu, request.profile):
            _check_run(request, command)
    _check_no_vm(parts, name, command)
    if dry_run:
        return _describe(plan_now()[1], None, [])
    with open_change(parts, "run a command") as transaction:
        plan, context = execute_anew(parts, plan_now, transaction)
        notes = [*transaction.notes, *context.notes]
    return _describe(plan, context.record, notes, parts.channels.paths(context.record.id))


def bind_claim(parts: Parts, claim: str, pid: int) -> BindDocument:
    """Where the claim binds late, the process ``pid`` of this host wants its lease from now on, until what runs by the
    claim has given it back, or the process has ended. It waits for nothing: ask again. Raises RunnerGoneError, and what
    ``Leases.bind`` raises.
    """
    run = _identify(parts, pid, f"by claim {claim}")
    found = parts.leases.bind(claim, ProcessId(run.pid, run.start_ticks), run.boot_id)
    return BindDocument(
        claim=claim,
        state=found.state,
        answered=found.is_answered,
        binding="late" if found.is_late else "reserve",
        place=found.place,
        why=found.why,
    )


def _check_run(request: AttachRequest, command: str) -> MigRequest | ShareRequest:
    """The profile that is asked for; needs nothing observed. ``request.vm`` is the run's name.

    Raises:
        UsageError: a profile of no known form, or contradicting options.
        BackendUnsupportedError: a profile that only a VM can have.
    """
    profile = read_profile(request.profile)
    if not isinstance(profile, MigRequest | ShareRequest):
        raise BackendUnsupportedError(
            f"cannot run {command} on {request.profile}",
            why="a command of the host takes MIG profiles, which look like 1g.10gb, and shares: share:8GiB,30%",
            hint="vgpumgr mig profiles",
        )
    read_limits(request.limits)
    check_slice(request, profile)
    return profile


def plan_run(
    request: AttachRequest,
    run: RunPart,
    new: NewAttachment,
    snapshot: Snapshot,
    now_s: float,
    claim: ClaimPart | None,
) -> tuple[AttachmentRecord, Plan]:
    """The new attachment and its plan. Raises what stands in the way, before anything is changed."""
    profile = _check_run(request, run.command)
    _check_name(request.vm, run, snapshot.records)
    refusal = f"cannot run {run.command} on {request.profile}"
    (chosen,) = choose(request, profile, (), snapshot, refusal)
    record = AttachmentRecord(
        id=new.id,
        vm_name=request.vm,
        vm_uuid=new.uuid,
        gpu=chosen.gpu.uuid,
        profile=chosen.profile,
        memory_bytes=chosen.memory_bytes,
        backend=Backend.FORWARD,
        created_s=now_s,
        channel=make_channel_part(request, chosen, (run.uid, run.gid)),
        run=run,
        claim=claim,
        **chosen.parts,
    )
    notes = (chosen.why, *list_notes(snapshot))
    return record, _make_plan(record, chosen, chosen.gpu, request, notes)


def _plan_linked(
    parts: Parts, request: AttachRequest, run: RunPart, new: NewAttachment, leased: LeasedGpu
) -> tuple[list[AttachmentRecord], Plan, list[Gpu] | None]:
    """The same by a lease on another host: no GPU of this one is asked."""
    _check_name(request.vm, run, parts.store.list_attachments())
    chosen = make_link_slice(leased)
    record = AttachmentRecord(
        id=new.id,
        vm_name=request.vm,
        vm_uuid=new.uuid,
        gpu=None,
        profile=chosen.profile,
        memory_bytes=chosen.memory_bytes,
        backend=Backend.LINK,
        created_s=parts.clock.wall_s(),
        channel=make_link_channel(request, (run.uid, run.gid)),
        run=run,
        claim=leased.part,
    )
    check_confinable([record], parts.channels)
    return [record], _make_plan(record, chosen, None, request, (chosen.why,)), None


def _make_plan(
    record: AttachmentRecord,
    chosen: Slice,
    gpu: Gpu | None,
    request: AttachRequest,
    notes: tuple[str, ...],
) -> Plan:
    steps: list[Step] = [
        RecordAttachment(record.id, record.vm_name, record.vm_uuid),
        *([] if record.claim is None else [HoldClaim.of_record(record)]),
        *chosen.list_steps(),
        StartChannel.for_record(record),
        MarkAttachment(record.id, AttachmentState.ATTACHED, AttachmentState.ATTACHING),
    ]
    result = {
        "attachment": record.id,
        "run": record.vm_name,
        "profile": record.profile,
        "gpu": None if gpu is None else str(gpu.uuid),
        **chosen.describe(request.transport),
    }
    return Plan("run", record.vm_name, tuple(steps), notes=notes, result=result)


def _check_name(name: str, run: RunPart, records: Sequence[AttachmentRecord]) -> None:
    for record in records:
        if name in (record.vm_name, record.id):
            what = "VM" if record.run is None else "run"
            holder = f"attachment {record.id} ({record.profile})"
            raise _refuse_name(
                run.command, name, f"a {what} with an attachment has this name", holder
            )


def _refuse_name(command: str, name: str, why: str, *held_by: str) -> AlreadyAttachedError:
    """The refusal of a run whose name another one has."""
    return AlreadyAttachedError(
        f'cannot run {command} as "{name}"',
        why=why,
        held_by=held_by,
        hint=f"vgpumgr run --name {name}-2, or another name",
    )


def _identify(parts: Parts, pid: int, command: str) -> RunPart:
    """Raises RunnerGoneError."""
    identity, owner = read_identity(pid), read_owner(pid)
    if identity is None or owner is None:
        raise RunnerGoneError(
            f"cannot run {command}: there is no process {pid}",
            why="a run belongs to the process that asks for it, and ends with it",
        )
    return RunPart(pid, identity.start_ticks, parts.boot_id, *owner, command)


def _check_no_vm(parts: Parts, name: str, command: str) -> None:
    """Raises AlreadyAttachedError where libvirt has a VM of that name; a host without VMs may have no
    libvirt.
    """
    with contextlib.suppress(VmNotFoundError, *LIBVIRT_ERRORS):
        vm = parts.hypervisor.read_vm(name)
        raise _refuse_name(command, name, f"{vm} has this name")


def _describe(
    plan: Plan,
    record: AttachmentRecord | None,
    notes: list[str],
    paths: ChannelPaths | None = None,
) -> RunDocument:
    agent: list[str] = []
    environment: dict[str, str] = {}
    if record is not None and paths is not None:
        directory, socket = os.path.split(paths.control)[0], "agent.sock"
        environment = {
            "LD_LIBRARY_PATH": str(AGENT_PROGRAM.parent),
            "LD_AUDIT": str(AGENT_PROGRAM.with_name("vgpumgr-audit.so")),
            "VGPUMGR_AGENT": os.path.join(directory, socket),  # noqa: PTH118
        }
        options = list_agent_options(paths, environment["VGPUMGR_AGENT"], serial=record.has_serial)
        agent = [str(AGENT_PROGRAM), *options]
    return RunDocument(
        dry_run=record is None,
        plan=describe_plan(plan, VgpuPlanDocument),
        attachment=None if record is None else describe_attachment(record, "now"),
        agent=agent,
        environment=environment,
        notes=notes,
    )
