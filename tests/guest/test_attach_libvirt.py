"""Attach and detach on a genuine libvirtd with genuine QEMUs (TCG, in their firmware): what libvirt does, not what we
think it does. GPUs and channels are in memory; the ring's server is a real one, because QEMU connects to it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.guest.libvirtd import PrivateLibvirtd, private_libvirtd
from tests.support.boards import make_gpu
from tests.support.fake_channels import FakeChannels
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.context import Parts
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.app.operations.recovery import Recovery
from vgpumgr.domain.declare import document_digest
from vgpumgr.domain.devices import control_alias, ring_alias
from vgpumgr.domain.libvirt import LibvirtHypervisor
from vgpumgr.errors import (
    AlreadyAttachedError,
    LibvirtDownError,
    LibvirtError,
    LiveUnsupportedError,
    NoFreeSlotError,
    RolledBackError,
    VmNotFoundError,
)
from vgpumgr.host.clock import SystemClock
from vgpumgr.model.choices import Transport
from vgpumgr.model.request import AttachRequest
from vgpumgr.state.domain_metadata import rebuild_records
from vgpumgr.state.store import Store

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a private libvirtd needs root"),
    pytest.mark.xdist_group("libvirtd"),
]

PC = "<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>"
Q35 = PC.replace("machine='pc'", "machine='q35'")
SERIAL = "<controller type='virtio-serial' index='0'/>"
BRIDGE = (
    "<controller type='pci' index='0' model='pcie-root'/>"
    "<controller type='pci' index='1' model='pcie-root-port'/>"
    "<controller type='pci' index='2' model='pcie-to-pci-bridge'/>"
)
PROFILE = "1g.10gb"


@pytest.fixture(scope="module")
def libvirtd() -> Iterator[PrivateLibvirtd]:
    with private_libvirtd() as daemon:
        yield daemon


@dataclass
class Scene:
    """One machine with its parts."""

    libvirtd: PrivateLibvirtd
    directory: Path
    nvml: FakeNvml
    channels: FakeChannels
    hypervisor: LibvirtHypervisor
    store: Store
    service: AttachmentService

    def define(self, name: str, os_part: str, devices: str = "", *, start: bool = False) -> str:
        """A small domain; returns its UUID."""
        path = self.directory / f"{name}.xml"
        path.write_text(
            f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>{os_part}"
            "<devices><controller type='usb' model='none'/><memballoon model='none'/>"
            f"{devices}</devices></domain>"
        )
        self.libvirtd.virsh("define", str(path))
        if start:
            self.libvirtd.virsh("start", name)
        return self.libvirtd.virsh("domuuid", name).stdout.strip()

    def xml(self, name: str, *options: str) -> str:
        return self.libvirtd.virsh("dumpxml", name, *options).stdout


@pytest.fixture
def scene(libvirtd: PrivateLibvirtd) -> Iterator[Scene]:
    directory = Path(tempfile.mkdtemp(dir=libvirtd.scratch))
    nvml = FakeNvml([make_gpu(layout=None)])
    channels = FakeChannels(directory, serve=True)
    store = Store(directory / "state.sqlite")
    with LibvirtHypervisor(libvirtd.uri) as hypervisor:
        parts = Parts(
            nvml=nvml,
            read_inventory=nvml.read_inventory,
            hypervisor=hypervisor,
            channels=channels,
            store=store,
            clock=SystemClock(),
            state_dir=directory / "state",
            run_dir=directory / "run",
            boot_id="test",
            is_privileged=True,
        )
        yield Scene(
            libvirtd, directory, nvml, channels, hypervisor, store, AttachmentService(parts)
        )
    for name in libvirtd.virsh("list", "--name").stdout.split():
        libvirtd.virsh("destroy", name)
    for name in libvirtd.virsh("list", "--all", "--name").stdout.split():
        libvirtd.virsh("undefine", name)


def ask(vm: str, **more: object) -> AttachRequest:
    return replace(AttachRequest(vm, PROFILE, hello_timeout_s=0.3), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", [PC, Q35])
def test_shut_off_vm_gets_devices_and_gives_all_of_it_back(scene: Scene, machine: str) -> None:
    scene.define("vm01", machine)
    before = scene.xml("vm01", "--inactive")
    done = scene.service.attach(ask("vm01"))
    assert done.attachment is not None
    assert done.usable == "next-start"
    id_ = done.attachment.id
    vm = scene.hypervisor.read_vm("vm01")
    assert vm.config is not None
    assert set(vm.config.own_aliases()) == {ring_alias(id_), control_alias(id_)}
    assert [(note.id, note.profile) for note in vm.notes] == [(id_, PROFILE)]
    assert rebuild_records(vm) == scene.store.list_attachments(), "libvirt alone knows all of it"
    assert Recovery(scene.service.parts).diff().drift == []
    assert scene.channels.specs[id_].memory_bytes == 64 << 20
    kinds = [step.kind for step in done.plan.steps]
    assert kinds[1:4] == ["mig.mode.enable", "mig.gi.create", "mig.ci.create"]
    # it starts with them: QEMU connects to the ring's server
    scene.libvirtd.virsh("start", "vm01")
    assert len(scene.hypervisor.read_vm("vm01").live.own_aliases()) == 2  # type: ignore[union-attr]
    scene.libvirtd.virsh("destroy", "vm01")
    scene.service.detach("vm01")
    # libvirt itself keeps an empty element after our note is gone
    assert scene.xml("vm01", "--inactive").replace("  <metadata/>\n", "") == before
    gpu = next(iter(scene.nvml.gpus.values()))
    assert gpu.instances == ()
    assert not gpu.mig.current, "attach had turned MIG mode on"
    assert scene.channels.running == {}
    assert scene.store.list_attachments() == ()


@pytest.mark.parametrize("machine", [PC, Q35])
def test_several_in_one_vm(scene: Scene, machine: str) -> None:
    """libvirt keeps all their notes, QEMU starts with all their ports, and each goes by itself."""
    scene.define("vm01", machine)
    before = scene.xml("vm01", "--inactive")
    first, second = scene.service.attach(ask("vm01", count=2)).attachments
    third = scene.service.attach(ask("vm01", add=True)).attachment
    assert third is not None
    vm = scene.hypervisor.read_vm("vm01")
    assert [note.id for note in vm.notes] == [first.id, second.id, third.id]
    assert rebuild_records(vm) == scene.store.list_attachments()
    assert Recovery(scene.service.parts).diff().drift == []
    scene.libvirtd.virsh("start", "vm01")
    assert len(scene.hypervisor.read_vm("vm01").live.own_aliases()) == 6  # type: ignore[union-attr]
    scene.libvirtd.virsh("destroy", "vm01")
    scene.service.detach("vm01", attachment=second.id)
    assert [n.id for n in scene.hypervisor.read_vm("vm01").notes] == [first.id, third.id]
    scene.service.detach("vm01", every=True)
    assert scene.xml("vm01", "--inactive").replace("  <metadata/>\n", "") == before
    assert next(iter(scene.nvml.gpus.values())).instances == ()


def test_running_pc_gets_both_devices_live_and_in_its_definition(scene: Scene) -> None:
    scene.define("vm01", PC, SERIAL, start=True)
    scene.channels.hello = True
    done = scene.service.attach(ask("vm01"))
    assert done.usable == "now"
    assert done.attachment is not None
    shown = scene.service.show_vm("vm01").vm
    assert len(shown.devices_live) == len(shown.devices_config) == 2
    assert scene.channels.specs[done.attachment.id].memory_bytes == 64 << 20
    assert shown.channel is not None
    assert shown.channel.transport == "ring"


def test_running_q35_gets_a_small_ring_now_and_the_full_one_at_its_next_start(scene: Scene) -> None:
    scene.define("vm01", Q35, BRIDGE + SERIAL, start=True)
    scene.channels.hello = True
    done = scene.service.attach(ask("vm01"))
    assert done.usable == "now"
    assert done.attachment is not None
    assert scene.channels.specs[done.attachment.id].memory_bytes == 1 << 20
    assert scene.channels.next_memory[done.attachment.id] == 64 << 20


def test_without_a_hello_it_counts_from_the_next_start_and_says_why(scene: Scene) -> None:
    scene.define("vm01", PC, SERIAL, start=True)
    done = scene.service.attach(ask("vm01"))
    assert done.usable == "next-start"
    assert "no hello from the guest" in done.notes[0]


def test_live_only_without_a_hello_is_rolled_back(scene: Scene) -> None:
    # a machine whose firmware never answers: the ring cannot be unplugged, serial can
    scene.define("vm01", PC, SERIAL, start=True)
    before = scene.xml("vm01"), scene.xml("vm01", "--inactive")
    with pytest.raises(RolledBackError) as caught:
        scene.service.attach(ask("vm01", live=True, transport=Transport.SERIAL))
    assert "does not use its new devices" in caught.value.error
    after = scene.xml("vm01"), scene.xml("vm01", "--inactive")
    assert list(map(document_digest, after)) == list(map(document_digest, before))
    gpu = next(iter(scene.nvml.gpus.values()))
    assert (gpu.instances, gpu.mig.current) == ((), False)
    assert scene.channels.running == {}
    assert scene.store.list_attachments() == ()


def test_running_q35_without_bridge_and_controller_waits_for_its_next_start(scene: Scene) -> None:
    scene.define("vm01", Q35, start=True)
    done = scene.service.attach(ask("vm01"))
    assert done.usable == "next-start"
    reasons = done.plan.result["not_live_because"]
    assert "no PCIe-to-PCI bridge" in reasons[0]
    assert "no virtio-serial controller" in reasons[1]
    assert scene.service.show_vm("vm01").vm.devices_live == []


def test_live_where_it_cannot_be_is_refused_before_anything(scene: Scene) -> None:
    scene.define("vm01", Q35, start=True)
    with pytest.raises(LiveUnsupportedError) as caught:
        scene.service.attach(ask("vm01", live=True))
    assert "no PCIe-to-PCI bridge" in str(caught.value.why)
    assert {call for call in scene.nvml.calls if "list" not in call} <= {"read_inventory"}


def test_a_guest_that_releases_nothing_cannot_keep_the_slice(scene: Scene) -> None:
    scene.define("vm01", PC, SERIAL, start=True)
    scene.service.attach(ask("vm01", transport=Transport.RING))
    service = scene.service
    done = service.detach("vm01")
    assert "has not released" in done.notes[0]
    assert next(iter(scene.nvml.gpus.values())).instances == ()
    assert scene.store.list_attachments() == ()
    vm = scene.hypervisor.read_vm("vm01")
    assert vm.config is not None
    assert vm.config.own_aliases() == ()


def test_serial_alone(scene: Scene) -> None:
    scene.define("vm01", Q35, SERIAL, start=True)
    done = scene.service.attach(ask("vm01", transport=Transport.SERIAL))
    assert done.attachment is not None
    shown = scene.service.show_vm("vm01").vm
    assert shown.devices_live == shown.devices_config == [control_alias(done.attachment.id)]
    scene.service.detach("vm01")
    assert scene.service.show_vm("vm01").vm.devices_live == []


def test_domain_that_is_gone_can_be_detached(scene: Scene) -> None:
    scene.define("vm01", PC)
    scene.service.attach(ask("vm01"))
    scene.libvirtd.virsh("undefine", "vm01")
    assert scene.service.list_vms().vms[0].state == "undefined"
    scene.service.detach("vm01")
    assert next(iter(scene.nvml.gpus.values())).instances == ()


def test_lost_state_file(scene: Scene) -> None:
    """Devices that nobody remembers: attach refuses, detach removes them."""
    scene.define("vm01", PC)
    done = scene.service.attach(ask("vm01"))
    assert done.attachment is not None
    scene.store.delete_attachment(done.attachment.id)
    with pytest.raises(AlreadyAttachedError):
        scene.service.attach(ask("vm01"))
    scene.service.detach("vm01")
    assert scene.service.show_vm("vm01").vm.devices_config == []


def test_full_bus_is_refused_and_nothing_changes(scene: Scene) -> None:
    devices = "".join(
        f"<shmem name='f{slot}'><model type='ivshmem-plain'/><size unit='M'>1</size>"
        f"<address type='pci' domain='0' bus='0' slot='{slot}' function='0'/></shmem>"
        for slot in range(2, 32)
    )
    scene.define("vm01", PC, "<controller type='ide' index='0'/>" + devices)
    before = scene.xml("vm01", "--inactive")
    with pytest.raises(NoFreeSlotError) as caught:
        scene.service.attach(ask("vm01"))
    assert caught.value.id == "VG207"
    assert "i440fx" in str(caught.value.why)
    assert scene.xml("vm01", "--inactive") == before
    assert scene.store.list_attachments() == ()


def test_unknown_vm_offers_near_names(scene: Scene) -> None:
    scene.define("vm01", PC)
    with pytest.raises(VmNotFoundError) as caught:
        scene.service.attach(ask("wm01"))
    assert "near names: vm01" in str(caught.value.why)
    with pytest.raises(VmNotFoundError):
        scene.hypervisor.read_vm("00000000-0000-4000-8000-000000000000")
    with pytest.raises(VmNotFoundError):
        scene.hypervisor.read_vm("x" * 36)


def test_edited_meanwhile_is_planned_anew(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody edits the domain after the plan: the first try is undone, the second is on the new definition."""
    uuid = scene.define("vm01", PC)
    started: list[str] = []
    start = scene.channels.start

    def edit_first(spec: object) -> None:
        if not started:
            scene.libvirtd.virsh("desc", "vm01", "--config", "edited by another")
        started.append("start")
        start(spec)  # type: ignore[arg-type]

    monkeypatch.setattr(scene.channels, "start", edit_first)
    scene.service.attach(ask("vm01"))
    assert len(started) == 2
    assert "edited by another" in scene.xml("vm01", "--inactive")
    assert len(scene.store.list_attachments()) == 1
    assert len(next(iter(scene.nvml.gpus.values())).instances) == 1
    assert scene.hypervisor.read_vm(uuid).notes


def test_libvirt_down(scene: Scene) -> None:
    scene.define("vm01", PC)
    scene.libvirtd.go_down()
    try:
        with pytest.raises((LibvirtDownError, LibvirtError)):
            scene.service.attach(ask("vm01"))
        with pytest.raises(LibvirtDownError) as caught:
            LibvirtHypervisor(scene.libvirtd.uri).list_vms()
        assert "libvirt-sock" in str(caught.value.cause)
        assert caught.value.hint == "systemctl start libvirtd"
        assert "set_mig_mode" not in scene.nvml.calls
    finally:
        scene.libvirtd.come_up()
    # the same object connects again
    assert scene.hypervisor.read_vm("vm01").name == "vm01"


def test_nothing_of_libvirt_on_standard_error(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(VmNotFoundError):
        scene.hypervisor.read_vm("nobody")
    assert capfd.readouterr() == ("", "")
