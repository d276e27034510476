"""Who owns which MIG instance: declared here, supplied by whoever remembers attachments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vgpumgr.model.slice import SliceOwner


class OwnerProvider(Protocol):
    """Knows the attachments of a machine."""

    def list_owners(self) -> Sequence[SliceOwner]:
        """One entry for each MIG slice that is recorded as some VM's."""


class NoOwners:
    """Where nothing is remembered, nobody owns anything."""

    def list_owners(self) -> Sequence[SliceOwner]:
        """Always empty."""
        return ()
