"""A synthetic trace with the character of the one that Alibaba published in 2023.

From the paper (Weng et al., "Beware of Fragmentation", USENIX ATC 2023) and the documentation of
``cluster-trace-gpu-v2023`` are: 1,213 hosts with 6,212 GPUs, the GPUs of each model, the sizes of hosts of a model;
8,152 tasks that ask for 6,087 GPUs; the shares of tasks without a GPU (13.3 %), with a part of one (37.8 %), with 1
(48.0 %), 2, 4 (0.2 % each) and 8 GPUs (0.5 %); 310 further hosts without GPUs, which the paper's figures leave out; and
that a third of the tasks of the whole cluster accept certain models only, which the default trace leaves out, too.

Chosen here are: how many hosts of each size a model has, where the publication has several sizes, and the forms of
requests with their weights: few forms, each asked for many times. They resemble what samples of the published list show
(CPU and memory are rounded, the sizes of parts are those seen), and the weights of parts are such that the sum is as
published, which takes two in five parts of 810 milli. They were written down before any policy ran, and no figure of a
policy had a part in them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Host, Task

#: hosts, milli-CPU, MiB, GPUs of each, model
_HOSTS = (
    (549, 96_000, 393_216, 8, "G2"),
    (39, 128_000, 786_432, 8, "G3"),
    (25, 96_000, 393_216, 4, "T4"),
    (371, 104_000, 524_288, 2, "T4"),
    (24, 96_000, 786_432, 8, "V100M32"),
    (3, 48_000, 376_832, 4, "V100M32"),
    (11, 64_000, 262_144, 8, "V100M16"),
    (24, 32_000, 131_072, 4, "V100M16"),
    (11, 8_000, 32_768, 1, "V100M16"),
    (22, 64_000, 262_144, 2, "P100"),
    (89, 16_000, 122_880, 2, "P100"),
    (43, 8_000, 61_440, 1, "P100"),
    (2, 128_000, 524_288, 1, "A10"),
)
_CPU_HOST = (32_000, 262_144)
_TASKS = 8_152
#: tasks of the whole trace by the GPUs that they ask for; the rest is a part of one
_WHOLE = {0: 1_084, 1: 3_913, 2: 15, 4: 16, 8: 44}
#: forms of requests: weight, milli-CPU, MiB
_FORMS: dict[int, tuple[tuple[int, int, int], ...]] = {
    0: (
        (34, 8_000, 30_720), (26, 32_000, 49_152), (20, 12_500, 57_344), (11, 16_500, 51_200),
        (6, 15_500, 51_200), (3, 20_000, 65_536),
    ),
    1: (
        (24, 11_500, 48_128), (17, 3_000, 5_632), (12, 18_500, 64_512), (10, 16_000, 32_768),
        (10, 12_000, 24_576), (9, 10_000, 41_984), (7, 12_000, 16_384), (5, 12_000, 47_104),
        (4, 8_000, 16_384), (4, 16_500, 126_976), (3, 4_000, 24_576), (3, 15_000, 80_896),
        (3, 16_000, 65_536), (2, 8_000, 33_792), (2, 24_000, 93_184), (2, 4_000, 31_744),
        (1, 12_000, 15_360), (1, 6_000, 32_768), (1, 2_000, 16_384),
    ),
    2: ((2, 17_500, 43_008), (1, 30_000, 160_768)),
    4: ((1, 40_000, 163_840),),
    8: ((1, 88_000, 327_680),),
}  # fmt: skip
#: the same of parts: weight, milli-CPU, MiB, milli-GPU
_PARTS = (
    (47, 3_000, 5_632, 810), (6, 3_000, 5_632, 590), (3, 4_000, 10_752, 550), (9, 8_000, 30_720, 470),
    (8, 8_000, 30_720, 320), (4, 8_000, 30_720, 220), (3, 8_000, 30_720, 650), (6, 12_000, 47_104, 470),
    (3, 12_000, 47_104, 650), (6, 6_000, 12_288, 460), (4, 6_000, 18_432, 460), (6, 4_000, 15_360, 320),
    (5, 4_000, 15_360, 220), (4, 4_000, 15_360, 160), (1, 4_000, 15_360, 110), (1, 4_000, 15_360, 50),
    (2, 4_000, 30_720, 230), (1, 4_000, 22_528, 480), (1, 1_000, 2_048, 320),
)  # fmt: skip
#: what a task with a constraint accepts
_CONSTRAINTS = (
    (6, ("G2",)), (2, ("T4",)), (1, ("G3",)), (1, ("P100",)), (1, ("V100M16", "V100M32")),
)  # fmt: skip


def make_hosts(scale: float = 1, cpu_hosts: int = 0) -> list[Host]:
    """The hosts. With a scale, so many of each size, at least one; ``cpu_hosts`` have no GPU."""
    hosts: list[Host] = []
    for count, cpu, memory, gpus, model in _HOSTS:
        for _ in range(max(1, round(count * scale))):
            hosts.append(Host(f"host-{len(hosts):04}", cpu, memory, gpus, model))
    for _ in range(round(cpu_hosts * scale)):
        hosts.append(Host(f"host-{len(hosts):04}", *_CPU_HOST, 0, ""))
    return hosts


def make_tasks(seed: int = 0, scale: float = 1, constrained_percent: float = 0) -> list[Task]:
    """The tasks in a random order. ``constrained_percent`` of those with GPUs accept certain models only."""
    draw = random.Random(seed)
    demands = list(_list_demands(scale))
    draw.shuffle(demands)
    models = [one for weight, one in _CONSTRAINTS for _ in range(weight)]
    tasks = []
    for number, demand in enumerate(demands):
        if demand.num_gpu and draw.random() * 100 < constrained_percent:
            demand = demand._replace(models=draw.choice(models))
        tasks.append(Task(f"task-{number:04}", demand))
    return tasks


def _list_demands(scale: float) -> Iterator[Demand]:
    """Each form as often as its weight says, to the task."""
    for gpus, count in _WHOLE.items():
        forms = [
            Demand(cpu, memory, gpus, GPU_MILLI * bool(gpus)) for _, cpu, memory in _FORMS[gpus]
        ]
        yield from _share_out(forms, [form[0] for form in _FORMS[gpus]], count * scale)
    parts = [Demand(cpu, memory, 1, milli) for _, cpu, memory, milli in _PARTS]
    yield from _share_out(
        parts, [form[0] for form in _PARTS], (_TASKS - sum(_WHOLE.values())) * scale
    )


def _share_out(forms: Sequence[Demand], weights: Sequence[int], count: float) -> Iterator[Demand]:
    """So many in all, at least one; what rounding leaves goes on to the next form."""
    total, done, seen = max(1, round(count)), 0, 0
    for form, weight in zip(forms, weights, strict=True):
        seen += weight
        until = round(total * seen / sum(weights))
        yield from [form] * (until - done)
        done = until
