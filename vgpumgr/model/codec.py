"""Values to JSON-able data and back, by their declared types alone.

Used wherever a value leaves the process: the line protocol of helpers, the store. Dataclasses
become objects, tuples lists, enums and UUIDs their text, PCI addresses their full form. Decoding
checks every type: what does not fit the declaration raises ValueError and never makes a half-built
value.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union

from vgpumgr.model.pci import PciAddress

T = TypeVar("T")


def encode(value: object) -> Any:
    """The JSON-able form of a model value."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PciAddress):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise TypeError(f"cannot encode {type(value).__name__}")


def decode(kind: type[T], data: object) -> T:
    """The value of type ``kind`` that ``encode`` made ``data`` from. Raises ValueError."""
    return typing.cast(T, _decode(kind, data))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, data: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data)
    if kind is type(None):
        return _expect(None, data)
    if dataclasses.is_dataclass(kind) and kind is not PciAddress:
        return _decode_dataclass(typing.cast(type, kind), data)
    return _decode_scalar(kind, data)


def _decode_scalar(kind: Any, data: Any) -> Any:
    if kind is PciAddress and isinstance(data, str):
        return PciAddress.parse(data)
    if kind is float and type(data) in (int, float):
        return float(data)
    if kind in (bool, int, str) and type(data) is kind:
        return data
    if isinstance(kind, type) and issubclass(kind, (Enum, str)) and isinstance(data, (str, int)):
        return kind(data)
    raise ValueError(f"expected {getattr(kind, '__name__', kind)}, found {data!r}")


def _expect(wanted: object, data: object) -> object:
    if data is not wanted:
        raise ValueError(f"expected {wanted}, found {data!r}")
    return data


def _decode_union(choices: tuple[Any, ...], data: Any) -> Any:
    for choice in choices:
        try:
            return _decode(choice, data)
        except ValueError:
            continue
    raise ValueError(f"no declared type fits {data!r}")


def _decode_tuple(items: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise ValueError(f"expected a list, found {data!r}")
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_decode(items[0], item) for item in data)
    if len(items) != len(data):
        raise ValueError(f"expected {len(items)} items, found {len(data)}")
    return tuple(_decode(item, value) for item, value in zip(items, data, strict=True))


def _decode_dataclass(kind: type, data: Any) -> Any:
    hints = _hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    if not isinstance(data, dict) or set(data) - set(names):
        raise ValueError(f"not a {kind.__name__}: {data!r}")
    try:
        return kind(**{name: _decode(hints[name], data[name]) for name in names if name in data})
    except TypeError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error
