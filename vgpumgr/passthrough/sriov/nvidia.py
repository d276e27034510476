"""NVIDIA: its own program ``sriov-manage`` makes all virtual functions; ``sriov_numvfs`` is never written."""

from __future__ import annotations

import os

from vgpumgr.errors import VfCountError, VfVendorToolError
from vgpumgr.host.pci_changes import VF_TIMEOUT_S
from vgpumgr.model.pci import NVIDIA, Function, PciAddress, VfMethod, VfSupport
from vgpumgr.passthrough.sriov.base import SrIovDriver, SrIovHost

_PROGRAM = "/usr/lib/nvidia/sriov-manage"
#: what it says while any NVML client is open; nothing else is worth repeating
_LOCKED = "Cannot obtain unbindLock"


class NvidiaSriov(SrIovDriver):
    """See ``SrIovDriver``."""

    method: VfMethod = "sriov-manage"
    program: str | None = "sriov-manage"
    late_call = "sriov-manage"
    interruption: str | None = "sriov-manage takes the GPU from its driver for a moment"
    #: MIG mode does not change beside virtual functions
    restores_early = False
    needs_type: str | None = "NVIDIA's driver gives it a size by a vGPU type"

    def probe(self, physical: Function) -> bool:
        """All functions of the vendor."""
        return physical.vendor_id == NVIDIA

    def observe(self, host: SrIovHost, physical: Function) -> VfSupport:
        """Whether the program is installed."""
        installed = os.access(host.machine.path(_PROGRAM), os.X_OK)
        return VfSupport(physical.vf_total, None if installed else "it is not installed")

    def check_support(self, physical: Function, support: VfSupport) -> None:
        """The program comes with the vGPU host driver."""
        if support.missing is not None:
            address = physical.address
            raise VfVendorToolError(
                f"virtual functions of {address} are not made by sriov_numvfs",
                why="NVIDIA's driver makes them through its own sriov-manage, which is not installed",
                hint=f"install NVIDIA's vGPU host driver; {_PROGRAM} -e {address}",
            )

    def check_count(self, physical: Function, count: int, total: int) -> None:
        """All or none."""
        if count != total:
            raise VfCountError(
                f"{physical.address} cannot have {count} virtual functions",
                why=f"sriov-manage makes all {total} of them",
                hint=f"vgpumgr vf enable {physical.address}",
            )

    def enable(self, host: SrIovHost, physical: PciAddress, count: int) -> None:  # noqa: ARG002
        """Makes all of them."""
        self._run(host, physical, "-e")

    def disable(self, host: SrIovHost, physical: PciAddress) -> None:
        """Removes all of them."""
        self._run(host, physical, "-d")

    def _run(self, host: SrIovHost, physical: PciAddress, option: str) -> None:
        """Our own NVML clients end first: the driver lets no GPU go that they have open."""
        host.changes.end_monitors()
        complaint = host.changes.run_program(
            _PROGRAM, [option, str(physical)], VF_TIMEOUT_S, repeat_on=_LOCKED
        )
        vfs, wanted = host.read_function(physical).vfs, option == "-e"
        if complaint is not None or bool(vfs) != wanted:
            raise VfVendorToolError(
                f"sriov-manage did not {'make' if wanted else 'remove'} the virtual functions"
                f" of {physical}",
                cause=complaint or f"it succeeded, but there are {len(vfs)}",
                hint="dmesg | tail",
            )
