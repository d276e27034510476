"""Which host a task gets. A score belongs to a state and a class of tasks, so it is computed once and kept."""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection
from typing import NamedTuple, Protocol

from vgpumgr.pool.scheduler.cluster import Cluster
from vgpumgr.pool.scheduler.filters import fits
from vgpumgr.pool.scheduler.fragmentation import Mix
from vgpumgr.pool.scheduler.model import Demand, State
from vgpumgr.pool.scheduler.policies import POLICIES, Policy

#: the name of the policy that takes any host
RANDOM = "random"
#: every policy that can be named
POLICY_NAMES = (*POLICIES, RANDOM)
#: hosts that ``random`` tries before it makes a list of those that fit
_TRIES = 32


class Choice(NamedTuple):
    """A host by its number, and the free piece of its GPU that a share goes to."""

    host: int
    piece: int | None


class Chooser(Protocol):
    """Chooses hosts of one cluster."""

    def choose(self, demand: Demand, without: Collection[int] = ()) -> Choice | None:
        """The host for a task with this demand, none of those ``without``; None where it fits nowhere."""


def open_chooser(name: str, cluster: Cluster, mix: Mix, seed: int = 0) -> Chooser:
    """The chooser of a policy. Raises KeyError for an unknown one."""
    if name == RANDOM:
        return RandomChooser(cluster, seed)
    return ScoringChooser(cluster, POLICIES[name](cluster.hosts, mix))


class _Queue:
    """The states that a class fits on, the best first, as far as the journal of changes is read."""

    __slots__ = ("at", "epoch", "heap", "known")

    def __init__(self) -> None:
        self.heap: list[tuple[tuple[float, ...], State, int | None]] = []
        self.known: set[State] = set()
        self.epoch = -1
        self.at = 0


class ScoringChooser:
    """The host with the smallest key.

    Each class of tasks has a queue of states. A state that has no host any more is dropped when it comes up; one that
    has come into being since the class was asked for last is scored then.
    """

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self._cluster = cluster
        self._policy = policy
        self._queues: dict[Demand, _Queue] = {}

    def choose(self, demand: Demand, without: Collection[int] = ()) -> Choice | None:
        """The host for a task with this demand, none of those ``without``; None where it fits nowhere."""
        if without:
            return self._choose_among_all(demand, without)
        queue = self._queues.get(demand)
        if queue is None:
            queue = self._queues[demand] = _Queue()
        self._read_changes(queue, demand)
        heap = queue.heap
        while heap:
            _, state, piece = heap[0]
            host = self._cluster.find_host(state)
            if host is not None:
                return Choice(host, piece)
            heapq.heappop(heap)
            queue.known.discard(state)
        return None

    def _choose_among_all(self, demand: Demand, without: Collection[int]) -> Choice | None:
        """States are shared by hosts, so that what holds for some of these cannot be kept in a queue."""
        best: tuple[tuple[float, ...], Choice] | None = None
        for state, bucket in self._cluster.buckets.items():
            host = next((host for host in reversed(bucket) if host not in without), None)
            if host is not None and fits(state, demand):
                key, piece = self._policy.score(state, demand)
                if best is None or key < best[0]:
                    best = key, Choice(host, piece)
        return None if best is None else best[1]

    def _read_changes(self, queue: _Queue, demand: Demand) -> None:
        cluster = self._cluster
        changes = cluster.changes
        if queue.epoch != cluster.epoch or len(changes) - queue.at > len(cluster.buckets):
            # as long as the journal is, a new queue is shorter, and without the states of the past
            queue.heap, queue.known = [], set()
            new = set(cluster.buckets)
        elif queue.at == len(changes):
            return
        else:
            new = set(changes[queue.at :])
        queue.epoch, queue.at = cluster.epoch, len(changes)
        known, buckets, score = queue.known, cluster.buckets, self._policy.score
        for state in new:
            if state not in known and state in buckets and fits(state, demand):
                key, piece = score(state, demand)
                heapq.heappush(queue.heap, (key, state, piece))
                known.add(state)


class RandomChooser:
    """Any host that the task fits on, and any of its GPUs."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)

    def choose(self, demand: Demand, without: Collection[int] = ()) -> Choice | None:
        """The host for a task with this demand, none of those ``without``; None where it fits nowhere."""
        cluster, draw = self._cluster, self._random
        count = len(cluster.hosts)
        found = None
        for _ in range(_TRIES if count else 0):
            host = draw.randrange(count)
            if host not in without and fits(cluster.read_state(host), demand):
                found = host
                break
        if found is None:
            hosts = [
                host
                for state, bucket in cluster.buckets.items()
                if fits(state, demand)
                for host in bucket
                if host not in without
            ]
            if not hosts:
                return None
            found = draw.choice(hosts)
        piece = None
        if demand.is_share:
            gpus = cluster.read_gpus(found)
            piece = draw.choice([free for free in gpus if free >= demand.gpu_milli])
        return Choice(found, piece)
