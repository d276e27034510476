"""The application: every operation as a method that answers a document.

The command line calls it in its own process as long as no daemon answers; the daemon's REST API is
the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vgpumgr.app.documents.base import (
    GpuListDocument,
    GpuShowDocument,
    LostGpuDocument,
    MachineDocument,
    MigInstanceRow,
    MigListDocument,
    MigProfileRow,
    MigProfilesDocument,
)
from vgpumgr.host.machine import Machine
from vgpumgr.mig.instances import NoOwners, OwnerProvider
from vgpumgr.mig.selection import check_visible, find_other, select_gpu
from vgpumgr.model.gpu import Gpu, Inventory
from vgpumgr.nvml.inventory import read_machine_inventory
from vgpumgr.nvml.protocol import Nvml

if TYPE_CHECKING:
    from vgpumgr.app.documents.attachments import GuestPackageDocument
    from vgpumgr.app.documents.capacity import DefragDocument, WhyDocument
    from vgpumgr.app.documents.gpu_serializers import Owners
    from vgpumgr.app.documents.layouts import (
        LayoutAssertDocument,
        LayoutFileDocument,
        LayoutPlanDocument,
    )
    from vgpumgr.app.operations.layouts import CheckPlaces, LayoutService, OpenChange, OpenVgpus
    from vgpumgr.planning.reservations import LostSlice

    #: the slices of some GPUs that are gone and are to come back
    ListLost = Callable[[Sequence[Gpu]], Sequence[LostSlice]]


class Application:
    """Operations on one machine. Owners come from whoever remembers attachments."""

    def __init__(
        self,
        machine: Machine,
        nvml: Nvml,
        owners: OwnerProvider | None = None,
        open_change: OpenChange | None = None,
        open_vgpus: OpenVgpus | None = None,
        check_places: CheckPlaces | None = None,
        list_lost: ListLost | None = None,
    ) -> None:
        self.machine = machine
        self.nvml = nvml
        self._owners = owners or NoOwners()
        self._open_change = open_change
        self._open_vgpus = open_vgpus
        self._check_places = check_places
        self._list_lost = list_lost

    def read_inventory(self) -> Inventory:
        """All GPUs as models, observed now."""
        return read_machine_inventory(self.nvml, self.machine)

    def list_gpus(self) -> GpuListDocument:
        """Every GPU with instances, owners and processes."""
        from vgpumgr.app.documents.gpu_serializers import describe_gpu, describe_pci_gpu

        inventory = self.read_inventory()
        owners = self._index_owners()
        return GpuListDocument(
            machine=self._describe_machine(inventory),
            gpus=[describe_gpu(gpu, owners) for gpu in inventory.gpus],
            others=[describe_pci_gpu(gpu) for gpu in inventory.others],
            lost=[
                LostGpuDocument(index=lost.index, nvml_code=lost.code, nvml_text=lost.text)
                for lost in inventory.lost
            ],
        )

    def show_gpu(self, selector: str) -> GpuShowDocument:
        """One GPU with every profile and what still fits. Raises GpuNotFoundError,
        GpuAmbiguousError.
        """
        from vgpumgr.app.documents.gpu_serializers import (
            describe_gpu,
            describe_pci_gpu,
            describe_profile,
        )

        inventory = self.read_inventory()
        machine = self._describe_machine(inventory)
        if other := find_other(inventory.others, selector):
            return GpuShowDocument(
                machine=machine, gpu=None, other=describe_pci_gpu(other), profiles=[]
            )
        gpu = select_gpu(inventory.gpus, selector, inventory.lost)
        return GpuShowDocument(
            machine=machine,
            gpu=describe_gpu(gpu, self._index_owners()),
            other=None,
            profiles=[describe_profile(gpu, profile) for profile in gpu.profiles],
        )

    def list_mig_instances(self, selector: str | None = None) -> MigListDocument:
        """Every MIG instance of all GPUs, or of one. Raises NotPermittedError for a user who would
        be shown none of them.
        """
        from vgpumgr.app.documents.gpu_serializers import describe_instance

        owners, gpus = self._index_owners(), self._select(selector)
        check_visible(gpu for gpu in gpus if gpu.mig.current)
        return MigListDocument(
            instances=[
                MigInstanceRow(
                    gpu_index=gpu.index,
                    gpu_uuid=gpu.uuid,
                    **vars(describe_instance(gpu, instance, owners)),
                )
                for gpu in gpus
                for instance in gpu.instances
            ]
        )

    def list_mig_profiles(self, selector: str | None = None) -> MigProfilesDocument:
        """Every MIG profile of all GPUs, or of one, with how many more fit now."""
        from vgpumgr.app.documents.gpu_serializers import describe_profile

        return MigProfilesDocument(
            profiles=[
                MigProfileRow(
                    gpu_index=gpu.index,
                    gpu_uuid=gpu.uuid,
                    **vars(describe_profile(gpu, profile)),
                )
                for gpu in self._select(selector)
                for profile in gpu.profiles
            ]
        )

    @property
    def _layouts(self) -> LayoutService:
        """Loaded when a command about layouts needs it: readers of files cost time."""
        from vgpumgr.app.operations.layouts import LayoutParts, LayoutService

        # NUMA and IOMMU, which take a walk through sysfs, do not matter here
        read = self.nvml.read_inventory
        parts = LayoutParts(
            read, self._owners.list_owners, self._open_change, self._open_vgpus, self._check_places
        )
        return LayoutService(parts)

    def plan_layout(self, **asked: Any) -> LayoutPlanDocument:
        """See ``LayoutService.plan``."""
        return self._layouts.plan(**asked)

    def apply_layout(self, **asked: Any) -> LayoutPlanDocument:
        """See ``LayoutService.apply``."""
        return self._layouts.apply(**asked)

    def assert_layout(self, **asked: Any) -> LayoutAssertDocument:
        """See ``LayoutService.compare``."""
        return self._layouts.compare(**asked)

    def export_layout(self, **asked: Any) -> LayoutFileDocument:
        """See ``LayoutService.export``."""
        return self._layouts.export(**asked)

    def checkpoint_mig(self) -> LayoutFileDocument:
        """See ``LayoutService.checkpoint``."""
        return self._layouts.checkpoint()

    def restore_mig(self, **asked: Any) -> LayoutPlanDocument:
        """See ``LayoutService.restore``."""
        return self._layouts.restore(**asked)

    def set_mig_mode(self, **asked: Any) -> LayoutPlanDocument:
        """See ``LayoutService.set_mode``."""
        return self._layouts.set_mode(**asked)

    def why(self, profile: str, selector: str | None = None) -> WhyDocument:
        """See ``room.describe_why``."""
        from vgpumgr.app.operations.capacity import describe_why

        gpus, owners = self._select(selector), self._owners.list_owners()
        lost = self._read_lost(gpus)
        return describe_why(gpus, profile, owners, self.list_stopped_vms(), lost)

    def plan_defrag(self, profile: str, selector: str | None = None) -> DefragDocument:
        """See ``room.describe_defrag``."""
        from vgpumgr.app.operations.capacity import describe_defrag

        gpus, owners = self._select(selector), self._owners.list_owners()
        lost = self._read_lost(gpus)
        return describe_defrag(gpus, profile, owners, self.list_stopped_vms(), lost)

    def list_stopped_vms(self) -> frozenset[str]:
        """Names of the VMs that are known to be shut off; none where nobody knows VMs."""
        return frozenset()

    def _read_lost(self, gpus: Sequence[Gpu]) -> Sequence[LostSlice]:
        """Slices that are gone and are to come back; none where nobody remembers any."""
        return self._list_lost(gpus) if self._list_lost is not None else ()

    def write_guest_package(self, target: str) -> GuestPackageDocument:
        """Writes the archive that a VM needs. Raises LibraryNotFoundError, FileWriteError."""
        from vgpumgr.app.operations.guest_package import write_guest_package

        return write_guest_package(target)

    def _select(self, selector: str | None) -> tuple[Gpu, ...]:
        inventory = self.read_inventory()
        if selector is None:
            return inventory.gpus
        return (select_gpu(inventory.gpus, selector, inventory.lost),)

    def _index_owners(self) -> Owners:
        from vgpumgr.app.documents.gpu_serializers import index_owners

        return index_owners(self._owners.list_owners())

    def _describe_machine(self, inventory: Inventory) -> MachineDocument:
        cuda = inventory.cuda_version
        return MachineDocument(
            name=self.machine.name,
            simulated=self.machine.is_simulated,
            driver_version=inventory.driver_version or None,
            nvml_version=inventory.nvml_version or None,
            cuda_version=f"{cuda[0]}.{cuda[1]}" if cuda else None,
        )
