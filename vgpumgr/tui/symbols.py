"""The characters that the picture is drawn with: Unicode, or ASCII alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Symbols:
    """``bars`` from nothing to full."""

    bars: str
    open: str
    closed: str
    branch: str
    last: str
    trunk: str
    ellipsis: str
    rule: str

    def draw_history(self, values: Sequence[float | None], width: int, full: float) -> str:
        """The newest ``width`` values, right-aligned; unknown ones are blank, more than ``full`` is
        full.
        """
        shown = values[-width:] if width else ()
        return "".join(self._draw_bar(value, full) for value in shown).rjust(width)

    def _draw_bar(self, value: float | None, full: float) -> str:
        if value is None:
            return " "
        share = min(max(value / full, 0.0), 1.0) if full > 0 else 0.0
        # the smallest bar is for nothing alone
        steps = len(self.bars) - 1
        return self.bars[0] if share == 0 else self.bars[max(1, round(share * steps))]

    def cut(self, text: str, width: int) -> str:
        """The text in exactly that many columns."""
        if len(text) <= width:
            return text.ljust(width)
        kept = max(width - len(self.ellipsis), 0)
        return (text[:kept] + self.ellipsis)[:width]


UNICODE = Symbols("▁▂▃▄▅▆▇█", "▾ ", "▸ ", "├ ", "└ ", "│ ", "…", "─")
ASCII = Symbols("_.:-=+*#", "- ", "+ ", "|-", "`-", "| ", "~", "-")
