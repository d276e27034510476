"""What the commands about vGPUs share: options, and telling what was done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Option
from vgpumgr.cli.layout_text import DryRun
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.session import Session
from vgpumgr.cli.vm_text import render_plan

__all__ = ["Attributes", "DryRun", "VgpuName", "Where", "change"]

VgpuName = Annotated[
    str, Argument(metavar="VGPU", help="UUID or unique prefix, or its function's address.")
]
Where = Annotated[
    str | None,
    Option("--gpu", metavar="GPU", help="Index, UUID, bus address, or name of a parent."),
]
Attributes = Annotated[
    list[str] | None,
    Option("--attr", metavar="NAME=VALUE", help="An attribute to write; several in their order."),
]
_DONE = {
    "create vGPU": "created",
    "delete vGPU": "deleted",
    "define vGPU": "defined",
    "start vGPU": "started",
    "stop vGPU": "stopped",
    "adopt vGPU": "took over",
}


def change(
    session: Session, operation: str, asked: dict[str, Any], dry_run: bool, output: Format | None
) -> None:
    """Asks for it and tells what was done."""
    check_single(f"mdev {operation.partition('_')[0]}", output, named=True)
    document = session.call(operation, dry_run=dry_run, **asked)
    result = document["plan"]["result"]
    lines = (session.streams.address(line) for line in render(document))
    print_single(session.streams, document, output, lines, lambda: result["vgpu"])


def render(document: dict[str, Any]) -> Iterator[str]:
    """What was or would be done."""
    plan = document["plan"]
    name, result = plan["operation"], plan["result"]
    word = f"would {name.partition(' ')[0]}" if document["dry_run"] else _DONE[name]
    if not plan["steps"]:
        word = "already ours:" if name == "adopt vGPU" else f"already {_DONE[name]}"
    yield f"{word} {result['type']} on {result['parent']}: {result['vgpu']}"
    yield from render_plan(plan)
    yield from (f"  note: {note}" for note in document["notes"])
