"""IOMMU groups and drivers: whether a function can go to a VM, and which driver it gets for that. Pure.

A group goes to one VM as a whole: as soon as one of its functions is open to the VM, none of the others may have a
driver of the host. Bridges and root ports do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from vgpumgr.errors import UsageError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import STUB, VFIO, Function, PciAddress, User, UserKind
from vgpumgr.model.text import tell_count

#: a patch that some kernels have: it parts groups by assuming isolation that nothing enforces
ACS_OVERRIDE = "pcie_acs_override="


#: what helps where the host's disks are in the way
ANOTHER_SLOT = "another slot for the GPU or the disk: functions with mounted disks are never taken"


class Verdict(StrEnum):
    """Whether a group can go to a VM."""

    #: now
    VIABLE = "viable"
    #: once its functions are bound, and unused
    BINDABLE = "bindable"
    #: functions of other devices belong to the host
    SHARED = "shared"
    #: a function that must be bound is in use
    IN_USE = "in-use"
    NO_IOMMU = "no-iommu"


@dataclass(frozen=True, slots=True)
class Blocker:
    """A function that keeps its group from a VM, and who uses it."""

    function: Function
    users: tuple[User, ...] = ()

    def __str__(self) -> str:
        used = "; ".join(str(user) for user in self.users)
        return f"{self.function}" + (f": {used}" if used else "")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a group, who or what is in the way, and what helps."""

    verdict: Verdict
    blockers: tuple[Blocker | str, ...] = ()
    why: str | None = None
    hint: str | None = None


def index_groups(functions: Sequence[Function]) -> dict[int, tuple[Function, ...]]:
    """Members of every group, by its number, in address order."""
    found: dict[int, list[Function]] = {}
    for function in functions:
        if function.group is not None:
            found.setdefault(function.group, []).append(function)
    return {number: tuple(members) for number, members in sorted(found.items())}


def list_members(functions: Sequence[Function], function: Function) -> tuple[Function, ...]:
    """All functions of its group, itself among them; only itself without an IOMMU."""
    if function.group is None:
        return (function,)
    return tuple(f for f in functions if f.group == function.group)


def list_companions(functions: Sequence[Function], function: Function) -> tuple[Function, ...]:
    """What goes with it: the other functions of its device and of its group, without bridges."""
    return tuple(
        f
        for f in functions
        if f.address != function.address
        and not f.is_bridge
        and (f.is_beside(function) or (f.group is not None and f.group == function.group))
    )


def judge_group(
    members: Sequence[Function], users: Mapping[PciAddress, tuple[User, ...]]
) -> Judgement:
    """Whether the group can go to a VM."""
    if not members or members[0].group is None:
        return Judgement(Verdict.NO_IOMMU)
    blocking = [f for f in members if not f.is_free]
    if not blocking:
        return _judge_open(members, users)
    blockers = tuple(Blocker(f, (*users.get(f.address, ()), *_list_vfs(f))) for f in blocking)
    hint = f"vgpumgr passthrough bind {_choose_head(members).address}"
    if strangers := list_strangers(members):
        why = explain_shared(members, strangers)
        lost = has_disks(strangers, users)
        return Judgement(
            Verdict.SHARED, blockers, why, ANOTHER_SLOT if lost else f"{hint} --whole-group"
        )
    if any(blocker.users for blocker in blockers):
        return Judgement(Verdict.IN_USE, blockers, "the host uses it", hint)
    return Judgement(Verdict.BINDABLE, blockers, "drivers of the host have it", hint)


def _judge_open(
    members: Sequence[Function], users: Mapping[PciAddress, tuple[User, ...]]
) -> Judgement:
    """A group that no driver of the host has: a VM may."""
    opened = {
        f: tuple(u for u in users.get(f.address, ()) if u.kind is UserKind.PROCESS) for f in members
    }
    blockers = tuple(Blocker(f, found) for f, found in opened.items() if found)
    if not blockers:
        return Judgement(Verdict.VIABLE)
    return Judgement(Verdict.IN_USE, blockers, "it is taken already", "vgpumgr vm list")


def has_disks(functions: Sequence[Function], users: Mapping[PciAddress, tuple[User, ...]]) -> bool:
    """Whether disks of the host are on one of them: such are never taken."""
    found = (user for f in functions for user in users.get(f.address, ()))
    return any(user.kind is UserKind.DISK for user in found)


def _list_vfs(function: Function) -> tuple[User, ...]:
    """Its virtual functions, which would go with its driver."""
    if not function.vfs:
        return ()
    return (User(UserKind.VFS, f"it has {tell_count(len(function.vfs), 'virtual function')}"),)


def list_strangers(members: Sequence[Function]) -> list[Function]:
    """Members that belong to the host and to another device than the group's GPU."""
    head = _choose_head(members)
    return [f for f in members if f != head and not f.is_free and not f.is_beside(head)]


def explain_shared(members: Sequence[Function], strangers: Sequence[Function]) -> str:
    """Why functions of several devices are in one group, and what would part them."""
    names = ", ".join(str(f) for f in strangers)
    bridges = [str(f.address) for f in members if f.is_bridge]
    above = f" below {', '.join(bridges)}" if bridges else ""
    return (
        f"{names} cannot be isolated from it: what lies{above} between them has no ACS"
        " (access control services); another slot, or ACS in the firmware's settings, would part them"
        " (pcie_acs_override of patched kernels only claims that they are)"
    )


def explain_no_iommu(words: Sequence[str]) -> tuple[str, str]:
    """Why the kernel uses no IOMMU, and what to do, by its command line."""
    off = [w for w in words if w in ("iommu=off", "intel_iommu=off", "amd_iommu=off")]
    if off:
        return f"the kernel was started with {' '.join(off)}", f"take {' '.join(off)} away, reboot"
    if "intel_iommu=on" in words:
        why = "intel_iommu=on is set, but the firmware offers no IOMMU"
        return why, "turn VT-d on in the firmware's settings"
    return (
        "no function is in an IOMMU group",
        "Intel: kernel parameter intel_iommu=on, and VT-d on in the firmware; "
        "AMD: IOMMU on in the firmware; then reboot",
    )


def _choose_head(members: Sequence[Function]) -> Function:
    """The GPU that the group is described for, else its first function that is no bridge."""
    rest = [f for f in members if not f.is_bridge] or list(members)
    return next((f for f in rest if f.is_gpu), rest[0])


@dataclass(frozen=True, slots=True)
class DriverChoice:
    """A driver, and why this one; nothing needs to be said where it is the usual one."""

    name: str
    why: str | None = None


def choose_driver(
    function: Function,
    variants: Mapping[PciAddress, str],
    *,
    wanted: str | None = None,
    takes_variants: bool = True,
) -> DriverChoice:
    """As asked for; else the one that it has, if that gives it to VMs; else the one that the kernel
    has for its device (``variants``); else vfio-pci. ``takes_variants``: whether the libvirt that
    is to have it takes other drivers than vfio-pci.
    """
    if wanted is not None:
        return DriverChoice(wanted)
    if function.is_ready and function.driver is not None:
        return DriverChoice(function.driver)
    variant = variants.get(function.address)
    if variant is None:
        return DriverChoice(VFIO)
    if takes_variants:
        why = f"{function.address} goes to {variant}: the kernel has it for this device"
        return DriverChoice(variant, f"{why} (modules.alias)")
    return DriverChoice(
        VFIO,
        f"{function.address} goes to {VFIO}: the kernel has {variant} for this device, but this "
        "libvirt takes no other driver than vfio-pci (10.0 and later do)",
    )


def check_gives(function: Function, wanted: str, variants: Mapping[PciAddress, str]) -> None:
    """Raises UsageError for a driver of the host: it is no way to a VM, and giving that back is another
    command.
    """
    asked = replace(function, driver=wanted, has_vfio=False)
    if asked.is_ready or variants.get(function.address) == wanted:
        return
    if wanted == STUB and not function.is_gpu:
        return
    if wanted == function.driver and function.is_away:
        return
    address = function.address
    raise UsageError(
        f"{wanted} gives {address} to no VM",
        why="bind takes a function from the host: by vfio-pci, or by a driver that the kernel has for"
        " its device",
        hint=f"vgpumgr passthrough bind {address}; the host's driver comes back by vgpumgr passthrough"
        f" unbind {address}",
    )
