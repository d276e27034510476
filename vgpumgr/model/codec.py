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
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar, Union

from vgpumgr.model.pci import PciAddress

T = TypeVar("T")
Decoder = Callable[[Any], Any]
_PLAIN = frozenset({str, int, float, bool, types.NoneType})


def encode(value: object) -> Any:
    """The JSON-able form of a model value."""
    if type(value) in _PLAIN:
        return value  # most are
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PciAddress):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _list_names(type(value))}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise TypeError(f"cannot encode {type(value).__name__}")


def decode(kind: type[T], data: object) -> T:
    """The value of type ``kind`` that ``encode`` made ``data`` from. Raises ValueError."""
    hashable: Any = kind
    return typing.cast(T, _make_decoder(hashable)(data))


@cache
def _list_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@cache
def _make_decoder(kind: Any) -> Decoder:
    """Types are taken apart once, not again for every value of a long list."""
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        return _make_union_decoder(typing.get_args(kind))
    if origin is tuple:
        return _make_tuple_decoder(typing.get_args(kind))
    if kind is types.NoneType:
        return partial(_expect, None)
    if dataclasses.is_dataclass(kind) and kind is not PciAddress:
        return partial(_decode_dataclass, kind)
    return partial(_decode_scalar, kind)


def _decode_scalar(kind: Any, data: Any) -> Any:
    if type(data) is kind and kind in (bool, int, str):
        return data
    if kind is PciAddress and isinstance(data, str):
        return PciAddress.parse(data)
    if kind is float and type(data) in (int, float):
        return float(data)
    if isinstance(kind, type) and issubclass(kind, (Enum, str)) and isinstance(data, (str, int)):
        return kind(data)
    raise ValueError(f"expected {getattr(kind, '__name__', kind)}, found {data!r}")


def _expect(wanted: object, data: object) -> object:
    if data is not wanted:
        raise ValueError(f"expected {wanted}, found {data!r}")
    return data


def _make_union_decoder(choices: tuple[Any, ...]) -> Decoder:
    has_none = types.NoneType in choices
    decoders = [_make_decoder(choice) for choice in choices if choice is not types.NoneType]

    def decode_union(data: Any) -> Any:
        if data is None and has_none:
            return None
        for decoder in decoders:
            try:
                return decoder(data)
            except ValueError:
                continue
        raise ValueError(f"no declared type fits {data!r}")

    return decode_union


def _make_tuple_decoder(items: tuple[Any, ...]) -> Decoder:
    decoders = [_make_decoder(item) for item in items if item is not Ellipsis]
    is_open = len(items) == 2 and items[1] is Ellipsis

    def decode_tuple(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise ValueError(f"expected a list, found {data!r}")
        if is_open:
            return tuple(map(decoders[0], data))
        if len(decoders) != len(data):
            raise ValueError(f"expected {len(decoders)} items, found {len(data)}")
        return tuple(decoder(value) for decoder, value in zip(decoders, data, strict=True))

    return decode_tuple


@cache
def _make_field_decoders(kind: Any) -> Mapping[str, Decoder]:
    hints = typing.get_type_hints(kind)
    return {name: _make_decoder(hints[name]) for name in _list_names(kind)}


def _decode_dataclass(kind: Any, data: Any) -> Any:
    decoders = _make_field_decoders(kind)
    if not isinstance(data, dict) or data.keys() - decoders.keys():
        raise ValueError(f"not a {kind.__name__}: {data!r}")
    try:
        return kind(**{name: decoders[name](value) for name, value in data.items()})
    except TypeError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error
