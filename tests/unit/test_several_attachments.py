"""Several attachments in one VM: numbers, notes, devices, and taking one of them away."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.domains import UUID_PC, UUID_Q35
from tests.support.service import Bench, make_bench
from vgpumgr.app.documents.attachments import AttachDocument
from vgpumgr.domain.domain import AttachmentNote, Domain, find_nodes, read_notes, write_notes
from vgpumgr.errors import (
    AlreadyAttachedError,
    LibvirtError,
    LockHeldError,
    NoFreeSlotError,
    NoRoomError,
    NotAttachedError,
    NvmlInUseError,
    RolledBackError,
    SeveralAttachmentsError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.model.request import AttachRequest
from vgpumgr.state.domain_metadata import rebuild_records

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


# ---- several at once, and parts of GPU instances

PART = "1c.3g.40gb"


def ask(bench: Bench, **more: object) -> AttachDocument:
    request = replace(AttachRequest("vm01", ONE), **more)  # type: ignore[arg-type]
    return bench.service.attach(request)


def test_so_many_at_once(bench: Bench) -> None:
    nothing = bench.snapshot()
    done = ask(bench, count=3)
    assert [a.number for a in done.attachments] == [0, 1, 2]
    assert done.plan.result["attachments"] == [a.id for a in done.attachments]
    assert {a.state for a in done.attachments} == {"attached"}
    vm = bench.service.show_vm("vm01").vm
    assert (len(vm.attachments), len(vm.devices_config), vm.problems) == (3, 6, [])
    with pytest.raises(AlreadyAttachedError):
        ask(bench, count=2)
    bench.service.detach("vm01", every=True)
    assert bench.snapshot() == nothing


@pytest.mark.parametrize("fault", ["create_gpu_instance", "start", "set_notes config"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_all_or_none(bench: Bench, fault: str, nth: int) -> None:
    """Whichever of the three fails, nothing of any is left."""
    part = {"create_gpu_instance": bench.nvml, "start": bench.channels}.get(fault, bench.hypervisor)
    error = LibvirtError("refused") if part is bench.hypervisor else NvmlInUseError("in use")
    method = fault.split()[0]
    real, calls = getattr(part, method), 0

    def count(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise error
        return real(*arguments)

    before = bench.snapshot()
    setattr(part, method, count)
    with pytest.raises(VgpumgrError):
        ask(bench, count=3)
    assert calls >= nth
    assert bench.snapshot() == before


def test_what_does_not_fit_as_a_whole_is_refused_before_anything(bench: Bench) -> None:
    before = bench.snapshot()
    with pytest.raises(NoRoomError, match="cannot place 15 times 1g") as caught:
        ask(bench, count=15)
    assert "fit: " in (caught.value.why or "")
    for count in (0, 17, -1):
        with pytest.raises(UsageError):
            ask(bench, count=count)
    with pytest.raises(NoFreeSlotError):
        ask(bench, vm="vm03", count=2)
    assert bench.snapshot() == before


def test_parts_share_an_instance_and_the_last_takes_it_along(bench: Bench) -> None:
    nothing = bench.snapshot()
    first = ask(bench, profile=PART).attachments[0]
    second = ask(bench, vm="vm02", profile=PART).attachments[0]
    assert (first.gpu, first.gpu_instance_id) == (second.gpu, second.gpu_instance_id)
    assert first.device != second.device
    third = ask(bench, profile=PART, count=2, add=True).attachments
    kinds = [third[0].gpu_instance_id, third[1].gpu_instance_id]
    assert kinds[0] == first.gpu_instance_id != kinds[1], "the instance is full with three"
    planned = bench.service.detach("vm02", dry_run=True).plan
    assert "mig.gi.destroy" not in [step.kind for step in planned.steps]
    assert first.id in " ".join(planned.notes)
    bench.service.detach("vm02")
    bench.service.detach("vm01", every=True)
    assert bench.snapshot() == nothing


def test_a_part_does_not_join_what_no_attachment_has_made(bench: Bench) -> None:
    gpu = bench.gpu
    profile = next(p for p in gpu.profiles if str(p.name) == "3g.40gb")
    layout = bench.nvml.create_gpu_instance(gpu.uuid, profile.id, profile.placements[0])
    made = ask(bench, profile=PART, gpu="0").attachments[0]
    assert made.gpu_instance_id != layout.id
    bench.service.detach("vm01")
    assert [i.id for i in bench.gpu.instances if i.profile == profile.name] == [layout.id]


# ---- NUMA


def bind(bench: Bench, xml: str) -> None:
    machine = bench.hypervisor.machines[UUID_PC]
    assert machine.config is not None
    text = machine.config.to_xml().replace("<devices>", f"{xml}<devices>", 1)
    machine.config = Domain.from_xml(text)


CPUS = {cpu: cpu // 8 for cpu in range(16)}
NEAR_1 = [
    "<numatune><memory mode='strict' nodeset='1'/></numatune>",
    "<cputune><vcpupin vcpu='0' cpuset='8-9'/><vcpupin vcpu='1' cpuset='10'/></cputune>",
    "<cputune><emulatorpin cpuset='8-15,^9'/></cputune>",
]
NOWHERE = [
    "",
    "<cputune><vcpupin vcpu='0' cpuset='0-15'/></cputune>",
    "<cputune><vcpupin vcpu='0' cpuset='99'/></cputune>",
]


@pytest.mark.parametrize("xml", NEAR_1)
def test_bound_to_a_node(xml: str) -> None:
    domain = Domain.from_xml(f"<domain><name>a</name>{xml}</domain>")
    assert find_nodes(domain, lambda: CPUS) == {1}


@pytest.mark.parametrize("xml", NOWHERE)
def test_bound_to_none(xml: str) -> None:
    domain = Domain.from_xml(f"<domain><name>a</name>{xml}</domain>")
    assert find_nodes(domain, lambda: CPUS) == frozenset()
    assert find_nodes(None, lambda: CPUS) == frozenset()


def test_numa_strict_says_why_not(bench: Bench) -> None:
    bind(bench, NEAR_1[0])
    with pytest.raises(NoRoomError, match="no GPU is on its NUMA nodes"):
        ask(bench, numa="strict")
    with pytest.raises(UsageError):
        ask(bench, numa="maybe")
    near = replace(bench.gpu, numa_node=1)
    bench.nvml.gpus[near.uuid] = near
    done = ask(bench, numa="strict")
    assert done.attachments[0].gpu == near.uuid
    assert "on the VM's NUMA node 1" in " ".join(done.plan.notes)


def test_where_one_cannot_be_detached_the_rest_is_as_before(bench: Bench) -> None:
    ids = [a.id for a in ask(bench, count=3).attachments]
    bench.hypervisor.fail["detach_device config"] = LibvirtError("refused")
    with pytest.raises(VgpumgrError):
        bench.service.detach("vm01", every=True)
    states = {r.id: str(r.state) for r in bench.service.parts.store.list_attachments()}
    assert states == {ids[0]: "detaching", ids[1]: "attached", ids[2]: "attached"}
    bench.service.detach("vm01", every=True)
    assert bench.service.parts.store.list_attachments() == ()


@pytest.mark.parametrize("profile", [ONE, "1c.3g.40gb"])
def test_the_place_of_a_slice_that_is_gone_is_nobody_elses(bench: Bench, profile: str) -> None:
    """After a reboot, before ``restore``: the driver gives the same numbers and UUIDs again."""
    attach(bench, profile)
    (lost,) = bench.store.list_attachments()
    bench.nvml.gpus[bench.gpu.uuid] = replace(bench.gpu, instances=())
    attach(bench, profile, "vm02")
    new = next(r for r in bench.store.list_attachments() if r.id != lost.id)
    assert new.placement is not None
    assert lost.placement is not None
    assert not new.placement.overlaps(lost.placement)
    # what has the old number now is not what was recorded, and is not joined
    again = next(i for i in bench.gpu.instances if i.placement == new.placement)
    bench.nvml.gpus[bench.gpu.uuid] = replace(
        bench.gpu, instances=(replace(again, id=lost.gpu_instance_id),)
    )
    bench.service.detach("vm01")
    assert [i.placement for i in bench.gpu.instances] == [new.placement]
