"""What the operations work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vgpumgr.engine.claims import GPU_CLAIM
from vgpumgr.engine.context import OperationContext, make_no_pci, make_no_vgpus
from vgpumgr.engine.journal import Journal
from vgpumgr.engine.recovery import Unfinished, list_unfinished
from vgpumgr.host.clock import Clock
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.gpu import Gpu, Inventory
from vgpumgr.model.vgpu_record import NoVgpuStore, VgpuStore
from vgpumgr.nvml.protocol import Nvml

if TYPE_CHECKING:
    from vgpumgr.domain.hypervisor import Hypervisor
    from vgpumgr.host.statistics import OperationStatistics
    from vgpumgr.mdev.control import VgpuControl
    from vgpumgr.passthrough.control import PciControl
    from vgpumgr.state.store import Store
    from vgpumgr.virtio.channel import Channels


@dataclass(frozen=True)
class Parts:
    """What the operations work with; a test replaces any of it."""

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
    #: helper processes past their deadline, or of a command that was killed, as people read them
    list_late: Callable[[], Sequence[str]] = tuple
    #: whether the kernel gives devices to VMs by /dev/iommu
    has_iommufd: Callable[[], bool] = bool
    #: of those, the ones that are known to be in a call on a GPU: its UUID and the helper
    list_late_gpus: Callable[[], Mapping[str, str]] = dict
    pci: PciControl = field(default_factory=make_no_pci)
    #: the NUMA node of each CPU of the host; empty where it is not known
    read_cpu_nodes: Callable[[], Mapping[int, int]] = dict
    vgpus: VgpuControl = field(default_factory=make_no_vgpus)
    vgpu_store: VgpuStore = field(default_factory=NoVgpuStore)

    def make_context(
        self, record: AttachmentRecord | None = None, gpus: Sequence[Gpu] | None = None
    ) -> OperationContext:
        """The context of one operation; ``gpus`` as its plan was made on, if it needs them."""
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
            maybe_record=record,
            gpus=gpus,
        )

    def hold_store(self) -> AbstractContextManager[None]:
        """What is remembered meanwhile shares one connection to the store."""
        return self.store.held_open()

    def open_journal(self) -> Journal:
        """The machine's journal; the caller closes it, and writes only under the machine's lock."""
        return Journal(self.state_dir / "journal", self.boot_id)

    def open_statistics(self) -> OperationStatistics:
        """The machine's counts of operations."""
        from vgpumgr.host.statistics import open_statistics

        return open_statistics(self.run_dir)


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
    for found in list_unfinished_here(parts) if late else ():
        text = f"{found.operation} {found.subject} has not ended and waits for {'; '.join(late)}"
        for claim in found.claims:
            if claim.kind == GPU_CLAIM:
                stuck.setdefault(claim.name, text)
    return stuck


def list_unfinished_here(parts: Parts) -> list[Unfinished]:
    """Operations of this boot that have no end."""
    contents = parts.open_journal().look()
    return [found for found in list_unfinished(contents) if found.boot == parts.boot_id]
