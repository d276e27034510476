"""What runs where. Hosts in equal states stand in one bucket, so that a decision reads states, not hosts."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.pool.scheduler.filters import fits
from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Host, Placement, State, Task

#: states in the journal of changes; beyond it, readers begin anew
_JOURNAL = 100_000


class Cluster:
    """Hosts and the tasks on them.

    ``changes`` has the states that have come into being, in order: who remembers scores of states reads on where it has
    stopped. When ``epoch`` has moved, the journal has begun anew.
    """

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = tuple(hosts)
        self.placements: dict[str, Placement] = {}
        self.on_host: list[dict[str, Placement]] = [{} for _ in self.hosts]
        self.buckets: dict[State, dict[int, None]] = {}
        self.changes: list[State] = []
        self.epoch = 0
        self.capacity_milli = GPU_MILLI * sum(host.gpus for host in self.hosts)
        self.allocated_milli = 0
        self._states = [host.state for host in self.hosts]
        self._gpus = [[GPU_MILLI] * host.gpus for host in self.hosts]
        for number, state in enumerate(self._states):
            self.buckets.setdefault(state, {})[number] = None

    def read_state(self, host: int) -> State:
        """What is free on a host."""
        return self._states[host]

    def read_gpus(self, host: int) -> tuple[int, ...]:
        """What is free of each GPU of a host, by the GPU's number."""
        return tuple(self._gpus[host])

    def find_host(self, state: State) -> int | None:
        """A host in that state, the one that came into it last."""
        bucket = self.buckets.get(state)
        return next(reversed(bucket)) if bucket else None

    def place(self, task: Task, host: int, piece: int | None = None) -> Placement:
        """Puts a task on a host. ``piece`` is the free part of the GPU that a share goes to; without it, the smallest
        that is enough. Raises ValueError where the task does not fit, or is placed.
        """
        demand = task.demand
        if task.name in self.placements:
            raise ValueError(f"{task.name} is placed")
        if not fits(self._states[host], demand):
            raise ValueError(f"{task.name} does not fit on {self.hosts[host].name}")
        placement = Placement(task, host, self._choose_gpus(host, demand, piece))
        self._change(placement, -1)
        self.placements[task.name] = placement
        self.on_host[host][task.name] = placement
        return placement

    def remove(self, name: str) -> Placement:
        """Takes a task off its host. Raises KeyError where it is not placed."""
        placement = self.placements.pop(name)
        del self.on_host[placement.host][name]
        self._change(placement, 1)
        return placement

    def restore(self, placement: Placement) -> None:
        """Puts a task back on the GPUs that it was removed from, which are free."""
        self._change(placement, -1)
        self.placements[placement.task.name] = placement
        self.on_host[placement.host][placement.task.name] = placement

    def _choose_gpus(self, host: int, demand: Demand, piece: int | None) -> tuple[int, ...]:
        gpus = self._gpus[host]
        if not demand.is_share:
            idle = [number for number, free in enumerate(gpus) if free == GPU_MILLI]
            return tuple(idle[: demand.num_gpu])
        if demand.num_gpu > 1:  # of each a share: the smallest pieces that are enough
            fitting = sorted(
                (free, number) for number, free in enumerate(gpus) if free >= demand.gpu_milli
            )
            return tuple(sorted(number for _, number in fitting[: demand.num_gpu]))
        if piece is None:
            piece = min(free for free in gpus if free >= demand.gpu_milli)
        if piece < demand.gpu_milli or piece not in gpus:
            raise ValueError(f"no GPU of {self.hosts[host].name} has {piece} milli free")
        return (gpus.index(piece),)

    def _change(self, placement: Placement, sign: int) -> None:
        host, demand = placement.host, placement.task.demand
        state, gpus = self._states[host], self._gpus[host]
        for number in placement.gpus:
            gpus[number] += sign * demand.gpu_milli
        self.allocated_milli -= sign * demand.total_milli
        then = State(
            state.model,
            state.cpu_milli + sign * demand.cpu_milli,
            state.memory_mib + sign * demand.memory_mib,
            tuple(sorted(gpus)),
        )
        bucket = self.buckets[state]
        del bucket[host]
        if not bucket:
            del self.buckets[state]
        self._states[host] = then
        if then in self.buckets:
            self.buckets[then][host] = None
            return
        self.buckets[then] = {host: None}
        if len(self.changes) >= _JOURNAL:
            self.changes.clear()
            self.epoch += 1
        self.changes.append(then)
