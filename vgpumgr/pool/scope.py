"""A pool as one of its tenants may see it."""

from __future__ import annotations

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
