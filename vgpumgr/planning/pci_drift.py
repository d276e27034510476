"""What differs between the functions that were taken from the host and what is: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from vgpumgr.model.functions import Binding, Function, VfSetting, find_function
from vgpumgr.planning.drift import Drift, DriftKind
from vgpumgr.planning.passthrough import PciObserved


def find_pci_drift(observed: PciObserved, busy: Collection[str] = ()) -> tuple[Drift, ...]:
    """Every difference; ``busy`` are addresses that an unfinished operation accounts for."""
    found: list[Drift] = []
    if observed.stalls:
        text = f"virtual functions are neither made nor removed now: {'; '.join(observed.stalls)}"
        found.append(Drift(DriftKind.PCI_STALLED, "PCI", text))
    for binding in observed.bindings:
        if str(binding.address) not in busy:
            found += _find_of_binding(observed, binding)
    for setting in observed.vf_settings:
        if str(setting.physical) not in busy:
            found += _find_of_setting(observed, setting)
    return tuple(found)


def _find_of_binding(observed: PciObserved, binding: Binding) -> Iterator[Drift]:
    subject = str(binding.address)
    if binding.boot_id != observed.boot_id:
        if binding.persist:
            text = f"was not given to {binding.driver} again after the boot"
            yield Drift(DriftKind.NOT_RESTORED, subject, text, hint="vgpumgr restore")
        return
    now = find_function(observed.functions, binding.address)
    if now is None or not is_same(now, binding):
        text = f"was given to {binding.driver}, and has left the bus"
        hint = f"vgpumgr passthrough unbind {subject}"
        yield Drift(DriftKind.FUNCTION_GONE, subject, text, hint=hint)
    elif now.driver is None and (held := observed.users.get(binding.address)):
        text = f"is being taken from {binding.driver}, which waits for {'; '.join(map(str, held))}"
        yield Drift(DriftKind.DRIVER_CHANGED, subject, text)
    elif now.driver != binding.driver:
        text = f"was given to {binding.driver}, and has {now.driver or 'no driver'} now"
        hint = f"vgpumgr passthrough bind {subject}, or unbind"
        yield Drift(DriftKind.DRIVER_CHANGED, subject, text, hint=hint)


def _find_of_setting(observed: PciObserved, setting: VfSetting) -> Iterator[Drift]:
    subject = str(setting.physical)
    if setting.boot_id != observed.boot_id:
        if setting.persist:
            text = f"its {setting.count} virtual functions were not made again after the boot"
            yield Drift(DriftKind.NOT_RESTORED, subject, text, hint="vgpumgr restore")
        return
    now = find_function(observed.functions, setting.physical)
    count = len(now.vfs) if now else 0
    if count != setting.count:
        text = f"was to have {setting.count} virtual functions, and has {count}"
        hint = f"vgpumgr vf enable {subject} --count {setting.count}"
        yield Drift(DriftKind.VFS_CHANGED, subject, text, hint=hint)


def is_same(function: Function, known: Binding | VfSetting) -> bool:
    """Whether it is still that kind of device: addresses move when boards are moved."""
    return (function.vendor_id, function.device_id) == (known.vendor_id, known.device_id)
