"""Options that several verbs share, and how the line asks to print."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

import typer
from typer import Option


class Format(StrEnum):
    """``-o``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"
    NAME = "name"


#: formats that give the whole document to a program
DOCUMENTS = (Format.JSON, Format.YAML)


class Layout(NamedTuple):
    """How to print: the options of a verb."""

    format: Format | None = None
    columns: str | None = None
    no_header: bool = False


def set_layout(context: Any, layout: Layout) -> None:
    """Keeps how to print in typer's context."""
    context.meta[Layout.__name__] = layout


def get_layout(context: Any) -> Layout:
    """How the line asks to print."""
    layout: Layout = context.meta[Layout.__name__]
    return layout


def get_format(context: Any) -> Format | None:
    """``-o`` of the line."""
    return get_layout(context).format


def number(
    kind: type[int] | type[float], low: float | None = None, high: float | None = None
) -> Callable[[str], float]:
    """A reader of numbers from ``low`` to ``high``. Its errors are the same with every typer."""
    name = "whole number" if kind is int else "number"

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a {name}") from None
        # so that nan is outside, too
        below = low is not None and not value >= low
        above = high is not None and not value <= high
        if (below or above) and low is not None and high is not None:
            raise typer.BadParameter(f"{text} is not from {low} to {high}")
        if below or above:
            raise typer.BadParameter(
                f"{text} is less than {low}" if below else f"{text} is more than {high}"
            )
        return value

    return read


Output = Annotated[
    Format | None,
    Option("-o", "--output", help="How to print; the default depends on the terminal."),
]
Columns = Annotated[
    str | None, Option("--columns", metavar="A,B", help="Which columns, in which order.")
]
NoHeader = Annotated[bool, Option("--no-header", help="No line with the columns' names.")]
GpuOption = Annotated[
    str | None,
    Option("--gpu", metavar="GPU", help="Index, UUID or unique prefix, bus address, MIG UUID."),
]
DryRun = Annotated[bool, Option("--dry-run", help="Print the plan, do nothing.")]
Yes = Annotated[bool, Option("-y", "--yes", help="Do not ask.")]


PROFILE_HELP = (
    "What it gets: a MIG profile (1g.10gb), a vGPU type by name or id (A100-4C, nvidia-471), "
    "passthrough (a whole GPU), vf or vf:N (a virtual function; one of N if none is enabled yet)."
)
BackendOption = Annotated[
    Literal["auto", "forward", "passthrough", "vf", "mdev"],
    Option(
        "--backend",
        help="How it reaches the VM; auto explains its choice: forward for MIG profiles, "
        "else what the profile needs.",
    ),
]
DisplayOption = Annotated[
    Literal["off", "on", "boot"],
    Option(
        "--display",
        help="Of a mediated device: none, a screen, or the screen from the firmware on (ramfb).",
    ),
]
