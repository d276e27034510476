"""A question to whoever sits at the terminal."""

from __future__ import annotations


def confirm(question: str) -> None:
    """Asks on standard error. Anything but yes ends the command as Ctrl-C does."""
    import typer

    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort as error:
        raise KeyboardInterrupt("not confirmed; nothing was done") from error
