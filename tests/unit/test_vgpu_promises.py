"""Functions where something is defined: what new vGPUs leave alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.hostdev_rig import ask, make
from vgpumgr.errors import VgpuNoRoomError
from vgpumgr.model.pci import PciAddress, VfSetting
from vgpumgr.model.vgpu import (
    Framework,
    VgpuBoard,
    VgpuDefinition,
    VgpuDevice,
    VgpuHost,
    VgpuOffer,
    VgpuParent,
    VgpuRecord,
    VgpuSpec,
    VgpuState,
    VgpuType,
)
from vgpumgr.planning.reservations import Reservation, describe_fleeting, list_reservations
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_selection import choose_vgpu, choose_vgpus, list_rooms
from vgpumgr.steps.vgpu import make_definition

UUID = "11111111-2222-3333-4444-5555555555{:02}"
TYPE = VgpuType("nvidia-1", "NVIDIA X-4C", Framework.MDEV, framebuffer_bytes=4 << 30)
GPU = PciAddress.parse("0000:07:00.0")


def vf(number: int) -> str:
    return f"0000:07:00.{number}"


def make_observed(functions: int, reservations: Sequence[Reservation] = ()) -> Snapshot:
    offers = (VgpuOffer(TYPE, 1),)
    parents = tuple(
        VgpuParent(vf(n), Framework.MDEV, offers, replace(GPU, function=n), GPU)
        for n in range(1, functions + 1)
    )
    host = VgpuHost(parents, (), (VgpuBoard(str(GPU), (TYPE,), equal_sizes=True),))
    return Snapshot(vgpus=host, reservations=reservations)


def promise(number: int, *, auto: bool, ours: bool = True) -> Reservation:
    return Reservation(vf(number), UUID.format(number), TYPE.name, auto, ours)


def test_a_function_without_a_definition_comes_first_and_a_manual_one_last() -> None:
    observed = make_observed(3, [promise(1, auto=False), promise(2, auto=True)])
    first = choose_vgpu(observed, "X-4C")
    assert (first.parent.name, first.notes) == (vf(3), ())
    chosen = choose_vgpus(observed, "X-4C", None, [UUID.format(n) for n in (8, 9)])
    assert [spec.parent for _, spec in chosen] == [vf(3), vf(1)]
    assert UUID.format(1) in chosen[1][0].notes[0], "it says whose start it may hinder"


def test_what_starts_at_boot_keeps_its_function_unless_that_is_named() -> None:
    observed = make_observed(2, [promise(1, auto=True), promise(2, auto=True)])
    (room,) = list_rooms(observed)
    assert (room.room.free, UUID.format(1) in str(room.room.reason)) == (0, True)
    with pytest.raises(VgpuNoRoomError, match="cannot create") as refused:
        choose_vgpu(observed, "X-4C")
    assert f"{vf(1)} for vGPU NVIDIA X-4C {UUID.format(1)}" in str(refused.value.why)
    assert refused.value.hint == f"vgpumgr mdev define {UUID.format(1)} --manual"
    named = choose_vgpu(observed, "X-4C", vf(2))
    assert (named.parent.name, len(named.notes)) == (vf(2), 1)


def test_there_are_no_two_definitions_on_one_function() -> None:
    observed = make_observed(2, [promise(1, auto=False)])
    assert choose_vgpu(observed, "X-4C", define=True).parent.name == vf(2)
    both = observed.replace(reservations=[promise(1, auto=False), promise(2, auto=False)])
    with pytest.raises(VgpuNoRoomError, match="cannot create"):
        choose_vgpu(both, "X-4C", define=True)
    assert choose_vgpu(both, "X-4C", vf(1), define=True).notes
    assert list_rooms(both)[0].room.free == 2, "they can be created, if not defined"


def test_a_board_without_definitions_is_taken_before_one_with_them() -> None:
    observed = make_observed(1, [promise(1, auto=False)])
    there = replace(GPU, bus=8)
    free = VgpuParent(
        "0000:08:00.1", Framework.MDEV, (VgpuOffer(TYPE, 1),), replace(there, function=1), there
    )
    host = observed.vgpus
    host = replace(
        host,
        parents=(*host.parents, free),
        boards=(*host.boards, replace(host.boards[0], name=str(there))),
    )
    assert choose_vgpu(observed.replace(vgpus=host), "X-4C").parent.name == free.name


def test_promises_are_ours_that_are_not_there_and_all_of_others() -> None:
    spec = [VgpuSpec(UUID.format(n), Framework.MDEV, vf(n), TYPE.id, TYPE.name) for n in (1, 2, 3)]
    records = [
        VgpuRecord(spec[0], VgpuState.INACTIVE, defined=True, auto=True),
        VgpuRecord(spec[1], VgpuState.ACTIVE, defined=True, auto=True),
        VgpuRecord(spec[2], VgpuState.INACTIVE, defined=True),
    ]
    definitions = [
        VgpuDefinition(UUID.format(1), vf(1), TYPE.id, auto=True),
        VgpuDefinition(UUID.format(4), vf(4), TYPE.id, auto=True),
    ]
    host = make_observed(4).vgpus
    found = list_reservations(records, definitions, host, without=UUID.format(3))
    assert found == [promise(1, auto=True), promise(4, auto=True, ours=False)]


def test_the_functions_that_do_not_come_back_are_told() -> None:
    parent = make_observed(1).vgpus.parents[0]
    (note,) = describe_fleeting((), parent, None)
    assert f"vgpumgr vf enable {GPU} --persist" in note
    kept = VfSetting(GPU, 4, 0x10DE, 0x2230, "boot", persist=True)
    assert describe_fleeting([kept], parent, None) == ()
    assert describe_fleeting([replace(kept, persist=False)], parent, None) == (note,)
    assert describe_fleeting((), replace(parent, pci=GPU), None) == (), "it is the GPU itself"


def test_a_parent_that_holds_many_is_free_for_all() -> None:
    host = VgpuHost(
        (VgpuParent("mtty", Framework.MDEV, (VgpuOffer(TYPE, 4),)),),
        (VgpuDevice(UUID.format(7), "mtty", Framework.MDEV, TYPE.id, TYPE.name),),
        (VgpuBoard("mtty", (TYPE,)),),
    )
    observed = Snapshot(
        vgpus=host, reservations=[Reservation("mtty", UUID.format(1), "t", auto=True)]
    )
    assert choose_vgpu(observed, "X-4C", define=True).notes == ()
    assert list_rooms(observed)[0].room.free == 4


def test_attach_takes_neither_ours_nor_mdevctls_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(tmp_path)
    spec = VgpuSpec(UUID.format(1), Framework.MDEV, vf(1), TYPE.id, TYPE.name)
    record = VgpuRecord(spec, VgpuState.INACTIVE, defined=True, auto=True)
    bench.vgpu_store.records[spec.uuid] = record
    theirs = VgpuDefinition(UUID.format(2), vf(2), TYPE.id, auto=True)
    monkeypatch.setattr(bench.vgpus, "read_host", lambda: make_observed(3).vgpus)
    monkeypatch.setattr(
        bench.vgpus, "list_definitions", lambda: (make_definition(spec, True), theirs)
    )
    plan = bench.service.attach(ask("X-4C"), dry_run=True).plan
    places = [step.target["parent"] for step in plan.steps if step.kind == "mdev.create"]
    assert places == [vf(3)]
    assert "vgpumgr vf enable 0 --persist" in " ".join(plan.notes)
    with pytest.raises(VgpuNoRoomError) as refused:
        bench.service.attach(ask("X-4C", count=2), dry_run=True)
    assert "cannot create 2 times NVIDIA X-4C: 1 fit" in refused.value.error
    named = bench.service.attach(ask("X-4C", gpu=vf(2)), dry_run=True).plan
    assert UUID.format(2) in " ".join(named.notes)
