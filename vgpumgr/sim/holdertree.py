# SPDX-License-Identifier: Apache-2.0
"""Who holds a function of a simulated machine, as ``/proc`` shows it: a QEMU with ``/dev/vfio/GROUP`` open.

While a hot-unplug waits for a holder, the kernel's thread that removes the function waits where a real one does.
"""

from __future__ import annotations

from vgpumgr.sim.pcibus import PciBus, State
from vgpumgr.sim.tree import Directory, File, Link, constant

#: above pid_max of any host, so that no real process has these numbers
_FIRST_PID = 5_000_000
_REMOVER = 4_999_999


class HolderTree:
    """Processes of the simulated machine that matter to its PCI functions."""

    def __init__(self, bus: PciBus) -> None:
        self._bus = bus

    def generation(self) -> int:
        """Rises with every change of the bus."""
        return self._bus.generation * 2 + bool(self._bus.stalled)

    def add(self, root: Directory) -> None:
        """A process for each function that a VM holds, one for a removal that waits."""
        held = [state for state in self._bus.states.values() if state.holder]
        for number, state in enumerate(held):
            self._add_holder(root, f"proc/{_FIRST_PID + number}", state)
        if self._bus.stalled:
            root.add(f"proc/{_REMOVER}/comm", constant("irq/24-pciehp"))
            root.add(f"proc/{_REMOVER}/wchan", constant("vfio_unregister_group_dev"))

    def _add_holder(self, root: Directory, path: str, state: State) -> None:
        words = ["qemu-system-x86_64", "-name", f"guest={state.holder},debug-threads=on", ""]
        command = "\0".join(words).encode()
        root.add(f"{path}/comm", constant("qemu-system-x86"))
        root.add(f"{path}/cmdline", File(lambda: command))
        root.add(f"{path}/fd/30", Link(f"/dev/vfio/{state.function.iommu_group}"))

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """Nothing: what it adds belongs to no function."""
