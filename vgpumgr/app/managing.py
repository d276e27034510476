"""The whole application: what there is to see of GPUs, and the operations on attachments.

Everything that only some operations need is imported by those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from vgpumgr.app.application import Application
from vgpumgr.app.services import LazyServices, Services
from vgpumgr.errors import (
    LibvirtDownError,
    LibvirtError,
    LibvirtLateError,
    LibvirtPermissionError,
)
from vgpumgr.host.machine import Machine
from vgpumgr.nvml.protocol import Nvml

if TYPE_CHECKING:
    from vgpumgr.app.documents.attachments import (
        AttachDocument,
        ChannelListDocument,
        ChannelShowDocument,
        DetachDocument,
        VmListDocument,
        VmShowDocument,
        VmXmlDocument,
    )
    from vgpumgr.app.documents.base import GpuListDocument, GpuShowDocument
    from vgpumgr.app.documents.functions import (
        GroupListDocument,
        PassthroughListDocument,
        PciChangeDocument,
        VfListDocument,
    )
    from vgpumgr.app.documents.operations import MetricsDocument
    from vgpumgr.app.documents.recovery import (
        DiffDocument,
        RecoverDocument,
        RestoreDocument,
        StatusDocument,
    )
    from vgpumgr.app.documents.vgpus import (
        VgpuChangeDocument,
        VgpuListDocument,
        VgpuTypesDocument,
    )
    from vgpumgr.app.operations.attachments import AttachmentService
    from vgpumgr.app.operations.layout_apply import LayoutChange
    from vgpumgr.app.operations.passthrough import PassthroughService
    from vgpumgr.app.operations.recovery import Policy, Recovery, Release
    from vgpumgr.app.operations.vgpu_layouts import VgpuLayouts
    from vgpumgr.app.operations.vgpus import VgpuService
    from vgpumgr.mig.layout.change import LayoutPlan
    from vgpumgr.model.gpu import Gpu
    from vgpumgr.planning.reservations import LostSlice
    from vgpumgr.planning.snapshot import Snapshot


class ManagingApplication(Application):
    """All operations on one machine; parameters and answers are plain data, as over HTTP."""

    def __init__(self, machine: Machine, nvml: Nvml, services: Services) -> None:
        super().__init__(
            machine,
            nvml,
            services.owners,
            self._open_layout_change,
            self._open_vgpu_layouts,
            self._check_kept,
            self._find_lost,
        )
        self._services = services

    @property
    def _service(self) -> AttachmentService:
        return self._services.attachments

    @property
    def _recovery(self) -> Recovery:
        from vgpumgr.app.operations.recovery import Recovery

        return Recovery(self._services.parts)

    @property
    def _vgpus(self) -> VgpuService:
        from vgpumgr.app.operations.vgpus import VgpuService

        return VgpuService(self._services.parts)

    @property
    def _passthrough(self) -> PassthroughService:
        from vgpumgr.app.operations.passthrough import PassthroughService

        return PassthroughService(self._services.parts)

    def _open_vgpu_layouts(self) -> VgpuLayouts:
        from vgpumgr.app.operations.vgpu_layouts import VgpuLayouts

        return VgpuLayouts(self._services.parts)

    def _check_kept(self, plan: LayoutPlan, gpus: Sequence[Gpu]) -> None:
        if lost := self._find_lost(gpus):
            from vgpumgr.planning.reservations import check_places

            check_places(plan, gpus, lost)

    def _find_lost(self, gpus: Sequence[Gpu]) -> Sequence[LostSlice]:
        """By what is recorded of attachments and vGPUs."""
        records, named = self._services.read_slices()
        if not records and not named:
            return ()
        from vgpumgr.planning.reservations import list_lost

        return list_lost(gpus, records, tuple(named), names=named)

    def _open_layout_change(self) -> AbstractContextManager[LayoutChange]:
        from vgpumgr.app.operations.layout_apply import open_layout_change

        return open_layout_change(self._services.parts)

    def list_gpus(self) -> GpuListDocument:
        """As without attachments, and who has devices of each."""
        document, records = super().list_gpus(), self._services.list_attachments()
        if not document.others and not any(record.host_devices for record in records):
            return document
        from vgpumgr.app.host_observation import name_holders, name_models

        return name_holders(name_models(self._services.parts, document), records)

    def show_gpu(self, selector: str) -> GpuShowDocument:
        """As without attachments, and who has devices of it, or its device files open."""
        from vgpumgr.app.host_observation import name_holders_of

        return name_holders_of(self._services.parts, super().show_gpu(selector))

    def attach(
        self, *, dry_run: bool = False, transport: str = "auto", **asked: Any
    ) -> AttachDocument:
        """See ``AttachmentService.attach``; the other parameters are the fields of AttachRequest."""
        from vgpumgr.model.request import AttachRequest, Transport

        request = AttachRequest(transport=Transport(transport), **asked)
        return self._service.attach(request, dry_run)

    def show_vm_xml(
        self,
        *,
        selector: str,
        profile: str | None = None,
        backend: str = "auto",
        gpu: str | None = None,
        display: str = "off",
    ) -> VmXmlDocument:
        """See ``vm_xml.render_vm_xml``."""
        from vgpumgr.app.operations.vm_xml import render_vm_xml
        from vgpumgr.model.request import AttachRequest

        request = AttachRequest(selector, profile or "", gpu, backend, display=display)
        return render_vm_xml(self._services.parts, request)

    def detach(
        self, *, vm: str, dry_run: bool = False, attachment: str | None = None, every: bool = False
    ) -> DetachDocument:
        """See ``AttachmentService.detach``."""
        return self._service.detach(vm, dry_run, attachment, every)

    def status(self) -> StatusDocument:
        """See ``Recovery.status``."""
        return self._recovery.status()

    def diff(self) -> DiffDocument:
        """See ``Recovery.diff``."""
        return self._recovery.diff()

    def recover(self, *, release: bool = False, readd: bool = False) -> RecoverDocument:
        """See ``Recovery.recover``."""
        from vgpumgr.app.operations.recovery import Policy

        return self._recovery.recover(Policy(release, readd))

    def reconcile(
        self, policy: Policy, choose_releases: Callable[[Snapshot], Sequence[Release]]
    ) -> RecoverDocument:
        """See ``Recovery.recover``; what the daemon does by itself."""
        return self._recovery.recover(policy, choose_releases, needs_libvirt=True)

    def list_attachment_ids(self, vm_uuid: str) -> list[str]:
        """What a VM has, by the attachments' ids."""
        records = self._services.parts.store.list_attachments()
        return [record.id for record in records if record.vm_uuid == vm_uuid]

    def restore(self, **asked: Any) -> RestoreDocument:
        """See ``restore.restore``."""
        from vgpumgr.app.operations.restore import restore

        return restore(self._services.parts, **asked)

    def list_passthrough(self) -> PassthroughListDocument:
        """See ``PassthroughService.list_functions``."""
        return self._passthrough.list_functions()

    def list_pci_groups(self, *, all_groups: bool = False) -> GroupListDocument:
        """See ``PassthroughService.list_groups``."""
        return self._passthrough.list_groups(all_groups=all_groups)

    def bind_pci(self, **asked: Any) -> PciChangeDocument:
        """See ``PassthroughService.bind``."""
        return self._passthrough.bind(**asked)

    def unbind_pci(self, **asked: Any) -> PciChangeDocument:
        """See ``PassthroughService.unbind``."""
        return self._passthrough.unbind(**asked)

    def list_vfs(self, *, selector: str | None = None) -> VfListDocument:
        """See ``PassthroughService.list_vfs``."""
        return self._passthrough.list_vfs(selector=selector)

    def enable_vfs(self, **asked: Any) -> PciChangeDocument:
        """See ``PassthroughService.enable_vfs``."""
        return self._passthrough.enable_vfs(**asked)

    def disable_vfs(
        self, *, selector: str, confirmed: bool = False, dry_run: bool = False
    ) -> PciChangeDocument:
        """See ``PassthroughService.disable_vfs``."""
        return self._passthrough.disable_vfs(
            selector=selector, confirmed=confirmed, dry_run=dry_run
        )

    def list_vgpu_types(self, selector: str | None = None) -> VgpuTypesDocument:
        """See ``VgpuService.list_types``."""
        return self._vgpus.list_types(selector)

    def list_vgpus(self) -> VgpuListDocument:
        """See ``VgpuService.list_vgpus``."""
        return self._vgpus.list_vgpus()

    def create_vgpu(self, **asked: Any) -> VgpuChangeDocument:
        """See ``VgpuService.create``."""
        return self._vgpus.create(**asked)

    def delete_vgpu(self, *, vgpu: str, dry_run: bool = False) -> VgpuChangeDocument:
        """See ``VgpuService.delete``."""
        return self._vgpus.delete(vgpu=vgpu, dry_run=dry_run)

    def define_vgpu(self, **asked: Any) -> VgpuChangeDocument:
        """See ``VgpuService.define``."""
        return self._vgpus.define(**asked)

    def start_vgpu(self, *, vgpu: str, dry_run: bool = False) -> VgpuChangeDocument:
        """See ``VgpuService.start``."""
        return self._vgpus.start(vgpu=vgpu, dry_run=dry_run)

    def stop_vgpu(self, *, vgpu: str, dry_run: bool = False) -> VgpuChangeDocument:
        """See ``VgpuService.stop``."""
        return self._vgpus.stop(vgpu=vgpu, dry_run=dry_run)

    def adopt_vgpu(self, *, vgpu: str, dry_run: bool = False) -> VgpuChangeDocument:
        """See ``VgpuService.adopt``."""
        return self._vgpus.adopt(vgpu=vgpu, dry_run=dry_run)

    def list_vms(self) -> VmListDocument:
        """Every VM."""
        return self._service.list_vms()

    def show_vm(self, *, selector: str) -> VmShowDocument:
        """One VM."""
        return self._service.show_vm(selector)

    def list_stopped_vms(self) -> frozenset[str]:
        """VMs that libvirt says are shut off. Without libvirt, none: what may run is not moved."""
        try:
            vms = self._service.list_vms().vms
        except (LibvirtError, LibvirtDownError, LibvirtLateError, LibvirtPermissionError):
            return frozenset()
        return frozenset(vm.name for vm in vms if vm.state == "shut off")

    def list_channels(self) -> ChannelListDocument:
        """Every channel."""
        return self._service.list_channels()

    def show_channel(self, *, selector: str) -> ChannelShowDocument:
        """One channel."""
        return self._service.show_channel(selector)

    def read_metrics(self, **asked: Any) -> MetricsDocument:
        """See ``MetricsService.read_metrics``."""
        return self._services.metrics.read_metrics(**asked)


@contextmanager
def open_managing(machine: Machine, nvml: Nvml) -> Iterator[ManagingApplication]:
    """The application on a machine; libvirt and state are opened when an operation needs them."""
    with ExitStack() as stack:
        yield ManagingApplication(machine, nvml, LazyServices(machine, nvml, stack))
