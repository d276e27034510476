"""The text on a textual screen, read from its public screenshot."""

from __future__ import annotations

import html
import re
from typing import Any

_TEXT = re.compile(
    r'<text[^>]* x="([\d.]+)"[^>]* clip-path="url\(#[^"]*-line-(\d+)\)"[^>]*>([^<]*)</text>'
)
#: width of a character in rich's export
_CELL = 12.2


def read_screen(app: Any) -> list[str]:
    """The lines of the screen, without the spaces at their ends."""
    width, height = app.size
    cells = [[" "] * width for _ in range(height)]
    for x, line, escaped in _TEXT.findall(app.export_screenshot()):
        text = html.unescape(escaped).replace("\xa0", " ")
        start = round(float(x) / _CELL)
        for offset, character in enumerate(text):
            if int(line) < height and start + offset < width:
                cells[int(line)][start + offset] = character
    return ["".join(row).rstrip() for row in cells]
