"""Claims that bind late: they have a lease only while something wants it, as a command that runs by it does.

Who wants one writes so, for its own host, and waits in the queue like a new claim. The lease ends when that entry is
gone: what uses the claim removes it when it is given back, and the host removes that of a process that has ended.
"""

from __future__ import annotations

from dataclasses import replace

from vgpumgr.errors import ClaimInUseError, ClaimNotGrantedError, PoolMemberError, UsageError
from vgpumgr.pool.control.records import (
    LATE,
    ClaimRecord,
    View,
    WantRecord,
    find_claim,
    put,
    want_key,
)
from vgpumgr.pool.local import has_ended
from vgpumgr.pool.membership import Pool
from vgpumgr.pool.store.interface import Change, Compare, Delete
from vgpumgr.pool.versions import need


def bind(pool: Pool, name: str, want: WantRecord | None = None, *, follows_up: bool = True) -> View:
    """The pool, with a lease for the claim where one is free: else the claim waits. ``want`` says which process wants
    it; None: anything here, until it is given back or ``release``. A claim that does not bind late stays as it is.
    Without ``follows_up`` the pool is as this has left it, before any controller has seen it.

    Raises ClaimNotFoundError, ClaimInUseError where another process or host has it, ClaimNotGrantedError where it may
    not be on this host, PoolMemberError.
    """
    host = pool.membership.host
    if host is None:
        raise PoolMemberError("this machine is no host of the pool", hint="vgpumgr pool join")
    want = replace(want or WantRecord(name, host), claim=name, host=host)
    if want.where == (host,):
        want = replace(want, where=())
    view = pool.view()
    if not find_claim(view, name).late or _is_answering(view, want):
        return view

    def plan(view: View) -> tuple[list[Compare], list[Change]]:
        claim = find_claim(view, name)
        need(pool, view, LATE, "late binding")
        _check_free(pool, view, claim, want)
        return [view.at(claim.key), view.at(want.key)], [put(want)]

    busy = ClaimInUseError(f"claim {name} was changed at the same time", hint="the same again")
    pool.change_anew(plan, busy)
    return pool.follow_up(lambda now: is_answered(now, name)) if follows_up else pool.view()


def is_answered(view: View, name: str) -> bool:
    """Whether a claim that is wanted has its lease, or a reason why it waits."""
    claim = view.claims.get(name)
    return claim is None or bool(claim.why) or view.find_state(claim) == "granted"


def is_wanted_by(view: View, want: WantRecord) -> bool:
    """Whether that is written, or that anything on its host may use the claim."""
    known = view.wants.get(want.claim)
    # a number alone may be that of a process of before
    return known is not None and replace(known, where=()) in (
        replace(want, where=()),
        WantRecord(want.claim, want.host),
    )


def _is_answering(view: View, want: WantRecord) -> bool:
    """Whether that is written, for the same hosts; those of one that has its lease do not matter any more."""
    known, claim = view.wants.get(want.claim), view.claims[want.claim]
    if known is None or not is_wanted_by(view, want):
        return False
    return known.where == want.where or view.find_state(claim) == "granted"


def _check_free(pool: Pool, view: View, claim: ClaimRecord, want: WantRecord) -> None:
    if not any(map(claim.may_be_on, want.where or (want.host,))):
        raise ClaimNotGrantedError(
            f"claim {claim.name} gives nothing on this host",
            why=f"it may be on {' or '.join(claim.where)}, and this is host {want.host}",
            hint="the same command there",
        )
    known = view.wants.get(claim.name)
    if known is not None and _is_over(pool, known) and not view.list_uses(claim):
        return  # the process that serves has not removed it yet
    if known is not None and not is_wanted_by(view, want):
        raise ClaimInUseError(
            f"claim {claim.name} is in use",
            held_by=(known.holder,),
            hint=f"vgpumgr claim release {claim.name}, on host {known.host}"
            if known.pid is None
            else f"vgpumgr claim show {claim.name}",
        )


def _is_over(pool: Pool, want: WantRecord) -> bool:
    """Whether a process of this host wanted it, which has ended."""
    is_here = want.host == pool.membership.host and want.pid is not None
    return is_here and has_ended(want, pool.machine)


def release(pool: Pool, name: str) -> View:
    """The pool; the lease of a claim that binds late ends, which nothing may use. Raises ClaimNotFoundError,
    ClaimInUseError, UsageError for another claim.
    """

    def plan(view: View) -> tuple[list[Compare], list[Change]]:
        claim = find_claim(view, name)
        if not claim.late:
            raise UsageError(
                f"claim {name} does not bind late: it has its lease as long as it exists",
                hint=f"vgpumgr claim delete {name}",
            )
        if uses := view.list_uses(claim):
            raise ClaimInUseError(
                f"cannot release claim {name}: it is in use",
                held_by=[use.holder for use in uses],
                hint=uses[0].describe_end(),
            )
        unused = [view.at(key) for key in view.list_use_keys(claim)]
        if name not in view.wants:
            return [view.at(claim.key)], []
        return [view.at(claim.key), view.at(want_key(name)), *unused], [Delete(want_key(name))]

    busy = ClaimInUseError(f"claim {name} was changed at the same time", hint="the same again")
    pool.change_anew(plan, busy)
    return pool.follow_up(lambda now: _is_released(now, name))


def _is_released(view: View, name: str) -> bool:
    claim = view.claims.get(name)
    return claim is None or view.find_lease(claim) is None
