"""Requests: the models of JSON bodies, most of them made from signatures of operations, and the header ``Prefer``."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from vgpumgr.app.documents import base as documents
from vgpumgr.app.operations.layouts import LayoutService
from vgpumgr.app.operations.restore import TIMEOUT_S
from vgpumgr.model.request import (
    HELLO_TIMEOUT_S,
    MAX_COUNT,
    MAX_HELLO_TIMEOUT_S,
    AttachRequest,
    Display,
    Numa,
    Transport,
)

#: names, selectors: no control characters, and short
Text = Annotated[
    str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")
]
#: a file's content; the reader of the file has its own, narrower bounds
FileText = Annotated[str, StringConstraints(max_length=1 << 20)]
#: a request is not held longer than this
MAX_WAIT_S = 60.0
_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)
#: the application imports a document's module where it makes one, so its annotations need these names
_MODULES = [
    import_module(f"vgpumgr.app.documents.{name}")
    for name in (
        "attachments",
        "base",
        "capacity",
        "functions",
        "layouts",
        "operations",
        "recovery",
        "vgpus",
    )
]
_DOCUMENTS = {
    name: kind
    for module in _MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, documents.Document)
}


class Body(BaseModel):
    """Base: unknown fields are refused, and values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _bound(hint: Any) -> Any:
    """A plain ``str`` becomes a short one."""
    if hint is str:
        return Text
    if get_origin(hint) is not Annotated and str in get_args(hint) and NoneType in get_args(hint):
        return Union[Text, None]  # noqa: UP007  # Annotated has no operator |
    return hint


def _make_attach_body() -> type[Body]:
    """The fields of ``AttachRequest``, with bounds for what comes from outside."""
    timeout = Field(HELLO_TIMEOUT_S, ge=0, le=MAX_HELLO_TIMEOUT_S, allow_inf_nan=False)
    bounded: dict[str, tuple[Any, Any]] = {
        "hello_timeout_s": (float, timeout),
        "count": (int, Field(1, ge=1, le=MAX_COUNT)),
    }
    enumerations = {"transport": Transport, "display": Display, "numa": Numa}
    hints, fields = get_type_hints(AttachRequest), dict[str, Any]()
    for field in dataclasses.fields(AttachRequest):
        default = ... if field.default is dataclasses.MISSING else field.default
        if (values := enumerations.get(field.name)) is not None:
            fields[field.name] = (Literal[tuple(map(str, values))], str(default))
        else:
            fields[field.name] = bounded.get(field.name, (_bound(hints[field.name]), default))
    fields["dry_run"] = (bool, False)
    return create_model("AttachBody", __base__=Body, __doc__="``attach``.", **fields)


AttachBody = _make_attach_body()


class LayoutBody(Body):
    """``plan_layout``: a layout file's or a saved plan's text, and where it came from."""

    text: FileText
    source: Text
    name: Text | None = None
    allow: list[Text] = []


class AssertLayoutBody(Body):
    """``assert_layout``."""

    text: FileText
    source: Text
    name: Text | None = None


class ApplyLayoutBody(LayoutBody):
    """``apply_layout``; ``expected`` is the digest of the plan that was shown."""

    dry_run: bool = False
    expected: Text | None = None


class RestoreMigBody(Body):
    """``restore_mig``: as ``apply_layout``, of a checkpoint."""

    text: FileText
    source: Text
    allow: list[Text] = []
    dry_run: bool = False
    expected: Text | None = None


class MigModeBody(Body):
    """``set_mig_mode``."""

    gpu: Text
    enabled: bool
    dry_run: bool = False
    expected: Text | None = None


class RestoreBody(Body):
    """``restore``."""

    timeout_s: float = Field(TIMEOUT_S, gt=0, le=3600, allow_inf_nan=False)
    early: bool = False
    boot: bool = False


#: a quota as drivers call it, and the words that one of them takes
QuotaName = Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)?$")]
QuotaWord = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,16}$")]
#: names of drivers and modules
DriverName = Annotated[
    str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")
]


class BindPciBody(Body):
    """``bind_pci``."""

    selector: Text
    driver: DriverName | None = None
    companions: Literal["vfio", "stub", "keep"] = "vfio"
    whole_group: bool = False
    persist: bool | None = None
    confirmed: bool = False
    dry_run: bool = False


class UnbindPciBody(Body):
    """``unbind_pci``."""

    selector: Text
    driver: DriverName | None = None
    only: bool = False
    confirmed: bool = False
    dry_run: bool = False


class EnableVfsBody(Body):
    """``enable_vfs``."""

    selector: Text
    count: int | None = Field(None, ge=0, le=65535)
    persist: bool = False
    quotas: dict[QuotaName, Annotated[int, Field(ge=0, lt=1 << 63)] | QuotaWord] = {}
    confirmed: bool = False
    dry_run: bool = False


class CreateVgpuBody(Body):
    """``create_vgpu``: ``attributes`` are NAME=VALUE, written in order."""

    type: Text
    gpu: Text | None = None
    uuid: Text | None = None
    attributes: Annotated[list[Text], Field(max_length=64)] = []
    placement: int | None = Field(None, ge=0, le=1 << 31)
    mixed_sizes: bool = False
    define: bool = False
    auto: bool = False
    spread: bool = False
    dry_run: bool = False


class DefineVgpuBody(Body):
    """``define_vgpu``: a vGPU of ours, or with ``type`` a new one that is started later. Null leaves
    what a definition says already; a new one starts when asked for.
    """

    vgpu: Text | None = None
    type: Text | None = None
    gpu: Text | None = None
    attributes: Annotated[list[Text], Field(max_length=64)] | None = None
    auto: bool | None = None
    dry_run: bool = False


#: operation to its body, or to the function that its keywords go to
BODIES: Mapping[str, type[Body] | Callable[..., Any]] = {
    "attach": AttachBody,
    "plan_layout": LayoutBody,
    "assert_layout": AssertLayoutBody,
    "apply_layout": ApplyLayoutBody,
    "restore_mig": RestoreMigBody,
    "export_layout": LayoutService.export,
    "set_mig_mode": MigModeBody,
    "restore": RestoreBody,
    "bind_pci": BindPciBody,
    "unbind_pci": UnbindPciBody,
    "enable_vfs": EnableVfsBody,
    "create_vgpu": CreateVgpuBody,
    "define_vgpu": DefineVgpuBody,
}


def find_fields(operation: str, method: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The parameters of an operation: name to type and default (``...`` for none)."""
    chosen = BODIES.get(operation, method)
    if isinstance(chosen, type) and issubclass(chosen, Body):
        return {
            name: (field.annotation, ... if field.is_required() else field)
            for name, field in chosen.model_fields.items()
        }
    hints = read_hints(chosen)
    fields = {}
    for name, parameter in inspect.signature(chosen).parameters.items():
        if name == "self":
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise TypeError(f"{operation} takes any keyword: name its body in BODIES")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (_bound(hints[name]), default)
    return fields


def make_body(operation: str, fields: Mapping[str, tuple[Any, Any]]) -> type[BaseModel]:
    """The model of a JSON body with these fields."""
    chosen = BODIES.get(operation)
    if (
        isinstance(chosen, type)
        and issubclass(chosen, Body)
        and set(chosen.model_fields) == set(fields)
    ):
        return chosen
    name = "".join(part.title() for part in operation.split("_")) + "Body"
    models: dict[str, Any] = dict(fields)
    return create_model(name, __base__=Body, **models)


def read_hints(function: Callable[..., Any] | type) -> dict[str, Any]:
    """As ``typing.get_type_hints`` with extras, of an operation or a class of parameters."""
    return get_type_hints(function, localns=_DOCUMENTS, include_extras=True)


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
