"""Options that count for every command, wherever on the line they stand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from vgpumgr.errors import UsageError


class Color(StrEnum):
    """When to colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """What the global options say; ``verbosity`` is -1 for --quiet, and counts -v."""

    machine: str | None = None
    color: Color = Color.AUTO
    verbosity: int = 0
    debug: bool = False
    host: str | None = None
    hosts: tuple[str, ...] = ()


FLAGS: Mapping[str, Mapping[str, Any]] = {
    "-q": {"verbosity": -1},
    "--quiet": {"verbosity": -1},
    "-v": {"verbosity": 1},
    "--verbose": {"verbosity": 1},
    "-vv": {"verbosity": 2},
    "--debug": {"debug": True},
}
#: the options that take a value
VALUED = ("--machine", "--color", "--host", "--hosts")


def split_global(
    arguments: Sequence[str], environ: Mapping[str, str] | None = None
) -> tuple[GlobalOptions, list[str]]:
    """Takes the global options out of the command line. What follows ``--`` is left alone.

    Raises UsageError for a missing or unknown value.
    """
    env = os.environ if environ is None else environ
    options = GlobalOptions(
        machine=env.get("VGPUMGR_MACHINE") or None,
        debug=bool(env.get("VGPUMGR_DEBUG")),
        host=env.get("VGPUMGR_HOST") or None,
    )
    rest: list[str] = []
    named: set[str] = set()
    queue = list(arguments)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            return _settle(options, named), [*rest, word, *queue]
        if word in FLAGS:
            options = replace(options, **FLAGS[word])
        elif name in VALUED:
            options = _set(options, name, value if equals else _take(name, queue))
            named.add(name)
        else:
            rest.append(word)
    return _settle(options, named), rest


def _settle(options: GlobalOptions, named: set[str]) -> GlobalOptions:
    """``--hosts`` on the line goes before VGPUMGR_HOST; beside ``--host`` it means nothing."""
    if {"--host", "--hosts"} <= named:
        raise UsageError("--host and --hosts contradict each other", hint="one of them")
    return replace(options, host=None) if options.hosts else options


def _take(name: str, queue: list[str]) -> str:
    if not queue or queue[0].startswith("-"):
        raise UsageError(f"{name} needs a value", hint="vgpumgr --help")
    return queue.pop(0)


def _set(options: GlobalOptions, name: str, value: str) -> GlobalOptions:
    if not value.strip(","):
        # an unset variable of a script: not to be taken for "this machine"
        raise UsageError(f"{name} needs a value, and this one is empty", hint="vgpumgr --help")
    if name == "--machine":
        return replace(options, machine=value)
    if name == "--host":
        return replace(options, host=value)
    if name == "--hosts":
        return replace(options, hosts=tuple(host for host in value.split(",") if host))
    try:
        return replace(options, color=Color(value))
    except ValueError:
        choices = ", ".join(Color)
        raise UsageError(f"--color takes one of {choices}, not {value!r}") from None


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the line asks for JSON: errors are then JSON too, even those of parsing."""
    words = list(arguments)
    for index, word in enumerate(words):
        if word in ("-ojson", "--output=json"):
            return True
        if word in ("-o", "--output") and words[index + 1 : index + 2] == ["json"]:
            return True
    return False
