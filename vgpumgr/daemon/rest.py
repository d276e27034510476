"""The API: each row of the table of routes becomes an endpoint that calls the application."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import Body as JsonBody
from fastapi import FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from vgpumgr import __version__
from vgpumgr.daemon.answers import answer_document, answer_error, explain_invalid
from vgpumgr.daemon.application import Application
from vgpumgr.daemon.bodies import find_fields, make_body
from vgpumgr.daemon.context import Context
from vgpumgr.daemon.documents import Document
from vgpumgr.daemon.etags import check_if_match, make_etag
from vgpumgr.daemon.hints import read_hints
from vgpumgr.daemon.managing import ManagingApplication
from vgpumgr.daemon.operation_documents import ErrorDocument, OperationShowDocument
from vgpumgr.daemon.preferences import read_wait_s
from vgpumgr.daemon.system_routes import add_system_routes
from vgpumgr.errors import (
    MethodNotAllowedError,
    RequestTooLargeError,
    RouteNotFoundError,
    UsageError,
    VgpumgrError,
    explain_unexpected,
)
from vgpumgr.model.routes import API, OPERATIONS, ROUTES, Kind, Route

Endpoint = Callable[..., Awaitable[Response]]
Responses = dict[int | str, dict[str, Any]]
IF_MATCH = "if_match"
IfMatch = Annotated[str | None, Header(alias="If-Match", description="the ETag it was decided on")]


def build_api(context: Context) -> FastAPI:
    """All routes, and every error in the one envelope."""
    api = FastAPI(
        title="vgpumgr",
        version="1.0",
        description="GPU manager for KVM hosts. Bodies are the documents of `-o json`.",
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}/openapi.json",
        redirect_slashes=False,
        responses={"default": {"model": ErrorDocument, "description": "An error."}},
    )
    add_system_routes(api, context, __version__)
    for route in ROUTES:
        add_route(api, context, route)
    api.add_exception_handler(Exception, _explain)
    for kind in (VgpumgrError, RequestValidationError, HTTPException):
        api.add_exception_handler(kind, _explain)
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
    api.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=route.operation,
        operation_id=route.operation,
        summary=route.summary,
        responses=responses,
        response_model=None,
        openapi_extra={"x-role": route.role.name.lower(), "x-kind": str(route.kind)},
    )


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
    document = await lane.run(lambda application: _call(application, route, params))
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

    def work(application: Application) -> Document:
        check_if_match(if_match, route.guard, application, params)
        context.cache.forget()
        return _call(application, route, params)

    if if_match is not None:
        await context.lanes.read.run(
            lambda application: check_if_match(if_match, route.guard, application, params)
        )
    operation = context.operations.start(route, params, request.state.peer, work)
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


def _call(application: Application, route: Route, params: Mapping[str, Any]) -> Document:
    document: Document = getattr(application, route.operation)(**params)
    return document


async def _explain(_request: Request, error: Exception) -> Response:
    return answer_error(explain(error))


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
