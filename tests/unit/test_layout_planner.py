"""The planner with held slices, asked-for places, compute instances, MIG mode and several GPUs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.layout_oracle import (
    A30,
    A100,
    BOARDS,
    H100,
    RTX,
    Cell,
    Layout,
    make_gpu,
    make_oracle,
)
from tests.support.layout_replay import STARTS, Paper, list_kinds
from vgpumgr.errors import (
    GpuNotFoundError,
    LayoutBusyError,
    LayoutContradictionError,
    LayoutImpossibleError,
    MigNotSupportedError,
    ProfileNotFoundError,
    VgpumgrError,
)
from vgpumgr.mig.layout.change import LayoutPlan, Reason, Refusal, StepKind
from vgpumgr.mig.layout.planner import plan_layout, try_layout
from vgpumgr.mig.layout.target import GpuTarget, Pinned, TargetInstance
from vgpumgr.model.gpu import Gpu, GpuProcess, ProcessKind
from vgpumgr.model.identity import MigUuid
from vgpumgr.model.mig import ComputeInstance, MigMode, Placement

boards = st.sampled_from(BOARDS)


def want(gpu: Gpu, *names: str) -> GpuTarget:
    return GpuTarget(gpu.uuid, True, tuple(TargetInstance(name) for name in names))


def pin(gpu: Gpu, *cells: Cell) -> list[Pinned]:
    ids = {(str(i.profile), i.placement.start): i.id for i in gpu.instances}
    return [Pinned(gpu.uuid, ids[cell], f'vm "{cell}"') for cell in cells]


def list_subsets(layout: Layout) -> list[Layout]:
    cells = sorted(layout)
    groups = chain.from_iterable(combinations(cells, n) for n in range(len(cells) + 1))
    return [frozenset(group) for group in groups]


def check_held(board: str, now: Layout, held: Layout, names: tuple[str, ...]) -> None:
    """Against walks that never leave what is held."""
    oracle = make_oracle(board)
    gpu = make_gpu(board, now)
    goals = oracle.targets()[names]
    walks = oracle.walk(goals, held)
    outcome = try_layout([gpu], [want(gpu, *names)], pin(gpu, *held))
    if now not in walks:
        assert isinstance(outcome, Refusal)
        assert outcome.reason is Reason.BUSY
        check_offer(gpu, goals, held, outcome)
        return
    assert isinstance(outcome, LayoutPlan)
    paper = Paper(gpu, oracle.children)
    paper.run(outcome.steps)
    assert held <= paper.layout
    assert paper.layout in goals
    assert len(outcome.steps) == 2 * walks[now]
    assert not outcome.is_disruptive


def check_offer(gpu: Gpu, goals: list[Layout], held: Layout, refusal: Refusal) -> None:
    """The plan that is offered takes from as few as possible, and says so where it does."""
    now = frozenset((str(i.profile), i.placement.start) for i in gpu.instances)
    plan = refusal.alternative
    assert plan is not None
    assert plan.is_disruptive
    fewest = min(len(held - goal) for goal in goals)
    assert plan.cost.disruptions == len(refusal.in_the_way) == fewest
    losing = set(chain.from_iterable(step.disrupts for step in plan.steps))
    assert losing == {p.holder for p in refusal.in_the_way}
    least = min(len(now ^ goal) for goal in goals if len(held - goal) == fewest)
    assert plan.cost.gi_destroys + plan.cost.gi_creates == least
    allowed = {p.key for p in refusal.in_the_way}
    again = try_layout([gpu], [want(gpu, *sorted_names(goals))], pin(gpu, *held), allowed)
    assert again == plan, "naming these and no others is enough"


def sorted_names(goals: list[Layout]) -> list[str]:
    return sorted(name for name, _ in goals[0])


def test_held_slices_exhaustively_on_an_a30() -> None:
    """Every layout, every set of held slices in it, every target."""
    oracle = make_oracle(A30)
    cases = 0
    for now in oracle.layouts:
        for held in list_subsets(now):
            for names in oracle.targets():
                check_held(A30, now, held, names)
                cases += 1
    assert cases == 8_620


@given(st.data(), st.sampled_from([A100, H100, RTX]))
@settings(max_examples=150, deadline=None)
def test_held_slices_stay(data: st.DataObject, board: str) -> None:
    oracle = make_oracle(board)
    now = data.draw(st.sampled_from(oracle.layouts))
    held = data.draw(st.sampled_from(list_subsets(now)))
    check_held(board, now, held, data.draw(st.sampled_from(list(oracle.targets()))))


@given(st.data(), boards)
@settings(max_examples=150, deadline=None)
def test_places_that_are_asked_for(data: st.DataObject, board: str) -> None:
    oracle = make_oracle(board)
    now, goal = (data.draw(st.sampled_from(oracle.layouts)) for _ in range(2))
    asked = data.draw(st.sampled_from(list_subsets(goal)))
    gpu = make_gpu(board, now)
    instances = tuple(
        TargetInstance(
            name,
            placement=Placement(start, oracle.rows[name].size) if (name, start) in asked else None,
        )
        for name, start in sorted(goal)
    )
    plan = plan_layout([gpu], [GpuTarget(gpu.uuid, True, instances)])
    paper = Paper(gpu, oracle.children)
    paper.run(plan.steps)
    goals = [x for x in oracle.targets()[tuple(sorted(n for n, _ in goal))] if asked <= x]
    assert paper.layout in goals
    assert len(plan.steps) == 2 * min(len(now ^ x) for x in goals)


@given(st.data(), boards)
@settings(max_examples=60, deadline=None)
def test_what_is_there_in_its_place_is_nothing_to_do(data: st.DataObject, board: str) -> None:
    now = data.draw(st.sampled_from(make_oracle(board).layouts))
    gpu = make_gpu(board, now)
    exact = tuple(TargetInstance(str(i.profile), placement=i.placement) for i in gpu.instances)
    shuffled = tuple(data.draw(st.permutations(exact)))
    plan = plan_layout([gpu], [GpuTarget(gpu.uuid, True, shuffled)], pin(gpu, *now))
    assert plan.steps == ()
    assert plan.cost.kept == len(now)


# compute instances


def list_mixes(slices: int) -> list[tuple[int, ...]]:
    """Every set of sizes that can be placed without overlap, by trying all places."""
    mixes: set[tuple[int, ...]] = set()

    def grow(placed: tuple[tuple[int, int], ...]) -> None:
        mix = tuple(sorted((size for size, _ in placed), reverse=True))
        mixes.add(mix)
        for size, starts in STARTS[slices].items():
            for start in starts:
                if placed and start < placed[-1][1] + placed[-1][0]:
                    continue
                grow((*placed, (size, start)))

    grow(())
    return sorted(mixes)


def name_mix(profile: str, slices: int, mix: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(profile if size == slices else f"{size}c.{profile}" for size in mix)


def fill(gpu: Gpu, instance_id: int, places: list[Placement]) -> Gpu:
    """The GPU with other compute instances in one of its instances."""
    compute = tuple(
        ComputeInstance(
            n, 0, place.size, MigUuid(f"MIG-00000000-0000-4000-8000-{instance_id:06}{n:06}"), place
        )
        for n, place in enumerate(places)
    )
    return replace(
        gpu,
        instances=tuple(
            replace(i, compute_instances=compute) if i.id == instance_id else i
            for i in gpu.instances
        ),
    )


@st.composite
def placed_mixes(draw: st.DrawFn, slices: int) -> list[Placement]:
    """Compute instances at any places that do not overlap, also such as no packing would choose."""
    placed: list[Placement] = []
    for _ in range(draw(st.integers(0, slices))):
        options = [
            Placement(start, size)
            for size, starts in STARTS[slices].items()
            for start in starts
            if not any(Placement(start, size).overlaps(p) for p in placed)
        ]
        if not options:
            break
        placed.append(draw(st.sampled_from(options)))
    return placed


def count_kept(slices: int, placed: list[Placement], mix: tuple[int, ...]) -> int:
    """The most compute instances that can stay on the way to ``mix``, by trying all sets of them."""
    best = 0
    for group in chain.from_iterable(combinations(placed, n) for n in range(len(placed) + 1)):
        left = Counter(mix)
        left.subtract(p.size for p in group)
        if min(left.values(), default=0) >= 0 and can_add(
            slices, list(group), list(left.elements())
        ):
            best = max(best, len(group))
    return best


def can_add(slices: int, placed: list[Placement], sizes: list[int]) -> bool:
    if not sizes:
        return True
    places = [Placement(start, sizes[0]) for start in STARTS[slices][sizes[0]]]
    free = [p for p in places if not any(p.overlaps(q) for q in placed)]
    return any(can_add(slices, [*placed, p], sizes[1:]) for p in free)


@given(st.data(), st.sampled_from(["7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb"]))
@settings(max_examples=200, deadline=None)
def test_compute_instances_inside_an_instance_that_stays(data: st.DataObject, profile: str) -> None:
    slices = int(profile[0])
    placed = data.draw(placed_mixes(slices))
    mix = data.draw(st.sampled_from(list_mixes(slices)))
    gpu = fill(make_gpu(A100, [(profile, 0)]), 1, placed)
    target = TargetInstance(profile, name_mix(profile, slices, mix))
    plan = plan_layout([gpu], [GpuTarget(gpu.uuid, True, (target,))])
    kept = count_kept(slices, placed, mix)
    cost = plan.cost
    assert (cost.gi_destroys, cost.gi_creates) == (0, 0)
    assert (cost.ci_destroys, cost.ci_creates) == (len(placed) - kept, len(mix) - kept)
    paper = Paper(gpu, make_oracle(A100).children)
    paper.run([step for step in plan.steps if step.kind is StepKind.CI_DESTROY])
    inside = paper.instances[1].compute
    for step in plan.steps:
        if step.kind is StepKind.CI_CREATE:
            assert step.placement is not None
            assert step.placement.start in STARTS[slices][step.placement.size]
            assert not any(step.placement.overlaps(p) for p in inside.values())
            inside[100 + len(inside)] = step.placement
    assert paper.sizes() == [(profile, 0, mix)]


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 7])
def test_every_mix_of_compute_instances_can_be_created(slices: int) -> None:
    names = {1: "1g.5gb", 2: "2g.10gb", 3: "3g.20gb", 4: "4g.20gb", 7: "7g.40gb"}
    gpu = make_gpu(A100)
    for mix in list_mixes(slices):
        target = TargetInstance(names[slices], name_mix(names[slices], slices, mix))
        plan = plan_layout([gpu], [GpuTarget(gpu.uuid, True, (target,))])
        paper = Paper(gpu, make_oracle(A100).children)
        paper.run(plan.steps)
        assert [sizes for _, _, sizes in paper.sizes()] == [mix]
    sizes = sorted({*range(1, slices + 1)})
    for mix in ((slices, 1), (*(1 for _ in range(slices)), 1), *((s,) for s in sizes)):
        if tuple(sorted(mix, reverse=True)) in list_mixes(slices):
            continue
        target = TargetInstance(names[slices], name_mix(names[slices], slices, mix))
        refusal = try_layout([gpu], [GpuTarget(gpu.uuid, True, (target,))])
        assert isinstance(refusal, Refusal)
        assert refusal.reason is Reason.IMPOSSIBLE


def test_each_instance_gets_the_contents_that_it_has_already() -> None:
    gpu = make_gpu(A100, [("3g.20gb", 0), ("3g.20gb", 4)])
    gpu = fill(gpu, 2, [Placement(0, 2), Placement(2, 1)])
    mixed = TargetInstance("3g.20gb", ("1c.3g.20gb", "2c.3g.20gb"))
    target = GpuTarget(gpu.uuid, True, (mixed, TargetInstance("3g.20gb")))
    assert plan_layout([gpu], [target]).steps == ()
    placed = replace(mixed, placement=Placement(0, 4))
    plan = plan_layout([gpu], [GpuTarget(gpu.uuid, True, (TargetInstance("3g.20gb"), placed))])
    assert (plan.cost.gi_destroys, plan.cost.ci_destroys, plan.cost.ci_creates) == (0, 3, 3)


def test_a_held_compute_instance_keeps_its_neighbours_movable() -> None:
    gpu = fill(make_gpu(A100, [("3g.20gb", 0)]), 1, [Placement(0, 1), Placement(1, 1)])
    target = GpuTarget(
        gpu.uuid, True, (TargetInstance("3g.20gb", ("1c.3g.20gb", "1c.3g.20gb", "1c.3g.20gb")),)
    )
    held = Pinned(gpu.uuid, 1, 'vm "a"', 1)
    plan = plan_layout([gpu], [target], [held])
    assert list_kinds(plan.steps) == [StepKind.CI_CREATE]
    two = GpuTarget(gpu.uuid, True, (TargetInstance("3g.20gb", ("2c.3g.20gb", "1c.3g.20gb")),))
    refusal = try_layout([gpu], [two], [held])
    assert isinstance(refusal, Refusal)
    assert refusal.in_the_way == (held,)
    free = try_layout([gpu], [two], [held], {held.key})
    assert free == refusal.alternative
    whole = try_layout([gpu], [target], [Pinned(gpu.uuid, 1, 'vm "a"')])
    assert isinstance(whole, Refusal), "nothing is added beside who has the whole instance"


# MIG mode, several GPUs


def test_beside_shares_what_is_allowed_to_go_comes_before_what_is_not() -> None:
    """The shares have to go, and one of two whole slices: the one that may."""
    gpu = make_gpu(A100, [("2g.10gb", 0), ("2g.10gb", 2), ("3g.20gb", 4)])
    whole = [Pinned(gpu.uuid, number, f"vm{number}", 0) for number in (1, 2)]
    share = Pinned(gpu.uuid, 3, "vm3", 0, is_share=True)
    target = want(gpu, "2g.10gb")
    for allowed in ({whole[0].key}, {whole[1].key}, {one.key for one in whole}):
        refusal = try_layout([gpu], [target], [*whole, share], allowed)
        assert isinstance(refusal, Refusal)
        assert refusal.in_the_way == (share,)
        assert refusal.helps == "detach the holders of these shares (vgpumgr detach), then repeat"
    refusal = try_layout([gpu], [target], [*whole, share])
    assert isinstance(refusal, Refusal)
    assert refusal.in_the_way in {(share, one) for one in whole}
    assert str(refusal.helps).endswith(
        "; stop or detach the other holders, or name the slices with --allow-disruptive, then repeat"
    )


def test_mode_goes_on_first_and_off_last() -> None:
    off = make_gpu(A30, None)
    plan = plan_layout([off], [want(off, "2g.12gb")])
    assert list_kinds(plan.steps) == [
        StepKind.MODE_ENABLE,
        StepKind.GI_CREATE,
        StepKind.CI_CREATE,
    ]
    on = make_gpu(A30, [("2g.12gb", 0)])
    plan = plan_layout([on], [GpuTarget(on.uuid, False)])
    assert list_kinds(plan.steps) == [
        StepKind.CI_DESTROY,
        StepKind.GI_DESTROY,
        StepKind.MODE_DISABLE,
    ]
    assert plan_layout([off], [GpuTarget(off.uuid, False)]).steps == ()
    assert list_kinds(plan_layout([off], [GpuTarget(off.uuid)]).steps) == [StepKind.MODE_ENABLE]
    assert plan_layout([on], [GpuTarget(on.uuid)]).steps == ()
    pending = replace(on, mig=MigMode(True, current=True, pending=False))
    again = plan_layout([pending], [GpuTarget(on.uuid)])
    assert list_kinds(again.steps) == [StepKind.MODE_ENABLE]


def test_several_gpus_are_planned_in_order_and_others_left_alone() -> None:
    gpus = [make_gpu(A100, [("7g.40gb", 0)], 0), make_gpu(A30, [], 1), make_gpu(RTX, [], 2)]
    targets = [want(gpus[2], "4g.96gb+gfx"), want(gpus[0], "1g.5gb", "3g.20gb")]
    plan = plan_layout(gpus, targets)
    uuids = list(dict.fromkeys(step.gpu_uuid for step in plan.steps))
    assert uuids == [gpus[2].uuid, gpus[0].uuid]
    assert [uuid for uuid, _ in plan.explanations] == uuids
    assert plan.cost.calls == len(plan.steps) == 8
    assert plan.explanations[1][1] == (
        "GPU 0 (0000:07:00.0): destroys 7g.40gb at 0:8; creates 1g.5gb at 0:1, 3g.20gb at 4:4; "
        "then still fits: 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb"
    )


def test_a_plan_as_json() -> None:
    gpu = make_gpu(A100, [("1g.5gb", 6)])
    target = TargetInstance("3g.20gb", ("1c.3g.20gb", "2c.3g.20gb"), Placement(4, 4))
    plan = plan_layout([gpu], [GpuTarget(gpu.uuid, True, (target,))])
    steps = [step.as_dict() for step in plan.steps]
    assert json.loads(json.dumps(steps)) == steps
    key = f"{gpu.uuid}/3g.20gb@4:4"
    parent = {"parent_profile": "3g.20gb", "parent_placement": {"start": 4, "size": 4}}
    assert steps == [
        {
            "kind": "mig.ci.destroy",
            "gpu": gpu.uuid,
            "profile": "1g.5gb",
            "placement": {"start": 0, "size": 1},
            "instance": 1,
            "compute_instance": 0,
            "parent_profile": "1g.5gb",
            "parent_placement": {"start": 6, "size": 1},
        },
        {
            "kind": "mig.gi.destroy",
            "gpu": gpu.uuid,
            "profile": "1g.5gb",
            "placement": {"start": 6, "size": 1},
            "instance": 1,
        },
        {
            "kind": "mig.gi.create",
            "gpu": gpu.uuid,
            "profile": "3g.20gb",
            "placement": {"start": 4, "size": 4},
            "key": key,
        },
        {
            "kind": "mig.ci.create",
            "gpu": gpu.uuid,
            "profile": "2c.3g.20gb",
            "placement": {"start": 0, "size": 2},
            "key": key,
            **parent,
        },
        {
            "kind": "mig.ci.create",
            "gpu": gpu.uuid,
            "profile": "1c.3g.20gb",
            "placement": {"start": 2, "size": 1},
            "key": key,
            **parent,
        },
    ]


# refusals: reason, exit code and words


def refuse(gpu: Gpu, target: GpuTarget, pins: list[Pinned] | None = None) -> VgpumgrError:
    with pytest.raises(VgpumgrError) as caught:
        plan_layout([gpu], [target], pins or [])
    return caught.value


def test_refusals_say_what_is_wrong() -> None:
    gpu = make_gpu(A100)
    error = refuse(gpu, want(gpu, "3g.40gb"))
    assert isinstance(error, ProfileNotFoundError)
    assert "near ones: 3g.20gb" in str(error.why)
    error = refuse(gpu, want(gpu, "4g.20gb", "4g.20gb"))
    assert isinstance(error, LayoutImpossibleError)
    assert error.error == "GPU 0 (0000:07:00.0) cannot have 2x 4g.20gb"
    assert error.why == (
        "8 compute slices are needed, the GPU has 7; the GPU allows 1 of 4g.20gb, not 2"
    )
    assert error.hint == "leave out 4g.20gb"
    error = refuse(gpu, want(gpu, "nonsense"))
    assert isinstance(error, LayoutContradictionError)
    error = refuse(gpu, GpuTarget(gpu.uuid, True, (TargetInstance("3g.20gb", ("2c.2g.10gb",)),)))
    assert error.why == "2c.2g.10gb is no compute instance of 3g.20gb"
    error = refuse(gpu, GpuTarget(gpu.uuid, True, (TargetInstance("4g.20gb", ("3c.4g.20gb",)),)))
    assert error.why == (
        "4g.20gb has 4 compute slices and offers at most 4x 1c, 2x 2c, 1x 4c, not overlapping"
    )
    odd = TargetInstance("3g.20gb", placement=Placement(2, 4))
    error = refuse(gpu, GpuTarget(gpu.uuid, True, (odd,)))
    assert error.why == "its places on this board are 0:4, 4:4"
    both = (
        TargetInstance("3g.20gb", placement=Placement(0, 4)),
        TargetInstance("1g.5gb", placement=Placement(3, 1)),
    )
    error = refuse(gpu, GpuTarget(gpu.uuid, True, both))
    assert isinstance(error, LayoutContradictionError)
    assert "3g.20gb at 0:4 and 1g.5gb at 3:1" in error.error


def test_refusals_of_geometry_and_engines() -> None:
    gpu = make_gpu(A100)
    error = refuse(gpu, want(gpu, "3g.20gb", "3g.20gb", "1g.5gb"))
    assert error.why == "9 positions on the memory axis are needed, the GPU has 8"
    at = TargetInstance("1g.5gb", placement=Placement(0, 1))
    error = refuse(gpu, GpuTarget(gpu.uuid, True, (at, TargetInstance("4g.20gb"))))
    assert error.why == "no arrangement of their places on the memory axis avoids an overlap"
    assert error.hint == "leave out 1g.5gb or 4g.20gb"
    a30 = make_gpu(A30)
    error = refuse(a30, want(a30, "1g.6gb+me", "2g.12gb+me"))
    assert "2 NVJPG engines are needed, the GPU has 1" in str(error.why)
    rtx = make_gpu(RTX)
    error = refuse(rtx, want(rtx, "1g.24gb+me.all", "1g.24gb"))
    assert error.why == "1g.24gb+me.all has all media engines, so 1g.24gb cannot be beside it"
    error = refuse(rtx, want(rtx, "1g.24gb+me.all", "2g.48gb+me.all"))
    assert error.why == "only one instance can have all media engines (1g.24gb+me.all)"
    fits = want(rtx, "1g.24gb+me.all", "1g.24gb-me", "2g.48gb-me")
    assert plan_layout([rtx], [fits]).cost.gi_creates == 3


def test_refusals_of_whole_gpus() -> None:
    gpu = make_gpu(A100)
    stranger = GpuTarget("GPU-ffffffff-0000-4000-8000-000000000000")
    assert isinstance(refuse(gpu, stranger), GpuNotFoundError)
    with pytest.raises(LayoutContradictionError, match="cannot plan"):
        plan_layout([gpu], [GpuTarget(gpu.uuid), GpuTarget(gpu.uuid)])
    none = replace(gpu, mig=MigMode(False), profiles=(), model="NVIDIA L40S")
    assert isinstance(refuse(none, GpuTarget(gpu.uuid)), MigNotSupportedError)
    assert plan_layout([none], [GpuTarget(gpu.uuid, False)]).steps == ()
    error = refuse(gpu, replace(want(gpu, "1g.5gb"), mig_enabled=False))
    assert isinstance(error, LayoutContradictionError)


def test_who_uses_a_gpu_or_a_slice_is_named() -> None:
    xorg = GpuProcess(815, "Xorg", ProcessKind.GRAPHICS, None)
    gpu = make_gpu(A30, None, processes=(xorg,))
    error = refuse(gpu, want(gpu, "2g.12gb"))
    assert isinstance(error, LayoutBusyError)
    assert error.held_by == ("process 815 (Xorg)",)
    python = GpuProcess(41, "python3", ProcessKind.COMPUTE, 1 << 30, 1, 0)
    gpu = make_gpu(A30, [("1g.6gb", 1)], processes=(python,))
    error = refuse(gpu, want(gpu, "2g.12gb", "2g.12gb"), [Pinned(gpu.uuid, 1, 'vm "build7"')])
    assert isinstance(error, LayoutBusyError)
    assert error.exit_code == 6
    assert error.held_by == ('vm "build7"', "process 41 (python3)")
    assert error.why == "it takes destroying a slice that is in use: 1g.6gb at 1:1"
    assert isinstance(refuse(gpu, GpuTarget(gpu.uuid, False)), LayoutBusyError)


def test_a_driver_that_says_full_is_believed() -> None:
    gpu = make_gpu(A30, [("1g.6gb", 0)])
    full = replace(gpu, profiles=tuple(replace(p, remaining=0) for p in gpu.profiles))
    refusal = try_layout([full], [want(gpu, "1g.6gb", "1g.6gb")])
    assert isinstance(refusal, Refusal)
    assert "the driver reports" in refusal.sentence
    moved = plan_layout([full], [want(gpu, "2g.12gb")])
    assert moved.cost.gi_destroys == 1, "after a destroy, its count is another"


def test_instances_that_the_tables_do_not_know_keep_their_place() -> None:
    gpu = make_gpu(A30, [("1g.6gb", 0), ("1g.6gb", 1)])
    odd = replace(gpu.instances[0], profile_id=99)
    gpu = replace(gpu, instances=(odd, gpu.instances[1]))
    refusal = try_layout(
        [gpu], [want(gpu, "2g.12gb", "2g.12gb")], [Pinned(gpu.uuid, 1, "somebody")]
    )
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.BUSY
    plan = plan_layout([gpu], [want(gpu, "4g.24gb")])
    assert plan.cost.gi_destroys == 2
