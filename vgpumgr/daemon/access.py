"""Who may do what: roles from peer credentials, nothing from the request itself."""

from __future__ import annotations

import grp
import os
from dataclasses import dataclass

from vgpumgr.errors import AccessDeniedError
from vgpumgr.host.peer import Peer
from vgpumgr.model.routes import Role

ADMIN_GROUP = "vgpumgr"
VIEWER_GROUP = "vgpumgr-ro"


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


def read_access() -> Access:
    """The policy of this host."""
    return Access(frozenset({0, os.geteuid()}), _find_group(ADMIN_GROUP), _find_group(VIEWER_GROUP))


def _find_group(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
