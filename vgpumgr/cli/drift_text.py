"""Lines about differences and interrupted operations; all work on documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def render_drift(found: list[dict[str, Any]]) -> Iterator[str]:
    """One line each, and what makes it good."""
    for drift in found:
        hint = f"  (try: {drift['hint']})" if drift["hint"] else ""
        yield f"  ~ {drift['subject']}: {drift['text']}{hint}"


def render_interrupted(found: list[dict[str, Any]]) -> Iterator[str]:
    """Operations that a crash interrupted."""
    for operation in found:
        what = "was interrupted  (try: vgpumgr recover)"
        if operation["waits"]:
            what = "waits for a helper process; the next command after its end settles it"
        yield f"  ! {operation['subject']}: {operation['operation']} {what}"
