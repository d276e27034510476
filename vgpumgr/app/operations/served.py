"""What this host gives to attachments of other hosts of its pool, over the network: a channel on the slice that a lease
reserves here, as ``run`` makes one, for as long as the other host's attachment uses the lease.

Processes of ``vgpumgr-link`` are the programs of its guest; the channel belongs to the guest's agent.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from vgpumgr.app.context import Parts, find_stuck_gpus
from vgpumgr.app.host_observation import list_instances
from vgpumgr.app.operations.attachments import AttachmentService, Planned, execute_anew
from vgpumgr.app.operations.claims import choose_profile
from vgpumgr.app.operations.runs import plan_run
from vgpumgr.app.transactions import open_change
from vgpumgr.backends.base import NewAttachment
from vgpumgr.errors import ChannelStartError, RunnerGoneError
from vgpumgr.host.process import ProcessId, is_alive, read_identity
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, RunPart, ServedPart
from vgpumgr.model.choices import Backend, Numa, Transport
from vgpumgr.model.request import AttachRequest
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.state.leases import ClaimUser, LeasedGpu, LinkRequest
from vgpumgr.steps.channel import check_confinable
from vgpumgr.virtio.channel import ChannelPaths
from vgpumgr.virtio.links import connect_agent, get_link_owner, start_agent, stop_agent

#: a name of a run has at most so many characters
_MOST_NAME = 64
#: for the agent to speak, over shared memory of this host
_AGENT_S = 60.0
_POLL_S = 0.02


def find_channel(parts: Parts, request: LinkRequest) -> ChannelPaths | None:
    """The channel that serves the attachment of another host already; None: it is to be started. Asks the pool's store,
    and raises as ``Leases.find_served``.
    """
    leased, _ = parts.leases.find_served(request)
    record = _find_record(parts, request)
    if record is None or not _is_usable(parts, record, leased):
        return None
    paths = parts.channels.paths(record.id)
    try:
        connect_agent(paths).close()
    except OSError:
        return None
    return paths


def serve_link(parts: Parts, request: LinkRequest, listener: int) -> ChannelPaths:
    """The channel for the attachment of another host, which is started where none runs; ``listener`` is the process of
    ``vgpumgr-link``. Raises what stands in the way.
    """
    leased, user = parts.leases.find_served(request)
    record = _find_record(parts, request)
    if record is not None and not _is_usable(parts, record, leased):
        AttachmentService(parts).detach(record.id)
        record = None
    if record is None:
        end_served(parts, _list_over(parts, request))
        record = _start(parts, request, leased, user, listener)
    paths = parts.channels.paths(record.id)
    if not _answers(paths):
        _belong_to(parts, record, start_agent(paths, get_link_owner()))
    _await_agent(parts, record, paths)
    return paths


def _belong_to(parts: Parts, record: AttachmentRecord, agent: int) -> None:
    """The channel is the agent's from now on: it ends with that, and outlives the listener."""
    identity = read_identity(agent)
    assert record.run is not None
    if identity is not None:
        run = replace(record.run, pid=agent, start_ticks=identity.start_ticks)
        parts.store.save_attachment(replace(record, run=run))


def list_served(parts: Parts) -> dict[str, ServedPart]:
    """What is given to other hosts now, by the attachment's id here."""
    records = parts.store.list_attachments()
    return {record.id: record.served for record in records if record.served is not None}


def end_served(parts: Parts, ids: Collection[str]) -> list[str]:
    """Ends what other hosts do not use any more; the names of what was ended."""
    ended = []
    for record in parts.store.list_attachments():
        if record.served is not None and record.id in ids:
            stop_agent(Path(parts.channels.paths(record.id).control).parent.parent)
            AttachmentService(parts).detach(record.id)
            ended.append(record.vm_name)
    return ended


def _list_over(parts: Parts, request: LinkRequest) -> list[str]:
    """What the same host had by the claim before: the store says that another attachment has it now."""
    return [
        id_
        for id_, part in list_served(parts).items()
        if (part.host, part.claim) == (request.host, request.claim)
        and part.attachment != request.attachment
    ]


def _find_record(parts: Parts, request: LinkRequest) -> AttachmentRecord | None:
    wanted = (request.host, request.claim, request.attachment)
    for record in parts.store.list_attachments():
        part = record.served
        if part is not None and (part.host, part.claim, part.attachment) == wanted:
            return record
    return None


def _is_usable(parts: Parts, record: AttachmentRecord, leased: LeasedGpu) -> bool:
    """Whether it is of this lease and whole, and its process lives."""
    run, part = record.run, record.served
    if run is None or part is None or record.state is not AttachmentState.ATTACHED:
        return False
    is_same = part.token == leased.part.token and str(record.gpu) == leased.gpu
    lives = run.boot_id == parts.boot_id and is_alive(ProcessId(run.pid, run.start_ticks))
    return is_same and lives and parts.channels.read_status(record.id) is not None


def _start(
    parts: Parts, request: LinkRequest, leased: LeasedGpu, user: ClaimUser, listener: int
) -> AttachmentRecord:
    run = _identify(parts, user, request.host, listener)
    asked = AttachRequest(
        _name(request),
        choose_profile(parts, [leased], Backend.FORWARD),
        leased.gpu,
        Backend.FORWARD,
        transport=Transport.RING,
        numa=Numa.OFF,
    )
    part = ServedPart(request.host, request.claim, request.attachment, leased.part.token)

    def plan_now() -> Planned:
        new = NewAttachment(
            id_ := secrets.token_hex(4), parts.channels.paths(id_), str(uuid.uuid4())
        )
        snapshot = Snapshot(parts, stuck=find_stuck_gpus(parts), instances=list_instances(parts))
        record, plan = plan_run(asked, run, new, snapshot, parts.clock.wall_s(), None)
        check_confinable([record], parts.channels)
        return [replace(record, served=part)], plan, snapshot.observed_gpus

    with open_change(parts, "run a command") as transaction:
        _, context = execute_anew(parts, plan_now, transaction)
    return context.record


def _name(request: LinkRequest) -> str:
    """A run is named as the claim and the host."""
    name = f"{request.claim}.{request.host}"
    if len(name) <= _MOST_NAME:
        return name
    return f"{request.claim[: _MOST_NAME - 10]}.{request.attachment[:8]}"


def _identify(parts: Parts, user: ClaimUser, host: str, listener: int) -> RunPart:
    """Raises RunnerGoneError."""
    identity = read_identity(listener)
    if identity is None:
        raise RunnerGoneError(f"cannot serve {user.name} of host {host}: vgpumgr-link has ended")
    what = f"{user.name} of host {host}"
    return RunPart(listener, identity.start_ticks, parts.boot_id, *get_link_owner(), what)


def _await_agent(parts: Parts, record: AttachmentRecord, paths: ChannelPaths) -> None:
    end_s = parts.clock.monotonic_s() + _AGENT_S
    while True:
        status = parts.channels.read_status(record.id)
        if status is not None and status.hello and _answers(paths):
            return
        if parts.clock.monotonic_s() > end_s:
            why = (status.problem if status else None) or "the worker did not hear it"
            raise ChannelStartError(f"the agent of {record.vm_name} does not start", why=why)
        parts.clock.sleep(_POLL_S)


def _answers(paths: ChannelPaths) -> bool:
    try:
        connect_agent(paths).close()
    except OSError:
        return False
    return True
