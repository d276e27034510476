"""The planner against the true minimum, over every layout and every target.

Enumerated: each layout that can be reached from the empty board by creating instances (A30 76,
A100 2,319, RTX PRO 6000 717; +me, -me, +me.all, +gfx and double-memory profiles included), with
each set of instances that the board can hold (20, 128, 115): 380,807 pairs. Layouts of the H100 are
those of the A100 under other names, which is checked; of its pairs every 16th is planned. The
minimum is a shortest walk in the graph of layouts (``tests.support.layout_oracle``), and among the
layouts that it reaches the room left is the most.
"""

from __future__ import annotations

import pytest

from tests.support.layout_oracle import (
    A30,
    A100,
    BOARDS,
    H100,
    RTX,
    Layout,
    Oracle,
    make_gpu,
    make_oracle,
    make_profiles,
)
from tests.support.layout_replay import Paper
from vgpumgr.mig.layout.change import LayoutPlan, Reason, Refusal, StepKind
from vgpumgr.mig.layout.planner import try_layout
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.gpu import Gpu

# Pairs of the H100 that are planned: one in so many.
H100_STRIDE = 16


def make_target(gpu: Gpu, names: tuple[str, ...]) -> GpuTarget:
    return GpuTarget(gpu.uuid, True, tuple(TargetInstance(name) for name in names))


def find_best_room(oracle: Oracle, now: Layout, goals: list[Layout], calls: int) -> int:
    return max(oracle.room(goal) for goal in goals if len(now ^ goal) == calls)


def check_pair(
    oracle: Oracle, now: Layout, gpu: Gpu, target: GpuTarget, goals: list[Layout], calls: int
) -> None:
    plan = try_layout([gpu], [target])
    assert isinstance(plan, LayoutPlan)
    paper = Paper(gpu, oracle.children)
    paper.run(plan.steps)
    assert paper.layout in goals
    # a GPU instance comes and goes with its one compute instance
    assert len(plan.steps) == plan.cost.calls == 2 * calls
    if calls:
        assert oracle.room(paper.layout) == find_best_room(oracle, now, goals, calls)
        destroys = [step for step in plan.steps if step.kind is StepKind.GI_DESTROY]
        assert len(destroys) == plan.cost.gi_destroys == len(now) - plan.cost.kept


@pytest.mark.parametrize(("board", "stride"), [(A30, 1), (A100, 1), (RTX, 1), (H100, H100_STRIDE)])
def test_every_change_takes_the_fewest_calls(board: str, stride: int) -> None:
    oracle = make_oracle(board)
    gpus = {layout: make_gpu(board, layout) for layout in oracle.layouts}
    pairs = 0
    for number, (names, goals) in enumerate(oracle.targets().items()):
        walks = oracle.walk(goals)
        assert len(walks) == len(gpus), "every layout leads to every other"
        target = make_target(gpus[frozenset()], names)
        for now, gpu in list(gpus.items())[number % stride :: stride]:
            check_pair(oracle, now, gpu, target, goals, walks[now])
            pairs += 1
    assert pairs >= len(gpus) * len(oracle.targets()) // stride - len(oracle.targets())


def test_what_is_enumerated() -> None:
    sizes = {b: (len(make_oracle(b).layouts), len(make_oracle(b).targets())) for b in BOARDS}
    assert sizes == {A30: (76, 20), A100: (2319, 128), H100: (2319, 128), RTX: (717, 115)}


def test_an_h100_is_an_a100_under_other_names() -> None:
    pairs = zip(make_profiles(A100), make_profiles(H100), strict=True)
    names = {(str(a.name), p.start): (str(h.name), p.start) for a, h in pairs for p in a.placements}
    renamed = {frozenset(names[cell] for cell in layout) for layout in make_oracle(A100).layouts}
    assert renamed == set(make_oracle(H100).layouts)


@pytest.mark.parametrize("board", BOARDS)
def test_what_no_layout_holds_is_refused(board: str) -> None:
    """Each smallest impossible target; whatever contains one is impossible as well."""
    oracle = make_oracle(board)
    possible = oracle.targets()
    beyond = {
        tuple(sorted((*names, name))) for names in possible for name in oracle.rows
    } - possible.keys()
    now = max(oracle.layouts, key=len)
    for layout in (frozenset[tuple[str, int]](), now):
        gpu = make_gpu(board, layout)
        for names in beyond:
            refusal = try_layout([gpu], [make_target(gpu, names)])
            assert isinstance(refusal, Refusal), names
            assert refusal.reason is Reason.IMPOSSIBLE
            assert refusal.sentence
            assert refusal.alternative is None
