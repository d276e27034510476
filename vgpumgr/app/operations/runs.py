"""``run``: a slice and a channel for a command of the host; ``detach`` takes both back."""

from __future__ import annotations

import contextlib
import os
import secrets
import uuid
from typing import Literal

from vgpumgr.app.context import LIBVIRT_ERRORS, Parts, find_stuck_gpus
from vgpumgr.app.documents.attachments import RunDocument, describe_attachment
from vgpumgr.app.documents.base import VgpuPlanDocument, describe_plan
from vgpumgr.app.host_observation import list_instances
from vgpumgr.app.operations.attachments import execute_anew
from vgpumgr.app.refusal_hints import adding_hints
from vgpumgr.app.transactions import open_change
from vgpumgr.backends.base import NewAttachment
from vgpumgr.backends.run import check_run, plan_run, refuse_name
from vgpumgr.engine.step import Plan
from vgpumgr.errors import RunnerGoneError, VmNotFoundError
from vgpumgr.host.process import read_identity, read_owner
from vgpumgr.model.attachment import AttachmentRecord, RunPart
from vgpumgr.model.choices import Backend, Numa, Transport
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.request import AttachRequest
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.channel import check_confinable
from vgpumgr.virtio.channel import ChannelPaths
from vgpumgr.virtio.keeper import AGENT_PROGRAM


def start_run(
    parts: Parts,
    *,
    name: str,
    command: str,
    profile: str,
    pid: int,
    gpu: str | None = None,
    transport: Literal["ring", "serial"] = "ring",
    spread: bool = False,
    limits: tuple[str, ...] = (),
    allow_unconfined: bool = False,
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
    )
    run = _identify(parts, pid, command)

    def plan_now() -> tuple[list[AttachmentRecord], Plan, list[Gpu] | None]:
        new = NewAttachment(
            id_ := secrets.token_hex(4), parts.channels.paths(id_), str(uuid.uuid4())
        )
        with adding_hints(parts, gpu, profile):
            snapshot = Snapshot(
                parts, stuck=find_stuck_gpus(parts), instances=list_instances(parts)
            )
            record, plan = plan_run(request, run, new, snapshot, parts.clock.wall_s())
            check_confinable([record], parts.channels)
        gpus = snapshot.observed_gpus
        return [record], plan, None if gpus is None else list(gpus)

    with adding_hints(parts, gpu, profile):
        check_run(request, command)
    _check_no_vm(parts, name, command)
    if dry_run:
        return _describe(plan_now()[1], None, [])
    with open_change(parts, "run a command") as transaction:
        plan, context = execute_anew(parts, plan_now, transaction)
        notes = [*transaction.notes, *context.notes]
    return _describe(plan, context.record, notes, parts.channels.paths(context.record.id))


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
        raise refuse_name(command, name, f"{vm} has this name")


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
            "VGPUMGR_AGENT": os.path.join(directory, socket),  # noqa: PTH118
        }
        way = ["--ivshmem-socket", paths.ring]
        if record.has_serial:
            way = ["--serial-listen", paths.control]
        agent = [str(AGENT_PROGRAM), "--socket", environment["VGPUMGR_AGENT"], "--mode", "0600"]
        agent += ["--transport", "serial" if record.has_serial else "ring", *way]
    return RunDocument(
        dry_run=record is None,
        plan=describe_plan(plan, VgpuPlanDocument),
        attachment=None if record is None else describe_attachment(record, "now"),
        agent=agent,
        environment=environment,
        notes=notes,
    )
