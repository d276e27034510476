"""What the operations work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vgpumgr.domain.hypervisor import Hypervisor
from vgpumgr.host.clock import Clock
from vgpumgr.mdev.control import NoVgpus, VgpuControl
from vgpumgr.model.gpu import Inventory
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.passthrough.control import PciControl, make_absent
from vgpumgr.plan.journal import Journal
from vgpumgr.plan.record import AttachmentRecord, AttachmentState, AttachmentStore
from vgpumgr.plan.vgpu_record import NoVgpuStore, VgpuStore
from vgpumgr.plan.world import World
from vgpumgr.virtio.channel import Channels


@dataclass(frozen=True)
class Parts:
    """What the operations work with; a test replaces any of it."""

    nvml: Nvml
    read_inventory: Callable[[], Inventory]
    hypervisor: Hypervisor
    channels: Channels
    store: AttachmentStore
    clock: Clock
    state_dir: Path
    run_dir: Path
    boot_id: str
    is_privileged: bool
    #: helper processes past their deadline, or of a command that was killed, as people read them
    list_late: Callable[[], Sequence[str]] = tuple
    #: whether the kernel gives devices to VMs by /dev/iommu
    has_iommufd: Callable[[], bool] = bool
    #: of those, the ones that are known to be in a call on a GPU: its UUID and the helper
    list_late_gpus: Callable[[], Mapping[str, str]] = dict
    pci: PciControl = field(default_factory=make_absent)
    #: the NUMA node of each CPU of the host; empty where it is not known
    read_cpu_nodes: Callable[[], Mapping[int, int]] = dict
    vgpus: VgpuControl = field(default_factory=NoVgpus)
    vgpu_store: VgpuStore = field(default_factory=NoVgpuStore)

    def make_world(self, record: AttachmentRecord | None) -> World:
        """The world of one operation."""
        return World(
            nvml=self.nvml,
            hypervisor=self.hypervisor,
            channels=self.channels,
            store=self.store,
            clock=self.clock,
            maybe_record=record,
            vgpus=self.vgpus,
            vgpu_store=self.vgpu_store,
            pci=self.pci,
        )

    def open_journal(self) -> Journal:
        """The machine's journal; the caller closes it, and writes only under the machine's lock."""
        return Journal(self.state_dir / "journal", self.boot_id)


def find_stuck_gpus(parts: Parts) -> dict[str, str]:
    """GPUs on which nothing is begun, by UUID, and why: a helper is in a call there, or may be,
    because an operation there has not ended and some helper of a killed command still runs.
    """
    stuck = {gpu: f"{helper} has not come back" for gpu, helper in parts.list_late_gpus().items()}
    late = parts.list_late()
    for record in parts.store.list_attachments() if late else ():
        if record.state is not AttachmentState.ATTACHED and record.gpu is not None:
            text = f"{record.vm_name} is half {record.state} there and waits for {'; '.join(late)}"
            stuck.setdefault(str(record.gpu), text)
    return stuck
