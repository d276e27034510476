"""Which boot of the kernel this is: what was true in an earlier one may not be true now."""

from __future__ import annotations

from vgpumgr.host.machine import Machine

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def read_boot_id(machine: Machine) -> str:
    """The kernel's random id of this boot; empty where /proc is not mounted."""
    try:
        return machine.path(_BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""
