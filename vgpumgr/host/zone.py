"""The time zone of this machine, by its name."""

from __future__ import annotations

import os
from pathlib import Path

_LOCALTIME = Path("/etc/localtime")


def find_zone(path: Path = _LOCALTIME) -> str:
    """As TZ or the machine has it; ``UTC`` where neither has a name."""
    if name := os.environ.get("TZ", "").removeprefix(":"):
        return name
    _, found, name = os.path.realpath(path).partition("/zoneinfo/")
    return name.removeprefix("posix/") if found else "UTC"
