"""Frozen dataclasses that cost little while their module is imported.

``dataclasses`` compiles up to six methods of each class at its declaration: a quarter of the time of a command that
needs no daemon, mostly for classes that the command makes no value of. Here comparison, hash and text are functions
that all classes share, and ``__init__`` is compiled when a class makes its first value. What a type checker sees, and
``fields``, ``replace`` and pattern matching, are those of ``dataclasses``. Fields may have a default, be keywords only
and have metadata.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(kind=None, *, frozen=False, order=False, slots=False, kw_only=False):
        """``dataclasses.dataclass``, which also makes the classes whose values can change."""
        if not frozen:
            return dataclasses.dataclass(kind, order=order, slots=slots, kw_only=kw_only)
        declare = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
        )

        def finish(kind):
            return _add_methods(declare(kind), order, slots)

        return finish if kind is None else finish(kind)


class _Init:
    """Stands for a class's ``__init__`` until that is asked for.

    It knows its class: two threads may ask at once, and the second must not look for what the first has replaced.
    """

    def __init__(self, owner: type) -> None:
        self._owner = owner

    def __get__(self, value: object, kind: type) -> Any:
        init = _make_init(self._owner)
        self._owner.__init__ = init  # type: ignore[misc]
        return init if value is None else init.__get__(value)


def _make_init(owner: Any) -> Any:
    """The function that sets the fields; its parameters are in the order and with the defaults of their declaration.

    Its own names end with an underscore, since a field may be called ``missing``.
    """
    scope: dict[str, Any] = {"_set_value_": object.__setattr__, "_missing_": dataclasses.MISSING}
    positional, by_name, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(owner):
        name, value = field.name, field.name
        parameter = name
        if field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}_"] = field.default_factory
            parameter = f"{name}=_missing_"
            value = f"_make_{name}_() if {name} is _missing_ else {name}"
        elif field.default is not dataclasses.MISSING:
            scope[f"_default_{name}_"] = field.default
            parameter = f"{name}=_default_{name}_"
        (by_name if field.kw_only else positional).append(parameter)
        body.append(f" _set_value_(self, {name!r}, {value})")
    if hasattr(owner, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *by_name] if by_name else [])])
    exec("\n".join([f"def __init__({parameters}):", *body, " return None"]), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{owner.__qualname__}.__init__"
    return init


def _add_methods(kind: Any, order: bool, slots: bool) -> Any:
    names = tuple(field.name for field in dataclasses.fields(kind))
    if len(names) > 1:
        read: Callable[[Any], Any] = operator.attrgetter(*names)
    else:

        def read(value: Any) -> Any:
            return tuple(getattr(value, name) for name in names)

    def compute_hash(self: Any) -> int:
        return hash(read(self))

    own = vars(kind)
    added = {"__init__": _Init(kind), "__repr__": _describe, "__eq__": _compare(operator.eq, read)}
    if own.get("__hash__") is None or "__eq__" not in own:
        added["__hash__"] = compute_hash
    if order:
        for name in ("lt", "le", "gt", "ge"):
            added[f"__{name}__"] = _compare(getattr(operator, name), read)
    if slots:
        added |= {"__getstate__": _read_state, "__setstate__": _restore}
    for name, method in added.items():
        if name == "__hash__" or name not in own:
            setattr(kind, name, method)
    kind.__setattr__ = _refuse_change
    kind.__delattr__ = _refuse_change
    return kind


def _compare(
    operation: Callable[[Any, Any], Any], read: Callable[[Any], Any]
) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: object) -> Any:
        if other.__class__ is self.__class__:
            return operation(read(self), read(other))
        return NotImplemented

    return compare


def _describe(self: Any) -> str:
    values = (f"{name}={getattr(self, name)!r}" for name in _list_names(self.__class__))
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_change(_self: Any, name: str, *_value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def _read_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in _list_names(self.__class__)]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(_list_names(self.__class__), state, strict=True):
        object.__setattr__(self, name, value)


@cache
def _list_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))
