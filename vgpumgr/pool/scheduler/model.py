"""Hosts, tasks and what is free on a host.

Everything is a whole number, so that equal states are equal and nothing is lost when a task goes: a thousandth of a
CPU, a MiB, a thousandth of a GPU.
"""

from __future__ import annotations

from typing import NamedTuple

from vgpumgr.model.frozen import dataclass

#: a whole GPU
GPU_MILLI = 1000


class Demand(NamedTuple):
    """What a task asks for. Tasks with equal demands are one class: the scheduler decides once for all of them.

    ``gpu_milli`` is of each GPU: below 1,000 it is a share of one GPU, which is never split across two. ``models`` are
    the GPU models that it accepts; none means any.
    """

    cpu_milli: int
    memory_mib: int
    num_gpu: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Of all its GPUs together."""
        return self.num_gpu * self.gpu_milli

    @property
    def is_share(self) -> bool:
        """Whether it takes a part of one GPU."""
        return 0 < self.gpu_milli < GPU_MILLI


class State(NamedTuple):
    """What is free on a host. Hosts in equal states are interchangeable: they share buckets and scores.

    ``gpus`` is what is free of each GPU, in ascending order.
    """

    model: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[int, ...]

    @property
    def free_milli(self) -> int:
        """Of all its GPUs together."""
        return sum(self.gpus)

    @property
    def idle_gpus(self) -> int:
        """GPUs that nothing runs on."""
        return self.gpus.count(GPU_MILLI)


@dataclass(frozen=True, slots=True)
class Host:
    """A host as it is when nothing runs on it. ``model`` is empty for a host without GPUs."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str

    @property
    def state(self) -> State:
        """Its state when nothing runs on it."""
        return State(self.model, self.cpu_milli, self.memory_mib, (GPU_MILLI,) * self.gpus)


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be placed; its name is unique."""

    name: str
    demand: Demand


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a task is: the number of its host in the cluster, and those of its GPUs on that host."""

    task: Task
    host: int
    gpus: tuple[int, ...]


def take(state: State, demand: Demand, piece: int | None) -> State:
    """The state with a task more, which fits; ``piece`` is the free part of the GPU that a share goes to."""
    return State(
        state.model,
        state.cpu_milli - demand.cpu_milli,
        state.memory_mib - demand.memory_mib,
        take_gpus(state.gpus, demand, piece),
    )


def take_gpus(gpus: tuple[int, ...], demand: Demand, piece: int | None) -> tuple[int, ...]:
    """The GPUs of that state."""
    if piece is None:
        count = demand.num_gpu
        return (0,) * count + gpus[:-count] if count else gpus
    at = gpus.index(piece)
    return tuple(sorted((*gpus[:at], *gpus[at + 1 :], piece - demand.gpu_milli)))
