"""The API: each row of the table of routes becomes an endpoint that calls the application."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fastapi import Body as JsonBody
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model
from starlette.exceptions import HTTPException

from vgpumgr.app.application import Application, find_operation
from vgpumgr.app.documents import gpus, operations
from vgpumgr.app.documents.base import Document
from vgpumgr.app.documents.operations import (
    ErrorDocument,
    OperationShowDocument,
)
from vgpumgr.errors import (
    AccessDeniedError,
    MethodNotAllowedError,
    RequestTooLargeError,
    RouteNotFoundError,
    UsageError,
    VgpumgrError,
    explain_unexpected,
)
from vgpumgr.host.process import acting_for
from vgpumgr.host.sockets import Peer
from vgpumgr.model.choices import (
    MAX_COUNT,
    RUN_NAME,
    ComputePolicy,
    Display,
    Numa,
    Priority,
    Transport,
)
from vgpumgr.model.gpu import MAX_REASON
from vgpumgr.model.request import MAX_HELLO_TIMEOUT_S, AttachRequest
from vgpumgr.model.routes import OPERATIONS, ROUTES, SYSTEM_ROUTES, Kind, Route
from vgpumgr.server.context import Context
from vgpumgr.server.descriptions import add_descriptions
from vgpumgr.server.pool_changes import MODELS as CHANGE_MODELS
from vgpumgr.server.pool_changes import PoolChanges
from vgpumgr.server.pool_routes import MODELS as POOL_MODELS
from vgpumgr.server.pool_routes import PoolRoutes
from vgpumgr.server.responses import (
    answer_document,
    answer_error,
    check_if_match,
    explain_invalid,
    make_etag,
)
from vgpumgr.server.system_routes import MAX_WAIT_S, MODELS, TEXTS, SystemRoutes, answer_operation


def add_system_routes(api: FastAPI, context: Context) -> None:
    """Adds what the daemon answers itself; the table says where, and who may call it."""
    parts = (SystemRoutes(context, describe_api), PoolRoutes(context), PoolChanges(context))
    for route in SYSTEM_ROUTES:
        text = TEXTS.get(route.operation)
        content: dict[str, Any] = (
            {"content": {text: {}}}
            if text
            else {
                "model": (MODELS | POOL_MODELS | CHANGE_MODELS).get(
                    route.operation, OperationShowDocument
                )
            }
        )
        status = 202 if route.operation == "cancel_operation" else 200
        responses: Responses = {status: {**content, "description": route.summary}}
        endpoint = next(
            getattr(part, route.operation) for part in parts if hasattr(part, route.operation)
        )
        if route.operation == "show_openapi":
            add_endpoint(api, context, route, endpoint, {}, in_schema=False)
        else:
            add_endpoint(api, context, route, endpoint, responses, status)


def add_endpoint(
    api: FastAPI,
    context: Context,
    route: Route,
    endpoint: Endpoint,
    responses: Responses,
    status: int | None = None,
    *,
    in_schema: bool = True,
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
        include_in_schema=in_schema,
        openapi_extra={
            "x-role": route.role.name.lower(),
            "x-kind": str(route.kind),
            "x-tenant": route.tenant,
            "x-local": route.local,
        },
    )


#: of the listener on a network
SECURITY_SCHEMES: dict[str, Any] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of vgpumgr token create.",
    },
    "certificate": {
        "type": "mutualTLS",
        "description": "A client's certificate, for whose subject there is a token.",
    },
}
Endpoint = Callable[..., Awaitable[Response]]
Responses = dict[int | str, dict[str, Any]]
IF_MATCH = "if_match"
IfMatch = Annotated[str | None, Header(alias="If-Match", description="the ETag it was decided on")]


class _ServingApi(FastAPI):
    """Has no models of answers. They take half of a daemon's start, and only the description needs them."""

    def add_api_route(self, path: str, endpoint: Endpoint, **options: Any) -> None:
        """See FastAPI."""
        super().add_api_route(path, endpoint, **options | {"responses": {}})


@functools.cache
def describe_api() -> dict[str, Any]:
    """The OpenAPI document, without a machine."""
    context: Any = None
    errors: Responses = {"default": {"model": ErrorDocument, "description": "An error."}}
    document = build_api(context, functools.partial(FastAPI, responses=errors)).openapi()
    add_descriptions(document)
    document["components"]["securitySchemes"] = SECURITY_SCHEMES
    # of the three one is enough; on the daemon's socket the kernel names the caller
    document["security"] = [{}, *({name: []} for name in SECURITY_SCHEMES)]
    return document


def build_api(context: Context, make: Callable[..., FastAPI] = _ServingApi) -> FastAPI:
    """All routes, and every error in the one envelope."""

    async def explain_error(request: Request, error: Exception) -> Response:
        if isinstance(error, AccessDeniedError):  # the middleware did not refuse the request
            target = request.scope["raw_path"].decode("latin-1")
            context.refusals.note(request.state.peer, request.method, target)
        return answer_error(explain(error))

    api = make(
        title="vgpumgr",
        version="1.0",
        description="GPU manager for KVM hosts. Bodies are the documents of `-o json`.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    add_system_routes(api, context)
    for route in ROUTES:
        add_route(api, context, route)
    for kind in (Exception, VgpumgrError, RequestValidationError, HTTPException):
        api.add_exception_handler(kind, explain_error)
    return api


def add_route(api: FastAPI, context: Context, route: Route) -> None:
    """One row of the table."""
    method = find_operation(route.operation)
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
    pool = context.pools.urgent if route.urgent else context.pools.read
    epoch = context.cache.epoch
    peer = request.state.peer
    document = await pool.run(
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
        await context.pools.read.run(
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
    return answer_operation(operation, 202, headers)


def _call(
    context: Context,
    application: Application,
    route: Route,
    peer: Peer | None,
    params: Mapping[str, Any],
) -> Document:
    """Runs an operation. Checks the caller's role independently of the way of the request."""
    context.access.authorize(peer, route.operation)
    remote = peer.caller if peer else None
    with acting_for(str(remote) if remote else peer.uid if peer else None):
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


#: names, selectors: no control characters, and short
Text = Annotated[
    str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")
]
#: a file's content; the reader of the file has its own, narrower bounds
FileText = Annotated[str, StringConstraints(max_length=1 << 20)]
_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)


class Body(BaseModel):
    """Base: unknown fields are refused, and values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


#: names of drivers and modules
DriverName = Annotated[
    str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")
]
#: a quota as drivers call it, and the words that one of them takes
QuotaName = Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)?$")]
QuotaWord = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,16}$")]
_Attributes = Annotated[list[Text], Field(max_length=64)]

#: of a run: what a word of a command line can be, and no option
RunName = Annotated[str, StringConstraints(pattern=RUN_NAME)]

#: the bounds of parameters, by the name of the parameter or of operation and parameter; a ``str`` without
#: an entry is a ``Text``
BOUNDS: Mapping[str, Any] = {
    "text": FileText,
    "allow": list[Text],
    "driver": DriverName | None,
    "quotas": dict[QuotaName, Annotated[int, Field(ge=0, lt=1 << 63)] | QuotaWord],
    "timeout_s": Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)],
    "placement": Annotated[int, Field(ge=0, le=1 << 31)] | None,
    "hello_timeout_s": Annotated[float, Field(ge=0, le=MAX_HELLO_TIMEOUT_S, allow_inf_nan=False)],
    "attach.count": Annotated[int, Field(ge=1, le=MAX_COUNT)],
    "attach.compute_policy": Literal[tuple(map(str, ComputePolicy))] | None,
    "start_run.compute_policy": Literal[tuple(map(str, ComputePolicy))] | None,
    "attach.priority": Literal[tuple(map(str, Priority))] | None,
    "start_run.priority": Literal[tuple(map(str, Priority))] | None,
    "set_share.priority": Literal[tuple(map(str, Priority))] | None,
    "set_share.memory_bytes": Annotated[int, Field(ge=0, lt=1 << 63)] | None,
    "set_share.compute": Annotated[float, Field(ge=0, le=1 << 31, allow_inf_nan=False)] | None,
    "attach.transport": Literal[tuple(map(str, Transport))],
    "show_vm_xml.transport": Literal[tuple(map(str, Transport))],
    "attach.display": Literal[tuple(map(str, Display))],
    "attach.numa": Literal[tuple(map(str, Numa))],
    # strict: a list of JSON is no tuple
    "limits": Annotated[tuple[Text, ...], Field(max_length=64, strict=False)],
    "create_mig.count": Annotated[int, Field(ge=1, le=MAX_COUNT)],
    "create_mig.start": Annotated[int, Field(ge=0, le=1 << 31)] | None,
    "destroy_mig.instances": Annotated[list[Text], Field(max_length=512)],
    "destroy_mig.gpus": Annotated[list[Text], Field(max_length=512)],
    "drain_gpu.reason": Annotated[str, StringConstraints(max_length=MAX_REASON)] | None,
    "start_run.name": RunName,
    "start_run.pid": Annotated[int, Field(ge=1, lt=1 << 31)],
    "bind_claim.pid": Annotated[int, Field(ge=1, lt=1 << 31)],
    "enable_vfs.count": Annotated[int, Field(ge=0, le=65535)] | None,
    "create_vgpu.attributes": _Attributes,
    "define_vgpu.attributes": _Attributes | None,
}


def find_fields(operation: str, method: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The parameters of an operation with their bounds: name to type and default (``...`` for none)."""
    signature = inspect.signature(AttachRequest if operation == "attach" else method)
    hints = read_hints(AttachRequest if operation == "attach" else method)
    # the first parameter of a method is no parameter of the operation
    named = list(signature.parameters.items())[0 if operation == "attach" else 1 :]
    fields = {}
    for name, parameter in named:
        bounds = BOUNDS.get(f"{operation}.{name}") or BOUNDS.get(name)
        hint = _bound(hints[name]) if bounds is None else bounds
        fields[name] = (hint, _find_default(parameter.default))
    return fields | ({"dry_run": (bool, False)} if operation == "attach" else {})


def _bound(hint: Any) -> Any:
    """A plain ``str`` becomes a short one."""
    if hint is str:
        return Text
    if get_origin(hint) is not Annotated and str in get_args(hint) and NoneType in get_args(hint):
        return Union[Text, None]  # noqa: UP007  # Annotated has no operator |
    return hint


def _find_default(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return ...
    if isinstance(default, Enum):
        return str(default)
    if isinstance(default, Mapping):
        return dict(default)
    return [] if default == () else default


#: of bodies: what names and types do not say
_DESCRIPTIONS = {
    "apply_layout": "``expected`` is the digest of the plan that was shown.",
    "create_mig": "``start`` is a place on the memory axis; null: where they leave the most capacity.",
    "create_vgpu": "``attributes`` are NAME=VALUE, written in order.",
    "define_vgpu": "A vGPU of ours, or with ``type`` a new one that is started later. Null keeps what a definition "
    "has; a new one starts when asked for.",
    "destroy_mig": "``instances`` are MIG UUIDs or GPU/INSTANCE; of ``gpus`` all go. None of them may be in use.",
    "plan_layout": "The text of a layout file or of a saved plan, and where it came from.",
    "restore_mig": "As ``apply_layout``, of a checkpoint.",
}


def make_body(operation: str, fields: Mapping[str, tuple[Any, Any]]) -> type[BaseModel]:
    """The model of a JSON body with these fields."""
    name = "".join(part.title() for part in operation.split("_")) + "Body"
    models: dict[str, Any] = dict(fields)
    return create_model(name, __base__=Body, __doc__=_DESCRIPTIONS.get(operation), **models)


def read_hints(function: Callable[..., Any] | type) -> dict[str, Any]:
    """As ``typing.get_type_hints`` with extras, of an operation or a class of parameters."""
    # the application imports these documents where it makes one
    return get_type_hints(function, localns=vars(gpus) | vars(operations), include_extras=True)


def read_wait_s(preferences: Sequence[str]) -> float | None:
    """How long the caller would wait for the end of what is begun; None: not at all. What cannot be
    read is ignored, as preferences are.
    """
    for words in preferences:
        for word in re.split("[,;]", words):
            match = _WAIT.fullmatch(word.strip())
            if match is not None:
                return min(float(match[1]), MAX_WAIT_S)
    return None
