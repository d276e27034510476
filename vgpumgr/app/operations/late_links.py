"""Leases of claims that bind late, for VMs: one begins with the first CUDA call of a program, and ends with the last.

The dialer of the VM's channel asks, and the lease ends when it has no session any more, or has ended itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from vgpumgr.app.context import Parts
from vgpumgr.app.transactions import open_change
from vgpumgr.errors import NotAttachedError
from vgpumgr.host.process import ProcessId
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.state.leases import ClaimUser, LinkedGpu
from vgpumgr.virtio.links import LINK_DIRECTORY, LinkPeer, read_peers, write_peer


def ask_late(parts: Parts, attachment: str, dialer: ProcessId) -> str | None:
    """Why an attachment's claim, which this dialer wants from now on, has no lease yet; None: it has one. Raises
    NotAttachedError, and what ``Leases.bind_linked`` raises.
    """
    record = _find(parts, attachment)
    assert record.claim is not None
    found = parts.leases.bind_linked(record.claim.name, dialer, parts.boot_id)
    return found if isinstance(found, str) else None


def bind_late(parts: Parts, attachment: str, dialer: ProcessId, directory: Path) -> LinkPeer | str:
    """The host that has the lease of an attachment's claim from now on, after its relay (``directory`` is the
    channel's) was shown whom to find there. While it waits: why, in words; ask again. Raises NotAttachedError, and what
    ``Leases.bind_linked`` and ``hold`` raise.
    """
    record = _find(parts, attachment)
    assert record.claim is not None
    found = parts.leases.bind_linked(record.claim.name, dialer, parts.boot_id)
    if isinstance(found, str):
        return found
    part, link = replace(found.part, late=True), found.link
    assert isinstance(link, LinkedGpu)
    with open_change(parts, "attach"):
        record = _find(parts, attachment)  # it may have been detached meanwhile
        if record.claim != part:
            parts.store.save_attachment(replace(record, claim=part))
        parts.leases.hold(part, ClaimUser.of_record(record))
    peer = read_peers(parts.state_dir)[link.host]
    write_peer(directory / LINK_DIRECTORY, peer)
    return peer


def release_late(parts: Parts, attachment: str, dialer: ProcessId | None = None) -> None:
    """Ends the lease of an attachment, whose last program has ended; and what its dialer waits for. Nothing where it
    has none, or is gone. Raises PoolStoreError.
    """
    with open_change(parts, "attach"):
        for record in parts.store.list_attachments():
            part = record.claim
            if record.id != attachment or part is None or not part.late:
                continue
            if dialer is not None and not part.is_bound:
                parts.leases.unbind(part.name, dialer, parts.boot_id)
            if part.is_bound:
                parts.leases.release(part, attachment)
                unbound = replace(part, host="", token=0)
                parts.store.save_attachment(replace(record, claim=unbound))


def release_unused(parts: Parts, attachments: Collection[str]) -> None:
    """The same for each of these that has a lease, and no program."""
    for record in parts.store.list_attachments():
        if record.id in attachments and record.claim is not None and record.claim.is_bound:
            status = parts.channels.read_status(record.id)
            if status is None or not status.lanes:
                release_late(parts, record.id)


def _find(parts: Parts, attachment: str) -> AttachmentRecord:
    """Raises NotAttachedError."""
    for record in parts.store.list_attachments():
        if record.id == attachment and record.claim is not None and record.claim.late:
            return record
    raise NotAttachedError(f"there is no attachment {attachment} whose claim binds late")
