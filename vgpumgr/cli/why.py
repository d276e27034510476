"""``vgpumgr why``."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Context

from vgpumgr.cli.options import GpuOption, get_layout
from vgpumgr.cli.output import Column, print_list, value_column
from vgpumgr.cli.reader import App
from vgpumgr.cli.session import call, get_streams

app = App()


def _explain(row: dict[str, Any]) -> str:
    moving = f"; or without removing anything: {row['moving']}" if row["moving"] else ""
    return f"{row['sentence']}{moving}"


COLUMNS = (
    value_column("gpu", "gpu_index", right=True),
    value_column("gpu_uuid", wide=True),
    Column("fits", lambda r: "yes" if r["fits"] else "no"),
    Column("why", _explain, wraps=True),
)


@app.listing("why")
def why(
    context: Context,
    profile: Annotated[str, Argument(help="A MIG profile, such as 3g.40gb.")],
    gpu: GpuOption = None,
) -> None:
    """Explain why a profile does not fit, and what would help.

    One GPU is explained in a sentence, several in a table.

    \b
    Examples:
      vgpumgr why 3g.40gb
      vgpumgr why 1g.10gb+me --gpu 0
    """
    document = call(context, "why", profile=profile, selector=gpu)
    rows = document["gpus"]
    if get_layout(context).format is None and len(rows) == 1:
        index, name = rows[0]["gpu_index"], document["profile"]
        get_streams(context).print(f"GPU {index}: {name} {_explain(rows[0])}")
        return
    print_list(context, document, rows, COLUMNS, "gpu_uuid")
