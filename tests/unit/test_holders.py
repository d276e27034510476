"""Who keeps a function or a slice, in words, and the command that frees it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.support.boards import make_gpu
from tests.support.fake_host import FLEX
from tests.support.hostdev_rig import ask, make
from tests.support.service import Bench
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.app.operations.vgpu_layouts import VgpuLayouts
from vgpumgr.errors import PciBusyError
from vgpumgr.mig.layout.target import list_owner_pins
from vgpumgr.model.attachment import AttachmentRecord, SliceOwner
from vgpumgr.model.choices import Backend
from vgpumgr.model.pci import PciAddress, User, UserKind
from vgpumgr.model.vgpu import (
    Framework,
    VgpuBoard,
    VgpuDevice,
    VgpuHost,
    VgpuParent,
    VgpuRecord,
    VgpuSpec,
    VgpuState,
    VgpuType,
)
from vgpumgr.planning.vgpu_instance import find_vgpu_owners

OURS, THEIRS = ("6f1c0000-0000-4000-8000-00000000000" + n for n in "12")


def make_record(uuid: str, parent: PciAddress, attachment: str | None = None) -> VgpuRecord:
    spec = VgpuSpec(uuid, Framework.MDEV, str(parent), "nvidia-35", "NVIDIA A16-1Q")
    return VgpuRecord(spec, VgpuState.ACTIVE, boot="test", attachment=attachment)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A GPU of NVIDIA's with virtual functions."""
    bench = make(tmp_path)
    vf = PciAddress(0, 3, 0, 4)
    gpu = replace(bench.pci.functions[FLEX], vendor_id=0x10DE, driver="nvidia", vfs=(vf,))
    bench.pci.functions[FLEX] = gpu
    bench.pci.functions[vf] = replace(gpu, address=vf, physical=FLEX, vfs=(), vf_total=0)
    return bench


def refuse_no_vfs(bench: Bench) -> PciBusyError:
    """Why virtual functions are not removed."""
    with pytest.raises(PciBusyError) as refused:
        PassthroughService(bench.service.parts).disable_vfs(selector=str(FLEX), confirmed=True)
    return refused.value


def test_a_vgpu_on_a_virtual_function_that_no_vm_has_is_told_once(bench: Bench) -> None:
    vf = PciAddress(0, 3, 0, 4)
    bench.vgpu_store.save_vgpu(make_record(OURS, vf))
    users = {vf: (User(UserKind.MDEV, f"mediated device {OURS} is on it"),)}
    with mock.patch.object(bench.pci, "list_users", return_value=users):
        refused = refuse_no_vfs(bench)
    assert refused.held_by == (f"vGPU {OURS}",)
    assert refused.hint == f"vgpumgr mdev delete {OURS}, then repeat"


def test_a_vm_with_several_attachments_is_told_once(bench: Bench) -> None:
    vf = PciAddress(0, 3, 0, 4)
    made = [bench.service.attach(ask("mtty-2", add=True)).attachment for _ in range(2)]
    for record, uuid, one in zip(bench.store.list_attachments(), (OURS, THEIRS), made, strict=True):
        assert one is not None
        (device,) = record.host_devices
        vgpu = make_record(uuid, vf, record.id)
        bench.store.save_attachment(
            replace(record, host_devices=(replace(device, vgpu=vgpu.spec),))
        )
        bench.vgpu_store.save_vgpu(vgpu)
    refused = refuse_no_vfs(bench)
    assert refused.held_by == ('vm "vm02" (Dual port serial)',)
    assert refused.hint == "vgpumgr detach vm02 --all, then repeat"
    bench.service.attach(ask("mtty-2", add=True))
    hint = refuse_no_vfs(bench).hint or ""
    assert hint.count("vgpumgr detach vm02 --attachment ") == 2, "the third is elsewhere"
    assert "--all" not in hint


def test_a_layout_names_the_vm_of_a_vgpu_that_it_must_take(bench: Bench) -> None:
    done = bench.service.attach(ask("mtty-2")).attachment
    assert done is not None
    (record,) = [r for r in bench.vgpu_store.list_vgpus() if r.attachment == done.id]
    view = VgpuLayouts(bench.service.parts)._observe(())
    assert view.vgpu_holders[record.spec.uuid][0] == f'vm "vm02" (attachment {done.id})'
    assert view.vgpu_releases[record.spec.uuid] == f"vgpumgr detach vm02 --attachment {done.id}"


def test_a_vgpu_is_no_vm() -> None:
    gpu = make_gpu()
    owners = [
        SliceOwner(gpu.uuid, 1, None, "vGPU NVIDIA A100-1-5C ef4a", "ef4a", is_vm=False),
        SliceOwner(gpu.uuid, 2, 0, "vm01", "a1"),
    ]
    assert [p.holder for p in list_owner_pins(owners)] == [
        "vGPU NVIDIA A100-1-5C ef4a",
        'vm "vm01"',
    ]


def test_a_vgpu_in_a_gpu_instance_is_named_with_its_vm() -> None:
    gpu = make_gpu(layout=[("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 2)])
    small, large = gpu.instances[0], gpu.instances[2]
    ours = VgpuType("35", "A100-2-20C", Framework.MDEV, gpu_instance_profile_id=large.profile_id)
    other = VgpuType("36", "A100-1-10C", Framework.MDEV, gpu_instance_profile_id=small.profile_id)
    parents = [PciAddress(7, 0, 0, number) for number in (1, 2)]
    host = VgpuHost(
        tuple(VgpuParent(str(p), Framework.MDEV, (), p, gpu.pci) for p in parents),
        (
            VgpuDevice(OURS, str(parents[0]), Framework.MDEV, ours.id, ours.name),
            VgpuDevice(THEIRS, str(parents[1]), Framework.MDEV, other.id, other.name),
        ),
        (VgpuBoard(str(gpu.pci), (ours, other), gpu.uuid),),
    )
    record = make_record(OURS, parents[0], "a1")
    attachment = AttachmentRecord(
        "a1", "vm01", "uuid", gpu.uuid, ours.name, 1, Backend.MDEV, 0.0, host_devices=()
    )
    owners = find_vgpu_owners([gpu], host, [record], [attachment], "test")
    found = [(owner.gpu_instance_id, owner.holder) for owner in owners]
    theirs = f"vGPU A100-1-10C {THEIRS}, which may be in it"
    assert found == [
        (large.id, f'vGPU A100-2-20C {OURS} of vm "vm01"'),
        (gpu.instances[0].id, theirs),
        (gpu.instances[1].id, theirs),
    ]
    assert all(pin.is_vgpu for pin in list_owner_pins(owners, free=["vm01"]))
