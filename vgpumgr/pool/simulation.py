"""Runs a trace: demand beyond what the hosts have, task after task, and what of the GPUs is then allocated."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

from vgpumgr.errors import UsageError
from vgpumgr.model.frozen import dataclass
from vgpumgr.pool.scheduler.choosing import RANDOM, open_chooser
from vgpumgr.pool.scheduler.cluster import Cluster
from vgpumgr.pool.scheduler.defragmentation import Defragmentation
from vgpumgr.pool.scheduler.filters import explain_impossible, find_reason
from vgpumgr.pool.scheduler.fragmentation import Mix
from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Host, Task
from vgpumgr.pool.scheduler.policies import POLICIES

#: a demand beyond them is a mistake, and would cost memory
MOST_COPIES = 5_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """One seed of one policy."""

    allocated_percent: float
    fragment_percent: float
    placed: int
    waiting: int
    moves: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Result:
    """All seeds of a policy. Fragments are free GPU that the mix of tasks cannot use, in percent of all GPUs."""

    policy: str
    runs: tuple[Run, ...]

    def as_dict(self) -> dict[str, object]:
        """For ``-o json``: means over the seeds, and the standard deviation of what is allocated."""
        allocated = [run.allocated_percent for run in self.runs]
        return {
            "policy": self.policy,
            "gpu_allocated_percent": round(statistics.fmean(allocated), 3),
            "stddev": round(statistics.pstdev(allocated), 3),
            "unallocated_fragment_percent": round(self._mean("fragment_percent"), 3),
            "moves": round(self._mean("moves"), 1),
            "tasks_placed": round(self._mean("placed"), 1),
            "tasks_waiting": round(self._mean("waiting"), 1),
            "seconds": round(self._mean("seconds"), 3),
        }

    def _mean(self, name: str) -> float:
        return statistics.fmean(getattr(run, name) for run in self.runs)


class Trace:
    """Hosts and tasks. Tasks that no host can ever hold are kept apart, each with the limit."""

    def __init__(self, hosts: Sequence[Host], tasks: Sequence[Task]) -> None:
        self.hosts = tuple(hosts)
        self.all_tasks = tuple(tasks)
        reasons: dict[Demand, str | None] = {}
        for task in tasks:
            if task.demand not in reasons:
                reasons[task.demand] = explain_impossible(hosts, task.demand)
        self.tasks = tuple(task for task in tasks if reasons[task.demand] is None)
        self.impossible = {
            task.name: reason for task in tasks if (reason := reasons[task.demand]) is not None
        }
        self.mix = Mix(task.demand for task in self.tasks)
        self.capacity_milli = GPU_MILLI * sum(host.gpus for host in hosts)

    def inflate(self, factor: float, seed: int) -> list[Task]:
        """The tasks, and copies of tasks drawn at random until they ask for ``factor`` times the GPUs of all hosts, in
        a random order. Tasks that ask for more than that from the start stay as they are. Raises UsageError where
        that takes too many copies.
        """
        draw = random.Random(seed)
        tasks = list(self.tasks)
        asked = sum(task.demand.total_milli for task in tasks)
        wanted = factor * self.capacity_milli
        if asked and (wanted - asked) * len(tasks) > MOST_COPIES * asked:
            raise UsageError(
                f"{factor:g} times the GPUs takes more than {MOST_COPIES} copies of tasks",
                why=f"{len(tasks)} tasks ask for {asked / GPU_MILLI:g} of {self.capacity_milli // GPU_MILLI} GPUs",
                hint="--inflate 0 leaves the tasks as they are",
            )
        while 0 < asked < wanted:
            original = draw.choice(self.tasks)
            # no name that was read from a file begins with a space
            tasks.append(Task(f" {len(tasks)}", original.demand))
            asked += original.demand.total_milli
        draw.shuffle(tasks)
        return tasks

    def run(
        self,
        policy: str,
        factor: float,
        seed: int,
        moves_percent: float,
        read_clock: Callable[[], float],
    ) -> Run:
        """Offers every task once; then moves at most so many percent of the placed ones for those that wait."""
        tasks = self.inflate(factor, seed)
        began = read_clock()
        cluster = Cluster(self.hosts)
        waiting = place_all(cluster, self.mix, policy, tasks, seed)
        placed, moves = len(cluster.placements), 0
        if moves_percent:
            plan = Defragmentation(cluster, self.mix, waiting)
            moves = len(plan.run(int(placed * moves_percent / 100)))
            waiting = plan.waiting
        seconds = read_clock() - began
        unusable = sum(
            len(bucket) * self.mix.measure_unusable(state)
            for state, bucket in cluster.buckets.items()
        )
        whole = max(self.capacity_milli, 1)
        return Run(
            100 * cluster.allocated_milli / whole,
            100 * unusable / whole / max(self.mix.count, 1),
            len(cluster.placements),
            len(waiting),
            moves,
            seconds,
        )


def place_all(
    cluster: Cluster, mix: Mix, policy: str, tasks: Sequence[Task], seed: int = 0
) -> list[Task]:
    """Places tasks in their order; returns those that fit nowhere. Nothing is freed, so a class that has failed once is
    not tried again.
    """
    chooser = open_chooser(policy, cluster, mix, seed)
    full: set[Demand] = set()
    waiting = []
    for task in tasks:
        choice = None if task.demand in full else chooser.choose(task.demand)
        if choice is None:
            full.add(task.demand)
            waiting.append(task)
        else:
            cluster.place(task, *choice)
    return waiting


@dataclass(frozen=True, slots=True)
class Candidate:
    """A host for a task: its score, of which the smallest wins, or the reason against it."""

    name: str
    model: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[int, ...]
    chosen: bool
    score: tuple[float, ...] | None
    text: str


def explain(trace: Trace, policy: str, earlier: Sequence[Task], task: Task) -> list[Candidate]:
    """All hosts for a task once the earlier ones are placed: the chosen one, the others by score, those that cannot
    hold it.
    """
    cluster = Cluster(trace.hosts)
    place_all(cluster, trace.mix, policy, earlier)
    choice = open_chooser(policy, cluster, trace.mix).choose(task.demand)
    scorer = None if policy == RANDOM else POLICIES[policy](trace.hosts, trace.mix)
    found = []
    for number, host in enumerate(trace.hosts):
        state = cluster.read_state(number)
        key, text = None, find_reason(state, task.demand)
        if text is None and scorer is not None:
            key = scorer.score(state, task.demand)[0]
            text = scorer.describe(key)
        is_chosen = choice is not None and choice.host == number
        found.append(
            Candidate(
                host.name,
                host.model,
                state.cpu_milli,
                state.memory_mib,
                cluster.read_gpus(number),
                is_chosen,
                key,
                text or "any host that it fits on",
            )
        )
    fits = {id(one): one.score is not None or scorer is None for one in found}
    return sorted(
        found, key=lambda one: (not one.chosen, not fits[id(one)], one.score or (), one.name)
    )
