"""Changes that mend a host: files of vgpumgr's own, and the host's own programs. For ``vgpumgr doctor --fix``.

A repair may be made twice. Files that it writes are vgpumgr's by their names; no other file is edited. If
one of its programs fails, its files are as they were before.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from vgpumgr.errors import RepairFailedError
from vgpumgr.host.files import make_directory, replace_file
from vgpumgr.model.frozen import dataclass

#: an initial file system takes minutes to build
_PROGRAM_TIMEOUT_S = 900.0


class Action(Protocol):
    """One change of the host."""

    def do(self) -> Callable[[], None]:
        """Makes it; answers what takes it back. Raises OSError, RepairFailedError."""


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file of vgpumgr's own, with one line of settings."""

    name: str
    path: Path
    line: str

    def __str__(self) -> str:
        return f"write {self.name}: {self.line}"

    @property
    def is_done(self) -> bool:
        """Whether the file says so already."""
        return self.path.is_file() and self.line in self.path.read_text().splitlines()

    def do(self) -> Callable[[], None]:
        """See ``Action``."""
        before = self.path.read_text() if self.path.is_file() else None
        make_directory(self.path.parent)
        replace_file(self.path, f"# by vgpumgr doctor --fix\n{self.line}\n", sync=True)
        if before is None:
            return self.path.unlink
        return lambda: replace_file(self.path, before, sync=True)


@dataclass(frozen=True, slots=True)
class RunProgram:
    """A program of the host, or a command of vgpumgr."""

    words: tuple[str, ...]
    shown: str
    environ: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"run {self.shown}"

    def do(self) -> Callable[[], None]:
        """See ``Action``. What a program did is not taken back."""
        try:
            done = subprocess.run(
                self.words, capture_output=True, text=True, errors="replace", check=False,
                stdin=subprocess.DEVNULL, timeout=_PROGRAM_TIMEOUT_S,
                env={**os.environ, **dict(self.environ)},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RepairFailedError(f"{self.shown} failed", cause=str(error)) from error
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[-400:]
            raise RepairFailedError(
                f"{self.shown} failed",
                cause=f"exit code {done.returncode}",
                why=said or None,
                hint="the same by hand, for all that it says",
            )
        return lambda: None


@dataclass(frozen=True, slots=True)
class Repair:
    """What mends what a check found. Without actions it was made already, and waits for a reboot."""

    actions: tuple[Action, ...]
    needs_reboot: bool = False

    def do(self) -> None:
        """Makes all changes, or none of the files. Raises RepairFailedError."""
        undo = list[Callable[[], None]]()
        try:
            for action in self.actions:
                undo.append(action.do())
        except BaseException as error:
            for take_back in reversed(undo):
                take_back()
            if isinstance(error, OSError):
                raise RepairFailedError("a file cannot be written", cause=str(error)) from error
            raise
