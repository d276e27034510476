"""Which boot of the kernel this is: what was true in an earlier one may not be true now."""

from __future__ import annotations

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """The kernel's random id of this boot; empty where /proc is not mounted."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
