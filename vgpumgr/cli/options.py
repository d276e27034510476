"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from vgpumgr.cli.output import Format

Output = Annotated[
    Format | None,
    typer.Option("-o", "--output", help="How to print; the default depends on the terminal."),
]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Which columns, in which order.")
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="No line with the columns' names.")]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu", metavar="GPU", help="Index, UUID or unique prefix, bus address, MIG UUID."
    ),
]
