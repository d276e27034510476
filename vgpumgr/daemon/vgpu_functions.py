"""Virtual functions that are not there: which command brings those that vGPUs need."""

from __future__ import annotations

from vgpumgr.daemon.parts import Parts
from vgpumgr.errors import VgpumgrError
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.values import NVIDIA


def find_enabling(parts: Parts, parent: str) -> str | None:
    """The command that makes the function at an address; None where it is there, where it comes
    back with ``restore``, or where the kernel does not say whose it would be. Raises nothing.
    """
    try:
        address = PciAddress.parse(parent)
        functions = parts.pci.list_functions()
        kept = {s.physical for s in parts.pci.list_vf_settings() if s.persist}
    except (ValueError, VgpumgrError):
        return None
    for function in functions:
        places = (function.locate_vf(index) for index in range(function.vf_total))
        if not function.vfs and function.address not in kept and address in places:
            return f"vgpumgr vf enable {function.address} --persist"
    return None


def tell_no_types(parts: Parts) -> str:
    """Why a machine offers no vGPU types now, with the command that helps if there is one. Raises
    nothing.
    """
    if (gpu := _find_sleeping(parts)) is not None:
        return f"no GPU offers vGPU types before it has virtual functions: vgpumgr vf enable {gpu} --persist"
    try:
        vendors = {f.vendor_id for f in parts.pci.list_functions() if f.is_gpu}
    except VgpumgrError:
        vendors = set()
    if vendors and NVIDIA not in vendors:
        return "the drivers of these GPUs have no vGPU types; what can be given: vgpumgr passthrough list"
    return "no GPU here offers vGPU types; it takes the vGPU driver on the host"


def _find_sleeping(parts: Parts) -> int | None:
    """The first GPU whose driver makes vGPUs on functions that are off."""
    try:
        told = [str(one.gpu) for one in parts.nvml.list_vgpus() if one.sr_iov]
        return select_gpu(parts.read_inventory().gpus, told[0]).index if told else None
    except VgpumgrError:
        return None
