"""What a verb takes from its line: declared beside its function's parameters, as ``Annotated``.

Two readers know these declarations: ``plain_line`` for lines that are plainly right, and typer for
everything else, help and mistakes above all.
"""

from __future__ import annotations

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

    def for_typer(self) -> Any:
        """The same as typer declares it."""
        import typer

        number = None if self.min is self.max is None else "N"
        metavar = self.metavar or number
        known = {"help": self.help, "metavar": metavar, "min": self.min, "max": self.max}
        return typer.Option(*self.names, **_leave_out_none(known))


class Argument:
    """A word that is known by its place."""

    def __init__(self, *, help: str, metavar: str | None = None) -> None:
        self.help = help
        self.metavar = metavar

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
