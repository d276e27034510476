"""Processes that share memory and events, on the simulated driver or over a channel, driven line by line."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]


class Process:
    """One of them, with a context on device 0."""

    def __init__(
        self, env: Mapping[str, str], *, begin: str = "start()", prelude: str = ""
    ) -> None:
        code = f"{prelude}\nfrom tests.unit import ipc_process; ipc_process.serve()"
        self.popen = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**env, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if begin:
            assert self.ask(begin) is None

    def send(self, line: str) -> None:
        """Has it execute a line; ``answer`` has the value."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def answer(self) -> Any:
        """The value of the line that was sent last."""
        assert self.popen.stdout is not None
        text = self.popen.stdout.readline().strip()
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise AssertionError(text or "it has ended") from None

    def ask(self, line: str) -> Any:
        """Both."""
        self.send(line)
        return self.answer()

    def end(self) -> None:
        """Lets it end by itself."""
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        assert self.popen.wait(60) == 0

    def kill(self) -> None:
        """Ends it in the middle of what it does."""
        self.popen.kill()
        self.popen.wait(60)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.popen.poll() is None:
            self.kill()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
