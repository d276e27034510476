"""Functions and virtual functions that are taken at every boot, and what differs from the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from vgpumgr.app.operations.pci_recovery import execute_pci, list_busy
from vgpumgr.app.parts import Parts
from vgpumgr.engine.step import Plan
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import PciBusyError, PciNotFoundError, VgpumgrError
from vgpumgr.model.functions import (
    Binding,
    Function,
    UserKind,
    VfSetting,
)
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.sriov import SrIovDriver, find_driver
from vgpumgr.planning.drift import Drift
from vgpumgr.planning.passthrough import BIND, ENABLE, PciObserved
from vgpumgr.planning.pci_drift import find_pci_drift, is_same
from vgpumgr.planning.vfs import make_again
from vgpumgr.steps.pci import BindDriver

#: does one thing, and reports whether it could be done
Try = Callable[[str, Callable[[], object]], bool]


def restore_pci(
    parts: Parts, transaction: Transaction, try_one: Try, *, early: bool = False
) -> None:
    """Virtual functions first, for these may be among what is bound.

    ``early``: before services use the GPUs. What an SR-IOV driver does not restore early waits for MIG mode, and
    what has moved waits until NVML reports where it is.
    """
    pci = parts.pci
    for setting in pci.list_vf_settings():
        if setting.boot_id == pci.boot_id:
            continue
        if early and not _find_sriov(setting).restores_early:
            continue
        if setting.persist:
            what = f"{setting.count} virtual functions of {setting.physical}"
            try_one(what, partial(_make_vfs, parts, transaction, setting))
        else:
            pci.forget_vf_setting(setting.physical)
    for binding in pci.list_bindings():
        if binding.boot_id == pci.boot_id:
            continue
        if early and not _is_there(parts, binding):
            continue
        if binding.persist:
            action = partial(_bind, parts, transaction, binding, follow=not early)
            try_one(f"{binding.address} to {binding.driver}", action)
        else:
            pci.forget_binding(binding.address)


def find_drift_of_pci(parts: Parts) -> Sequence[Drift]:
    """What differs from the record, and what holds up the whole bus. Where nothing was ever taken
    functions are not read. Raises StoreError.
    """
    pci = parts.pci
    bindings, settings = pci.list_bindings(), pci.list_vf_settings()
    stalls = pci.list_removals()
    if not bindings and not settings:
        return find_pci_drift(PciObserved((), stalls=stalls))
    functions = pci.list_functions()
    taken = {binding.address for binding in bindings}
    leaving = [f for f in functions if f.address in taken and f.driver is None]
    observed = PciObserved(
        functions,
        bindings,
        settings,
        pci.list_users(leaving) if leaving else {},
        boot_id=pci.boot_id,
        stalls=stalls,
    )
    return find_pci_drift(observed, list_busy(parts))


def _make_vfs(parts: Parts, transaction: Transaction, setting: VfSetting) -> None:
    physical = _check_same(parts, setting.physical, setting)
    step = make_again(setting, physical)
    execute_pci(parts, transaction, Plan(ENABLE, str(physical.address), (step,)))


def _find_sriov(setting: VfSetting) -> SrIovDriver:
    """By what is remembered: the function may have left the bus."""
    return find_driver(Function(setting.physical, setting.vendor_id, setting.device_id, 0))


def _is_there(parts: Parts, binding: Binding) -> bool:
    try:
        return is_same(parts.pci.read_function(binding.address), binding)
    except PciNotFoundError:
        return False


def _bind(parts: Parts, transaction: Transaction, binding: Binding, *, follow: bool) -> None:
    address = _find_again(parts, binding) if follow else binding.address
    function = _check_same(parts, address, binding)
    _check_processes(parts, function)
    if function.address != binding.address:
        parts.pci.forget_binding(binding.address)
    step = BindDriver(
        function.address,
        binding.driver,
        function.driver,
        True,
        True,
        binding.gpu_uuid,
        binding.model,
        binding,
        binding.gpu_index,
    )
    execute_pci(parts, transaction, Plan(BIND, str(function.address), (step,)))


def _find_again(parts: Parts, binding: Binding) -> PciAddress:
    """Where it is now: a GPU is followed by its UUID where boards were moved."""
    if binding.gpu_uuid is None:
        return binding.address
    try:
        gpus = parts.read_inventory().gpus
    except VgpumgrError:
        return binding.address
    found = (gpu.pci for gpu in gpus if str(gpu.uuid) == binding.gpu_uuid)
    return next(found, binding.address)


def _check_same(parts: Parts, address: PciAddress, known: Binding | VfSetting) -> Function:
    function = parts.pci.read_function(address)
    if not is_same(function, known):
        raise PciNotFoundError(
            f"at {address} is another device",
            why=f"it was {known.vendor_id:04x}:{known.device_id:04x}, "
            f"it is {function.vendor_id:04x}:{function.device_id:04x}",
            hint="vgpumgr passthrough list",
        )
    return function


def _check_processes(parts: Parts, function: Function) -> None:
    """That it is the boot display was confirmed when it was first bound; that a process has it open
    or a disk of it is mounted now was not.
    """
    users = parts.pci.list_users([function]).get(function.address, ())
    held = [str(u) for u in users if u.kind in (UserKind.PROCESS, UserKind.DISK)]
    if held:
        raise PciBusyError(
            f"{function.address} is in use", held_by=held, hint="stop them, then: vgpumgr restore"
        )
