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

    def score(self, state: State, demand: Demand) -> Score:
        """The key of a host in this state, and the piece that it would give."""

    def describe(self, key: tuple[float, ...]) -> str:
        """The key as people read it."""


def find_smallest_piece(state: State, demand: Demand) -> int | None:
    """The smallest free piece that is enough for a share; None for other tasks."""
    if not demand.is_share:
        return None
    return next(free for free in state.gpus if free >= demand.gpu_milli)


class FragmentationGradient:
    """The host where the expected unusable GPU grows least.

    A tie goes to the host with the least free GPU, so that idle hosts stay whole, then to that with the least free CPU.
    """

    name: ClassVar[str] = "fgd"

    def __init__(self, mix: Mix) -> None:
        self._mix = mix

    def score(self, state: State, demand: Demand) -> Score:
        """What of the host is usable now, less what stays usable."""
        tables, gpus = self._mix.read_tables(state.model), state.gpus
        usable = tables.measure(state.cpu_milli, gpus)
        cpu = state.cpu_milli - demand.cpu_milli
        if not demand.is_share:
            left = tables.measure(cpu, take_gpus(gpus, demand, None))
            lost = usable - left - self._mix.count * demand.total_milli
            return (lost, sum(gpus), state.cpu_milli), None
        best, piece = -1, None
        for free in gpus:
            # ascending, so that of equal pieces the smallest is kept
            if free >= demand.gpu_milli and free != piece:
                left = tables.measure(cpu, take_gpus(gpus, demand, free))
                if left > best:
                    best, piece = left, free
        lost = usable - best - self._mix.count * demand.total_milli
        return (lost, sum(gpus), state.cpu_milli), piece

    def describe(self, key: tuple[float, ...]) -> str:
        """The mean over the mix."""
        growth = key[0] / max(self._mix.count, 1)
        return f"{growth:+.1f} milli-GPU unusable, {key[1]} free"


class _Scaled:
    """Free CPU, memory and GPU as fractions of the largest host's."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._cpu = max((host.cpu_milli for host in hosts), default=1) or 1
        self._memory = max((host.memory_mib for host in hosts), default=1) or 1
        self._gpu = GPU_MILLI * (max((host.gpus for host in hosts), default=1) or 1)

    def _scale(self, cpu: int, memory: int, gpu: int) -> tuple[float, float, float]:
        return cpu / self._cpu, memory / self._memory, gpu / self._gpu

    def _scale_state(self, state: State) -> tuple[float, float, float]:
        return self._scale(state.cpu_milli, state.memory_mib, state.free_milli)


class BestFit(_Scaled):
    """The host with the least left, all resources together."""

    name: ClassVar[str] = "best-fit"

    def score(self, state: State, demand: Demand) -> Score:
        """The sum of what is free: what the task takes is the same everywhere."""
        return (sum(self._scale_state(state)),), find_smallest_piece(state, demand)

    def describe(self, key: tuple[float, ...]) -> str:
        """The sum."""
        return f"{key[0]:.3f} of 3 free"


class DotProduct(_Scaled):
    """The host whose free resources match the task's least: those that others need more are kept."""

    name: ClassVar[str] = "dot-product"

    def score(self, state: State, demand: Demand) -> Score:
        """The product of both vectors."""
        asked = self._scale(demand.cpu_milli, demand.memory_mib, demand.total_milli)
        product = sum(a * b for a, b in zip(self._scale_state(state), asked, strict=True))
        return (product,), find_smallest_piece(state, demand)

    def describe(self, key: tuple[float, ...]) -> str:
        """The product."""
        return f"product {key[0]:.4f}"


class GpuPacking:
    """GPUs in use first, then idle GPUs of hosts in use, then idle hosts."""

    name: ClassVar[str] = "gpu-packing"

    def score(self, state: State, demand: Demand) -> Score:
        """The group, then what is free of the host."""
        piece = find_smallest_piece(state, demand)
        idle_host = state.idle_gpus == len(state.gpus)
        group = 2 if idle_host else 1
        if piece is not None and piece < GPU_MILLI:
            group = 0
        return (group, state.free_milli, state.cpu_milli), piece

    def describe(self, key: tuple[float, ...]) -> str:
        """The group, and what is free."""
        group = ("a GPU in use", "a host in use", "an idle host")[int(key[0])]
        return f"{group}, {key[1]} milli-GPU free"


class Spread:
    """The host with the most free GPU and CPU: tasks disturb each other least."""

    name: ClassVar[str] = "spread"

    def score(self, state: State, demand: Demand) -> Score:
        """What is free, the most first; a share goes to the emptiest GPU."""
        piece = state.gpus[-1] if demand.is_share else None
        return (-state.free_milli, -state.cpu_milli), piece

    def describe(self, key: tuple[float, ...]) -> str:
        """What is free."""
        return f"{-key[0]} milli-GPU, {-key[1]} milli-CPU free"


#: the policies that score states; ``random`` is the chooser's own
POLICIES: dict[str, Callable[[Sequence[Host], Mix], Policy]] = {
    FragmentationGradient.name: lambda _, mix: FragmentationGradient(mix),
    BestFit.name: lambda hosts, _: BestFit(hosts),
    DotProduct.name: lambda hosts, _: DotProduct(hosts),
    GpuPacking.name: lambda *_: GpuPacking(),
    Spread.name: lambda *_: Spread(),
}
