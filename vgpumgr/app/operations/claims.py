"""Attachments by a claim of a pool: what its lease gives, and what the store says of attachments that are gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vgpumgr.app.context import Parts
from vgpumgr.app.documents.operations import ActionDocument, PoolSeenDocument
from vgpumgr.app.transactions import open_change
from vgpumgr.errors import UsageError, VgpumgrError
from vgpumgr.model.attachment import ClaimPart
from vgpumgr.model.choices import Backend, BackendChoice
from vgpumgr.model.request import AttachRequest
from vgpumgr.model.shares import make_share
from vgpumgr.state.leases import ClaimUser, LeasedGpu

#: all of a GPU, where it cannot be passed through
_ALL = "share:1/1"


def resolve_claim(parts: Parts, request: AttachRequest) -> tuple[AttachRequest, ClaimPart | None]:
    """The request with the profile and the GPU that its claim gives; without a claim as it is. Raises UsageError for
    options that contradict the claim, and what ``Leases.find`` raises.
    """
    _check_options(request)
    if request.claim is None:
        return request, None
    leased = parts.leases.find(request.claim)
    profile = choose_profile(parts, leased, request.backend)
    return replace(request, profile=profile, gpu=leased.gpu), leased.part


def _check_options(request: AttachRequest) -> None:
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


def choose_profile(parts: Parts, leased: LeasedGpu, backend: str) -> str:
    """The profile that gives what a lease reserves: a share of the GPU. All of a GPU is ``passthrough`` where the GPU
    has an IOMMU group, and else ``share:1/1``; a backend that was asked for decides that instead.
    """
    if leased.memory_bytes is not None and leased.compute_percent is not None:
        return str(make_share(leased.memory_bytes, leased.compute_percent))
    if backend != BackendChoice.AUTO:
        return _ALL if backend == Backend.FORWARD else "passthrough"
    return "passthrough" if _has_iommu_group(parts, leased.gpu) else _ALL


def _has_iommu_group(parts: Parts, uuid: str) -> bool:
    """Also of a GPU that NVML does not see any more, because it was bound away."""
    addresses = {gpu.pci for gpu in parts.read_inventory().gpus if str(gpu.uuid) == uuid}
    addresses |= {one.address for one in parts.pci.list_bindings() if one.gpu_uuid == uuid}
    return any(
        function.address in addresses and function.group is not None
        for function in parts.pci.list_functions()
    )


def recover_uses(parts: Parts) -> list[ActionDocument]:
    """See ``recover_claims``; what the daemon does when the store answers again. Raises as ``open_change``."""
    with open_change(parts, "recover"):
        return recover_claims(parts)


def recover_claims(parts: Parts) -> list[ActionDocument]:
    """Releases claims that the store calls used by an attachment that is not here, and holds those again that an
    attachment has and the store does not know of. The caller holds the machine's lock, and has rebuilt lost records.
    """
    records = {record.id: record for record in parts.store.list_attachments()}
    claims = [record for record in records.values() if record.claim is not None]
    try:
        uses = parts.leases.list_uses()
    except VgpumgrError as error:
        if not claims:
            return []
        text = f"not compared with what the pool's store has: {error}"
        return [ActionDocument(subject="claims", text=text, done=False)]
    held = {use.user.attachment for use in uses}
    gone = [use for use in uses if use.user.attachment not in records]
    found = [
        _try(
            f"claim {use.part.name}",
            f"released it: {use.user.noun} {use.user.name} has no attachment {use.user.attachment} here",
            lambda use=use: parts.leases.release(use.part, use.user.attachment),  # type: ignore[misc]
        )
        for use in gone
    ]
    for record in claims:
        part = record.claim
        if part is not None and record.id not in held:
            found.append(
                _try(
                    f"claim {part.name}",
                    f"holds it for {record.holder} again",
                    lambda part=part, record=record: parts.leases.hold(  # type: ignore[misc]
                        part, ClaimUser.of_record(record)
                    ),
                )
            )
    return found


def _try(subject: str, text: str, act: Callable[[], None]) -> ActionDocument:
    try:
        act()
    except VgpumgrError as error:
        text = f"not repaired: {error}{f': {error.why}' if error.why else ''}"
        return ActionDocument(subject=subject, text=text, done=False)
    return ActionDocument(subject=subject, text=text, done=True)


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
    )
