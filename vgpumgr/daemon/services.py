"""The services behind the operations of one machine, each opened by the first that needs it.

A command does one thing and ends: what it does not need, such as libvirt, XML or metrics, takes
longer to load than most commands take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from vgpumgr.store.attachments import SqliteAttachments
from vgpumgr.store.names import STATE_FILE, VGPUS_FILE

if TYPE_CHECKING:
    from vgpumgr.daemon.attachments import AttachmentService
    from vgpumgr.daemon.metrics import MetricsService
    from vgpumgr.host.machine import Machine
    from vgpumgr.mig.owners import OwnerProvider
    from vgpumgr.model.slice import SliceOwner
    from vgpumgr.nvml.protocol import Nvml
    from vgpumgr.plan.record import AttachmentRecord
    from vgpumgr.plan.vgpu_record import VgpuInstance


class Services(Protocol):
    """What the operations are made of."""

    @property
    def owners(self) -> OwnerProvider:
        """Whose the GPU instances are."""

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        """What is recorded of attachments; opens nothing else."""

    def read_slices(self) -> tuple[Sequence[AttachmentRecord], Mapping[VgpuInstance, str]]:
        """Attachments, and GPU instances that were made for vGPUs with the names of these; there or
        gone.
        """

    @property
    def attachments(self) -> AttachmentService:
        """Attachments, VMs, channels; its parts serve everything else that changes the machine."""

    @property
    def metrics(self) -> MetricsService:
        """The exposition."""


@dataclass(frozen=True)
class GivenServices:
    """Services that somebody else has opened."""

    attachments: AttachmentService
    metrics: MetricsService

    @property
    def owners(self) -> OwnerProvider:
        """See ``Services``."""
        from vgpumgr.daemon.vgpu_owners import AllOwners

        return AllOwners(self.attachments.parts)

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        """See ``Services``."""
        return self.attachments.parts.store.list_attachments()

    def read_slices(self) -> tuple[Sequence[AttachmentRecord], Mapping[VgpuInstance, str]]:
        """See ``Services``."""
        from vgpumgr.daemon.hostdev_observing import name_instances

        parts = self.attachments.parts
        return self.list_attachments(), name_instances(parts)


class LazyServices:
    """Services of a machine; the stack closes what was opened."""

    def __init__(self, machine: Machine, nvml: Nvml, stack: ExitStack) -> None:
        self._machine = machine
        self._nvml = nvml
        self._stack = stack

    @property
    def owners(self) -> OwnerProvider:
        """See ``Services``."""
        return self

    def list_owners(self) -> Sequence[SliceOwner]:
        """See ``OwnerProvider``; what is about vGPUs is loaded where there are any of ours."""
        state_dir = self._machine.state_dir
        owners = SqliteAttachments(state_dir / STATE_FILE).list_owners()
        if not (state_dir / VGPUS_FILE).exists():
            return owners
        from vgpumgr.daemon.vgpu_owners import list_vgpu_owners

        return (*owners, *list_vgpu_owners(self.attachments.parts))

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        """See ``Services``."""
        return SqliteAttachments(self._machine.state_dir / STATE_FILE).list_attachments()

    def read_slices(self) -> tuple[Sequence[AttachmentRecord], Mapping[VgpuInstance, str]]:
        """See ``Services``; what is about vGPUs is loaded where there are any of ours."""
        records = self.list_attachments()
        if not (self._machine.state_dir / VGPUS_FILE).exists():
            return records, {}
        from vgpumgr.daemon.hostdev_observing import name_instances

        return records, name_instances(self.attachments.parts)

    @cached_property
    def attachments(self) -> AttachmentService:
        """See ``Services``."""
        from vgpumgr.daemon.attachments import AttachmentService
        from vgpumgr.daemon.opening import open_parts

        parts, _ = self._stack.enter_context(open_parts(self._machine, self._nvml))
        return AttachmentService(parts)

    @cached_property
    def metrics(self) -> MetricsService:
        """See ``Services``."""
        from vgpumgr.daemon.metrics_source import open_metrics

        return self._stack.enter_context(open_metrics(self._machine))
