"""Who may do what: roles from peer credentials, nothing from the request itself."""

from __future__ import annotations

import grp
import os
from enum import IntEnum

from vgpumgr.errors import AccessDeniedError
from vgpumgr.host.sockets import Peer
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.routes import ROLES, Role

ADMIN_GROUP = "vgpumgr"
VIEWER_GROUP = "vgpumgr-ro"


class Rank(IntEnum):
    """A caller's priority for scarce slots. Each rank uses the slots that are not kept for higher ranks."""

    STRANGER = 0
    VIEWER = 1
    ADMIN = 2
    ROOT = 3


@dataclass(frozen=True, slots=True)
class Access:
    """The policy: root, the daemon's own user and the administrators' group may change things."""

    admin_uids: frozenset[int]
    admin_gid: int | None
    viewer_gid: int | None

    def find_role(self, peer: Peer | None) -> Role:
        """The caller's role; NONE for everybody who is not named."""
        if peer is None:
            return Role.NONE
        if peer.uid in self.admin_uids or self.admin_gid in peer.groups:
            return Role.ADMIN
        return Role.VIEWER if self.viewer_gid in peer.groups else Role.NONE

    def find_rank(self, peer: Peer | None) -> Rank:
        """The caller's priority for scarce slots."""
        if peer is not None and peer.uid in self.admin_uids:
            return Rank.ROOT
        return Rank(self.find_role(peer))

    def check(self, peer: Peer | None, needed: Role) -> Role:
        """The caller's role, if it suffices. Raises AccessDeniedError."""
        role = self.find_role(peer)
        if role >= needed > Role.NONE:
            return role
        who = f"user {peer.uid}" if peer else "an unknown caller"
        may = f"group {ADMIN_GROUP}" + (f" or {VIEWER_GROUP}" if needed is Role.VIEWER else "")
        raise AccessDeniedError(
            f"{who} may not do this", why=f"it takes root or {may}", hint="sudo vgpumgr ..."
        )

    def authorize(self, peer: Peer | None, operation: str) -> Role:
        """The caller's role, if it suffices for the operation. An operation without a row in the table of routes is
        refused to every caller. Raises AccessDeniedError.
        """
        needed = ROLES.get(operation, Role.NONE)
        if needed is Role.NONE:
            raise AccessDeniedError(f"no role is declared for {operation}: the daemon refuses it")
        return self.check(peer, needed)


def read_access() -> Access:
    """The policy of this host."""
    return Access(frozenset({0, os.geteuid()}), _find_group(ADMIN_GROUP), _find_group(VIEWER_GROUP))


def _find_group(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
