"""GPUs of a pool that hosts use over the network: which host offers its own, and who may use one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vgpumgr.errors import (
    ClaimNotFoundError,
    ClaimNotGrantedError,
    NotPermittedError,
    PoolMemberError,
    PoolNotFoundError,
)
from vgpumgr.host.files import PRIVATE, replace_file
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.model.attachment import AttachmentRecord, ClaimPart, ServedPart
from vgpumgr.model.codec import decode, encode
from vgpumgr.pool.control.records import (
    LINKS,
    ClaimRecord,
    HostRecord,
    IfLost,
    LeaseRecord,
    UseRecord,
    View,
    find_claim,
    put,
)
from vgpumgr.pool.membership import Pool, read_membership
from vgpumgr.pool.store.interface import Transaction
from vgpumgr.state.leases import LeasedGpu, LinkedGpu, LinkRequest, SeenLink
from vgpumgr.virtio.identity import ensure_identity, get_directory
from vgpumgr.virtio.links import LinkPeer, read_listen

#: beside the identity: what the process that serves knew last of links
_SEEN = "seen.json"
#: for who would attach there; the daemon's page says more
_ADVICE = "[link] listen in vgpumgr.toml of host {host}, whose daemon then offers its GPUs"


def list_peers(view: View) -> list[LinkPeer]:
    """Every host with an identity."""
    return [LinkPeer(one.name, one.ca, one.links) for one in view.hosts.values() if one.ca]


def find_link(view: View, lease: LeaseRecord, host: str) -> LinkedGpu:
    """The GPU of a lease on another host, for attachments of ``host``. Raises ClaimNotGrantedError where that host does
    not offer it.
    """
    claim, other = view.claims[lease.claim], view.hosts.get(lease.host)
    why = f"its lease is on host {lease.host}, and this is host {host}"
    if view.pool is None or view.pool.version < LINKS:
        why += f"; hosts of a pool of a version before {LINKS} use no GPUs of each other"
        raise refuse(claim, why, f"the same command on host {lease.host}")
    if other is None or not other.links or not other.ca:
        why += ", which offers no GPUs over the network"
        hint = _ADVICE.format(host=lease.host)
        raise refuse(claim, why, f"the same command on host {lease.host}; or {hint}")
    _check_known(view, claim, host, why)
    if lease.host not in view.alive:
        raise refuse(claim, f"{why}, and that is not heard", "vgpumgr pool status")
    if len(lease.gpus) > 1:
        why += f": of {len(lease.gpus)} GPUs none is used over the network"
        raise refuse(claim, why, "a claim of one GPU")
    gpu = view.gpus.get(f"{lease.host}/{lease.gpus[0]:04}")
    if gpu is None:
        raise refuse(claim, f"{why}; its GPU is not in the pool any more", "vgpumgr pool status")
    return LinkedGpu(lease.host, gpu.model, gpu.memory_bytes, other.links)


def _check_known(view: View, claim: ClaimRecord, host: str, why: str) -> None:
    """Raises ClaimNotGrantedError where other hosts cannot know this one."""
    here = view.hosts.get(host)
    if here is None or not here.ca:
        why += "; other hosts do not know this one yet, which its daemon makes known in seconds"
        raise refuse(claim, why, "systemctl status vgpumgr, and vgpumgr config show: pool.serve")


def list_offering(view: View, claim: ClaimRecord) -> list[str]:
    """The hosts on which a claim may have a lease that is used over the network."""
    return sorted(
        name
        for name, one in view.hosts.items()
        if one.links and one.ca and claim.may_be_on(name) and view.is_ready(name)
    )


def find_late(view: View, name: str, host: str) -> LeasedGpu | None:
    """What an attachment has by a claim that binds late, that nothing wants now, and that may have its lease where GPUs
    are offered over the network. None: it is another claim.
    """
    claim = find_claim(view, name)
    if not claim.late or name in view.wants or claim.is_ending or claim.gpus > 1:
        return None
    if claim.if_lost is IfLost.MOVE or not list_offering(view, claim):
        return None
    kind = view.classes.get(claim.class_name)
    is_whole = kind is not None and kind.whole
    size = (None, None) if is_whole else (claim.memory_bytes, claim.compute_percent)
    part = ClaimPart(name, "", 0, 0, host, late=True)
    return LeasedGpu(part, "", *size, LinkedGpu("", "", 0))


def find_use(view: View, request: LinkRequest, host: str) -> tuple[LeaseRecord, UseRecord]:
    """The lease on this host, and what another host's attachment has by it. Raises ClaimNotGrantedError for what the
    store does not say.
    """
    claim = find_claim(view, request.claim)
    lease = view.find_lease(claim)
    if request.host not in view.hosts:
        raise refuse(claim, f"the pool has no host {request.host}", "vgpumgr pool status")
    if lease is None or lease.host != host or lease.is_ending or claim.is_ending:
        raise refuse(claim, f"it has no lease on host {host} any more", "vgpumgr claim show")
    token = view.find_token(lease)
    for use in view.list_uses(claim):
        known = (use.user_host, use.attachment, use.token)
        if known == (request.host, request.attachment, token):
            return lease, use
    why = f"attachment {request.attachment} of host {request.host} does not use it"
    raise refuse(claim, why, f"vgpumgr claim show {claim.name}")


def refuse(claim: ClaimRecord, why: str, hint: str) -> ClaimNotGrantedError:
    """That a claim gives nothing now."""
    return ClaimNotGrantedError(
        f"claim {claim.name} gives nothing on this host now", why=why, hint=hint
    )


def list_ended(view: View, host: str, served: Mapping[str, ServedPart]) -> list[str]:
    """Of what this host serves to attachments of others, those whose use of a lease is over."""
    return [id_ for id_, part in served.items() if not _is_used(view, host, part)]


def _is_used(view: View, host: str, part: ServedPart) -> bool:
    try:
        request = LinkRequest(part.host, part.claim, part.attachment)
        return find_use(view, request, host)[1].token == part.token
    except (ClaimNotFoundError, ClaimNotGrantedError):
        return False


def list_seen(view: View, records: Sequence[AttachmentRecord]) -> tuple[SeenLink, ...]:
    """What the pool says of attachments whose GPUs are those of other hosts, and that have a lease now."""
    found = []
    for record in records:
        part = record.claim
        if part is None or not part.is_bound:
            continue
        lease = view.leases.get(f"{part.host}/{part.name}")
        token = None if lease is None or lease.is_ending else view.find_token(lease)
        other = view.hosts.get(part.host)
        is_heard, is_offered = part.host in view.alive, bool(other and other.links)
        found.append(SeenLink(record.id, part.host, token, is_heard, is_offered))
    return tuple(found)


def read_seen_links(machine: Machine) -> tuple[SeenLink, ...]:
    """What ``list_seen`` answered last; a file that cannot be read says nothing."""
    try:
        text = (get_directory(machine) / _SEEN).read_text()
        return decode(tuple[SeenLink, ...], json.loads(text))
    except (OSError, ValueError):
        return ()


def write_seen_links(machine: Machine, seen: Sequence[SeenLink]) -> None:
    """Keeps it for who only shows it. Raises OSError."""
    if tuple(seen) != read_seen_links(machine):
        text = json.dumps(encode(tuple(seen))) + "\n"
        replace_file(get_directory(machine) / _SEEN, text, PRIVATE)


def show_identity(name: str | None, *, rotate: bool) -> dict[str, Any]:
    """This machine's identity for links, which is made where there is none, or anew. Raises PoolNotFoundError,
    PoolMemberError, NotPermittedError.
    """
    machine = find_machine(name)
    membership = read_membership(machine)
    if membership is None:
        raise PoolNotFoundError(
            "this host is in no pool", hint="vgpumgr pool init, or vgpumgr pool join --etcd URL"
        )
    if membership.host is None:
        raise PoolMemberError("this machine is no host of the pool", hint="vgpumgr pool join")
    try:
        found = ensure_identity(machine, membership.host, rotate=rotate)
    except OSError as error:
        raise NotPermittedError(
            "cannot read or write this host's identity", cause=str(error), hint="the same with sudo"
        ) from error
    return {
        "host": found.name,
        "fingerprint": found.fingerprint,
        "ca": found.ca,
        "ca_ends_s": found.ca_ends_s,
        "listener_ends_s": found.server_ends_s,
        "listens": list(read_listen(machine.run_dir)),
        "rotated": rotate,
    }


def write_offer(pool: Pool, view: View, ca: str, addresses: tuple[str, ...]) -> bool:
    """Writes this host's authority and addresses into its record; whether they stand there now. Raises
    PoolStoreError.
    """
    host = pool.membership.host
    record = view.hosts.get(host or "")
    if record is None or record.id != pool.membership.machine or pool.record(view).version < LINKS:
        return False
    if (record.ca, record.links) == (ca, addresses):
        return True
    changed: HostRecord = replace(record, ca=ca, links=addresses)
    return pool.store.transact(Transaction((view.at(record.key),), (put(changed),))) is not None
