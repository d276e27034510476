"""Domain definitions as people have them."""

from __future__ import annotations

UUID_PC = "11111111-1111-4111-8111-111111111111"
UUID_Q35 = "22222222-2222-4222-8222-222222222222"

PC = f"""<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>vm01</name>
  <uuid>{UUID_PC}</uuid>
  <title>A web server</title>
  <metadata>
    <site:rack xmlns:site="https://site.example/1">B7</site:rack>
  </metadata>
  <memory unit='KiB'>1048576</memory>
  <vcpu placement='static'>2</vcpu>
  <os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type><boot dev='hd'/></os>
  <!-- the operator's remark -->
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' discard='unmap'/>
      <source file='/var/lib/libvirt/images/vm01.qcow2'/>
      <target dev='vda' bus='virtio'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x04' function='0x0'/>
    </disk>
    <controller type='pci' index='0' model='pci-root'/>
    <controller type='virtio-serial' index='0' ports='16'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/>
    </controller>
    <channel type='unix'>
      <source mode='bind'/>
      <target type='virtio' name='org.qemu.guest_agent.0'/>
      <address type='virtio-serial' controller='0' bus='0' port='1'/>
    </channel>
    <channel type='spicevmc'>
      <target type='virtio' name='com.redhat.spice.0'/>
    </channel>
  </devices>
  <qemu:commandline><qemu:arg value='-no-hpet'/></qemu:commandline>
</domain>"""

Q35 = f"""<domain type='kvm'>
  <name>vm02</name>
  <uuid>{UUID_Q35}</uuid>
  <memory unit='GiB'>4</memory>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
  <devices>
    <controller type='pci' index='0' model='pcie-root'/>
    <controller type='pci' index='1' model='pcie-root-port'>
      <model name='pcie-root-port'/>
      <target chassis='1' port='0x8' hotplug='off'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x0'/>
    </controller>
    <controller type='pci' index='2' model='pcie-to-pci-bridge'>
      <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>
    </controller>
    <controller type='virtio-serial' index='0'>
      <alias name='virtio-serial0'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x0'/>
    </controller>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <driver name='vfio'/>
      <source><address domain='0x0000' bus='0x3b' slot='0x00' function='0x4'/></source>
      <rom bar='off'/>
      <alias name='ua-other'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x03' function='0x0'/>
    </hostdev>
    <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci' display='off'>
      <source><address uuid='6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11'/></source>
      <alias name='ua-vgpumgr-web1'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x04' function='0x0'/>
    </hostdev>
    <shmem name='other'>
      <model type='ivshmem-plain'/>
      <size unit='M'>4</size>
      <address type='pci' domain='0x0000' bus='0x02' slot='0x01' function='0x0'/>
    </shmem>
    <shmem name='bell' role='peer'>
      <model type='ivshmem-doorbell'/>
      <server path='/run/bell.sock'/>
      <msi vectors='4' ioeventfd='on'/>
      <alias name='ua-bell'/>
      <address type='pci' domain='0x0000' bus='0x02' slot='0x02' function='0x0'/>
    </shmem>
  </devices>
</domain>"""

#: every slot of the only bus has something in it
FULL = PC.replace(
    "  </devices>",
    "".join(
        f"<shmem name='f{slot}'><model type='ivshmem-plain'/><size unit='M'>1</size>"
        f"<address type='pci' domain='0x0000' bus='0x00' slot='{slot:#04x}' function='0x0'/></shmem>"
        for slot in (1, 2, 3, *range(6, 32))
    )
    + "</devices>",
)
