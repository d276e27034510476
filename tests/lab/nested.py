"""Guests of the lab host's own libvirtd, with a shell that answers here.

A guest's shell port is one of the lab host's virtio-serial ports, which is a socket on this machine: nothing in between
has to run. The guest boots Debian's kernel with busybox, under TCG in TCG.
"""

from __future__ import annotations

import shlex

from tests.guest import image
from tests.guest.shell import GuestShell
from tests.lab.host import LabHost, LabHostDiedError

#: the first answer of a guest in the lab host, on a loaded machine
GUEST_S = 480
XML = """
<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
  <memory unit='MiB'>192</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>console=ttyS0 panic=-1 cryptomgr.notests mitigations=off nokaslr audit=0</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='custom' match='exact' check='none'><model>qemu64</model></cpu>
  <on_reboot>destroy</on_reboot>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='pci' model='pcie-root'/>
    {ports}
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <serial type='file'><source path='/out/{name}.log'/></serial>
    <channel type='pipe'>
      <source path='/dev/virtio-ports/lab.guest.{port}'/>
      <target type='virtio' name='test.shell.0'/>
    </channel>
    <channel type='null'><target type='virtio' name='test.shell.1'/></channel>
  </devices>
  <!-- time goes by instructions: on a loaded machine the guest's timer would leave no time for anything else -->
  <qemu:commandline>
    <qemu:arg value='-icount'/><qemu:arg value='shift=3,sleep=off'/>
  </qemu:commandline>
</domain>
"""


class NestedGuest:
    """A domain of the lab host; ``start`` before use."""

    def __init__(self, host: LabHost, name: str, port: int = 0) -> None:
        self.host = host
        self.name = name
        self.port = port
        self._shell: GuestShell | None = None

    def define(self) -> None:
        """Tell libvirt of it."""
        start_libvirtd(self.host)
        ports = "<controller type='pci' model='pcie-root-port'/>" * 6
        text = XML.format(
            name=self.name, port=self.port, ports=ports, kernel=image.kernel(), initrd=image.build({})
        )  # fmt: skip
        path = self.host.out / f"{self.name}.xml"
        path.write_text(text)
        self.host.check(f"virsh -q define /out/{path.name}")

    def start(self) -> None:
        """Start it; it boots on its own, see ``shell``."""
        # somebody has to listen on the port before the guest's QEMU opens it
        self._shell = _Port(self.host.directory / f"guest.{self.port}", GUEST_S)
        self.host.check(f"virsh -q start {self.name}")

    @property
    def shell(self) -> GuestShell:
        """Its shell, once it answers."""
        assert self._shell is not None, "not started"
        if isinstance(self._shell, _Port):
            try:
                self._shell.wait(GUEST_S)
            except (TimeoutError, OSError) as error:
                raise LabHostDiedError(f"{error}\n{self.console()}") from error
        return self._shell

    def list_pci(self) -> set[str]:
        """Vendor and device of the PCI functions that it sees."""
        text = self.shell.check("cat /sys/bus/pci/devices/*/vendor /sys/bus/pci/devices/*/device")
        numbers = [line.removeprefix("0x") for line in text.split()]
        half = len(numbers) // 2
        return {f"{v}:{d}" for v, d in zip(numbers[:half], numbers[half:], strict=True)}

    def console(self) -> str:
        """What its kernel said last."""
        path = self.host.out / f"{self.name}.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else "no console"

    def remove(self) -> None:
        """Pull its plug and forget it."""
        name = shlex.quote(self.name)
        self.host.run(f"virsh -q destroy {name}; virsh -q undefine {name}")
        if self._shell is not None:
            self._shell.close()
            self._shell = None


class _Port(GuestShell):
    """A port whose other side is not there yet."""

    _ready = False

    def _wait_ready(self, timeout_s: float) -> None:
        """Not yet; see ``wait``."""

    def wait(self, timeout_s: float) -> None:
        """Until the other side has said that it is ready."""
        if not self._ready:
            self._until_mark(b"ready", timeout_s)
            self._ready = True


def start_libvirtd(host: LabHost) -> None:
    """The lab host's libvirtd, and udev's, which it asks for devices; nothing if they run."""
    if host.run("[ -S /run/libvirt/libvirt-sock ]").status == 0:
        return
    host.check("pgrep -x systemd-udevd || /lib/systemd/systemd-udevd --daemon")
    host.check("virtlogd -d; libvirtd -d")
    host.wait_until("virsh -q uri")
