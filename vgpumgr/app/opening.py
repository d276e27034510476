"""The parts that the operations on a real or simulated machine work with."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from vgpumgr.app.parts import Parts
from vgpumgr.host.boot import read_boot_id
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import has_iommufd
from vgpumgr.host.sysfs import read_cpu_nodes
from vgpumgr.nvml.inventory import read_machine_inventory
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.state.store import STATE_FILE, Store

if TYPE_CHECKING:
    from vgpumgr.domain.hypervisor import Hypervisor
    from vgpumgr.mdev.control import VgpuControl
    from vgpumgr.passthrough.control import PciControl
    from vgpumgr.virtio.channel import Channels

T = TypeVar("T")


class _Deferred:
    """Passes every attribute on to what ``open_`` answers, which is called once, by any thread."""

    def __init__(self, open_: Callable[[], object]) -> None:
        self._open = open_
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if "_target" not in self.__dict__:
                if name.startswith("__"):
                    raise AttributeError(name)  # copying and the like open nothing
                self._target = self._open()
        return getattr(self._target, name)


def defer(open_: Callable[[], T]) -> T:
    """Stands for what ``open_`` answers; if that raises, the next use tries again."""
    return cast("T", _Deferred(open_))


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
def open_parts(machine: Machine, nvml: Nvml) -> Iterator[tuple[Parts, Store]]:
    """The parts, and their store; libvirt, devices, channels and state are loaded and opened when an
    operation needs them.
    """
    boot_id = read_boot_id(machine)
    store = Store(machine.state_dir / STATE_FILE, boot_id)
    with ExitStack() as stack:

        def entered(open_: Callable[[], AbstractContextManager[T]]) -> T:
            return defer(lambda: stack.enter_context(open_()))

        parts = Parts(
            nvml=nvml,
            read_inventory=lambda: read_machine_inventory(nvml, machine),
            hypervisor=entered(lambda: _open_hypervisor(machine)),
            channels=defer(lambda: _make_channels(machine)),
            store=store,
            clock=SystemClock(),
            state_dir=machine.state_dir,
            run_dir=machine.run_dir,
            boot_id=boot_id,
            is_privileged=machine.is_simulated or os.geteuid() == 0,
            list_late=lambda: list_late_processes(machine),
            has_iommufd=lambda: has_iommufd(machine),
            pci=entered(lambda: _open_pci(machine, store)),
            read_cpu_nodes=lambda: read_cpu_nodes(machine),
            vgpus=entered(lambda: _open_vgpus(machine, nvml)),
            vgpu_store=store,
            list_late_gpus=lambda: list_late_gpus(machine),
        )
        yield parts, store


def _open_hypervisor(machine: Machine) -> AbstractContextManager[Hypervisor]:
    from vgpumgr.domain.libvirt import LibvirtHypervisor

    return LibvirtHypervisor(machine.libvirt_uri)


def _make_channels(machine: Machine) -> Channels:
    from vgpumgr.virtio.keeper_channels import KeeperChannels

    return KeeperChannels(machine)


def _open_pci(machine: Machine, store: Store) -> AbstractContextManager[PciControl]:
    from vgpumgr.passthrough.control import HostPci

    return HostPci(machine, store)


def _open_vgpus(machine: Machine, nvml: Nvml) -> AbstractContextManager[VgpuControl]:
    from vgpumgr.mdev.control import HostVgpus

    return closing(HostVgpus(machine, nvml))
