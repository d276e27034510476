"""The act of attaching: giving one device to a domain, taking it away, and observing which it has.

A device is known by its alias. Nothing is ever redefined as a whole: libvirt adds and removes our
device alone, so what others change meanwhile stays. Controllers that libvirt added for our device
are found by comparison and taken away again with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lxml import etree

from vgpumgr.domain.declare import render_element
from vgpumgr.domain.devices import Attachable, Channel, Controller, MdevHostdev, PciHostdev, Shmem
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Hypervisor, Scope, Vm
from vgpumgr.errors import (
    DeviceBusyError,
    DeviceMissingError,
    DomainChangedError,
    LibvirtError,
    ReadBackError,
    VmNotFoundError,
)

#: waits (seconds) until the condition holds; False when it did not by then
Wait = Callable[[Callable[[], bool], float], bool]


def find_device(domain: Domain | None, alias: str) -> Attachable | None:
    """The device of that alias, if the definition has it."""
    devices = domain.devices if domain is not None else ()
    return next((device for device in devices if device.alias == alias), None)


def find_vm(hypervisor: Hypervisor, vm_uuid: str) -> Vm | None:
    """The VM as it is now; None if it is gone."""
    try:
        return hypervisor.read_vm(vm_uuid)
    except VmNotFoundError:
        return None


def has_device(vm: Vm | None, alias: str, scope: Scope) -> bool:
    """Whether the VM, as it was read, has the device; one that is gone has none."""
    return vm is not None and find_device(vm.definition(scope), alias) is not None


def observe_device(hypervisor: Hypervisor, vm_uuid: str, alias: str, scope: Scope) -> bool:
    """Whether the domain has the device now; a domain that is gone has none."""
    return has_device(find_vm(hypervisor, vm_uuid), alias, scope)


def check_unchanged(vm: Vm, digest: str) -> None:
    """Raises DomainChangedError if the domain's definition is not the one that was planned on."""
    if vm.digest != digest:
        raise DomainChangedError(
            f"cannot change {vm}: its definition is not the one that was read",
            why="another program changed it meanwhile",
            held_by=[f"the editor of {vm}"],
            hint="repeat the command: it plans anew",
        )


def attach_device(hypervisor: Hypervisor, vm: Vm, device: Attachable, scope: Scope) -> Vm:
    """Gives the device to the domain and reads it back; one that is there already stays.

    ``vm`` is the domain as it was read last; answers it with the changed definition as it is read
    back.
    """
    assert device.alias is not None
    if has_device(vm, device.alias, scope):
        return vm
    hypervisor.attach_device(vm.uuid, device.to_xml(), scope)
    try:
        now = hypervisor.read_again(vm, scope)
    except VmNotFoundError:
        now = None
    if now is None or not has_device(now, device.alias, scope):
        raise ReadBackError(
            f"libvirt took {device.alias} ({scope}), but the domain does not have it"
        )
    return now


def detach_device(
    hypervisor: Hypervisor, vm: Vm, alias: str, scope: Scope, wait: Wait, timeout_s: float
) -> Vm | None:
    """Takes the device away, if it is there. A running guest must release it.

    ``vm`` is the domain as it was read last; answers it as it is afterwards, None if it is gone.

    Raises:
        DeviceBusyError: the guest has not released it in time.
    """
    device = find_device(vm.definition(scope), alias)
    if device is None:
        return vm
    now: Vm | None = vm

    def is_gone() -> bool:
        nonlocal now
        now = find_vm(hypervisor, vm.uuid)
        return not has_device(now, alias, scope)

    try:
        hypervisor.detach_device(vm.uuid, device.to_xml(), scope)
    except (DeviceMissingError, VmNotFoundError):
        return find_vm(hypervisor, vm.uuid)
    except LibvirtError:
        # a domain that stopped meanwhile, or a second request while one is pending: the domain as it is then decides
        if not is_gone() and scope is Scope.CONFIG:
            raise
    if not wait(is_gone, timeout_s):
        raise DeviceBusyError(
            f"the guest has not released {alias}",
            why=f"no answer to the request to unplug it in {timeout_s:g} s",
            hint="it goes when the guest stops",
        )
    return now


def added_controllers(before: Domain | None, after: Domain | None) -> tuple[Controller, ...]:
    """Controllers that the later definition has and the earlier had not (by type and index)."""
    if before is None or after is None:
        return ()
    known = {(c.type, c.index) for c in before.controllers}
    return tuple(c for c in after.controllers if (c.type, c.index) not in known)


def remove_unused_controllers(
    hypervisor: Hypervisor, vm: Vm, wanted_gone: tuple[Controller, ...]
) -> Vm:
    """Takes those controllers out of the definition that nothing uses; the others stay.

    ``vm`` is the domain as it was read last; answers it as it is afterwards.
    """
    for controller in sorted(wanted_gone, key=lambda c: -_rank(c)):
        present = _find_controller(vm.config, controller)
        if vm.config is not None and present is not None and not _is_used(vm.config, present):
            hypervisor.detach_device(vm.uuid, present.to_xml(), Scope.CONFIG)
            vm = hypervisor.read_vm(vm.uuid)
    return vm


def _rank(controller: Controller) -> int:
    """Leaves first: virtio-serial, then PCI buses from the highest index down."""
    return 1000 if controller.type != "pci" else controller.index or 0


def _find_controller(domain: Domain | None, wanted: Controller) -> Controller | None:
    if domain is None:
        return None
    key = (wanted.type, wanted.index, wanted.model)
    return next((c for c in domain.controllers if (c.type, c.index, c.model) == key), None)


def _is_used(domain: Domain, controller: Controller) -> bool:
    if controller.type == "pci":
        return any(a.bus == (controller.index or 0) for a in domain.pci_addresses())
    used = domain.to_element().xpath(
        "boolean(devices/*/address[@type=$kind and @controller=$index])",
        kind=controller.type,
        index=str(controller.index or 0),
    )
    return bool(used)


def add_devices(domain: Domain, devices: Sequence[Attachable]) -> Domain:
    """The definition with the devices. What libvirt adds by itself (addresses, controllers) is not
    in it.
    """
    return domain.changed(
        shmems=(*domain.shmems, *(d for d in devices if isinstance(d, Shmem))),
        channels=(*domain.channels, *(d for d in devices if isinstance(d, Channel))),
        pci_hostdevs=(*domain.pci_hostdevs, *(d for d in devices if isinstance(d, PciHostdev))),
        mdev_hostdevs=(*domain.mdev_hostdevs, *(d for d in devices if isinstance(d, MdevHostdev))),
    )


def render_domain(domain: Domain) -> str:
    """The whole document as text, indented as libvirt does, with a newline at its end."""
    root = domain.to_element()
    etree.indent(root, "  ")
    return render_element(root) + "\n"
