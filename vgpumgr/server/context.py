"""What the parts of the API share."""

from __future__ import annotations

from vgpumgr.app.history import History
from vgpumgr.app.metrics import MetricsService
from vgpumgr.host.clock import Clock
from vgpumgr.host.machine import Machine
from vgpumgr.model.frozen import dataclass
from vgpumgr.server.access import Access
from vgpumgr.server.audit import AuditLog, RefusalLog
from vgpumgr.server.connections import Limits
from vgpumgr.server.events import EventHub
from vgpumgr.server.gatekeeper import Gatekeeper
from vgpumgr.server.listener import Listener
from vgpumgr.server.operations import Operations
from vgpumgr.server.pool_reader import PoolReader
from vgpumgr.server.responses import ResponseCache
from vgpumgr.server.settings import Configuration
from vgpumgr.server.workers import WorkerPools


@dataclass(frozen=True, slots=True)
class Context:
    """One running daemon."""

    access: Access
    audit: AuditLog
    cache: ResponseCache
    clock: Clock
    hub: EventHub
    pools: WorkerPools
    limits: Limits
    operations: Operations
    pool: PoolReader
    metrics: MetricsService
    history: History
    refusals: RefusalLog
    configuration: Configuration
    machine: Machine
    gatekeeper: Gatekeeper
    listener: Listener | None = None
