"""By what a policy prefers a host: a key for each state and class of tasks, the smallest wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from vgpumgr.pool.scheduler.fragmentation import Mix
from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Host, State, take_gpus

#: what a host is preferred by, and the free piece of the GPU that a share goes to
Score = tuple[tuple[float, ...], int | None]


class Policy(Protocol):
    """``score`` is asked only for hosts that the task fits on."""

    name: ClassVar[str]
    help: ClassVar[str]

    def score(self, state: State, demand: Demand) -> Score:
        """The key of a host in this state, and the piece that it would give."""


def find_smallest_piece(state: State, demand: Demand) -> int | None:
    """The smallest free piece that is enough for a share; None for other tasks."""
    if not demand.is_share:
        return None
    return next(free for free in state.gpus if free >= demand.gpu_milli)


class FragmentationGradient:
    """The host where the expected unusable GPU grows least.

    A tie goes to the host with the least free GPU, so that idle hosts stay whole, then to that with the least free CPU.
    """

    name = "fgd"
    help = "least growth of the GPU that the mix of tasks cannot use"

    def __init__(self, hosts: Sequence[Host], mix: Mix) -> None:  # noqa: ARG002
        self._mix = mix

    def score(self, state: State, demand: Demand) -> Score:
        """What of the host is usable now, less what stays usable."""
        tables, gpus = self._mix.read_tables(state.model), state.gpus
        usable = tables.measure(state.cpu_milli, gpus)
        cpu = state.cpu_milli - demand.cpu_milli
        if not demand.is_share:
            left = tables.measure(cpu, take_gpus(gpus, demand, None))
            return (usable - left, sum(gpus), state.cpu_milli), None
        best, piece = -1, None
        for free in gpus:
            # ascending, so that of equal pieces the smallest is kept
            if free >= demand.gpu_milli and free != piece:
                left = tables.measure(cpu, take_gpus(gpus, demand, free))
                if left > best:
                    best, piece = left, free
        return (usable - best, sum(gpus), state.cpu_milli), piece


class _Scaled:
    """Free CPU, memory and GPU as fractions of the largest host's."""

    def __init__(self, hosts: Sequence[Host], mix: Mix) -> None:  # noqa: ARG002
        self._cpu = max((host.cpu_milli for host in hosts), default=1) or 1
        self._memory = max((host.memory_mib for host in hosts), default=1) or 1
        self._gpu = GPU_MILLI * (max((host.gpus for host in hosts), default=1) or 1)

    def _scale(self, cpu: int, memory: int, gpu: int) -> tuple[float, float, float]:
        return cpu / self._cpu, memory / self._memory, gpu / self._gpu

    def _scale_state(self, state: State) -> tuple[float, float, float]:
        return self._scale(state.cpu_milli, state.memory_mib, state.free_milli)


class BestFit(_Scaled):
    """The host with the least left, all resources together."""

    name = "best-fit"
    help = "the host with the least free CPU, memory and GPU together"

    def score(self, state: State, demand: Demand) -> Score:
        """The sum of what is free: what the task takes is the same everywhere."""
        return (sum(self._scale_state(state)),), find_smallest_piece(state, demand)


class DotProduct(_Scaled):
    """The host whose free resources match the task's least: those that others need more are kept."""

    name = "dot-product"
    help = "the smallest product of what is free and what is asked for"

    def score(self, state: State, demand: Demand) -> Score:
        """The product of both vectors."""
        asked = self._scale(demand.cpu_milli, demand.memory_mib, demand.total_milli)
        product = sum(a * b for a, b in zip(self._scale_state(state), asked, strict=True))
        return (product,), find_smallest_piece(state, demand)


class GpuPacking:
    """GPUs in use first, then idle GPUs of hosts in use, then idle hosts."""

    name = "gpu-packing"
    help = "GPUs in use before idle ones, hosts in use before idle ones"

    def __init__(self, hosts: Sequence[Host], mix: Mix) -> None:
        pass

    def score(self, state: State, demand: Demand) -> Score:
        """The group, then what is free of the host."""
        piece = find_smallest_piece(state, demand)
        idle_host = state.idle_gpus == len(state.gpus)
        group = 2 if idle_host else 1
        if piece is not None and piece < GPU_MILLI:
            group = 0
        return (group, state.free_milli, state.cpu_milli), piece


class Spread:
    """The host with the most free GPU and CPU: tasks disturb each other least."""

    name = "spread"
    help = "the host with the most free GPU, then CPU"

    def __init__(self, hosts: Sequence[Host], mix: Mix) -> None:
        pass

    def score(self, state: State, demand: Demand) -> Score:
        """What is free, the most first; a share goes to the emptiest GPU."""
        piece = state.gpus[-1] if demand.is_share else None
        return (-state.free_milli, -state.cpu_milli), piece


#: the policies that score states; ``random`` is the chooser's own
POLICIES: dict[str, Callable[[Sequence[Host], Mix], Policy]] = {
    kind.name: kind for kind in (FragmentationGradient, BestFit, DotProduct, GpuPacking, Spread)
}
