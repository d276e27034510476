"""What the operations work with: the interfaces of one machine, real or simulated, and its store.

Whatever only some operations need is loaded when one of them needs it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from vgpumgr.errors import (
    LibvirtDownError,
    LibvirtError,
    LibvirtLateError,
    LibvirtPermissionError,
    MigNotSupportedError,
    StoreError,
)
from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine, read_boot_id, read_cpu_nodes
from vgpumgr.host.pci_tree import has_iommufd
from vgpumgr.mig.selection import select_any
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState, SliceOwner
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu, Inventory, PciGpu, Sensors
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.vgpu import NoVgpuStore, VgpuStore
from vgpumgr.nvml.client import complete_inventory, read_machine_inventory
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.state.leases import Leases, NoLeases
from vgpumgr.state.store import STATE_FILE, Store

if TYPE_CHECKING:
    from vgpumgr.domain.hypervisor import Hypervisor
    from vgpumgr.engine.context import OperationContext
    from vgpumgr.engine.journal import Journal
    from vgpumgr.engine.recovery import Unfinished
    from vgpumgr.host.pci_changes import GpuSensors
    from vgpumgr.host.statistics import OperationStatistics
    from vgpumgr.mdev.control import VgpuControl
    from vgpumgr.passthrough.control import PciControl
    from vgpumgr.planning.reservations import LostSlice
    from vgpumgr.virtio.channel import Channels

T = TypeVar("T")
#: libvirt does not answer now
LIBVIRT_ERRORS = (LibvirtError, LibvirtDownError, LibvirtLateError, LibvirtPermissionError)


def _make_no_pci() -> PciControl:
    from vgpumgr.engine.context import make_no_pci

    return make_no_pci()


def _make_no_vgpus() -> VgpuControl:
    from vgpumgr.engine.context import make_no_vgpus

    return make_no_vgpus()


@dataclass(frozen=True)
class Parts:
    """The interfaces of a machine; a test replaces any of them."""

    nvml: Nvml
    read_inventory: Callable[[], Inventory]
    hypervisor: Hypervisor
    channels: Channels
    store: Store
    clock: Clock
    state_dir: Path
    run_dir: Path
    boot_id: str
    is_privileged: bool
    #: adds what ``/sys`` says of the GPUs to an inventory that NVML alone answered
    complete_inventory: Callable[[Inventory], Inventory] = lambda inventory: inventory
    #: helper processes past their deadline, or of a command that was killed, as people read them
    list_late: Callable[[], Sequence[str]] = tuple
    #: whether the kernel gives devices to VMs by /dev/iommu
    has_iommufd: Callable[[], bool] = bool
    #: of those, the ones that are known to be in a call on a GPU: its UUID and the helper
    list_late_gpus: Callable[[], Mapping[str, str]] = dict
    pci: PciControl = field(default_factory=_make_no_pci)
    #: the NUMA node of each CPU of the host; empty where it is not known
    read_cpu_nodes: Callable[[], Mapping[int, int]] = dict
    vgpus: VgpuControl = field(default_factory=_make_no_vgpus)
    vgpu_store: VgpuStore = field(default_factory=NoVgpuStore)
    #: those of the pool that this host is in
    leases: Leases = field(default_factory=NoLeases)
    #: what drivers show of GPUs without NVML; raises nothing
    read_sensors: Callable[[Sequence[PciAddress]], Mapping[PciAddress, Sensors]] = lambda _: {}

    def __post_init__(self) -> None:
        read = self.read_inventory
        object.__setattr__(self, "read_inventory", lambda: self.mark_shares(read()))

    def mark_shares(self, inventory: Inventory) -> Inventory:
        """The inventory with the holders of shares. A store that cannot be read hides no GPU: what changes something
        reads it again, and refuses.
        """
        with contextlib.suppress(StoreError):
            records = self.store.list_attachments() if inventory.gpus else ()
            if any(record.share_part for record in records):
                from vgpumgr.planning.shares import mark_shares

                return replace(inventory, gpus=mark_shares(inventory.gpus, records))
        return inventory

    def make_context(
        self, record: AttachmentRecord | None = None, gpus: Sequence[Gpu] | None = None
    ) -> OperationContext:
        """The context of one operation; ``gpus`` as its plan was made on, if it needs them."""
        from vgpumgr.engine.context import OperationContext

        return OperationContext(
            nvml=self.nvml,
            hypervisor=self.hypervisor,
            channels=self.channels,
            clock=self.clock,
            attachment_store=self.store,
            layout_store=self.store,
            vgpu_store=self.vgpu_store,
            vgpus=self.vgpus,
            pci=self.pci,
            leases=self.leases,
            maybe_drain_store=self.store,
            maybe_record=record,
            gpus=gpus,
        )

    def hold_store(self) -> AbstractContextManager[None]:
        """What is remembered meanwhile shares one connection to the store."""
        return self.store.held_open()

    def open_journal(self) -> Journal:
        """The machine's journal; the caller closes it, and writes only under the machine's lock."""
        from vgpumgr.engine.journal import Journal

        return Journal(self.state_dir / "journal", self.boot_id)

    def open_statistics(self) -> OperationStatistics:
        """The machine's counts of operations."""
        from vgpumgr.host.statistics import open_statistics

        return open_statistics(self.run_dir)

    def select_gpus(self, selector: str | None) -> tuple[Gpu, ...]:
        """The GPU of NVML's that is named, or all of them. Raises GpuNotFoundError, GpuAmbiguousError,
        MigNotSupportedError for another one.
        """
        inventory = self.read_inventory()
        if selector is None:
            return inventory.gpus
        gpu = select_any(inventory, selector)
        if isinstance(gpu, PciGpu):
            driver = f"its driver is {gpu.driver}" if gpu.driver else "it has no driver"
            why = f"NVML does not know it: {driver}"
            hint = f"vgpumgr gpu show {gpu.address}"
            raise MigNotSupportedError(f"{gpu} has no MIG now", why=why, hint=hint)
        return (gpu,)

    def list_owners(self, gpus: Sequence[Gpu]) -> Sequence[SliceOwner]:
        """Owners of the GPU instances on these GPUs: VMs with an attachment, and vGPUs that live in one,
        also those of other programs. NVML gives the id of a slice that is gone to another, elsewhere, which is not
        that VM's.
        """
        owners = self.store.list_owners()
        if owners:
            places = {(gpu.uuid, i.id): i.placement for gpu in gpus for i in gpu.instances}
            own = {r.id: r.placement for r in self.store.list_attachments()}
            owners = tuple(
                owner
                for owner in owners
                if (place := places.get((owner.gpu, owner.gpu_instance_id))) is None
                or (own.get(owner.attachment_id) or place) == place
            )
        cut = [gpu for gpu in gpus if gpu.mig.current and gpu.instances]
        if not cut or not (self.vgpu_store.list_vgpus() or self.vgpus.may_have_devices()):
            return owners
        from vgpumgr.app.host_observation import list_vgpu_owners

        return (*owners, *list_vgpu_owners(self, cut))

    def list_lost(self, gpus: Sequence[Gpu]) -> Sequence[LostSlice]:
        """Slices of attachments and vGPUs that are gone from these GPUs and are to come back."""
        records, named = self.store.list_attachments(), {}
        if self.vgpu_store.list_vgpus():
            from vgpumgr.app.host_observation import name_instances

            named = name_instances(self)
        if not records and not named:
            return ()
        from vgpumgr.planning.reservations import list_lost

        return list_lost(gpus, records, tuple(named), names=named)


def find_stuck_gpus(parts: Parts) -> dict[str, str]:
    """GPUs on which nothing is begun, by UUID, and why: a helper is in a call there, or may be,
    because an operation there has not ended and some helper of a killed command still runs.
    """
    from vgpumgr.engine.recovery import GPU_CLAIM

    stuck = {gpu: f"{helper} has not come back" for gpu, helper in parts.list_late_gpus().items()}
    late = parts.list_late()
    for record in parts.store.list_attachments() if late else ():
        if record.state is not AttachmentState.ATTACHED and record.gpu is not None:
            text = f"{record.vm_name} is half {record.state} there and waits for {'; '.join(late)}"
            stuck.setdefault(str(record.gpu), text)
    for found in list_unfinished_here(parts) if late else ():
        text = f"{found.operation} {found.subject} has not ended and waits for {'; '.join(late)}"
        for claim in found.claims:
            if claim.kind == GPU_CLAIM:
                stuck.setdefault(claim.name, text)
    return stuck


def list_unfinished_here(parts: Parts) -> list[Unfinished]:
    """Operations of this boot that have no end."""
    from vgpumgr.engine.recovery import list_unfinished

    contents = parts.open_journal().look()
    return [found for found in list_unfinished(contents) if found.boot == parts.boot_id]


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
def open_parts(machine: Machine, nvml: Nvml) -> Iterator[Parts]:
    """The parts of a machine; libvirt, devices, channels and state are opened when an operation needs them."""
    boot_id = read_boot_id(machine)
    store = Store(machine.state_dir / STATE_FILE, boot_id)
    with ExitStack() as stack:

        def entered(open_: Callable[[], AbstractContextManager[T]]) -> T:
            return defer(lambda: stack.enter_context(open_()))

        sensors = entered(lambda: _open_sensors(machine))
        yield Parts(
            nvml=nvml,
            read_inventory=lambda: read_machine_inventory(nvml, machine),
            complete_inventory=lambda inventory: complete_inventory(inventory, machine),
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
            leases=defer(lambda: _make_leases(machine)),
            list_late_gpus=lambda: list_late_gpus(machine),
            read_sensors=lambda addresses: sensors.read(addresses) if addresses else {},
        )


def _open_hypervisor(machine: Machine) -> AbstractContextManager[Hypervisor]:
    from vgpumgr.domain.libvirt import LibvirtHypervisor

    return LibvirtHypervisor(machine.libvirt_uri)


def _make_channels(machine: Machine) -> Channels:
    from vgpumgr.virtio.keeper import KeeperChannels

    return KeeperChannels(machine)


def _make_leases(machine: Machine) -> Leases:
    from vgpumgr.pool.leases import PoolLeases

    return PoolLeases(machine)


def _open_pci(machine: Machine, store: Store) -> AbstractContextManager[PciControl]:
    from vgpumgr.passthrough.control import HostPci

    return HostPci(machine, store)


def _open_sensors(machine: Machine) -> AbstractContextManager[GpuSensors]:
    from vgpumgr.host.pci_changes import GpuSensors

    return closing(GpuSensors(machine))


def _open_vgpus(machine: Machine, nvml: Nvml) -> AbstractContextManager[VgpuControl]:
    from vgpumgr.mdev.control import HostVgpus

    return closing(HostVgpus(machine, nvml))
