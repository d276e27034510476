"""The interfaces of a host that a snapshot reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from vgpumgr.model.gpu import DrainStore

if TYPE_CHECKING:
    from vgpumgr.domain.hypervisor import Hypervisor
    from vgpumgr.mdev.control import VgpuControl
    from vgpumgr.model.attachment import AttachmentRecord
    from vgpumgr.model.gpu import Inventory
    from vgpumgr.model.mig import DesiredLayout
    from vgpumgr.model.vgpu import VgpuStore
    from vgpumgr.passthrough.control import PciControl
    from vgpumgr.state.leases import Leases
    from vgpumgr.virtio.channel import Channels


class RecordStore(DrainStore, Protocol):
    """What is recorded besides vGPUs. May raise StoreError."""

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        """See ``AttachmentStore``."""

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        """See ``LayoutStore``."""


class Host(Protocol):
    """The interfaces that a snapshot reads."""

    @property
    def read_inventory(self) -> Callable[[], Inventory]:
        """NVML's GPUs. Raises NvmlMissingError."""

    @property
    def hypervisor(self) -> Hypervisor:
        """The VMs."""

    @property
    def store(self) -> RecordStore:
        """The attachments and layouts that are recorded."""

    @property
    def vgpu_store(self) -> VgpuStore:
        """The vGPUs that are recorded."""

    @property
    def pci(self) -> PciControl:
        """The PCI bus."""

    @property
    def vgpus(self) -> VgpuControl:
        """vGPU types and devices."""

    @property
    def channels(self) -> Channels:
        """Keepers and workers."""

    @property
    def boot_id(self) -> str:
        """The boot that the host is in."""

    @property
    def has_iommufd(self) -> Callable[[], bool]:
        """Whether the kernel gives devices to VMs by /dev/iommu."""

    @property
    def leases(self) -> Leases:
        """Those of the pool that the host is in."""
