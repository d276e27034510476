"""What passthrough asks of a machine: PCI functions, their users, their drivers, their number.

``PciControl`` is the seam, ``HostPci`` the real thing. Reading takes no lock of the kernel and
answers while a change hangs; every change runs in a helper process with a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self, cast

from vgpumgr.errors import DriverIgnoredError, DriverMissingError, PciNotFoundError
from vgpumgr.host.clock import Clock
from vgpumgr.host.helper import LateHelper, LateRecords
from vgpumgr.host.holders import list_pci_users, list_removals
from vgpumgr.host.machine import Machine, read_boot_id, read_kernel_words
from vgpumgr.host.pci_changes import BIND_TIMEOUT_S, PciChanges
from vgpumgr.host.pci_tree import (
    has_driver,
    list_bar_sizes,
    list_functions,
    list_variants,
    read_condition,
    read_function,
    read_is_express,
)
from vgpumgr.model.pci import (
    Binding,
    Condition,
    Function,
    PciAddress,
    Quota,
    User,
    UserKind,
    VfSetting,
    VfSupport,
)
from vgpumgr.passthrough.sriov import DRIVERS, SrIovDriver, find_driver
from vgpumgr.passthrough.sriov.base import Closeable, Opened


class PciMemory(Protocol):
    """What is remembered of our changes to PCI functions. Each method may raise StoreError."""

    def list_bindings(self) -> tuple[Binding, ...]:
        """Functions that are remembered as taken from the host."""

    def save_binding(self, binding: Binding) -> None:
        """Remembers one, in the place of that of the same address."""

    def forget_binding(self, address: PciAddress) -> None:
        """Forgets one; absent is no error."""

    def list_vf_settings(self) -> tuple[VfSetting, ...]:
        """Physical functions whose number of virtual functions we set."""

    def save_vf_setting(self, setting: VfSetting) -> None:
        """Remembers one, in the place of that of the same address."""

    def forget_vf_setting(self, physical: PciAddress) -> None:
        """Forgets one; absent is no error."""


class PciControl(PciMemory, Protocol):
    """The PCI bus of one machine, and what is remembered of our changes to it.

    Changes raise HelperLateError where the kernel has not answered in time (the change may yet
    happen), PciWriteError where it refused, PciNotFoundError where the function is gone.
    """

    def list_functions(self) -> tuple[Function, ...]:
        """All functions in address order, in one pass. Raises SysfsError."""

    def read_function(self, address: PciAddress) -> Function:
        """One function as it is now. Raises PciNotFoundError."""

    def list_users(self, functions: Sequence[Function]) -> Mapping[PciAddress, tuple[User, ...]]:
        """Who uses each of them now: processes, mounted disks, networks that are up, the console.

        Unused functions are left out. Without root the answer is incomplete.
        """

    def list_bars(self, address: PciAddress) -> tuple[int, ...]:
        """Sizes in bytes of its memory regions, the largest first. Raises PciNotFoundError."""

    def is_conventional(self, address: PciAddress) -> bool:
        """Whether it is known to be no PCI Express device: root ports of a VM do not take it."""

    def list_variants(self, addresses: Sequence[PciAddress]) -> Mapping[PciAddress, str]:
        """Drivers that know more of a function than ``vfio-pci``, of those that have one."""

    def read_condition(self, address: PciAddress) -> Condition:
        """How it can be reset, and its power state; reading takes no lock."""

    def list_stalls(self) -> tuple[str, ...]:
        """Removals that wait for a user, as people read them: while there are any, operations on
        the whole bus (rescan, number of virtual functions) would wait behind them.
        """

    def list_removals(self) -> tuple[str, ...]:
        """Of those: functions that another program takes off the bus while they are in use, and who has
        them open. Late helpers of ours are left out.
        """

    def list_kernel_parameters(self) -> tuple[str, ...]:
        """The words of the kernel's command line."""

    def read_override(self, address: PciAddress) -> str | None:
        """What ``driver_override`` says. Takes the device's lock: may raise HelperLateError."""

    def load_driver(self, driver: str) -> None:
        """Loads the driver's module where the driver is not there. Raises DriverMissingError."""

    def bind(self, address: PciAddress, driver: str) -> None:
        """Takes the function from its driver and gives it to another, and reads back.

        Restartable: bound already is no error. Raises DriverMissingError, DriverIgnoredError.
        """

    def release(self, address: PciAddress, driver: str | None, override: str | None) -> None:
        """Gives it back to the driver of before (None: to none), with the override of before.

        Restartable. Raises DriverIgnoredError where the host's driver does not take it.
        """

    def set_vf_count(self, physical: PciAddress, count: int) -> None:
        """Has the function's SR-IOV driver make or remove virtual functions, new ones without a host
        driver, and reads back. Raises as ``SrIovDriver.enable``.
        """

    def observe_vfs(self, physical: Function) -> VfSupport:
        """See ``SrIovDriver.observe``."""

    def list_quotas(self, physical: PciAddress, count: int) -> Sequence[Mapping[str, str]]:
        """See ``SrIovDriver``."""

    def check_quotas(self, physical: PciAddress, values: Sequence[Quota]) -> None:
        """See ``SrIovDriver``. Raises VfQuotaError."""

    def provide_quotas(self, physical: PciAddress, count: int, values: Sequence[Quota]) -> None:
        """See ``SrIovDriver``. Raises VfQuotaError."""

    def take_back_quotas(self, physical: PciAddress, count: int, values: Sequence[Quota]) -> None:
        """See ``SrIovDriver``."""

    def write_quotas(
        self, physical: PciAddress, indexes: Sequence[int], values: Sequence[Quota]
    ) -> None:
        """See ``SrIovDriver``. Raises VfQuotaError."""

    @property
    def boot_id(self) -> str:
        """Which boot this is: bindings end with it."""


def make_absent() -> HostPci:
    """The bus of a machine that has none: no function is there."""
    nowhere = Path("/nonexistent")
    return HostPci(Machine("none", nowhere, nowhere, nowhere, "test:///default"))


_NVIDIA_DRIVER = "nvidia"


class Forgetful:
    """Remembers for as long as the process lives."""

    def __init__(self) -> None:
        self._bindings: dict[PciAddress, Binding] = {}
        self._settings: dict[PciAddress, VfSetting] = {}

    def list_bindings(self) -> tuple[Binding, ...]:
        """See ``PciMemory``."""
        return tuple(self._bindings.values())

    def save_binding(self, binding: Binding) -> None:
        """See ``PciMemory``."""
        self._bindings[binding.address] = binding

    def forget_binding(self, address: PciAddress) -> None:
        """See ``PciMemory``."""
        self._bindings.pop(address, None)

    def list_vf_settings(self) -> tuple[VfSetting, ...]:
        """See ``PciMemory``."""
        return tuple(self._settings.values())

    def save_vf_setting(self, setting: VfSetting) -> None:
        """See ``PciMemory``."""
        self._settings[setting.physical] = setting

    def forget_vf_setting(self, physical: PciAddress) -> None:
        """See ``PciMemory``."""
        self._settings.pop(physical, None)


class HostPci:
    """One machine's PCI bus; see ``PciControl``. SR-IOV drivers get it as their ``SrIovHost``."""

    def __init__(
        self,
        machine: Machine,
        memory: PciMemory | None = None,
        clock: Clock | None = None,
        bind_timeout_s: float = BIND_TIMEOUT_S,
    ) -> None:
        self.machine = machine
        self.changes = PciChanges(machine, clock, bind_timeout_s)
        self._clock = clock
        self._opened: dict[object, Closeable] = {}
        self._records = LateRecords(machine.run_dir, clock)
        memory = memory or Forgetful()
        self.list_bindings = memory.list_bindings
        self.save_binding = memory.save_binding
        self.forget_binding = memory.forget_binding
        self.list_vf_settings = memory.list_vf_settings
        self.save_vf_setting = memory.save_vf_setting
        self.forget_vf_setting = memory.forget_vf_setting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.changes.close()
        for opened in self._opened.values():
            opened.close()

    @cached_property
    def boot_id(self) -> str:
        """See ``PciControl``."""
        return read_boot_id(self.machine)

    def list_functions(self) -> tuple[Function, ...]:
        """See ``PciControl``."""
        return tuple(list_functions(self.machine))

    def read_function(self, address: PciAddress) -> Function:
        """See ``PciControl``."""
        function = read_function(self.machine, address)
        if function is None:
            raise _gone(address)
        return function

    def list_users(self, functions: Sequence[Function]) -> Mapping[PciAddress, tuple[User, ...]]:
        """See ``PciControl``."""
        # without a driver, too: while an unbind waits the driver is gone already, and its user is not
        asked = {f.address: f.group if f.is_free else None for f in functions}
        found = list_pci_users(self.machine, asked)
        users = {f.address: _add_boot_display(f, found[f.address]) for f in functions}
        return {address: some for address, some in users.items() if some}

    def list_bars(self, address: PciAddress) -> tuple[int, ...]:
        """See ``PciControl``."""
        sizes = list_bar_sizes(self.machine, address)
        if sizes is None:
            raise _gone(address)
        return sizes

    def is_conventional(self, address: PciAddress) -> bool:
        """See ``PciControl``."""
        return read_is_express(self.machine, address) is False

    def list_variants(self, addresses: Sequence[PciAddress]) -> Mapping[PciAddress, str]:
        """See ``PciControl``."""
        return list_variants(self.machine, addresses)

    def read_condition(self, address: PciAddress) -> Condition:
        """See ``PciControl``."""
        methods, power = read_condition(self.machine, address)
        return Condition(None if methods is None else tuple(methods.split()), power)

    def list_stalls(self) -> tuple[str, ...]:
        """See ``PciControl``."""
        calls = tuple(driver.late_call for driver in DRIVERS)
        ours = [
            f"process {helper.process.pid} ({helper.what})"
            for helper in self._list_late()
            if helper.what.startswith(calls)
        ]
        removals = self._list_removers()
        return (*ours, *removals, *(self._list_leaving() if removals else ()))

    def list_removals(self) -> tuple[str, ...]:
        """See ``PciControl``."""
        removals = self._list_removers()
        leaving = tuple(self._list_leaving()) if removals else ()
        # without one they wait for something else of VFIO's: a mediated device
        return (*removals, *leaving) if leaving else ()

    def _list_removers(self) -> list[str]:
        return list_removals(self.machine, [h.process.pid for h in self._list_late()])

    def _list_late(self) -> tuple[LateHelper, ...]:
        return (*self._records.list_late(), *self._records.list_orphans())

    def _list_leaving(self) -> Iterator[str]:
        """Functions whose driver is gone already while a process still has them open."""
        bare = [f for f in self.list_functions() if f.driver is None and not f.is_bridge]
        for address, users in self.list_users(bare).items():
            held = "; ".join(str(u) for u in users if u.kind is UserKind.PROCESS)
            if held:
                yield f"{address} is held by {held}"

    def list_kernel_parameters(self) -> tuple[str, ...]:
        """See ``PciControl``."""
        return read_kernel_words(self.machine)

    def read_override(self, address: PciAddress) -> str | None:
        """See ``PciControl``."""
        return self.changes.read_override(address)

    def load_driver(self, driver: str) -> None:
        """See ``PciControl``."""
        if has_driver(self.machine, driver):
            return
        complaint = self.changes.load_module(driver)
        if not has_driver(self.machine, driver):
            raise DriverMissingError(
                f"the driver {driver} is not loaded",
                cause=f"modprobe {driver}: {complaint}" if complaint else None,
                why="the module was loaded, but no such driver appeared" if not complaint else None,
                hint=f"modprobe {driver}",
            )

    def bind(self, address: PciAddress, driver: str) -> None:
        """See ``PciControl``."""
        self.load_driver(driver)
        self._end_monitors(address)
        now = self.changes.bind(address, driver)
        if now != driver:
            raise _ignored(address, driver, now)

    def release(self, address: PciAddress, driver: str | None, override: str | None) -> None:
        """See ``PciControl``."""
        now = self.changes.release(address, driver, override)
        if now != driver:
            raise _ignored(address, driver, now)

    def _end_monitors(self, address: PciAddress) -> None:
        if self.read_function(address).driver == _NVIDIA_DRIVER:
            self.changes.end_monitors()

    def set_vf_count(self, physical: PciAddress, count: int) -> None:
        """See ``PciControl``."""
        driver = self._find_driver(physical)
        if count:
            driver.enable(self, physical, count)
        else:
            driver.disable(self, physical)

    def observe_vfs(self, physical: Function) -> VfSupport:
        """See ``PciControl``."""
        return find_driver(physical).observe(self, physical)

    def list_quotas(self, physical: PciAddress, count: int) -> Sequence[Mapping[str, str]]:
        """See ``PciControl``."""
        return self._find_driver(physical).list_quotas(self, physical, count)

    def check_quotas(self, physical: PciAddress, values: Sequence[Quota]) -> None:
        """See ``PciControl``."""
        self._find_driver(physical).check_quotas(self, physical, values)

    def provide_quotas(self, physical: PciAddress, count: int, values: Sequence[Quota]) -> None:
        """See ``PciControl``."""
        self._find_driver(physical).provide_quotas(self, physical, count, values)

    def take_back_quotas(self, physical: PciAddress, count: int, values: Sequence[Quota]) -> None:
        """See ``PciControl``."""
        self._find_driver(physical).take_back_quotas(self, physical, count, values)

    def write_quotas(
        self, physical: PciAddress, indexes: Sequence[int], values: Sequence[Quota]
    ) -> None:
        """See ``PciControl``."""
        self._find_driver(physical).write_quotas(self, physical, indexes, values)

    def _find_driver(self, physical: PciAddress) -> SrIovDriver:
        return find_driver(self.read_function(physical))

    def open_once(self, make: Callable[[Machine, Clock | None], Opened]) -> Opened:
        """See ``SrIovHost``."""
        if make not in self._opened:
            self._opened[make] = make(self.machine, self._clock)
        return cast(Opened, self._opened[make])


def _add_boot_display(function: Function, users: Sequence[User]) -> tuple[User, ...]:
    if not function.boot_display or function.driver is None or function.is_away:
        return tuple(users)
    boots = User(UserKind.DISPLAY, f"{function.address} is the display that the host boots with")
    displays = [user for user in users if user.kind is UserKind.DISPLAY]
    return (*(user for user in users if user not in displays), boots, *displays)


def _gone(address: PciAddress) -> PciNotFoundError:
    return PciNotFoundError(
        f"there is no PCI function {address}",
        why="it has left the bus, or there never was one",
        hint="vgpumgr passthrough list",
    )


def _ignored(address: PciAddress, wanted: str | None, now: str | None) -> DriverIgnoredError:
    return DriverIgnoredError(
        f"{address} was to have {wanted or 'no driver'}",
        why=f"the kernel accepted it, but it has {now or 'no driver'}",
        hint="dmesg | tail",
    )
