"""Places for several slices at once: as many as there are, by an oracle that tries everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.boards import A30_NAME, A100, RTX, make_gpu
from vgpumgr.errors import (
    LayoutBusyError,
    LayoutImpossibleError,
    NoRoomError,
    ProfileNotFoundError,
)
from vgpumgr.mig.layout.board import make_board
from vgpumgr.mig.layout.change import LayoutPlan, StepKind
from vgpumgr.mig.layout.planner import plan_destruction, try_layout
from vgpumgr.mig.layout.target import GpuTarget
from vgpumgr.mig.placement import (
    Constraints,
    SlicePlacement,
    choose_placements,
    count_free,
    list_fits,
)
from vgpumgr.model.gpu import Gpu, GpuProcess, ProcessKind
from vgpumgr.model.mig import ComputeInstance, MigProfileName, Placement
from vgpumgr.planning.mig_instances import check_unused, choose_instances

BOARDS = (A30_NAME, A100, RTX)


def oracle_most(gpu: Gpu, name: MigProfileName, layout: int | None = None) -> int:
    """The most GPU instances of a profile that still fit, by trying every order of every place."""
    board = make_board(gpu)
    layout = board.read_layout(gpu.instances) if layout is None else layout
    profile = board.find(name)
    assert profile is not None
    places = board.list_places(layout, profile)
    bits = [board.bit(profile, place) or 0 for place in places]
    return max((1 + oracle_most(gpu, name, layout | bit) for bit in bits), default=0)


def carve(draw: st.DrawFn, gpu: Gpu) -> Gpu:
    """A GPU with some instances at places that are allowed."""
    cells: list[tuple[str, int]] = []
    for _ in range(draw(st.integers(0, 3))):
        cut = make_gpu(gpu.model, gpu.index, cells)
        fits = [(str(p.name), q.start) for p in gpu.profiles for q in list_fits(cut, p)]
        if fits:
            cells.append(draw(st.sampled_from(fits)))
    return make_gpu(gpu.model, gpu.index, cells)


@st.composite
def hosts(draw: st.DrawFn) -> list[Gpu]:
    count = draw(st.integers(1, 3))
    return [carve(draw, make_gpu(draw(st.sampled_from(BOARDS)), n, [])) for n in range(count)]


def check_places(gpus: list[Gpu], seats: tuple[SlicePlacement, ...]) -> None:
    """Every new GPU instance keeps the rules beside all others."""
    boards = {gpu.uuid: make_board(gpu) for gpu in gpus}
    layouts = {gpu.uuid: boards[gpu.uuid].read_layout(gpu.instances) for gpu in gpus}
    for seat in seats:
        if seat.creates:
            choice, uuid = seat.choice, seat.choice.gpu.uuid
            index = boards[uuid].index(choice.profile)
            assert choice.placement in boards[uuid].list_places(layouts[uuid], index)
            layouts[uuid] |= boards[uuid].bit(index, choice.placement) or 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_as_many_as_there_is_room_for_and_not_one_more(data: st.DataObject) -> None:
    gpus = data.draw(hosts())
    names = [p.name for gpu in gpus for p in gpu.profiles if p.slices <= 3]
    name = data.draw(st.sampled_from(names))
    most = sum(oracle_most(gpu, name) for gpu in gpus if any(p.name == name for p in gpu.profiles))
    assume(most)
    spread = data.draw(st.booleans())
    seats = choose_placements(gpus, name, most, constraints=Constraints(spread))
    check_places(gpus, seats)
    with pytest.raises(NoRoomError, match=f"{most + 1} times") as caught:
        choose_placements(gpus, name, most + 1, constraints=Constraints(spread))
    assert f"{most} fit" in (caught.value.why or "")


def list_inside(seats: tuple[SlicePlacement, ...]) -> Iterator[tuple[object, Placement]]:
    for seat in seats:
        assert seat.compute is not None
        yield (seat.choice.gpu.uuid, seat.choice.placement), seat.compute


@pytest.mark.parametrize(
    ("profile", "each"),
    [("1c.3g.40gb", 3), ("2c.4g.40gb", 2), ("1c.7g.80gb", 7), ("3c.7g.80gb", 2)],
)
def test_parts_fill_an_instance_before_another_is_made(profile: str, each: int) -> None:
    gpus, name = [make_gpu(A100, 0, []), make_gpu(A100, 1, [])], MigProfileName.parse(profile)
    most = sum(count_free(gpu, name) for gpu in gpus)
    assert most % each == 0
    seats = choose_placements(gpus, name, most)
    check_places(gpus, seats)
    assert [seat.creates for seat in seats] == [n % each == 0 for n in range(most)]
    places = list(list_inside(seats))
    for number, (instance, place) in enumerate(places):
        for other, taken in places[:number]:
            assert instance != other or not place.overlaps(taken)


def make_joinable(taken: Placement | None) -> Gpu:
    gpu = make_gpu(A100, 0, [("3g.40gb", 0), ("3g.40gb", 4)])
    compute = (ComputeInstance(0, 0, taken.size, None, taken),) if taken else ()
    first = replace(gpu.instances[0], compute_instances=compute)
    full = ComputeInstance(0, 0, 3, None, Placement(0, 3))
    second = replace(gpu.instances[1], compute_instances=(full,))
    return replace(gpu, instances=(first, second))


def test_joins_only_what_is_given_as_ours_and_has_room() -> None:
    gpu, name = make_joinable(Placement(0, 1)), MigProfileName.parse("1c.3g.40gb")
    ours = {(gpu.uuid, i.id) for i in gpu.instances}
    (seat,) = choose_placements([gpu], name, 1, joinable=ours)
    assert (seat.joins, seat.compute, seat.creates) == (
        gpu.instances[0].id,
        Placement(1, 1),
        False,
    )
    assert count_free(gpu, name, ours) == 2
    with pytest.raises(NoRoomError):
        choose_placements([gpu], name, 3, joinable=ours)
    with pytest.raises(NoRoomError):
        choose_placements([gpu], name, 1)
    with pytest.raises(ProfileNotFoundError):
        choose_placements([gpu], MigProfileName.parse("1c.5g.50gb"), 1, joinable=ours)


def test_the_vms_numa_node_comes_before_room_and_after_mig_mode() -> None:
    near, far = make_gpu(A100, 0, []), make_gpu(A100, 1, [("3g.40gb", 0)])
    near, far = replace(near, numa_node=1), replace(far, numa_node=0)
    name = MigProfileName.parse("1g.10gb")
    assert choose_placements([near, far], name, 1)[0].choice.gpu.index == 1
    (seat,) = choose_placements([near, far], name, 1, constraints=Constraints(nodes=frozenset({1})))
    assert seat.choice.gpu.index == 0
    assert "on the VM's NUMA node 1" in seat.choice.why
    full = replace(make_gpu(A100, 0, [("7g.80gb", 0)]), numa_node=1)
    (seat,) = choose_placements([full, far], name, 1, constraints=Constraints(nodes=frozenset({1})))
    assert seat.choice.gpu.index == 1
    assert "no GPU in MIG mode on the VM's (1) has room" in seat.choice.why
    off = replace(make_gpu(A100, 0, None), numa_node=1)
    (seat,) = choose_placements([off, far], name, 1, constraints=Constraints(nodes=frozenset({1})))
    assert seat.choice.gpu.index == 1
    assert "no GPU in MIG mode on the VM's (1) has room" in seat.choice.why
    off_too = replace(make_gpu(A100, 1, None), numa_node=0)
    (seat,) = choose_placements(
        [full, off_too], name, 1, constraints=Constraints(nodes=frozenset({1}))
    )
    assert "no GPU on the VM's (1) has room" in seat.choice.why


def test_spread_takes_turns_and_pack_does_not() -> None:
    gpus, name = [make_gpu(A100, n, []) for n in range(3)], MigProfileName.parse("1g.10gb")
    spread = choose_placements(gpus, name, 6, constraints=Constraints(spread=True))
    assert sorted(seat.choice.gpu.index for seat in spread) == [0, 0, 1, 1, 2, 2]
    packed = choose_placements(gpus, name, 6)
    assert {seat.choice.gpu.index for seat in packed} == {0}


def test_mig_mode_is_turned_on_once() -> None:
    gpu, name = make_gpu(A100, 0, None), MigProfileName.parse("1g.10gb")
    seats = choose_placements([gpu], name, 3)
    assert [seat.choice.needs_mig_mode for seat in seats] == [True, False, False]
    busy = replace(gpu, processes=(GpuProcess(1, "train", ProcessKind.COMPUTE, None),))
    assert count_free(busy, name) == 0


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_new_instances_touch_no_other_and_are_as_many_as_fit(data: st.DataObject) -> None:
    gpu = carve(data.draw, make_gpu(data.draw(st.sampled_from(BOARDS)), 0, []))
    profile = data.draw(st.sampled_from([p for p in gpu.profiles if p.slices <= 3]))
    most = oracle_most(gpu, profile.name)
    count = data.draw(st.integers(1, 8))
    if count > most:
        with pytest.raises(NoRoomError):
            choose_instances(gpu, str(profile.name), None, count)
        return
    wanted = choose_instances(gpu, str(profile.name), None, count)
    plan = try_layout([gpu], [GpuTarget(gpu.uuid, True, wanted)])
    assert isinstance(plan, LayoutPlan)
    kinds = Counter(step.kind for step in plan.steps)
    assert kinds == {StepKind.GI_CREATE: count, StepKind.CI_CREATE: count}
    board, before = make_board(gpu), make_board(gpu).read_layout(gpu.instances)
    made = [step.placement for step in plan.steps if step.kind is StepKind.GI_CREATE]
    bits = [board.bit(board.index(profile), place) or 0 for place in made if place]
    each = choose_placements([gpu], profile.name, count)
    alone = [board.bit(board.index(profile), one.choice.placement) or 0 for one in each]
    # together they leave at least as much as one after another
    assert board.measure_room(before | sum(bits)) >= board.measure_room(before | sum(alone))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_place_is_taken_exactly_where_one_fits(data: st.DataObject) -> None:
    gpu = carve(data.draw, make_gpu(data.draw(st.sampled_from(BOARDS)), 0, []))
    profile = data.draw(st.sampled_from(gpu.profiles))
    fits = {place.start for place in list_fits(gpu, profile)}
    for start in range(14):
        if start in fits:
            *kept, new = choose_instances(gpu, str(profile.id), start, 1)
            assert (new.profile, new.placement and new.placement.start) == (
                str(profile.name),
                start,
            )
            assert [one.placement for one in kept] == [i.placement for i in gpu.instances]
        else:
            with pytest.raises((NoRoomError, LayoutImpossibleError)):
                choose_instances(gpu, str(profile.id), start, 1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_destruction_leaves_the_rest_as_it_is(data: st.DataObject) -> None:
    gpu = carve(data.draw, make_gpu(data.draw(st.sampled_from(BOARDS)), 0, []))
    gone = (
        data.draw(st.sets(st.sampled_from([i.id for i in gpu.instances])))
        if gpu.instances
        else set()
    )
    plan = plan_destruction(gpu, gone)
    found = {step.instance_id for step in plan.steps if step.kind is StepKind.GI_DESTROY}
    assert (found, {step.instance_id for step in plan.steps}) == (gone, gone)
    assert plan.cost.kept == len(gpu.instances) - len(gone)
    for id_ in gone:
        user = GpuProcess(7, "x", ProcessKind.COMPUTE, None, id_, 0)
        with pytest.raises(LayoutBusyError, match="cannot destroy"):
            check_unused(replace(gpu, processes=(user,)), gone, ())
    check_unused(gpu, gone, ())
