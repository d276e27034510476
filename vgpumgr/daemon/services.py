"""The services behind the operations of one machine, each opened by the first that needs it.

A command does one thing and ends: what it does not need, such as libvirt, XML or metrics, takes
longer to load than most commands take.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vgpumgr.daemon.attachments import AttachmentService
    from vgpumgr.daemon.metrics import MetricsService
    from vgpumgr.host.machine import Machine
    from vgpumgr.nvml.protocol import Nvml


class Services(Protocol):
    """What the operations are made of."""

    @property
    def attachments(self) -> AttachmentService:
        """Attachments, VMs, channels; its parts serve recovery and layouts, too."""

    @property
    def metrics(self) -> MetricsService:
        """The exposition."""


@dataclass(frozen=True)
class GivenServices:
    """Services that somebody else has opened."""

    attachments: AttachmentService
    metrics: MetricsService


class LazyServices:
    """Services of a machine; the stack closes what was opened."""

    def __init__(self, machine: Machine, nvml: Nvml, stack: ExitStack) -> None:
        self._machine = machine
        self._nvml = nvml
        self._stack = stack

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
