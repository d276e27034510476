"""A hypervisor in memory: definitions are real documents, devices come and go in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lxml import etree

from vgpumgr.domain.declare import Element, document_digest, parse_document
from vgpumgr.domain.devices import Channel, Controller, MdevHostdev, PciHostdev, Shmem
from vgpumgr.domain.domain import AttachmentNote, Domain
from vgpumgr.domain.hypervisor import Scope, Vm, VmState
from vgpumgr.errors import DeviceMissingError, VmNotFoundError

_CLASSES: dict[str, type[Element]] = {
    "shmem": Shmem,
    "channel": Channel,
    "controller": Controller,
    "pci": PciHostdev,
    "mdev": MdevHostdev,
}
_FIELDS = {
    "shmem": "shmems",
    "channel": "channels",
    "controller": "controllers",
    "pci": "pci_hostdevs",
    "mdev": "mdev_hostdevs",
}


@dataclass
class Machine:
    """One VM."""

    name: str
    uuid: str
    config: Domain | None
    live: Domain | None = None
    notes: tuple[AttachmentNote, ...] = ()
    #: as QEMU runs it, where libvirt knows less: it was killed before it wrote down what QEMU had done
    unseen: Domain | None = None

    @property
    def running(self) -> Domain | None:
        """What QEMU has; None: there is none."""
        return self.unseen if self.unseen is not None and self.live is not None else self.live


class FakeHypervisor:
    """Implements ``domain.hypervisor.Hypervisor``."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = {machine.uuid: machine for machine in machines}
        self.fail: dict[str, Exception] = {}
        self.guest_releases = True
        #: UUIDs of VMs whose guest releases nothing
        self.stubborn: set[str] = set()
        self.iommufd = False
        self.variant_drivers = True
        self.versions = ("9.0.0", "7.2.11")

    def list_vms(self) -> tuple[Vm, ...]:
        self._enter("list_vms")
        return tuple(self._vm(machine) for machine in self.machines.values())

    def read_vm(self, selector: str) -> Vm:
        self._enter("read_vm")
        for machine in self.machines.values():
            if selector in (machine.uuid, machine.name):
                return self._vm(machine)
        raise VmNotFoundError(f'no VM "{selector}"')

    def read_again(self, vm: Vm, scope: Scope) -> Vm:
        self._enter("read_vm")
        if vm.uuid not in self.machines:
            raise VmNotFoundError(f'no VM "{vm.uuid}"')
        now = self._vm(self.machines[vm.uuid])
        if scope is Scope.CONFIG:
            return replace(vm, config=now.config, digest=now.digest, notes=now.notes)
        return replace(now, config=vm.config, digest=vm.digest) if vm.config else now

    def attach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        self._enter(f"attach_device {scope}")
        device = _parse(xml)
        field = _FIELDS[_kind(parse_document(xml))]
        self._change(uuid, scope, field, lambda old: (*old, device))

    def detach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        self._enter(f"detach_device {scope}")
        device = _parse(xml)
        field = _FIELDS[_kind(parse_document(xml))]
        definition = self._get(uuid, scope)
        if device not in getattr(definition, field):
            raise DeviceMissingError("not there")
        if scope is Scope.CONFIG or (self.guest_releases and uuid not in self.stubborn):
            self._change(uuid, scope, field, lambda old: tuple(d for d in old if d != device))

    def set_notes(self, uuid: str, notes: Sequence[AttachmentNote], scope: Scope) -> None:
        self._enter(f"set_notes {scope}")
        self.machines[uuid].notes = tuple(notes)

    def read_qemu_owner(self) -> tuple[int, int] | None:
        return None

    def offers_iommufd(self) -> bool:
        return self.iommufd

    def takes_variant_drivers(self) -> bool:
        return self.variant_drivers

    def read_versions(self) -> tuple[str, str]:
        return self.versions

    def snapshot(self) -> object:
        """All that a roll-back must restore."""
        return {
            m.uuid: (m.config and m.config.to_xml(), m.live and m.live.to_xml(), m.notes)
            for m in self.machines.values()
        }

    def _enter(self, name: str) -> None:
        if error := self.fail.pop(name, None):
            raise error

    def _vm(self, machine: Machine) -> Vm:
        shown = machine.config or machine.live
        assert shown is not None
        return Vm(
            name=machine.name,
            uuid=machine.uuid,
            state=VmState.RUNNING if machine.live else VmState.SHUT_OFF,
            live=machine.live,
            config=machine.config,
            digest=document_digest(shown.to_xml()),
            notes=machine.notes,
        )

    def _get(self, uuid: str, scope: Scope) -> Domain:
        machine = self.machines[uuid]
        found = machine.live if scope is Scope.LIVE else machine.config
        assert found is not None
        return found

    def _change(self, uuid, scope, field, change) -> None:  # type: ignore[no-untyped-def]
        definition = self._get(uuid, scope)
        changed = definition.changed(**{field: change(getattr(definition, field))})
        # through text, as with libvirt
        changed = Domain.from_xml(changed.to_xml())
        setattr(self.machines[uuid], scope.value, changed)


def _parse(xml: str) -> Element:
    element = parse_document(xml)
    return _CLASSES[_kind(element)].from_element(element)


def _kind(element: etree._Element) -> str:
    return element.get("type", "") if element.tag == "hostdev" else str(element.tag)
