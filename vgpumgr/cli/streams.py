"""Standard output and error, and what they are: a terminal gets tables and colour, a pipe plain
text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from vgpumgr.cli.arguments import Color, GlobalOptions


def _open_nowhere() -> TextIO:
    """For a stream that whoever started us has closed (``>&-``)."""
    return Path(os.devnull).open("w")


class Streams:
    """Where a command writes. Data goes to ``out``, all else to ``err``."""

    def __init__(
        self,
        options: GlobalOptions,
        out: TextIO | None = None,
        err: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.out = out or sys.stdout or _open_nowhere()
        self.err = err or sys.stderr or _open_nowhere()
        self._environ = os.environ if environ is None else environ
        self._options = options

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads standard output."""
        return self.out.isatty()

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        import shutil

        return shutil.get_terminal_size((100, 24)).columns

    def has_color(self, stream: TextIO) -> bool:
        """Whether to colour what goes there: --color, NO_COLOR, then whether it is a terminal."""
        if self._options.color is not Color.AUTO:
            return self._options.color is Color.ALWAYS
        if self._environ.get("NO_COLOR") or self._environ.get("TERM") == "dumb":
            return False
        return stream.isatty()

    def address(self, text: str) -> str:
        """A hint whose commands say which machine they are for, where this run's line did."""
        from vgpumgr.cli.commands import address

        return address(text, "".join(f"{name} {value} " for name, value in self._list_targets()))

    def _list_targets(self) -> Iterator[tuple[str, str]]:
        """What the environment says counts for the next command as well."""
        for name in ("machine", "host"):
            value = getattr(self._options, name)
            if value and value != self._environ.get(f"VGPUMGR_{name.upper()}"):
                yield f"--{name}", value

    def print(self, text: str) -> None:
        """Data, with a newline."""
        self.out.write(text + "\n")

    def note(self, text: str) -> None:
        """A remark on standard error; --quiet leaves it out."""
        if self._options.verbosity >= 0:
            self.err.write(text + "\n")
