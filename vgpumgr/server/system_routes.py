"""What the daemon answers itself: the endpoints of ``SYSTEM_ROUTES``, and what their answers are."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from vgpumgr import __version__
from vgpumgr.app.documents.base import Document
from vgpumgr.app.documents.operations import (
    AccessDocument,
    AuditListDocument,
    ConfigDocument,
    HistoryDocument,
    OperationListDocument,
    OperationShowDocument,
    ServerDocument,
)
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.sockets import Peer
from vgpumgr.model.callers import ROLE_NAMES
from vgpumgr.model.routes import Role
from vgpumgr.server.audit import MAX_ENTRIES
from vgpumgr.server.context import Context
from vgpumgr.server.operations import Operation
from vgpumgr.server.responses import answer_document, answer_error, encode_document
from vgpumgr.server.settings import describe

#: a request is not held longer than this
MAX_WAIT_S = 60.0
EXTENSIONS = (
    "operations",
    "events",
    "events-vm",
    "etags",
    "audit",
    "metrics",
    "vgpus",
    "vm-xml",
    "passthrough",
    "several-attachments",
    "vendor-vfs",
    "sandboxes",
    "prefer-wait",
    "gpu-devices",
    "runs",
    "channel-sessions",
    "channel-restart",
    "checks",
    "limits",
    "config",
    "gpu-drain",
    "mig-instances",
    "gpu-health",
    "doctor-fix",
    "vm-xml-transport",
    "why-notes",
    "instance-holder",
    "gpu-sensors",
    "shares",
    "claims",
    "late-binding",
    "history",
    "audit-entries",
    "page",
    "pool",
    "claim-changes",
    "listener",
    "pool-commands",
    "pool-reservations",
)
#: answers that are no documents
TEXTS = {"stream_events": "text/event-stream", "read_metrics": "text/plain"}
#: the documents, where they are not that of an operation
MODELS: dict[str, type[Document]] = {
    "show_server": ServerDocument,
    "show_config": ConfigDocument,
    "list_operations": OperationListDocument,
    "read_history": HistoryDocument,
    "list_audit": AuditListDocument,
    "show_access": AccessDocument,
}
_ROLE_WORDS: dict[Role, Any] = {role: name for name, role in ROLE_NAMES.items()}
Id = Annotated[str, Path(alias="id", pattern="^[0-9a-f]{1,16}$", description="or its beginning")]


class SystemRoutes:
    """The endpoints of ``SYSTEM_ROUTES``, each by the name of its operation."""

    def __init__(self, context: Context, describe_api: Callable[[], dict[str, Any]]) -> None:
        self._context = context
        self._describe_api = describe_api

    async def show_server(self, request: Request) -> Response:
        """Which daemon answers."""
        listener = self._context.listener
        return answer_document(
            ServerDocument(
                version=__version__,
                api_extensions=self._list_extensions(),
                pid=os.getpid(),
                machine=self._context.machine.name,
                role="admin" if request.state.role >= Role.ADMIN else "viewer",
                listener=listener.describe() if listener else None,
                running_operations=self._context.operations.count_running(),
                pool=self._context.pool.is_member(),
            )
        )

    def _list_extensions(self) -> list[str]:
        """Without what this daemon's configuration switches off."""
        keeps = self._context.configuration.settings.history.keep
        return [name for name in EXTENSIONS if keeps or name != "history"]

    async def show_access(self, request: Request) -> Response:
        """Who calls."""
        peer: Peer = request.state.peer
        caller = peer.caller
        return answer_document(
            AccessDocument(
                caller=str(peer),
                role=_ROLE_WORDS[request.state.role],
                tenant=caller.tenant if caller else None,
                expires_s=self._context.gatekeeper.read_expiry_s(caller) if caller else None,
            )
        )

    async def show_config(self) -> Response:
        """What this daemon was configured to."""
        context = self._context
        return answer_document(describe(context.configuration, context.machine, "daemon"))

    async def show_openapi(self) -> Response:
        """The description of the API."""
        return JSONResponse(await asyncio.to_thread(self._describe_api))

    async def list_operations(self) -> Response:
        """Every operation."""
        operations = self._context.operations.list_all()
        return answer_document(OperationListDocument(operations=operations))

    async def show_operation(self, operation_id: Id) -> Response:
        """One operation."""
        return answer_operation(self._context.operations.find(operation_id))

    async def wait_operation(
        self, operation_id: Id, timeout_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 30.0
    ) -> Response:
        """One operation, when it has ended or the time is over."""
        operation = self._context.operations.find(operation_id)
        with contextlib.suppress(TimeoutError):  # the caller sees that it runs on
            await asyncio.wait_for(operation.over.wait(), timeout_s)
        return answer_operation(operation)

    async def cancel_operation(self, operation_id: Id) -> Response:
        """One operation that ends before its next step."""
        operation = self._context.operations.find(operation_id)
        self._context.operations.cancel(operation)
        return answer_operation(operation, 202)

    async def stream_events(
        self,
        request: Request,
        last: Annotated[
            int | None, Header(alias="Last-Event-ID", description="resume behind this one")
        ] = None,
    ) -> Response:
        """Events, as they happen."""
        return _EventStream(self._context, request.state.peer, last)

    async def read_metrics(
        self,
        accept: Annotated[str, Header(description="OpenMetrics, or else Prometheus' text")] = "",
    ) -> Response:
        """The exposition."""
        read = self._context.metrics.read_metrics
        openmetrics = "application/openmetrics-text" in accept
        document = await asyncio.to_thread(read, openmetrics=openmetrics)
        # not as media_type: the version in it is part of the contract
        return Response(document.text, headers={"content-type": document.content_type})

    async def read_history(
        self,
        gpu: Annotated[
            str | None,
            Query(max_length=256, description="UUID, or address of a GPU without NVML; null: all"),
        ] = None,
        vm: Annotated[
            str | None, Query(max_length=256, description="name of a VM; null: all")
        ] = None,
        pool: Annotated[bool, Query(description="those of the pool alone")] = False,
    ) -> Response:
        """Figures of the last hour."""
        taken = self._context.history.take(gpu, vm, pool)
        # a full hour takes a while, in which the loop answers others
        body = await asyncio.to_thread(lambda: encode_document(taken.describe()))
        return Response(body, media_type="application/json")

    async def list_audit(
        self, limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES, description="entries")] = 100
    ) -> Response:
        """The last entries of the audit log."""
        entries = await asyncio.to_thread(self._context.audit.read_last, limit)
        return answer_document(AuditListDocument(entries=entries))


def answer_operation(
    operation: Operation, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return answer_document(OperationShowDocument(operation=operation.document), status, headers)


class _EventStream(StreamingResponse):
    """Server-sent events; the stream counts against the caller's limit while it lasts."""

    def __init__(self, context: Context, peer: Peer | None, last: int | None) -> None:
        super().__init__(context.hub.stream(last), media_type="text/event-stream")
        self._context = context
        self._peer = peer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See Starlette."""
        rank = self._context.access.find_rank(self._peer)
        try:
            with self._context.limits.find_listeners(self._peer).hold(self._peer, rank):
                await super().__call__(scope, receive, send)
        except VgpumgrError as error:
            await answer_error(error)(scope, receive, send)
