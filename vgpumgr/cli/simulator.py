"""Hands a ``sim`` command over to the simulator.

Production code does not import the simulator; this process becomes it (``python -m vgpumgr.sim``).
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from vgpumgr.cli.output import Format
from vgpumgr.cli.session import Session, check_here
from vgpumgr.errors import UsageError


def become_simulator(session: Session, *arguments: str) -> NoReturn:
    """Replace this process by the simulator's program with the same streams."""
    check_here(session, f"vgpumgr sim {arguments[0]}")
    sys.stdout.flush()
    flags = ["--debug"] if session.options.debug else []
    flags += ["--quiet"] if session.options.verbosity < 0 else []
    os.execv(sys.executable, [sys.executable, "-m", "vgpumgr.sim", *flags, *arguments])


def format_arguments(output: Format | None) -> list[str]:
    """``-o`` for the simulator's program, which knows plain text and JSON. Raises UsageError."""
    if output not in (None, Format.TABLE, Format.JSON):
        raise UsageError(f"sim has no {output} output", hint="-o json")
    return ["-o", "json"] if output is Format.JSON else []
