"""Ways out of a pool: for this machine, and for a host of which an administrator says that it is dead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vgpumgr.errors import LockHeldError, PoolMemberError, PoolNotFoundError
from vgpumgr.host.lock import find_holder, lock_file
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.pool.control.records import HostRecord, View, alive_key
from vgpumgr.pool.membership import Pool, forget_membership, open_pool
from vgpumgr.pool.store.interface import MOST_CHANGES, Change, Compare, Delete

#: held by the command that takes this machine out of its pool
LEAVING_LOCK = "pool-leaving.lock"
#: how the daemon is called in the lock of the process that serves
BY_DAEMON = "the daemon, as a host of the pool"
#: a daemon that waits for a store that does not answer ends that so late
DAEMON_ENDS_S = 30.0


def leave_pool(name: str | None) -> str | None:
    """This machine is in no pool then; the name that it had there. Raises PoolMemberError while leases are on it, and
    LockHeldError while it serves.
    """
    with open_pool(name) as pool, _not_serving(pool):
        host = _leave(pool)
    forget_membership(find_machine(name))
    return host


@contextmanager
def _not_serving(pool: Pool) -> Iterator[None]:
    """A daemon that serves ends that when it sees the first lock, and begins again if the host stays."""
    with lock_file(pool.machine.run_dir / LEAVING_LOCK, 0, what="pool leave"):
        holder = find_holder(pool.lock) or ""
        timeout_s = DAEMON_ENDS_S if BY_DAEMON in holder else 0
        with ExitStack() as stack:
            try:
                stack.enter_context(lock_file(pool.lock, timeout_s, what="pool leave"))
            except LockHeldError as error:
                raise LockHeldError(
                    f"this machine serves as host {pool.membership.host} of the pool",
                    cause=error.cause,
                    held_by=error.held_by,
                    hint="systemctl stop vgpumgr" if timeout_s else "end vgpumgr pool serve first",
                ) from error
            yield


def is_leaving(machine: Machine) -> bool:
    """Whether a command takes this machine out of its pool now."""
    return find_holder(machine.run_dir / LEAVING_LOCK) is not None


def _leave(pool: Pool) -> str | None:
    name = pool.membership.host
    try:
        view = pool.view()
    except PoolNotFoundError:
        return name
    record = view.hosts.get(name) if name else None
    if record is None or record.id != pool.membership.machine:
        return name
    if users := [use.holder for use in view.uses.values() if use.via == record.name]:
        raise PoolMemberError(
            f"host {record.name} has attachments on GPUs of other hosts",
            held_by=users,
            hint="vgpumgr detach",
        )
    if leases := _list_leases(view, record.name):
        raise PoolMemberError(
            f"host {record.name} has leases",
            why="what runs on them ends first",
            held_by=[f"claim {claim}" for claim in leases],
            hint=f"vgpumgr claim delete {leases[0]}, while the daemon or vgpumgr pool serve runs",
        )
    _remove(pool, view, record)
    return name


def _list_leases(view: View, host: str) -> list[str]:
    return [lease.claim for lease in view.leases.values() if lease.host == host]


def find_dead(pool: Pool, name: str) -> list[str]:
    """The claims that would lose their leases. Raises PoolMemberError for a host that is heard, PoolNotFoundError."""
    return _list_leases(_find_unheard(pool, name)[0], name)


def _find_unheard(pool: Pool, name: str) -> tuple[View, HostRecord]:
    view = pool.view()
    record = view.hosts.get(name)
    if record is None:
        raise PoolNotFoundError(
            f"the pool has no host {name}",
            why=f"there are {', '.join(sorted(view.hosts)) or 'none'}",
            hint="vgpumgr pool status",
        )
    if name in view.alive:
        raise PoolMemberError(
            f"host {name} is heard: it is not dead",
            hint="vgpumgr pool leave, on that host; or end vgpumgr pool serve there first",
        )
    return view, record


def remove_host(pool: Pool, name: str) -> list[str]:
    """Removes a host that is dead, and ends its leases; their claims, which wait again. Nothing proves that nothing
    runs there: the administrator says so. Raises as ``find_dead``.
    """
    view, record = _find_unheard(pool, name)
    claims = _list_leases(view, name)
    _remove(pool, view, record)
    if claims:
        pool.follow_up(lambda now: not any(_is_stuck(now, claim, name) for claim in claims))
    return claims


def _is_stuck(view: View, claim: str, host: str) -> bool:
    found = view.claims.get(claim)
    return found is not None and (found.is_ending or found.host == host)


def _remove(pool: Pool, view: View, record: HostRecord) -> None:
    """Leases first, in as many changes as the store takes; each while the host is not heard, and has not changed. With
    the last of them the host goes, so that a new grant meanwhile is not lost.
    """
    alive = view.at(alive_key(record.name))
    host: tuple[Compare, ...] = (view.at(record.key), alive)
    keys = [lease.key for lease in view.leases.values() if lease.host == record.name]
    keys += [gpu.key for gpu in view.gpus.values() if gpu.host == record.name]
    keys += [use.key for use in view.uses.values() if record.name in (use.host, use.via)]
    most = MOST_CHANGES - 2
    while True:
        part, keys = keys[:most], keys[most:]
        changes: list[Change] = [Delete(key) for key in part]
        if not keys:
            changes += [Delete(record.key), Delete(alive.key)]
        pool.change(
            (*host, *(view.at(key) for key in part)),
            changes,
            PoolMemberError(
                f"host {record.name} was heard or changed at the same time", hint="the same again"
            ),
        )
        if not keys:
            return
