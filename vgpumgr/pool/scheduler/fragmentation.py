"""How much free GPU the tasks seen cannot use.

Free GPU of a host is *unusable* for a class of tasks if no task of that class can run with it: the host has too little
CPU or too few idle GPUs for one, or a piece is smaller than the share that one asks for. The mean over the mix of tasks
seen is the fragmentation of the host; to let it grow least is fragmentation gradient descent (Weng et al., "Beware of
Fragmentation", USENIX ATC 2023). A class counts by the GPU that its tasks ask for, since GPU is what is allocated.
Memory of the host is no part of the classes: it rarely decides, and with it classes are many and each is rare.

Figures are whole numbers: milli-GPU times the weight of the mix. So ties are ties.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, State


class Mix:
    """The GPU tasks that were seen: ``classes`` has the GPU that those of each class ask for, ``weight`` the sum."""

    def __init__(self, demands: Iterable[Demand]) -> None:
        self.classes: Counter[Demand] = Counter()
        for demand in demands:
            if demand.num_gpu:
                self.classes[demand._replace(memory_mib=0)] += demand.total_milli
        self.weight = self.classes.total()
        self._named = frozenset(model for demand in self.classes for model in demand.models)
        self._tables: dict[str, Tables] = {}

    def measure_unusable(self, state: State) -> int:
        """Free milli-GPU of the host that each class cannot use, times its weight."""
        tables = self.read_tables(state.model)
        return self.weight * state.free_milli - tables.measure(state.cpu_milli, state.gpus)

    def read_tables(self, model: str) -> Tables:
        """The tables of hosts with GPUs of a model. Models that no class names share one."""
        key = model if model in self._named else ""
        if key not in self._tables:
            accepted = [d for d in self.classes if not d.models or key in d.models]
            self._tables[key] = Tables({one: self.classes[one] for one in accepted})
        return self._tables[key]


class Tables:
    """What of free GPUs is usable: a sum of a value of each piece and one of the idle GPUs. Both depend on which
    classes the free CPU is enough for, and on nothing else of the host: no class is visited when a host is scored.
    """

    def __init__(self, classes: Mapping[Demand, int]) -> None:
        self._cpus = sorted({demand.cpu_milli for demand in classes})
        self._most = max((demand.num_gpu for demand in classes), default=0)
        self._pieces: list[list[int]] = []
        self._idle: list[list[int]] = []
        for cpu_milli in [-1, *self._cpus]:
            shares, whole = [0] * (GPU_MILLI + 1), [0] * (self._most + 1)
            for demand, weight in classes.items():
                if demand.cpu_milli > cpu_milli:
                    continue
                if demand.is_share:
                    shares[demand.gpu_milli] += weight
                else:
                    whole[demand.num_gpu] += weight
            self._pieces.append([n * free for free, n in enumerate(accumulate(shares))])
            self._idle.append([n * GPU_MILLI for n in accumulate(whole)])

    def measure(self, cpu_milli: int, gpus: tuple[int, ...]) -> int:
        """What is usable of the GPUs of a host with so much free CPU."""
        level = bisect_right(self._cpus, cpu_milli)
        idle = gpus.count(GPU_MILLI)
        value = sum(map(self._pieces[level].__getitem__, gpus))
        return value + idle * self._idle[level][min(idle, self._most)]
