"""The life of VMs as a genuine libvirtd tells it: what the daemon hears, follows, starts and frees.

QEMUs are genuine (TCG, in their firmware); GPUs and channels are in memory.
"""

from __future__ import annotations

import os
import signal
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.guest.libvirtd import PrivateLibvirtd, private_libvirtd
from tests.support.boards import make_gpu
from tests.support.fake_channels import FakeChannels
from tests.support.fake_nvml import FakeNvml
from tests.support.watched import Watched, watched
from vgpumgr.app.context import Parts
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.domain.libvirt import LibvirtHypervisor
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.process import find_qemu
from vgpumgr.model.choices import Transport
from vgpumgr.model.request import AttachRequest
from vgpumgr.server.reconciler import Sources
from vgpumgr.server.settings import ReconcileSettings, ReleaseSettings, RepairSettings, Settings
from vgpumgr.state.store import Store

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a private libvirtd needs root"),
    pytest.mark.xdist_group("libvirtd"),
]
NO_TIMER = ReconcileSettings(interval_s=0)
#: nothing happens by time alone, and what waits does not wait long
SETTINGS = Settings(reconcile=NO_TIMER, release=ReleaseSettings(delay_s=0.2))


@pytest.fixture(scope="module")
def libvirtd() -> Iterator[PrivateLibvirtd]:
    with private_libvirtd() as daemon:
        yield daemon


class Host:
    """A machine with one GPU, and VMs that get a slice over virtio-serial."""

    def __init__(self, libvirtd: PrivateLibvirtd, directory: Path) -> None:
        self.libvirtd = libvirtd
        self.directory = directory
        self.nvml = FakeNvml([make_gpu(layout=None)])
        self.channels = FakeChannels(directory, serve=True)
        self.store = Store(directory / "state.sqlite")
        self.parts = Parts(
            nvml=self.nvml,
            read_inventory=self.nvml.read_inventory,
            hypervisor=LibvirtHypervisor(libvirtd.uri),
            channels=self.channels,
            store=self.store,
            clock=SystemClock(),
            state_dir=directory / "state",
            run_dir=directory / "run",
            boot_id="test",
            is_privileged=True,
        )

    def define(self, name: str, devices: str = "") -> str:
        """A VM; returns its UUID."""
        path = self.directory / f"{name}.xml"
        path.write_text(
            f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>"
            "<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>"
            "<devices><controller type='usb' model='none'/><memballoon model='none'/>"
            f"<controller type='virtio-serial' index='0'/>{devices}</devices></domain>"
        )
        self.libvirtd.virsh("define", str(path))
        return self.libvirtd.virsh("domuuid", name).stdout.strip()

    def attach(self, name: str, *, config: bool = False) -> str:
        """Gives it a slice; returns the attachment's id."""
        request = AttachRequest(
            name, "1g.10gb", transport=Transport.SERIAL, hello_timeout_s=0, config=config
        )
        done = AttachmentService(self.parts).attach(request)
        assert done.attachment is not None
        return done.attachment.id

    @property
    def instances(self) -> int:
        (gpu,) = self.nvml.gpus.values()
        return len(gpu.instances)

    @contextmanager
    def watched(self, settings: Settings = SETTINGS) -> Iterator[Watched]:
        with watched(self.parts, settings, Sources(self.libvirtd.uri)) as seen:
            seen.wait(lambda: any(e["type"] == "libvirt" for e in seen.events), "connected")
            seen.wait_looked()
            yield seen

    def check_released(self, seen: Watched) -> None:
        seen.wait(lambda: not self.store.list_attachments(), "released")
        assert self.instances == 0
        assert self.channels.running == {}


@pytest.fixture
def host(libvirtd: PrivateLibvirtd) -> Iterator[Host]:
    directory = Path(tempfile.mkdtemp(dir=libvirtd.scratch))
    host = Host(libvirtd, directory)
    try:
        yield host
    finally:
        host.parts.hypervisor.close()  # type: ignore[attr-defined]
        for name in libvirtd.virsh("list", "--name").stdout.split():
            libvirtd.virsh("destroy", name)
        for name in libvirtd.virsh("list", "--all", "--name").stdout.split():
            libvirtd.virsh("undefine", "--snapshots-metadata", name)


def test_what_an_undefined_vm_had_is_freed(host: Host) -> None:
    host.define("vm01")
    with host.watched() as seen:
        id_ = host.attach("vm01")
        host.libvirtd.virsh("undefine", "vm01")
        host.check_released(seen)
        seen.wait(lambda: seen.actions(), "told")
        assert seen.actions() == ["vm01: freed 1g.10gb: the VM is no longer defined"]
        told = [e for e in seen.events if e["type"] == "vm" and e["change"] == "undefined"]
        assert [(e["vm"], e["attachments"]) for e in told] == [("vm01", [id_])]
        assert '"event": "reconcile"' in seen.audit.read_text()


def test_a_vm_that_is_defined_again_at_once_keeps_it(host: Host) -> None:
    uuid = host.define("vm01")
    settings = Settings(reconcile=NO_TIMER, release=ReleaseSettings(delay_s=3600))
    with host.watched(settings) as seen:
        id_ = host.attach("vm01")
        definition = host.directory / "again.xml"
        definition.write_text(host.libvirtd.virsh("dumpxml", "vm01").stdout)
        host.libvirtd.virsh("undefine", "vm01")
        seen.wait(lambda: "undefined" in seen.changes("vm01"), "undefined")
        seen.wait_looked()
        host.libvirtd.virsh("define", str(definition))
        seen.wait_looked()
        assert [r.id for r in host.store.list_attachments()] == [id_]
        assert seen.reconciler._lifecycle.read_next_s() is None
        assert host.store.list_attachments()[0].vm_uuid == uuid


def test_a_stopped_vm_keeps_it_and_a_started_one_finds_its_keeper(host: Host) -> None:
    host.define("vm01")
    with host.watched() as seen:
        id_ = host.attach("vm01")
        host.libvirtd.virsh("start", "vm01")
        host.libvirtd.virsh("destroy", "vm01")
        seen.wait(lambda: seen.changes("vm01")[-2:] == ["started", "stopped"], "stopped")
        seen.wait_looked()
        assert host.instances == 1
        host.channels.running.clear()
        host.libvirtd.virsh("start", "vm01")
        seen.wait(lambda: id_ in host.channels.running, "its keeper is started")
        seen.wait(lambda: seen.actions(), "told")
        assert seen.actions() == ["vm01: started its keeper again"]


def test_a_stopped_vm_loses_it_where_policy_says_so(host: Host) -> None:
    host.define("vm01")
    settings = Settings(reconcile=NO_TIMER, release=ReleaseSettings(stopped=True))
    with host.watched(settings) as seen:
        host.attach("vm01")
        seen.wait_looked()
        assert host.instances == 1, "it has not run yet"
        host.libvirtd.virsh("start", "vm01")
        seen.wait_looked()
        host.libvirtd.virsh("destroy", "vm01")
        host.check_released(seen)
        assert "ua-vgpumgr" not in host.libvirtd.virsh("dumpxml", "vm01").stdout
        host.attach("vm01")
        seen.wait_looked()
        assert host.instances == 1, "what it gets after it was stopped is for its next start"


def test_a_renamed_vm_is_followed(host: Host) -> None:
    host.define("vm01")
    with host.watched() as seen:
        id_ = host.attach("vm01")
        host.libvirtd.virsh("domrename", "vm01", "web")
        seen.wait(lambda: host.store.list_attachments()[0].vm_name == "web", "followed")
        assert host.store.list_attachments()[0].id == id_
        seen.wait(lambda: "renamed" in seen.changes("web"), "told")
        assert host.instances == 1


def test_what_a_vm_had_that_migrated_away_is_freed(host: Host) -> None:
    """Between two genuine libvirtds; the VM stays defined here, shut off."""
    host.define("vm01")
    with host.watched() as seen, private_libvirtd() as elsewhere:
        host.attach("vm01")
        host.libvirtd.virsh("start", "vm01")
        seen.wait_looked()
        assert host.instances == 1
        way = f"unix://{host.directory}/migration.sock"
        host.libvirtd.virsh("migrate", "--live", "vm01", elsewhere.uri, "--migrateuri", way)
        host.check_released(seen)
        seen.wait(lambda: "migrated" in seen.changes("vm01"), "told")
        seen.wait(lambda: seen.actions(), "told")
        assert seen.actions() == ["vm01: freed 1g.10gb: the VM runs on another host now"]
        assert "ua-vgpumgr" not in host.libvirtd.virsh("dumpxml", "vm01").stdout
        assert elsewhere.virsh("list", "--name").stdout.split() == ["vm01"]


def test_a_crash_of_its_qemu_frees_nothing(host: Host) -> None:
    uuid = host.define("vm01")
    with host.watched() as seen:
        host.attach("vm01")
        host.libvirtd.virsh("start", "vm01")
        pid = find_qemu(uuid)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        seen.wait(lambda: "crashed" in seen.changes("vm01"), "crashed")
        seen.wait_looked()
        assert host.instances == 1
        assert seen.actions() == []


@pytest.mark.parametrize("repair", [False, True])
def test_a_snapshot_from_before_the_attach(host: Host, repair: bool) -> None:
    """Its definition has no device of ours: told, or given again where the settings say so."""
    disk = host.directory / "disk.qcow2"
    disk.write_bytes(make_qcow2())
    host.define(
        "vm01",
        f"<disk type='file'><driver name='qemu' type='qcow2'/><source file='{disk}'/>"
        "<target dev='hda' bus='ide'/></disk>",
    )
    host.libvirtd.virsh("start", "vm01")
    host.libvirtd.virsh("snapshot-create-as", "vm01", "before")
    settings = SETTINGS.model_copy(update={"repair": RepairSettings(devices=repair)})
    with host.watched(settings) as seen:
        host.attach("vm01", config=True)
        host.libvirtd.virsh("snapshot-revert", "vm01", "before")
        seen.wait(lambda: "reverted" in seen.changes("vm01"), "told")
        seen.wait_looked()
        drift = [e["drift"] for e in seen.events if e["type"] == "reconcile"][-1]
        assert [d["kind"] for d in drift] == ([] if repair else ["device-gone"])
        has = "ua-vgpumgr" in host.libvirtd.virsh("dumpxml", "vm01", "--inactive").stdout
        assert has is repair
        assert host.instances == 1


def make_qcow2() -> bytes:
    """An empty disk of 1 MiB as docs/interop/qcow2.txt of QEMU describes it: header, refcount table, refcount block,
    L1 table, a cluster of 64 KiB each.
    """
    cluster = 1 << 16
    head = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 0, 0, 16, 1 << 20, 0, 1, 3 * cluster, cluster, 1, 0, 0
    )
    table, counts = struct.pack(">Q", 2 * cluster), struct.pack(">4H", 1, 1, 1, 1)
    return b"".join(part.ljust(cluster, b"\0") for part in (head, table, counts, b""))


def test_a_definition_without_our_device_is_told(host: Host) -> None:
    host.define("vm01")
    before = host.directory / "before.xml"
    before.write_text(host.libvirtd.virsh("dumpxml", "vm01").stdout)
    with host.watched() as seen:
        host.attach("vm01")
        seen.wait_looked()
        host.libvirtd.virsh("define", str(before))
        seen.wait(lambda: ["device-gone"] in seen.drifts(), "told")
        assert seen.actions() == ["vm01: wrote its domain metadata again"]
        assert seen.changes("vm01")[-1] == "defined"


def test_what_happened_while_libvirt_was_away_is_found(host: Host) -> None:
    """Events are lost with the libvirtd that did not live to send them."""
    host.define("vm01")
    host.define("vm02")
    with host.watched() as seen:
        host.attach("vm01")
        id_ = host.attach("vm02")
        host.libvirtd.go_down()
        seen.wait(lambda: seen.reconciler.libvirt_problem is not None, "noticed")
        (host.libvirtd.scratch / "etc/libvirt/qemu/vm01.xml").unlink()
        host.channels.running.pop(id_)
        host.libvirtd.come_up()
        seen.wait(lambda: [r.id for r in host.store.list_attachments()] == [id_], "freed")
        seen.wait(lambda: id_ in host.channels.running, "repaired")
        states = [e["state"] for e in seen.events if e["type"] == "libvirt"]
        assert states == ["connected", "lost", "connected"]


def test_a_qemu_that_libvirt_has_lost_keeps_its_slice(host: Host) -> None:
    uuid = host.define("vm01")
    with host.watched() as seen:
        host.attach("vm01")
        host.libvirtd.virsh("start", "vm01")
        host.libvirtd.go_down()
        (host.libvirtd.scratch / "etc/libvirt/qemu/vm01.xml").unlink()
        (host.libvirtd.scratch / "run/libvirt/qemu/vm01.xml").unlink()
        host.libvirtd.come_up()
        seen.wait(lambda: seen.reconciler.libvirt_problem is None, "connected")
        seen.wait_looked()
        seen.wait_looked()
        assert host.libvirtd.virsh("list", "--all", "--name").stdout.split() == []
        assert host.instances == 1
        pid = find_qemu(uuid)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        host.check_released(seen)
