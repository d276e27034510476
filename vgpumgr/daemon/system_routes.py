"""What the daemon answers itself: about itself, its operations and its events."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from vgpumgr.daemon.answers import answer_document
from vgpumgr.daemon.context import Context
from vgpumgr.daemon.documents import Document
from vgpumgr.daemon.operation_documents import (
    OperationListDocument,
    OperationShowDocument,
    ServerDocument,
)
from vgpumgr.daemon.preferences import MAX_WAIT_S
from vgpumgr.errors import DaemonBusyError
from vgpumgr.model.routes import SYSTEM_ROUTES, Role

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
    "prefer-wait",
)
#: what is no document
_TEXTS = {"stream_events": "text/event-stream", "read_metrics": "text/plain"}
Endpoint = Callable[..., Awaitable[Response]]
Id = Annotated[str, Path(alias="id", pattern="^[0-9a-f]{1,16}$", description="or its beginning")]


def add_system_routes(api: FastAPI, context: Context, version: str) -> None:
    """Adds them all; the table says where they are and who may call them."""
    endpoints = {
        "show_server": _make_show_server(context, version),
        "list_operations": _make_list(context),
        "show_operation": _make_show(context),
        "wait_operation": _make_wait(context),
        "cancel_operation": _make_cancel(context),
        "stream_events": _make_events(context),
        "read_metrics": _make_metrics(context),
    }
    models: dict[str, type[Document] | None] = {
        "show_server": ServerDocument,
        "list_operations": OperationListDocument,
        "stream_events": None,
        "read_metrics": None,
    }
    for route in SYSTEM_ROUTES:
        if route.operation == "show_openapi":
            continue  # FastAPI's own
        model = models.get(route.operation, OperationShowDocument)
        content: dict[str, Any] = (
            {"model": model} if model else {"content": {_TEXTS[route.operation]: {}}}
        )
        status = 202 if route.operation == "cancel_operation" else 200
        api.add_api_route(
            route.path, endpoints[route.operation], methods=[route.method],
            operation_id=route.operation, name=route.operation, summary=route.summary,
            response_model=None, status_code=status,
            responses={status: {**content, "description": route.summary}},
            openapi_extra={"x-role": route.role.name.lower(), "x-kind": str(route.kind)},
        )  # fmt: skip


def _make_show_server(context: Context, version: str) -> Endpoint:
    async def show_server(request: Request) -> Response:
        return answer_document(
            ServerDocument(
                version=version,
                api_extensions=list(EXTENSIONS),
                pid=os.getpid(),
                machine=context.machine_name,
                role="admin" if request.state.role is Role.ADMIN else "viewer",
                running_operations=context.operations.count_running(),
            )
        )

    return show_server


def _make_list(context: Context) -> Endpoint:
    async def list_operations() -> Response:
        return answer_document(OperationListDocument(operations=context.operations.list_all()))

    return list_operations


def _make_show(context: Context) -> Endpoint:
    async def show_operation(operation_id: Id) -> Response:
        operation = context.operations.find(operation_id)
        return answer_document(OperationShowDocument(operation=operation.document))

    return show_operation


def _make_wait(context: Context) -> Endpoint:
    async def wait_operation(
        operation_id: Id, timeout_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 30.0
    ) -> Response:
        operation = context.operations.find(operation_id)
        with contextlib.suppress(TimeoutError):  # the caller sees that it runs on
            await asyncio.wait_for(operation.over.wait(), timeout_s)
        return answer_document(OperationShowDocument(operation=operation.document))

    return wait_operation


def _make_cancel(context: Context) -> Endpoint:
    async def cancel_operation(operation_id: Id) -> Response:
        operation = context.operations.find(operation_id)
        context.operations.cancel(operation)
        return answer_document(OperationShowDocument(operation=operation.document), 202)

    return cancel_operation


def _make_events(context: Context) -> Endpoint:
    async def stream_events(
        last: Annotated[
            int | None, Header(alias="Last-Event-ID", description="resume behind this one")
        ] = None,
    ) -> Response:
        if not context.hub.has_room:
            raise DaemonBusyError("too many listen already")
        return StreamingResponse(context.hub.stream(last), media_type="text/event-stream")

    return stream_events


def _make_metrics(context: Context) -> Endpoint:
    async def read_metrics(
        accept: Annotated[str, Header(description="OpenMetrics, or else Prometheus' text")] = "",
    ) -> Response:
        openmetrics = "application/openmetrics-text" in accept
        document = await asyncio.to_thread(context.metrics.read_metrics, openmetrics=openmetrics)
        # not as media_type: the version in it is part of the contract
        return Response(document.text, headers={"content-type": document.content_type})

    return read_metrics
