"""What has a time of day in a simulated pool: reservations, leases with an end, what uses leases, and preemption.

The clocks of the day of controllers jump; what is checked holds all the same.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vgpumgr.pool.control import keeping
from vgpumgr.pool.control.keeping import choose_places
from vgpumgr.pool.control.records import ClaimRecord, LeaseRecord, UseRecord, View, put
from vgpumgr.pool.control.times import (
    EndRecord,
    ReservationRecord,
    count_warning_s,
    find_end_s,
)
from vgpumgr.pool.store.interface import Delete, Transaction

if TYPE_CHECKING:
    from tests.pool_histories.world import World

#: the time of day at which a history begins
EPOCH_S = 1.8e9
#: what happens in the last seconds may not be answered yet
LAST_S = 12.0


class Times:
    """Of one history."""

    def __init__(self, world: World, break_error: type[AssertionError]) -> None:
        self._world = world
        self._draw: random.Random = world.draw
        self._count: Counter[str] = world.count
        self._broken = break_error
        self._reservations = 0
        #: the latest time of day that any controller has seen
        self._latest_s = EPOCH_S
        #: by key when an end was announced, at which revision
        self._announced: dict[str, tuple[int, float]] = {}
        self._leases: dict[str, LeaseRecord] = {}
        self._was_nominated: frozenset[str] = frozenset()
        #: when a claim's lease has come, ended or gone
        self._moved_s: dict[str, float] = {}

    @property
    def wall_s(self) -> float:
        """The time of day."""
        return EPOCH_S + self._world.now_s

    def read_wall_s(self, offset_s: float) -> float:
        """That of a machine whose clock is wrong by so much."""
        self._latest_s = max(self._latest_s, self.wall_s + offset_s)
        return self.wall_s + offset_s

    # what users and hosts do

    def draw_times(self) -> dict[str, Any]:
        """Of a new claim."""
        draw = self._draw
        if draw.random() < 0.75:
            return {}
        if draw.random() < 0.5:
            return {"until_s": self.wall_s + draw.uniform(3, 30)}
        return {"for_s": draw.uniform(3, 20)}

    def reserve(self) -> None:
        """Makes a reservation, as the command does, or deletes one."""
        draw, view = self._draw, self._world.view()
        if view.reservations and (len(view.reservations) > 2 or draw.random() < 0.3):
            one = draw.choice(list(view.reservations.values()))
            self._world.store.transact(Transaction((view.at(one.key),), (Delete(one.key),)))
            return
        self._reservations += 1
        begin_s = self.wall_s + draw.choice([draw.uniform(-5, 5), draw.uniform(5, 30)])
        holder: dict[str, Any] = draw.choice(
            [{"tenant": "small"}, {"tenant": "half"}, {"claims": ("claim-*[05]",)}]
        )
        size = draw.choice([(None, None), (40 << 30, None), (20 << 30, 50.0)])
        asked = ReservationRecord(
            f"r{self._reservations}", begin_s, begin_s + draw.uniform(10, 60), **holder,
            gpus=draw.choice([1, 1, 2]), memory_bytes=size[0], compute_percent=size[1],
        )  # fmt: skip
        places, _ = choose_places(view, asked, self.wall_s)
        if len(places) < asked.gpus:
            self._count["reservations refused"] += 1
            return
        gpus = [view.gpus["{}/{:04}".format(*keeping.read_place(text))] for text in places]
        changes = [put(replace(gpu, grants=gpu.grants + 1)) for gpu in gpus]
        compares = (view.at(asked.key), *(view.at(gpu.key) for gpu in gpus))
        made = put(replace(asked, places=places))
        self._world.store.transact(Transaction(compares, (made, *changes)))
        self._count["reservations"] += 1

    def use_or_give_back(self) -> None:
        """An attachment begins by a lease, or ends. Hosts end what has a lease that is to end."""
        draw, view = self._draw, self._world.view()
        for lease in view.leases.values():
            claim = view.claims.get(lease.claim)
            if claim is None or lease.if_lost == "move":
                continue
            uses = view.list_uses(claim)
            grace_s = self._world.now_s - self._moved_s.get(claim.name, 0.0)
            is_over = lease.is_ending and grace_s > 6
            ends = 0.5 if lease.is_ending else 0.05 if self._world.is_faulty else 0.0
            if uses and (is_over or draw.random() < ends):
                self._give_back(view, claim)
            elif not uses and not lease.is_ending and draw.random() < 0.25:
                self._use(view, claim, lease)

    def _use(self, view: View, claim: ClaimRecord, lease: LeaseRecord) -> None:
        noun = self._draw.choice(["vm", "run", "run"])
        use = UseRecord(claim.name, lease.host, noun, "x", "u", "a", view.find_token(lease))
        want = (
            [view.at(view.wants[claim.name].key)] if claim.late and claim.name in view.wants else []
        )
        if claim.late and not want:
            return
        keys = (claim.key, lease.key, *view.list_use_keys(claim))
        compares = (*map(view.at, keys), *want)
        self._world.store.transact(Transaction(compares, (put(use),)))
        self._count["uses"] += 1

    def _give_back(self, view: View, claim: ClaimRecord) -> None:
        keys = [use.key for use in view.list_uses(claim)]
        if claim.late and claim.name in view.wants:
            keys.append(view.wants[claim.name].key)
        changes = tuple(Delete(key) for key in keys)
        self._world.store.transact(Transaction(tuple(map(view.at, keys)), changes))

    # what holds

    def check(self, view: View) -> None:
        """After each change of the store."""
        for end in view.ends.values():
            revision = view.at(end.key).revision
            if self._announced.get(end.key, (0, 0.0))[0] != revision:
                self._announced[end.key] = (revision, self._world.now_s)
                self._count["ends announced"] += end.end_s is not None
        for name, lease in view.leases.items():
            before = self._leases.get(name)
            if before != lease:
                self._moved_s[lease.claim] = self._world.now_s
            if before is not None and lease.is_ending and not before.is_ending:
                self._check_end(view, lease, view.ends.get(name))
        for name in self._leases.keys() - view.leases.keys():
            self._moved_s[self._leases[name].claim] = self._world.now_s
        self._leases = dict(view.leases)
        for one in view.reservations.values():
            self._check_kept(view, one)
        waiting = [claim for claim in view.claims.values() if claim.host is None]
        self._count["waits by reservations"] += sum("reserved for" in one.why for one in waiting)
        nominated = frozenset(claim.name for claim in waiting if claim.nominated)
        for name in self._was_nominated - nominated:
            claim = view.claims.get(name)
            self._count["granted by preemption"] += claim is not None and claim.host is not None
        self._was_nominated = nominated

    def _check_end(self, view: View, lease: LeaseRecord, end: EndRecord | None) -> None:
        """Why a lease may end: its claim is deleted or not wanted, its time is over, or another one preempts it."""
        claim = view.claims[lease.claim]
        if end is None:
            if not claim.is_ending and view.is_wanted(claim):
                want = view.wants.get(claim.name)
                if want is None or want.host == lease.host:
                    raise self._broken(f"{lease} ends without a reason")
            return
        if end.end_s is None:
            self._check_preempted(view, lease, claim)
            return
        if not (claim.is_ending or claim.late):
            raise self._broken(f"{claim} goes on, and its lease ends")
        shown_s = self._world.now_s - self._announced[end.key][1]
        is_by_time = claim.is_ending is not self._was_deleted(claim.name)
        if is_by_time and not (claim.late and not view.is_wanted(claim) and shown_s < 1):
            self._count["ended by time"] += 1
            if shown_s < 0.97 * count_warning_s(lease) - 0.01:
                raise self._broken(f"{lease} ends after {shown_s} s of warning")

    def _was_deleted(self, name: str) -> bool:
        return name in self._world.deleted

    def _check_preempted(self, view: View, lease: LeaseRecord, claim: ClaimRecord) -> None:
        by = view.claims.get(claim.preempted_by)
        if by is None:
            raise self._broken(f"{claim} is preempted by nothing")
        if view.find_tenant(by).priority <= view.find_tenant(claim).priority:
            raise self._broken(f"{claim} is preempted by {by} of no higher priority")
        if not (view.classes[claim.class_name].preemptible or view.find_tenant(claim).preemptible):
            raise self._broken(f"{claim} is preempted, and may not be")
        nouns = {use.noun for use in view.list_uses(claim)}
        if "vm" in nouns and not claim.preempt_vm:
            raise self._broken(f"{claim} is preempted, and a VM uses it")
        self._count["preempted" + "".join(f" from a {noun}" for noun in nouns)] += 1
        self._moved_s[claim.name] = self._world.now_s
        self._count["preempted without its host"] += lease.host not in view.alive

    def _check_kept(self, view: View, one: ReservationRecord) -> None:
        """No lease stands in a reservation's way, unless it ends before, or some clock has said that all is over."""
        span = one.find_next(self._latest_s)
        if span is None:
            return
        for text in one.places:
            host, index = keeping.read_place(text)
            gpu = view.gpus[f"{host}/{index:04}"]
            used = sum(
                lease.milli
                for lease in view.leases.values()
                if lease.host == host
                and index in lease.gpus
                and not lease.is_ending
                and (not lease.until_s or lease.until_s > span.begin_s)
                and not (lease.claim in view.claims and one.is_for(view.claims[lease.claim]))
            )
            if used + keeping.count_milli(view, one, gpu) > 1000:
                raise self._broken(f"{used} of {text} stand in the way of {one}")

    def is_new(self, claim: str) -> bool:
        """Whether its lease has moved in the last seconds."""
        return self._world.now_s - self._moved_s.get(claim, -LAST_S) < LAST_S

    def check_last(self, view: View) -> None:
        """Whose time it is gets what is reserved."""
        for one in view.reservations.values():
            # a clock that was too late may have given away what is reserved
            span = one.find_next(self._latest_s) and one.find_next(self.wall_s)
            if span is None or one.why or not span.begin_s + LAST_S < self.wall_s < span.end_s:
                continue
            self._count["reservations in time"] += 1
            for claim in view.claims.values():
                if one.is_for(claim):
                    self._check_got(view, one, claim)

    def _check_got(self, view: View, one: ReservationRecord, claim: ClaimRecord) -> None:
        if view.find_lease(claim) is not None:
            self._count["reservations used"] += 1
            return
        is_asked = (
            not self.is_new(claim.name)
            and view.find_state(claim) == "waiting"
            and claim.gpus == 1
            and not claim.where
        )
        ends_s = find_end_s(claim, self.wall_s)
        if not is_asked or claim.anti_affinity or "quota" in claim.why or ends_s <= self.wall_s:
            return
        for text in one.places:
            host, index = keeping.read_place(text)
            gpu = view.gpus[f"{host}/{index:04}"]
            leases = [
                lease
                for lease in view.leases.values()
                if lease.host == host and index in lease.gpus
            ]
            is_elsewhere = claim.late and view.wants[claim.name].host != host
            if (
                is_elsewhere
                or any(self.is_new(lease.claim) for lease in leases)
                or self._is_shared(view, one, text)
            ):
                continue
            own = sum(
                lease.milli
                for lease in leases
                if lease.claim in view.claims and one.is_for(view.claims[lease.claim])
            )
            left = keeping.count_milli(view, one, gpu) - own
            if claim.count_milli(gpu.memory_bytes) <= left and not gpu.closed:
                raise self._broken(f"{claim} waits, and {left} of {text} are reserved: {one}")

    def _is_shared(self, view: View, one: ReservationRecord, text: str) -> bool:
        """Whether another reservation has a part of a GPU, which the claim may stand in the way of."""
        return any(text in other.places for other in view.reservations.values() if other is not one)
