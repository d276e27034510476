"""What a verb takes from its line: declared beside its function's parameters, as ``Annotated``.

Two readers know these declarations: ``plain_line`` for lines that are plainly right, and typer for
everything else, help and mistakes above all.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any


class Option:
    """An option; its names, ``--on/--off`` for both sides of a switch, default to the parameter's."""

    def __init__(
        self,
        *names: str,
        help: str,  # as typer calls it
        metavar: str | None = None,
        min: float | None = None,
        max: float | None = None,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max

    def for_typer(self, kind: Any) -> Any:
        """The same as typer declares it; ``kind`` is the parameter's type.

        Numbers are read here: typer's own words for a wrong one change with its versions.
        """
        import typer

        number = next((n for n in (int, float) if n in (kind, *typing.get_args(kind))), None)
        known = {
            "help": self.help,
            "metavar": self.metavar or ("N" if number else None),
            "parser": self._make_parser(number) if number else None,
        }
        return typer.Option(*self.names, **_leave_out_none(known))

    def _make_parser(self, number: type[int] | type[float]) -> Callable[[str | float], float]:
        import typer

        def parse(value: str | float) -> float:
            try:
                read = number(value)
            except ValueError:
                kind = "a whole number" if number is int else "a number"
                raise typer.BadParameter(f"{value!r} is not {kind}") from None
            if wrong := self.find_fault(read):
                raise typer.BadParameter(f"{value} is {wrong}")
            return read

        return parse

    def find_fault(self, value: float) -> str | None:
        """What is wrong with a number, if anything is."""
        low, high = self.min, self.max
        # so that nan is outside, too
        below = low is not None and not value >= low
        above = high is not None and not value <= high
        if low is not None and high is not None:
            return f"not from {low} to {high}" if below or above else None
        return f"less than {low}" if below else f"more than {high}" if above else None


class Argument:
    """A word that is known by its place. ``verbatim``: it and all after it are another's words, also those
    with a dash; only help is still ours.
    """

    def __init__(self, *, help: str, metavar: str | None = None, verbatim: bool = False) -> None:
        self.help = help
        self.metavar = metavar
        self.verbatim = verbatim

    def for_typer(self) -> Any:
        """The same as typer declares it."""
        import typer

        return typer.Argument(**_leave_out_none({"help": self.help, "metavar": self.metavar}))


class Context:
    """What a verb's function is handed first: its session."""

    def __init__(self, obj: object) -> None:
        self.obj = obj


def _leave_out_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
