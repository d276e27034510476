"""The API: each row of the table of routes becomes an endpoint that calls the application."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import Body as JsonBody
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from vgpumgr import __version__
from vgpumgr.app.application import Application
from vgpumgr.app.documents.base import Document
from vgpumgr.app.documents.operations import (
    ErrorDocument,
    OperationListDocument,
    OperationShowDocument,
    ServerDocument,
)
from vgpumgr.app.managing import ManagingApplication
from vgpumgr.errors import (
    AccessDeniedError,
    MethodNotAllowedError,
    RequestTooLargeError,
    RouteNotFoundError,
    UsageError,
    VgpumgrError,
    explain_unexpected,
)
from vgpumgr.host.peer import Peer
from vgpumgr.model.routes import OPERATIONS, ROUTES, SYSTEM_ROUTES, Kind, Role, Route
from vgpumgr.server.context import Context
from vgpumgr.server.requests import MAX_WAIT_S, find_fields, make_body, read_hints, read_wait_s
from vgpumgr.server.responses import (
    answer_document,
    answer_error,
    check_if_match,
    explain_invalid,
    make_etag,
)

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
        "show_openapi": _make_openapi(api),
    }
    models: dict[str, type[Document] | None] = {
        "show_server": ServerDocument,
        "list_operations": OperationListDocument,
        "stream_events": None,
        "read_metrics": None,
    }
    for route in SYSTEM_ROUTES:
        if route.operation == "show_openapi":
            add_endpoint(api, context, route, endpoints[route.operation], {}, is_described=False)
            continue
        model = models.get(route.operation, OperationShowDocument)
        content: dict[str, Any] = (
            {"model": model} if model else {"content": {_TEXTS[route.operation]: {}}}
        )
        status = 202 if route.operation == "cancel_operation" else 200
        responses: Responses = {status: {**content, "description": route.summary}}
        add_endpoint(api, context, route, endpoints[route.operation], responses, status)


def add_endpoint(
    api: FastAPI,
    context: Context,
    route: Route,
    endpoint: Endpoint,
    responses: Responses,
    status: int | None = None,
    *,
    is_described: bool = True,
) -> None:
    """Adds a route with the check of its caller's role. Every route is added here."""

    async def check_role(request: Request) -> None:
        context.access.authorize(request.state.peer, route.operation)

    api.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=route.operation,
        operation_id=route.operation,
        summary=route.summary,
        responses=responses,
        response_model=None,
        status_code=status,
        dependencies=[Depends(check_role)],
        include_in_schema=is_described,
        openapi_extra={"x-role": route.role.name.lower(), "x-kind": str(route.kind)},
    )


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
            self._context.limits.listeners.take(self._peer, rank)
        except VgpumgrError as error:
            await answer_error(error)(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._context.limits.listeners.give_back(self._peer)


def _make_openapi(api: FastAPI) -> Endpoint:
    async def show_openapi() -> Response:
        return JSONResponse(api.openapi())

    return show_openapi


def _make_events(context: Context) -> Endpoint:
    async def stream_events(
        request: Request,
        last: Annotated[
            int | None, Header(alias="Last-Event-ID", description="resume behind this one")
        ] = None,
    ) -> Response:
        return _EventStream(context, request.state.peer, last)

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


Endpoint = Callable[..., Awaitable[Response]]
Responses = dict[int | str, dict[str, Any]]
IF_MATCH = "if_match"
IfMatch = Annotated[str | None, Header(alias="If-Match", description="the ETag it was decided on")]


def build_api(context: Context) -> FastAPI:
    """All routes, and every error in the one envelope."""

    async def explain_error(request: Request, error: Exception) -> Response:
        if isinstance(error, AccessDeniedError):  # the gate did not refuse the request
            target = request.scope["raw_path"].decode("latin-1")
            context.refusals.note(request.state.peer, request.method, target)
        return answer_error(explain(error))

    api = FastAPI(
        title="vgpumgr",
        version="1.0",
        description="GPU manager for KVM hosts. Bodies are the documents of `-o json`.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        responses={"default": {"model": ErrorDocument, "description": "An error."}},
    )
    add_system_routes(api, context, __version__)
    for route in ROUTES:
        add_route(api, context, route)
    for kind in (Exception, VgpumgrError, RequestValidationError, HTTPException):
        api.add_exception_handler(kind, explain_error)
    return api


def add_route(api: FastAPI, context: Context, route: Route) -> None:
    """One row of the table."""
    method = getattr(ManagingApplication, route.operation)
    document: type[Document] = read_hints(method)["return"]
    fields = find_fields(route.operation, method)
    endpoint = _make_endpoint(context, route, fields)
    responses: Responses = {200: {"model": document, "description": "The document."}}
    if route.kind is Kind.LONG:
        responses[202] = {
            "model": OperationShowDocument, "description": "Begun; Location names the operation.",
        }  # fmt: skip
        responses[200]["description"] = "What would be done (dry run)."
    add_endpoint(api, context, route, endpoint, responses)


def _make_endpoint(
    context: Context, route: Route, fields: Mapping[str, tuple[Any, Any]]
) -> Endpoint:
    """A function whose signature tells FastAPI what the request has."""
    asked, names = _make_parameters(route, fields)

    async def endpoint(request: Request, **values: Any) -> Response:
        body = values.pop("body", None)
        if_match = values.pop(IF_MATCH, None)
        params = {name: values[name] for name in names}
        if isinstance(body, BaseModel):
            params |= {name: getattr(body, name) for name in body.model_fields_set}
        if route.kind is Kind.READ or params.get("dry_run"):
            return await _read(context, route, request, params)
        return await _start(context, route, request, params, if_match)

    first = inspect.Parameter(
        "request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request
    )
    endpoint.__signature__ = inspect.Signature([first, *asked])  # type: ignore[attr-defined]
    endpoint.__annotations__ = {}
    return endpoint


def _make_parameters(
    route: Route, fields: Mapping[str, tuple[Any, Any]]
) -> tuple[list[inspect.Parameter], list[str]]:
    """Those of the path; of the rest, the query's for a read, else those of a JSON body."""
    in_path = [name for name in fields if f"{{{name}}}" in route.path]
    rest = {name: field for name, field in fields.items() if name not in in_path}
    asked = [_keyword(name, Annotated[fields[name][0], Path()]) for name in in_path]
    if route.method == "GET":
        asked += [_keyword(n, Annotated[hint, Query()], d) for n, (hint, d) in rest.items()]
        return asked, [*in_path, *rest]
    if rest:
        needed = any(default is ... for _, default in rest.values())
        model = make_body(route.operation, rest)
        hint: Any = model if needed else model | None
        asked.append(_keyword("body", Annotated[hint, JsonBody()], ... if needed else None))
    if route.guard:
        asked.append(_keyword(IF_MATCH, IfMatch, None))
    return asked, in_path


def _keyword(name: str, annotation: Any, default: Any = ...) -> inspect.Parameter:
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=annotation,
        default=empty if default is ... else default,
    )


async def _read(
    context: Context, route: Route, request: Request, params: Mapping[str, Any]
) -> Response:
    lane = context.lanes.urgent if route.urgent else context.lanes.read
    epoch = context.cache.epoch
    peer = request.state.peer
    document = await lane.run(
        lambda application: _call(context, application, route, peer, params),
        context.access.find_rank(peer),
    )
    etag = make_etag(document) if route.guard and route.kind is Kind.READ else None
    response = answer_document(document, headers={"ETag": etag} if etag else None)
    if route.cached and not request.url.query:
        context.cache.keep(request.url.path, bytes(response.body), etag, epoch)
    return response


async def _start(
    context: Context,
    route: Route,
    request: Request,
    params: Mapping[str, Any],
    if_match: str | None,
) -> Response:
    """Begins an operation; what If-Match already rules out is refused at once."""

    peer = request.state.peer
    rank = context.access.find_rank(peer)

    def work(application: Application) -> Document:
        check_if_match(if_match, route.guard, application, params)
        context.cache.forget()
        return _call(context, application, route, peer, params)

    if if_match is not None:
        await context.lanes.read.run(
            lambda application: check_if_match(if_match, route.guard, application, params), rank
        )
    operation = context.operations.start(route, params, peer, work, rank)
    headers = {"Location": f"{OPERATIONS}/{operation.document.id}"}
    wait_s = read_wait_s(request.headers.getlist("prefer"))
    if route.kind is Kind.CHANGE:
        await operation.over.wait()
    elif wait_s is not None:
        headers["Preference-Applied"] = f"wait={wait_s:g}"
        with contextlib.suppress(TimeoutError):  # the caller sees that it runs on
            await asyncio.wait_for(operation.over.wait(), wait_s)
    document = OperationShowDocument(operation=operation.document)
    return answer_document(document, 202, headers)


def _call(
    context: Context,
    application: Application,
    route: Route,
    peer: Peer | None,
    params: Mapping[str, Any],
) -> Document:
    """Runs an operation. Checks the caller's role independently of the way of the request."""
    context.access.authorize(peer, route.operation)
    document: Document = getattr(application, route.operation)(**params)
    return document


def explain(error: Exception) -> VgpumgrError:
    """Any exception as one of our errors."""
    if isinstance(error, VgpumgrError):
        return error
    if isinstance(error, RequestValidationError):
        return explain_invalid(error)
    if isinstance(error, HTTPException):
        return _explain_http(error)
    return explain_unexpected(error, "the daemon")


def _explain_http(error: HTTPException) -> VgpumgrError:
    hint = "vgpumgr api GET /1.0/openapi.json"
    if error.status_code == 404:
        return RouteNotFoundError("the API has no such path", hint=hint)
    if error.status_code == 405:
        return MethodNotAllowedError("the API has no such method on this path", hint=hint)
    if error.status_code == 413:
        return RequestTooLargeError("the request is too large")
    return UsageError("the request cannot be read", cause=str(error.detail)[:200], hint=hint)
