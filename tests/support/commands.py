"""The commands of the program, as typer knows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from vgpumgr.cli.commands import NOUNS, VERBS
from vgpumgr.cli.main import build_root


@cache
def read_tree() -> TyperGroup:
    """The root; the modules of all commands are loaded."""
    root = build_root()
    for entry in (*VERBS, *NOUNS):
        root.get_command(typer.Context(root), entry.name)
    return root


def find_command(words: Sequence[str]) -> tuple[Any, list[str]]:
    """The innermost command that the first words name, and the words after it."""
    found: Any = read_tree()
    rest = list(words)
    while rest and isinstance(found, TyperGroup) and rest[0] in found.commands:
        found = found.commands[rest.pop(0)]
    return found, rest


def list_verbs() -> list[tuple[str, TyperCommand]]:
    """Every verb with its words, ``mig layout plan``."""
    return list(_walk("", read_tree()))


def _walk(path: str, command: Any) -> Iterator[tuple[str, TyperCommand]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from _walk(f"{path} {name}".strip(), below)
    if not isinstance(command, TyperGroup):
        yield path, command
