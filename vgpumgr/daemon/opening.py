"""The parts that the operations on a real or simulated machine work with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from vgpumgr.daemon.parts import Parts
from vgpumgr.domain.libvirt import LibvirtHypervisor
from vgpumgr.host.boot import read_boot_id
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.host.numa import read_cpu_nodes
from vgpumgr.host.pci_tree import has_iommufd
from vgpumgr.mdev.control import HostVgpus
from vgpumgr.nvml.inventory import read_machine_inventory
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.passthrough.control import HostPci
from vgpumgr.store.attachments import SqliteAttachments
from vgpumgr.store.names import STATE_FILE, VGPUS_FILE
from vgpumgr.store.pci import PciFile
from vgpumgr.store.vgpus import VgpuFile
from vgpumgr.virtio.keeper_channels import KeeperChannels


def list_late_processes(machine: Machine) -> list[str]:
    """Helper processes that may still change the machine, as people read them."""
    records = LateRecords(machine.run_dir)
    late = (*records.list_late(), *records.list_orphans())
    return sorted({f"process {helper.process.pid} ({helper.what})" for helper in late})


def list_late_gpus(machine: Machine) -> dict[str, str]:
    """GPUs that a helper past its deadline is in a call on, and which helper."""
    late = LateRecords(machine.run_dir).list_late()
    return {h.subject: f"process {h.process.pid} ({h.what})" for h in late if h.subject}


@contextmanager
def open_parts(machine: Machine, nvml: Nvml) -> Iterator[tuple[Parts, SqliteAttachments]]:
    """The parts, and their store; libvirt and state are opened when an operation needs them."""
    store = SqliteAttachments(machine.state_dir / STATE_FILE)
    boot_id = read_boot_id(machine)
    vgpus = HostVgpus(machine, nvml)
    memory = PciFile(machine.state_dir / "passthrough.json")
    with (
        LibvirtHypervisor(machine.libvirt_uri) as hypervisor,
        closing(vgpus),
        HostPci(machine, memory) as pci,
    ):
        parts = Parts(
            nvml=nvml,
            read_inventory=lambda: read_machine_inventory(nvml, machine),
            hypervisor=hypervisor,
            channels=KeeperChannels(machine),
            store=store,
            clock=SystemClock(),
            state_dir=machine.state_dir,
            run_dir=machine.run_dir,
            boot_id=boot_id,
            is_privileged=machine.is_simulated or os.geteuid() == 0,
            list_late=lambda: list_late_processes(machine),
            has_iommufd=lambda: has_iommufd(machine),
            pci=pci,
            read_cpu_nodes=lambda: read_cpu_nodes(machine),
            vgpus=vgpus,
            vgpu_store=VgpuFile(machine.state_dir / VGPUS_FILE, boot_id),
            list_late_gpus=lambda: list_late_gpus(machine),
        )
        yield parts, store
