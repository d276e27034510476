"""The planner against the true minimum, over every layout and every target.

Enumerated: each layout that can be reached from the empty board by creating instances (A30 76,
A100 2,319, RTX PRO 6000 717; +me, -me, +me.all, +gfx and double-memory profiles included), with
each set of instances that the board can hold (20, 128, 115): 380,807 pairs. Each of the A30 and of
the RTX PRO 6000 is solved, and every fourth of the A100: all of them are with ``VGPUMGR_EVERY_PAIR=1``.
Of every 16th the whole plan is made and its steps are done on paper. Layouts of the H100 are those of
the A100 under other names, which is checked; every 16th of its pairs is solved.

The minimum is a shortest walk in the graph of layouts (``tests.support.layout_oracle``), and among
the layouts that it reaches, the one with the most room left is demanded.
"""

from __future__ import annotations

import os

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
from vgpumgr.mig.layout.board import make_board
from vgpumgr.mig.layout.change import LayoutPlan, Reason, Refusal
from vgpumgr.mig.layout.planner import read_wanted, try_layout
from vgpumgr.mig.layout.solver import Held, Problem
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.gpu import Gpu

# Where not all pairs are looked at: one in so many.
STRIDE = 16
#: of the A100, which has three in four of all pairs
A100_STRIDE = 1 if os.environ.get("VGPUMGR_EVERY_PAIR") else 4


def make_target(gpu: Gpu, names: tuple[str, ...]) -> GpuTarget:
    return GpuTarget(gpu.uuid, True, tuple(TargetInstance(name) for name in names))


def find_best_room(oracle: Oracle, now: Layout, goals: list[Layout], calls: int) -> int:
    return max(oracle.room(goal) for goal in goals if len(now ^ goal) == calls)


def check_solution(
    oracle: Oracle, now: Layout, problem: Problem, goals: list[Layout], calls: int
) -> None:
    """The search alone: what stays, goes and comes."""
    solution = problem.solve()
    assert solution is not None
    names = [str(profile.name) for profile in problem.board.profiles]
    kept = {(str(i.profile), i.placement.start) for i, _ in solution.kept}
    gone = {(str(i.profile), i.placement.start) for i in solution.destroyed}
    made = {(names[cell.profile], cell.placement.start) for cell, _ in solution.created}
    reached = frozenset(kept | made)
    assert now == kept | gone
    assert reached in goals
    assert len(gone) + len(made) == calls
    assert not calls or oracle.room(reached) == find_best_room(oracle, now, goals, calls)


def check_plan(
    oracle: Oracle, gpu: Gpu, target: GpuTarget, goals: list[Layout], calls: int
) -> None:
    """The whole plan, step by step."""
    plan = try_layout([gpu], [target])
    assert isinstance(plan, LayoutPlan)
    paper = Paper(gpu, oracle.children)
    paper.run(plan.steps)
    assert paper.layout in goals
    # a GPU instance comes and goes with its one compute instance
    assert len(plan.steps) == plan.cost.calls == 2 * calls
    assert len(gpu.instances) == plan.cost.kept + plan.cost.gi_destroys
    assert plan.explanations[0][1].endswith("nothing is touched") == (calls == 0)


@pytest.mark.parametrize(
    ("board", "stride"), [(A30, 1), (A100, A100_STRIDE), (RTX, 1), (H100, STRIDE)]
)
def test_every_change_takes_the_fewest_calls(board: str, stride: int) -> None:
    oracle = make_oracle(board)
    gpus = {layout: make_gpu(board, layout) for layout in oracle.layouts}
    empty = gpus[frozenset()]
    geometry = make_board(empty)
    for number, (names, goals) in enumerate(oracle.targets().items()):
        walks = oracle.walk(goals)
        assert len(walks) == len(gpus), "every layout leads to every other"
        target = make_target(empty, names)
        wanted = read_wanted(empty, geometry, target.instances or ())
        assert isinstance(wanted, list)
        for position, (now, gpu) in enumerate(gpus.items(), number):
            if position % stride == 0:
                problem = Problem(gpu, geometry, wanted, Held())
                check_solution(oracle, now, problem, goals, walks[now])
            if position % STRIDE == 0:
                check_plan(oracle, gpu, target, goals, walks[now])


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
