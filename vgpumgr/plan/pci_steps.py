"""Steps on PCI functions: whose driver has them, and how many virtual functions there are.

A change that waits for a user of the function is not taken back: the executor leaves it pending,
the helper completes it when the user lets go, and settling looks again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from vgpumgr.errors import (
    PciBusyError,
    PciNotFoundError,
    PciStalledError,
    VfIgnoredError,
    VfQuotaError,
    VfUnsupportedError,
    VgpumgrError,
)
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.control import PciControl
from vgpumgr.passthrough.drivers import choose_driver
from vgpumgr.passthrough.values import VFIO, Binding, Function, Quota, VfSetting
from vgpumgr.plan.step import NothingDoneError, Step


class PciWorld(Protocol):
    """What these steps work on."""

    @property
    def pci(self) -> PciControl:
        """The machine's PCI bus."""


@dataclass(frozen=True)
class BindDriver:
    """Takes a function from its driver and gives it to another, and remembers what to give back.

    ``force``: even while somebody uses it; then the kernel may wait until he lets go.
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
    kind: ClassVar[str] = "passthrough.bind"

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return _encode(self)

    def describe(self) -> str:
        """For people."""
        source = f" from {self.previous}" if self.previous else ""
        return f"give {self.address}{source} to {self.driver}"

    def do(self, world: PciWorld) -> None:
        """Remembers the driver of before, then binds and reads back."""
        now = _look(world, self.address)
        if now.driver == self.driver and _find_binding(world, self.address):
            return
        if now.driver not in (self.previous, self.driver):
            raise NothingDoneError(_changed(now, self.previous))
        if now.driver != self.driver and not self.force:
            check_unused(world, [now])
        try:
            override = world.pci.read_override(self.address)
            world.pci.load_driver(self.driver)
        except VgpumgrError as error:
            raise NothingDoneError(error) from error
        world.pci.save_binding(self._make_binding(world, now, override))
        world.pci.bind(self.address, self.driver)

    def undo(self, world: PciWorld) -> None:
        """Gives it back to the driver of before. One that has left the bus needs nothing."""
        binding = _find_binding(world, self.address)
        if binding is None:
            return
        _give_back(world, binding)
        if self.earlier is not None and self.earlier.boot_id != world.pci.boot_id:
            world.pci.save_binding(self.earlier)

    def observe(self, world: PciWorld) -> bool:
        """Whether it was taken, or remembered as taken."""
        return _find_binding(world, self.address) is not None

    def _make_binding(self, world: PciWorld, now: Function, override: str | None) -> Binding:
        known = self.earlier
        # taken before in this boot, and changed since: what to give back is what was there then
        ours = known is not None and known.boot_id == world.pci.boot_id
        return Binding(
            address=self.address,
            driver=self.driver,
            previous=known.previous if known and ours else self.previous,
            override=known.override if known and ours else override,
            vendor_id=now.vendor_id,
            device_id=now.device_id,
            boot_id=world.pci.boot_id,
            persist=self.persist,
            gpu_uuid=self.gpu_uuid,
            model=self.model,
            gpu_index=self.gpu_index,
        )


@dataclass(frozen=True)
class ReleaseDriver:
    """Gives a function back to the driver of before, and forgets that it was taken."""

    binding: Binding
    force: bool = False
    kind: ClassVar[str] = "passthrough.unbind"

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return _encode(self)

    def describe(self) -> str:
        """For people."""
        to = f"to {self.binding.previous}" if self.binding.previous else "to no driver"
        return f"give {self.binding.address} back {to}"

    def do(self, world: PciWorld) -> None:
        """Gives it back; one that has left the bus is only forgotten."""
        now = _find(world, self.binding.address)
        if now is not None and now.driver == self.binding.driver and not self.force:
            check_unused(world, [now])
        _give_back(world, self.binding)

    def undo(self, world: PciWorld) -> None:
        """Takes it again."""
        world.pci.save_binding(self.binding)
        world.pci.bind(self.binding.address, self.binding.driver)

    def observe(self, world: PciWorld) -> bool:
        """Whether it is no longer taken."""
        now = _find(world, self.binding.address)
        forgotten = _find_binding(world, self.binding.address) is None
        return forgotten or now is None or now.driver != self.binding.driver


@dataclass(frozen=True)
class CreateVfs:
    """Makes virtual functions where there are none, without a driver, and sets their quotas.

    ``vendor_tool``: by NVIDIA's sriov-manage, which makes all of them.
    """

    physical: PciAddress
    count: int
    persist: bool = False
    quotas: tuple[Quota, ...] = ()
    vendor_tool: bool = False
    #: what was remembered of an earlier boot
    earlier: VfSetting | None = None
    kind: ClassVar[str] = "vf.enable"

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return _encode(self)

    def describe(self) -> str:
        """For people."""
        how = " by sriov-manage" if self.vendor_tool else ""
        return f"make {_tell_count(self.count)} of {self.physical}{how}"

    def do(self, world: PciWorld) -> None:
        """Remembers the number, makes them, and reads back."""
        now = _look(world, self.physical)
        check_not_stalled(world, self.describe())
        if now.vfs and len(now.vfs) != self.count:
            raise NothingDoneError(_unexpected(now))
        world.pci.save_vf_setting(
            VfSetting(
                self.physical, self.count, now.vendor_id, now.device_id, world.pci.boot_id,
                self.persist, self.quotas,
            )
        )  # fmt: skip
        try:
            if self.quotas:
                world.pci.provide_quotas(self.physical, self.count, self.quotas)
            _set_count(world, self.physical, self.count, self.vendor_tool)
        except (VfUnsupportedError, VfQuotaError) as error:
            self._take_back(world)
            raise NothingDoneError(error) from error
        if self.quotas:
            world.pci.write_quotas(self.physical, range(self.count), self.quotas)

    def undo(self, world: PciWorld) -> None:
        """Removes them, unless somebody uses one meanwhile."""
        now = _find(world, self.physical)
        if now is not None and now.vfs:
            check_unused(world, _list_vfs(world, now))
            _set_count(world, self.physical, 0, self.vendor_tool)
        self._take_back(world)

    def _take_back(self, world: PciWorld) -> None:
        _take_back_quotas(world, self.physical, self.count, self.quotas)
        _restore_setting(world, self.physical, self.earlier)

    def observe(self, world: PciWorld) -> bool:
        """Whether there are any, or they are remembered."""
        now = _find(world, self.physical)
        boot = world.pci.boot_id
        found = world.pci.list_vf_settings()
        remembered = any(s.physical == self.physical and s.boot_id == boot for s in found)
        return remembered or (now is not None and bool(now.vfs))


@dataclass(frozen=True)
class ChangeVfs:
    """Has AMD's driver go from one number of virtual functions to another; there is no none."""

    physical: PciAddress
    count: int
    #: how many there are now, as planned
    previous: int
    persist: bool = False
    #: what was remembered before
    earlier: VfSetting | None = None
    kind: ClassVar[str] = "vf.change"

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return _encode(self)

    def describe(self) -> str:
        """For people."""
        return (
            f"change the virtual functions of {self.physical} from {self.previous} to {self.count}"
        )

    def do(self, world: PciWorld) -> None:
        """Remembers the number, changes it, and reads back."""
        now = _look(world, self.physical)
        check_not_stalled(world, self.describe())
        if len(now.vfs) not in (self.previous, self.count):
            raise NothingDoneError(_unexpected(now))
        check_unused(world, _list_vfs(world, now))
        world.pci.save_vf_setting(
            VfSetting(
                self.physical, self.count, now.vendor_id, now.device_id, world.pci.boot_id,
                self.persist,
            )
        )  # fmt: skip
        if len(now.vfs) == self.count:
            return
        try:
            world.pci.set_vendor_vfs(self.physical, self.count)
        except (PciBusyError, VfUnsupportedError) as error:
            # refused before anything was changed
            _restore_setting(world, self.physical, self.earlier)
            raise NothingDoneError(error) from error
        for address in now.vfs:
            world.pci.forget_binding(address)

    def undo(self, world: PciWorld) -> None:
        """Back to the number of before, unless somebody uses one meanwhile."""
        now = _find(world, self.physical)
        if now is not None and self.previous and len(now.vfs) != self.previous:
            check_unused(world, _list_vfs(world, now))
            world.pci.set_vendor_vfs(self.physical, self.previous)
        _restore_setting(world, self.physical, self.earlier)

    def observe(self, world: PciWorld) -> bool:
        """Whether it was changed, or remembered as changed."""
        now = _find(world, self.physical)
        remembered = any(
            s.physical == self.physical and s.boot_id == world.pci.boot_id and s.count == self.count
            for s in world.pci.list_vf_settings()
        )
        return remembered or (now is not None and len(now.vfs) == self.count)


@dataclass(frozen=True)
class RememberVfs:
    """Lets the virtual functions that there are come back at every boot."""

    physical: PciAddress
    count: int
    #: what was remembered before
    earlier: VfSetting | None = None
    kind: ClassVar[str] = "vf.remember"

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return _encode(self)

    def describe(self) -> str:
        """For people."""
        return f"make the {_tell_count(self.count)} of {self.physical} again at every boot"

    def do(self, world: PciWorld) -> None:
        """Writes it down; their quotas stay as they were remembered."""
        now = _look(world, self.physical)
        if len(now.vfs) != self.count:
            raise NothingDoneError(_unexpected(now))
        quotas = self.earlier.quotas if self.earlier else ()
        world.pci.save_vf_setting(
            VfSetting(
                self.physical, self.count, now.vendor_id, now.device_id, world.pci.boot_id,
                True, quotas,
            )
        )  # fmt: skip

    def undo(self, world: PciWorld) -> None:
        """As it was remembered before."""
        _restore_setting(world, self.physical, self.earlier)

    def observe(self, world: PciWorld) -> bool:
        """Whether it is written down."""
        found = world.pci.list_vf_settings()
        return any(s.physical == self.physical and s.persist for s in found)


@dataclass(frozen=True)
class RemoveVfs:
    """Removes all virtual functions of a physical one, none of which may be in use."""

    physical: PciAddress
    #: how many there are now, as planned
    count: int
    vendor_tool: bool = False
    setting: VfSetting | None = None
    kind: ClassVar[str] = "vf.disable"

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return _encode(self)

    def describe(self) -> str:
        """For people."""
        how = " by sriov-manage" if self.vendor_tool else ""
        if not self.count:
            return f"forget the virtual functions of {self.physical}, which are gone"
        return f"remove the {_tell_count(self.count)} of {self.physical}{how}"

    def do(self, world: PciWorld) -> None:
        """Removes them and reads back; forgets their number and what was bound to them."""
        now = _look(world, self.physical)
        check_not_stalled(world, self.describe())
        if now.vfs:
            check_unused(world, _list_vfs(world, now))
            _set_count(world, self.physical, 0, self.vendor_tool)
        # also those that an earlier, interrupted try has removed
        for address in now.vfs or map(now.locate_vf, range(self.count)):
            if address is not None:
                world.pci.forget_binding(address)
        _take_back_quotas(world, self.physical, self.count, self._list_quotas())
        world.pci.forget_vf_setting(self.physical)

    def undo(self, world: PciWorld) -> None:
        """Makes as many again, with the quotas that all of them had."""
        now = _look(world, self.physical)
        quotas = self._list_quotas()
        if not now.vfs:
            if quotas:
                world.pci.provide_quotas(self.physical, self.count, quotas)
            _set_count(world, self.physical, self.count, self.vendor_tool)
            if quotas:
                world.pci.write_quotas(self.physical, range(self.count), quotas)
        if self.setting is not None:
            world.pci.save_vf_setting(self.setting)

    def _list_quotas(self) -> tuple[Quota, ...]:
        return self.setting.quotas if self.setting else ()

    def observe(self, world: PciWorld) -> bool:
        """Whether there are none."""
        now = _find(world, self.physical)
        return now is None or not now.vfs


@dataclass(frozen=True)
class PrepareVf:
    """Gives one virtual function, by its number from 0, to a driver, with quotas of its own.

    Its address need not be known before: the step that makes it may be in the same plan.
    """

    physical: PciAddress
    index: int
    #: None: the one that the kernel has for it, once it is there, else vfio-pci
    driver: str | None = VFIO
    quotas: tuple[Quota, ...] = ()
    kind: ClassVar[str] = "vf.prepare"

    @property
    def target(self) -> Mapping[str, object]:
        """All of the step."""
        return _encode(self)

    def describe(self) -> str:
        """For people."""
        driver = self.driver or f"{VFIO}, or to what the kernel has for it"
        return f"give virtual function {self.index} of {self.physical} to {driver}"

    def do(self, world: PciWorld) -> None:
        """Sets the quotas, then binds."""
        vf = self._look(world)
        if self.quotas:
            world.pci.write_quotas(self.physical, [self.index], self.quotas)
        driver = self.driver
        if driver is None:
            driver = choose_driver(vf, world.pci.list_variants([vf.address])).name
        BindDriver(vf.address, driver, vf.driver).do(world)

    def undo(self, world: PciWorld) -> None:
        """Gives it back to whom it had before."""
        vf = self._find(world)
        if vf is not None:
            self._make_bind(vf).undo(world)

    def observe(self, world: PciWorld) -> bool:
        """Whether it was taken."""
        vf = self._find(world)
        return vf is not None and self._make_bind(vf).observe(world)

    def find_address(self, world: PciWorld) -> PciAddress:
        """Where it is. Raises PciNotFoundError."""
        return self._look(world).address

    def _make_bind(self, vf: Function) -> BindDriver:
        """What was bound is remembered, so that its driver does not matter."""
        return BindDriver(vf.address, self.driver or VFIO, vf.driver)

    def _find(self, world: PciWorld) -> Function | None:
        physical = _find(world, self.physical)
        if physical is None or self.index >= len(physical.vfs):
            return None
        return _find(world, physical.vfs[self.index])

    def _look(self, world: PciWorld) -> Function:
        vf = self._find(world)
        if vf is None:
            raise NothingDoneError(
                PciNotFoundError(
                    f"{self.physical} has no virtual function {self.index}",
                    hint=f"vgpumgr vf enable {self.physical} --count {self.index + 1}",
                )
            )
        return vf


PciStep = BindDriver | ReleaseDriver | CreateVfs | ChangeVfs | RememberVfs | RemoveVfs | PrepareVf
_STEPS: tuple[type[PciStep], ...] = (
    BindDriver, ReleaseDriver, CreateVfs, ChangeVfs, RememberVfs, RemoveVfs, PrepareVf,
)  # fmt: skip


def read_pci_step(kind: str, target: Mapping[str, Any]) -> Step[PciWorld]:
    """A step from the journal. Raises ValueError for what is none of these steps."""
    for step in _STEPS:
        if step.kind == kind:
            return decode(step, dict(target))
    raise ValueError(f"no step on PCI functions: {kind}")


def check_unused(world: PciWorld, functions: Sequence[Function]) -> None:
    """Raises PciBusyError with everybody who uses one of them, certain that nothing was done."""
    users = world.pci.list_users(functions)
    if users:
        names = ", ".join(str(address) for address in users)
        raise NothingDoneError(
            PciBusyError(
                f"{names} is in use" if len(users) == 1 else f"{names} are in use",
                why="the kernel would wait until they let go",
                held_by=[str(user) for found in users.values() for user in found],
                hint="stop them, then repeat",
            )
        )


def check_not_stalled(world: PciWorld, what: str) -> None:
    """Raises PciStalledError while a removal holds up the whole PCI core."""
    if (error := find_stall(world.pci, what)) is not None:
        raise NothingDoneError(error)


def find_stall(pci: PciControl, what: str) -> PciStalledError | None:
    """Why what needs the whole PCI core cannot be done now."""
    stalls = pci.list_stalls()
    if not stalls:
        return None
    return PciStalledError(
        f"cannot {what} now",
        why="a device is being removed while somebody uses it, and this would wait for it",
        held_by=stalls,
        hint="end who uses the removed device; vgpumgr status",
    )


def _encode(step: object) -> Mapping[str, object]:
    data: Mapping[str, object] = encode(step)
    return data


def _find(world: PciWorld, address: PciAddress) -> Function | None:
    try:
        return world.pci.read_function(address)
    except PciNotFoundError:
        return None


def _look(world: PciWorld, address: PciAddress) -> Function:
    """Looking changes nothing."""
    try:
        return world.pci.read_function(address)
    except VgpumgrError as error:
        raise NothingDoneError(error) from error


def _find_binding(world: PciWorld, address: PciAddress) -> Binding | None:
    """The binding of this boot: an earlier boot's says nothing of now."""
    boot = world.pci.boot_id
    found = world.pci.list_bindings()
    return next((b for b in found if b.address == address and b.boot_id == boot), None)


def _give_back(world: PciWorld, binding: Binding) -> None:
    # what has left the bus has no driver that it could be given back to
    with contextlib.suppress(PciNotFoundError):
        world.pci.release(binding.address, binding.previous, binding.override)
    world.pci.forget_binding(binding.address)


def _list_vfs(world: PciWorld, physical: Function) -> list[Function]:
    return [vf for address in physical.vfs if (vf := _find(world, address)) is not None]


def _take_back_quotas(
    world: PciWorld, physical: PciAddress, count: int, quotas: Sequence[Quota]
) -> None:
    if quotas:
        with contextlib.suppress(PciNotFoundError):  # with the device its quotas are gone
            world.pci.take_back_quotas(physical, count, quotas)


def _restore_setting(world: PciWorld, physical: PciAddress, earlier: VfSetting | None) -> None:
    if earlier is not None:
        world.pci.save_vf_setting(earlier)
    else:
        world.pci.forget_vf_setting(physical)


def _set_count(world: PciWorld, physical: PciAddress, count: int, vendor_tool: bool) -> None:
    if vendor_tool:
        world.pci.set_vendor_vfs(physical, count)
    else:
        world.pci.set_vf_count(physical, count)


def _tell_count(count: int) -> str:
    return "1 virtual function" if count == 1 else f"{count} virtual functions"


def _changed(now: Function, planned: str | None) -> PciBusyError:
    return PciBusyError(
        f"{now.address} has another driver than when this was planned",
        why=f"it had {planned or 'none'}, it has {now.driver or 'none'}",
        hint="repeat the command: it plans anew",
    )


def _unexpected(now: Function) -> VfIgnoredError:
    return VfIgnoredError(
        f"{now.address} has {len(now.vfs)} virtual functions already",
        why="somebody made them since this was planned",
        hint="vgpumgr vf list",
    )
