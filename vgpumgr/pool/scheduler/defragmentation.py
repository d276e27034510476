"""Moves running tasks so that waiting ones fit, with a budget of moves.

Two kinds of free GPU are won. Pieces become large enough together when a task goes to a piece that no waiting task can
use. And GPUs of hosts whose CPU is used up become usable: a task that takes much CPU goes to a host with CPU to spare,
or changes places with one that takes as much GPU and less CPU. All are weighed alike: by the GPU that waiting tasks get
for each move.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from vgpumgr.pool.scheduler.choosing import Choice, open_chooser
from vgpumgr.pool.scheduler.cluster import Cluster
from vgpumgr.pool.scheduler.filters import fits
from vgpumgr.pool.scheduler.fragmentation import Mix
from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Placement, State, Task, take
from vgpumgr.pool.scheduler.policies import FragmentationGradient

#: tasks that leave a host together
_MOST = 2
#: CPU and memory of a host where neither is short
_PLENTY = 1 << 40


class Move(NamedTuple):
    """A task, and the numbers of the hosts that it leaves and goes to. They are one where it changes its GPU only."""

    task: str
    source: int
    target: int


class _Relocation(NamedTuple):
    """Tasks that leave a host. A ``partner``, by its name, comes in the place of the only one; none is empty."""

    host: int
    tasks: tuple[str, ...]
    partner: str = ""

    @property
    def moves(self) -> int:
        return len(self.tasks) + bool(self.partner)


class Defragmentation:
    """A cluster, and the tasks that wait for it. ``waiting`` shrinks while ``run`` places them."""

    def __init__(self, cluster: Cluster, mix: Mix, waiting: Sequence[Task]) -> None:
        self._cluster = cluster
        self._policy = FragmentationGradient(mix)
        self._chooser = open_chooser(FragmentationGradient.name, cluster, mix)
        self._waiting: dict[Demand, list[Task]] = {}
        for task in waiting:
            self._waiting.setdefault(task.demand, []).append(task)
        # the largest first; of equal ones, those that take the least CPU
        self._order = sorted(
            (demand for demand in self._waiting if demand.num_gpu),
            key=lambda demand: (-demand.total_milli, demand.cpu_milli, demand),
        )

    @property
    def waiting(self) -> list[Task]:
        """Tasks that still fit nowhere."""
        return [task for tasks in self._waiting.values() for task in tasks]

    def run(self, budget: int) -> list[Move]:
        """Relocates tasks, the most GPU for each move first, at most ``budget`` of them; returns the moves in order.

        A value is computed anew when its relocation comes up: others may have changed hosts and queue meanwhile.
        """
        moves: list[Move] = []
        heap = [one for host in range(len(self._cluster.hosts)) for one in self._rate(host)]
        heapq.heapify(heap)
        while heap and len(moves) < budget:
            rank, relocation = heapq.heappop(heap)
            if len(moves) + relocation.moves > budget:
                continue
            value = self._evaluate(relocation)
            if value < -rank:
                if value > 0:
                    heapq.heappush(heap, (-value, relocation))
                continue
            done = self._relocate(relocation)
            moves += done
            changed = {host for move in done for host in (move.source, move.target)}
            for one in (one for host in sorted(changed) for one in self._rate(host)):
                heapq.heappush(heap, one)
        return moves

    def _rate(self, host: int) -> Iterator[tuple[float, _Relocation]]:
        """What is worth something on a host, the best with the lowest rank."""
        free = self._cluster.read_state(host)
        plenty = free._replace(cpu_milli=_PLENTY, memory_mib=_PLENTY)
        is_short = next(self._fill(plenty), None) is not None
        for relocation in self._list_relocations(host, is_short):
            if (value := self._evaluate(relocation)) > 0:
                yield -value, relocation

    def _list_relocations(self, host: int, is_short: bool) -> Iterator[_Relocation]:
        """Of tasks that are alike and on one GPU, or need none, one stands for all. Places are exchanged only where
        GPUs are free that CPU or memory is too short for.
        """
        state = self._cluster.read_state(host)
        if not state.free_milli:
            return
        there = self._cluster.on_host[host].values()
        unlike = {(one.task.demand, one.gpus): one for one in there}
        for size in range(1, _MOST + 1):
            for group in combinations(unlike.values(), size):
                yield _Relocation(host, tuple(one.task.name for one in group))
        if is_short:
            for placement in {one.task.demand: one for one in there}.values():
                for partner in self._list_partners(placement):
                    yield _Relocation(host, (placement.task.name,), partner.task.name)

    def _list_partners(self, placement: Placement) -> Iterator[Placement]:
        """Of each class of tasks with as much GPU and less CPU, one on the host with the most free CPU that can take
        the other.
        """
        own = placement.task.demand
        best: dict[Demand, tuple[int, Placement]] = {}
        for host, tasks in enumerate(self._cluster.on_host):
            state = self._cluster.read_state(host)
            if host == placement.host or (own.models and state.model not in own.models):
                continue
            for other in tasks.values():
                demand = other.task.demand
                if (
                    demand.num_gpu == own.num_gpu
                    and demand.gpu_milli == own.gpu_milli
                    and demand.cpu_milli < own.cpu_milli <= state.cpu_milli + demand.cpu_milli
                    and own.memory_mib <= state.memory_mib + demand.memory_mib
                    and (demand not in best or best[demand][0] < state.cpu_milli)
                ):
                    best[demand] = state.cpu_milli, other
        yield from (other for _, other in best.values())

    def _evaluate(self, relocation: _Relocation) -> float:
        """Milli-GPU that waiting tasks would get for each move; 0 where it cannot be done any more."""
        group = self._read_group(relocation.host, relocation.tasks)
        if group is None:
            return 0
        if not relocation.partner:
            if any(self._find_target(one) is None for one in group):
                return 0
            free = self._free(group)
        else:
            partner = self._cluster.placements[relocation.partner]
            if not self._can_exchange(group[0], partner):
                return 0
            free = take(self._free(group), partner.task.demand, self._read_piece(group[0]))
        return sum(demand.total_milli for demand in self._fill(free)) / relocation.moves

    def _read_group(self, host: int, names: Iterable[str]) -> tuple[Placement, ...] | None:
        """The tasks, where all are still on the host."""
        there = self._cluster.on_host[host]
        return tuple(there[name] for name in names) if all(n in there for n in names) else None

    def _free(self, group: Sequence[Placement]) -> State:
        """The state of a host without some tasks."""
        host = group[0].host
        state, gpus = self._cluster.read_state(host), list(self._cluster.read_gpus(host))
        for one in group:
            for number in one.gpus:
                gpus[number] += one.task.demand.gpu_milli
        demands = [one.task.demand for one in group]
        cpu = state.cpu_milli + sum(demand.cpu_milli for demand in demands)
        memory = state.memory_mib + sum(demand.memory_mib for demand in demands)
        return State(state.model, cpu, memory, tuple(sorted(gpus)))

    def _read_piece(self, placement: Placement) -> int | None:
        """The free piece that a share leaves behind."""
        demand = placement.task.demand
        if not demand.is_share:
            return None
        return self._cluster.read_gpus(placement.host)[placement.gpus[0]] + demand.gpu_milli

    def _can_exchange(self, one: Placement, other: Placement) -> bool:
        return one.host != other.host and all(
            fits(self._free([leaving]), coming.task.demand)
            for leaving, coming in ((one, other), (other, one))
        )

    def _fill(self, state: State) -> Iterator[Demand]:
        """The waiting tasks that a host in this state gets, the largest first."""
        for demand in self._order:
            left = len(self._waiting[demand])
            while left and fits(state, demand):
                state = take(state, demand, self._policy.score(state, demand)[1])
                left -= 1
                yield demand

    def _find_target(self, placement: Placement) -> Choice | None:
        """Where a task can go: to another host, or to another GPU of its own."""
        demand, host = placement.task.demand, placement.host
        choice = self._chooser.choose(demand)
        if choice is None or choice.host != host:
            return choice
        if not demand.is_share:
            return None
        own = placement.gpus[0]
        pieces = [
            free
            for number, free in enumerate(self._cluster.read_gpus(host))
            if number != own and demand.gpu_milli <= free < GPU_MILLI
        ]
        return Choice(host, min(pieces)) if pieces else None

    def _relocate(self, relocation: _Relocation) -> list[Move]:
        """Moves the tasks and fills their host. If the waiting tasks get nothing, all is as before: no moves."""
        group = self._read_group(relocation.host, relocation.tasks)
        assert group is not None
        if not relocation.partner:
            done = self._move(group)
        else:
            done = self._exchange(group[0], self._cluster.placements[relocation.partner])
        if len(done) == relocation.moves and self._place_waiting(relocation.host):
            return [Move(after.task.name, before.host, after.host) for before, after in done]
        for _, after in done:
            self._cluster.remove(after.task.name)
        for before, _ in done:
            self._cluster.restore(before)
        return []

    def _move(self, group: Sequence[Placement]) -> list[tuple[Placement, Placement]]:
        done: list[tuple[Placement, Placement]] = []
        for one in group:
            target = self._find_target(one)
            if target is None:
                break
            self._cluster.remove(one.task.name)
            done.append((one, self._cluster.place(one.task, *target)))
        return done

    def _exchange(self, one: Placement, other: Placement) -> list[tuple[Placement, Placement]]:
        pieces = self._read_piece(one), self._read_piece(other)
        for leaving in (one, other):
            self._cluster.remove(leaving.task.name)
        return [
            (one, self._cluster.place(one.task, other.host, pieces[1])),
            (other, self._cluster.place(other.task, one.host, pieces[0])),
        ]

    def _place_waiting(self, host: int) -> int:
        """Places what fits on a host now; returns how many tasks."""
        demands = list(self._fill(self._cluster.read_state(host)))
        for demand in demands:
            piece = self._policy.score(self._cluster.read_state(host), demand)[1]
            self._cluster.place(self._waiting[demand].pop(), host, piece)
        return len(demands)
