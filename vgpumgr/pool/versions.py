"""Versions of a pool's records: which programs serve it together, and what it has only once it is upgraded.

A program serves in a pool of its own version and of the one before. It writes there only what programs of that version
read, until an administrator says that none is left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vgpumgr.errors import PoolExistsError, PoolVersionError
from vgpumgr.pool.control.records import (
    POOL,
    VERSION,
    Life,
    PoolRecord,
    View,
    alive_key,
    format_record,
)
from vgpumgr.pool.store.interface import Put

if TYPE_CHECKING:
    from vgpumgr.pool.membership import Pool


def check_version(record: PoolRecord) -> None:
    """Raises PoolVersionError for a pool that this program cannot serve in."""
    if not VERSION - 1 <= record.version <= VERSION:
        raise PoolVersionError(
            f"the pool has version {record.version}, and this vgpumgr has {VERSION}",
            why="versions serve together that are apart by one; of these neither reads what the other has written",
            hint="vgpumgr version, on the hosts of the pool",
        )


def need(pool: Pool, view: View, version: int, what: str) -> None:
    """Raises PoolVersionError where the pool is of a version that has no ``what``."""
    known = pool.record(view).version
    if known < version:
        raise PoolVersionError(
            f"a pool of version {known} has no {what}",
            why=f"version {version} has, which hosts with the vgpumgr before this one cannot read",
            hint="vgpumgr pool upgrade, once each host has this vgpumgr",
        )


def upgrade(pool: Pool) -> tuple[int, int, list[str]]:
    """The pool is of this program's version then: its version before, that of now, and the hosts that are not heard;
    one of them that has an older vgpumgr is refused when it comes. Raises PoolVersionError where a host that is heard
    has one.
    """
    view = pool.view()
    record = pool.record(view)
    if old := sorted(n for n, entry in view.alive.items() if Life.read(entry).version < VERSION):
        some = (
            "1 host that is heard has" if len(old) == 1 else f"{len(old)} hosts that are heard have"
        )
        raise PoolVersionError(
            f"the pool stays at version {record.version}",
            why=f"{some} the vgpumgr of the version before",
            held_by=[f"host {name}" for name in old],
            hint="update vgpumgr there, and systemctl restart vgpumgr",
        )
    if record.version < VERSION:
        changed = PoolExistsError("the pool was changed at the same time", hint="the same again")
        now = Put(POOL, format_record(replace(record, version=VERSION)))
        compares = (view.at(POOL), *(view.at(alive_key(name)) for name in view.hosts))
        pool.change(compares, (now,), changed)
    return record.version, VERSION, sorted(view.hosts.keys() - view.alive.keys())
