"""Quotas of Intel's virtual functions: where their driver shows them in ``/sys``.

xe has ``sriov_admin/vfN/profile/`` below the function, older i915 with SR-IOV has
``drm/cardM/prelim_iov/vfN/gtK/``; virtual functions count from 1 there. Other drivers have none.
"""

from __future__ import annotations

from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import list_attributes
from vgpumgr.model.pci import PciAddress

#: in the order in which they are written: memory first, the scheduler's after it
_NAMES = (
    "vram_quota",
    "lmem_quota",
    "ggtt_quota",
    "contexts_quota",
    "doorbells_quota",
    "exec_quantum_ms",
    "preempt_timeout_us",
    "sched_priority",
)


def find_quotas(machine: Machine, physical: PciAddress, index: int) -> dict[str, str]:
    """Quotas of the virtual function ``index`` (from 0): name to its path below the function.

    Where there is one for each GT, the name of all but the first has its GT behind a dot.
    """
    number = f"vf{index + 1}"
    found = list_attributes(machine, physical, f"sriov_admin/{number}/profile")
    paths = {name: f"sriov_admin/{number}/profile/{name}" for name in _NAMES if name in found}
    for card in list_attributes(machine, physical, "drm"):
        base = f"drm/{card}/prelim_iov/{number}"
        for gt in list_attributes(machine, physical, base):
            names = list_attributes(machine, physical, f"{base}/{gt}")
            for name in _NAMES:
                if name in names:
                    key = name if gt in ("gt", "gt0") else f"{name}.{gt}"
                    paths.setdefault(key, f"{base}/{gt}/{name}")
    return paths
