"""What passthrough asks of a machine: PCI functions, their users, their drivers, their number.

``PciControl`` is the seam, ``HostPci`` the real thing. Reading takes no lock of the kernel and
answers while a change hangs; every change runs in a helper process with a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from vgpumgr.host.machine import Machine
from vgpumgr.model.functions import Binding, Condition, Function, Quota, User, VfSetting, VfSupport
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.host_pci import HostPci

__all__ = [
    "Binding", "Function", "HostPci", "PciControl", "Quota", "User", "VfSetting", "VfSupport", "make_absent",
]  # fmt: skip


class PciControl(Protocol):
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

    def list_bindings(self) -> tuple[Binding, ...]:
        """Functions that are remembered as taken from the host. Raises StoreError."""

    def save_binding(self, binding: Binding) -> None:
        """Remembers one, in the place of that of the same address. Raises StoreError."""

    def forget_binding(self, address: PciAddress) -> None:
        """Forgets one; absent is no error. Raises StoreError."""

    def list_vf_settings(self) -> tuple[VfSetting, ...]:
        """Physical functions whose number of virtual functions we set. Raises StoreError."""

    def save_vf_setting(self, setting: VfSetting) -> None:
        """Remembers one, in the place of that of the same address. Raises StoreError."""

    def forget_vf_setting(self, physical: PciAddress) -> None:
        """Forgets one; absent is no error. Raises StoreError."""

    @property
    def boot_id(self) -> str:
        """Which boot this is: bindings end with it."""


def make_absent() -> HostPci:
    """The bus of a machine that has none: no function is there."""
    nowhere = Path("/nonexistent")
    return HostPci(Machine("none", nowhere, nowhere, nowhere, "test:///default"))
