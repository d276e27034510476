"""Who may do what: roles from peer credentials or, over the network, from a token; nothing else of a request counts."""

from __future__ import annotations

import grp
import os
from enum import IntEnum

from vgpumgr.errors import AccessDeniedError
from vgpumgr.host.sockets import Peer
from vgpumgr.model.callers import ROLE_NAMES
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.routes import FOR_PROCESSES, FOR_TENANTS, ROLES, Role

ADMIN_GROUP = "vgpumgr"
VIEWER_GROUP = "vgpumgr-ro"


class Rank(IntEnum):
    """A caller's priority for scarce slots. Each rank uses the slots that are not kept for higher ranks."""

    STRANGER = 0
    VIEWER = 1
    ADMIN = 2
    ROOT = 3


_RANKS = {
    Role.NONE: Rank.STRANGER,
    Role.TENANT: Rank.STRANGER,
    Role.VIEWER: Rank.VIEWER,
    Role.ADMIN: Rank.ADMIN,
    Role.ROOT: Rank.ROOT,
}
_NAMES = {role: name for name, role in ROLE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Access:
    """The policy: root, the daemon's own user and the administrators' group may change things. A caller over the
    network has the role of its token.
    """

    admin_uids: frozenset[int]
    admin_gid: int | None
    viewer_gid: int | None

    def find_role(self, peer: Peer | None) -> Role:
        """The caller's role; NONE for everybody who is not named."""
        if peer is None:
            return Role.NONE
        if peer.caller is not None:
            return peer.caller.role
        if peer.uid in self.admin_uids:
            return Role.ROOT
        if self.admin_gid in peer.groups:
            return Role.ADMIN
        return Role.VIEWER if self.viewer_gid in peer.groups else Role.NONE

    def find_rank(self, peer: Peer | None) -> Rank:
        """The caller's priority for scarce slots."""
        role = self.find_role(peer)
        if role is Role.ROOT and peer is not None and peer.caller is not None:
            return Rank.ADMIN  # what is kept for root no network reaches
        return _RANKS[role]

    def check(self, peer: Peer | None, needed: Role) -> Role:
        """The caller's role, if it suffices. Raises AccessDeniedError."""
        role = self.find_role(peer)
        if role >= needed > Role.NONE:
            return role
        if peer is not None and peer.caller is not None:
            raise AccessDeniedError(
                f"{peer} may not do this",
                why=f"its role is {_NAMES.get(role, 'none')}",
                hint="an administrator of that host: vgpumgr token create NAME --role ROLE",
            )
        who = str(peer) if peer else "an unknown caller"
        may = {Role.ROOT: "root"}.get(needed, f"root or group {ADMIN_GROUP}")
        may += f" or {VIEWER_GROUP}" if needed <= Role.VIEWER else ""
        raise AccessDeniedError(
            f"{who} may not do this", why=f"it takes {may}", hint="sudo vgpumgr ..."
        )

    def authorize(self, peer: Peer | None, operation: str) -> Role:
        """The caller's role, if it suffices for the operation. An operation without a row in the table of routes is
        refused to every caller. Raises AccessDeniedError.
        """
        needed = ROLES.get(operation, Role.NONE)
        if needed is Role.NONE:
            raise AccessDeniedError(f"no role is declared for {operation}: the daemon refuses it")
        if operation in FOR_TENANTS and self.find_role(peer) is Role.TENANT:
            return Role.TENANT
        if operation in FOR_PROCESSES and peer is not None and peer.caller is not None:
            raise AccessDeniedError(
                f"{peer} may not do this", why="it is for processes of the daemon's own host"
            )
        return self.check(peer, needed)


def find_scope(peer: Peer | None) -> str | None:
    """The tenant whose claims alone a caller sees; None: all. Raises AccessDeniedError for a tenant without a name,
    which would see all.
    """
    if peer is None or peer.caller is None or peer.caller.role > Role.TENANT:
        return None
    if not peer.caller.tenant:
        raise AccessDeniedError(f"{peer} may not do this", why="it is of no tenant")
    return peer.caller.tenant


def read_access() -> Access:
    """The policy of this host."""
    return Access(frozenset({0, os.geteuid()}), _find_group(ADMIN_GROUP), _find_group(VIEWER_GROUP))


def _find_group(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
