"""The documents that leave the program: ``-o json`` today, the REST API's bodies with it.

These fields are the public contract, ``schema`` names its version. Sizes are bytes, ratios are 0 to
1; null means that the host does not say. Fields may be added within a version, none is removed or
changes its meaning.

Documents are dataclasses, which ``model.codec`` writes and reads; pydantic reads their declarations for
the API's description alone.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

from vgpumgr.model.codec import decode, encode

if TYPE_CHECKING:
    from vgpumgr.engine.step import Plan

AnyPlan = TypeVar("AnyPlan", bound="VgpuPlanDocument")

SCHEMA: Literal["vgpumgr/v1"] = "vgpumgr/v1"


def Field(  # noqa: N802  # declares, as pydantic's does
    *,
    description: str | None = None,
    in_json: str | None = None,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
) -> Any:
    """A document's field. ``in_json`` is its name there where Python keeps that for itself: it is
    the field's own without the underscore at its end.
    """
    known = {"description": description, "alias": in_json}
    metadata = {name: value for name, value in known.items() if value is not None}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Document:
    """Base of all documents; each subclass is a dataclass, equal by value, whose values do not
    change.
    """

    #: what pydantic makes of it: unknown fields are refused
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        # a declaration only: methods of its own for each class are compiled at every start
        dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)

    def __init__(self, **values: Any) -> None:
        fields = self.__dataclass_fields__
        if unknown := values.keys() - fields.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        for name, field in fields.items():
            vars(self)[name] = values[name] if name in values else _take_default(self, field)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({parts})"

    def as_data(self) -> dict[str, Any]:
        """The JSON-able form."""
        data: dict[str, Any] = encode(self)
        return data

    def replace(self, **changes: Any) -> Self:
        """A copy with other values for some fields."""
        return type(self)(**(vars(self) | changes))

    @classmethod
    def from_data(cls, data: object) -> Self:
        """The document that ``as_data`` made ``data`` from. Raises ShapeError."""
        return decode(cls, data)

    @classmethod
    def of(cls, source: object, **values: Any) -> Self:
        """The document of a model. A field that ``values`` does not name has the value of the attribute of
        its name, as text where it is declared as text, else converted as by ``model.codec``.
        """
        hashable: Any = cls
        for name, kind in _list_types(hashable).items():
            if name not in values and hasattr(source, name):
                values[name] = _convert(kind, getattr(source, name))
        return cls(**values)


@cache
def _list_types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__dataclass_fields__}


def _convert(kind: Any, value: object) -> Any:
    if value is None or kind in (int, bool):
        return value
    return str(value) if kind in (str, str | None) else decode(kind, encode(value))


def _take_default(document: Document, field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise TypeError(f"{type(document).__name__} needs {field.name}")


class PlacementDocument(Document):
    """The half-open range [start, start + size) on the memory axis."""

    start: int
    size: int


class StepDocument(Document):
    """One step of a plan."""

    kind: str = Field(description="a fixed name: mig.gi.create, domain.attach, ...")
    target: dict[str, Any] = Field(description="what it is done to")
    description: str


class VgpuPlanDocument(Document):
    """What an operation on a vGPU does, in order."""

    operation: str
    subject: str
    on_failure: Literal["undo", "stop"]
    notes: list[str]
    result: dict[str, Any]
    steps: list[StepDocument]


class PlanDocument(VgpuPlanDocument):
    """What an operation does, in order."""

    operation: Literal["attach", "detach"]
    subject: str = Field(description="the VM")


def describe_plan(plan: Plan, kind: type[AnyPlan]) -> AnyPlan:
    """The document of a plan."""
    return kind.of(plan, steps=list_steps(plan))


def list_steps(plan: Plan) -> list[StepDocument]:
    """The documents of a plan's steps, in their order."""
    return [StepDocument(**step.as_dict()) for step in plan.steps]
