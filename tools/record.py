"""The README's picture: ``python -m tools.record`` draws ``docs/session.svg`` from the session in ``docs/demo.md``.

A test runs the demo and compares that session with what it prints. The picture needs no font of a network.
"""

from __future__ import annotations

import inspect
import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/demo.md"
PICTURE = ROOT / "docs/session.svg"
#: commands of the session that the picture shows
SHOWN = (
    "$ vgpumgr attach", "$ virsh start", "vm01$ devinfo", "vm01$ vectoradd", "vm01$ matmul", "$ vgpumgr virtio list",
    "$ vgpumgr detach",
)  # fmt: skip
PROMPT = re.compile(r"^(?:vm01)?\$ ")
COLUMNS = 106


def list_lines(page: str) -> list[str]:
    """The lines of the session that the picture shows."""
    session = page.partition("```console\n")[2].partition("```")[0].splitlines()
    lines, shown = [], False
    for line in session:
        if PROMPT.match(line):
            shown = line.startswith(SHOWN)
        if shown:
            lines.append(line)
    return lines


def draw(lines: list[str]) -> str:
    """The picture of a terminal with these lines."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor")
    for line in lines:
        prompt = PROMPT.match(line)
        text = Text(line, style="bold" if prompt else "", no_wrap=True, overflow="crop")
        if prompt:
            text.stylize("bold green", 0, prompt.end())
        elif re.match(r"\s+[+~-] |PASS ", line):
            text.stylize("cyan", 0, len(line) - len(line.lstrip()) + 1)
        console.print(text)
    form = inspect.signature(Console.export_svg).parameters["code_format"].default
    form = re.sub(r"@font-face \{\{.*?\}\}", "", form, flags=re.DOTALL)
    form = form.replace("Fira Code, monospace", "ui-monospace, monospace")
    return console.export_svg(title="./run demo", code_format=form, unique_id="session")


def main() -> int:
    """Write the picture."""
    svg = draw(list_lines(PAGE.read_text()))
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
