"""A guest in the lab host: a real libvirt domain of type kvm, whose devices come by real VFIO.

TCG emulates AMD's SVM with nested paging, so that the lab host's own KVM runs guests at the speed of the lab host. A
guest boots Debian's kernel with the initial file system of ``tests/guest/image``. Its shells are ports of the lab host
itself (``GUEST_PORTS``): QEMU in the lab host opens them as pipes, so that commands reach the guest from outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from tests.guest import image
from tests.guest.shell import GuestShell
from tests.lab.host import BOOT_S, GUEST_PORTS, LabHost
from tests.lab.kernels import RealKernel, put_back

MEMORY_MIB = 192
#: free root ports: each takes one device while the guest runs
PORTS = 5
#: early scans of the PCI bus cost seconds, as each access leaves the guest
KERNEL = "console=ttyS0 panic=-1 quiet cryptomgr.notests mitigations=off pci=noearly noxsave"

#: what guests see of the devices of the lab host
NIC_ID, VF_ID, MTTY_ID = "8086:10d3", "1b36:0010", "4348:3253"

_SHELL = """
    <channel type='pipe'>
      <source path='/dev/virtio-ports/lab.guest.{n}'/>
      <target type='virtio' name='test.shell.{n}'/>
    </channel>"""
_XML = """
<domain type='kvm'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>{cmdline}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='host-passthrough'/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <controller type='pci' index='0' model='pcie-root'/>{ports}
    <controller type='virtio-serial' index='0'>
      <address type='pci' domain='0' bus='0' slot='5' function='0'/>
    </controller>
    <memballoon model='none'/>
    <serial type='file'><source path='/run/{name}.console'/></serial>{shells}
  </devices>
</domain>
"""


class EarlyShell(GuestShell):
    """A port connected before the guest is there: QEMU's pipe ends for good where nobody listens."""

    def _wait_ready(self, timeout_s: float, look: Callable[[], None]) -> None:
        """Whoever starts the guest waits."""

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the guest serves the port; what an earlier guest said is forgotten."""
        self._until_mark(b"ready", timeout_s)


#: AppArmor's rules for libvirtd and for what makes those of VMs; libvirtd then confines every VM
_PROFILES = ("usr.sbin.libvirtd", "usr.lib.libvirt.virt-aa-helper")


def apparmor() -> Path:
    """Debian's package, unpacked."""
    return image.cache() / "apparmor"


def confine(host: LabHost) -> None:
    """libvirtd, as on a stock Debian; once for each boot of the lab host."""
    profiles = " ".join(f"/etc/apparmor.d/{name}" for name in _PROFILES)
    root = apparmor()
    # the kernel prints ten refusals in five seconds, and drops the others
    host.check(
        "echo 0 >/proc/sys/kernel/printk_ratelimit; "
        f"[ -e /run/confined ] || {{ cp -r {root}/etc/apparmor* /etc/ && cp -r {root}/usr/share/apparmor* /usr/share/ "
        f"&& cp {root}/sbin/apparmor_parser /sbin/ && apparmor_parser -r {profiles} "
        # the ports that are the VM's shells
        "&& echo '/dev/vport* rw,' > /etc/apparmor.d/local/abstractions/libvirt-qemu && touch /run/confined; }"
    )


def start_libvirtd(host: LabHost) -> None:
    """KVM and a libvirtd, if they do not run yet."""
    host.check("modprobe -a kvm-amd vfio-pci vfio_iommu_type1")
    if apparmor().is_dir():
        confine(host)
    host.check(
        "virsh -q uri >/dev/null 2>&1 || libvirtd -d -p /run/libvirtd.pid >>/run/libvirtd.log 2>&1"
    )
    host.wait_until("virsh -q uri")


def kill_libvirtd(host: LabHost, after: str = "true") -> None:
    """SIGKILL, as soon as a command of the lab host has ended; what it runs lives on."""
    host.check(f"{after}; kill -KILL $(</run/libvirtd.pid)")
    host.wait_until("! kill -0 $(</run/libvirtd.pid)")


def read_status(host: LabHost) -> dict[str, Any]:
    """``status``, once everything has answered it: it waits for nobody for long, on a slow machine too."""
    deadline = time.monotonic() + BOOT_S
    while (status := host.document("status"))["drift"] is None:
        assert time.monotonic() < deadline, status
        time.sleep(1)
    return dict(status)


def make_xml(name: str) -> str:
    """The domain without any device of the host."""
    port = "\n    <controller type='pci' model='pcie-root-port'/>"
    return _XML.format(
        name=name,
        uuid=uuid5(NAMESPACE_OID, name),
        memory=MEMORY_MIB,
        kernel=image.kernel(),
        initrd=image.build({}),
        cmdline=KERNEL,
        ports=port * PORTS,
        shells="".join(_SHELL.format(n=n) for n in range(GUEST_PORTS)),
    )


@dataclass(slots=True)
class NestedGuest:
    """A domain of the lab host; the only one at a time, as it has the ports."""

    host: LabHost
    name: str = "guest"
    shells: list[EarlyShell] = field(default_factory=list)

    def define(self) -> None:
        """Define it anew."""
        (self.host.out / f"{self.name}.xml").write_text(make_xml(self.name))
        self.host.check(f"virsh -q define /out/{self.name}.xml")

    def connect(self) -> None:
        """Listen on its ports, once for each boot of the lab host and before the guest starts."""
        self.hang_up()
        paths = [self.host.directory / f"guest.{n}" for n in range(GUEST_PORTS)]
        self.shells = [EarlyShell(path, BOOT_S) for path in paths]

    def start(self) -> None:
        """Start it and wait until its shells answer."""
        self.host.check(f"virsh -q start {self.name}")
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until its shells answer; a failure says what its kernel said."""
        try:
            for shell in self.shells:
                shell.wait_ready(BOOT_S)
        except (OSError, TimeoutError) as error:
            self.host.assert_alive(error)
            error.add_note(self.host.run(f"tail -n 30 /run/{self.name}.console").output)
            raise

    def destroy(self) -> None:
        """Pull its plug, if it runs."""
        self.host.run(f"virsh -q destroy {self.name}")

    def hang_up(self) -> None:
        """Leave its ports."""
        for shell in self.shells:
            shell.close()
        self.shells.clear()

    def check(self, command: str) -> str:
        """Run a command in the guest that must succeed; its output without the last newline."""
        try:
            return self.shells[0].check(command, BOOT_S).rstrip("\n")
        except (TimeoutError, OSError) as error:
            self.host.assert_alive(error)
            raise

    def list_pci(self) -> set[str]:
        """``vendor:device`` of what the guest's kernel sees on its PCI buses."""
        read = "for d in /sys/bus/pci/devices/*; do read v <$d/vendor; read i <$d/device; echo ${v#0x}:${i#0x}; done"
        return set(self.check(read).split())

    def wait_pci(self, identity: str, *, present: bool) -> None:
        """Wait until the guest's kernel has found a device, or lost it."""
        deadline = time.monotonic() + BOOT_S
        while (identity in self.list_pci()) is not present:
            assert time.monotonic() < deadline, f"{identity}: the guest has {self.list_pci()}"
            time.sleep(0.5)

    def dump(self, *options: str) -> str:
        """Its XML, live; with ``--inactive`` the stored one. libvirt leaves an empty element where metadata were."""
        xml = self.host.check(" ".join(["virsh -q dumpxml", *options, self.name]))
        return xml.replace("  <metadata/>\n", "")

    def plug_by_hand(self, address: str) -> None:
        """What an operator does without vgpumgr: ``virsh attach-device``, of a function that vfio-pci has."""
        domain, bus, rest = address.split(":")
        slot, function = rest.split(".")
        place = f"domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'"
        xml = (
            "<hostdev mode='subsystem' type='pci' managed='no'>"
            f"<source><address {place}/></source><rom bar='off'/></hostdev>"
        )
        (self.host.out / "device.xml").write_text(xml)
        self.host.check(f"virsh -q attach-device {self.name} /out/device.xml --live")


def clean_up(guest: NestedGuest, kernel: RealKernel) -> None:
    """After a test: the guest runs and has no device of the host, every function has its own driver."""
    host = guest.host
    if host.run(f"virsh -q domstate {guest.name}").output.split() != ["running"]:
        host.run(f"virsh -q resume {guest.name}")
    if "<hostdev" in guest.dump() + guest.dump("--inactive"):
        guest.destroy()
        host.vgpumgr("detach", guest.name, "--all", "--yes")
        guest.define()
        guest.start()
    host.check("rm -rf /var/lib/vgpumgr/* /run/vgpumgr")
    for uuid in kernel.list("/sys/bus/mdev/devices"):
        kernel.write(f"/sys/bus/mdev/devices/{uuid}/remove", 1)
    put_back(kernel)


@contextmanager
def nested_guest(host: LabHost) -> Iterator[NestedGuest]:
    """A guest that runs until the context ends."""
    start_libvirtd(host)
    guest = NestedGuest(host)
    try:
        guest.connect()
        guest.define()
        guest.start()
        yield guest
    finally:
        if not host.died:
            guest.destroy()
            host.run(f"virsh -q undefine {guest.name}")
        guest.hang_up()
