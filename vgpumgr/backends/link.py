"""``link``: CUDA calls of the guest are forwarded to another host of the pool, whose GPU a claim's lease reserves.

On this host there is the channel only, with a relay in the place of the worker; slice, quotas and shares are that
host's. It is chosen by the lease, and never by a profile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from vgpumgr.backends.base import Restored, Target, Wanted
from vgpumgr.backends.forward import ChannelGrant, ForwardBackend, observe_live_parts
from vgpumgr.backends.slices import Slice
from vgpumgr.engine.step import Step
from vgpumgr.errors import BackendUnsupportedError, UsageError
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, ChannelPart
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.choices import BackendChoice, Transport
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.request import AttachRequest, ProfileRequest
from vgpumgr.model.shares import make_share
from vgpumgr.planning.drift import Drift, DriftKind, make_drift
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.state.leases import LeasedGpu, LinkedGpu

#: all of a GPU
WHOLE = "share:1/1"


@dataclass(frozen=True, slots=True)
class LinkSlice(Slice):
    """A slice of a GPU of another host."""

    leased: LeasedGpu
    link: LinkedGpu

    @property
    def gpu(self) -> Gpu:
        """See ``Slice``: it is not this host's."""
        raise AssertionError("a GPU of another host")

    @property
    def profile(self) -> str:
        """See ``Slice``."""
        memory, percent = self.leased.memory_bytes, self.leased.compute_percent
        return WHOLE if memory is None or percent is None else str(make_share(memory, percent))

    @property
    def memory_bytes(self) -> int:
        """See ``Slice``."""
        memory = self.leased.memory_bytes
        return self.link.memory_bytes if memory is None else memory

    @property
    def why(self) -> str:
        """See ``Slice``."""
        if not self.link.host:
            return "GPU of the host where the lease is, over TCP with TLS 1.3, from the first CUDA call on"
        return (
            f"GPU of host {self.link.host}, over TCP with TLS 1.3: no transport by shared memory "
            "reaches another host"
        )

    @property
    def parts(self) -> dict[str, Any]:
        """See ``Slice``: this host accounts for nothing."""
        return {}

    def list_steps(self) -> list[Step]:
        """See ``Slice``: the other host makes it when the first program connects."""
        return []

    def describe(self, transport: Transport) -> dict[str, Any]:
        """See ``Slice``."""
        return {"transport": str(transport), "gpu_index": None, "placement": None}


def make_link_slice(leased: LeasedGpu) -> LinkSlice:
    """The slice of a lease on another host."""
    assert leased.link is not None
    return LinkSlice(leased, leased.link)


def make_link_channel(
    request: AttachRequest, qemu_owner: tuple[int, int] | None = None
) -> ChannelPart:
    """What a record keeps of the channel: its limits are the other host's."""
    return ChannelPart(request.transport, qemu_owner, (), request.allow_unconfined)


def check_link(request: AttachRequest) -> None:
    """Raises BackendUnsupportedError, UsageError for what is not there over a link."""
    if request.backend not in (BackendChoice.AUTO, BackendName.FORWARD, BackendName.LINK):
        raise BackendUnsupportedError(
            f"cannot attach claim {request.claim} by backend {request.backend}",
            why="its lease is on another host, and only calls are forwarded between hosts",
            hint="the same without --backend",
        )
    for option, is_given in (
        ("--limit", bool(request.limits)),
        ("--compute-policy", request.compute_policy is not None),
        ("--priority", request.priority is not None),
    ):
        if is_given:
            raise UsageError(
                f"{option} is not for a GPU of another host",
                why="that host keeps to what the claim's lease reserves",
                hint="the size of the claim: vgpumgr claim resize",
            )


class LinkBackend(ForwardBackend):
    """A slice of another host of the pool, by a claim whose lease is there."""

    name = BackendName.LINK
    auto_note = None

    def match(self, profile: ProfileRequest) -> bool:  # noqa: ARG002
        """See ``Backend``: the lease chooses it."""
        return False

    def check_profile(self, wanted: Wanted, snapshot: Snapshot) -> None:
        """See ``Backend``: the GPU is not this host's."""

    def choose(self, wanted: Wanted, target: Target, snapshot: Snapshot) -> Sequence[LinkGrant]:  # noqa: ARG002
        """See ``Backend``: ``check_link`` was asked already."""
        takes = observe_live_parts(wanted.request, target.vm)
        chosen = [make_link_slice(leased) for leased in target.leased]
        return [
            LinkGrant(
                backend=BackendName.LINK,
                profile=one.profile,
                why=one.why,
                gpu=None,
                memory_bytes=one.memory_bytes,
                request=wanted.request,
                slice=one,
                paths=new.paths,
                takes=takes,
            )
            for one, new in zip(chosen, target.names, strict=True)
        ]

    def restore(self, record: AttachmentRecord, snapshot: Snapshot) -> Restored | None:  # noqa: ARG002
        """See ``Backend``."""
        if record.state is not AttachmentState.ATTACHED:
            return None
        return Restored(record, starts_channel=True)

    def drift(self, record: AttachmentRecord, snapshot: Snapshot) -> Iterator[Drift]:
        """See ``Backend``."""
        status = snapshot.statuses.get(record.id)
        if status is None:
            text = "its keeper does not run"
            yield make_drift(record, DriftKind.KEEPER_GONE, text, "vgpumgr recover")
        elif status.worker_failed:
            text = f"its relay does not start: {status.problem or 'it ends again and again'}"
            yield make_drift(record, DriftKind.WORKER_DOWN, text, "vgpumgr recover")

    def has_all(self, record: AttachmentRecord, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """See ``Backend``."""
        return True

    def leave_out(self, record: AttachmentRecord, snapshot: Snapshot) -> Snapshot:  # noqa: ARG002
        """See ``Backend``."""
        return snapshot


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LinkGrant(ChannelGrant):
    """The channel to a slice of another host."""

    @property
    def parts(self) -> dict[str, Any]:
        """See ``DeviceGrant``."""
        return {"channel": make_link_channel(self.request)}
