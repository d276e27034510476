"""Which driver a function gets that is to go to a VM: pure, the same for ``bind`` and ``attach``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vgpumgr.errors import UsageError
from vgpumgr.model.functions import STUB, VFIO, Function
from vgpumgr.model.pci import PciAddress


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
