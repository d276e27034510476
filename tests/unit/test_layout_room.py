"""``why``, ``mig defrag --plan`` and the count of room, against the graph of layouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.support.boards import A100 as A100_80
from tests.support.boards import make_gpu as make_board_gpu
from tests.support.cli import Cli, Owners
from tests.support.fake_nvml import FakeNvml
from tests.support.layout_oracle import A30, A100, BOARDS, RTX, Cell, Layout, make_gpu, make_oracle
from tests.support.layout_replay import Paper, count_room
from vgpumgr.app.documents.base import Document
from vgpumgr.app.documents.layouts import DefragDocument, WhyDocument
from vgpumgr.app.operations import capacity
from vgpumgr.app.operations.capacity import describe_defrag, describe_why
from vgpumgr.errors import NoRoomError, NotPermittedError
from vgpumgr.mig.layout.capacity import Answer, explain_profile, plan_defrag
from vgpumgr.mig.layout.target import Pinned
from vgpumgr.mig.placement import refuse_mode
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.gpu import Gpu, GpuProcess, ProcessKind
from vgpumgr.model.mig import MigProfileName
from vgpumgr.planning.reservations import LostSlice, keep_places, list_kept_pins

boards = st.sampled_from(BOARDS)


def list_subsets(cells: Layout) -> list[Layout]:
    groups = chain.from_iterable(combinations(sorted(cells), n) for n in range(len(cells) + 1))
    return [frozenset(group) for group in groups]


def pin(gpu: Gpu, cells: Layout, who: str) -> list[Pinned]:
    ids = {(str(i.profile), i.placement.start): i.id for i in gpu.instances}
    return [Pinned(gpu.uuid, ids[cell], who) for cell in sorted(cells)]


def list_starts(board: str, layout: Layout, name: str) -> list[int]:
    """Where the graph has an edge that creates one more of ``name``."""
    grown = chain.from_iterable(x - layout for x in make_oracle(board).children[layout])
    return sorted(start for n, start in grown if n == name)


@given(st.data(), boards)
@settings(max_examples=150, deadline=None)
def test_why_agrees_with_the_graph(data: st.DataObject, board: str) -> None:
    oracle = make_oracle(board)
    now = data.draw(st.sampled_from(oracle.layouts))
    held = data.draw(st.sampled_from(list_subsets(now)))
    name = data.draw(st.sampled_from(sorted(oracle.rows)))
    gpu = make_gpu(board, now)
    (answer,) = explain_profile([gpu], MigProfileName.parse(name), pin(gpu, held, "somebody"))
    assert [p.start for p in answer.places] == list_starts(board, now, name)
    if answer.fits:
        return
    assert answer.rules
    gone = frozenset((str(o.instance.profile), o.instance.placement.start) for o in answer.remove)
    assert {o.holders == ("somebody",) for o in answer.remove if o.holders} <= {True}
    enough = [x for x in list_subsets(now) if list_starts(board, now - x, name)]
    assert gone in enough
    assert (len(gone & held), len(gone)) == min((len(x & held), len(x)) for x in enough)


@given(st.data(), boards)
@settings(max_examples=80, deadline=None)
def test_room_agrees_with_the_graph(data: st.DataObject, board: str) -> None:
    oracle = make_oracle(board)
    now = data.draw(st.sampled_from(oracle.layouts))
    gpu = make_gpu(board, now)
    for name, count in count_room(gpu).items():
        assert count == most(board, now, name)


def most(board: str, layout: Layout, name: str) -> int:
    starts = list_starts(board, layout, name)
    return max((1 + most(board, layout | {(name, s)}, name) for s in starts), default=0)


@given(st.data(), boards)
@settings(max_examples=150, deadline=None)
def test_defrag_agrees_with_the_graph(data: st.DataObject, board: str) -> None:
    """Held by running: stays. Held by stopped: moves at most. Unused: moves, or goes if it must."""
    oracle = make_oracle(board)
    now = data.draw(st.sampled_from(oracle.layouts))
    running = data.draw(st.sampled_from(list_subsets(now)))
    stopped = data.draw(st.sampled_from(list_subsets(now - running)))
    name = data.draw(st.sampled_from(sorted(oracle.rows)))
    gpu = make_gpu(board, now)
    (option,) = plan_defrag(
        [gpu],
        MigProfileName.parse(name),
        pin(gpu, running, "runs"),
        pin(gpu, stopped, "rests"),
    )
    idle = frozenset(cell for cell in now - running - stopped if cell[0] != name)
    needed = [len(gone) for gone in list_subsets(idle) if leads(board, now - gone, running, name)]
    assert (option.plan is not None) == bool(needed)
    if option.plan is None:
        return
    taken = [move.onto for move in option.moves if move.onto is not None]
    assert len(option.removed) + len(taken) == min(needed)
    assert not {cell_of(i.profile, i.placement.start) for i in taken} & (running | stopped)
    paper = Paper(gpu, oracle.children)
    paper.run(option.plan.steps)
    assert running <= paper.layout
    assert option.at is not None
    assert (name, option.at.start) in paper.layout
    moved = {cell_of(m.instance.profile, m.instance.placement.start): m.to for m in option.moves}
    for cell in stopped:
        stays = cell in paper.layout and cell not in moved
        assert stays or (cell[0], moved[cell].start) in paper.layout, "no VM loses its slice"
    assert {m.vms for m in option.moves if m.vms} <= {("rests",)}
    assert option.answer.fits == (not option.moves and not option.removed)


@given(st.data(), boards)
@settings(max_examples=100, deadline=None)
def test_places_that_are_kept_are_nobody_elses(data: st.DataObject, board: str) -> None:
    """As if their slices were there and ran: for the answers, and for every step of a plan."""
    oracle = make_oracle(board)
    whole = data.draw(st.sampled_from(oracle.layouts))
    gone = data.draw(st.sampled_from(list_subsets(whole)))
    name = MigProfileName.parse(data.draw(st.sampled_from(sorted(oracle.rows))))
    gpu = make_gpu(board, whole - gone)
    lost = [lose(gpu, cell) for cell in sorted(gone)]
    gpus = keep_places([gpu], lost)
    kept = list_kept_pins(gpus, lost)
    full = make_gpu(board, whole)
    (seen,) = explain_profile(gpus, name, (), kept)
    (expected,) = explain_profile([full], name, pin(full, gone, 'vm "a", attachment x1'))
    assert (seen.places, seen.rules) == (expected.places, expected.rules)
    assert {(str(o.instance.profile), o.instance.placement.start) for o in seen.kept} == gone
    # which of several equally good ones is told depends on their order
    assert weigh(seen) == weigh(expected)
    (option,) = plan_defrag(gpus, name, (), (), kept)
    if option.plan is None:
        return
    paper = Paper(gpu, oracle.children)
    paper.run(option.plan.steps)
    assert not paper.layout & gone
    assert paper.layout | gone in oracle.layouts, "all of them can still come back"


def weigh(answer: Answer) -> tuple[int, int, int]:
    held = sum(bool(o.holders) for o in answer.remove)
    return held, len(answer.remove), sum(o.instance.slices for o in answer.remove)


def lose(gpu: Gpu, cell: Cell) -> LostSlice:
    profile = next(p for p in gpu.profiles if str(p.name) == cell[0])
    place = next(p for p in profile.placements if p.start == cell[1])
    return LostSlice(gpu.uuid, profile, place, 'vm "a", attachment x1', "x1")


def cell_of(profile: object, start: int) -> Cell:
    return str(profile), start


def leads(board: str, layout: Layout, fixed: Layout, name: str) -> bool:
    names = tuple(sorted([*(n for n, _ in layout), name]))
    return any(fixed <= goal for goal in make_oracle(board).targets().get(names, []))


def test_stopped_vms_move_only_if_nothing_else_does() -> None:
    gpu = make_gpu(A100, [("1g.5gb", 4), ("1g.5gb", 0)])
    name = MigProfileName.parse("3g.20gb")
    resting = pin(gpu, frozenset([("1g.5gb", 4)]), 'vm "rests"')
    (option,) = plan_defrag([gpu], name, [], resting)
    assert option.sentence == "1g.5gb moves from 0:1 to 5:1; then it fits at 0:4"
    busy = pin(gpu, frozenset([("1g.5gb", 0)]), 'vm "runs"')
    (option,) = plan_defrag([gpu], name, busy, resting)
    assert option.sentence == (
        '1g.5gb of vm "rests", which is shut off, moves from 4:1 to 1:1; then it fits at 4:4'
    )
    assert option.moves[0].vms == ('vm "rests"',)
    process = GpuProcess(7, "python3", ProcessKind.COMPUTE, None, 2, 0)
    held = make_gpu(A100, [("1g.5gb", 4), ("1g.5gb", 0)], processes=(process,))
    (option,) = plan_defrag([held], name, busy, resting)
    assert option.plan is None, "a process in the slice of a stopped VM holds it all the same"


def test_why_refuses_a_mode_that_cannot_change_as_attach_does() -> None:
    off = make_gpu(A100, None)
    process = GpuProcess(7, "python3", ProcessKind.COMPUTE, None)
    name = MigProfileName.parse("1g.5gb")
    for gpu in (
        replace(off, vfs_enabled=16),
        replace(off, processes=(process,)),
        replace(off, mig=replace(off.mig, pending=True)),
    ):
        (answer,) = explain_profile([gpu], name)
        refusal = refuse_mode(gpu)
        assert refusal is not None
        assert answer.sentence == f"does not fit: {refusal.reason}"


def test_the_driver_is_believed_when_it_says_full() -> None:
    gpu = make_gpu(A30)
    full = replace(gpu, profiles=tuple(replace(p, remaining=0) for p in gpu.profiles))
    name = MigProfileName.parse("1g.6gb")
    (answer,) = explain_profile([full], name)
    assert answer.sentence == "does not fit: the driver reports that no further 1g.6gb fits"
    (option,) = plan_defrag([full], name)
    assert option.plan is None


# the commands


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """An A100 with a VM's slice in the way, an A30 with MIG off, a full A100 in use."""
    cut = make_board_gpu(A100_80, 0, [("1g.10gb", 0), ("1g.10gb", 4)])
    python = GpuProcess(4711, "python3", ProcessKind.COMPUTE, 1 << 30, 1, 0)
    full = make_board_gpu(A100_80, 1, [("7g.80gb", 0)], [python])
    off = make_board_gpu("NVIDIA A30", 2, None)
    owners = Owners(
        [SliceOwner(cut.uuid, 1, 0, "build7", "a1"), SliceOwner(cut.uuid, 2, 0, "web", "b2")]
    )
    return Cli(FakeNvml([cut, full, off]), tmp_path, owners)


def test_why_as_sentences(cli: Cli) -> None:
    result = cli.run("why", "3g.40gb", "--gpu", "1")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "GPU 1: 3g.40gb does not fit: together with what is there, 10 compute slices are needed, "
        "the GPU has 7; its places are taken: 0:4 by 7g.80gb at 0:8, 4:4 by 7g.80gb at 0:8; room would "
        "come from removing 7g.80gb at 0:8 (process 4711 (python3))\n"
    )
    assert cli.run("why", "2g.12gb", "--gpu", "2").out == (
        "GPU 2: 2g.12gb fits at 0:2, 2:2 once MIG mode is on, which attaching does\n"
    )


def test_why_offers_moves(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "without removing" not in cli.run("why", "3g.40gb", "--gpu", "0").out
    monkeypatch.setattr(capacity, "list_stopped_vms", lambda _: frozenset({"build7"}))
    assert cli.run("why", "3g.40gb", "--gpu", "0").out == (
        "GPU 0: 3g.40gb does not fit: its places are taken: 0:4 by 1g.10gb at 0:1, 4:4 by 1g.10gb "
        'at 4:1; room would come from removing 1g.10gb at 0:1 (vm "build7"); or without removing '
        'anything: 1g.10gb of vm "build7", which is shut off, moves from 0:1 to 5:1; then it fits '
        "at 0:4\n"
    )


def test_why_as_a_list(cli: Cli) -> None:
    document = json.loads(cli.run("why", "3g.40gb", "-o", "json").out)
    WhyDocument.from_data(document)
    assert document["fits"] is False
    assert [row["gpu_index"] for row in document["gpus"]] == [0, 1, 2]
    assert document["gpus"][0]["remove"][0]["holders"] == ['vm "build7"']
    lines = cli.run("why", "1g.10gb").out.splitlines()
    assert [line.split("\t")[:2] for line in lines] == [["0", "yes"], ["1", "no"], ["2", "no"]]
    assert "no such profile" in lines[2]


def test_defrag_plans_around_what_runs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    result = cli.run("mig", "defrag", "--plan", "3g.40gb")
    assert (result.code, result.out) == (6, "")
    assert 'vm "build7"' in result.err
    monkeypatch.setattr(capacity, "list_stopped_vms", lambda _: frozenset({"build7"}))
    result = cli.run("mig", "defrag", "--plan", "3g.40gb", "-o", "json")
    assert result.code == 3
    document = json.loads(result.out)
    DefragDocument.from_data(document)
    best = document["options"][0]
    assert (best["gpu_index"], best["possible"], best["at"]) == (0, True, {"start": 0, "size": 4})
    assert [m["vms"] for m in best["moves"]] == [['vm "build7"']]
    kinds = [step["kind"] for step in best["steps"]]
    assert kinds == [
        *("mig.ci.destroy", "mig.gi.destroy"),
        *("mig.gi.create", "mig.ci.create") * 2,
    ]
    assert not any("disrupts" in step for step in best["steps"])


@pytest.mark.parametrize("kind", [WhyDocument, DefragDocument])
def test_the_contract_changes_only_on_purpose(
    golden: Callable[[str, str], None], kind: type[Document]
) -> None:
    schema = TypeAdapter[Any](kind).json_schema(mode="serialization")
    golden(f"schema/{kind.__name__}.json", json.dumps(schema, indent=1) + "\n")


def test_defrag_has_nothing_to_do_where_it_fits(cli: Cli) -> None:
    result = cli.run("mig", "defrag", "--plan", "1g.10gb", "--gpu", "0")
    assert result.code == 0
    assert "nothing has to move" in result.out


def test_what_cannot_be_meant_is_refused(cli: Cli) -> None:
    assert cli.run("why", "frobnicate").code == 2
    unknown = cli.run("why", "3g.20gb")
    assert (unknown.code, "near ones" in unknown.err) == (5, True)
    assert cli.run("mig", "defrag").code == 2
    assert cli.run("mig", "defrag", "--plan", "1g.10gb", "--gpu", "9").code == 5


def test_all_of_rtx_media_rules_are_told() -> None:
    gpu = make_gpu(RTX, [("1g.24gb+me.all", 0)])
    (answer,) = explain_profile([gpu], MigProfileName.parse("1g.24gb"))
    assert answer.rules == (
        "together with what is there, 1g.24gb+me.all has all media engines, "
        "so 1g.24gb cannot be beside it",
    )


def test_why_names_whom_a_place_is_kept_for() -> None:
    """The VM's old number is another instance's by now, which is not held by it."""
    gpu = make_gpu(A100, [("3g.20gb", 0)])
    lost = [lose(gpu, ("3g.20gb", 4))]
    (stale,) = (SliceOwner(gpu.uuid, i.id, 0, "a", "x1") for i in gpu.instances)
    (row,) = describe_why([gpu], "3g.20gb", [stale], (), lost).gpus
    assert row.sentence == (
        "does not fit: together with what is there, 9 compute slices are needed, the GPU has 7, and "
        "the GPU allows 2 of 3g.20gb, not 3; its places are taken: 0:4 by 3g.20gb at 0:4, 4:4 by "
        '3g.20gb at 4:4; not there, but kept until vgpumgr restore: 3g.20gb at 4:4 (vm "a", attachment x1); '
        "room would come from removing 3g.20gb at 0:4 (nobody uses it)"
    )
    assert [(k.instance, k.holders) for k in row.kept] == [(None, ['vm "a", attachment x1'])]
    (row,) = describe_why([make_gpu(A100, [])], "7g.40gb", (), (), lost).gpus
    assert row.sentence.endswith('giving up 3g.20gb at 4:4 (vm "a", attachment x1)')
    (row,) = describe_why([gpu], "1g.5gb", (), (), ()).gpus
    assert row.fits
    with pytest.raises(NoRoomError) as refused:
        describe_defrag([make_gpu(A100, [])], "7g.40gb", (), (), lost)
    assert refused.value.held_by[-1] == 'vm "a", attachment x1: 3g.20gb at 4:4'
    assert "vgpumgr restore" in str(refused.value.hint)


@pytest.mark.parametrize("describe", [describe_why, describe_defrag])
def test_who_may_not_see_the_room_is_told_so(describe: Callable[..., Document]) -> None:
    board = make_board_gpu(A100_80)
    hidden = replace(board, profiles=tuple(replace(p, placements=()) for p in board.profiles))
    with pytest.raises(NotPermittedError, match="as this user"):
        describe([hidden], "1g.10gb", (), ())
