"""What the parts of the API share."""

from __future__ import annotations

from dataclasses import dataclass

from vgpumgr.daemon.access import Access
from vgpumgr.daemon.audit import AuditLog
from vgpumgr.daemon.cache import AnswerCache
from vgpumgr.daemon.events import EventHub
from vgpumgr.daemon.lanes import Lanes
from vgpumgr.daemon.metrics import MetricsService
from vgpumgr.daemon.operations import Operations
from vgpumgr.host.clock import Clock


@dataclass(frozen=True, slots=True)
class Context:
    """One running daemon."""

    machine_name: str | None
    access: Access
    audit: AuditLog
    cache: AnswerCache
    clock: Clock
    hub: EventHub
    lanes: Lanes
    operations: Operations
    metrics: MetricsService
