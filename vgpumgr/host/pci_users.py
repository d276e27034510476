"""Who uses a PCI function: processes with its device files open, mounted disks, networks that are
up, the console.

Sources: the class directories below the function in ``/sys``, ``/proc/PID/fd``, ``/proc/1/mountinfo``.
Nothing read here takes a lock that an unbind of the function holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vgpumgr.host.machine import Machine
from vgpumgr.host.openers import list_openers, list_procs
from vgpumgr.host.process import read_name
from vgpumgr.model.pci import PciAddress

_DEVICES = "/sys/bus/pci/devices"
_BLOCK = "/sys/class/block"
_BTRFS = "/sys/fs/btrfs"
_NET = "/sys/class/net"
_MDEV = "/sys/bus/mdev/devices"
_CONSOLES = "/sys/class/vtconsole"
_NVIDIA = "/proc/driver/nvidia/gpus"
_IFF_UP = 1
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass
class PciUsers:
    """Who uses one function, each in words."""

    processes: list[tuple[int, str]] = field(default_factory=list)
    disks: list[str] = field(default_factory=list)
    idle_disks: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    displays: list[str] = field(default_factory=list)
    usb: list[str] = field(default_factory=list)
    mdevs: list[str] = field(default_factory=list)


def list_pci_users(
    machine: Machine, asked: Mapping[PciAddress, int | None]
) -> dict[PciAddress, PciUsers]:
    """Users of each function; ``asked`` maps it to the IOMMU group in which VMs may have it open,
    None for one that has a driver of the host.
    """
    found = {address: PciUsers() for address in asked}
    nodes = {a: set(_list_nodes(machine, a, group)) for a, group in asked.items()}
    wanted = {name for names in nodes.values() for name in names}
    for holder, text in list_openers(machine, wanted):
        for address, names in nodes.items():
            if holder.path in names:
                found[address].processes.append((holder.pid, text))
    blocks, networks = _index_class(machine, _BLOCK), _index_class(machine, _NET)
    mdevs = _index_class(machine, _MDEV)
    mounted = _list_mounts(machine) if blocks else {}
    for address, users in found.items():
        disks = blocks.get(str(address), ())
        users.disks = [use for disk in disks for use in _tell_disk(machine, disk, mounted)]
        if not users.disks:
            users.idle_disks = [
                f"disk {name} is on it" for name in disks if _is_whole(machine, name)
            ]
        users.mdevs = [f"mediated device {uuid} is on it" for uuid in mdevs.get(str(address), ())]
        users.networks = list(_list_networks(machine, networks.get(str(address), ())))
        below = set(_names(machine.path(f"{_DEVICES}/{address}")))
        if "graphics" in below:
            users.displays = list(_list_consoles(machine, address))
        users.usb = list(_list_usb(machine, address, below))
    return found


def _list_nodes(machine: Machine, address: PciAddress, group: int | None) -> Iterator[str]:
    """Device files of one function."""
    device = machine.path(f"{_DEVICES}/{address}")
    below = set(_names(device))
    yield from (f"/dev/dri/{name}" for name in (_names(device / "drm") if "drm" in below else ()))
    accels = _names(device / "accel") if "accel" in below else ()
    yield from (f"/dev/accel/{name}" for name in accels)
    for card in _names(device / "sound") if "sound" in below else ():
        number = card.removeprefix("card")
        pattern = re.compile(rf"(?:control|pcm|hw|midi)C{number}(?:D\d+[pc]?)?")
        nodes = _names(machine.path("/dev/snd"))
        yield from (f"/dev/snd/{name}" for name in nodes if pattern.fullmatch(name))
    if (minor := _read_nvidia_minor(machine, address)) is not None:
        yield f"/dev/nvidia{minor}"
    if group is not None:
        yield f"/dev/vfio/{group}"
    if "vfio-dev" in below:
        yield from (f"/dev/vfio/devices/{name}" for name in _names(device / "vfio-dev"))


def _read_nvidia_minor(machine: Machine, address: PciAddress) -> int | None:
    try:
        text = machine.path(f"{_NVIDIA}/{address}/information").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else None


def _index_class(machine: Machine, class_: str) -> dict[str, list[str]]:
    """Names in a class directory by the PCI functions that their devices are below."""
    directory = machine.path(class_)
    found: dict[str, list[str]] = {}
    for name in _names(directory):
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


def _is_whole(machine: Machine, name: str) -> bool:
    """A disk, no partition of one, nor another name of its controller."""
    directory = machine.path(f"{_BLOCK}/{name}")
    return (directory / "dev").exists() and not (directory / "partition").exists()


def _tell_disk(
    machine: Machine, name: str, mounted: Mapping[str, list[str]], depth: int = 0
) -> Iterator[str]:
    """How a disk, a partition, or what is built on it (RAID, LVM, encryption) is used."""
    directory = machine.path(f"{_BLOCK}/{name}")
    number = _text(directory / "dev") or ""
    uses = [*mounted.get(number, ()), *mounted.get(name, ())]
    yield from (f"disk {name} {use}" for use in dict.fromkeys(uses))
    for upper in _names(directory / "holders") if depth < 4 else ():
        yield from (f"disk {name}: {use}" for use in _tell_disk(machine, upper, mounted, depth + 1))


def _list_networks(machine: Machine, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        flags = _text(machine.path(f"{_NET}/{name}/flags")) or "0"
        if int(flags, 0) & _IFF_UP:
            yield f"network interface {name} is up"


def _list_consoles(machine: Machine, address: PciAddress) -> Iterator[str]:
    frames = _names(machine.path(f"{_DEVICES}/{address}") / "graphics")
    if not frames:
        return
    directory = machine.path(_CONSOLES)
    for name in _names(directory):
        about = _text(directory / name / "name") or ""
        if "frame buffer" in about and _text(directory / name / "bind") == "1":
            yield f"the console is on {', '.join(frames)}"


def _list_usb(machine: Machine, address: PciAddress, below: Iterable[str]) -> Iterator[str]:
    device = machine.path(f"{_DEVICES}/{address}")
    for hub in sorted(below):
        if re.fullmatch(r"usb\d+", hub):
            number = hub.removeprefix("usb")
            for name in _names(device / hub):
                if re.fullmatch(rf"{number}-\d+", name):
                    yield f"USB device {name} is plugged into it"


def _names(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _lines(machine: Machine, path: str) -> list[str]:
    return (_text(machine.path(path)) or "").splitlines()


def list_removals(machine: Machine, known: Iterable[int] = ()) -> list[str]:
    """Tasks that wait inside the kernel for the user of a VFIO device that is being removed.

    ``known`` are processes that only unbind: these do not hold up the rest of the bus.
    """
    spared = {str(pid) for pid in known}
    return [
        f"process {name} ({read_name(int(name), proc) or 'unknown'}),"
        " which removes a device that is in use"
        for proc in list_procs(machine)
        for name in _names(proc)
        if name.isdigit() and name not in spared and _waits_for_user(proc / name)
    ]


def _waits_for_user(process: Path) -> bool:
    """``vfio_unregister_group_dev`` (its name until 6.x), ``vfio_del_group_dev`` before 5.13."""
    where = _text(process / "wchan") or ""
    return where.startswith(("vfio_unregister", "vfio_del_group"))
