"""Steps that give a host's PCI functions to a VM and take them back.

They wrap those of ``pci_steps`` for functions that a guest may hold: nothing is unbound while QEMU
has it open, because the kernel would wait for QEMU, and whatever asks for the device lock with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from vgpumgr.domain.attaching import observe_device
from vgpumgr.domain.hypervisor import Scope
from vgpumgr.errors import (
    DeviceBusyError,
    PciNotFoundError,
    ReleasePendingError,
    VfPlaceError,
    VgpuBusyError,
    VmNotFoundError,
)
from vgpumgr.model.pci import PciAddress
from vgpumgr.plan.domain_steps import DetachDevices
from vgpumgr.plan.note import describe_record, save_note
from vgpumgr.plan.pci_steps import BindDriver, PrepareVf, ReleaseDriver, RemoveVfs
from vgpumgr.plan.record import AttachmentRecord, HostDevice
from vgpumgr.plan.record_steps import RecordAttachment
from vgpumgr.plan.step import NothingDoneError
from vgpumgr.plan.vgpu_record import VgpuInstance
from vgpumgr.plan.vgpu_steps import DeleteVgpu, describe_place
from vgpumgr.plan.world import World

#: QEMU closes its devices a moment after libvirt has told that they are gone
RELEASE_TIMEOUT_S = 15.0


def _await_release(world: World, address: PciAddress) -> None:
    """Waits until nobody has the function open. Raises ReleasePendingError."""
    held_by: list[str] = []

    def is_free() -> bool:
        held_by.clear()
        with contextlib.suppress(PciNotFoundError):
            function = world.pci.read_function(address)
            users = world.pci.list_users([function]) if function.is_away else {}
            held_by.extend(str(user) for found in users.values() for user in found)
        return not held_by

    if not world.wait(is_free, RELEASE_TIMEOUT_S):
        raise _pending(f"{address} is not free yet", held_by)


def _pending(what: str, held_by: list[str] | tuple[str, ...] = ()) -> ReleasePendingError:
    return ReleasePendingError(
        what,
        why="nothing is lost: it stays the VM's, and goes as soon as the guest lets go or stops: the "
        "daemon does that by itself, and so does the next command that changes something",
        held_by=held_by,
        hint="shut the VM down; without the daemon, vgpumgr recover afterwards",
    )


@dataclass(frozen=True)
class RecordHostdevs(RecordAttachment):
    """Records the attachment before anything else is changed."""

    def undo(self, world: World) -> None:
        """Forgets it, unless something is left that could not be undone: that is still the VM's, and
        ``detach`` knows it by the record.
        """
        if not self._has_left(world):
            super().undo(world)

    def _has_left(self, world: World) -> bool:
        bound = {binding.address for binding in world.pci.list_bindings()}
        ours = {r.spec.uuid for r in world.vgpu_store.list_vgpus() if r.takes_room}
        for device in self.record.host_devices:
            if device.vgpu is not None and device.vgpu.uuid in ours:
                return True
            if device.vgpu is None and device.created and device.address in bound:
                return True
            if observe_device(world.hypervisor, self.record.vm_uuid, device.alias, Scope.LIVE):
                return True
        return False


@dataclass(frozen=True)
class TakeFunction:
    """Takes a function from the host's driver for a VM."""

    bind: BindDriver
    kind: ClassVar[str] = BindDriver.kind

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return self.bind.target

    def describe(self) -> str:
        """For people."""
        return self.bind.describe()

    def do(self, world: World) -> None:
        """Binds it."""
        self.bind.do(world)

    def undo(self, world: World) -> None:
        """Gives it back once nobody has it open."""
        if self.bind.observe(world):
            _await_release(world, self.bind.address)
        self.bind.undo(world)

    def observe(self, world: World) -> bool:
        """Whether it was taken."""
        return self.bind.observe(world)


@dataclass(frozen=True)
class TakeVf:
    """Takes a virtual function for a VM, and checks that it is where it was expected."""

    prepare: PrepareVf
    address: PciAddress
    #: whether it is taken again at every boot
    persist: bool = False
    kind: ClassVar[str] = PrepareVf.kind

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return {**self.prepare.target, "address": str(self.address), "persist": self.persist}

    def describe(self) -> str:
        """For people."""
        return f"{self.prepare.describe()} ({self.address})"

    def do(self, world: World) -> None:
        """Binds it. The domain's device names the address: another function must not be there."""
        found = self.prepare.find_address(world)
        if found != self.address:
            raise VfPlaceError(
                f"virtual function {self.prepare.index} of {self.prepare.physical} is at {found}",
                why=f"it was expected at {self.address}",
                hint=f"vgpumgr vf enable {self.prepare.physical}, then attach",
            )
        self.prepare.do(world)
        for binding in world.pci.list_bindings():
            if binding.address == self.address and binding.persist != self.persist:
                world.pci.save_binding(replace(binding, persist=self.persist))

    def undo(self, world: World) -> None:
        """Gives it back once nobody has it open."""
        if self.prepare.observe(world):
            _await_release(world, self.address)
        self.prepare.undo(world)

    def observe(self, world: World) -> bool:
        """Whether it was taken."""
        return self.prepare.observe(world)


@dataclass(frozen=True)
class ReturnFunction:
    """Gives a function back to the host's driver, once nobody has it open."""

    release: ReleaseDriver
    kind: ClassVar[str] = ReleaseDriver.kind

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return self.release.target

    def describe(self) -> str:
        """For people."""
        return self.release.describe()

    def do(self, world: World) -> None:
        """Gives it back. One that has another driver by now (after a boot) is only forgotten.

        Raises ReleasePendingError.
        """
        release = self._find_release(world)
        binding = release.binding
        try:
            now = world.pci.read_function(binding.address)
        except PciNotFoundError:
            world.pci.forget_binding(binding.address)
            return
        if now.driver not in (binding.driver, None):
            world.pci.forget_binding(binding.address)
            return
        _await_release(world, binding.address)
        release.do(world)

    def _find_release(self, world: World) -> ReleaseDriver:
        """What is remembered of the binding knows more, driver_override for one."""
        for known in world.pci.list_bindings():
            if known.address == self.release.binding.address:
                return ReleaseDriver(known)
        return self.release

    def undo(self, world: World) -> None:
        """Nothing: a detach goes on, it is not taken back."""

    def observe(self, world: World) -> bool:
        """Whether the host has it again."""
        return self.release.observe(world)


@dataclass(frozen=True)
class ReturnVgpu:
    """Removes the vGPU that was made for a VM, once nobody has it open."""

    delete: DeleteVgpu
    #: the GPU instance that it lives in, if that was made for it or for one that it joined
    home: VgpuInstance | None = None
    kind: ClassVar[str] = DeleteVgpu.kind

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return self.delete.target

    def describe(self) -> str:
        """For people."""
        return self.delete.describe()

    def do(self, world: World) -> None:
        """Removes it. Raises ReleasePendingError. What is remembered of it may go with it: where it
        lived is written down before, for whoever goes on after a crash.
        """
        self._note_home(world)
        try:
            self.delete.do(world)
        except NothingDoneError as error:
            if not isinstance(error.error, VgpuBusyError):
                raise
            spec = self.delete.spec
            what = f"vGPU {spec.type_name} {describe_place(spec)} is not free yet"
            raise NothingDoneError(_pending(what, tuple(error.error.held_by))) from error

    def _note_home(self, world: World) -> None:
        uuid, boot = self.delete.spec.uuid, world.pci.boot_id
        devices = tuple(
            replace(device, instance=self.home)
            if device.vgpu and device.vgpu.uuid == uuid
            else device
            for device in world.record.host_devices
        )
        dated = world.record.instances_boot == boot or self.home is None
        if devices != world.record.host_devices or not dated:
            world.remember(host_devices=devices, instances_boot=boot)

    def undo(self, world: World) -> None:
        """Nothing: a detach goes on, it is not taken back."""

    def observe(self, world: World) -> bool:
        """Whether it is gone."""
        return self.delete.observe(world)


@dataclass(frozen=True)
class DropVfs:
    """Removes the virtual functions that attach made; those of a device that is gone are."""

    remove: RemoveVfs
    kind: ClassVar[str] = RemoveVfs.kind

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return self.remove.target

    def describe(self) -> str:
        """For people."""
        return self.remove.describe()

    def do(self, world: World) -> None:
        """Removes them. Raises PciBusyError while somebody uses one."""
        try:
            world.pci.read_function(self.remove.physical)
        except PciNotFoundError:
            world.pci.forget_vf_setting(self.remove.physical)
            return
        self.remove.do(world)

    def undo(self, world: World) -> None:
        """Nothing: a detach goes on, it is not taken back."""

    def observe(self, world: World) -> bool:
        """Whether there are none."""
        return self.remove.observe(world)


@dataclass(frozen=True)
class UnplugDevices(DetachDevices):
    """Takes host devices away; a running guest must really release them, else nothing behind them
    can be given back.
    """

    def do(self, world: World) -> None:
        """Asks for all, then waits. Raises ReleasePendingError."""
        vm = world.take_vm(self.vm_uuid)
        for alias in self.aliases:
            try:
                vm = vm and self._detach(world, vm, alias)
            except DeviceBusyError as error:
                why = f"{self.vm_name} has not released {alias} in {self.timeout_s:g} s"
                raise _pending(why, [f'vm "{self.vm_name}"']) from error
        world.seen_vm = vm


@dataclass(frozen=True)
class HandOverVfs:
    """Leaves it to another attachment of the same GPU to remove the virtual functions."""

    physical: PciAddress
    count: int
    heir: AttachmentRecord
    kind: ClassVar[str] = "attachment.vfs.handover"

    @property
    def target(self) -> Mapping[str, object]:
        """The attachment that takes it over."""
        return {"id": self.heir.id, "vm": self.heir.vm_name, "physical": str(self.physical)}

    def describe(self) -> str:
        """For people."""
        return f"leave the virtual functions for {self.heir.vm_name}, whose detach removes them"

    def do(self, world: World) -> None:
        """Writes it into the other's record and note, if that is still there."""
        self._write(world, self.count)

    def undo(self, world: World) -> None:
        """Writes the other's record and note as they were."""
        self._write(world, 0)

    def observe(self, world: World) -> bool:
        """Whether the other has it."""
        heir = _find(world, self.heir.id)
        return heir is not None and any(self._is_there(d) and d.made_vfs for d in heir.host_devices)

    def _is_there(self, device: HostDevice) -> bool:
        return device.parent == self.physical

    def _write(self, world: World, count: int) -> None:
        heir = _find(world, self.heir.id)
        if heir is None:
            return
        devices = tuple(
            replace(d, made_vfs=count) if self._is_there(d) else d for d in heir.host_devices
        )
        heir = replace(heir, host_devices=devices)
        world.store.save_attachment(heir)
        with contextlib.suppress(VmNotFoundError):
            vm = world.hypervisor.read_vm(heir.vm_uuid)
            if vm.find_note(heir.id) is not None:
                save_note(world.hypervisor, vm, describe_record(heir))


def _find(world: World, attachment: str) -> AttachmentRecord | None:
    return next((r for r in world.store.list_attachments() if r.id == attachment), None)
