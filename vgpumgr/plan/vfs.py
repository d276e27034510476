"""Planning virtual functions: how many, by whom, and why not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpumgr.errors import (
    PciBusyError,
    VfCountError,
    VfQuotaError,
    VfUnsupportedError,
    VfVendorToolError,
)
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.sizes import tell_count
from vgpumgr.passthrough.values import GIM, NVIDIA, Function, Quota, VfSetting, VfTool
from vgpumgr.plan.passthrough import (
    DISABLE,
    ENABLE,
    PciObserved,
    list_configured,
    list_held,
    tell_releases,
)
from vgpumgr.plan.pci_steps import ChangeVfs, CreateVfs, PciWorld, RememberVfs, RemoveVfs
from vgpumgr.plan.step import Plan, Step

_AMDGPU = "amdgpu"


@dataclass(frozen=True)
class VfRequest:
    """What ``vf enable`` was asked for."""

    count: int | None = None
    persist: bool = False
    quotas: tuple[Quota, ...] = ()


def plan_vfs(
    observed: PciObserved, physical: Function, request: VfRequest, tool: VfTool | None = None
) -> Plan[PciWorld]:
    """Makes virtual functions; another number than there is goes through none, but with AMD.

    ``tool``: of the vendor, for this function.

    Raises:
        VfUnsupportedError, VfVendorToolError: not by this device, driver or program.
        VfCountError: more than it has, or none.
        VfQuotaError: its driver has none.
        PciBusyError: some are in use, and would have to go first.
    """
    check_vf_parent(physical, tool)
    count = request.count
    if count is None:
        count = find_most(physical, tool)
    _check_count(physical, count, tool)
    known = _find_setting(observed, physical)
    # quotas are set while nobody has any of them
    remake = len(physical.vfs) != count or request.quotas not in (
        (),
        known.quotas if known else (),
    )
    steps: list[Step[PciWorld]] = []
    if remake:
        steps += _remake(observed, physical, count, request)
    elif request.persist and not (known and known.persist):
        steps.append(RememberVfs(physical.address, count, known))
    return Plan(
        ENABLE,
        str(physical.address),
        tuple(steps),
        notes=()
        if steps
        else (f"{physical.address} has {tell_count(count, 'virtual function')} already",),
        result={
            "function": str(physical.address),
            "count": count,
            "concerns": list_configured(observed, physical.vfs if remake else ()),
        },
        repair=f"vgpumgr vf disable {physical.address}",
    )


def _remake(
    observed: PciObserved, physical: Function, count: int, request: VfRequest
) -> list[Step[PciWorld]]:
    address, now = physical.address, len(physical.vfs)
    by_tool = physical.vendor_id == NVIDIA
    if by_tool:
        _check_tool_may_run(observed, physical)
    if now:
        _check_vfs_unused(observed, physical, f"make {count} of {address}")
    if physical.driver == GIM:
        if request.quotas:
            raise _no_gim_quotas(physical)
        known = _find_setting(observed, physical)
        return [ChangeVfs(address, count, now, request.persist, known)]
    create = CreateVfs(address, count, request.persist, request.quotas, by_tool)
    return [_remove(observed, physical), create] if now else [create]


def _no_gim_quotas(physical: Function) -> VfQuotaError:
    return VfQuotaError(
        f"virtual functions of {physical.address} have no quotas",
        why="AMD's driver gives each the same part of the memory",
        hint=f"vgpumgr vf enable {physical.address} --count N",
    )


def make_again(setting: VfSetting, physical: Function) -> Step[PciWorld]:
    """The step that brings back what was there before a boot."""
    if physical.driver == GIM:
        return ChangeVfs(physical.address, setting.count, len(physical.vfs), True, setting)
    by_tool = physical.vendor_id == NVIDIA
    return CreateVfs(
        physical.address, setting.count, True, setting.quotas, by_tool, earlier=setting
    )


def plan_no_vfs(
    observed: PciObserved, physical: Function, tool: VfTool | None = None
) -> Plan[PciWorld]:
    """Removes all virtual functions. Raises PciBusyError where one is in use."""
    steps: tuple[Step[PciWorld], ...] = ()
    if physical.vfs:
        check_vf_parent(physical, tool)
        if physical.vendor_id == NVIDIA:
            _check_tool_may_run(observed, physical)
        _check_vfs_unused(observed, physical, f"remove those of {physical.address}")
        if physical.driver == GIM:
            raise _never_none(physical)
        steps = (_remove(observed, physical),)
    elif _find_setting(observed, physical) is not None:
        # they went without us, or have not come back at boot: nor shall they at the next
        steps = (_remove(observed, physical),)
    return Plan(
        DISABLE,
        str(physical.address),
        steps,
        notes=() if steps else (f"{physical.address} has no virtual functions",),
        result={
            "function": str(physical.address),
            "count": 0,
            "concerns": list_configured(observed, physical.vfs),
        },
        repair=f"vgpumgr vf enable {physical.address} --count {len(physical.vfs)}",
    )


def _never_none(physical: Function) -> VfUnsupportedError:
    return VfUnsupportedError(
        f"cannot remove all virtual functions of {physical.address}",
        why="AMD's GIM driver keeps at least one while it has the GPU",
        hint="take the GPU out of gim's parameter enabled_devices and load gim anew, or unload it",
    )


def check_vf_driver(physical: Function) -> None:
    """Whether it is a function whose driver makes virtual ones. Raises VfUnsupportedError."""
    address = physical.address
    if physical.physical is not None:
        raise VfUnsupportedError(
            f"{address} is a virtual function itself", hint=f"vgpumgr vf list {physical.physical}"
        )
    if not physical.vf_total:
        raise VfUnsupportedError(
            f"{address} has no virtual functions", why="it has no SR-IOV", hint="vgpumgr vf list"
        )
    if physical.driver is None or physical.is_away:
        raise VfUnsupportedError(
            f"{address} cannot make virtual functions now",
            why=f"that is its host driver's work, and it has {physical.driver or 'no driver'}",
            hint=f"vgpumgr passthrough unbind {address}",
        )
    if physical.driver == _AMDGPU:
        raise VfUnsupportedError(
            f"{address} cannot make virtual functions now",
            why="its driver amdgpu makes none; AMD's driver for hosts, GIM, does",
            hint=f"install GIM, with {address} in its parameter enabled_devices",
        )


def check_vf_parent(physical: Function, tool: VfTool | None) -> None:
    """Whether the number of its virtual functions can be set, and how.

    Raises VfUnsupportedError, VfVendorToolError.
    """
    check_vf_driver(physical)
    address = physical.address
    missing = tool.missing if tool else "nobody has looked for it"
    if physical.vendor_id == NVIDIA and missing:
        raise VfVendorToolError(
            f"virtual functions of {address} are not made by sriov_numvfs",
            why="NVIDIA's driver makes them through its own sriov-manage, which is not installed",
            hint=f"install NVIDIA's vGPU host driver; /usr/lib/nvidia/sriov-manage -e {address}",
        )
    if physical.driver == GIM and missing:
        raise VfVendorToolError(
            f"the number of virtual functions of {address} is AMD's driver's own",
            cause=missing,
            why="AMD's host library, through which it is changed, cannot be used here",
            hint="install libamdsmi.so with GIM; or echo options gim vf_num=N"
            " >/etc/modprobe.d/gim.conf, then load gim anew",
        )


def find_most(physical: Function, tool: VfTool | None) -> int:
    """How many virtual functions it can have: as its capability says, or fewer as its driver does."""
    supported = tool.supported if tool else None
    return physical.vf_total if supported is None else min(supported, physical.vf_total)


def _check_count(physical: Function, count: int, tool: VfTool | None) -> None:
    most = find_most(physical, tool)
    if not 1 <= count <= most:
        raise VfCountError(
            f"{physical.address} cannot have {count} virtual functions",
            why=f"it can have 1 to {most}" if most > 1 else "it can have one",
            hint=f"vgpumgr vf enable {physical.address} --count {most}"
            if count > most
            else f"vgpumgr vf disable {physical.address}",
        )
    if physical.vendor_id == NVIDIA and count != most:
        raise VfCountError(
            f"{physical.address} cannot have {count} virtual functions",
            why=f"sriov-manage makes all {most} of them",
            hint=f"vgpumgr vf enable {physical.address}",
        )


def _check_vfs_unused(observed: PciObserved, physical: Function, what: str) -> None:
    held = [f"{vf}: {user}" for vf in physical.vfs for user in list_held(observed, [vf])]
    if held:
        raise PciBusyError(
            f"cannot {what}",
            why="virtual functions go all at once, and some are in use",
            held_by=held,
            hint=_tell_release(observed, physical.vfs),
        )


def _tell_release(observed: PciObserved, addresses: Sequence[PciAddress]) -> str:
    return f"{tell_releases(observed, addresses) or 'stop them'}, then repeat"


def _check_tool_may_run(observed: PciObserved, physical: Function) -> None:
    """sriov-manage takes the GPU from its driver for a moment, and its instances with it."""
    address = physical.address
    places = (address, *physical.vfs)
    held = list_held(observed, places)
    hint = _tell_release(observed, places)
    if count := observed.instances.get(address):
        held.append(f"{count} MIG instances, which would be gone")
        hint += "; instances are made after the virtual functions"
    if held:
        raise PciBusyError(
            f"{address} is in use",
            why="sriov-manage takes the GPU from its driver for a moment",
            held_by=held,
            hint=hint,
        )


def _remove(observed: PciObserved, physical: Function) -> RemoveVfs:
    by_tool = physical.vendor_id == NVIDIA
    setting = _find_setting(observed, physical)
    return RemoveVfs(physical.address, len(physical.vfs), by_tool, setting)


def _find_setting(observed: PciObserved, physical: Function) -> VfSetting | None:
    return next((s for s in observed.vf_settings if s.physical == physical.address), None)
