"""Lines that are plainly right, read without typer: loading it takes longer than most commands.

Only what can be read in one way is read here: a verb, its declared options each at most once with
a value that fits, its arguments. Help, mistakes and rare spellings (``--``, joined switches, values
that begin with a dash, unless they are another's) are left to typer, which reads the same
declarations; a test holds the two against each other.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from vgpumgr.cli.declarations import Argument, Option

_NUMBERS: Mapping[type, re.Pattern[str]] = {
    int: re.compile(r"[0-9]{1,15}"),
    float: re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?"),
}


class NotPlainError(Exception):
    """The line is for typer."""


class Parameter(NamedTuple):
    """A parameter of a verb's function: its type without None, and how the line names it."""

    name: str
    kind: Any
    declared: Option | Argument

    @property
    def is_list(self) -> bool:
        """Whether it may be given several times."""
        return typing.get_origin(self.kind) is list

    def list_names(self) -> tuple[str, ...]:
        """The names of an option; of a switch with two sides those of the first."""
        assert isinstance(self.declared, Option)
        names = self.declared.names or (f"--{self.name.replace('_', '-')}",)
        return tuple(name.partition("/")[0] for name in names)

    def list_off_names(self) -> tuple[str, ...]:
        """The names that turn a switch off."""
        assert isinstance(self.declared, Option)
        if not self.declared.names:
            return (f"--no-{self.name.replace('_', '-')}",)
        return tuple(off for name in self.declared.names if (off := name.partition("/")[2]))


def read_plain(function: Callable[..., Any], words: Sequence[str]) -> dict[str, Any]:
    """The function's arguments without the context. Raises NotPlainError."""
    parameters = list_parameters(function)
    values = _read(parameters, list(words))
    defaults = _list_defaults(function)
    if missing := [p.name for p in parameters if p.name not in values | defaults]:
        raise NotPlainError(f"missing: {missing}")
    return defaults | values


def list_parameters(function: Callable[..., Any]) -> list[Parameter]:
    """What a verb's function takes, in order, without the context."""
    hints = typing.get_type_hints(function, include_extras=True)
    _, *names = _list_names(function)
    return [_make_parameter(name, hints[name]) for name in names]


def _list_names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def _list_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    defaults = function.__defaults__ or ()
    names = _list_names(function)
    return dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))


def _make_parameter(name: str, hint: Any) -> Parameter:
    declared = getattr(hint, "__metadata__", (None,))[0]
    if not isinstance(declared, (Option, Argument)):
        raise NotPlainError(f"{name} is declared in another way")
    kind = typing.get_args(hint)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
    return Parameter(name, kind, declared)


def _read(parameters: Sequence[Parameter], words: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    places = [p for p in parameters if isinstance(p.declared, Argument)]
    options = [p for p in parameters if isinstance(p.declared, Option)]
    while words:
        word = words.pop(0)
        value: str | bool = word
        if word.startswith("-") and not _is_verbatim(places, word):
            parameter, value = _read_option(options, word, words)
        elif places:
            # a list takes all that are left
            parameter = places[0] if places[0].is_list else places.pop(0)
        else:
            raise NotPlainError(word)
        if parameter.name in values and not parameter.is_list:
            raise NotPlainError(f"twice: {word}")
        _keep(values, parameter, value)
    return values


def _is_verbatim(places: Sequence[Parameter], word: str) -> bool:
    """Whether the words from here on are not ours."""
    if not places or word in ("--", "-h", "--help"):
        return False
    declared = places[0].declared
    return isinstance(declared, Argument) and declared.verbatim


def _read_option(
    options: Sequence[Parameter], word: str, words: list[str]
) -> tuple[Parameter, str | bool]:
    """The option of a word, and its value, which is the next word or in the same."""
    name, value = _split(word)
    for parameter in options:
        if parameter.kind is bool and value is None:
            if name in parameter.list_names():
                return parameter, True
            if name in parameter.list_off_names():
                return parameter, False
        elif parameter.kind is not bool and name in parameter.list_names():
            if value is None and words:
                value = words.pop(0)
            if not value or value.startswith("-"):
                raise NotPlainError(f"no value: {word}")
            return parameter, value
    raise NotPlainError(word)


def _split(word: str) -> tuple[str, str | None]:
    """``--name=value`` and ``-nvalue``; None where the word has no value."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    return word[:2], word[2:] or None


def _keep(values: dict[str, Any], parameter: Parameter, value: str | bool) -> None:
    if parameter.is_list:
        values.setdefault(parameter.name, []).append(value)
    else:
        values[parameter.name] = value if isinstance(value, bool) else _convert(parameter, value)


def _convert(parameter: Parameter, text: str) -> Any:
    kind = parameter.kind
    if not text:
        raise NotPlainError("an empty word")
    if kind in (str, Path):
        return kind(text)
    if kind in _NUMBERS and _NUMBERS[kind].fullmatch(text):
        number = kind(text)
        if _is_in_range(parameter.declared, number):
            return number
    elif issubclass(kind, Enum) and text in [member.value for member in kind]:
        return kind(text)
    raise NotPlainError(text)


def _is_in_range(declared: Option | Argument, number: float) -> bool:
    return isinstance(declared, Argument) or declared.find_fault(number) is None
