"""Phrases about GPUs that several commands share; all work on documents."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vgpumgr.model.sizes import format_size

ABSENT = "-"


def or_absent(value: object) -> str:
    """The value, or a dash where the host does not say."""
    return ABSENT if value is None else str(value)


def as_row(other: dict[str, Any]) -> dict[str, Any]:
    """A GPU without NVML in the form of one with it: what nobody says is None."""
    unknown = ("index", "uuid", "driver_version", "memory_total_bytes", "memory_used_bytes")
    mig = {"supported": False, "current": False, "memory_positions": 0}
    return {**dict.fromkeys(unknown), "mig": mig, "instances": [], "processes": [], **other}


def tell_mig(mig: dict[str, Any]) -> str:
    """``off``, ``on``, ``off, on after reset`` or a dash."""
    if not mig["supported"]:
        return ABSENT
    now, then = ("on" if mig[key] else "off" for key in ("current", "pending"))
    return now if now == then else f"{now}, {then} after reset"


def tell_memory(gpu: dict[str, Any]) -> str:
    """Used of total memory: ``0.6/80 GiB``."""
    if gpu["memory_total_bytes"] is None:
        return ABSENT
    used_gib = gpu["memory_used_bytes"] / (1 << 30)
    return f"{used_gib:.1f}/{format_size(gpu['memory_total_bytes'])}"


def tell_slices(gpu: dict[str, Any]) -> str:
    """What the GPU is cut into and the compute slices left: ``2x 1g.10gb, 3g.40gb; 2/7 free``."""
    mig = gpu["mig"]
    if gpu.get("vfs_enabled"):
        return f"{gpu['vfs_enabled']} of {gpu['vfs_total']} VFs"
    if not mig["current"] or not mig["memory_positions"]:  # the latter: shown to root only
        return ABSENT
    counts = Counter(instance["profile"] for instance in gpu["instances"])
    parts = [name if n == 1 else f"{n}x {name}" for name, n in counts.items()]
    free = mig["compute_slices"] - mig["compute_slices_used"]
    return "; ".join(
        [*([", ".join(parts)] if parts else []), f"{free}/{mig['compute_slices']} free"]
    )


def list_users(gpu: dict[str, Any]) -> list[str]:
    """VMs, then processes that belong to no VM's slice."""
    users = [instance["vm"] for instance in gpu["instances"] if instance["vm"]]
    users += gpu["vms"]
    loose = list(gpu["processes"])
    loose += [p for i in gpu["instances"] if not i["vm"] for p in i["processes"]]
    return list(dict.fromkeys([*users, *(tell_process(p) for p in loose)]))


def tell_users(gpu: dict[str, Any]) -> str:
    """All users in one cell."""
    return ", ".join(list_users(gpu)) or ABSENT


def tell_process(process: dict[str, Any]) -> str:
    """``python3 (1234)``."""
    return f"{process['name'] or 'process'} ({process['pid']})"


def tell_placement(placement: dict[str, Any]) -> str:
    """``start:size`` on the memory axis."""
    return f"{placement['start']}:{placement['size']}"
