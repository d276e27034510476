"""Steps on claims of a pool: an attachment has its slice by one, and gives that back. The lease itself stays."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, Self

from vgpumgr.engine.step import PRIVATE, SHOWN_AS_ATTACHMENT, NothingDoneError, OneWayStep, Step
from vgpumgr.errors import PoolOutcomeError, VgpumgrError
from vgpumgr.model.attachment import AttachmentRecord, ClaimPart
from vgpumgr.model.frozen import dataclass
from vgpumgr.state.leases import ClaimUser
from vgpumgr.steps.record import has_left

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


@dataclass(frozen=True)
class _ClaimStep(Step):
    """The claim, and the attachment that it is about."""

    claim: str
    host: str
    token: int
    id: str = field(metadata=SHOWN_AS_ATTACHMENT)
    #: of the lease's GPUs
    number: int = 0
    #: this host, where the lease is on another one
    via: str = field(default="", metadata=PRIVATE)

    @property
    def part(self) -> ClaimPart:
        """The claim as the attachment's record has it."""
        return ClaimPart(self.claim, self.host, self.token, self.number, self.via)

    @classmethod
    def of_record(cls, record: AttachmentRecord) -> Self:
        """The step of an attachment that has its slice by a claim."""
        part = record.claim
        assert part is not None
        return cls(part.name, part.host, part.token, record.id, part.number, part.via)

    def _release(self, context: OperationContext) -> None:
        """A store that cannot be asked holds up nothing: what it says of an attachment that is gone is removed by
        ``recover``.
        """
        try:
            context.leases.release(self.part, self.id)
        except VgpumgrError as error:
            context.notes.append(
                f"claim {self.claim} may still count as in use "
                f"({': '.join(filter(None, (error.error, error.cause)))}): vgpumgr recover releases it"
            )


@dataclass(frozen=True)
class HoldClaim(_ClaimStep):
    """Writes into the pool's store that the attachment has its slice by the claim's lease. It comes after the
    attachment's record, so that what the store says is always of an attachment that is known here.
    """

    kind: ClassVar[str] = "claim.hold"
    is_account: ClassVar[bool] = True

    def describe(self) -> str:
        """For people."""
        return f"hold claim {self.claim} for attachment {self.id}"

    def do(self, context: OperationContext) -> None:
        """Writes it, while the lease is the one that was planned with. Raises ClaimInUseError, ClaimNotGrantedError,
        PoolStoreError.
        """
        try:
            context.leases.hold(self.part, ClaimUser.of_record(context.record))
        except PoolOutcomeError:
            raise  # it may be written
        except VgpumgrError as error:
            raise NothingDoneError(error) from error

    def undo(self, context: OperationContext) -> None:
        """Takes it back, unless a device is left that could not be taken back: another VM must not get it."""
        if not has_left(context):
            self._release(context)

    def observe(self, context: OperationContext) -> bool:
        """Whether the store says so. Raises PoolStoreError."""
        return context.leases.is_held(self.part, self.id)


@dataclass(frozen=True)
class ReleaseClaim(OneWayStep, _ClaimStep):
    """Removes from the pool's store that the attachment has its slice by the claim; it comes before the attachment is
    forgotten.
    """

    kind: ClassVar[str] = "claim.release"
    takes_back: ClassVar[tuple[str, ...]] = (HoldClaim.kind,)

    def describe(self) -> str:
        """For people."""
        return f"release claim {self.claim}, whose lease stays"

    def do(self, context: OperationContext) -> None:
        """Removes it, or says that recovery does."""
        self._release(context)

    def observe(self, context: OperationContext) -> bool:
        """Whether the store says nothing of it. Raises PoolStoreError."""
        return not context.leases.is_held(self.part, self.id)
