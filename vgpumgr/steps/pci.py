"""Steps on PCI functions: whose driver has them.

A change that waits for a user of the function is not taken back: the executor leaves it pending,
the helper completes it when the user closes the function, and recovery observes it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.step import PRIVATE, NothingDoneError, Step
from vgpumgr.errors import PciBusyError, PciNotFoundError, ReleasePendingError, VgpumgrError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import VFIO, Binding, Function, PciAddress

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


@dataclass(frozen=True)
class BindDriver(Step):
    """Takes a function from its driver and gives it to another, and remembers what to give back.

    ``force``: even while it is in use; then the kernel may wait until its user closes it.
    ``for_vm``: it goes to a VM; undoing waits until nothing has it open.
    """

    address: PciAddress
    driver: str = VFIO
    #: the driver that has it now, as planned; None: none
    previous: str | None = None
    persist: bool = False
    force: bool = False
    gpu_uuid: str | None = None
    model: str | None = None
    #: what was remembered of it before: of an earlier boot, or by who changed the driver since
    earlier: Binding | None = None
    gpu_index: int | None = None
    for_vm: bool = field(default=False, kw_only=True, metadata=PRIVATE)
    kind: ClassVar[str] = "passthrough.bind"
    by_helper: ClassVar[bool] = True

    def describe(self) -> str:
        """For people."""
        source = f" from {self.previous}" if self.previous else ""
        return f"give {self.address}{source} to {self.driver}"

    def do(self, context: OperationContext) -> None:
        """Remembers the driver of before, then binds and reads back."""
        now = observe_function(context, self.address)
        if now.driver == self.driver and find_binding(context, self.address):
            return
        if now.driver not in (self.previous, self.driver):
            raise NothingDoneError(_changed(now, self.previous))
        if now.driver != self.driver and not self.force:
            check_unused(context, [now])
        try:
            override = context.pci.read_override(self.address)
            context.pci.load_driver(self.driver)
        except VgpumgrError as error:
            raise NothingDoneError(error) from error
        context.pci.save_binding(self._make_binding(context, now, override))
        context.pci.bind(self.address, self.driver)

    def undo(self, context: OperationContext) -> None:
        """Gives it back to the driver of before. One that has left the bus needs nothing."""
        binding = find_binding(context, self.address)
        if binding is None:
            return
        if self.for_vm:
            await_release(context, self.address)
        _give_back(context, binding)
        if self.earlier is not None and self.earlier.boot_id != context.pci.boot_id:
            context.pci.save_binding(self.earlier)

    def observe(self, context: OperationContext) -> bool:
        """Whether it was taken, or remembered as taken."""
        return find_binding(context, self.address) is not None

    def _make_binding(
        self, context: OperationContext, now: Function, override: str | None
    ) -> Binding:
        known = self.earlier
        # taken before in this boot, and changed since: what to give back is what was there then
        ours = known is not None and known.boot_id == context.pci.boot_id
        return Binding(
            address=self.address,
            driver=self.driver,
            previous=known.previous if known and ours else self.previous,
            override=known.override if known and ours else override,
            vendor_id=now.vendor_id,
            device_id=now.device_id,
            boot_id=context.pci.boot_id,
            persist=self.persist,
            gpu_uuid=self.gpu_uuid,
            model=self.model,
            gpu_index=self.gpu_index,
        )


@dataclass(frozen=True)
class ReleaseDriver(Step):
    """Gives a function back to the driver of before, and forgets that it was taken.

    ``for_vm``: a VM has had it, and it is waited for. ``binding`` is as the VM's record has it then;
    what is remembered of the binding itself counts more.
    """

    binding: Binding
    force: bool = False
    for_vm: bool = field(default=False, kw_only=True, metadata=PRIVATE)
    kind: ClassVar[str] = "passthrough.unbind"
    by_helper: ClassVar[bool] = True
    takes_back: ClassVar[tuple[str, ...]] = (BindDriver.kind, "vf.prepare")

    def describe(self) -> str:
        """For people."""
        to = f"to {self.binding.previous}" if self.binding.previous else "to no driver"
        return f"give {self.binding.address} back {to}"

    def do(self, context: OperationContext) -> None:
        """Gives it back; one that has left the bus is only forgotten, and so is a VM's that has another
        driver by now (after a boot). Raises ReleasePendingError.
        """
        address, binding = self.binding.address, self.binding
        if self.for_vm:
            known = (b for b in context.pci.list_bindings() if b.address == address)
            binding = next(known, binding)
            now = find_function(context, address)
            if now is None or now.driver not in (binding.driver, None):
                context.pci.forget_binding(address)
                return
            await_release(context, address)
        now = find_function(context, address)
        if now is not None and now.driver == binding.driver and not self.force:
            check_unused(context, [now])
        _give_back(context, binding)

    def undo(self, context: OperationContext) -> None:
        """Takes it again, unless it was a VM's: a detach goes on. One that was only to come back at boot, and has
        not, is only to come back again.
        """
        if self.for_vm:
            return
        context.pci.save_binding(self.binding)
        if self.binding.boot_id == context.pci.boot_id:
            context.pci.bind(self.binding.address, self.binding.driver)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is no longer taken."""
        now = find_function(context, self.binding.address)
        forgotten = find_binding(context, self.binding.address) is None
        return forgotten or now is None or now.driver != self.binding.driver


def await_release(context: OperationContext, address: PciAddress) -> None:
    """Waits until nothing has a VM's function open: nothing is unbound while QEMU has it, for the
    kernel would wait for QEMU, and every user of the device lock with it. Raises ReleasePendingError.
    """
    held_by: list[str] = []

    def is_free() -> bool:
        held_by.clear()
        with contextlib.suppress(PciNotFoundError):
            function = context.pci.read_function(address)
            users = context.pci.list_users([function]) if function.is_away else {}
            held_by.extend(str(user) for found in users.values() for user in found)
        return not held_by

    if not context.wait(is_free, RELEASE_TIMEOUT_S):
        raise make_release_pending(f"{address} is not free yet", held_by)


def check_unused(context: OperationContext, functions: Sequence[Function]) -> None:
    """Raises PciBusyError with everybody who uses one of them, certain that nothing was done."""
    users = context.pci.list_users(functions)
    if users:
        names = ", ".join(str(address) for address in users)
        raise NothingDoneError(
            PciBusyError(
                f"{names} is in use" if len(users) == 1 else f"{names} are in use",
                why="the kernel would wait until they close it",
                held_by=[str(user) for found in users.values() for user in found],
                hint="stop them, then repeat",
            )
        )


def find_function(context: OperationContext, address: PciAddress) -> Function | None:
    try:
        return context.pci.read_function(address)
    except PciNotFoundError:
        return None


def observe_function(context: OperationContext, address: PciAddress) -> Function:
    """The function as it is now. Raises NothingDoneError: reading changes nothing."""
    try:
        return context.pci.read_function(address)
    except VgpumgrError as error:
        raise NothingDoneError(error) from error


def find_binding(context: OperationContext, address: PciAddress) -> Binding | None:
    """The binding of this boot: an earlier boot's says nothing of now."""
    boot = context.pci.boot_id
    found = context.pci.list_bindings()
    return next((b for b in found if b.address == address and b.boot_id == boot), None)


def _give_back(context: OperationContext, binding: Binding) -> None:
    # what has left the bus has no driver that it could be given back to
    with contextlib.suppress(PciNotFoundError):
        context.pci.release(binding.address, binding.previous, binding.override)
    context.pci.forget_binding(binding.address)


def _changed(now: Function, planned: str | None) -> PciBusyError:
    return PciBusyError(
        f"{now.address} has another driver than when this was planned",
        why=f"it had {planned or 'none'}, it has {now.driver or 'none'}",
        hint="repeat the command: it plans anew",
    )


#: QEMU closes its devices a moment after libvirt has told that they are gone
RELEASE_TIMEOUT_S = 15.0


def make_release_pending(what: str, held_by: Sequence[str] = ()) -> ReleasePendingError:
    """The error of a detach that waits for the guest."""
    return ReleasePendingError(
        what,
        why="nothing is lost: it stays the VM's, and goes as soon as the guest releases it or stops: the "
        "daemon does that by itself, and so does the next command that changes something",
        held_by=held_by,
        hint="shut the VM down; without the daemon, vgpumgr recover afterwards",
    )
