"""Callers that reach the daemon over a network: what they may do, and what proves who they are."""

from __future__ import annotations

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.routes import Role

#: what a token's role is called, and the role that it is
ROLE_NAMES = {
    "admin": Role.ROOT,
    "operator": Role.ADMIN,
    "viewer": Role.VIEWER,
    "tenant": Role.TENANT,
}


@dataclass(frozen=True, slots=True)
class NetworkCaller:
    """Who has proven a token, or a certificate that stands for one. Without ``id`` it has proven nothing."""

    address: str
    role: Role = Role.NONE
    #: the token's name
    name: str | None = None
    #: another token of the same name has another one
    id: str | None = None
    #: of the role tenant: whose claims it sees
    tenant: str | None = None
    #: of the web page, where it is in the token's place
    session: str | None = None

    def __str__(self) -> str:
        return f"token {self.name}" if self.name else f"a caller at {self.address}"
