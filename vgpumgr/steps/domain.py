"""Steps on the domain: its devices and our note."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.domain.attaching import (
    added_controllers,
    attach_device,
    check_unchanged,
    detach_device,
    find_device,
    find_vm,
    observe_device,
    remove_unused_controllers,
)
from vgpumgr.domain.devices import Attachable, Controller
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.engine.step import (
    PRIVATE,
    SHOWN_AS_ATTACHMENT,
    SHOWN_AS_VM,
    NothingDoneError,
    OneWayStep,
    Step,
)
from vgpumgr.errors import DeviceBusyError, DomainChangedError, VmNotFoundError
from vgpumgr.model.attachment import AddedController
from vgpumgr.model.frozen import dataclass
from vgpumgr.state.domain_metadata import describe_record, remove_note, save_note
from vgpumgr.steps.pci import make_release_pending

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext

_WORDS = {Scope.LIVE: "the running machine", Scope.CONFIG: "its definition"}
#: libvirt itself waits 5 s for the guest; firmware and dead guests never answer
UNDO_TIMEOUT_S = 10.0


def _forget_controllers(context: OperationContext, vm: Vm) -> Vm:
    """Takes the controllers away that came with our devices. Those that other attachments of the VM
    use by now stay, and go with the last of these.
    """
    if context.maybe_record is None:
        return vm
    wanted = tuple(
        Controller(type=c.type, index=c.index, model=c.model) for c in context.record.controllers
    )
    before = context.record.controllers_before
    if before is not None:
        # interrupted before what libvirt had added could be written down
        known = {(c.type, c.index) for c in before}
        now = vm.config.controllers if vm.config else ()
        wanted += tuple(c for c in now if (c.type, c.index or 0) not in known)
    vm = remove_unused_controllers(context.hypervisor, vm, wanted)
    return _hand_over_controllers(context, vm, wanted)


def _hand_over_controllers(
    context: OperationContext, vm: Vm, controllers: Sequence[Controller]
) -> Vm:
    there = set(list_controllers(vm.config))
    left = [c for c in _as_added(controllers) if c in there]
    if not left:
        return vm
    others = (
        r
        for r in context.attachment_store.list_attachments()
        if r.vm_uuid == context.record.vm_uuid and r.id != context.record.id
    )
    heir = next(others, None)
    if heir is not None and not set(left) <= set(heir.controllers):
        merged = tuple(dict.fromkeys((*heir.controllers, *left)))
        heir = replace(heir, controllers=merged)
        context.attachment_store.save_attachment(heir)
        if vm.find_note(heir.id) is not None:
            return save_note(context.hypervisor, vm, describe_record(heir))
    return vm


def _as_added(controllers: Iterable[Controller]) -> tuple[AddedController, ...]:
    return tuple(AddedController(c.type, c.index or 0, c.model) for c in controllers)


def list_controllers(domain: Domain | None) -> tuple[AddedController, ...]:
    """The controllers of a definition as records have them."""
    return _as_added(domain.controllers if domain else ())


@dataclass(frozen=True)
class AttachDevices(Step):
    """Gives the domain its devices: in its definition, or in the running machine."""

    vm_name: str = field(metadata=SHOWN_AS_VM)
    vm_uuid: str
    devices: tuple[Attachable, ...] = field(metadata=PRIVATE)
    scope: Scope
    #: of the definition that was planned on; None where an earlier step has checked it
    digest: str | None = field(metadata=PRIVATE)
    kind: ClassVar[str] = "domain.attach"

    @property
    def target(self) -> Mapping[str, object]:
        """The VM, where, and the devices by their aliases."""
        return {**super().target, "aliases": [str(device.alias) for device in self.devices]}

    def describe(self) -> str:
        """For people."""
        counts = Counter(device.tag for device in self.devices)
        names = " and ".join(
            f"a {tag} device" if count == 1 else f"{count} {tag} devices"
            for tag, count in counts.items()
        )
        return f"give {self.vm_name} {names} in {_WORDS[self.scope]}"

    def do(self, context: OperationContext) -> None:
        """Attaches one after the other; controllers that libvirt adds are remembered."""
        vm = before = self._find_vm(context)
        now = list_controllers(before.config)
        # an attach has recorded it at its beginning
        known = context.record.controllers_before == now
        if self.scope is Scope.CONFIG and not known:
            context.save_record(controllers_before=now)
        try:
            for device in self.devices:
                vm = attach_device(context.hypervisor, vm, device, self.scope)
        except BaseException:
            if self.scope is Scope.CONFIG:
                self._remember_controllers(context, before, context.read_vm(self.vm_uuid), known)
            raise
        if self.scope is Scope.CONFIG:
            self._remember_controllers(context, before, vm, known)
        context.seen_vm = vm

    def _find_vm(self, context: OperationContext) -> Vm:
        """The VM to change: as it is now, where a definition is counted on; the running machine as the
        step on the definition has read it back.
        """
        if self.digest is None and self.scope is Scope.LIVE:
            return context.take_vm(self.vm_uuid) or context.read_vm(self.vm_uuid)
        vm = context.read_vm(self.vm_uuid)
        if self.digest is not None:
            try:
                check_unchanged(vm, self.digest)
            except DomainChangedError as error:
                raise NothingDoneError(error) from error
        return vm

    def _remember_controllers(
        self, context: OperationContext, before: Vm, after: Vm, known: bool
    ) -> None:
        added = added_controllers(before.config, after.config)
        if known and not added:
            # until the attach's end is recorded, both say the same
            context.change_record(controllers_before=None)
            return
        controllers = (*context.record.controllers, *_as_added(added))
        context.save_record(controllers=controllers, controllers_before=None)

    def undo(self, context: OperationContext) -> None:
        """Takes them away in reverse, and the controllers that came with them."""
        vm = find_vm(context.hypervisor, self.vm_uuid)
        for device in reversed(self.devices):
            if vm is not None:
                assert device.alias is not None
                vm = detach_device(
                    context.hypervisor, vm, device.alias, self.scope, context.wait, UNDO_TIMEOUT_S
                )
        if self.scope is Scope.CONFIG:
            _forget_controllers(context, vm or context.read_vm(self.vm_uuid))

    def observe(self, context: OperationContext) -> bool:
        """Whether the domain has any of them."""
        return any(
            observe_device(context.hypervisor, self.vm_uuid, str(device.alias), self.scope)
            for device in self.devices
        )


@dataclass(frozen=True)
class DetachDevices(OneWayStep):
    """Takes the devices away again, whichever of them are there.

    ``must_release``: they are the host's; a running guest must really release them, else nothing
    behind them can be given back.
    """

    vm_name: str = field(metadata=SHOWN_AS_VM)
    vm_uuid: str
    aliases: tuple[str, ...]
    scope: Scope
    timeout_s: float = field(metadata=PRIVATE)
    must_release: bool = field(default=False, kw_only=True, metadata=PRIVATE)
    kind: ClassVar[str] = "domain.detach"

    def describe(self) -> str:
        """For people."""
        return f"take the devices away from {self.vm_name} in {_WORDS[self.scope]}"

    def do(self, context: OperationContext) -> None:
        """Takes them away. A guest that does not release a forwarded one keeps an empty shell of it
        until it stops: it cannot hold the slice back. Raises ReleasePendingError.
        """
        vm = context.take_vm(self.vm_uuid)
        for alias in self.aliases:
            try:
                vm = vm and self._detach(context, vm, alias)
            except DeviceBusyError as error:
                if self.must_release:
                    why = f"{self.vm_name} has not released {alias} in {self.timeout_s:g} s"
                    raise make_release_pending(why, [f'vm "{self.vm_name}"']) from error
                context.notes.append(f"{error}: {error.why}; {error.hint}")
                vm = context.take_vm(self.vm_uuid)
        if self.scope is Scope.CONFIG and vm is not None:
            vm = _forget_controllers_of_vm(context, vm)
        context.seen_vm = vm

    def _detach(self, context: OperationContext, vm: Vm, alias: str) -> Vm | None:
        return detach_device(
            context.hypervisor, vm, alias, self.scope, context.wait, self.timeout_s
        )

    def observe(self, context: OperationContext) -> bool:
        """Whether all are gone."""
        try:
            vm = context.hypervisor.read_vm(self.vm_uuid)
        except VmNotFoundError:
            return True
        return all(find_device(vm.definition(self.scope), alias) is None for alias in self.aliases)


def _forget_controllers_of_vm(context: OperationContext, vm: Vm) -> Vm | None:
    try:
        return _forget_controllers(context, vm)
    except VmNotFoundError:
        return None


@dataclass(frozen=True)
class WriteNote(Step):
    """Writes into the domain's metadata that it has the attachment; notes of others stay."""

    vm_name: str = field(metadata=SHOWN_AS_VM)
    vm_uuid: str
    id: str = field(metadata=SHOWN_AS_ATTACHMENT)
    kind: ClassVar[str] = "domain.note"

    def describe(self) -> str:
        """For people."""
        return f"write the attachment into the domain metadata of {self.vm_name}"

    def do(self, context: OperationContext) -> None:
        """Writes it."""
        vm = context.take_vm(self.vm_uuid) or context.read_vm(self.vm_uuid)
        context.seen_vm = save_note(context.hypervisor, vm, describe_record(context.record))

    def undo(self, context: OperationContext) -> None:
        """Removes it."""
        remove_note(context.hypervisor, context.hypervisor.read_vm(self.vm_uuid), self.id)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is there."""
        return context.hypervisor.read_vm(self.vm_uuid).find_note(self.id) is not None


@dataclass(frozen=True)
class RemoveNote(OneWayStep):
    """Removes the attachment's note from the domain's metadata; without an id, all of ours."""

    vm_name: str = field(metadata=SHOWN_AS_VM)
    vm_uuid: str
    id: str | None = field(default=None, metadata=PRIVATE)
    kind: ClassVar[str] = "domain.note.remove"

    def describe(self) -> str:
        """For people."""
        return f"remove the attachment from the domain metadata of {self.vm_name}"

    def do(self, context: OperationContext) -> None:
        """Removes it; a domain that is gone has none."""
        vm = context.take_vm(self.vm_uuid)
        if vm is not None:
            with contextlib.suppress(VmNotFoundError):
                context.seen_vm = remove_note(context.hypervisor, vm, self.id)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is gone."""
        try:
            notes = context.hypervisor.read_vm(self.vm_uuid).notes
        except VmNotFoundError:
            return True
        return not any(self.id in (None, note.id) for note in notes)
