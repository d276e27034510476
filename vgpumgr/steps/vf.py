"""Steps on virtual functions: how many there are, and which one a VM gets."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.step import PRIVATE, NothingDoneError, Step
from vgpumgr.errors import (
    PciBusyError,
    PciNotFoundError,
    PciStalledError,
    VfIgnoredError,
    VfPlaceError,
    VfQuotaError,
    VfUnsupportedError,
)
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import VFIO, Function, PciAddress, Quota, VfSetting
from vgpumgr.passthrough.control import PciControl
from vgpumgr.passthrough.groups import choose_driver
from vgpumgr.steps.pci import BindDriver, check_unused, find_function, observe_function

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


class _ByProgram(Step):
    """A step that a vendor's program may do."""

    program: str | None

    @property
    def target(self) -> Mapping[str, object]:
        """Its fields; of the program only whether it is one of the vendor's."""
        return {**super().target, "vendor_tool": self.program is not None}


@dataclass(frozen=True)
class CreateVfs(_ByProgram):
    """Makes virtual functions where there are none, without a driver, and sets their quotas.

    ``program``: the vendor's that makes them, as the plan names it.
    """

    physical: PciAddress
    count: int
    persist: bool = False
    quotas: tuple[Quota, ...] = ()
    program: str | None = field(default=None, metadata=PRIVATE)
    #: what was remembered of an earlier boot
    earlier: VfSetting | None = None
    kind: ClassVar[str] = "vf.enable"
    by_helper: ClassVar[bool] = True

    def describe(self) -> str:
        """For people."""
        how = f" by {self.program}" if self.program else ""
        return f"make {_describe_count(self.count)} of {self.physical}{how}"

    def do(self, context: OperationContext) -> None:
        """Remembers the number, makes them, and reads back."""
        now = observe_function(context, self.physical)
        check_not_stalled(context, self.describe())
        if now.vfs and len(now.vfs) != self.count:
            raise NothingDoneError(_unexpected(now))
        _save_setting(context, now, self.count, self.persist, self.quotas)
        try:
            if self.quotas:
                context.pci.provide_quotas(self.physical, self.count, self.quotas)
            context.pci.set_vf_count(self.physical, self.count)
        except (VfUnsupportedError, VfQuotaError) as error:
            self._take_back(context)
            raise NothingDoneError(error) from error
        if self.quotas:
            context.pci.write_quotas(self.physical, range(self.count), self.quotas)

    def undo(self, context: OperationContext) -> None:
        """Removes them, unless one is in use by now."""
        now = find_function(context, self.physical)
        if now is not None and now.vfs:
            check_unused(context, _list_vfs(context, now))
            context.pci.set_vf_count(self.physical, 0)
        self._take_back(context)

    def _take_back(self, context: OperationContext) -> None:
        _take_back_quotas(context, self.physical, self.count, self.quotas)
        _restore_setting(context, self.physical, self.earlier)

    def observe(self, context: OperationContext) -> bool:
        """Whether there are any, or they are remembered."""
        now = find_function(context, self.physical)
        boot = context.pci.boot_id
        found = context.pci.list_vf_settings()
        remembered = any(s.physical == self.physical and s.boot_id == boot for s in found)
        return remembered or (now is not None and bool(now.vfs))


@dataclass(frozen=True)
class ChangeVfs(Step):
    """Goes from one number of virtual functions to another, where their driver never has none."""

    physical: PciAddress
    count: int
    #: how many there are now, as planned
    previous: int
    persist: bool = False
    #: what was remembered before
    earlier: VfSetting | None = None
    kind: ClassVar[str] = "vf.change"
    by_helper: ClassVar[bool] = True

    def describe(self) -> str:
        """For people."""
        return (
            f"change the virtual functions of {self.physical} from {self.previous} to {self.count}"
        )

    def do(self, context: OperationContext) -> None:
        """Remembers the number, changes it, and reads back."""
        now = observe_function(context, self.physical)
        check_not_stalled(context, self.describe())
        if len(now.vfs) not in (self.previous, self.count):
            raise NothingDoneError(_unexpected(now))
        check_unused(context, _list_vfs(context, now))
        _save_setting(context, now, self.count, self.persist)
        if len(now.vfs) == self.count:
            return
        try:
            context.pci.set_vf_count(self.physical, self.count)
        except (PciBusyError, VfUnsupportedError) as error:
            # refused before anything was changed
            _restore_setting(context, self.physical, self.earlier)
            raise NothingDoneError(error) from error
        for address in now.vfs:
            context.pci.forget_binding(address)

    def undo(self, context: OperationContext) -> None:
        """Back to the number of before, unless one is in use by now."""
        now = find_function(context, self.physical)
        if now is not None and self.previous and len(now.vfs) != self.previous:
            check_unused(context, _list_vfs(context, now))
            context.pci.set_vf_count(self.physical, self.previous)
        _restore_setting(context, self.physical, self.earlier)

    def observe(self, context: OperationContext) -> bool:
        """Whether it was changed, or remembered as changed."""
        now = find_function(context, self.physical)
        remembered = any(
            s.physical == self.physical
            and s.boot_id == context.pci.boot_id
            and s.count == self.count
            for s in context.pci.list_vf_settings()
        )
        return remembered or (now is not None and len(now.vfs) == self.count)


@dataclass(frozen=True)
class RememberVfs(Step):
    """Lets the virtual functions that there are come back at every boot."""

    physical: PciAddress
    count: int
    #: what was remembered before
    earlier: VfSetting | None = None
    kind: ClassVar[str] = "vf.remember"

    def describe(self) -> str:
        """For people."""
        return f"make the {_describe_count(self.count)} of {self.physical} again at every boot"

    def do(self, context: OperationContext) -> None:
        """Writes it down; their quotas stay as they were remembered."""
        now = observe_function(context, self.physical)
        if len(now.vfs) != self.count:
            raise NothingDoneError(_unexpected(now))
        quotas = self.earlier.quotas if self.earlier else ()
        _save_setting(context, now, self.count, True, quotas)

    def undo(self, context: OperationContext) -> None:
        """As it was remembered before."""
        _restore_setting(context, self.physical, self.earlier)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is written down."""
        found = context.pci.list_vf_settings()
        return any(s.physical == self.physical and s.persist for s in found)


@dataclass(frozen=True)
class RemoveVfs(_ByProgram):
    """Removes all virtual functions of a physical one, none of which may be in use.

    ``for_vm``: those that an attach made; a device that is gone has none.
    """

    physical: PciAddress
    #: how many there are now, as planned
    count: int
    program: str | None = field(default=None, metadata=PRIVATE)
    setting: VfSetting | None = None
    for_vm: bool = field(default=False, kw_only=True, metadata=PRIVATE)
    kind: ClassVar[str] = "vf.disable"
    by_helper: ClassVar[bool] = True
    takes_back: ClassVar[tuple[str, ...]] = (CreateVfs.kind,)

    def describe(self) -> str:
        """For people."""
        how = f" by {self.program}" if self.program else ""
        if not self.count:
            return f"forget the virtual functions of {self.physical}, which are gone"
        return f"remove the {_describe_count(self.count)} of {self.physical}{how}"

    def do(self, context: OperationContext) -> None:
        """Removes them and reads back; forgets their number and what was bound to them."""
        if self.for_vm and find_function(context, self.physical) is None:
            context.pci.forget_vf_setting(self.physical)
            return
        now = observe_function(context, self.physical)
        check_not_stalled(context, self.describe())
        if now.vfs:
            check_unused(context, _list_vfs(context, now))
            context.pci.set_vf_count(self.physical, 0)
        # also those that an earlier, interrupted try has removed
        for address in now.vfs or map(now.locate_vf, range(self.count)):
            if address is not None:
                context.pci.forget_binding(address)
        _take_back_quotas(context, self.physical, self.count, self._list_quotas())
        context.pci.forget_vf_setting(self.physical)

    def undo(self, context: OperationContext) -> None:
        """Makes as many again, with the quotas that all of them had; a detach goes on."""
        if self.for_vm:
            return
        now = observe_function(context, self.physical)
        quotas = self._list_quotas()
        if not now.vfs:
            if quotas:
                context.pci.provide_quotas(self.physical, self.count, quotas)
            context.pci.set_vf_count(self.physical, self.count)
            if quotas:
                context.pci.write_quotas(self.physical, range(self.count), quotas)
        if self.setting is not None:
            context.pci.save_vf_setting(self.setting)

    def _list_quotas(self) -> tuple[Quota, ...]:
        return self.setting.quotas if self.setting else ()

    def observe(self, context: OperationContext) -> bool:
        """Whether there are none."""
        now = find_function(context, self.physical)
        return now is None or not now.vfs


@dataclass(frozen=True)
class PrepareVf(Step):
    """Gives one virtual function, by its number from 0, to a driver for a VM, with quotas of its own.

    ``address`` is where it is expected: the step that makes it may be in the same plan.
    """

    physical: PciAddress
    index: int
    #: None: the one that the kernel has for it, once it is there, else vfio-pci
    driver: str | None
    address: PciAddress
    quotas: tuple[Quota, ...] = ()
    #: whether it is taken again at every boot
    persist: bool = False
    kind: ClassVar[str] = "vf.prepare"
    by_helper: ClassVar[bool] = True

    def describe(self) -> str:
        """For people."""
        driver = self.driver or f"{VFIO}, or to what the kernel has for it"
        what = f"virtual function {self.index} of {self.physical}"
        return f"give {what} to {driver} ({self.address})"

    def do(self, context: OperationContext) -> None:
        """Sets the quotas, then binds. The domain's device names the address: another function must
        not be there.
        """
        vf = self._observe_vf(context)
        if self.quotas:
            context.pci.write_quotas(self.physical, [self.index], self.quotas)
        driver = self.driver
        if driver is None:
            driver = choose_driver(vf, context.pci.list_variants([vf.address])).name
        BindDriver(vf.address, driver, vf.driver).do(context)
        for binding in context.pci.list_bindings():
            if binding.address == self.address and binding.persist != self.persist:
                context.pci.save_binding(replace(binding, persist=self.persist))

    def undo(self, context: OperationContext) -> None:
        """Gives it back to its earlier driver once nothing has it open."""
        vf = self._find(context)
        if vf is not None:
            self._make_bind(vf).undo(context)

    def observe(self, context: OperationContext) -> bool:
        """Whether it was taken."""
        vf = self._find(context)
        return vf is not None and self._make_bind(vf).observe(context)

    def _make_bind(self, vf: Function) -> BindDriver:
        """What was bound is remembered, so that its driver does not matter."""
        return BindDriver(vf.address, self.driver or VFIO, vf.driver, for_vm=True)

    def _find(self, context: OperationContext) -> Function | None:
        physical = find_function(context, self.physical)
        if physical is None or self.index >= len(physical.vfs):
            return None
        return find_function(context, physical.vfs[self.index])

    def _observe_vf(self, context: OperationContext) -> Function:
        vf = self._find(context)
        if vf is None:
            raise NothingDoneError(
                PciNotFoundError(
                    f"{self.physical} has no virtual function {self.index}",
                    hint=f"vgpumgr vf enable {self.physical} --count {self.index + 1}",
                )
            )
        if vf.address != self.address:
            raise VfPlaceError(
                f"virtual function {self.index} of {self.physical} is at {vf.address}",
                why=f"it was expected at {self.address}",
                hint=f"vgpumgr vf enable {self.physical}, then attach",
            )
        return vf


def check_not_stalled(context: OperationContext, what: str) -> None:
    """Raises PciStalledError while a removal holds up the whole PCI core."""
    if (error := find_stall(context.pci, what)) is not None:
        raise NothingDoneError(error)


def find_stall(pci: PciControl, what: str) -> PciStalledError | None:
    """Why what needs the whole PCI core cannot be done now."""
    stalls = pci.list_stalls()
    if not stalls:
        return None
    return PciStalledError(
        f"cannot {what} now",
        why="a device that is in use is being removed, and this would wait for it",
        held_by=stalls,
        hint="end who uses the removed device; vgpumgr status",
    )


def _list_vfs(context: OperationContext, physical: Function) -> list[Function]:
    return [vf for address in physical.vfs if (vf := find_function(context, address)) is not None]


def _take_back_quotas(
    context: OperationContext, physical: PciAddress, count: int, quotas: Sequence[Quota]
) -> None:
    if quotas:
        with contextlib.suppress(PciNotFoundError):  # with the device its quotas are gone
            context.pci.take_back_quotas(physical, count, quotas)


def _save_setting(
    context: OperationContext,
    now: Function,
    count: int,
    persist: bool,
    quotas: tuple[Quota, ...] = (),
) -> None:
    boot = context.pci.boot_id
    setting = VfSetting(now.address, count, now.vendor_id, now.device_id, boot, persist, quotas)
    context.pci.save_vf_setting(setting)


def _restore_setting(
    context: OperationContext, physical: PciAddress, earlier: VfSetting | None
) -> None:
    if earlier is not None:
        context.pci.save_vf_setting(earlier)
    else:
        context.pci.forget_vf_setting(physical)


def _describe_count(count: int) -> str:
    return "1 virtual function" if count == 1 else f"{count} virtual functions"


def _unexpected(now: Function) -> VfIgnoredError:
    return VfIgnoredError(
        f"{now.address} has {len(now.vfs)} virtual functions already",
        why="another program made them since this was planned",
        hint="vgpumgr vf list",
    )
