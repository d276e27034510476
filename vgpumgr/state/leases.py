"""What an operation may ask of the pool of this host: what a claim reserves here, and that an attachment has it.

Implemented by ``pool.leases``, and given into operations: steps and planners know no pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, Protocol

from vgpumgr.errors import ClaimUnusableError, PoolNotFoundError
from vgpumgr.host.process import ProcessId
from vgpumgr.model.attachment import AttachmentRecord, ClaimPart
from vgpumgr.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class LinkedGpu:
    """The GPU of a lease on another host, which offers it over the network at these addresses. ``model`` is empty, and
    the memory 0, where the lease begins with the first call.
    """

    host: str
    model: str
    memory_bytes: int
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeasedGpu:
    """What a claim's lease reserves: of one GPU so much memory, in bytes, and percent of its time; None of both: all of
    it. ``link``: on another host.
    """

    part: ClaimPart
    gpu: str
    memory_bytes: int | None
    compute_percent: float | None
    link: LinkedGpu | None = None


@dataclass(frozen=True, slots=True)
class BoundClaim:
    """A claim's state, and while it waits its place in the queue and why."""

    is_late: bool
    #: by a controller of the pool
    is_answered: bool
    state: str
    place: int | None
    why: str | None


def refuse_several(claim: str, gpus: int) -> ClaimUnusableError:
    """A command runs by a claim of one GPU only."""
    return ClaimUnusableError(
        f"no command can run by claim {claim}",
        why=f"it has {gpus} GPUs, and a command has one slice",
        hint="a claim of one GPU",
    )


@dataclass(frozen=True, slots=True)
class ClaimUser:
    """An attachment that has its slice by a claim."""

    #: ``vm`` or ``run``
    noun: str
    name: str
    uuid: str
    attachment: str

    @classmethod
    def of_record(cls, record: AttachmentRecord) -> ClaimUser:
        """The attachment of a record."""
        return cls(record.noun, record.vm_name, record.vm_uuid, record.id)


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """What another host's attachment wants to use: ``claim``, whose lease is on this host."""

    host: str
    claim: str
    attachment: str


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """What the pool's store says of a claim that an attachment of this host uses."""

    part: ClaimPart
    user: ClaimUser


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease of this host, as it was read last. ``gpus`` are UUIDs. ``notice`` says that it ends, and why;
    ``ending_since_s`` by CLOCK_BOOTTIME since when it is to end.
    """

    claim: str
    token: int
    gpus: tuple[str, ...]
    is_ending: bool = False
    tenant: str = ""
    #: of each GPU, in thousandths, and its memory and percent of its time; None of both: all of it
    milli: int = 0
    memory_bytes: int | None = None
    compute_percent: float | None = None
    notice: str = ""
    ending_since_s: float | None = None
    IGNORES_UNKNOWN: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class SeenWait:
    """A claim that waits. ``since_s`` is of the clock that counts from the boot, when it was seen to wait."""

    claim: str
    tenant: str
    since_s: float
    why: str = ""
    IGNORES_UNKNOWN: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class SeenTenant:
    """What a tenant may have (None: no limit), has, and waits for; thousandths of GPUs. The tenant without a name has
    the claims that name none.
    """

    name: str
    quota_milli: int | None
    allocated_milli: int
    waiting: int
    oldest_since_s: float | None = None
    IGNORES_UNKNOWN: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class SeenQueue:
    """The queue of the pool and its tenants, as the process that leads sees them. Lists are bounded; ``count`` is how
    many claims wait in all, and ``hosts`` how many hosts are in each state.
    """

    boot: str
    waiting: tuple[SeenWait, ...] = ()
    tenants: tuple[SeenTenant, ...] = ()
    hosts: dict[str, int] = field(default_factory=dict)
    count: int = 0
    IGNORES_UNKNOWN: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class SeenLink:
    """What the pool said last of an attachment here whose GPU is another host's: the token of the lease there (None:
    there is none), and whether that host is heard and offers its GPUs.
    """

    attachment: str
    host: str
    token: int | None
    is_heard: bool
    is_offered: bool


@dataclass(frozen=True, slots=True)
class SeenPool:
    """The pool as the process that serves for this host knew it last. A file has it, so that nothing waits for the
    store which only shows it.
    """

    host: str
    #: what ``pool serve`` reports
    text: str
    #: since when it does, in seconds since 1970
    since_s: float
    #: whether the store answered
    is_answering: bool
    leases: tuple[SeenLease, ...] = ()
    #: of the store: an older answer is refused
    revision: int = 0
    #: whether the pool does not have this host any more, so that its leases are over
    is_removed: bool = False
    #: None: another host leads
    queue: SeenQueue | None = None
    #: of attachments whose GPUs are those of other hosts; empty in the file, which another process writes
    links: tuple[SeenLink, ...] = ()
    IGNORES_UNKNOWN: ClassVar[bool] = True

    def find_lease(self, claim: str) -> SeenLease | None:
        """The lease of a claim on this host."""
        return next((lease for lease in self.leases if lease.claim == claim), None)


class Leases(Protocol):
    """The leases of this host. What changes the store raises PoolStoreError where that does not answer."""

    def find(self, claim: str, *, may_wait: bool = False) -> Sequence[LeasedGpu]:
        """The GPUs that a claim reserves here, or on a host that offers them over the network, and nothing uses yet.
        ``may_wait``: the lease of a claim that binds late may begin with the first call, on such a host. Raises
        ClaimNotFoundError, ClaimNotGrantedError, ClaimUnusableError, ClaimInUseError, PoolNotFoundError,
        PoolMemberError, PoolStoreError.
        """

    def bind(self, claim: str, process: ProcessId, boot_id: str) -> BoundClaim:
        """Where the claim binds late, this process wants its lease from now on. How the claim is then. Raises
        ClaimNotFoundError, ClaimInUseError, ClaimNotGrantedError, PoolNotFoundError, PoolMemberError, PoolStoreError,
        and ClaimUnusableError for one by which no command can run: it would wait in vain.
        """

    def bind_linked(self, claim: str, process: ProcessId, boot_id: str) -> LeasedGpu | str:
        """The lease of a claim that binds late, for this process: on any host that it may be on and that offers its
        GPUs over the network. While it waits: why, in words; ask again. Raises as ``bind`` and ``find``.
        """

    def unbind(self, claim: str, process: ProcessId, boot_id: str) -> None:
        """This process wants the lease of a claim that binds late no more; nothing where that is used. Raises
        PoolStoreError.
        """

    def find_served(self, request: LinkRequest) -> tuple[LeasedGpu, ClaimUser]:
        """The GPU of this host that another host's attachment has, and whose it is. Raises as ``find``."""

    def hold(self, part: ClaimPart, user: ClaimUser) -> None:
        """Writes that an attachment has its slice by the claim; nothing where that is written. Raises as ``find``."""

    def release(self, part: ClaimPart, attachment: str) -> None:
        """Takes back what ``hold`` has written; the lease stays."""

    def is_held(self, part: ClaimPart, attachment: str) -> bool:
        """Whether the store says that this attachment uses the claim."""

    def list_uses(self) -> Sequence[ClaimUse]:
        """The claims that attachments of this host use; none where it is in no pool."""

    def read_seen(self) -> SeenPool | None:
        """See ``SeenPool``; None where no process has served, or this user cannot read it. Waits for nothing."""

    def read_server(self) -> str | None:
        """The process that serves for this host now, in words."""


class NoLeases:
    """Those of a host that is in no pool."""

    def find(self, claim: str, *, may_wait: bool = False) -> Sequence[LeasedGpu]:  # noqa: ARG002
        """See ``Leases``."""
        raise _refuse(claim)

    def bind(self, claim: str, process: ProcessId, boot_id: str) -> BoundClaim:  # noqa: ARG002
        """See ``Leases``."""
        raise _refuse(claim)

    def bind_linked(self, claim: str, process: ProcessId, boot_id: str) -> LeasedGpu | str:  # noqa: ARG002
        """See ``Leases``."""
        raise _refuse(claim)

    def unbind(self, claim: str, process: ProcessId, boot_id: str) -> None:
        """See ``Leases``: nothing is wanted."""

    def find_served(self, request: LinkRequest) -> tuple[LeasedGpu, ClaimUser]:
        """See ``Leases``."""
        raise _refuse(request.claim)

    def hold(self, part: ClaimPart, user: ClaimUser) -> None:  # noqa: ARG002
        """See ``Leases``."""
        raise _refuse(part.name)

    def release(self, part: ClaimPart, attachment: str) -> None:
        """See ``Leases``: nothing is held."""

    def is_held(self, part: ClaimPart, attachment: str) -> bool:  # noqa: ARG002
        """See ``Leases``."""
        return False

    def list_uses(self) -> Sequence[ClaimUse]:
        """See ``Leases``."""
        return ()

    def read_seen(self) -> SeenPool | None:
        """See ``Leases``."""
        return None

    def read_server(self) -> str | None:
        """See ``Leases``."""
        return None


def _refuse(claim: str) -> PoolNotFoundError:
    return PoolNotFoundError(
        f"no claim {claim}: this host is in no pool",
        hint="vgpumgr pool init, or vgpumgr pool join --etcd URL",
    )
