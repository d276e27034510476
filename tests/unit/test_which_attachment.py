"""What a name means: a VM's name goes first, and nothing is done where it could mean two things."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.domains import UUID_PC, UUID_Q35
from tests.support.service import Bench, make_bench
from vgpumgr.backends.forward import AttachRequest
from vgpumgr.errors import ChannelNotFoundError, LibvirtDownError, SeveralAttachmentsError
from vgpumgr.model.attachment import AttachmentRecord

ONE, TWO = "1g.10gb", "2g.20gb"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path)


def attach(bench: Bench, vm: str, profile: str = ONE) -> str:
    document = bench.service.attach(AttachRequest(vm, profile, add=True))
    assert document.attachment is not None
    return document.attachment.id


def rename(bench: Bench, uuid: str, name: str) -> None:
    """The VM gets another name in libvirt, and so in its records."""
    bench.hypervisor.machines[uuid].name = name
    for record in bench.store.list_attachments():
        if record.vm_uuid == uuid:
            bench.store.save_attachment(replace(record, vm_name=name))


def list_ids(bench: Bench) -> set[str]:
    return {record.id for record in bench.store.list_attachments()}


def check_refused(bench: Bench, name: str, *words: str, attachment: str | None = None) -> str:
    """Every way to say ``name`` is refused, names both, changes nothing. Answers the hint of detach."""
    before = bench.snapshot()
    for dry_run in (True, False):
        with pytest.raises(SeveralAttachmentsError) as refused:
            bench.service.detach(name, dry_run=dry_run, attachment=attachment)
        named = "\n".join(refused.value.held_by)
        assert all(word in named for word in words), named
    assert bench.snapshot() == before
    for show in (bench.service.show_vm, bench.service.show_channel):
        with pytest.raises(SeveralAttachmentsError) as shown:
            show(name)
        assert shown.value.held_by == refused.value.held_by
        assert "--attachment" not in (shown.value.hint or "")
    return refused.value.hint or ""


def test_a_vm_named_as_the_attachment_of_another_is_not_taken_for_it(bench: Bench) -> None:
    theirs = attach(bench, "vm02")
    ours = attach(bench, "vm01")
    rename(bench, UUID_PC, theirs)
    hint = check_refused(bench, theirs, UUID_PC, ours, UUID_Q35, "vm02")
    assert hint == f"vgpumgr detach {theirs} --attachment {ours}"
    # as the hint says, and the other one by its id
    bench.service.detach(theirs, attachment=ours)
    assert list_ids(bench) == {theirs}
    bench.service.detach(theirs, attachment=theirs)
    assert list_ids(bench) == set()


def test_all_of_a_name_that_means_two_things_is_refused(bench: Bench) -> None:
    theirs, _ours = attach(bench, "vm02"), attach(bench, "vm01")
    rename(bench, UUID_PC, theirs)
    with pytest.raises(SeveralAttachmentsError):
        bench.service.detach(theirs, every=True)
    bench.service.detach(UUID_PC, every=True)
    assert list_ids(bench) == {theirs}


def test_a_vm_without_attachments_counts_too(bench: Bench) -> None:
    theirs = attach(bench, "vm02")
    rename(bench, UUID_PC, theirs)
    hint = check_refused(bench, theirs, UUID_PC, "vm02")
    assert hint == f"vgpumgr detach {theirs} --attachment {theirs}"
    bench.service.detach(theirs, attachment=theirs)
    assert list_ids(bench) == set()


def test_a_profile_does_not_say_which_of_two_things(bench: Bench) -> None:
    theirs = attach(bench, "vm02", TWO)
    attach(bench, "vm01", ONE)
    rename(bench, UUID_PC, theirs)
    check_refused(bench, theirs, UUID_PC, UUID_Q35, attachment=ONE)


def test_a_vm_named_as_the_uuid_of_another_is_not_taken_for_it(bench: Bench) -> None:
    ours, theirs = attach(bench, "vm01"), attach(bench, "vm02")
    rename(bench, UUID_PC, UUID_Q35)
    check_refused(bench, UUID_Q35, ours, theirs)
    bench.service.detach(UUID_Q35, attachment=theirs)
    bench.service.detach(UUID_PC)
    assert list_ids(bench) == set()


def test_a_new_vm_with_the_name_of_one_that_is_undefined(bench: Bench) -> None:
    old = attach(bench, "vm01")
    del bench.hypervisor.machines[UUID_PC]
    bench.hypervisor.machines[UUID_Q35].name = "vm01"
    new = attach(bench, "vm01")
    check_refused(bench, "vm01", old, new, UUID_PC, UUID_Q35)
    bench.service.detach("vm01", attachment=old)
    bench.service.detach("vm01")
    assert list_ids(bench) == set()


def test_a_vm_named_as_its_own_attachment_is_no_question(bench: Bench) -> None:
    own = attach(bench, "vm01")
    rename(bench, UUID_PC, own)
    assert bench.service.show_channel(own).channel.id == own
    assert bench.service.show_vm(own).vm.name == own
    second = attach(bench, own)
    # the VM's name goes first: it has two
    with pytest.raises(SeveralAttachmentsError, match="2 attachments"):
        bench.service.detach(own)
    bench.service.detach(own, attachment=own)
    assert list_ids(bench) == {second}


def test_an_attachments_id_shows_its_vm(bench: Bench) -> None:
    own = attach(bench, "vm01")
    shown = bench.service.show_vm(own).vm
    assert (shown.name, shown.uuid, shown.state) == ("vm01", UUID_PC, "shut off")
    assert bench.service.show_channel(own).channel.id == own


def test_a_channel_is_shown_where_libvirt_does_not_answer(bench: Bench) -> None:
    own = attach(bench, "vm01")
    bench.hypervisor.fail["read_vm"] = LibvirtDownError("down")
    assert bench.service.show_channel(own).channel.id == own
    assert bench.service.show_channel("vm01").channel.id == own
    with pytest.raises(ChannelNotFoundError):
        bench.service.show_channel("vm77")


def test_a_renamed_vm_is_found_by_its_new_name(bench: Bench) -> None:
    own = attach(bench, "vm01")
    bench.hypervisor.machines[UUID_PC].name = "vm77"
    bench.service.detach("vm77", dry_run=True)
    record: AttachmentRecord = bench.store.list_attachments()[0]
    assert (record.id, record.vm_name) == (own, "vm01")
    bench.service.detach("vm77")
    assert list_ids(bench) == set()
