"""The pool's scheduler: what never happens to hosts and GPUs, whatever is placed, removed and moved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpumgr.pool.scheduler.choosing import POLICY_NAMES, open_chooser
from vgpumgr.pool.scheduler.cluster import Cluster
from vgpumgr.pool.scheduler.defragmentation import Defragmentation
from vgpumgr.pool.scheduler.filters import explain_impossible, find_reason, fits
from vgpumgr.pool.scheduler.fragmentation import Mix
from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Host, State, Task, take
from vgpumgr.pool.scheduler.policies import POLICIES
from vgpumgr.pool.simulation import Trace, place_all

HOSTS = st.builds(
    lambda cpu, memory, gpus, model: Host("", cpu, memory, gpus, model if gpus else ""),
    st.sampled_from([0, 4000, 16_000, 96_000]),
    st.sampled_from([0, 1024, 65_536]),
    st.sampled_from([0, 1, 2, 4]),
    st.sampled_from(["A", "B"]),
)
GPU_PARTS = st.one_of(
    st.just((0, 0)),
    st.tuples(st.just(1), st.sampled_from([125, 250, 333, 500, 810, 1000])),
    st.tuples(st.sampled_from([2, 4]), st.just(1000)),
)
DEMANDS = st.builds(
    lambda cpu, memory, gpu, models: Demand(cpu, memory, *gpu, models if gpu[0] else ()),
    st.sampled_from([0, 1000, 4000, 12_000]),
    st.sampled_from([0, 256, 2048]),
    GPU_PARTS,
    st.sampled_from([(), (), ("A",), ("A", "B"), ("C",)]),
)


def name_hosts(hosts: Sequence[Host]) -> list[Host]:
    return [
        Host(f"h{at}", h.cpu_milli, h.memory_mib, h.gpus, h.model) for at, h in enumerate(hosts)
    ]


CLUSTERS = st.lists(HOSTS, min_size=1, max_size=6).map(name_hosts)
TASKS = st.lists(DEMANDS, max_size=24).map(
    lambda demands: [Task(f"t{at}", demand) for at, demand in enumerate(demands)]
)


def check(cluster: Cluster) -> None:
    """Free and taken are computed anew from the placements alone, and compared."""
    taken = Counter[tuple[int, int]]()
    cpu, memory = Counter[int](), Counter[int]()
    for name, placement in cluster.placements.items():
        demand, host = placement.task.demand, placement.host
        assert placement.task.name == name
        assert len(set(placement.gpus)) == demand.num_gpu
        assert not demand.num_gpu or not demand.models or cluster.hosts[host].model in demand.models
        for number in placement.gpus:
            taken[host, number] += demand.gpu_milli
        cpu[host] += demand.cpu_milli
        memory[host] += demand.memory_mib
        assert cluster.on_host[host][name] is placement
    assert sum(map(len, cluster.on_host)) == len(cluster.placements)
    for number, host in enumerate(cluster.hosts):
        state, gpus = cluster.read_state(number), cluster.read_gpus(number)
        assert gpus == tuple(GPU_MILLI - taken[number, one] for one in range(host.gpus))
        assert min(gpus, default=0) >= 0
        assert state.gpus == tuple(sorted(gpus))
        assert state.cpu_milli == host.cpu_milli - cpu[number] >= 0
        assert state.memory_mib == host.memory_mib - memory[number] >= 0
        assert number in cluster.buckets[state]
    assert sum(map(len, cluster.buckets.values())) == len(cluster.hosts)
    assert cluster.allocated_milli == taken.total()


@given(CLUSTERS, TASKS, st.sampled_from(POLICY_NAMES))
def test_nothing_is_given_twice_and_whole_gpus_are_whole(
    hosts: list[Host], tasks: list[Task], policy: str
) -> None:
    cluster = Cluster(hosts)
    waiting = place_all(cluster, Mix(t.demand for t in tasks), policy, tasks)
    check(cluster)
    assert {t.name for t in waiting} | set(cluster.placements) == {t.name for t in tasks}
    for task in waiting:
        assert not any(fits(cluster.read_state(at), task.demand) for at in range(len(hosts)))


@given(CLUSTERS, TASKS, st.sampled_from(POLICY_NAMES), st.randoms(use_true_random=False))
def test_a_removed_task_leaves_no_trace(
    hosts: list[Host], tasks: list[Task], policy: str, draw: random.Random
) -> None:
    """Tasks come and go in any order, through one chooser; at the end all hosts are as they were."""
    cluster = Cluster(hosts)
    chooser = open_chooser(policy, cluster, Mix(t.demand for t in tasks))
    for task in tasks * 2:
        if task.name in cluster.placements:
            cluster.remove(task.name)
        elif choice := chooser.choose(task.demand):
            before = [cluster.read_gpus(at) for at in range(len(hosts))]
            cluster.place(task, *choice)
            placement = cluster.remove(task.name)
            assert [cluster.read_gpus(at) for at in range(len(hosts))] == before
            cluster.restore(placement)
        else:
            assert not any(fits(cluster.read_state(at), task.demand) for at in range(len(hosts)))
        check(cluster)
    names = list(cluster.placements)
    draw.shuffle(names)
    for name in names:
        cluster.remove(name)
    check(cluster)
    assert [cluster.read_state(at) for at in range(len(hosts))] == [host.state for host in hosts]


@given(CLUSTERS, TASKS, st.sampled_from(sorted(POLICIES)))
def test_kept_scores_choose_what_all_scores_would(
    hosts: list[Host], tasks: list[Task], policy: str
) -> None:
    cluster, mix = Cluster(hosts), Mix(t.demand for t in tasks)
    chooser, scorer = open_chooser(policy, cluster, mix), POLICIES[policy](hosts, mix)
    for task in tasks:
        states = [cluster.read_state(at) for at in range(len(hosts))]
        keys = [scorer.score(s, task.demand)[0] for s in states if fits(s, task.demand)]
        choice = chooser.choose(task.demand)
        assert (choice is None) == (not keys)
        if choice:
            assert scorer.score(states[choice.host], task.demand)[0] == min(keys)
            cluster.place(task, *choice)


def measure_plainly(state: State, demands: Sequence[Demand]) -> int:
    """The definition: for each task of the mix, what tasks like it cannot use. Whole ones come until none fits."""
    usable = 0
    for demand in demands:
        one = demand._replace(memory_mib=0)
        if one.is_share:
            usable += sum(f for f in state.gpus if fits(state, one) and f >= one.gpu_milli)
            continue
        left = state
        while fits(left, one):
            left = take(left, one, None)
            usable += one.total_milli
    return len(demands) * state.free_milli - usable


STATES = st.builds(
    lambda cpu, gpus, model: State(model, cpu, 0, tuple(sorted(gpus))),
    st.integers(0, 20_000),
    st.lists(st.one_of(st.sampled_from([0, 1000]), st.integers(0, 1000)), max_size=8),
    st.sampled_from(["A", "B", "C"]),
)


@given(STATES, st.lists(DEMANDS, max_size=12))
def test_fragmentation_by_tables_is_that_of_the_definition(
    state: State, demands: list[Demand]
) -> None:
    gpu_tasks = [demand for demand in demands if demand.num_gpu]
    mix = Mix(demands)
    assert mix.count == len(gpu_tasks)
    assert mix.measure_unusable(state) == measure_plainly(state, gpu_tasks)


@given(STATES, st.lists(DEMANDS, max_size=12), DEMANDS)
def test_the_gradient_is_the_growth_of_fragmentation(
    state: State, demands: list[Demand], task: Demand
) -> None:
    """Of all GPUs that a share could go to, too: the cluster makes the change, the definition measures it."""
    host = Host("h", state.cpu_milli, 2048, len(state.gpus), state.model)
    cluster = Cluster([host])
    for at, free in enumerate(state.gpus):
        if free < GPU_MILLI:
            used = Demand(0, 0, 1, GPU_MILLI - free)
            cluster.place(Task(f"used{at}", used), 0, GPU_MILLI if used.is_share else None)
    now = cluster.read_state(0)
    if not fits(now, task):
        return
    mix = Mix(demands)
    key, _ = POLICIES["fgd"]([host], mix).score(now, task)
    pieces = {f for f in now.gpus if f >= task.gpu_milli} if task.is_share else {None}
    growths = []
    for piece in pieces:
        cluster.place(Task("one", task), 0, piece)
        growths.append(mix.measure_unusable(cluster.read_state(0)) - mix.measure_unusable(now))
        cluster.remove("one")
    assert key[0] == min(growths)


@given(CLUSTERS, TASKS, st.sampled_from(POLICY_NAMES), st.integers(0, 6))
def test_moves_lose_no_task_and_stay_within_their_budget(
    hosts: list[Host], tasks: list[Task], policy: str, budget: int
) -> None:
    cluster, mix = Cluster(hosts), Mix(t.demand for t in tasks)
    waiting = place_all(cluster, mix, policy, tasks)
    before, allocated = dict(cluster.placements), cluster.allocated_milli
    plan = Defragmentation(cluster, mix, waiting)
    moves = plan.run(budget)
    check(cluster)
    assert len(moves) <= budget
    assert before.keys() <= cluster.placements.keys()
    assert cluster.placements.keys() | {t.name for t in plan.waiting} == {t.name for t in tasks}
    moved = {move.task for move in moves}
    for name, placement in before.items():
        assert name in moved or cluster.placements[name] == placement
    assert (cluster.allocated_milli > allocated) == bool(moves)


def test_a_task_that_takes_cpu_goes_where_cpu_is_spare() -> None:
    """The host's last GPU is idle, and its CPU is used up; a task without a GPU leaves it for another host."""
    hosts = [Host("gpu", 16_000, 1024, 2, "A"), Host("cpu", 16_000, 1024, 0, "")]
    cluster = Cluster(hosts)
    for name, cpu, gpus in (("heavy", 12_000, 0), ("one", 4000, 1)):
        cluster.place(Task(name, Demand(cpu, 0, gpus, GPU_MILLI * gpus)), 0)
    waiting = Task("waiting", Demand(8000, 0, 1, GPU_MILLI))
    plan = Defragmentation(cluster, Mix([waiting.demand]), [waiting])
    assert plan.run(1) == [("heavy", 0, 1)]
    assert cluster.placements["waiting"].host == 0
    assert plan.waiting == []


def test_tasks_with_as_much_gpu_exchange_places() -> None:
    hosts = [Host("narrow", 16_000, 1024, 2, "A"), Host("wide", 64_000, 1024, 1, "B")]
    cluster = Cluster(hosts)
    cluster.place(Task("heavy", Demand(14_000, 0, 1, GPU_MILLI)), 0)
    cluster.place(Task("light", Demand(2000, 0, 1, GPU_MILLI)), 1)
    waiting = Task("waiting", Demand(8000, 0, 1, GPU_MILLI))
    plan = Defragmentation(cluster, Mix([waiting.demand]), [waiting])
    assert plan.run(1) == []
    assert plan.run(2) == [("heavy", 0, 1), ("light", 1, 0)]
    assert cluster.placements["waiting"].host == 0


def test_a_piece_goes_to_another_so_that_both_are_used() -> None:
    cluster = Cluster([Host("a", 16_000, 1024, 2, "A")])
    for name, milli, piece in (("big", 700, 1000), ("small", 300, 1000)):
        cluster.place(Task(name, Demand(0, 0, 1, milli)), 0, piece)
    waiting = Task("waiting", Demand(0, 0, 1, GPU_MILLI))
    plan = Defragmentation(cluster, Mix([waiting.demand]), [waiting])
    assert [(move.source, move.target) for move in plan.run(1)] == [(0, 0)]
    assert cluster.read_gpus(0) == (0, 0)
    assert "waiting" in cluster.placements


def test_sixteen_gpus_become_128_equal_shares_for_28_users() -> None:
    """16 GPUs of 32 GiB, shares of 4 GiB, an eighth each; 28 users have 4 or 5. Exact, with every policy."""
    shares = 32 // 4 * 16
    counts = [5] * 16 + [4] * 12
    assert (len(counts), sum(counts)) == (28, shares)
    share = Demand(1000, 4096, 1, GPU_MILLI * 4 // 32, ("V100",))
    tasks = [
        Task(f"user{user}-share{at}", share) for user, count in enumerate(counts) for at in range(count)
    ]  # fmt: skip
    hosts = [Host(f"h{at}", 64_000, 262_144, 4, "V100") for at in range(4)]
    for policy in POLICY_NAMES:
        cluster = Cluster(hosts)
        assert place_all(cluster, Mix(t.demand for t in tasks), policy, tasks) == []
        check(cluster)
        on_gpu = Counter((p.host, p.gpus) for p in cluster.placements.values())
        assert set(on_gpu.values()) == {8}
        assert len(on_gpu) == 16
        assert all(len(gpus) == 1 for _, gpus in on_gpu)
        assert cluster.allocated_milli == cluster.capacity_milli
        owners = Counter(name.partition("-")[0] for name in cluster.placements)
        assert sorted(owners.values()) == [4] * 12 + [5] * 16
        one_more = open_chooser(policy, cluster, Mix([share])).choose(share)
        assert one_more is None


@pytest.mark.parametrize(
    ("demand", "reason"),
    [
        (Demand(0, 0, 1, 1000, ("X",)), "its GPUs are A, and the task needs X"),
        (Demand(0, 0, 3, 1000), "it has 2 GPUs, and the task needs 3"),
        (Demand(0, 0, 2, 1000), "1 GPU of 2 idle, and the task needs 2"),
        (Demand(99, 0, 1, 500), "10 milli-CPU free, and the task needs 99"),
        (Demand(0, 99, 0, 0), "10 MiB of memory free, and the task needs 99"),
        (Demand(10, 10, 1, 1000), None),
    ],
)
def test_a_filter_says_why(demand: Demand, reason: str | None) -> None:
    assert find_reason(State("A", 10, 10, (600, 1000)), demand) == reason


@given(STATES, DEMANDS)
def test_words_and_filters_agree(state: State, demand: Demand) -> None:
    assert (find_reason(state, demand) is None) == fits(state, demand)


def test_an_impossible_task_has_the_limit_of_the_nearest_host() -> None:
    hosts = [
        Host("a", 8000, 100, 1, "A"),
        Host("b", 16_000, 100, 2, "B"),
        Host("c", 9000, 9, 0, ""),
    ]
    for demand, limit in (
        (Demand(0, 0, 4, 1000), "it has 2 GPUs, and the task needs 4"),
        (Demand(20_000, 0, 1, 500), "16000 milli-CPU free, and the task needs 20000"),
        (Demand(9000, 0, 1, 1000, ("A",)), "8000 milli-CPU free, and the task needs 9000"),
    ):
        assert explain_impossible(hosts, demand) == f"on an empty host, {limit}"
    trace = Trace(hosts, [Task("ok", Demand(1, 1, 1, 1000)), Task("no", Demand(0, 0, 4, 1000))])
    assert list(trace.impossible) == ["no"]
    assert {task.demand for task in trace.inflate(3, 0)} == {Demand(1, 1, 1, 1000)}


def test_the_journal_of_changes_begins_anew_and_choices_stay_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vgpumgr.pool.scheduler.cluster._JOURNAL", 5)
    draw = random.Random(1)
    cluster = Cluster([Host(f"h{at}", 64_000, 1024, 4, "A") for at in range(6)])
    demands = [Demand(cpu, 1, 1, milli) for cpu in (1000, 3000) for milli in (250, 500, 1000)]
    mix = Mix(demands)
    chooser, scorer = open_chooser("fgd", cluster, mix), POLICIES["fgd"](cluster.hosts, mix)
    for step in range(400):
        demand = draw.choice(demands)
        if cluster.placements and draw.random() < 0.45:
            cluster.remove(draw.choice(list(cluster.placements)))
            continue
        states = [cluster.read_state(at) for at in range(6)]
        keys = [scorer.score(s, demand)[0] for s in states if fits(s, demand)]
        choice = chooser.choose(demand)
        assert (choice is None) == (not keys)
        if choice:
            assert scorer.score(states[choice.host], demand)[0] == min(keys)
            cluster.place(Task(f"t{step}", demand), *choice)
    assert cluster.epoch > 2
    check(cluster)


def test_placing_refuses_what_does_not_fit() -> None:
    cluster = Cluster([Host("a", 1000, 10, 1, "A")])
    share = Task("one", Demand(100, 1, 1, 600))
    cluster.place(share, 0)
    with pytest.raises(ValueError, match="one is placed"):
        cluster.place(share, 0)
    with pytest.raises(ValueError, match="two does not fit on a"):
        cluster.place(Task("two", share.demand), 0)
    with pytest.raises(ValueError, match="no GPU of a has 1000 milli free"):
        cluster.place(Task("three", Demand(0, 0, 1, 100)), 0, 1000)
    check(cluster)
