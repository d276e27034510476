"""Planning virtual functions: how many, by whom, and why not. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.engine.step import Plan, Step
from vgpumgr.errors import PciBusyError, VfCountError, VfUnsupportedError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import Function, PciAddress, Quota, VfSetting, VfSupport
from vgpumgr.model.text import tell_count
from vgpumgr.passthrough.sriov import find_driver
from vgpumgr.planning.passthrough import (
    DISABLE,
    ENABLE,
    describe_releases,
    list_configured,
    list_held,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.vf import ChangeVfs, CreateVfs, RememberVfs, RemoveVfs


@dataclass(frozen=True)
class VfRequest:
    """What ``vf enable`` was asked for."""

    count: int | None = None
    persist: bool = False
    quotas: tuple[Quota, ...] = ()


def plan_vfs(
    observed: Snapshot, physical: Function, request: VfRequest, support: VfSupport
) -> Plan:
    """Makes virtual functions; another number than there is goes through none, unless the driver resizes.

    ``support``: as the function's SR-IOV driver observed it.

    Raises:
        VfUnsupportedError, VfVendorToolError: not by this device, driver or program.
        VfCountError: more than it has, or none.
        VfQuotaError: its driver has none.
        PciBusyError: some are in use, and would have to go first.
        GpuDrainedError: more than there are, on a drained GPU.
    """
    check_vf_parent(physical, support)
    count = support.total if request.count is None else request.count
    _check_count(physical, count, support.total)
    if count > len(physical.vfs):
        observed.check_not_drained(f"cannot enable {count} virtual functions", physical.address)
    known = _find_setting(observed, physical)
    # quotas are set while none of them is in use
    remake = len(physical.vfs) != count or request.quotas not in (
        (),
        known.quotas if known else (),
    )
    steps: list[Step] = []
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


def _remake(observed: Snapshot, physical: Function, count: int, request: VfRequest) -> list[Step]:
    address, now = physical.address, len(physical.vfs)
    driver = find_driver(physical)
    _check_not_interrupted(observed, physical, driver.interruption)
    if now:
        _check_vfs_unused(observed, physical, f"make {count} of {address}")
    if driver.resizes:
        known = _find_setting(observed, physical)
        return [ChangeVfs(address, count, now, request.persist, known)]
    known = None if now else _find_setting(observed, physical)
    create = CreateVfs(
        address, count, request.persist, request.quotas, driver.program, earlier=known
    )
    return [_remove(observed, physical), create] if now else [create]


def make_again(setting: VfSetting, physical: Function) -> Step:
    """The step that brings back what was there before a boot."""
    driver = find_driver(physical)
    if driver.resizes:
        return ChangeVfs(physical.address, setting.count, len(physical.vfs), True, setting)
    return CreateVfs(
        physical.address, setting.count, True, setting.quotas, driver.program, earlier=setting
    )


def plan_no_vfs(observed: Snapshot, physical: Function, support: VfSupport) -> Plan:
    """Removes all virtual functions. Raises PciBusyError where one is in use."""
    steps: tuple[Step, ...] = ()
    if physical.vfs:
        check_vf_parent(physical, support)
        driver = find_driver(physical)
        _check_not_interrupted(observed, physical, driver.interruption)
        _check_vfs_unused(observed, physical, f"remove those of {physical.address}")
        driver.check_none(physical)
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
    find_driver(physical).check_driver(physical)


def check_vf_parent(physical: Function, support: VfSupport) -> None:
    """Whether the number of its virtual functions can be set now.

    Raises VfUnsupportedError, VfVendorToolError.
    """
    check_vf_driver(physical)
    find_driver(physical).check_support(physical, support)


def _check_count(physical: Function, count: int, total: int) -> None:
    if not 1 <= count <= total:
        raise VfCountError(
            f"{physical.address} cannot have {count} virtual functions",
            why=f"it can have 1 to {total}" if total > 1 else "it can have one",
            hint=f"vgpumgr vf enable {physical.address} --count {total}"
            if count > total
            else f"vgpumgr vf disable {physical.address}",
        )
    find_driver(physical).check_count(physical, count, total)


def _check_vfs_unused(observed: Snapshot, physical: Function, what: str) -> None:
    held = [f"{vf}: {user}" for vf in physical.vfs for user in list_held(observed, [vf])]
    if held:
        raise PciBusyError(
            f"cannot {what}",
            why="virtual functions go all at once, and some are in use",
            held_by=held,
            hint=_describe_release(observed, physical.vfs),
        )


def _describe_release(observed: Snapshot, addresses: Sequence[PciAddress]) -> str:
    return f"{describe_releases(observed, addresses) or 'stop them'}, then repeat"


def _check_not_interrupted(
    observed: Snapshot, physical: Function, interruption: str | None
) -> None:
    """A change that interrupts the physical function needs it unused, and without GPU instances."""
    if interruption is None:
        return
    address = physical.address
    places = (address, *physical.vfs)
    held = list_held(observed, places)
    hint = _describe_release(observed, places)
    if count := observed.count_instances(address):
        held.append(f"{tell_count(count, 'MIG instance')}, which would be gone")
        hint += "; instances are made after the virtual functions"
    if held:
        raise PciBusyError(
            f"{address} is in use",
            why=interruption,
            held_by=held,
            hint=hint,
        )


def _remove(observed: Snapshot, physical: Function) -> RemoveVfs:
    program, setting = find_driver(physical).program, _find_setting(observed, physical)
    return RemoveVfs(physical.address, len(physical.vfs), program, setting)


def _find_setting(observed: Snapshot, physical: Function) -> VfSetting | None:
    return next((s for s in observed.vf_settings if s.physical == physical.address), None)
