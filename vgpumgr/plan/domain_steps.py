"""Steps on the domain: its devices and our note."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from vgpumgr.domain.attaching import (
    Attachable,
    added_controllers,
    attach_device,
    check_unchanged,
    detach_device,
    find_device,
    look_at_vm,
    observe_device,
    remove_unused_controllers,
)
from vgpumgr.domain.devices import Controller
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.errors import DeviceBusyError, DomainChangedError, VmNotFoundError
from vgpumgr.plan.note import describe_record, remove_note, save_note
from vgpumgr.plan.record import AddedController
from vgpumgr.plan.step import NothingDoneError
from vgpumgr.plan.world import World

_WORDS = {Scope.LIVE: "the running machine", Scope.CONFIG: "its definition"}
#: libvirt itself waits 5 s for the guest; firmware and dead guests never answer
UNDO_TIMEOUT_S = 10.0


def _forget_controllers(world: World, vm: Vm) -> Vm:
    """Takes the controllers away that came with our devices. Those that other attachments of the VM
    use by now stay, and go with the last of these.
    """
    if world.maybe_record is None:
        return vm
    wanted = tuple(
        Controller(type=c.type, index=c.index, model=c.model) for c in world.record.controllers
    )
    before = world.record.controllers_before
    if before is not None:
        # interrupted before what libvirt had added could be written down
        known = {(c.type, c.index) for c in before}
        now = vm.config.controllers if vm.config else ()
        wanted += tuple(c for c in now if (c.type, c.index or 0) not in known)
    vm = remove_unused_controllers(world.hypervisor, vm, wanted)
    return _hand_over_controllers(world, vm, wanted)


def _hand_over_controllers(world: World, vm: Vm, controllers: Sequence[Controller]) -> Vm:
    there = set(list_controllers(vm.config))
    left = [c for c in _as_added(controllers) if c in there]
    if not left:
        return vm
    others = (
        r
        for r in world.store.list_attachments()
        if r.vm_uuid == world.record.vm_uuid and r.id != world.record.id
    )
    heir = next(others, None)
    if heir is not None and not set(left) <= set(heir.controllers):
        merged = tuple(dict.fromkeys((*heir.controllers, *left)))
        heir = replace(heir, controllers=merged)
        world.store.save_attachment(heir)
        if vm.find_note(heir.id) is not None:
            return save_note(world.hypervisor, vm, describe_record(heir))
    return vm


def _as_added(controllers: Iterable[Controller]) -> tuple[AddedController, ...]:
    return tuple(AddedController(c.type, c.index or 0, c.model) for c in controllers)


def list_controllers(domain: Domain | None) -> tuple[AddedController, ...]:
    """The controllers of a definition as records have them."""
    return _as_added(domain.controllers if domain else ())


@dataclass(frozen=True)
class AttachDevices:
    """Gives the domain its devices: in its definition, or in the running machine."""

    vm_name: str
    vm_uuid: str
    devices: tuple[Attachable, ...]
    scope: Scope
    #: of the definition that was planned on; None where an earlier step has checked it
    digest: str | None
    kind: ClassVar[str] = "domain.attach"

    @property
    def target(self) -> Mapping[str, object]:
        """The VM, where, and the devices by their aliases."""
        return {
            "vm": self.vm_name,
            "vm_uuid": self.vm_uuid,
            "scope": str(self.scope),
            "aliases": [str(device.alias) for device in self.devices],
        }

    def describe(self) -> str:
        """For people."""
        counts = Counter(device.tag for device in self.devices)
        names = " and ".join(
            f"a {tag} device" if count == 1 else f"{count} {tag} devices"
            for tag, count in counts.items()
        )
        return f"give {self.vm_name} {names} in {_WORDS[self.scope]}"

    def do(self, world: World) -> None:
        """Attaches one after the other; controllers that libvirt adds are remembered."""
        vm = before = self._find_vm(world)
        now = list_controllers(before.config)
        # an attach has recorded it at its beginning
        known = world.record.controllers_before == now
        if self.scope is Scope.CONFIG and not known:
            world.remember(controllers_before=now)
        try:
            for device in self.devices:
                vm = attach_device(world.hypervisor, vm, device, self.scope)
        except BaseException:
            if self.scope is Scope.CONFIG:
                self._remember_controllers(world, before, world.read_vm(self.vm_uuid), known)
            raise
        if self.scope is Scope.CONFIG:
            self._remember_controllers(world, before, vm, known)
        world.seen_vm = vm

    def _find_vm(self, world: World) -> Vm:
        """The VM to change: as it is now, where a definition is counted on; the running machine as the
        step on the definition has read it back.
        """
        if self.digest is None and self.scope is Scope.LIVE:
            return world.take_vm(self.vm_uuid) or world.read_vm(self.vm_uuid)
        vm = world.read_vm(self.vm_uuid)
        if self.digest is not None:
            try:
                check_unchanged(vm, self.digest)
            except DomainChangedError as error:
                raise NothingDoneError(error) from error
        return vm

    def _remember_controllers(self, world: World, before: Vm, after: Vm, known: bool) -> None:
        added = added_controllers(before.config, after.config)
        if known and not added:
            # until the attach's end is recorded, both say the same
            world.note(controllers_before=None)
            return
        controllers = (*world.record.controllers, *_as_added(added))
        world.remember(controllers=controllers, controllers_before=None)

    def undo(self, world: World) -> None:
        """Takes them away in reverse, and the controllers that came with them."""
        vm = look_at_vm(world.hypervisor, self.vm_uuid)
        for device in reversed(self.devices):
            if vm is not None:
                assert device.alias is not None
                vm = detach_device(
                    world.hypervisor, vm, device.alias, self.scope, world.wait, UNDO_TIMEOUT_S
                )
        if self.scope is Scope.CONFIG:
            _forget_controllers(world, vm or world.read_vm(self.vm_uuid))

    def observe(self, world: World) -> bool:
        """Whether the domain has any of them."""
        return any(
            observe_device(world.hypervisor, self.vm_uuid, str(device.alias), self.scope)
            for device in self.devices
        )


@dataclass(frozen=True)
class DetachDevices:
    """Takes the devices away again, whichever of them are there."""

    vm_name: str
    vm_uuid: str
    aliases: tuple[str, ...]
    scope: Scope
    timeout_s: float
    kind: ClassVar[str] = "domain.detach"

    @property
    def target(self) -> Mapping[str, object]:
        """The VM, where, and the devices by their aliases."""
        return {
            "vm": self.vm_name,
            "vm_uuid": self.vm_uuid,
            "scope": str(self.scope),
            "aliases": list(self.aliases),
        }

    def describe(self) -> str:
        """For people."""
        return f"take the devices away from {self.vm_name} in {_WORDS[self.scope]}"

    def do(self, world: World) -> None:
        """Takes them away. A guest that does not release one keeps an empty shell of it until it
        stops: it cannot hold the slice back.
        """
        vm = world.take_vm(self.vm_uuid)
        for alias in self.aliases:
            try:
                vm = vm and self._detach(world, vm, alias)
            except DeviceBusyError as error:
                world.notes.append(f"{error}: {error.why}; {error.hint}")
                vm = world.take_vm(self.vm_uuid)
        if self.scope is Scope.CONFIG and vm is not None:
            vm = _forget_controllers_of_vm(world, vm)
        world.seen_vm = vm

    def _detach(self, world: World, vm: Vm, alias: str) -> Vm | None:
        return detach_device(world.hypervisor, vm, alias, self.scope, world.wait, self.timeout_s)

    def undo(self, world: World) -> None:
        """Nothing: a detach goes on, it is not taken back."""

    def observe(self, world: World) -> bool:
        """Whether all are gone."""
        try:
            vm = world.hypervisor.read_vm(self.vm_uuid)
        except VmNotFoundError:
            return True
        return all(find_device(vm.definition(self.scope), alias) is None for alias in self.aliases)


def _forget_controllers_of_vm(world: World, vm: Vm) -> Vm | None:
    try:
        return _forget_controllers(world, vm)
    except VmNotFoundError:
        return None


@dataclass(frozen=True)
class WriteNote:
    """Writes into the domain's metadata that it has the attachment; notes of others stay."""

    vm_name: str
    vm_uuid: str
    id: str
    kind: ClassVar[str] = "domain.note"

    @property
    def target(self) -> Mapping[str, object]:
        """The VM and the attachment."""
        return {"vm": self.vm_name, "vm_uuid": self.vm_uuid, "attachment": self.id}

    def describe(self) -> str:
        """For people."""
        return f"note the attachment in {self.vm_name}'s metadata"

    def do(self, world: World) -> None:
        """Writes it."""
        vm = world.take_vm(self.vm_uuid) or world.read_vm(self.vm_uuid)
        world.seen_vm = save_note(world.hypervisor, vm, describe_record(world.record))

    def undo(self, world: World) -> None:
        """Removes it."""
        remove_note(world.hypervisor, world.hypervisor.read_vm(self.vm_uuid), self.id)

    def observe(self, world: World) -> bool:
        """Whether it is there."""
        return world.hypervisor.read_vm(self.vm_uuid).find_note(self.id) is not None


@dataclass(frozen=True)
class RemoveNote:
    """Removes the attachment's note from the domain's metadata; without an id, all of ours."""

    vm_name: str
    vm_uuid: str
    id: str | None = None
    kind: ClassVar[str] = "domain.note.remove"

    @property
    def target(self) -> Mapping[str, object]:
        """The VM."""
        return {"vm": self.vm_name, "vm_uuid": self.vm_uuid}

    def describe(self) -> str:
        """For people."""
        return f"remove the note from {self.vm_name}'s metadata"

    def do(self, world: World) -> None:
        """Removes it; a domain that is gone has none."""
        vm = world.take_vm(self.vm_uuid)
        if vm is not None:
            with contextlib.suppress(VmNotFoundError):
                world.seen_vm = remove_note(world.hypervisor, vm, self.id)

    def undo(self, world: World) -> None:
        """Nothing: a detach goes on, it is not taken back."""

    def observe(self, world: World) -> bool:
        """Whether it is gone."""
        try:
            notes = world.hypervisor.read_vm(self.vm_uuid).notes
        except VmNotFoundError:
            return True
        return not any(self.id in (None, note.id) for note in notes)
