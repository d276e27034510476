"""Waiting for a guest, or for QEMU, to let go of a device of the host."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.errors import ReleasePendingError

#: QEMU closes its devices a moment after libvirt has told that they are gone
RELEASE_TIMEOUT_S = 15.0


def make_release_pending(what: str, held_by: Sequence[str] = ()) -> ReleasePendingError:
    """The error of a detach that waits for the guest."""
    return ReleasePendingError(
        what,
        why="nothing is lost: it stays the VM's, and goes as soon as the guest lets go or stops: the "
        "daemon does that by itself, and so does the next command that changes something",
        held_by=held_by,
        hint="shut the VM down; without the daemon, vgpumgr recover afterwards",
    )
