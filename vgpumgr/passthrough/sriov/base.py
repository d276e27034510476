"""``SrIovDriver``: how one vendor's host driver makes virtual functions, and what it needs of a host.

A driver holds no state. ``vgpumgr.passthrough.sriov`` lists all of them in the order of probing. A vendor derives from
``SrIovDriver`` and replaces what it does differently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from vgpumgr.errors import (
    PciNotFoundError,
    PciWriteError,
    VfGrabbedError,
    VfIgnoredError,
    VfQuotaError,
    VfUnsupportedError,
)
from vgpumgr.host.clock import Clock
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_changes import SET_VFS, PciChanges
from vgpumgr.host.pci_tree import read_function
from vgpumgr.model.pci import Function, PciAddress, Quota, VfMethod, VfSupport


class Closeable(Protocol):
    """What a driver opens on a host: a helper process, a connection."""

    def close(self) -> None:
        """Ends it; the next call may start another."""


Opened = TypeVar("Opened", bound=Closeable)


class SrIovHost(Protocol):
    """One machine, as SR-IOV drivers see it."""

    @property
    def machine(self) -> Machine:
        """Its files; reading takes no lock of the kernel."""

    @property
    def changes(self) -> PciChanges:
        """The helper process that writes to its files and runs its programs, with deadlines."""

    def read_function(self, address: PciAddress) -> Function:
        """One function as it is now. Raises PciNotFoundError."""

    def open_once(self, make: Callable[[Machine, Clock | None], Opened]) -> Opened:
        """What ``make`` returned at its first call; closed with the host."""


class SrIovDriver(ABC):
    """How one vendor's driver makes virtual functions. What a vendor does not override is the kernel's way:
    ``sriov_numvfs``, and no quotas.

    ``probe`` and the ``check_*`` methods are pure. The methods with a ``host`` read or change the
    machine; the changing ones run inside a transaction and are restartable.
    """

    #: how their number is set, as ``vf list`` reports it
    method: VfMethod = "sriov_numvfs"
    #: the vendor's program that makes and removes them, as plans name it; None: the kernel does
    program: str | None = None
    #: the words that begin the name of its late helper call: while one runs, the whole bus waits
    late_call: str = SET_VFS
    #: whether it goes from one number to another without going through none
    resizes: bool = False
    #: why a change of their number needs the physical function unused as well; None: it does not
    interruption: str | None = None
    #: whether ``restore --early`` makes them; else they wait for MIG mode
    restores_early: bool = True
    #: why a virtual function is of no use to a VM without a vGPU type; None: it is of use
    needs_type: str | None = None

    @abstractmethod
    def probe(self, physical: Function) -> bool:
        """Whether it is the driver for a physical function. The first driver that says so is used."""

    def observe(self, host: SrIovHost, physical: Function) -> VfSupport:  # noqa: ARG002
        """The capacity of a function before every plan and listing. Raises nothing."""
        return VfSupport(physical.vf_total)

    def check_driver(self, physical: Function) -> None:  # noqa: B027
        """Whether the kernel driver that it has now makes virtual functions. Raises VfUnsupportedError."""

    def check_support(self, physical: Function, support: VfSupport) -> None:  # noqa: B027
        """Whether what changes their number can be used here. Raises VfVendorToolError."""

    def check_count(self, physical: Function, count: int, total: int) -> None:  # noqa: B027
        """Whether it makes so many, 1 to ``total``. Raises VfCountError."""

    def check_none(self, physical: Function) -> None:  # noqa: B027
        """Whether it removes all of them. Raises VfUnsupportedError."""

    def enable(self, host: SrIovHost, physical: PciAddress, count: int) -> None:
        """Makes them, with the host's drivers kept from them meanwhile, and reads back: ``vf enable``, an
        attach, ``restore``.

        Raises VfUnsupportedError (nothing was changed), VfIgnoredError, VfGrabbedError,
        VfVendorToolError, PciBusyError, HelperLateError.
        """
        try:
            host.changes.set_vf_count(physical, count)
        except (PciNotFoundError, PciWriteError) as error:
            if read_function(host.machine, physical) is None:
                raise
            raise VfUnsupportedError(
                f"cannot make {count} virtual functions of {physical}",
                cause=error.cause,
                why="its driver takes no such request, or the firmware left no space for them",
                hint="dmesg | tail",
            ) from error
        check_made(host, physical, count)

    def disable(self, host: SrIovHost, physical: PciAddress) -> None:
        """Removes all and reads back: ``vf disable``, a detach, before another number. Raises as
        ``enable``.
        """
        self.enable(host, physical, 0)

    def list_quotas(
        self,
        host: SrIovHost,  # noqa: ARG002
        physical: PciAddress,  # noqa: ARG002
        count: int,
    ) -> Sequence[Mapping[str, str]]:
        """Quotas of each of ``count`` virtual functions, name to value: ``vf list FUNCTION``."""
        return [{} for _ in range(count)]

    def check_quotas(self, host: SrIovHost, physical: PciAddress, values: Sequence[Quota]) -> None:  # noqa: B027
        """Before a plan: whether there are quotas of these names, as far as that can be known before
        there are virtual functions. Raises VfQuotaError.
        """

    def provide_quotas(  # noqa: B027
        self, host: SrIovHost, physical: PciAddress, count: int, values: Sequence[Quota]
    ) -> None:
        """Right before ``enable``: sets what the driver would share out otherwise, and checks the names
        where it can. Raises VfQuotaError.
        """

    def take_back_quotas(  # noqa: B027
        self, host: SrIovHost, physical: PciAddress, count: int, values: Sequence[Quota]
    ) -> None:
        """After ``disable`` or a failed ``enable``: the driver shares out again what was set."""

    def write_quotas(
        self,
        host: SrIovHost,  # noqa: ARG002
        physical: PciAddress,
        indexes: Sequence[int],
        values: Sequence[Quota],
    ) -> None:
        """After ``enable`` and before one goes to a VM: sets quotas of virtual functions (from 0) in
        order and reads them back; a driver may round them. Raises VfQuotaError.
        """
        for index in indexes:
            check_quota_names(physical, index, (), values)


class GenericSriov(SrIovDriver):
    """Any vendor whose driver follows the kernel's rules. Without quotas it says so once there are virtual
    functions, as drivers do that show quotas late.
    """

    def probe(self, physical: Function) -> bool:  # noqa: ARG002
        """It is the last one, for all functions."""
        return True


def check_made(host: SrIovHost, physical: PciAddress, count: int) -> None:
    """Reads back that there are so many, none of which has a driver; unbinds those that have one.

    Raises VfIgnoredError, VfGrabbedError.
    """
    now = host.read_function(physical)
    if len(now.vfs) != count:
        raise VfIgnoredError(
            f"{physical} was to have {count} virtual functions",
            why=f"the kernel accepted it, but there are {len(now.vfs)}",
            hint="dmesg | tail",
        )
    if grabbed := _list_grabbed(host, now):
        host.changes.unbind([vf.address for vf in grabbed])
    if kept := _list_grabbed(host, now):
        raise VfGrabbedError(
            f"the host's driver took new virtual functions of {physical}",
            why="they were unbound from it, and it has them again",
            held_by=[f"driver {vf.driver}: {vf.address}" for vf in kept],
            hint=f"vgpumgr vf disable {physical}",
        )


def _list_grabbed(host: SrIovHost, physical: Function) -> list[Function]:
    vfs = (host.read_function(address) for address in physical.vfs)
    return [vf for vf in vfs if vf.driver is not None]


def check_quota_names(
    physical: PciAddress, index: int, known: Sequence[str], values: Sequence[Quota]
) -> None:
    """Raises VfQuotaError where a name is none of those that the driver has."""
    if missing := [name for name, _ in values if name not in known]:
        raise VfQuotaError(
            f"virtual function {index} of {physical} has no quota {', '.join(missing)}",
            why=f"its driver has {', '.join(known) or 'none'}",
            hint=f"vgpumgr vf list {physical} -o wide",
        )
