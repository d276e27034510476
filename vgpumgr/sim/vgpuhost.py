# SPDX-License-Identifier: Apache-2.0
"""What both vGPU frameworks of a simulated machine share: which function is which parent, and what a VM holds."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from vgpumgr.sim.machine_model import Gpu, Machine
from vgpumgr.sim.pcibus import Address, PciBus, State, refuse
from vgpumgr.sim.vgpu_model import VgpuType
from vgpumgr.sim.vgpus import Vgpu, VgpuState

_PARAMS = frozenset(
    {
        "disable_vnc",
        "ecc_supported",
        "enable_debugging",
        "enable_profiling",
        "enable_uvm",
        "frame_rate_limiter",
        "cuda_mps",
    }
)
"""Plugin parameters of NVIDIA's vGPU user guide that are known here; others are refused."""


@dataclass(frozen=True, slots=True)
class Parent:
    """A place where vGPUs can be made: a VF, or a GPU without SR-IOV."""

    gpu: Gpu
    vf: int | None
    address: Address

    @property
    def types(self) -> tuple[VgpuType, ...]:
        """The types that the GPU knows, whether one can be made now or not."""
        return self.gpu.family.types if self.gpu.family else ()


class VgpuHost:
    """The vGPUs of a machine, as its PCI functions see them."""

    def __init__(self, machine: Machine, bus: PciBus, state: VgpuState) -> None:
        self.bus = bus
        self.state = state
        self._gpus = {Address.parse(gpu.place.address): gpu for gpu in machine.gpus if gpu.family}
        self._known: tuple[int, list[Vgpu]] = (-1, [])
        bus.before_vfs.append(self._before_vfs)
        bus.users.append(self._remove_with_parent)

    def generation(self) -> int:
        """Rises when vGPUs come or go."""
        return self.state.changes()

    def parents(self) -> list[Parent]:
        """All places for vGPUs that are there now: VFs and GPUs that NVIDIA's driver has."""
        found = (self.parent(state) for state in self.bus.states.values())
        return [parent for parent in found if parent is not None]

    def parent(self, state: State) -> Parent | None:
        """The function as a place for vGPUs, if it is one now."""
        function = state.function
        if state.driver != "nvidia":
            return None
        pf = function.physfn or function.address
        gpu = self._gpus.get(pf)
        if gpu is None or gpu.family is None or gpu.family.table.sriov != bool(function.physfn):
            return None
        return Parent(gpu, self._vf_index(pf, function.address), function.address)

    def _vf_index(self, pf: Address, address: Address) -> int | None:
        if pf == address:
            return None
        state = self.bus.state(pf)
        places = range(state.numvfs)
        return next(i for i in places if self.bus.vf_address(state.function, i) == address)

    def _before_vfs(self, address: Address, count: int) -> None:
        gpu = self._gpus.get(address)
        if gpu is not None and gpu.family is not None and gpu.family.table.sriov:
            self.state.set_vfs(gpu.index, count)

    def sriov_gpus(self) -> list[Address]:
        """The GPUs whose vGPUs live on VFs."""
        gpus = self._gpus.items()
        return [address for address, gpu in gpus if gpu.family and gpu.family.table.sriov]

    def vf_address(self, vgpu: Vgpu) -> str | None:
        """The VF that the vGPU is on."""
        if vgpu.vf is None:
            return None
        pf = next(address for address, gpu in self._gpus.items() if gpu.index == vgpu.gpu)
        state = self.bus.states.get(pf)
        return str(self.bus.vf_address(state.function, vgpu.vf)) if state else None

    def _remove_with_parent(self, state: State) -> Callable[[], bool]:
        """A parent that loses its driver loses its vGPUs; those that VMs hold keep it waiting."""
        parent = self.parent(state)
        for vgpu in self.vgpus(parent) if parent else ():
            self.state.remove(vgpu.id)
        place = (parent.gpu.index, parent.vf) if parent else None
        return lambda: any((v.gpu, v.vf) == place for v in self.all_vgpus())

    def all_vgpus(self) -> list[Vgpu]:
        """All vGPUs, ghosts included, read again only when one has changed."""
        version = self.state.changes()
        if version != self._known[0]:
            self._known = (version, self.state.list())
        return self._known[1]

    def vgpus(self, parent: Parent) -> list[Vgpu]:
        """The vGPUs of a parent; ghosts, which have left the file system, are not among them."""
        return [
            vgpu
            for vgpu in self.all_vgpus()
            if vgpu.gpu == parent.gpu.index and vgpu.vf == parent.vf and not vgpu.removed
        ]

    def type_of(self, vgpu: Vgpu, parent: Parent) -> VgpuType:
        """A vGPU's type; indexes of the machine's state count the types of its families one after the other."""
        return parent.types[vgpu.type - self._first_index(parent.gpu)]

    def _first_index(self, gpu: Gpu) -> int:
        assert gpu.family is not None
        families = {g.family.number: g.family for g in self._gpus.values() if g.family}
        return sum(len(f.types) for n, f in families.items() if n < gpu.family.number)

    def set_params(self, vgpu: Vgpu, data: bytes) -> None:
        """``vgpu_params``: comma-separated ``name=value``. EINVAL: not that. EPERM: a VM uses the vGPU already."""
        text = data.decode(errors="replace").strip()
        pairs = [pair.strip().partition("=") for pair in text.split(",")] if text else []
        if any(name not in _PARAMS or not value for name, _, value in pairs):
            raise refuse(errno.EINVAL)
        try:
            self.state.set_params(vgpu.id, text)
        except OSError as err:
            raise refuse(errno.EPERM if err.errno == errno.EBUSY else errno.EINVAL) from None
