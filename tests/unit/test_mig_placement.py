"""Placement search against a brute-force oracle that knows the rules in another form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.boards import A30_NAME, BOARDS, RTX, make_gpu, make_uuid
from tests.support.layout_oracle import A30 as A30_TABLE
from tests.support.layout_oracle import make_gpu as make_layout_gpu
from vgpumgr.errors import MigNotSupportedError, NoRoomError, ProfileNotFoundError
from vgpumgr.mig.layout import board as boards
from vgpumgr.mig.layout.board import make_board
from vgpumgr.mig.placement import (
    Choice,
    Constraints,
    choose_placements,
    count_fits,
    list_choices,
    list_fits,
    list_refusals,
)
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.gpu import Gpu, GpuProcess, ProcessKind
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import MigMode, MigProfile, MigProfileName


def choose_placement(
    gpus: Sequence[Gpu],
    name: MigProfileName,
    owners: Sequence[SliceOwner] = (),
    *,
    spread: bool = False,
) -> Choice:
    """For a single slice."""
    (seat,) = choose_placements(gpus, name, 1, owners, constraints=Constraints(spread))
    return seat.choice


Cell = tuple[str, int]  # a profile's name and a start


def oracle_valid(model: str, layout: tuple[Cell, ...]) -> bool:
    """The rules once more, cell by cell on the axis, from the board's table alone."""
    rows, _ = BOARDS[model]
    table = {row.name: row for row in rows}
    taken: list[int] = []
    slices = 0
    for name, start in layout:
        row = table[name]
        if start not in row.starts:
            return False
        taken += range(start, start + row.size)
        slices += row.slices
    counts = {name: sum(n == name for n, _ in layout) for name, _ in layout}
    if len(set(taken)) != len(taken) or slices > max(row.slices for row in rows):
        return False
    if any(counts[name] > table[name].maximum for name in counts):
        return False
    everything = [name for name, _ in layout if name.endswith("+me.all")]
    others = [name for name, _ in layout if not name.endswith(("-me", "+me.all"))]
    return not everything or (not others and len(everything) == 1)


def oracle_extensions(model: str, layout: tuple[Cell, ...], name: str) -> set[int]:
    """Every start at which one more instance of ``name`` is allowed."""
    rows, _ = BOARDS[model]
    starts = next(row.starts for row in rows if row.name == name)
    return {start for start in starts if oracle_valid(model, (*layout, (name, start)))}


@cache
def oracle_packing(model: str, layout: frozenset[Cell], name: str) -> int:
    """The most instances of ``name`` alone that still fit, by trying every order."""
    starts = oracle_extensions(model, tuple(layout), name)
    return max((1 + oracle_packing(model, layout | {(name, s)}, name) for s in starts), default=0)


def oracle_room(model: str, layout: tuple[Cell, ...]) -> int:
    rows, _ = BOARDS[model]
    return sum(oracle_packing(model, frozenset(layout), row.name) * row.slices for row in rows)


@st.composite
def layouts(draw: st.DrawFn, model: str) -> tuple[Cell, ...]:
    """A valid layout, by adding what fits until the draw stops."""
    rows, _ = BOARDS[model]
    layout: tuple[Cell, ...] = ()
    for _ in range(draw(st.integers(0, 5))):
        cells = [(r.name, s) for r in rows for s in oracle_extensions(model, layout, r.name)]
        if not cells:
            break
        layout = (*layout, draw(st.sampled_from(cells)))
    return layout


models = st.sampled_from(list(BOARDS))


@given(st.data(), models)
@settings(max_examples=60, deadline=None)
def test_what_fits_is_what_the_oracle_allows(data: st.DataObject, model: str) -> None:
    layout = data.draw(layouts(model))
    gpu = make_gpu(model, 0, layout)
    for profile in gpu.profiles:
        found = {placement.start for placement in list_fits(gpu, profile)}
        assert found == oracle_extensions(model, layout, str(profile.name))
        packed = oracle_packing(model, frozenset(layout), str(profile.name))
        assert count_fits(gpu, profile) == packed


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_choice_is_allowed_and_leaves_the_most_room(data: st.DataObject) -> None:
    chosen_models = data.draw(st.lists(models, min_size=1, max_size=3))
    drawn = [data.draw(layouts(model)) for model in chosen_models]
    gpus = [
        make_gpu(m, i, lay) for i, (m, lay) in enumerate(zip(chosen_models, drawn, strict=True))
    ]
    name = data.draw(st.sampled_from([row.name for m in chosen_models for row in BOARDS[m][0]]))
    possible = {
        (i, start): oracle_room(m, lay) - oracle_room(m, (*lay, (name, start)))
        for i, (m, lay) in enumerate(zip(chosen_models, drawn, strict=True))
        if name in {row.name for row in BOARDS[m][0]}
        for start in oracle_extensions(m, lay, name)
    }
    wanted = MigProfileName.parse(name)
    if not possible:
        with pytest.raises(NoRoomError):
            choose_placement(gpus, wanted)
        return
    choice = choose_placement(gpus, wanted)
    assert possible[choice.gpu.index, choice.placement.start] == min(possible.values())
    assert len(list_choices(gpus, wanted)) == len(possible)


@given(st.data(), models)
@settings(max_examples=40, deadline=None)
def test_a_refusal_names_the_fewest_instances_in_the_way(data: st.DataObject, model: str) -> None:
    layout = data.draw(layouts(model))
    gpu = make_gpu(model, 0, layout)
    for profile in gpu.profiles:
        refusals = list_refusals([gpu], profile.name)
        if oracle_extensions(model, layout, str(profile.name)):
            assert not refusals
            continue
        gone = {(str(o.profile), o.placement.start) for o in refusals[0].in_the_way}
        rest = tuple(cell for cell in layout if cell not in gone)
        assert oracle_extensions(model, rest, str(profile.name))
        for kept in gone:
            smaller = (*rest, kept)
            assert not oracle_extensions(model, smaller, str(profile.name))


def where(gpus: list[Gpu], name: str) -> tuple[int, str]:
    choice = choose_placement(gpus, MigProfileName.parse(name))
    return choice.gpu.index, str(choice.placement)


def test_small_profiles_leave_the_big_places_open() -> None:
    assert where([make_gpu()], "1g.10gb") == (0, "6:1")
    assert where([make_gpu(layout=[("1g.10gb", 6)])], "3g.40gb") == (0, "0:4")
    assert where([make_gpu(layout=[("4g.40gb", 0)])], "3g.40gb") == (0, "4:4")


def test_a_started_gpu_is_filled_before_a_fresh_one() -> None:
    gpus = [make_gpu(index=0), make_gpu(index=1, layout=[("1g.10gb", 6)])]
    assert where(gpus, "1g.10gb")[0] == 1
    assert where(gpus, "7g.80gb") == (0, "0:8")


def test_mig_mode_is_turned_on_only_where_it_must_be() -> None:
    off, on = make_gpu(index=0, layout=None), make_gpu(index=1, layout=[("3g.40gb", 0)])
    assert where([off, on], "1g.10gb")[0] == 1
    choice = choose_placement([off, on], MigProfileName.parse("7g.80gb"))
    assert (choice.gpu.index, choice.needs_mig_mode) == (0, True)
    assert "MIG mode must be turned on" in choice.why


def test_existing_instances_are_never_moved() -> None:
    gpu = make_gpu(layout=[("1g.10gb", 0), ("1g.10gb", 4)])
    with pytest.raises(NoRoomError) as caught:
        choose_placement([gpu], MigProfileName.parse("3g.40gb"))
    assert "(0:4, 4:4) is taken" in str(caught.value.why)


def test_the_closest_gpu_and_who_is_in_the_way() -> None:
    gpus = [
        make_gpu(index=0, layout=[("3g.40gb", 0), ("3g.40gb", 4)]),
        make_gpu(index=1, layout=[("1g.10gb", 2), ("1g.10gb", 6)]),
        make_gpu(index=2, layout=[("7g.80gb", 0)]),
    ]
    owners = [SliceOwner(gpus[1].uuid, 2, 0, "build7", "ab12")]
    with pytest.raises(NoRoomError) as caught:
        choose_placement(gpus, MigProfileName.parse("4g.40gb"), owners)
    error = caught.value
    assert error.error == "cannot place 4g.40gb on any of 3 GPUs"
    assert str(error.why).startswith("GPU 0 (0000:07:00.0) came closest")
    with pytest.raises(NoRoomError) as caught:
        choose_placement(gpus[1:2], MigProfileName.parse("7g.80gb"), owners)
    assert caught.value.held_by == (
        "instance 1 (1g.10gb at 2:1) on GPU 1 (0000:0f:00.0)",
        'vm "build7" (instance 2 (1g.10gb at 6:1))',
    )
    assert "it needs 7 compute slices, 5 free" in str(caught.value.why)
    assert (caught.value.id, int(caught.value.exit_code)) == ("VG104", 6)


def test_clients_keep_mig_mode_from_changing() -> None:
    process = GpuProcess(4711, "python3", ProcessKind.COMPUTE, 1)
    gpu = make_gpu(layout=None, processes=[process])
    with pytest.raises(NoRoomError) as caught:
        choose_placement([gpu], MigProfileName.parse("1g.10gb"))
    assert "MIG mode is off and cannot change while process 4711 (python3) runs" in str(
        caught.value.why
    )
    assert caught.value.held_by == ("process 4711 (python3)",)


def test_virtual_functions_keep_mig_mode_from_changing() -> None:
    name = MigProfileName.parse("1g.10gb")
    vgpu_host = replace(make_gpu(layout=None), vfs_enabled=16)
    with pytest.raises(NoRoomError) as caught:
        choose_placement([vgpu_host], name)
    assert "cannot change beside 16 virtual functions" in str(caught.value.why)
    assert choose_placement([vgpu_host, make_gpu(index=1, layout=None)], name).gpu.index == 1
    assert choose_placement([replace(make_gpu(), vfs_enabled=16)], name), "MIG mode is on already"


def test_a_pending_mode_is_waited_for() -> None:
    gpu = replace(make_gpu(layout=None), mig=MigMode(True, False, True, True))
    with pytest.raises(NoRoomError, match="cannot place") as caught:
        choose_placement([gpu], MigProfileName.parse("1g.10gb"))
    assert "MIG mode is to be turned on by a reset" in str(caught.value.why)


def test_the_drivers_word_counts() -> None:
    gpu = make_gpu()
    full = tuple(replace(profile, remaining=0) for profile in gpu.profiles)
    with pytest.raises(NoRoomError) as caught:
        choose_placement([replace(gpu, profiles=full)], MigProfileName.parse("1g.10gb"))
    assert "the driver reports that no further 1g.10gb fits" in str(caught.value.why)


def test_an_unknown_profile_gets_near_names() -> None:
    with pytest.raises(ProfileNotFoundError) as caught:
        choose_placement([make_gpu(), make_gpu(A30_NAME, 1)], MigProfileName.parse("1g.5gb"))
    why = str(caught.value.why)
    assert "1g.6gb" in why
    assert "1g.10gb" in why
    assert caught.value.hint == "vgpumgr mig profiles"


def test_no_mig_at_all() -> None:
    gpu = replace(make_gpu(), model="NVIDIA L40S", mig=MigMode(False), profiles=(), instances=())
    with pytest.raises(MigNotSupportedError) as caught:
        choose_placement([gpu], MigProfileName.parse("1g.10gb"))
    assert "NVIDIA L40S" in str(caught.value.why)
    with pytest.raises(MigNotSupportedError):
        choose_placement([], MigProfileName.parse("1g.10gb"))


def test_all_media_engines_go_to_one_instance() -> None:
    gpu = make_gpu(RTX, layout=[("1g.24gb+me.all", 0)])
    board = make_board(gpu)
    fits = {str(p.name) for p in gpu.profiles if list_fits(gpu, p)}
    assert fits == {"1g.24gb-me", "2g.48gb-me"}
    assert board.measure_room(board.read_layout(gpu.instances)) == 3 * 1 + 1 * 2


def test_the_c_part_does_not_change_the_place() -> None:
    choice = choose_placement([make_gpu()], MigProfileName.parse("1c.3g.40gb"))
    assert str(choice.profile.name) == "3g.40gb"


def test_owner_of_another_gpu_is_not_named() -> None:
    gpu = make_gpu(layout=[("7g.80gb", 0)])
    owner = SliceOwner(GpuUuid(make_uuid("GPU", 9)), 1, 0, "other", "x")
    with pytest.raises(NoRoomError) as caught:
        choose_placement([gpu], MigProfileName.parse("1g.10gb"), [owner])
    assert caught.value.held_by == ("instance 1 (7g.80gb at 0:8) on GPU 0 (0000:07:00.0)",)


def test_media_engines_are_a_budget() -> None:
    """An A30 has one NVJPG and one OFA, and each of its two +me profiles takes them."""
    gpu = make_layout_gpu(A30_TABLE, [("1g.6gb+me", 0)])
    (refusal,) = list_refusals([gpu], MigProfileName.parse("2g.12gb+me"))
    assert "too few NVJPG engines are left" in refusal.reason
    assert len(list_choices([gpu], MigProfileName.parse("2g.12gb"))) == 1


def test_spread_takes_the_gpu_with_the_fewest_instances_and_says_so() -> None:
    busy = make_gpu(index=0, layout=[("1g.10gb", 0)])
    empty = make_gpu(index=1, layout=[])
    name = MigProfileName.parse("1g.10gb")
    assert choose_placement([busy, empty], name).gpu.index == 0
    spread = choose_placement([busy, empty], name, spread=True)
    assert spread.gpu.index == 1
    assert "0 instances are on it so far" in spread.why


def test_a_gpu_is_read_once_for_all_of_its_profiles_and_another_gpu_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Gpu] = []
    read_profiles = boards._list_profiles

    def count(gpu: Gpu) -> tuple[MigProfile, ...]:
        read.append(gpu)
        return read_profiles(gpu)

    monkeypatch.setattr(boards, "_list_profiles", count)
    empty, full = make_gpu(), make_gpu(layout=[("7g.80gb", 0)])
    for gpu in (empty, full, empty):
        fits = [count_fits(gpu, profile) > 0 for profile in gpu.profiles]
        assert fits == [gpu is empty] * len(gpu.profiles)
    assert [id(gpu) for gpu in read] == [id(gpu) for gpu in (empty, full, empty)]
