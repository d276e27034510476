"""Any vendor whose driver follows the kernel's rules: ``sriov_numvfs``, and no quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vgpumgr.errors import (
    PciNotFoundError,
    PciWriteError,
    VfQuotaError,
    VfUnsupportedError,
)
from vgpumgr.host.pci_changes import SET_VFS
from vgpumgr.host.pci_tree import read_function
from vgpumgr.model.functions import Function, Quota, VfMethod, VfSupport
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.sriov.base import SrIovHost, check_made


class GenericSriov:
    """See ``SrIovDriver``. Vendors derive from it and replace what differs."""

    method: VfMethod = "sriov_numvfs"
    program: str | None = None
    late_call = SET_VFS
    resizes = False
    interruption: str | None = None
    restores_early = True
    needs_type: str | None = None

    def probe(self, physical: Function) -> bool:  # noqa: ARG002
        """It is the last one, for all functions."""
        return True

    def observe(self, host: SrIovHost, physical: Function) -> VfSupport:  # noqa: ARG002
        """As the capability of the function says."""
        return VfSupport(physical.vf_total)

    def check_driver(self, physical: Function) -> None:
        """Any driver of the host may."""

    def check_support(self, physical: Function, support: VfSupport) -> None:
        """The kernel needs nothing else."""

    def check_count(self, physical: Function, count: int, total: int) -> None:
        """Any number up to the total."""

    def check_none(self, physical: Function) -> None:
        """The kernel removes all."""

    def enable(self, host: SrIovHost, physical: PciAddress, count: int) -> None:
        """Writes their number, with the host's drivers kept from them meanwhile."""
        try:
            host.changes.set_vf_count(physical, count)
        except (PciNotFoundError, PciWriteError) as error:
            if read_function(host.machine, physical) is None:
                raise
            raise VfUnsupportedError(
                f"cannot make {count} virtual functions of {physical}",
                cause=error.cause,
                why="its driver takes no such request, or the firmware left no room for them",
                hint="dmesg | tail",
            ) from error
        check_made(host, physical, count)

    def disable(self, host: SrIovHost, physical: PciAddress) -> None:
        """Writes that there are none."""
        self.enable(host, physical, 0)

    def list_quotas(
        self,
        host: SrIovHost,  # noqa: ARG002
        physical: PciAddress,  # noqa: ARG002
        count: int,
    ) -> Sequence[Mapping[str, str]]:
        """None."""
        return [{} for _ in range(count)]

    def check_quotas(self, host: SrIovHost, physical: PciAddress, values: Sequence[Quota]) -> None:
        """That there are none is said once there are virtual functions, as of drivers that show them late."""

    def provide_quotas(
        self, host: SrIovHost, physical: PciAddress, count: int, values: Sequence[Quota]
    ) -> None:
        """There is nothing to set."""

    def take_back_quotas(
        self, host: SrIovHost, physical: PciAddress, count: int, values: Sequence[Quota]
    ) -> None:
        """There is nothing to give back."""

    def write_quotas(
        self,
        host: SrIovHost,  # noqa: ARG002
        physical: PciAddress,
        indexes: Sequence[int],
        values: Sequence[Quota],
    ) -> None:
        """Refuses all of them."""
        for index in indexes:
            check_quota_names(physical, index, (), values)


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
