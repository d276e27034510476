"""After a reboot of the simulated machine, ``restore`` brings layouts, slices and channels back."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.domains import PC
from tests.support.fake_channels import FakeChannels
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_hypervisor import Machine as FakeVm
from tests.support.forked import run_vgpumgr
from tests.support.layout_rig import LayoutRig, layout_rig, make_parts, shape
from vgpumgr.app.application import Application
from vgpumgr.app.operations.restore import restore
from vgpumgr.domain.domain import Domain
from vgpumgr.errors import NoRoomError
from vgpumgr.host.machine import Machine
from vgpumgr.mig.layout.target import TargetInstance
from vgpumgr.model.attachment import (
    AttachmentRecord,
    AttachmentState,
    ChannelPart,
    MigInstanceRef,
    MigPart,
)
from vgpumgr.model.choices import Backend, Transport
from vgpumgr.model.identity import MigUuid
from vgpumgr.model.mig import Placement
from vgpumgr.sim.machine import boot_state
from vgpumgr.state.domain_metadata import describe_record, save_note

pytestmark = pytest.mark.native
ROOT = Path(__file__).parents[2]
SPLIT = TargetInstance("3g.40gb", ("2c.3g.40gb", "1c.3g.40gb"))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LayoutRig]:
    with layout_rig("dgx-a100", tmp_path, monkeypatch) as it:
        yield it


def record_attachment(rig: LayoutRig, profile: str, place: Placement) -> AttachmentRecord:
    """As if an attach had made that slice."""
    gpu = rig.gpus[0]
    row = next(p for p in gpu.profiles if str(p.name) == profile)
    made = rig.nvml.create_gpu_instance(gpu.uuid, row.id, place)
    compute = rig.nvml.create_compute_instance(gpu.uuid, made.id, row.slices)
    assert compute.uuid is not None
    record = AttachmentRecord(
        id="a1b2c3d4",
        vm_name="vm01",
        vm_uuid="11111111-1111-4111-8111-111111111111",
        gpu=gpu.uuid,
        profile=profile,
        memory_bytes=row.memory_bytes,
        backend=Backend.FORWARD,
        created_s=1.0,
        state=AttachmentState.ATTACHED,
        mig_part=MigPart(
            row.id, place, ref=MigInstanceRef(made.id, compute.id, place, compute.uuid)
        ),
        channel=ChannelPart(Transport.AUTO, (64055, 108), ("events=7",)),
    )
    rig.parts.store.save_attachment(record)
    return record


def reboot(rig: LayoutRig) -> LayoutRig:
    boot_state(rig.directory)
    parts = dataclasses.replace(
        make_parts(rig.directory, rig.nvml), boot_id="boot-2", channels=FakeChannels(rig.directory)
    )
    return LayoutRig(rig.directory, rig.nvml, parts)


def test_layout_and_attachment_come_back_at_their_places(rig: LayoutRig) -> None:
    rig.apply(SPLIT, "1g.10gb", gpu=0)
    rig.apply("7g.80gb", gpu=5)
    free = next(
        p
        for p in (Placement(n, 1) for n in range(7))
        if not any(p.overlaps(i.placement) for i in rig.gpus[0].instances)
    )
    record = record_attachment(rig, "1g.10gb", free)
    before = rig.shape(0), rig.shape(5)
    after = reboot(rig)
    assert after.shape(0) == ()
    document = restore(after.parts)
    assert document.problems == []
    assert (after.shape(0), after.shape(5)) == before
    channels: Any = after.parts.channels
    spec = channels.specs[record.id]
    (now,) = after.parts.store.list_attachments()
    assert now.mig is not None
    assert spec.cuda_device == now.mig.uuid
    assert now.mig.uuid in {
        c.uuid for i in after.gpus[0].instances if i.placement == free for c in i.compute_instances
    }
    assert spec.socket_owner == (64055, 108)
    assert spec.limits.changed == ("events=7",)
    assert spec.ring
    assert spec.serial
    rig.nvml.changes.clear()
    again = restore(after.parts)
    assert (again.done, again.problems) == ([], [])
    assert rig.nvml.changes == []


def list_files(rig: LayoutRig) -> dict[Path, bytes]:
    places = (rig.parts.state_dir, rig.parts.run_dir)
    return {p: p.read_bytes() for place in places for p in place.rglob("*") if p.is_file()}


@pytest.mark.parametrize("board", ["dgx-a100", "hgx-h100"])
def test_a_dry_run_says_what_restore_then_does_and_changes_nothing(
    board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hopper has lost its MIG mode, too."""
    with layout_rig(board, tmp_path, monkeypatch) as rig:
        rig.apply("3g.40gb", "1g.10gb", gpu=0)
        rig.apply("7g.80gb", gpu=5)
        place = next(
            p
            for p in (Placement(n, 1) for n in range(7))
            if not any(p.overlaps(i.placement) for i in rig.gpus[0].instances)
        )
        record = record_attachment(rig, "1g.10gb", place)
        after = reboot(rig)
        shapes, files = [after.shape(gpu) for gpu in (0, 5)], list_files(after)
        rig.nvml.changes.clear()
        planned = restore(after.parts, dry_run=True)
        assert planned.dry_run
        assert rig.nvml.changes == []
        assert [after.shape(gpu) for gpu in (0, 5)] == shapes
        assert list_files(after) == files
        assert after.parts.channels.read_status(record.id) is None
        done = restore(after.parts)
        assert planned.done == done.done
        assert len(done.done) >= 4
        assert planned.problems == done.problems == []
        again = restore(after.parts, dry_run=True)
        assert (again.done, again.problems) == ([], [])


def test_an_instance_of_a_layout_comes_back_whole_for_the_attachment_that_took_a_part(
    rig: LayoutRig,
) -> None:
    rig.apply(SPLIT, "1g.10gb")
    gpu = rig.gpus[0]
    instance = next(i for i in gpu.instances if str(i.profile) == "3g.40gb")
    part = next(c for c in instance.compute_instances if c.slices == 1)
    assert part.uuid is not None
    ref = MigInstanceRef(instance.id, part.id, instance.placement, part.uuid)
    record = AttachmentRecord(
        id="a1b2c3d4",
        vm_name="vm01",
        vm_uuid="11111111-1111-4111-8111-111111111111",
        gpu=gpu.uuid,
        profile="1c.3g.40gb",
        memory_bytes=instance.memory_bytes,
        backend=Backend.FORWARD,
        created_s=1.0,
        state=AttachmentState.ATTACHED,
        mig_part=MigPart(
            instance.profile_id, instance.placement, part.placement, ref, instance.id, taken=True
        ),
        channel=ChannelPart(Transport.AUTO, (64055, 108)),
    )
    rig.parts.store.save_attachment(record)
    before = rig.shape()
    after = reboot(rig)
    assert restore(after.parts).problems == []
    assert after.shape() == before
    (now,) = after.parts.store.list_attachments()
    assert now.is_taken
    assert now.mig is not None
    slices = {c.uuid: c.slices for i in after.gpus[0].instances for c in i.compute_instances}
    assert slices[now.mig.uuid] == 1


def test_what_is_not_ours_stays_and_is_told(rig: LayoutRig) -> None:
    rig.apply("3g.40gb", "2g.20gb")
    ours = rig.shape()
    after = reboot(rig)
    gpu = after.gpus[0]
    profile = next(p for p in gpu.profiles if str(p.name) == "7g.80gb")
    rig.nvml.set_mig_mode(gpu.uuid, True)
    rig.nvml.create_gpu_instance(gpu.uuid, profile.id, profile.placements[0])
    rig.nvml.changes.clear()
    planned = restore(after.parts, dry_run=True)
    document = restore(after.parts)
    assert rig.nvml.changes == []
    assert planned.problems == document.problems
    assert len(document.problems) == len(ours)
    assert all("in its place is 7g.80gb at 0:8" in text for text in document.problems)


def test_one_gpu_that_fails_does_not_hinder_the_others(rig: LayoutRig) -> None:
    rig.apply("3g.40gb", gpu=0)
    rig.apply("3g.40gb", gpu=1)
    before = rig.shape(1)
    after = reboot(rig)
    after.fault("gi.create", code=15)
    document = restore(after.parts)
    assert after.shape(0) == ()
    assert after.shape(1) == before
    assert len(document.problems) == 1
    assert "15" in document.problems[0]
    after.clear()
    assert restore(after.parts).problems == []


def test_time_is_bounded(rig: LayoutRig) -> None:
    rig.apply("3g.40gb")
    after = reboot(rig)
    document = restore(after.parts, timeout_s=0.0)
    assert document.done == []
    assert all("not begun within 0 s" in text for text in document.problems)
    assert document.problems


def test_an_attachment_whose_place_is_taken_keeps_its_record(rig: LayoutRig) -> None:
    rig.nvml.set_mig_mode(rig.gpus[0].uuid, True)
    record = record_attachment(rig, "1g.10gb", Placement(2, 1))
    after = reboot(rig)
    gpu = after.gpus[0]
    profile = next(p for p in gpu.profiles if str(p.name) == "3g.40gb")
    rig.nvml.set_mig_mode(gpu.uuid, True)
    rig.nvml.create_gpu_instance(gpu.uuid, profile.id, profile.placements[0])
    document = restore(after.parts)
    assert any("vm01" in text for text in document.problems)
    assert after.parts.store.list_attachments() == (record,)
    assert shape(after.gpus[0])[0][0] == "3g.40gb"


def test_a_lost_place_is_known_to_whoever_asks_for_room(rig: LayoutRig) -> None:
    """Until the slice is back, ``why``, ``mig defrag`` and ``attach`` know whose the place is."""
    rig.nvml.set_mig_mode(rig.gpus[0].uuid, True)
    record_attachment(rig, "3g.40gb", Placement(0, 4))
    after = reboot(rig)
    after.nvml.set_mig_mode(after.gpus[0].uuid, True)
    machine = Machine(None, rig.directory, after.parts.state_dir, after.parts.run_dir, "test:///")
    definition = Domain.from_xml(PC).changed(name="vm02")
    definition = definition.changed(uuid="22222222-2222-4222-8222-222222222222")
    assert definition.uuid is not None
    other = FakeVm("vm02", definition.uuid, definition, None)
    parts = dataclasses.replace(after.parts, hypervisor=FakeHypervisor([other]))
    application = Application(machine, parts)
    holder = 'vm "vm01", attachment a1b2c3d4'
    (row,) = application.why("7g.80gb", "0").gpus
    assert not row.fits
    assert [kept.holders for kept in row.kept] == [[holder]]
    (row,) = application.why("3g.40gb", "0").gpus
    assert [place.start for place in row.places] == [4]
    for ask in (
        lambda: application.plan_defrag("7g.80gb", "0"),
        lambda: application.attach(vm="vm02", profile="7g.80gb", gpu="0"),
    ):
        with pytest.raises(NoRoomError) as refused:
            ask()
        assert f"{holder}: 3g.40gb at 0:4" in refused.value.held_by
        assert "vgpumgr restore" in str(refused.value.hint)


@pytest.mark.parametrize("boot", [True, False])
def test_a_slice_with_another_uuid_is_bound_anew(rig: LayoutRig, boot: bool) -> None:
    """By hand the VM's note follows; at boot libvirt, which waits for us, is not asked."""
    rig.nvml.set_mig_mode(rig.gpus[0].uuid, True)
    record = record_attachment(rig, "1g.10gb", Placement(2, 1))
    assert record.mig is not None
    stale = dataclasses.replace(
        record.mig, uuid=MigUuid("MIG-00000000-0000-5000-8000-000000000000")
    )
    old = record.with_mig(ref=stale)
    rig.parts.store.save_attachment(old)
    definition = Domain.from_xml(PC).changed(name=record.vm_name, uuid=record.vm_uuid)
    hypervisor = FakeHypervisor([FakeVm(record.vm_name, record.vm_uuid, definition, None)])
    save_note(hypervisor, hypervisor.read_vm(record.vm_uuid), describe_record(old))
    parts = dataclasses.replace(rig.parts, hypervisor=None if boot else hypervisor)
    document = restore(parts, boot=boot)
    assert document.problems == []
    (now,) = rig.parts.store.list_attachments()
    assert now.mig == record.mig
    note = hypervisor.read_vm(record.vm_uuid).find_note(record.id)
    assert note == describe_record(old if boot else now)
    assert restore(parts, boot=boot).done == []


@pytest.mark.parametrize("name", ["dgx-a100", "hgx-h100"])
def test_reboot_of_a_machine_as_a_user_sees_it(name: str, tmp_path: Path) -> None:
    environment = os.environ | {"VGPUMGR_SIM_ROOT": str(tmp_path)}

    def run(*words: str, code: int = 0) -> str:
        done = run_vgpumgr(*words, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def read_boot_id() -> str:
        return (tmp_path / name / "root/proc/sys/kernel/random/boot_id").read_text()

    run("sim", "start", name)
    try:
        assert run("--machine", name, "restore") == "nothing is missing\n"
        script = (
            "import sys; from pathlib import Path; import pytest;"
            "from tests.support.inprocess_nvml import InProcessNvml;"
            "from tests.support.layout_rig import LayoutRig, make_parts;"
            "d = Path(sys.argv[1]); n = InProcessNvml();"
            "LayoutRig(d, n, make_parts(d, n)).apply('3g.40gb', '2g.20gb', gpu=2)"
        )
        exports = {"VGPUMGR_SIM": str(tmp_path / name), "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / name)],
            check=True, env=environment | exports, cwd=ROOT,
        )  # fmt: skip

        def look() -> Any:
            text = run("--machine", name, "gpu", "show", "2", "-o", "json")
            gpu = json.loads(text)["gpu"]
            return gpu["mig"]["current"], [(i["profile"], i["placement"]) for i in gpu["instances"]]

        mode, instances = look()
        assert len(instances) == 2
        boot_id = read_boot_id()
        run("sim", "reboot", name)
        assert read_boot_id() != boot_id
        assert look()[1] == []
        # Ampere keeps MIG mode over a reboot, later architectures do not
        assert (look()[0] == mode) is (name == "dgx-a100")
        assert "3g.40gb" in run("--machine", name, "restore")
        assert look() == (mode, instances)
        assert run("--machine", name, "restore") == "nothing is missing\n"
    finally:
        run("sim", "stop", name)
