"""GPUs that a pool has leased: what is attached without a claim leaves them alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Self

from vgpumgr.errors import GpuLeasedError
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Drain, Gpu
from vgpumgr.model.pci import PciAddress
from vgpumgr.planning.drift import Drift, DriftKind, make_drift
from vgpumgr.state.leases import SeenPool


@dataclass(frozen=True, slots=True)
class PoolDrain(Drain):
    """A GPU that takes no slice but by a claim: it is leased."""

    claims: tuple[str, ...] = ()

    @classmethod
    def make(cls, address: PciAddress, uuid: str, claims: Sequence[str]) -> Self:
        """Of the GPU at an address."""
        return cls(address, uuid, "the pool", None, claims=tuple(claims))

    def describe_end(self, gpu: object) -> str:  # noqa: ARG002
        """See ``Drain``."""
        return f"vgpumgr attach VM --claim {self.claims[0]}, or another GPU"

    def __str__(self) -> str:
        noun = "claim" if len(self.claims) == 1 else "claims"
        return f"leased by the pool to {noun} {', '.join(self.claims)}"


def explain_leased(
    refusal: str, names: Collection[str], drains: Sequence[PoolDrain], others: Sequence[str] = ()
) -> GpuLeasedError:
    """The refusal where no GPU is left that the pool has not leased; it begins with ``refusal``. ``others`` says why
    the rest takes nothing.
    """
    state = f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} leased by the pool"
    return GpuLeasedError(
        f"{refusal}: {state}" if refusal else state,
        why="; ".join(
            ["what is attached without a claim would take what a lease reserves", *others]
        ),
        held_by=[f"claim {claim}" for claim in dict.fromkeys(c for d in drains for c in d.claims)],
        hint=drains[0].describe_end(None),
    )


def list_leased(seen: SeenPool | None) -> Mapping[str, Sequence[str]]:
    """The claims that have leases of each GPU of this host, by its UUID."""
    found: dict[str, list[str]] = {}
    for lease in seen.leases if seen else ():
        for gpu in lease.gpus:
            found.setdefault(gpu, []).append(lease.claim)
    return found


def make_drains(gpus: Sequence[Gpu], leased: Mapping[str, Sequence[str]]) -> Iterator[PoolDrain]:
    """Of each of these GPUs that is leased."""
    for gpu in gpus:
        if claims := leased.get(str(gpu.uuid)):
            yield PoolDrain.make(gpu.pci, str(gpu.uuid), claims)


def find_claim_drift(record: AttachmentRecord, seen: SeenPool | None) -> Iterator[Drift]:
    """That the lease by which an attachment has its slice is gone, or another one. Nothing while the store does not
    answer: then the lease is as it was. A host that the pool does not have any more has no leases.
    """
    claim = record.claim
    if claim is None or seen is None or not (seen.is_answering or seen.is_removed):
        return
    if claim.via:
        yield from _find_link_drift(record, seen)
        return
    lease = seen.find_lease(claim.name)
    if seen.host != claim.host:
        text = (
            f"claim {claim.name}, by which it was attached, had its lease on host {claim.host} of the pool, and this "
            f"is host {seen.host} now"
        )
    elif lease is None:
        text = f"claim {claim.name}, by which it was attached, has no lease on this host any more"
    elif lease.is_ending:
        text = f"claim {claim.name}, by which it was attached, is being deleted"
    elif lease.token != claim.token:
        text = (
            f"claim {claim.name} was granted anew (token {lease.token}), and it was attached by the grant before "
            f"(token {claim.token})"
        )
    else:
        return
    hint = f"vgpumgr detach {record.vm_word} --attachment {record.id}"
    yield make_drift(record, DriftKind.CLAIM_LOST, text, hint)


def _find_link_drift(record: AttachmentRecord, seen: SeenPool) -> Iterator[Drift]:
    """The same of an attachment whose GPU is another host's, and that that host is there."""
    claim = record.claim
    assert claim is not None
    found = next((one for one in seen.links if one.attachment == record.id), None)
    if found is None or found.host != claim.host:
        return  # no process that follows links has seen it yet
    hint = f"vgpumgr detach {record.vm_word} --attachment {record.id}"
    if found.token is None:
        text = f"claim {claim.name}, by which it was attached, has no lease on host {claim.host} any more"
        yield make_drift(record, DriftKind.CLAIM_LOST, text, hint)
    elif found.token != claim.token:
        text = (
            f"claim {claim.name} was granted anew on host {claim.host} (token {found.token}), and it was attached by "
            f"the grant before (token {claim.token})"
        )
        yield make_drift(record, DriftKind.CLAIM_LOST, text, hint)
    elif not found.is_heard:
        text = f"host {claim.host}, whose GPU it has, is not heard"
        yield make_drift(record, DriftKind.LINK_DOWN, text, "vgpumgr pool status")
    elif not found.is_offered:
        text = f"host {claim.host}, whose GPU it has, offers none over the network now"
        yield make_drift(record, DriftKind.LINK_DOWN, text, f"vgpumgr status, on host {claim.host}")
