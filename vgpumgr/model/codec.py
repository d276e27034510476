"""Values and documents to JSON-able data and back, by their declared types alone.

Used wherever a value leaves the process: the line protocol of helpers, the store, ``-o json`` and the API. Dataclasses
become objects, tuples and lists arrays, enums and UUIDs their text, PCI addresses their full form. Decoding checks
every type: what does not fit the declaration raises ShapeError and never makes a half-built value. Fields that a class
does not declare are refused, unless its class variable ``IGNORES_UNKNOWN`` is true.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any, Literal, TypeVar, Union

from vgpumgr.model.pci import PciAddress

T = TypeVar("T")
Decoder = Callable[[Any], Any]
_PLAIN = frozenset({str, int, float, bool, types.NoneType})
_MAX_SHOWN = 200


class ShapeError(ValueError):
    """Data does not fit the declaration: the path of the first mismatch, and the reason."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def encode(value: object) -> Any:
    """The JSON-able form of a value."""
    if type(value) in _PLAIN:
        return value  # most are
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PciAddress):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key: encode(getattr(value, name)) for name, key in _list_names(type(value)).items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"cannot encode {type(value).__name__}")


def decode(kind: type[T], data: object) -> T:
    """The value of type ``kind`` that ``encode`` made ``data`` from. Raises ShapeError."""
    hashable: Any = kind
    return typing.cast(T, _make_decoder(hashable)(data))


@cache
def _list_names(kind: Any) -> Mapping[str, str]:
    """Maps each field to its name in JSON, which differs for keywords of Python."""
    return {
        field.name: field.metadata.get("alias", field.name) for field in dataclasses.fields(kind)
    }


@cache
def _make_decoder(kind: Any) -> Decoder:
    """Makes one decoder for each type, which serves every value of a long list."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _make_union_decoder(inner)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return _make_list_decoder(tuple, inner[0])
    if origin is tuple:
        return _make_tuple_decoder(inner)
    if origin is list:
        return _make_list_decoder(list, inner[0])
    if origin is dict or kind is dict:
        return _make_dict_decoder(inner[1] if inner else Any)
    if origin is Annotated:
        return _make_decoder(inner[0])
    if origin is Literal:
        return partial(_expect_one, inner)
    if kind in (Any, object):
        return _take
    if kind is types.NoneType:
        return partial(_expect_one, (None,))
    if dataclasses.is_dataclass(kind) and kind is not PciAddress:
        return partial(_decode_dataclass, kind)
    return partial(_decode_scalar, kind)


def _take(data: Any) -> Any:
    return data


def _decode_at(where: object, decoder: Decoder, data: Any) -> Any:
    """Decodes one part of a value; a mismatch gets this part in front of its path."""
    try:
        return decoder(data)
    except ShapeError as error:
        path = f"{where}.{error.path}" if error.path else str(where)
        raise ShapeError(error.reason, path) from None


def _decode_scalar(kind: Any, data: Any) -> Any:
    if type(data) is kind and kind in (bool, int, str):
        return data
    if kind is float and type(data) in (int, float):
        return float(data)
    try:
        if kind is PciAddress and isinstance(data, str):
            return PciAddress.parse(data)
        if isinstance(kind, type) and issubclass(kind, Enum) and type(data) in (str, int):
            return kind(data)
        if isinstance(kind, type) and issubclass(kind, str) and isinstance(data, str):
            return kind(data)
    except ValueError as error:
        raise ShapeError(str(error)) from error
    raise ShapeError(f"expected {getattr(kind, '__name__', kind)}, found {_show(data)}")


def _expect_one(choices: tuple[Any, ...], data: Any) -> Any:
    if any(type(data) is type(choice) and data == choice for choice in choices):
        return data
    raise ShapeError(f"expected {' or '.join(map(repr, choices))}, found {_show(data)}")


def _show(data: object) -> str:
    text = repr(data)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _make_union_decoder(choices: tuple[Any, ...]) -> Decoder:
    has_none = types.NoneType in choices
    decoders = [_make_decoder(choice) for choice in choices if choice is not types.NoneType]

    def decode_union(data: Any) -> Any:
        if data is None and has_none:
            return None
        if len(decoders) == 1:
            return decoders[0](data)
        for decoder in decoders:
            try:
                return decoder(data)
            except ValueError:
                continue
        raise ShapeError(f"no declared type fits {_show(data)}")

    return decode_union


def _make_list_decoder(make: Callable[[list[Any]], Any], item: Any) -> Decoder:
    decoder = _make_decoder(item)

    def decode_list(data: Any) -> Any:
        if not isinstance(data, list):
            raise ShapeError(f"expected a list, found {_show(data)}")
        return make([_decode_at(number, decoder, value) for number, value in enumerate(data)])

    return decode_list


def _make_tuple_decoder(items: tuple[Any, ...]) -> Decoder:
    decoders = [_make_decoder(item) for item in items]

    def decode_tuple(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise ShapeError(f"expected a list, found {_show(data)}")
        if len(decoders) != len(data):
            raise ShapeError(f"expected {len(decoders)} items, found {len(data)}")
        pairs = enumerate(zip(decoders, data, strict=True))
        return tuple(_decode_at(number, decoder, value) for number, (decoder, value) in pairs)

    return decode_tuple


def _make_dict_decoder(item: Any) -> Decoder:
    decoder = _make_decoder(item)

    def decode_dict(data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise ShapeError(f"expected an object, found {_show(data)}")
        return {str(key): _decode_at(key, decoder, value) for key, value in data.items()}

    return decode_dict


@cache
def _list_needed(kind: Any) -> tuple[str, ...]:
    """The names in JSON of the fields without a default."""
    missing = dataclasses.MISSING
    names = _list_names(kind)
    return tuple(
        names[field.name]
        for field in dataclasses.fields(kind)
        if field.default is missing and field.default_factory is missing
    )


@cache
def _make_field_decoders(kind: Any) -> Mapping[str, tuple[str, Decoder]]:
    hints = typing.get_type_hints(kind)
    return {key: (name, _make_decoder(hints[name])) for name, key in _list_names(kind).items()}


def _decode_dataclass(kind: Any, data: Any) -> Any:
    fields = _make_field_decoders(kind)
    if not isinstance(data, dict):
        raise ShapeError(f"not a {kind.__name__}: {_show(data)}")
    unknown = data.keys() - fields.keys()
    if unknown and getattr(kind, "IGNORES_UNKNOWN", False):
        data = {key: value for key, value in data.items() if key in fields}
    elif unknown:
        raise ShapeError(f"a {kind.__name__} has no such field", str(min(unknown, key=str)))
    if missing := [key for key in _list_needed(kind) if key not in data]:
        raise ShapeError(f"not a {kind.__name__} without it", missing[0])
    values = {}
    for key, value in data.items():
        name, decoder = fields[key]
        values[name] = _decode_at(key, decoder, value)
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"not a {kind.__name__}: {error}") from error
