"""The leases of this host for attachments: what a claim reserves here, and which attachment has it.

An attachment uses a claim by an entry in the store, which is written only while the lease and the claim are as they
were read. Who deletes or resizes the claim compares that there is none: of the two, one is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from vgpumgr.errors import (
    ClaimInUseError,
    ClaimNotGrantedError,
    ClaimUnusableError,
    NotPermittedError,
    PoolMemberError,
    PoolOutcomeError,
    PoolStoreError,
    VgpumgrError,
)
from vgpumgr.host.clock import SleeplessClock
from vgpumgr.host.lock import find_holder
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import ProcessId
from vgpumgr.model.attachment import ClaimPart
from vgpumgr.model.text import describe_waiting
from vgpumgr.pool.binding import bind, is_answered
from vgpumgr.pool.control.controller import is_as_claimed
from vgpumgr.pool.control.records import (
    ROOT,
    USES,
    ClaimRecord,
    IfLost,
    LeaseRecord,
    UseRecord,
    View,
    WantRecord,
    find_claim,
    put,
    read_record,
    use_key,
    want_key,
)
from vgpumgr.pool.links import (
    find_late,
    find_link,
    find_use,
    list_offering,
    list_peers,
    read_seen_links,
    refuse,
)
from vgpumgr.pool.membership import LOCK_NAME, Pool, open_pool_of, read_membership, read_seen
from vgpumgr.pool.operations import NO_ANSWER, describe_claim
from vgpumgr.pool.store.interface import At, Delete, Entry, Transaction
from vgpumgr.pool.versions import need
from vgpumgr.state.leases import (
    BoundClaim,
    ClaimUse,
    ClaimUser,
    LeasedGpu,
    LinkRequest,
    SeenPool,
    refuse_several,
)
from vgpumgr.virtio.links import save_peers

#: an entry that is removed may be changed at the same time so often
_ATTEMPTS = 3
#: so long no member of an etcd is waited for where nothing is written that has to be: seconds
_SHORT_S = 2.0
#: a store that did not answer to what was given back is asked by the next one so much later: seconds
_PAUSE_S = 30.0


class PoolLeases:
    """See ``state.leases.Leases``. Each call opens the store anew: operations come from several threads."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._clock = SleeplessClock()
        #: when it did not answer, and what it said
        self._failure: tuple[float, PoolStoreError] | None = None

    def find(self, claim: str, *, may_wait: bool = False) -> tuple[LeasedGpu, ...]:
        """See ``Leases``."""
        with self._open(_SHORT_S) as (pool, host):
            view = pool.view()
            need(pool, view, USES, "attachments by claims")
            if may_wait and (late := find_late(view, claim, host)):
                return (late,)
            lease = self._check(view, find_claim(view, claim), host)
            record = view.claims[claim]
            _check_unused(view, record, None)
            if lease.host != host:
                return (_find_linked(view, lease, host),)
            return _list_gpus(view, lease)

    def bind_linked(self, claim: str, process: ProcessId, boot_id: str) -> LeasedGpu | str:
        """See ``Leases``."""
        with self._open(_SHORT_S) as (pool, host):
            view = pool.view()
            where = tuple(list_offering(view, find_claim(view, claim)))
            want = WantRecord(claim, host, process.pid, process.start_ticks, boot_id, where)
            view = bind(pool, claim, want, follows_up=False)
            row = describe_claim(view, claim)
            if row["state"] != "granted":
                return describe_waiting(claim, row["place"], row["why"])
            lease = self._check(view, find_claim(view, claim), host, is_linked=True)
            save_peers(self._machine, list_peers(view))
            return _find_linked(view, lease, host)

    def unbind(self, claim: str, process: ProcessId, boot_id: str) -> None:
        """See ``Leases``."""
        with self._open(_SHORT_S) as (pool, host):
            for _ in range(_ATTEMPTS):
                view = pool.view()
                want, record = view.wants.get(claim), view.claims.get(claim)
                known = want and (want.host, want.pid, want.start_ticks, want.boot)
                if want is None or known != (host, process.pid, process.start_ticks, boot_id):
                    return
                if record is not None and view.list_uses(record):
                    return
                keys = view.list_use_keys(record) if record is not None else ()
                compares = (view.at(want.key), *map(view.at, keys))
                if pool.store.transact(Transaction(compares, (Delete(want.key),))) is not None:
                    return

    def find_served(self, request: LinkRequest) -> tuple[LeasedGpu, ClaimUser]:
        """See ``Leases``."""
        with self._open(_SHORT_S) as (pool, host):
            view = pool.view()
            lease, use = find_use(view, request, host)
            (leased,) = _list_gpus(view, lease)
            return leased, ClaimUser(use.noun, use.name, use.uuid, use.attachment)

    def bind(self, claim: str, process: ProcessId, boot_id: str) -> BoundClaim:
        """See ``Leases``."""
        # who waits asks again, so that no store and no controller holds up others who ask the daemon
        with self._open(_SHORT_S) as (pool, host):
            record = find_claim(pool.view(), claim)
            _check_kind(record)
            if record.gpus > 1:
                raise refuse_several(claim, record.gpus)
            where = () if record.may_be_on(host) else tuple(list_offering(pool.view(), record))
            want = WantRecord(claim, host, process.pid, process.start_ticks, boot_id, where)
            view = bind(pool, claim, want, follows_up=False)
            row = describe_claim(view, claim)
            is_late = row["binding"] == "late"
            is_known = is_answered(view, claim)
            return BoundClaim(is_late, is_known, row["state"], row["place"], row["why"])

    def hold(self, part: ClaimPart, user: ClaimUser) -> None:
        """See ``Leases``."""
        with self._open() as (pool, host):
            view = pool.view()
            need(pool, view, USES, "attachments by claims")
            claim = find_claim(view, part.name)
            lease = self._check(view, claim, host)
            if (lease.host, view.find_token(lease)) != (part.host, part.token):
                raise _refuse_changed(part.name)
            _check_unused(view, claim, user.uuid)
            via = "" if lease.host == host else host
            if via:
                find_link(view, lease, host)
                save_peers(self._machine, list_peers(view))
            use = UseRecord(
                part.name, lease.host, user.noun, user.name, user.uuid, user.attachment, part.token,
                part.number, via,
            )  # fmt: skip
            known = next((one for one in view.list_uses(claim) if one.number == part.number), None)
            if known == use:
                return
            if known is not None and known.attachment != use.attachment:
                raise _refuse_used(known)
            # all of the claim: of two VMs that take a GPU each, one is refused
            uses = map(view.at, view.list_use_keys(claim))
            compares = [view.at(lease.key), view.at(claim.key), *uses]
            if claim.late:
                compares.append(view.at(want_key(part.name)))
            try:
                pool.change(compares, (put(use),), _refuse_changed(part.name))
            except PoolOutcomeError:
                # where this is the entry that is there, the answer only was lost
                with contextlib.suppress(PoolStoreError):
                    if _find_use(pool, part) == use:
                        return
                    # what is still under way finds another revision of the claim, and is not written
                    pool.store.transact(Transaction((view.at(claim.key),), (put(claim),)))
                    if _find_use(pool, part) == use:
                        return
                raise

    def release(self, part: ClaimPart, attachment: str) -> None:
        """See ``Leases``. Raises PoolStoreError."""
        if read_membership(self._machine) is None:
            return  # a host leaves without leases, and so without what uses them
        self._check_answers()
        self._check_pause()
        try:
            is_released = self._try_release(part, attachment)
        except PoolStoreError as error:
            self._failure = (self._clock.monotonic_s(), error)
            raise
        if not is_released:
            raise PoolStoreError(f"claim {part.name} was changed at the same time, again and again")

    def _try_release(self, part: ClaimPart, attachment: str) -> bool:
        with open_pool_of(self._machine, _SHORT_S) as pool:
            key = use_key(part.host, part.name, part.number)
            for _ in range(_ATTEMPTS):
                entry = pool.store.get(key)
                if entry is None or read_record(UseRecord, entry).attachment != attachment:
                    return True
                wants = _list_ending(pool, part)
                entries = (entry, *wants)
                changes = tuple(Delete(one.key) for one in entries)
                compares = tuple(At(one.key, one.revision) for one in entries)
                if pool.store.transact(Transaction(compares, changes)) is not None:
                    return True
        return False

    def _check_pause(self) -> None:
        """Of several attachments that are detached only the first one waits for a store that does not answer."""
        if self._failure is None:
            return
        failed_s, error = self._failure
        if self._clock.monotonic_s() - failed_s < _PAUSE_S:
            raise PoolStoreError(error.error, cause=error.cause, why=error.why)

    def is_held(self, part: ClaimPart, attachment: str) -> bool:
        """See ``Leases``."""
        if read_membership(self._machine) is None:
            return False
        with open_pool_of(self._machine, _SHORT_S) as pool:
            use = _find_use(pool, part)
        return use is not None and use.attachment == attachment

    def list_uses(self) -> Sequence[ClaimUse]:
        """See ``Leases``."""
        membership = read_membership(self._machine)
        if membership is None or membership.host is None:
            return ()
        with open_pool_of(self._machine, _SHORT_S) as pool:
            found = pool.store.range(f"{ROOT}use/").entries.values()
        self._failure = None
        uses = [read_record(UseRecord, entry) for entry in found]
        return [
            ClaimUse(
                ClaimPart(use.claim, use.host, use.token, use.number, use.via),
                ClaimUser(use.noun, use.name, use.uuid, use.attachment),
            )
            for use in uses
            if use.user_host == membership.host
        ]

    def read_seen(self) -> SeenPool | None:
        """See ``Leases``. A file that cannot be read says nothing: the next round of the host writes it anew."""
        try:
            membership = read_membership(self._machine)
        except (NotPermittedError, PoolStoreError):
            return None
        seen = read_seen(self._machine)
        if membership is None or seen is None or seen.host != membership.host:
            return None
        return replace(seen, links=read_seen_links(self._machine))

    def read_server(self) -> str | None:
        """See ``Leases``."""
        with contextlib.suppress(VgpumgrError):
            return find_holder(self._machine.run_dir / LOCK_NAME)
        return None

    def _check_answers(self) -> None:
        """Nothing waits where the process that serves knows that the store does not answer. Raises PoolStoreError."""
        seen = self.read_seen()
        if seen is not None and not seen.is_answering and self.read_server() is not None:
            raise PoolStoreError("the pool's store does not answer", cause=seen.text)

    @contextmanager
    def _open(self, longest_s: float | None = None) -> Iterator[tuple[Pool, str]]:
        """The pool, and this host's name there. ``longest_s``: no member of an etcd is waited for longer. Raises
        PoolNotFoundError, PoolMemberError, PoolStoreError.
        """
        self._check_answers()
        with open_pool_of(self._machine, longest_s) as pool:
            host = pool.membership.host
            if host is None:
                raise PoolMemberError(
                    "this machine is no host of the pool", hint="vgpumgr pool join"
                )
            yield pool, host

    def _check(
        self, view: View, claim: ClaimRecord, host: str, *, is_linked: bool = False
    ) -> LeaseRecord:
        """The claim's lease, by which one attachment of this host can be made. ``is_linked``: over the network, also
        where it is on this host.
        """
        _check_kind(claim)
        lease = view.find_lease(claim)
        if claim.is_ending:
            raise refuse(claim, "it is being deleted", f"vgpumgr claim show {claim.name}")
        want = view.wants.get(claim.name)
        if claim.late and (want is None or want.host != host):
            why = "it binds late, and nothing of this host has bound it"
            raise refuse(claim, why, f"vgpumgr claim bind {claim.name}")
        if lease is None or lease.is_ending:
            why = claim.why or NO_ANSWER
            raise refuse(claim, f"it waits: {why}", f"vgpumgr claim show {claim.name}")
        if lease.host != host or is_linked:
            find_link(view, lease, host)
        if not is_as_claimed(claim, lease):
            why = "its lease has another size than it asks for" + (claim.why and f": {claim.why}")
            raise refuse(claim, why, f"vgpumgr claim show {claim.name}")
        self._check_not_older(view, claim, lease)
        return lease

    def _check_not_older(self, view: View, claim: ClaimRecord, lease: LeaseRecord) -> None:
        """A store that was restored from a backup says what this host knows to be over."""
        seen = self.read_seen()
        known = seen.find_lease(claim.name) if seen else None
        is_older = known is not None and view.find_token(lease) < known.token
        if is_older or (seen is not None and view.revision < seen.revision):
            why = "the pool's store says what is older than what this host has seen"
            raise refuse(claim, why, "begin vgpumgr pool serve, or the daemon, on each host again")


def _list_gpus(view: View, lease: LeaseRecord) -> tuple[LeasedGpu, ...]:
    """The GPUs of a lease on this host."""
    claim, host = view.claims[lease.claim], lease.host
    places = {(gpu.host, gpu.index): gpu.uuid for gpu in view.gpus.values()}
    if gone := [index for index in lease.gpus if (host, index) not in places]:
        raise refuse(claim, f"its GPU {gone[0]} is not in the pool any more", "vgpumgr pool join")
    token, size = view.find_token(lease), _find_size(view, claim, lease)
    return tuple(
        LeasedGpu(ClaimPart(claim.name, host, token, number), places[host, index], *size)
        for number, index in enumerate(lease.gpus)
    )


def _find_linked(view: View, lease: LeaseRecord, host: str) -> LeasedGpu:
    """The GPU of a lease on another host, for this one. Raises ClaimNotGrantedError."""
    claim, link = view.claims[lease.claim], find_link(view, lease, host)
    part = ClaimPart(claim.name, lease.host, view.find_token(lease), 0, host)
    uuid = view.gpus[f"{lease.host}/{lease.gpus[0]:04}"].uuid
    return LeasedGpu(part, uuid, *_find_size(view, claim, lease), link)


def _find_size(
    view: View, claim: ClaimRecord, lease: LeaseRecord
) -> tuple[int | None, float | None]:
    kind = view.classes.get(claim.class_name)
    if kind is not None and kind.whole:
        return None, None  # it only says which GPU is large enough
    return lease.memory_bytes, lease.compute_percent


def _check_kind(claim: ClaimRecord) -> None:
    if claim.if_lost is IfLost.MOVE:
        raise ClaimUnusableError(
            f"nothing can be attached by claim {claim.name}",
            why="it moves to another host where its own is lost (--if-lost move), and a VM cannot follow it",
            hint="vgpumgr claim create NAME --profile PROFILE --if-lost keep",
        )


def _check_unused(view: View, claim: ClaimRecord, uuid: str | None) -> None:
    """Raises ClaimInUseError where another VM or run than that uses any GPU of it."""
    for use in view.list_uses(claim):
        if use.uuid != uuid:
            raise _refuse_used(use)


def _refuse_used(use: UseRecord) -> ClaimInUseError:
    return ClaimInUseError(
        f"claim {use.claim} is in use",
        why=f"where host {use.host} has no such attachment, vgpumgr recover there releases it",
        held_by=(use.holder,),
        hint=use.describe_end(),
    )


def _list_ending(pool: Pool, part: ClaimPart) -> list[Entry]:
    """What wants a claim that binds late, where this is the last of its GPUs that is given back."""
    entry = pool.store.get(want_key(part.name))
    if entry is None:
        return []
    found = pool.store.range(use_key(part.host, part.name)).entries.values()
    uses = [use for use in (read_record(UseRecord, one) for one in found) if use.claim == part.name]
    return [entry] if len(uses) <= 1 else []


def _find_use(pool: Pool, part: ClaimPart) -> UseRecord | None:
    entry = pool.store.get(use_key(part.host, part.name, part.number))
    return None if entry is None else read_record(UseRecord, entry)


def _refuse_changed(claim: str) -> ClaimNotGrantedError:
    return ClaimNotGrantedError(
        f"claim {claim} was changed at the same time",
        why="its lease is another one now",
        hint="the same again",
    )
