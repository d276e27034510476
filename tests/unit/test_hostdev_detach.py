"""What a detach gives back, where several vGPUs live in one GPU instance; a vGPU taken from under its VM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.boards import make_gpu
from tests.support.hostdev_rig import ask, make
from vgpumgr.app.operations.recovery import Recovery
from vgpumgr.app.operations.restore import restore
from vgpumgr.backends.detach import leave_out, plan_detach
from vgpumgr.model.attachment import AttachmentRecord, HostDevice, HostDeviceKind
from vgpumgr.model.choices import Backend
from vgpumgr.model.vgpu import Framework, VgpuInstance, VgpuSpec
from vgpumgr.planning.snapshot import Snapshot

GPU = make_gpu(layout=[("1g.10gb", 0)])
HOME = VgpuInstance(GPU.uuid, "1g.10gb", GPU.instances[0].placement)


def make_record(number: int, made: VgpuInstance | None) -> AttachmentRecord:
    """An attachment with one vGPU; ``made``: the GPU instance that its attach made."""
    uuid = f"00000000-0000-4000-8000-{number:012x}"
    spec = VgpuSpec(uuid, Framework.VENDOR_VFIO, f"0000:07:00.{number + 4}", "1336", "1-3Q")
    device = HostDevice(
        HostDeviceKind.VF, f"ua-vgpumgr-{number}", vgpu=spec, instance=made, created=True
    )
    return AttachmentRecord(
        id=f"a{number}", vm_name=f"vm{number}", vm_uuid=uuid, gpu=GPU.uuid, profile="1-3Q",
        memory_bytes=0, backend=Backend.MDEV, created_s=0, number=0, host_devices=(device,),
    )  # fmt: skip


FIRST, SECOND = make_record(1, HOME), make_record(2, None)
HOMES = {d.vgpu.uuid: HOME for r in (FIRST, SECOND) for d in r.host_devices if d.vgpu}


def see(*records: AttachmentRecord, homes: dict[str, VgpuInstance] = HOMES) -> Snapshot:
    return Snapshot(records=records, gpus=[GPU], homes=homes)


def destroys(record: AttachmentRecord, snapshot: Snapshot) -> bool:
    steps = plan_detach(record, None, snapshot).steps
    return any(step.kind.startswith(("mig.", "layout.")) for step in steps)


def test_the_gpu_instance_stays_while_a_vgpu_that_joined_lives_in_it() -> None:
    assert not destroys(FIRST, see(FIRST, SECOND))


def test_the_last_vgpu_takes_the_gpu_instance_along_whoever_made_it() -> None:
    assert destroys(SECOND, leave_out(FIRST, see(FIRST, SECOND)))


def test_a_vgpu_of_no_attachment_keeps_the_gpu_instance_too() -> None:
    loose = {"00000000-0000-4000-8000-0000000000ff": HOME}
    assert not destroys(FIRST, see(FIRST, homes=loose))


def test_what_somebody_else_made_stays() -> None:
    device = replace(SECOND.host_devices[0], created=False)
    second = replace(SECOND, host_devices=(device,))
    assert not destroys(second, see(second))


def test_a_vgpu_removed_under_its_vm_is_the_vms_until_it_lets_go(tmp_path: Path) -> None:
    bench = make(tmp_path, running=True)
    parts = bench.service.parts
    bench.service.attach(ask("mtty-2"))
    (uuid,) = bench.vgpus.devices
    # the file writes the boot into what it saves; the fake leaves that to tests
    (record,) = bench.vgpu_store.list_vgpus()
    bench.vgpu_store.save_vgpu(replace(record, boot=parts.boot_id))
    bench.vgpus.devices.clear()
    who = 'vm "vm02", process 7 (qemu), which has /dev/vfio/50 open'
    bench.vgpus.group_holders = (who,)
    (drift,) = Recovery(parts).status().drift
    assert f"was removed by another program while {who}" in drift.text
    (problem,) = restore(parts).problems
    assert problem.endswith(f"until its holder closes it, its capacity is taken; {who}")
    assert bench.vgpus.devices == {}, "nothing is tried"
    bench.vgpus.group_holders = ()
    (drift,) = Recovery(parts).status().drift
    assert (drift.text.endswith(" is gone"), drift.hint) == (True, "vgpumgr restore")
    assert restore(parts).problems == []
    assert list(bench.vgpus.devices) == [uuid]


def test_whoever_has_a_group_of_this_boot_has_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    """The number of an IOMMU group means another device after a boot."""
    bench = make(tmp_path, running=True)
    parts = bench.service.parts
    bench.service.attach(ask("mtty-2"))
    bench.vgpu_store.boot_id = "earlier"
    bench.vgpu_store.save_vgpu(bench.vgpu_store.list_vgpus()[0])
    bench.vgpu_store.boot_id = parts.boot_id
    bench.vgpus.devices.clear()
    bench.vgpus.group_holders = ('vm "other"',)
    (drift,) = Recovery(parts).status().drift
    assert drift.text.endswith(" is gone")
    assert restore(parts).problems == []
    assert len(bench.vgpus.devices) == 1
