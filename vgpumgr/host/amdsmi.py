"""AMD's host library through a helper process with a deadline for every call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vgpumgr.errors import (
    PciBusyError,
    PciNotFoundError,
    SysfsPermissionError,
    VfUnsupportedError,
    VfVendorToolError,
    VgpumgrError,
)
from vgpumgr.host.amdsmi_helper import MISSING
from vgpumgr.host.clock import Clock
from vgpumgr.host.helper import HelperFaultError
from vgpumgr.host.machine import Machine
from vgpumgr.host.on_demand import HelperOnDemand
from vgpumgr.model.pci import PciAddress

#: what a late call that changes something is called; it holds up the whole PCI bus
SET_VFS = "have amdsmi_set_num_vf"
_READ_TIMEOUT_S = 15.0
#: the driver lays out the memory of every virtual function anew
CHANGE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class AmdVfs:
    """Virtual functions of a GPU as AMD's driver has them; ``shares_mib`` by address."""

    enabled: int
    supported: int
    shares_mib: dict[PciAddress, int]


class AmdSmi:
    """The library of one machine."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock | None = None,
        change_timeout_s: float = CHANGE_TIMEOUT_S,
    ) -> None:
        self._helper = HelperOnDemand(machine, "vgpumgr.host.amdsmi_helper", clock=clock)
        self._change_timeout_s = change_timeout_s

    def read_vfs(self, address: PciAddress) -> AmdVfs:
        """What the driver says. Raises VfVendorToolError where there is no such library, and as
        ``set_vf_count``.
        """
        what = f"read the virtual functions of {address}"
        answer = self._call("read_vfs", what, _READ_TIMEOUT_S, address=str(address))
        shares = {PciAddress.parse(row["address"]): int(row["size_mib"]) for row in answer["vfs"]}
        return AmdVfs(int(answer["enabled"]), int(answer["supported"]), shares)

    def set_vf_count(self, address: PciAddress, count: int) -> None:
        """Changes their number. Raises PciBusyError, VfUnsupportedError, PciNotFoundError,
        SysfsPermissionError; HelperLateError, HelperDiedError.
        """
        what = f"{SET_VFS} make {count} virtual functions of {address}"
        asked = {"address": str(address), "count": count}
        self._call("set_vf_count", what, self._change_timeout_s, **asked)

    def close(self) -> None:
        """Ends the helper; the next call would start another."""
        self._helper.close()

    def _call(self, method: str, what: str, timeout_s: float, **params: Any) -> Any:
        try:
            return self._helper.call(method, params, timeout_s, what)
        except HelperFaultError as fault:
            raise _make_error(what, fault) from None


def _make_error(what: str, fault: HelperFaultError) -> VgpumgrError:
    error = f"cannot {what}"
    if fault.kind == MISSING:
        return VfVendorToolError(error, cause=str(fault.data["text"]))
    code = int(fault.data["code"])
    cause = f"{fault.data['call']}: {fault.data['text']} (AMD SMI {code})"
    match code:
        case 2:
            return VfUnsupportedError(
                error,
                cause=cause,
                why="this GPU has as many as there were when its driver was loaded",
                hint="options gim vf_num=N in /etc/modprobe.d/gim.conf, then load gim anew",
            )
        case 10:
            return SysfsPermissionError(error, cause=cause, hint="repeat it with sudo")
        case 30:
            return PciBusyError(
                error, cause=cause, why="a VM runs on one of them", hint="stop it, then repeat"
            )
        case 31:
            why = "AMD's driver has no GPU at this address"
            return PciNotFoundError(error, cause=cause, why=why, hint="vgpumgr vf list")
        case 34:
            return VfVendorToolError(error, cause=cause, hint="modprobe gim")
    return VfVendorToolError(error, cause=cause, hint="dmesg | tail")
