"""Attachments by a claim of a pool: what its lease gives, and what the store says of attachments that are gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from vgpumgr.app.context import Parts
from vgpumgr.app.documents.operations import ActionDocument, PoolSeenDocument
from vgpumgr.app.documents.pool import ClaimNoticeDocument
from vgpumgr.app.transactions import open_change
from vgpumgr.backends.link import check_link, make_link_slice
from vgpumgr.domain.devices import attachment_of
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.errors import ClaimInUseError, PoolStoreError, UsageError, VgpumgrError
from vgpumgr.host.clock import SleeplessClock
from vgpumgr.model.attachment import GRACE_S, AttachmentRecord, AttachmentState
from vgpumgr.model.choices import Backend, BackendChoice
from vgpumgr.model.request import AttachRequest
from vgpumgr.model.shares import make_share
from vgpumgr.state.leases import ClaimUse, ClaimUser, LeasedGpu
from vgpumgr.virtio.links import read_listen

#: so much later than the command ends its program, the host ends what is left: seconds
_RUN_MARGIN_S = 15.0
#: all of a GPU, where it cannot be passed through
_ALL = "share:1/1"


def resolve_claim(
    parts: Parts, request: AttachRequest, *, may_wait: bool = False
) -> tuple[AttachRequest, Sequence[LeasedGpu]]:
    """The request with the profile that its claim gives, and the first of its GPUs; and all of them. Without a claim it
    is as it is, and there are none. ``may_wait``: a claim that binds late may have its lease later. Raises UsageError
    for options that contradict the claim, and what ``Leases.find`` raises.
    """
    check_options(request)
    if request.claim is None:
        return request, ()
    leased = parts.leases.find(request.claim, may_wait=may_wait)
    if leased[0].link is not None:
        check_link(request)
        profile = make_link_slice(leased[0]).profile
        return replace(request, profile=profile, backend=BackendChoice.AUTO), leased
    profile = choose_profile(parts, leased, request.backend)
    return replace(request, profile=profile, gpu=leased[0].gpu), leased


def check_options(request: AttachRequest) -> None:
    """Asks no store. Raises UsageError for options that contradict the claim, and where nothing says what is wanted."""
    if request.claim is None:
        if not request.profile:
            raise UsageError(
                "the profile is empty, and no claim says what it gets",
                hint="--profile PROFILE, or --claim CLAIM",
            )
        return
    for option, is_given in (
        ("--profile", bool(request.profile)),
        ("--gpu", request.gpu is not None),
        ("--count", request.count != 1),
    ):
        if is_given:
            raise UsageError(
                f"--claim and {option} contradict each other",
                why="the claim's lease says what it gets, and of which GPU",
                hint=f"--claim {request.claim} alone",
            )


def choose_profile(parts: Parts, leased: Sequence[LeasedGpu], backend: str) -> str:
    """The profile that gives what a lease reserves of each GPU: a share of it. All of a GPU is ``passthrough`` where
    each has an IOMMU group, and else ``share:1/1``; a backend that was asked for decides that instead.
    """
    memory_bytes, percent = leased[0].memory_bytes, leased[0].compute_percent
    if memory_bytes is not None and percent is not None:
        return str(make_share(memory_bytes, percent))
    if backend != BackendChoice.AUTO:
        return _ALL if backend == Backend.FORWARD else "passthrough"
    return "passthrough" if all(_has_iommu_group(parts, one.gpu) for one in leased) else _ALL


def _has_iommu_group(parts: Parts, uuid: str) -> bool:
    """Also of a GPU that NVML does not see any more, because it was bound away."""
    addresses = {gpu.pci for gpu in parts.read_inventory().gpus if str(gpu.uuid) == uuid}
    addresses |= {one.address for one in parts.pci.list_bindings() if one.gpu_uuid == uuid}
    return any(
        function.address in addresses and function.group is not None
        for function in parts.pci.list_functions()
    )


def recover_uses(parts: Parts) -> list[ActionDocument]:
    """See ``recover_claims``; what the daemon does when the store answers again. Raises as ``open_change``, and
    PoolStoreError where the store does not answer after all: then it comes back.
    """
    with open_change(parts, "recover"):
        return recover_claims(parts, strict=True)


def recover_claims(
    parts: Parts, *, dry_run: bool = False, rebuilt: Collection[str] = (), strict: bool = False
) -> list[ActionDocument]:
    """Releases claims that the store calls used by an attachment that is not here, and holds those again that an
    attachment has and the store does not know of, or knows by its VM's name of before. The caller holds the machine's
    lock, and has rebuilt lost records; in a dry run ``rebuilt`` are the ids of those that would be. Where the store
    does not answer it raises PoolStoreError with ``strict``, and else says so.
    """
    records = {record.id: record for record in parts.store.list_attachments()}
    claims = [one for one in records.values() if one.claim is not None and not one.claim.late]
    if dry_run:  # one that is half attached is undone before
        claims = [record for record in claims if record.state is AttachmentState.ATTACHED]
    try:
        uses = parts.leases.list_uses()
    except VgpumgrError as error:
        if strict:
            raise
        if not claims and parts.leases.read_seen() is None:
            return []  # it has never served: no claim was used here
        text = f"not compared with what the pool's store has: {error}"
        return [ActionDocument(subject="claims", text=text, done=False)]
    known = {*records, *rebuilt}
    found = [
        _release(parts, use, dry_run, strict) for use in uses if use.user.attachment not in known
    ]
    users = {use.user.attachment: use.user for use in uses}
    found += [
        _hold(parts, record, users.get(record.id), dry_run, strict)
        for record in claims
        if users.get(record.id) != ClaimUser.of_record(record)
    ]
    return found


def _release(parts: Parts, use: ClaimUse, dry_run: bool, strict: bool) -> ActionDocument:
    user = use.user

    def release() -> None:
        # a VM's metadata may have what the record was, and its domain the devices
        vms = parts.hypervisor.list_vms() if user.noun == "vm" else ()
        if any(_has(vm, user.attachment) for vm in vms):
            raise ClaimInUseError(
                f"attachment {user.attachment} is in the definition or the metadata of vm {user.name}, and not recorded"
            )
        # a dry run has not stopped the channels that no attachment has
        if not dry_run and user.attachment in parts.channels.list_ids():
            raise ClaimInUseError(
                f"attachment {user.attachment} of {user.noun} {user.name} has a channel, and it is not recorded"
            )
        if not dry_run:
            parts.leases.release(use.part, user.attachment)

    text = f"released it: {user.noun} {user.name} has no attachment {user.attachment} here"
    return _try(f"claim {use.part.name}", text, release, strict)


def _has(vm: Vm, attachment: str) -> bool:
    definitions = [one for one in (vm.live, vm.config) if one is not None]
    aliases = [alias for one in definitions for alias in one.own_aliases()]
    return vm.find_note(attachment) is not None or attachment in map(attachment_of, aliases)


def _hold(
    parts: Parts, record: AttachmentRecord, known: ClaimUser | None, dry_run: bool, strict: bool
) -> ActionDocument:
    """``known``: what the store says of the attachment."""
    part = record.claim
    assert part is not None
    text = f"holds it for {record.holder} again"
    if known is not None:
        text = f"the pool's store names {record.holder} now, and not {known.noun} {known.name}"

    def hold() -> None:
        if not dry_run:
            parts.leases.hold(part, ClaimUser.of_record(record))

    return _try(f"claim {part.name}", text, hold, strict)


def _try(subject: str, text: str, act: Callable[[], None], strict: bool) -> ActionDocument:
    try:
        act()
    except VgpumgrError as error:
        if strict and isinstance(error, PoolStoreError):
            raise
        text = f"not repaired: {error}{f': {error.why}' if error.why else ''}"
        return ActionDocument(subject=subject, text=text, done=False)
    return ActionDocument(subject=subject, text=text, done=True)


def read_notice(parts: Parts, claim: str) -> ClaimNoticeDocument:
    """Whether the lease that a claim has on this host ends, as the process that serves knows it. Waits for no store."""
    seen = parts.leases.read_seen()
    lease = None if seen is None else seen.find_lease(claim)
    return ClaimNoticeDocument(
        claim=claim,
        ending=lease is not None and lease.is_ending,
        notice=(lease.notice or None) if lease else None,
        grace_s=GRACE_S,
    )


def list_over(
    parts: Parts, records: Sequence[AttachmentRecord]
) -> list[tuple[AttachmentRecord, str]]:
    """The attachments whose leases are to end for longer than the grace, and why. Waits for no store."""
    seen, now_s = parts.leases.read_seen(), SleeplessClock().monotonic_s()
    found = []
    for record in records if seen else ():
        lease = seen.find_lease(record.claim.name) if seen and record.claim else None
        if (
            lease is None
            or lease.ending_since_s is None
            or record.state is not AttachmentState.ATTACHED
        ):
            continue
        # after a boot that clock begins anew
        past_s = now_s - lease.ending_since_s
        grace_s = GRACE_S + (_RUN_MARGIN_S if record.run is not None else 0.0)
        if not 0 <= past_s < grace_s:
            found.append(
                (
                    record,
                    f"the lease of claim {lease.claim} ends: {lease.notice or 'it is deleted'}",
                )
            )
    return found


def describe_pool(parts: Parts) -> PoolSeenDocument | None:
    """The pool as this host knew it last; None where it is in none, or has not served. Waits for no store."""
    seen = parts.leases.read_seen()
    if seen is None:
        return None
    return PoolSeenDocument(
        host=seen.host,
        server=parts.leases.read_server(),
        answers=seen.is_answering,
        text=seen.text,
        since_s=seen.since_s,
        leases=len(seen.leases),
        listens=list(read_listen(parts.run_dir)),
    )
