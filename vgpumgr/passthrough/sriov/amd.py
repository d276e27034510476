"""AMD: its driver for hosts, GIM, keeps the number of virtual functions to itself, at least one. AMD's host
library changes it, through a helper process with a deadline for every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vgpumgr.errors import (
    PciBusyError,
    PciNotFoundError,
    SysfsPermissionError,
    VfQuotaError,
    VfUnsupportedError,
    VfVendorToolError,
    VgpumgrError,
)
from vgpumgr.host.amdsmi_helper import MISSING
from vgpumgr.host.clock import Clock
from vgpumgr.host.helper import HelperFaultError, HelperOnDemand
from vgpumgr.host.machine import Machine
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import Function, PciAddress, Quota, VfMethod, VfSupport
from vgpumgr.passthrough.sriov.base import SrIovDriver, SrIovHost, check_made

#: AMD's driver for hosts of virtual functions, and the one that makes none
_GIM, _AMDGPU = "gim", "amdgpu"
#: the words that begin the name of a call that changes something
_SET_VFS = "have amdsmi_set_num_vf"
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
        what = f"{_SET_VFS} make {count} virtual functions of {address}"
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


class AmdSriov(SrIovDriver):
    """See ``SrIovDriver``."""

    method: VfMethod = "libamdsmi"
    late_call = _SET_VFS
    resizes = True

    def probe(self, physical: Function) -> bool:
        """Functions that one of AMD's drivers has."""
        return physical.driver in (_GIM, _AMDGPU)

    def observe(self, host: SrIovHost, physical: Function) -> VfSupport:
        """As the library says; it may allow fewer than the capability of the function."""
        total = physical.vf_total
        if physical.driver != _GIM:
            return VfSupport(total)
        try:
            found = host.open_once(AmdSmi).read_vfs(physical.address)
        except VgpumgrError as error:
            return VfSupport(total, error.cause or str(error))
        return VfSupport(min(found.supported, total), shares_mib=found.shares_mib)

    def check_driver(self, physical: Function) -> None:
        """amdgpu makes none."""
        if physical.driver == _AMDGPU:
            address = physical.address
            raise VfUnsupportedError(
                f"{address} cannot make virtual functions now",
                why="its driver amdgpu makes none; AMD's driver for hosts, GIM, does",
                hint=f"install GIM, with {address} in its parameter enabled_devices",
            )

    def check_support(self, physical: Function, support: VfSupport) -> None:
        """The library comes with GIM."""
        if support.missing is not None:
            raise VfVendorToolError(
                f"the number of virtual functions of {physical.address} is AMD's driver's own",
                cause=support.missing,
                why="AMD's host library, through which it is changed, cannot be used here",
                hint="install libamdsmi.so with GIM; or echo options gim vf_num=N"
                " >/etc/modprobe.d/gim.conf, then load gim anew",
            )

    def check_none(self, physical: Function) -> None:
        """GIM keeps one."""
        raise VfUnsupportedError(
            f"cannot remove all virtual functions of {physical.address}",
            why="AMD's GIM driver keeps at least one while it has the GPU",
            hint="take the GPU out of gim's parameter enabled_devices and load gim anew, or unload it",
        )

    def enable(self, host: SrIovHost, physical: PciAddress, count: int) -> None:
        """Has the library change their number."""
        host.open_once(AmdSmi).set_vf_count(physical, count)
        check_made(host, physical, count)

    def check_quotas(self, host: SrIovHost, physical: PciAddress, values: Sequence[Quota]) -> None:
        """There are none."""
        if values and host.read_function(physical).driver == _GIM:
            raise VfQuotaError(
                f"virtual functions of {physical} have no quotas",
                why="AMD's driver gives each the same part of the memory",
                hint=f"vgpumgr vf enable {physical} --count N",
            )


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
