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

from vgpumgr.state.store import STATE_FILE, Store

if TYPE_CHECKING:
    from vgpumgr.app.metrics.service import MetricsService
    from vgpumgr.app.operations.attachments import AttachmentService
    from vgpumgr.app.parts import Parts
    from vgpumgr.host.machine import Machine
    from vgpumgr.mig.instances import OwnerProvider
    from vgpumgr.model.attachment import AttachmentRecord
    from vgpumgr.model.slice import SliceOwner
    from vgpumgr.model.vgpu_record import VgpuInstance
    from vgpumgr.nvml.protocol import Nvml


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
    def parts(self) -> Parts:
        """What every operation that changes the machine works with."""

    @property
    def attachments(self) -> AttachmentService:
        """Attachments, VMs, channels."""

    @property
    def metrics(self) -> MetricsService:
        """The exposition."""


@dataclass(frozen=True)
class GivenServices:
    """Services that somebody else has opened."""

    attachments: AttachmentService
    metrics: MetricsService

    @property
    def parts(self) -> Parts:
        """See ``Services``."""
        return self.attachments.parts

    @property
    def owners(self) -> OwnerProvider:
        """See ``Services``."""
        from vgpumgr.app.slice_owners import AllOwners

        return AllOwners(self.parts)

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        """See ``Services``."""
        return self.parts.store.list_attachments()

    def read_slices(self) -> tuple[Sequence[AttachmentRecord], Mapping[VgpuInstance, str]]:
        """See ``Services``."""
        from vgpumgr.app.host_observation import name_instances

        return self.list_attachments(), name_instances(self.parts)


class LazyServices:
    """Services of a machine; the stack closes what was opened."""

    def __init__(self, machine: Machine, nvml: Nvml, stack: ExitStack) -> None:
        self._machine = machine
        self._nvml = nvml
        self._stack = stack
        self._store = Store(machine.state_dir / STATE_FILE)

    @property
    def owners(self) -> OwnerProvider:
        """See ``Services``."""
        return self

    def list_owners(self) -> Sequence[SliceOwner]:
        """See ``OwnerProvider``; what is about vGPUs is loaded where there are any of ours."""
        owners = self._store.list_owners()
        if not self._store.has_vgpus():
            return owners
        from vgpumgr.app.slice_owners import list_vgpu_owners

        return (*owners, *list_vgpu_owners(self.parts))

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        """See ``Services``."""
        return self._store.list_attachments()

    def read_slices(self) -> tuple[Sequence[AttachmentRecord], Mapping[VgpuInstance, str]]:
        """See ``Services``; what is about vGPUs is loaded where there are any of ours."""
        records = self.list_attachments()
        if not self._store.has_vgpus():
            return records, {}
        from vgpumgr.app.host_observation import name_instances

        return records, name_instances(self.parts)

    @cached_property
    def parts(self) -> Parts:
        """See ``Services``."""
        from vgpumgr.app.opening import open_parts

        parts, _ = self._stack.enter_context(open_parts(self._machine, self._nvml))
        return parts

    @cached_property
    def attachments(self) -> AttachmentService:
        """See ``Services``."""
        from vgpumgr.app.operations.attachments import AttachmentService

        return AttachmentService(self.parts)

    @cached_property
    def metrics(self) -> MetricsService:
        """See ``Services``."""
        from vgpumgr.app.metrics.source import open_metrics

        return self._stack.enter_context(open_metrics(self._machine))
