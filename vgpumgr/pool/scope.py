"""A pool as one of its tenants may see it."""

from __future__ import annotations

import re

from vgpumgr.pool.control.records import View
from vgpumgr.pool.membership import Pool


class TenantPool(Pool):
    """A pool of which one tenant's claims alone can be named and listed. The scheduler sees all of them."""

    def __init__(self, pool: Pool, tenant: str) -> None:
        super().__init__(pool.membership, pool.store, pool.where, pool.clock, pool.machine)
        self._pool = pool
        self._tenant = tenant

    def view(self) -> View:
        """See ``Pool``."""
        return self._pool.view().for_tenant(self._tenant)


_CLAIMS = re.compile(r"\bclaims? ([a-z0-9][\w.-]*(?:, [a-z0-9][\w.-]*)*)")
_RESERVED = re.compile(r"\breserved for (.+?) from ([^()]*?) \([^()]*\)")


def hide_others(view: View, text: str) -> str:
    """A reason without the claims, tenants and reservations of others, where the view is a tenant's."""
    own = view.list_own_claims()

    def hide_claims(found: re.Match[str]) -> str:
        names = found[1].split(", ")
        known = [name for name in names if name in own or name not in view.claims]
        return (
            found[0]
            if len(known) == len(names)
            else ", ".join([*(f"claim {one}" for one in known), "another claim"])
        )

    def hide_holder(found: re.Match[str]) -> str:
        return (
            found[0]
            if found[1] == f"tenant {view.scope}"
            else f"reserved for others from {found[2]}"
        )

    if view.scope is None:
        return text
    return _RESERVED.sub(hide_holder, _CLAIMS.sub(hide_claims, text))
