"""Several attachments in one VM: numbers, notes, devices, and taking one of them away."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.domains import UUID_PC, UUID_Q35
from tests.support.service import Bench, make_bench
from vgpumgr.domain.metadata import AttachmentNote, read_notes, write_notes
from vgpumgr.errors import (
    AlreadyAttachedError,
    LibvirtError,
    LockHeldError,
    NotAttachedError,
    RolledBackError,
    SeveralAttachmentsError,
)
from vgpumgr.plan.attach import AttachRequest
from vgpumgr.plan.note import rebuild_records

ONE, TWO = "1g.10gb", "2g.20gb"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path)


def attach(bench: Bench, profile: str = ONE, vm: str = "vm01", *, add: bool = True) -> str:
    document = bench.service.attach(AttachRequest(vm, profile, add=add))
    assert document.attachment is not None
    return document.attachment.id


def test_each_has_its_own_devices_channel_note_and_number(bench: Bench) -> None:
    ids = [attach(bench), attach(bench, TWO), attach(bench)]
    vm = bench.service.show_vm("vm01").vm
    assert [(a.id, a.number, a.profile) for a in vm.attachments] == [
        (ids[0], 0, ONE),
        (ids[1], 1, TWO),
        (ids[2], 2, ONE),
    ]
    assert vm.problems == []
    assert vm.attachment == vm.attachments[0]
    assert {c.id for c in vm.channels} == set(ids)
    devices = [f"ua-vgpumgr-{id_}-{part}" for id_ in sorted(ids) for part in ("ctl", "ring")]
    assert vm.devices_config == devices
    machine = bench.hypervisor.machines[UUID_PC]
    assert [note.id for note in machine.notes] == ids
    recorded = bench.service.parts.store.list_attachments()
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == recorded


def test_one_is_taken_away_and_the_others_stay(bench: Bench) -> None:
    nothing = bench.snapshot()
    first = attach(bench)
    alone = bench.snapshot()
    second = attach(bench, TWO)
    bench.service.detach("vm01", attachment=TWO)
    assert bench.snapshot() == alone
    assert attach(bench, TWO) != second
    assert [a.number for a in bench.service.show_vm("vm01").vm.attachments] == [0, 1]
    bench.service.detach(first)
    left = bench.service.show_vm("vm01").vm
    assert [(a.number, a.profile) for a in left.attachments] == [(1, TWO)]
    bench.service.detach("vm01")
    assert bench.snapshot() == nothing


def test_which_one_must_be_said(bench: Bench) -> None:
    ids = [attach(bench), attach(bench)]
    before = bench.snapshot()
    for which in (None, ONE):
        with pytest.raises(SeveralAttachmentsError) as caught:
            bench.service.detach("vm01", attachment=which)
        assert all(id_ in " ".join(caught.value.held_by) for id_ in ids)
    with pytest.raises(NotAttachedError, match=r"has no attachment '3g\.40gb'"):
        bench.service.detach("vm01", attachment="3g.40gb")
    assert bench.snapshot() == before


def test_all_at_once_leaves_nothing(bench: Bench) -> None:
    for layout in bench.nvml.gpus:
        bench.nvml.set_mig_mode(layout, False)
    nothing = bench.snapshot()
    ids = [attach(bench), attach(bench, TWO), attach(bench)]
    planned = bench.service.detach("vm01", dry_run=True, every=True)
    assert planned.plan.result["attachments"] == ids
    assert bench.service.show_vm("vm01").vm.attachments != []
    done = bench.service.detach("vm01", every=True)
    assert [s.kind for s in done.plan.steps] == [s.kind for s in planned.plan.steps]
    assert bench.snapshot() == nothing


def test_controllers_that_came_with_the_first_go_with_the_last(bench: Bench) -> None:
    """libvirt adds a bridge for the first one's ring; the second stands on it, too."""
    nothing = bench.snapshot()
    first, second = attach(bench, vm="vm02"), attach(bench, vm="vm02")
    before = bench.hypervisor.machines[UUID_Q35].config
    bench.service.detach(first)
    bench.service.detach(second)
    assert before is not None
    assert bench.snapshot() == nothing


def test_a_failure_undoes_the_new_one_alone(bench: Bench) -> None:
    attach(bench)
    before = bench.snapshot()
    bench.hypervisor.fail["set_notes config"] = LibvirtError("refused")
    with pytest.raises(RolledBackError):
        attach(bench, TWO)
    assert bench.snapshot() == before


def test_two_administrators_at_once(bench: Bench) -> None:
    """Without --add one of them is refused; with it both get theirs, with numbers of their own."""
    outcomes: list[object] = []

    def work(add: bool) -> None:
        while True:
            try:
                outcomes.append(attach(bench, add=add))
            except AlreadyAttachedError as error:
                outcomes.append(error)
            except LockHeldError:
                continue  # the bench's clock runs ahead: nobody waits for the lock long enough
            return

    for add in (False, True):
        threads = [threading.Thread(target=work, args=(add,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(isinstance(o, AlreadyAttachedError) for o in outcomes) == 1
    numbers = [r.number for r in bench.service.parts.store.list_attachments()]
    assert sorted(numbers) == [0, 1, 2]


def test_notes_are_read_as_earlier_versions_wrote_them() -> None:
    one = '<attachment xmlns="" id="a1" profile="1g.10gb"/>'
    (note,) = read_notes(one)
    assert note == AttachmentNote(id="a1", profile="1g.10gb")
    assert write_notes(()) is None
    assert read_notes(write_notes([note]) or "") == (note,)
    two = (note, AttachmentNote(id="a2", number=1))
    assert read_notes(write_notes(two) or "") == two
