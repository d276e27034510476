"""The whole application: what there is to see of GPUs, and the operations on attachments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vgpumgr.daemon.application import Application
from vgpumgr.daemon.attachment_documents import (
    AttachDocument,
    ChannelListDocument,
    ChannelShowDocument,
    DetachDocument,
    VmListDocument,
    VmShowDocument,
)
from vgpumgr.daemon.attachments import AttachmentService, Parts
from vgpumgr.daemon.metrics import MetricsDocument, MetricsService
from vgpumgr.daemon.metrics_cache import PATIENCE_S
from vgpumgr.daemon.metrics_source import open_metrics
from vgpumgr.domain.libvirt import LibvirtHypervisor
from vgpumgr.host.boot import read_boot_id
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.machine import Machine
from vgpumgr.nvml.inventory import read_machine_inventory
from vgpumgr.nvml.protocol import Nvml
from vgpumgr.plan.attach import AttachRequest
from vgpumgr.plan.record import Transport
from vgpumgr.store.attachments import SqliteAttachments
from vgpumgr.virtio.keeper_channels import KeeperChannels


class ManagingApplication(Application):
    """All operations on one machine; parameters and answers are plain data, as over HTTP."""

    def __init__(
        self,
        machine: Machine,
        nvml: Nvml,
        store: SqliteAttachments,
        service: AttachmentService,
        metrics: MetricsService,
    ) -> None:
        super().__init__(machine, nvml, owners=store)
        self._service = service
        self._metrics = metrics

    def attach(
        self, *, dry_run: bool = False, transport: str = "auto", **asked: Any
    ) -> AttachDocument:
        """See ``AttachmentService.attach``; the other parameters are the fields of AttachRequest."""
        request = AttachRequest(transport=Transport(transport), **asked)
        return self._service.attach(request, dry_run)

    def detach(self, *, vm: str, dry_run: bool = False) -> DetachDocument:
        """See ``AttachmentService.detach``."""
        return self._service.detach(vm, dry_run)

    def list_vms(self) -> VmListDocument:
        """Every VM."""
        return self._service.list_vms()

    def show_vm(self, *, selector: str) -> VmShowDocument:
        """One VM."""
        return self._service.show_vm(selector)

    def list_channels(self) -> ChannelListDocument:
        """Every channel."""
        return self._service.list_channels()

    def show_channel(self, *, selector: str) -> ChannelShowDocument:
        """One channel."""
        return self._service.show_channel(selector)

    def read_metrics(
        self, *, openmetrics: bool = False, wait_s: float = PATIENCE_S
    ) -> MetricsDocument:
        """See ``MetricsService.read_metrics``."""
        return self._metrics.read_metrics(openmetrics=openmetrics, wait_s=wait_s)


@contextmanager
def open_managing(machine: Machine, nvml: Nvml) -> Iterator[ManagingApplication]:
    """The application on a machine; libvirt and state are opened when an operation needs them."""
    store = SqliteAttachments(machine.state_dir / "state.sqlite")
    with LibvirtHypervisor(machine.libvirt_uri) as hypervisor:
        parts = Parts(
            nvml=nvml,
            read_inventory=lambda: read_machine_inventory(nvml, machine),
            hypervisor=hypervisor,
            channels=KeeperChannels(machine),
            store=store,
            clock=SystemClock(),
            state_dir=machine.state_dir,
            run_dir=machine.run_dir,
            boot_id=read_boot_id(),
            is_privileged=machine.is_simulated or os.geteuid() == 0,
        )
        with open_metrics(machine) as metrics:
            yield ManagingApplication(machine, nvml, store, AttachmentService(parts), metrics)
