"""Virtual functions that a boot took, with the vGPUs that are to come back on them."""

from __future__ import annotations

from vgpumgr.daemon.parts import Parts
from vgpumgr.errors import VgpumgrError
from vgpumgr.model.pci import PciAddress


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
