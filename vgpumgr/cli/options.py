"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

from vgpumgr.cli.declarations import Option
from vgpumgr.cli.output import Format

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
