"""Who has device files open, in words that an operator can act on: of a QEMU its VM, of a service its unit.

Sources: ``/proc/PID/fd``, ``cmdline`` and ``cgroup``. Nothing read here takes a lock that an unbind or a
removal of a device holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from vgpumgr.host.machine import Machine
from vgpumgr.host.nvml_monitors import is_own_monitor
from vgpumgr.host.process import Holder, list_holders, read_words

#: where a UUID or a function's address has its ``vfio-dev``
_DEVICES = ("/sys/bus/mdev/devices", "/sys/bus/pci/devices")
#: in the word behind QEMU's ``-name``; commas of the name itself are doubled
_GUEST = re.compile(r"(?:^|(?<!,),)guest=((?:[^,]|,,)+)")


def list_procs(machine: Machine) -> list[Path]:
    """Where processes are: on a simulated machine there are some of its own besides."""
    real, own = Path("/proc"), machine.path("/proc")
    return [real, own] if machine.is_simulated and own.is_dir() else [real]


def list_openers(machine: Machine, nodes: Collection[str]) -> Iterator[tuple[Holder, str]]:
    """Processes that have one of these device files open, each with what to call it. Our own helpers
    that only read are left out: they are ended where they are in the way.
    """
    for proc in list_procs(machine) if nodes else ():
        for holder in list_holders(lambda path: _strip_root(machine, path) in nodes, proc):
            if not is_own_monitor(read_words(holder.pid, proc)):
                seen = Holder(holder.pid, holder.name, _strip_root(machine, holder.path))
                yield seen, _tell(seen, proc)


def list_group_holders(
    machine: Machine, iommu_group: int, device: str | None = None
) -> tuple[str, ...]:
    """Processes that have the group's VFIO device open, or the one of ``device`` (a UUID or a
    function's address) alone, as /dev/iommu has it; in words. Needs no helper.
    """
    nodes = {f"/dev/vfio/{iommu_group}"}
    for directory in _DEVICES if device else ():
        nodes.update(f"/dev/vfio/devices/{name}" for name in _list(machine, directory, device))
    return tuple(dict.fromkeys(text for _, text in list_openers(machine, nodes)))


def _list(machine: Machine, directory: str, device: str | None) -> list[str]:
    try:
        return sorted(p.name for p in machine.path(f"{directory}/{device}/vfio-dev").iterdir())
    except OSError:
        return []


def _strip_root(machine: Machine, path: str) -> str:
    root = str(machine.root).rstrip("/")
    return path.removeprefix(root) if root else path


def _tell(holder: Holder, proc: Path) -> str:
    guest = _read_guest(holder.pid, proc)
    if guest:
        return f'vm "{guest}", {holder}'
    service = _read_service(holder.pid, proc)
    return f"{holder} ({service})" if service else str(holder)


def _read_guest(pid: int, proc: Path) -> str | None:
    """The VM that a QEMU runs (``-name guest=NAME,...``)."""
    words = read_words(pid, proc)
    if "-name" not in words[:-1]:
        return None
    match = _GUEST.search(words[words.index("-name") + 1])
    return match[1].replace(",,", ",") if match else None


def _read_service(pid: int, proc: Path) -> str | None:
    """The systemd service of a process: what to stop."""
    try:
        text = (proc / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name = line.rpartition("/")[2]
        if name.endswith(".service") and not name.startswith("user@"):
            return name
    return None
