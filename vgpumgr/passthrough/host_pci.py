"""``PciControl`` on a machine's ``/sys`` and ``/proc``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol, Self

from vgpumgr.errors import (
    DriverIgnoredError,
    DriverMissingError,
    PciNotFoundError,
    PciWriteError,
    VfGrabbedError,
    VfIgnoredError,
    VfUnsupportedError,
    VfVendorToolError,
    VgpumgrError,
)
from vgpumgr.host.amdsmi import SET_VFS, AmdSmi
from vgpumgr.host.boot import read_boot_id
from vgpumgr.host.clock import Clock
from vgpumgr.host.helper import LateHelper, LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_changes import BIND_TIMEOUT_S, PciChanges
from vgpumgr.host.pci_tree import (
    PciEntry,
    has_driver,
    has_vendor_tool,
    list_bar_sizes,
    list_pci_entries,
    read_condition,
    read_is_express,
    read_kernel_words,
    read_pci_entry,
)
from vgpumgr.host.pci_users import PciUsers, list_pci_users, list_removals
from vgpumgr.host.vfio_variants import list_variants
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.quotas import Quotas
from vgpumgr.passthrough.values import (
    GIM,
    NVIDIA,
    Binding,
    Condition,
    Function,
    Quota,
    User,
    UserKind,
    VfSetting,
    VfTool,
)

_NVIDIA_DRIVER = "nvidia"
#: words with which a late helper's call begins that holds up the whole bus
_GLOBAL_CALLS = ("set sriov_numvfs", "sriov-manage", SET_VFS)


class PciMemory(Protocol):
    """Remembers bindings and numbers of virtual functions. May raise StoreError."""

    def list_bindings(self) -> tuple[Binding, ...]:
        """See ``PciControl``."""

    def save_binding(self, binding: Binding) -> None:
        """See ``PciControl``."""

    def forget_binding(self, address: PciAddress) -> None:
        """See ``PciControl``."""

    def list_vf_settings(self) -> tuple[VfSetting, ...]:
        """See ``PciControl``."""

    def save_vf_setting(self, setting: VfSetting) -> None:
        """See ``PciControl``."""

    def forget_vf_setting(self, physical: PciAddress) -> None:
        """See ``PciControl``."""


class Forgetful:
    """Remembers for as long as the process lives."""

    def __init__(self) -> None:
        self._bindings: dict[PciAddress, Binding] = {}
        self._settings: dict[PciAddress, VfSetting] = {}

    def list_bindings(self) -> tuple[Binding, ...]:
        """See ``PciControl``."""
        return tuple(self._bindings.values())

    def save_binding(self, binding: Binding) -> None:
        """See ``PciControl``."""
        self._bindings[binding.address] = binding

    def forget_binding(self, address: PciAddress) -> None:
        """See ``PciControl``."""
        self._bindings.pop(address, None)

    def list_vf_settings(self) -> tuple[VfSetting, ...]:
        """See ``PciControl``."""
        return tuple(self._settings.values())

    def save_vf_setting(self, setting: VfSetting) -> None:
        """See ``PciControl``."""
        self._settings[setting.physical] = setting

    def forget_vf_setting(self, physical: PciAddress) -> None:
        """See ``PciControl``."""
        self._settings.pop(physical, None)


class HostPci:
    """One machine's PCI bus; see ``PciControl``."""

    def __init__(
        self,
        machine: Machine,
        memory: PciMemory | None = None,
        clock: Clock | None = None,
        bind_timeout_s: float = BIND_TIMEOUT_S,
    ) -> None:
        self._machine = machine
        self._changes = PciChanges(machine, clock, bind_timeout_s)
        self._amd = AmdSmi(machine, clock)
        self._quotas = Quotas(machine, self._changes)
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
        self._changes.close()
        self._amd.close()

    @cached_property
    def boot_id(self) -> str:
        """See ``PciControl``."""
        return read_boot_id(self._machine)

    def list_functions(self) -> tuple[Function, ...]:
        """See ``PciControl``."""
        return tuple(_make_function(entry) for entry in list_pci_entries(self._machine))

    def read_function(self, address: PciAddress) -> Function:
        """See ``PciControl``."""
        entry = read_pci_entry(self._machine, address)
        if entry is None:
            raise _gone(address)
        return _make_function(entry)

    def list_users(self, functions: Sequence[Function]) -> Mapping[PciAddress, tuple[User, ...]]:
        """See ``PciControl``."""
        # without a driver, too: while an unbind waits the driver is gone already, and its user is not
        asked = {f.address: f.group if f.is_free else None for f in functions}
        found = list_pci_users(self._machine, asked)
        users = {f.address: _make_users(f, found[f.address]) for f in functions}
        return {address: some for address, some in users.items() if some}

    def list_bars(self, address: PciAddress) -> tuple[int, ...]:
        """See ``PciControl``."""
        sizes = list_bar_sizes(self._machine, address)
        if sizes is None:
            raise _gone(address)
        return sizes

    def is_conventional(self, address: PciAddress) -> bool:
        """See ``PciControl``."""
        return read_is_express(self._machine, address) is False

    def list_variants(self, addresses: Sequence[PciAddress]) -> Mapping[PciAddress, str]:
        """See ``PciControl``."""
        return list_variants(self._machine, addresses)

    def read_condition(self, address: PciAddress) -> Condition:
        """See ``PciControl``."""
        methods, power = read_condition(self._machine, address)
        return Condition(None if methods is None else tuple(methods.split()), power)

    def list_stalls(self) -> tuple[str, ...]:
        """See ``PciControl``."""
        ours = [
            f"process {helper.process.pid} ({helper.what})"
            for helper in self._list_late()
            if helper.what.startswith(_GLOBAL_CALLS)
        ]
        return (*ours, *self.list_removals())

    def list_removals(self) -> tuple[str, ...]:
        """See ``PciControl``."""
        known = [helper.process.pid for helper in self._list_late()]
        removals = list_removals(self._machine, known)
        return (*removals, *(self._list_leaving() if removals else ()))

    def _list_late(self) -> tuple[LateHelper, ...]:
        return (*self._records.list_late(), *self._records.list_orphans())

    def _list_leaving(self) -> Iterator[str]:
        """Functions whose driver is gone already while somebody still has them open."""
        bare = [f for f in self.list_functions() if f.driver is None and not f.is_bridge]
        for address, users in self.list_users(bare).items():
            held = "; ".join(str(u) for u in users if u.kind is UserKind.PROCESS)
            if held:
                yield f"{address} is held by {held}"

    def list_kernel_parameters(self) -> tuple[str, ...]:
        """See ``PciControl``."""
        return read_kernel_words(self._machine)

    def read_override(self, address: PciAddress) -> str | None:
        """See ``PciControl``."""
        return self._changes.read_override(address)

    def load_driver(self, driver: str) -> None:
        """See ``PciControl``."""
        if has_driver(self._machine, driver):
            return
        complaint = self._changes.load_module(driver)
        if not has_driver(self._machine, driver):
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
        now = self._changes.bind(address, driver)
        if now != driver:
            raise _ignored(address, driver, now)

    def release(self, address: PciAddress, driver: str | None, override: str | None) -> None:
        """See ``PciControl``."""
        now = self._changes.release(address, driver, override)
        if now != driver:
            raise _ignored(address, driver, now)

    def _end_monitors(self, address: PciAddress) -> None:
        if self.read_function(address).driver == _NVIDIA_DRIVER:
            self._changes.end_monitors()

    def set_vf_count(self, physical: PciAddress, count: int) -> None:
        """See ``PciControl``."""
        try:
            self._changes.set_vf_count(physical, count)
        except (PciNotFoundError, PciWriteError) as error:
            if read_pci_entry(self._machine, physical) is None:
                raise
            raise VfUnsupportedError(
                f"cannot make {count} virtual functions of {physical}",
                cause=error.cause,
                why="its driver takes no such request, or the firmware left no room for them",
                hint="dmesg | tail",
            ) from error
        self._check_vfs(physical, count)

    def _check_vfs(self, physical: PciAddress, count: int) -> None:
        now = self.read_function(physical)
        if len(now.vfs) != count:
            raise VfIgnoredError(
                f"{physical} was to have {count} virtual functions",
                why=f"the kernel accepted it, but there are {len(now.vfs)}",
                hint="dmesg | tail",
            )
        grabbed = self._list_grabbed(now)
        if grabbed:
            self._changes.unbind([vf.address for vf in grabbed])
        if kept := self._list_grabbed(now):
            raise VfGrabbedError(
                f"the host's driver took new virtual functions of {physical}",
                why="they were unbound from it, and it has them again",
                held_by=[f"driver {vf.driver}: {vf.address}" for vf in kept],
                hint=f"vgpumgr vf disable {physical}",
            )

    def _list_grabbed(self, physical: Function) -> list[Function]:
        vfs = (self.read_function(address) for address in physical.vfs)
        return [vf for vf in vfs if vf.driver is not None]

    def set_vendor_vfs(self, physical: PciAddress, count: int) -> None:
        """See ``PciControl``."""
        if self.read_function(physical).driver == GIM:
            self._amd.set_vf_count(physical, count)
            self._check_vfs(physical, count)
            return
        self._changes.end_monitors()
        complaint = self._changes.sriov_manage(physical, count > 0)
        vfs = self.read_function(physical).vfs
        if complaint is not None or bool(vfs) != (count > 0):
            raise VfVendorToolError(
                f"sriov-manage did not {'make' if count else 'remove'} the virtual functions"
                f" of {physical}",
                cause=complaint or f"it succeeded, but there are {len(vfs)}",
                hint="dmesg | tail",
            )

    def find_vf_tool(self, physical: Function) -> VfTool | None:
        """See ``PciControl``."""
        if physical.vendor_id == NVIDIA:
            there = has_vendor_tool(self._machine)
            return VfTool("sriov-manage", None if there else "it is not installed")
        if physical.driver != GIM:
            return None
        try:
            found = self._amd.read_vfs(physical.address)
        except VgpumgrError as error:
            return VfTool("libamdsmi.so", error.cause or str(error))
        shares = found.shares_mib
        return VfTool("libamdsmi.so", supported=found.supported, shares_mib=shares)

    def list_quotas(self, physical: PciAddress, count: int) -> Sequence[Mapping[str, str]]:
        """See ``PciControl``."""
        return self._quotas.list_values(physical, count)

    def check_quotas(self, physical: PciAddress, values: Sequence[Quota]) -> None:
        """See ``PciControl``."""
        self._quotas.check(physical, values)

    def provide_quotas(self, physical: PciAddress, count: int, values: Sequence[Quota]) -> None:
        """See ``PciControl``."""
        self._quotas.provide(physical, count, values)

    def take_back_quotas(self, physical: PciAddress, count: int, values: Sequence[Quota]) -> None:
        """See ``PciControl``."""
        self._quotas.take_back(physical, count, values)

    def write_quotas(
        self, physical: PciAddress, indexes: Sequence[int], values: Sequence[Quota]
    ) -> None:
        """See ``PciControl``."""
        every = len(indexes) == len(self.read_function(physical).vfs)
        self._quotas.write(physical, indexes, values, every=every)


def _make_function(entry: PciEntry) -> Function:
    return Function(
        address=entry.address,
        vendor_id=entry.vendor_id,
        device_id=entry.device_id,
        class_code=entry.class_code,
        driver=entry.driver,
        group=entry.group,
        numa_node=entry.numa_node,
        boot_display=entry.boot_display,
        physical=entry.physical,
        vf_total=entry.vf_total,
        vfs=entry.vfs,
        vf_offset=entry.vf_offset,
        vf_stride=entry.vf_stride,
        has_vfio=entry.has_vfio,
    )


def _make_users(function: Function, found: PciUsers) -> tuple[User, ...]:
    users = [User(UserKind.PROCESS, text, pid) for pid, text in found.processes]
    users += [User(UserKind.DISK, text) for text in found.disks]
    users += [User(UserKind.IDLE_DISK, text) for text in found.idle_disks]
    users += [User(UserKind.NETWORK, text) for text in found.networks]
    users += [User(UserKind.USB, text) for text in found.usb]
    users += [User(UserKind.MDEV, text) for text in found.mdevs]
    shown = found.displays
    if function.boot_display and function.driver is not None and not function.is_away:
        shown = [f"{function.address} is the display that the host boots with", *shown]
    return (*users, *(User(UserKind.DISPLAY, text) for text in shown))


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
