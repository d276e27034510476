"""What wants the leases of claims that bind late."""

from __future__ import annotations

from vgpumgr.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class WantRecord:
    """What wants the lease of a claim that binds late: a process of a host, while it runs; or anything there (None).
    ``where`` names the hosts that the lease may be on, where it need not be that of the process.
    """

    claim: str
    host: str
    pid: int | None = None
    #: of the process, and the boot that it belongs to: a number is given again
    start_ticks: int = 0
    boot: str = ""
    where: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its place in the store."""
        return want_key(self.claim)

    @property
    def holder(self) -> str:
        """For people."""
        process = "" if self.pid is None else f"process {self.pid} on "
        return f"{process}host {self.host}"


def want_key(claim: str) -> str:
    """The place of what wants a claim that binds late."""
    return f"p/want/{claim}"
