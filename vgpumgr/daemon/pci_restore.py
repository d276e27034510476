"""Functions and virtual functions that are taken at every boot, and what differs from the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from vgpumgr.daemon.parts import Parts
from vgpumgr.daemon.pci_apply import execute_pci, list_busy, settle_pci
from vgpumgr.errors import PciBusyError, PciNotFoundError, VgpumgrError
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.values import (
    NVIDIA,
    Binding,
    Function,
    UserKind,
    VfSetting,
    find_function,
)
from vgpumgr.plan.drift import Drift
from vgpumgr.plan.passthrough import BIND, ENABLE, PciObserved
from vgpumgr.plan.pci_drift import find_pci_drift, is_same
from vgpumgr.plan.pci_steps import BindDriver
from vgpumgr.plan.step import Plan
from vgpumgr.plan.vfs import make_again

#: does one thing, and tells whether it could be done
Try = Callable[[str, Callable[[], object]], bool]


def restore_pci(parts: Parts, try_one: Try, *, early: bool = False) -> list[str]:
    """Virtual functions first, for these may be among what is bound. Under the machine's lock.

    ``early``: before services use the GPUs. What sriov-manage makes has time until MIG mode is on,
    and what has moved is left for later, when NVML can say where it is.

    Answers what was settled of operations that were interrupted.
    """
    pci = parts.pci
    notes = [note for note, _ in settle_pci(parts)]
    for setting in pci.list_vf_settings():
        if setting.boot_id == pci.boot_id:
            continue
        if early and setting.vendor_id == NVIDIA:
            continue
        if setting.persist:
            what = f"{setting.count} virtual functions of {setting.physical}"
            try_one(what, partial(_make_vfs, parts, setting))
        else:
            pci.forget_vf_setting(setting.physical)
    for binding in pci.list_bindings():
        if binding.boot_id == pci.boot_id:
            continue
        if early and not _is_there(parts, binding):
            continue
        if binding.persist:
            action = partial(_bind, parts, binding, follow=not early)
            try_one(f"{binding.address} to {binding.driver}", action)
        else:
            pci.forget_binding(binding.address)
    return notes


def find_drift_of_pci(parts: Parts) -> Sequence[Drift]:
    """What differs from the record, and what holds up the whole bus. Where nothing was ever taken
    functions are not looked at. Raises StoreError.
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


def _make_vfs(parts: Parts, setting: VfSetting) -> None:
    physical = _check_same(parts, setting.physical, setting)
    step = make_again(setting, physical)
    execute_pci(parts, Plan(ENABLE, str(physical.address), (step,)))


def _is_there(parts: Parts, binding: Binding) -> bool:
    try:
        return is_same(parts.pci.read_function(binding.address), binding)
    except PciNotFoundError:
        return False


def _bind(parts: Parts, binding: Binding, *, follow: bool) -> None:
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
    execute_pci(parts, Plan(BIND, str(function.address), (step,)))


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
    """That it is the boot display was confirmed when it was first bound; that somebody has it open
    or has mounted a disk of it now was not.
    """
    users = parts.pci.list_users([function]).get(function.address, ())
    held = [str(u) for u in users if u.kind in (UserKind.PROCESS, UserKind.DISK)]
    if held:
        raise PciBusyError(
            f"{function.address} is in use", held_by=held, hint="stop them, then: vgpumgr restore"
        )


def find_gone(
    functions: Sequence[Function], bindings: Sequence[Binding], text: str
) -> Function | None:
    """The function of a binding that has left the bus, by its address."""
    try:
        address = PciAddress.parse(text)
    except ValueError:
        return None
    known = next((b for b in bindings if b.address == address), None)
    if known is None or find_function(functions, address) is not None:
        return None
    return Function(address, known.vendor_id, known.device_id, 0)
