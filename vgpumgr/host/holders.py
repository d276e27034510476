"""Who uses a device, in words that an operator can act on: of a QEMU its VM, of a service its unit; of a PCI function
also mounted disks, networks that are up, the console, and our own NVML helpers.

Sources: ``/proc/PID/fd``, ``cmdline`` and ``cgroup``, ``/proc/1/mountinfo``, the class directories below a function in
``/sys``. Nothing read here takes a lock that an unbind or a removal of a device holds.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.files import list_names, read_text
from vgpumgr.host.gpu_nodes import list_function_nodes
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import Holder, is_alive, list_holders, read_name, read_words
from vgpumgr.model.pci import PciAddress, User, UserKind

#: where a UUID or a function's address has its ``vfio-dev``
_VFIO_PARENTS = ("/sys/bus/mdev/devices", "/sys/bus/pci/devices")
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
                yield seen, _describe(seen, proc)


def list_group_holders(
    machine: Machine, iommu_group: int, device: str | None = None
) -> tuple[str, ...]:
    """Processes that have the group's VFIO device open, or the one of ``device`` (a UUID or a
    function's address) alone, as /dev/iommu has it; in words. Needs no helper.
    """
    nodes = {f"/dev/vfio/{iommu_group}"}
    for directory in _VFIO_PARENTS if device else ():
        nodes.update(
            f"/dev/vfio/devices/{name}"
            for name in list_names(machine.path(f"{directory}/{device}/vfio-dev"))
        )
    return tuple(dict.fromkeys(text for _, text in list_openers(machine, nodes)))


def _strip_root(machine: Machine, path: str) -> str:
    root = str(machine.root).rstrip("/")
    return path.removeprefix(root) if root else path


def _describe(holder: Holder, proc: Path) -> str:
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
    for line in (read_text(proc / str(pid) / "cgroup") or "").splitlines():
        name = line.rpartition("/")[2]
        if name.endswith(".service") and not name.startswith("user@"):
            return name
    return None


_MODULE = "vgpumgr.nvml.helper"
_WAIT_S = 2.0
_POLL_S = 0.02


def is_own_monitor(words: Sequence[str]) -> bool:
    """Whether that command line is one of our NVML helpers."""
    return "-m" in words and _MODULE in words


def end_monitors(records: LateRecords, clock: Clock | None = None) -> None:
    """Ends our NVML helpers, which keep a GPU at its driver, and waits a moment until they are gone. They only read,
    and a reader asks again; those that are late are left alone. The caller holds the machine's lock.
    """
    clock = clock or SystemClock()
    late = {helper.process for helper in records.list_late()}
    ours = [
        process
        for process in records.list_running()
        if process not in late and is_own_monitor(read_words(process.pid))
    ]
    for process in ours:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGTERM)
    end_s = clock.monotonic_s() + _WAIT_S
    while any(is_alive(process) for process in ours) and clock.monotonic_s() < end_s:
        clock.sleep(_POLL_S)


_DEVICES = "/sys/bus/pci/devices"
_BLOCK = "/sys/class/block"
_BTRFS = "/sys/fs/btrfs"
_NET = "/sys/class/net"
_MDEV = "/sys/bus/mdev/devices"
_CONSOLES = "/sys/class/vtconsole"
_IFF_UP = 1
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def list_pci_users(
    machine: Machine, asked: Mapping[PciAddress, int | None]
) -> dict[PciAddress, list[User]]:
    """Users of each function; ``asked`` maps it to the IOMMU group in which VMs may have it open,
    None for one that has a driver of the host.
    """
    nodes = {a: set(list_function_nodes(machine, a, group)) for a, group in asked.items()}
    wanted = {name for names in nodes.values() for name in names}
    openers = list(list_openers(machine, wanted))
    blocks, networks = _index_class(machine, _BLOCK), _index_class(machine, _NET)
    mdevs = _index_class(machine, _MDEV)
    mounted = _list_mounts(machine) if blocks else {}
    found: dict[PciAddress, list[User]] = {}
    for address in asked:
        opened = (one for one in openers if one[0].path in nodes[address])
        users = [User(UserKind.PROCESS, text, holder.pid) for holder, text in opened]
        users += _list_disks(machine, blocks.get(str(address), ()), mounted)
        below = set(list_names(machine.path(f"{_DEVICES}/{address}")))
        vgpus = (f"mediated device {uuid} is on it" for uuid in mdevs.get(str(address), ()))
        consoles = _list_consoles(machine, address) if "graphics" in below else ()
        for kind, texts in (
            (UserKind.NETWORK, _list_networks(machine, networks.get(str(address), ()))),
            (UserKind.USB, _list_usb(machine, address, below)),
            (UserKind.MDEV, vgpus),
            (UserKind.DISPLAY, consoles),
        ):
            users += [User(kind, text) for text in texts]
        found[address] = users
    return found


def _index_class(machine: Machine, class_: str) -> dict[str, list[str]]:
    """Names in a class directory by the PCI functions that their devices are below."""
    directory = machine.path(class_)
    found: dict[str, list[str]] = {}
    for name in list_names(directory):
        try:
            target = str((directory / name).readlink())
        except OSError:
            continue
        for address in _ADDRESS.findall(target):
            found.setdefault(address, []).append(name)
    return found


def _list_mounts(machine: Machine) -> dict[str, list[str]]:
    """What is mounted or swapped to, by device number and by name."""
    found: dict[str, list[str]] = {}
    for line in _lines(machine, "/proc/1/mountinfo") or _lines(machine, "/proc/self/mountinfo"):
        words = line.split()
        if len(words) > 4:
            use = f"is mounted at {words[4]}"
            found.setdefault(words[2], []).append(use)
            # file systems of several disks (btrfs, bcachefs) have numbers of their own
            for source in _list_sources(words):
                found.setdefault(_find_block(machine, source), []).append(use)
    for path in machine.path(_BTRFS).glob("*/devices/*"):
        found.setdefault(path.name, []).append(f"is part of the btrfs {path.parts[-3]}")
    for line in _lines(machine, "/proc/swaps")[1:]:
        if words := line.split():
            found.setdefault(words[0].rpartition("/")[2], []).append("is swap space")
    return found


def _list_sources(words: list[str]) -> list[str]:
    """The devices that a line of mountinfo names: behind the dash, after the file system's type."""
    if "-" not in words[5:]:
        return []
    source = words[words.index("-", 5) + 2 :][:1]
    return [part for text in source for part in text.split(":") if part.startswith("/dev/")]


def _find_block(machine: Machine, path: str) -> str:
    """The kernel's name of a block device: ``/dev/mapper/x`` is a link to ``../dm-0``."""
    try:
        return machine.path(path).readlink().name
    except OSError:
        return path.rpartition("/")[2]


def _list_disks(
    machine: Machine, names: Sequence[str], mounted: Mapping[str, list[str]]
) -> list[User]:
    """Disks that are in use; where none is, those that are there."""
    used = [use for name in names for use in _describe_disk(machine, name, mounted)]
    if used:
        return [User(UserKind.DISK, use) for use in used]
    idle = (name for name in names if _is_whole(machine, name))
    return [User(UserKind.IDLE_DISK, f"disk {name} is on it") for name in idle]


def _is_whole(machine: Machine, name: str) -> bool:
    """A disk, no partition of one, nor another name of its controller."""
    directory = machine.path(f"{_BLOCK}/{name}")
    return (directory / "dev").exists() and not (directory / "partition").exists()


def _describe_disk(
    machine: Machine, name: str, mounted: Mapping[str, list[str]], depth: int = 0
) -> Iterator[str]:
    """How a disk, a partition, or what is built on it (RAID, LVM, encryption) is used."""
    directory = machine.path(f"{_BLOCK}/{name}")
    number = read_text(directory / "dev") or ""
    uses = [*mounted.get(number, ()), *mounted.get(name, ())]
    yield from (f"disk {name} {use}" for use in dict.fromkeys(uses))
    for upper in list_names(directory / "holders") if depth < 4 else ():
        yield from (
            f"disk {name}: {use}" for use in _describe_disk(machine, upper, mounted, depth + 1)
        )


def _list_networks(machine: Machine, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        flags = read_text(machine.path(f"{_NET}/{name}/flags")) or "0"
        if int(flags, 0) & _IFF_UP:
            yield f"network interface {name} is up"


def _list_consoles(machine: Machine, address: PciAddress) -> Iterator[str]:
    frames = list_names(machine.path(f"{_DEVICES}/{address}") / "graphics")
    if not frames:
        return
    directory = machine.path(_CONSOLES)
    for name in list_names(directory):
        about = read_text(directory / name / "name") or ""
        if "frame buffer" in about and read_text(directory / name / "bind") == "1":
            yield f"the console is on {', '.join(frames)}"


def _list_usb(machine: Machine, address: PciAddress, below: Iterable[str]) -> Iterator[str]:
    device = machine.path(f"{_DEVICES}/{address}")
    for hub in sorted(below):
        if re.fullmatch(r"usb\d+", hub):
            number = hub.removeprefix("usb")
            for name in list_names(device / hub):
                if re.fullmatch(rf"{number}-\d+", name):
                    yield f"USB device {name} is plugged into it"


def _lines(machine: Machine, path: str) -> list[str]:
    return (read_text(machine.path(path)) or "").splitlines()


def list_removals(machine: Machine, known: Iterable[int] = ()) -> list[str]:
    """Tasks that wait inside the kernel for the user of a VFIO device that is being removed.

    ``known`` are processes that only unbind: these do not hold up the rest of the bus.
    """
    spared = {str(pid) for pid in known}
    return [
        f"process {name} ({read_name(int(name), proc) or 'unknown'}),"
        " which removes a device that is in use"
        for proc in list_procs(machine)
        for name in list_names(proc)
        if name.isdigit() and name not in spared and _waits_for_user(proc / name)
    ]


def _waits_for_user(process: Path) -> bool:
    """``vfio_unregister_group_dev`` (its name until 6.x), ``vfio_del_group_dev`` before 5.13."""
    where = read_text(process / "wchan") or ""
    return where.startswith(("vfio_unregister", "vfio_del_group"))
