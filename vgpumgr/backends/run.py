"""Planning a run: a command of the host gets a slice and a channel as a VM does by ``forward``; pure.

There is no domain: the command's own guest agent takes the place of QEMU. What ``detach`` takes back is
what ``forward`` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.backends.base import NewAttachment, read_limits, read_profile
from vgpumgr.backends.forward import describe_seat, list_mig_steps, make_channel_part, make_mig_part
from vgpumgr.backends.mig_places import choose_slices, list_left_alone
from vgpumgr.engine.step import Plan, Step
from vgpumgr.errors import AlreadyAttachedError, BackendUnsupportedError
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, RunPart
from vgpumgr.model.choices import Backend
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest, MigRequest
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.channel import StartChannel
from vgpumgr.steps.record import MarkAttachment, RecordAttachment


def check_run(request: AttachRequest, command: str) -> MigProfileName:
    """The profile that is asked for; needs nothing observed. ``request.vm`` is the run's name.

    Raises:
        UsageError: a profile of no known form.
        BackendUnsupportedError: a profile that only a VM can have.
    """
    profile = read_profile(request.profile)
    if not isinstance(profile, MigRequest):
        raise BackendUnsupportedError(
            f"cannot run {command} on {request.profile}",
            why="a command of the host takes MIG profiles, which look like 1g.10gb",
            hint="vgpumgr mig profiles",
        )
    read_limits(request.limits)
    return profile.name


def plan_run(
    request: AttachRequest, run: RunPart, new: NewAttachment, snapshot: Snapshot, now_s: float
) -> tuple[AttachmentRecord, Plan]:
    """The new attachment and its plan. Raises what stands in the way, before anything is changed."""
    name = check_run(request, run.command)
    _check_name(request.vm, run, snapshot.records)
    gpus = snapshot.require_gpus()
    refusal = f"cannot run {run.command} on {request.profile}"
    (seat,) = choose_slices(request, (), snapshot, name, refusal)
    choice, transport = seat.choice, request.transport
    notes = (choice.why, *(f"left alone: {text}" for text in list_left_alone(gpus, snapshot)))
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
        channel=make_channel_part(request, (run.uid, run.gid)),
        run=run,
    )
    steps: list[Step] = [
        RecordAttachment(record.id, record.vm_name, record.vm_uuid),
        *list_mig_steps(seat, name),
        StartChannel.for_record(record),
        MarkAttachment(record.id, AttachmentState.ATTACHED, AttachmentState.ATTACHING),
    ]
    result = {
        "attachment": record.id,
        "run": record.vm_name,
        "profile": record.profile,
        "gpu": str(choice.gpu.uuid),
        **describe_seat(seat, transport),
    }
    return record, Plan("run", record.vm_name, tuple(steps), notes=notes, result=result)


def _check_name(name: str, run: RunPart, records: Sequence[AttachmentRecord]) -> None:
    for record in records:
        if name in (record.vm_name, record.id):
            what = "VM" if record.run is None else "run"
            holder = f"attachment {record.id} ({record.profile})"
            raise refuse_name(
                run.command, name, f"a {what} with an attachment has this name", holder
            )


def refuse_name(command: str, name: str, why: str, *held_by: str) -> AlreadyAttachedError:
    """The refusal of a run whose name another one has."""
    return AlreadyAttachedError(
        f'cannot run {command} as "{name}"',
        why=why,
        held_by=held_by,
        hint=f"vgpumgr run --name {name}-2, or another name",
    )
