"""How much free GPU the tasks seen cannot use.

Free GPU of a host is *unusable* for a class of tasks if it stays free whatever tasks of that class come. For shares,
these are the pieces that are smaller than one, and all pieces where the CPU is not enough for one. For whole GPUs, they
are the pieces, and the idle GPUs beyond those of as many tasks as GPUs and CPU are enough for. The mean over the mix of
tasks seen is the fragmentation of the host. To let it grow least is fragmentation gradient descent (Weng et al.,
"Beware of Fragmentation", USENIX ATC 2023, where idle GPUs are usable as soon as one task fits). Memory of the host is
no part of the classes: it rarely decides, and with it classes are many and each is rare.

Figures are whole numbers: milli-GPU times the number of tasks in the mix. So ties are ties.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, State

#: values of idle GPUs that are kept; beyond it, they are computed anew
_KEPT = 100_000


class Mix:
    """The GPU tasks that were seen: ``classes`` has how many there are of each class, ``count`` the sum."""

    def __init__(self, demands: Iterable[Demand]) -> None:
        self.classes = Counter(
            demand._replace(memory_mib=0) for demand in demands if demand.num_gpu
        )
        self.count = self.classes.total()
        self._named = frozenset(model for demand in self.classes for model in demand.models)
        self._tables: dict[str, Tables] = {}

    def measure_unusable(self, state: State) -> int:
        """Free milli-GPU of the host that a task of the mix cannot use, summed over the tasks of the mix."""
        tables = self.read_tables(state.model)
        return self.count * state.free_milli - tables.measure(state.cpu_milli, state.gpus)

    def read_tables(self, model: str) -> Tables:
        """The tables of hosts with GPUs of a model. Models that no class names share one."""
        key = model if model in self._named else ""
        if key not in self._tables:
            accepted = [d for d in self.classes if not d.models or key in d.models]
            self._tables[key] = Tables({one: self.classes[one] for one in accepted})
        return self._tables[key]


class Tables:
    """What of free GPUs is usable: the sum of a value of each piece to shares, by which classes the free CPU is enough
    for, and one of the idle GPUs to whole tasks. Neither needs a visit of the classes when a host is scored.
    """

    def __init__(self, classes: Mapping[Demand, int]) -> None:
        shares = {demand: count for demand, count in classes.items() if demand.is_share}
        self._whole = [(d, count) for d, count in classes.items() if not d.is_share]
        self._cpus = sorted({demand.cpu_milli for demand in shares})
        self._pieces = [self._value_pieces(shares, cpu_milli) for cpu_milli in [-1, *self._cpus]]
        self._idle: dict[tuple[int, int], int] = {}

    def measure(self, cpu_milli: int, gpus: tuple[int, ...]) -> int:
        """What is usable of the GPUs of a host with so much free CPU."""
        pieces = self._pieces[bisect_right(self._cpus, cpu_milli)]
        key = cpu_milli, gpus.count(GPU_MILLI)
        value = self._idle.get(key)
        if value is None:
            if len(self._idle) >= _KEPT:
                self._idle.clear()
            value = self._idle[key] = self._value_idle(*key)
        return value + sum(map(pieces.__getitem__, gpus))

    @staticmethod
    def _value_pieces(shares: Mapping[Demand, int], cpu_milli: int) -> list[int]:
        """By the size of a piece."""
        counts = [0] * (GPU_MILLI + 1)
        for demand, count in shares.items():
            if demand.cpu_milli <= cpu_milli:
                counts[demand.gpu_milli] += count
        return [fitting * free for free, fitting in enumerate(accumulate(counts))]

    def _value_idle(self, cpu_milli: int, idle: int) -> int:
        value = 0
        for demand, count in self._whole:
            tasks = idle // demand.num_gpu
            if demand.cpu_milli:
                tasks = min(tasks, cpu_milli // demand.cpu_milli)
            value += count * tasks * demand.total_milli
        return value
