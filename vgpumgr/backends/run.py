"""Planning a run: a command of the host gets a slice and a channel as a VM does by ``forward``; pure.

There is no domain: the command's own guest agent takes the place of QEMU. What ``detach`` takes back is
what ``forward`` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.backends.base import NewAttachment
from vgpumgr.backends.forward import list_mig_steps, make_mig_part
from vgpumgr.backends.mig_places import choose_slices
from vgpumgr.engine.step import Plan, Step
from vgpumgr.errors import AlreadyAttachedError, BackendUnsupportedError, UsageError
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, ChannelPart, RunPart
from vgpumgr.model.choices import Backend
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest, MigRequest, parse_profile_request
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.channel import StartChannel
from vgpumgr.steps.record import MarkAttachment, RecordAttachment
from vgpumgr.virtio.channel import RING_BYTES


def check_run(request: AttachRequest, command: str) -> MigProfileName:
    """The profile that is asked for; needs nothing observed. ``request.vm`` is the run's name.

    Raises:
        UsageError: a profile of no known form.
        BackendUnsupportedError: a profile that only a VM can have.
    """
    try:
        profile = parse_profile_request(request.profile)
    except ValueError as error:
        raise UsageError(
            "cannot read --profile", cause=str(error), hint="vgpumgr mig profiles"
        ) from error
    if not isinstance(profile, MigRequest):
        raise BackendUnsupportedError(
            f"cannot run {command} on {request.profile}",
            why="a command of the host takes MIG profiles, which look like 1g.10gb",
            hint="vgpumgr mig profiles",
        )
    return profile.name


def plan_run(
    request: AttachRequest, run: RunPart, new: NewAttachment, snapshot: Snapshot, now_s: float
) -> tuple[AttachmentRecord, Plan]:
    """The new attachment and its plan. Raises what stands in the way, before anything is changed."""
    name = check_run(request, run.command)
    _check_name(request.vm, run, snapshot.records)
    snapshot.require_gpus()
    refusal = f"cannot run {run.command} on {request.profile}"
    (seat,) = choose_slices(request, (), snapshot, name, refusal)
    choice, transport = seat.choice, request.transport
    record = AttachmentRecord(
        id=new.id,
        vm_name=request.vm,
        vm_uuid=new.uuid,
        gpu=choice.gpu.uuid,
        profile=str(name),
        memory_bytes=choice.profile.memory_bytes,
        backend=Backend.FORWARD,
        created_s=now_s,
        mig_part=make_mig_part(seat),
        channel=ChannelPart(transport, (run.uid, run.gid)),
        run=run,
    )
    start = StartChannel(
        record.id, record.vm_name, transport.has_ring, transport.has_serial, RING_BYTES
    )
    steps: list[Step] = [
        RecordAttachment(record.id, record.vm_name, record.vm_uuid),
        *list_mig_steps(seat, name),
        start,
        MarkAttachment(record.id, AttachmentState.ATTACHED, AttachmentState.ATTACHING),
    ]
    result = {
        "attachment": record.id,
        "run": record.vm_name,
        "profile": record.profile,
        "transport": str(transport),
        "gpu": str(choice.gpu.uuid),
        "gpu_index": choice.gpu.index,
        "placement": {"start": choice.placement.start, "size": choice.placement.size},
    }
    return record, Plan("run", record.vm_name, tuple(steps), notes=(choice.why,), result=result)


def _check_name(name: str, run: RunPart, records: Sequence[AttachmentRecord]) -> None:
    for record in records:
        if name in (record.vm_name, record.id):
            what = "VM" if record.run is None else "run"
            raise AlreadyAttachedError(
                f'cannot run {run.command} as "{name}"',
                why=f"a {what} with an attachment has this name",
                held_by=[f"attachment {record.id} ({record.profile})"],
                hint="vgpumgr run --name, with another name",
            )
