"""A pool in one process and in simulated time. Each seed is one history, always the same.

The controllers and the hosts' agents are the program's own. Their calls of the store are messages, which come late,
twice or never, and so do the answers. Who waits for one longer than ``PATIENCE_S`` gives up, and it may come all the
same.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.pool_histories.actors import PATIENCE_S, TIMING, Actor, ControllerActor, HostActor
from tests.pool_histories.times import Times
from tests.support.memory_store import MemoryStore
from vgpumgr.errors import PoolStoreError
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.host import HostAgent
from vgpumgr.pool.control.records import (
    POOL,
    ROOT,
    VERSION,
    ClaimRecord,
    ClassRecord,
    GpuRecord,
    IfLost,
    PoolRecord,
    TenantRecord,
    View,
    WantRecord,
    alive_key,
    format_record,
    is_among,
    lease_key,
    put,
)
from vgpumgr.pool.store.interface import Delete, Put, Transaction

#: so long things go wrong, and then they do not any more
FAULTS_S = 50.0
QUIET_S = 25.0
HOSTS, GPUS, CONTROLLERS = 3, 2, 2
TENANTS = (
    TenantRecord("small", 1500, 5),
    TenantRecord("half", 3000, weight=2, preemptible=True),
    TenantRecord("urgent", 6000, 9),
)
GIB = 1 << 30


class BrokenError(AssertionError):
    """An invariant does not hold."""


class World:
    """One history. The makers are replaced by those that do something wrong, to see that it is noticed."""

    def __init__(
        self,
        seed: int,
        make_controller: Callable[..., Controller] = Controller,
        make_agent: Callable[..., HostAgent] = HostAgent,
    ) -> None:
        self.make_controller = make_controller
        self.make_agent = make_agent
        self.draw = random.Random(seed)
        self.now_s = 0.0
        #: the claims that a user has deleted
        self.deleted: set[str] = set()
        self.count: Counter[str] = Counter()
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._number = 0
        self.times = Times(self, BrokenError)
        self.store = MemoryStore(lambda: self.now_s)
        self.controllers = [ControllerActor(self, f"c{n}") for n in range(CONTROLLERS)]
        self.hosts = [HostActor(self, f"h{n}") for n in range(HOSTS)]
        self.actors: list[Actor] = [*self.controllers, *self.hosts]
        self._is_store_down = False
        self._claims = 0
        self._view: View | None = None
        #: counts changes of sessions
        self.changed = 0
        self._checked = (0, 0, 0)
        self._leases: Mapping[str, str] = {}
        self._gone: set[str] = set()
        #: when GPUs were closed, or opened
        self._closed: dict[tuple[str, int], int] = {}
        #: the claims, and each GPU that they have
        self._had: set[tuple[str, str, int]] = set()
        self._fill()

    def _fill(self) -> None:
        changes = [
            Put(POOL, format_record(PoolRecord("sim", VERSION, TIMING))),
            put(ClassRecord("default")),
            put(ClassRecord("spread", "spread", preemptible=True)),
            *map(put, TENANTS),
        ]
        for host in self.hosts:
            changes.append(put(host.record))
            changes += [
                put(GpuRecord(host.name, n, f"GPU-{host.name}-{n}", "A100", 80 * GIB))
                for n in range(GPUS)
            ]
        self.store.transact(Transaction((), tuple(changes)))

    def at(self, time_s: float, event: Callable[[], object]) -> None:
        self._number += 1
        heapq.heappush(self._events, (time_s, self._number, event))

    # the network

    def send(self, actor: Actor, call: Callable[[MemoryStore], object]) -> None:
        """A call of the store and its answer."""
        draw, answering = self.draw, actor.answering
        key = (actor.epoch, actor.waiting)
        delay_s = draw.uniform(0.001, 0.05)
        if draw.random() < 0.02 and self.now_s < FAULTS_S:
            delay_s = draw.uniform(PATIENCE_S, 20)
            self.count["calls late"] += 1
        is_lost = actor.is_cut_off or self._is_store_down
        if is_lost and draw.random() < (actor.loss if actor.is_cut_off else 0.9):
            self.count["calls lost"] += 1
            return
        is_answer_lost = is_lost or (self.now_s < FAULTS_S and draw.random() < 0.01)

        def execute() -> None:
            try:
                answer: object = call(self.store)
            except PoolStoreError as error:
                answer = error
            if is_answer_lost:
                self.count["answers lost"] += 1
            elif (actor.epoch, actor.waiting) == key:
                self.at(self.now_s + draw.uniform(0.001, 0.05), answering(answer))

        self.at(self.now_s + delay_s, execute)
        if draw.random() < 0.02 and self.now_s < FAULTS_S:
            self.count["calls doubled"] += 1
            self.at(self.now_s + draw.uniform(0.1, 20), lambda: self._repeat(call))

    def _repeat(self, call: Callable[[MemoryStore], object]) -> None:
        try:
            call(self.store)
        except PoolStoreError:
            self.count["calls doubled and refused"] += 1

    # what goes wrong, and who uses the pool

    def _break_something(self) -> None:
        draw = self.draw
        kind = draw.choice(
            [
                "crash",
                "crash",
                "kill agent",
                "pause",
                "cut off",
                "cut off",
                "store down",
                "entry lost",
                "clock jump",
            ]
        )
        duration_s = draw.choice([draw.uniform(0.1, 3), draw.uniform(2, 25)])
        end_s = min(self.now_s + duration_s, FAULTS_S)
        actor: Actor = draw.choice(self.actors)
        if kind == "store down":
            self._is_store_down = True
            self.at(end_s, lambda: setattr(self, "_is_store_down", False))
        elif kind == "cut off":
            actor.is_cut_off, actor.loss = True, draw.choice([1.0, 1.0, 0.7])
            self.at(end_s, lambda: setattr(actor, "is_cut_off", False))
        elif kind == "clock jump":
            one = draw.choice(self.controllers)
            one.wall_offset_s = draw.choice([-1, 1, 1]) * draw.uniform(5, 100)
            self.at(end_s, lambda: setattr(one, "wall_offset_s", 0.0))
        elif kind == "entry lost":
            kind = self._lose_entry(draw.choice(self.hosts))
        elif kind == "pause":
            actor.paused_until_s = max(actor.paused_until_s, end_s)
        elif actor.process is None:
            kind = "nothing: it is down"
        elif kind == "kill agent" and isinstance(actor, HostActor):
            actor.kill_agent()
            self.at(end_s, actor.start)
        else:
            kind = f"crash of a {'host' if isinstance(actor, HostActor) else 'controller'}"
            actor.crash()
            self.at(end_s, actor.start)
        self.count[kind] += 1
        self.at(self.now_s + draw.expovariate(1 / 4), self._break_later)

    def _lose_entry(self, host: HostActor) -> str:
        """Someone removes the entry by which a host is heard, or writes it without its lease."""
        key = alive_key(host.name)
        entry = self.store.get(key)
        if entry is None:
            return "nothing: no entry"
        if self.draw.random() < 0.7:
            self.store.transact(Transaction((), (Delete(key),)))
            return "entry deleted"
        self.store.transact(Transaction((), (Put(key, self.draw.choice(["?", entry.value])),)))
        return "entry overwritten"

    def _break_later(self) -> None:
        if self.now_s < FAULTS_S:
            self._break_something()

    def _use(self) -> None:
        """One change by a user, whose own call is answered at once."""
        draw, view = self.draw, self.view()
        claims = [claim for claim in view.claims.values() if not claim.is_ending]
        kind = draw.choice(["create"] * 4 + ["delete"] * 2 + ["resize"] * 3)
        if kind == "create" and len(claims) < 18:
            self._claims += 1
            name, class_name = f"claim-{self._claims}", draw.choice(["default", "spread"])
            claim = ClaimRecord(
                name,
                class_name,
                *self._draw_size(),
                if_lost=IfLost.MOVE if draw.random() < 0.57 else IfLost.KEEP,
                tenant=draw.choice(["", "small", "small", "small", "half", "half", "urgent"]),
                anti_affinity=draw.choice(["", "", "x", "y"]),
                where=draw.choice([(), (), (), ("h0",), ("h[12]", "nowhere")]),
                late=draw.random() < 0.3,
                preempt_vm=draw.random() < 0.3,
                **self.times.draw_times(),
            )
            self.store.transact(Transaction((), (put(claim),)))
        elif unused := [claim for claim in claims if not view.list_uses(claim)]:
            claim = draw.choice(unused)  # what is in use is neither deleted nor resized
            changed = replace(claim, is_ending=True)
            uses = [view.at(key) for key in view.list_use_keys(claim)]
            if kind == "resize":
                gpus, memory, compute = self._draw_size()
                changed = replace(claim, gpus=gpus, memory_bytes=memory, compute_percent=compute)
            else:
                self.deleted.add(claim.name)
            self.store.transact(Transaction((view.at(claim.key), *uses), (put(changed),)))
        self.count[f"claims {kind}d"] += 1
        if draw.random() < 0.1:
            self._close_or_open()
        if draw.random() < 0.08:
            self.times.reserve()
        if claims and draw.random() < 0.6:
            self._want_or_give_back(draw.choice(claims))
        if self.now_s < FAULTS_S:
            self.at(self.now_s + draw.expovariate(1 / 1.5), self._use)

    def _attach(self) -> None:
        self.times.use_or_give_back()
        self.at(self.now_s + 5.0, self._attach)

    def _want_or_give_back(self, claim: ClaimRecord) -> None:
        """A process of a host begins to use a claim that binds late, or ends."""
        view = self.view()
        want = WantRecord(claim.name, self.draw.choice(self.hosts).name, 1)
        if not claim.late or not is_among(want.host, claim.where):
            return
        is_there = claim.name in view.wants
        self.count["given back" if is_there else "wanted"] += 1
        change = Delete(want.key) if is_there else put(want)
        if is_there and view.list_uses(claim):
            return
        uses = map(view.at, view.list_use_keys(claim))
        compares = (view.at(want.key), view.at(claim.key), *uses)
        self.store.transact(Transaction(compares, (change,)))

    def _close_or_open(self) -> None:
        """As a host writes that its GPU is drained, or is not any more."""
        view = self.view()
        gpu = self.draw.choice(list(view.gpus.values()))
        changed = put(replace(gpu, closed="" if gpu.closed else "drained"))
        revision = self.store.transact(Transaction((view.at(gpu.key),), (changed,)))
        assert revision is not None
        self._closed[gpu.host, gpu.index] = revision

    def _draw_size(self) -> tuple[int, int | None, float | None]:
        draw = self.draw
        if draw.random() < 0.2:
            return draw.choice([1, 1, 2, 3]), None, None
        gpus = draw.choice([1, 1, 1, 2])
        return gpus, draw.choice([10, 20, 40, 80, 90]) * GIB, draw.choice([None, 25.0, 50.0])

    # the run

    def run(self) -> Counter[str]:
        """Raises BrokenError."""
        for actor in self.actors:
            actor.start()
        self.at(1.0, self._use)
        self.at(2.0, self._attach)
        self.at(5.0, self._break_later)
        while self._events:
            time_s, _, event = heapq.heappop(self._events)
            if time_s > FAULTS_S + QUIET_S:
                break
            self.now_s = time_s
            event()
            self.check()
        self.check_end()
        return self.count

    @property
    def is_faulty(self) -> bool:
        """Whether things go wrong, and are changed, still."""
        return self.now_s < FAULTS_S

    def view(self) -> View:
        """Read once for each change of the store."""
        self.store.end_leases()
        if self._view is None or self._view.revision != self.store.revision:
            self._view = View(self.store.range(ROOT))
        return self._view

    def check(self) -> None:
        """What holds at every moment; asked where something has changed, and each second."""
        state = (self.store.revision, self.changed, int(self.now_s))
        if state == self._checked:
            return
        if self.store.revision != self._checked[0]:
            self._check_store()
        self._checked = state
        running: dict[str, str] = {}
        for host in self.hosts:
            used: dict[int, int] = {}
            for session in host.list_live():
                for gpu in session.gpus:
                    used[gpu] = used.get(gpu, 0) + session.milli
                if session.claim in running:
                    raise BrokenError(
                        f"{session.claim} runs on {running[session.claim]} and {host.name}"
                    )
                running[session.claim] = host.name
                if lease_key(host.name, session.claim) not in self.store.entries:
                    raise BrokenError(f"{session.claim} runs on {host.name} without a lease")
            if any(milli > 1000 for milli in used.values()):
                raise BrokenError(f"sessions on {host.name} have more than a GPU: {used}")

    def _check_store(self) -> None:
        view = self.view()
        granted: dict[tuple[str, int], int] = {}
        for lease in view.leases.values():
            for index in lease.gpus:
                granted[lease.host, index] = granted.get((lease.host, index), 0) + lease.milli
        if over := {gpu: milli for gpu, milli in granted.items() if milli > 1000}:
            raise BrokenError(f"granted twice: {over}")
        self._check_quotas(view)
        self._check_apart(view)
        self._check_places(view)
        self.times.check(view)
        holders = Counter(lease.claim for lease in view.leases.values())
        if twice := [claim for claim, count in holders.items() if count > 1]:
            raise BrokenError(f"several leases of one claim: {twice}")
        if back := self._gone & view.claims.keys():
            raise BrokenError(f"deleted, and back: {back}")
        self._gone |= {
            name for name in self._leases if name.startswith("claim-")
        } - view.claims.keys()
        states = {f"host {host.name}": str(host.state) for host in view.hosts.values()}
        places = {claim.name: claim.host or "" for claim in view.claims.values()}
        for name, state in {**states, **places}.items():
            before = self._leases.get(name, "")
            if state != before and state == "fenced":
                self.count["hosts fenced"] += 1
            elif state and not before and name in places and name in self._leases:
                self.count["granted after waiting"] += 1
            elif not state and before:
                self.count["leases lost and noticed"] += 1
        self._leases = {**states, **places}

    def _check_places(self, view: View) -> None:
        """No lease is on a host that its claim does not ask for, and a GPU that is closed gets none."""
        had: set[tuple[str, str, int]] = set()
        for lease in view.leases.values():
            claim = view.claims.get(lease.claim)
            if claim is not None and not is_among(lease.host, claim.where):
                raise BrokenError(f"{claim} is on {lease.host}")
            if view.find_token(lease) == view.revision and claim is not None and claim.late:
                want = view.wants.get(lease.claim)
                if not lease.is_ending and (want is None or want.host != lease.host):
                    raise BrokenError(f"{lease} was granted, and {want} wants it")
            for index in lease.gpus:
                had.add((lease.claim, lease.host, index))
                is_closed = bool(view.gpus[f"{lease.host}/{index:04}"].closed)
                is_late = view.find_token(lease) > self._closed.get((lease.host, index), 0)
                if is_closed and is_late and (lease.claim, lease.host, index) not in self._had:
                    raise BrokenError(f"{lease} was granted on a GPU that is closed")
        self._had = had
        waiting = [claim.why for claim in view.claims.values() if claim.host is None]
        self.count["waits by closed GPUs"] += sum("nothing new" in why for why in waiting)
        self.count["on hosts asked for"] += sum(
            bool(view.claims[lease.claim].where)
            for lease in view.leases.values()
            if lease.claim in view.claims
        )

    def _check_apart(self, view: View) -> None:
        groups = Counter(
            (view.claims[lease.claim].anti_affinity, lease.host)
            for lease in view.leases.values()
            if lease.claim in view.claims
        )
        for (group, host), count in groups.items():
            if group and count > 1:
                raise BrokenError(f"{count} claims of group {group} are on {host}")
        over = [claim for claim in view.claims.values() if "anti-affinity" in claim.why]
        self.count["kept apart"] += len(over)

    def _check_quotas(self, view: View) -> None:
        has: Counter[str] = Counter()
        for lease in view.leases.values():
            if lease.claim in view.claims:
                has[view.claims[lease.claim].tenant] += lease.milli * len(lease.gpus)
        for tenant in TENANTS:
            used = has[tenant.name]
            if used > (tenant.gpu_milli or 0):
                raise BrokenError(f"tenant {tenant.name} has {used} of {tenant.gpu_milli}")
            if used > 0.8 * (tenant.gpu_milli or 0):
                self.count["quotas used"] += 1
        over = [claim for claim in view.claims.values() if "of its quota of" in claim.why]
        self.count["over quota"] += len(over)

    def check_end(self) -> None:
        """What holds once nothing has gone wrong for a while."""
        view = self.view()
        self.times.check_last(view)
        live = {(h.name, s.claim): s for h in self.hosts for s in h.list_live()}
        for claim in view.claims.values():
            lease = view.find_lease(claim)
            if self.times.is_new(claim.name):
                live = {key: one for key, one in live.items() if key[1] != claim.name}
                self.count["end moved"] += 1
                continue
            if claim.is_ending:
                raise BrokenError(f"{claim.name} does not end")
            if not view.is_wanted(claim):
                if lease is not None or claim.host or claim.why:
                    raise BrokenError(f"{claim} is not wanted, and has {lease}")
                self.count["end idle"] += 1
                continue
            want = view.wants.get(claim.name)
            if want is not None and lease is not None and lease.host != want.host:
                raise BrokenError(f"{want} has {lease}")
            if lease is None:
                if claim.host or not claim.why:
                    raise BrokenError(f"{claim} has neither a lease nor a reason")
                self.count["end explained"] += 1
                continue
            session = live.pop((lease.host, claim.name), None)
            if session is None:
                raise BrokenError(f"{lease} is granted, and nothing runs on it")
            if session.token != view.find_token(lease):
                raise BrokenError(f"{session} is not as its lease says: {lease}")
            self.count["end granted"] += 1
        if live:
            raise BrokenError(f"without a claim: {live}")
        for lease in view.leases.values():
            if lease.claim not in view.claims:
                raise BrokenError(f"without a claim: {lease}")
        forgotten = view.list_forgotten()
        if forgotten := [key for key in forgotten if not self.times.is_new(key.rpartition("/")[2])]:
            raise BrokenError(f"without a claim: {forgotten}")
