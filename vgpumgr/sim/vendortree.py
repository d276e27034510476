# SPDX-License-Identifier: Apache-2.0
"""vGPUs without mediated devices: NVIDIA's vendor-specific VFIO framework of kernel 6.8 and later, in ``/sys``.

A VF stays with NVIDIA's driver, which is its VFIO provider. In ``nvidia/`` below the VF a type's number written to
``current_vgpu_type`` makes the vGPU, 0 removes it. EPERM: the VF has a type already, or a VM holds it. EIO: does not
fit beside the GPU's other vGPUs. EINVAL: no such type. ENXIO: needs a vGPU. What real drivers answer in the rarer cases
is not documented; these are the answers of their kin.
"""

from __future__ import annotations

import errno

from vgpumgr.sim.pcibus import State, refuse
from vgpumgr.sim.tree import Directory, File, Node, parse_int, text
from vgpumgr.sim.vgpuhost import Parent, VgpuHost
from vgpumgr.sim.vgpus import Vgpu

_NO_INSTANCE = 0xFFFFFFFF  # INVALID_GPU_INSTANCE_ID of nvml.h: time-sliced


class VendorTree:
    """The part of a machine's files that this framework makes."""

    def __init__(self, host: VgpuHost) -> None:
        self._host = host

    def generation(self) -> int:
        """Never changes: what there is of a VF is read when it is read."""
        return 0

    def add(self, root: Directory) -> None:
        """Nothing: all of it is below the VFs."""

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """A VF's ``nvidia``."""
        parent = self._host.parent(state)
        if parent is None:
            return
        files: dict[str, Node] = {
            "creatable_vgpu_types": File(lambda: self._creatable(parent)),
            "current_vgpu_type": File(
                text(lambda: self._current(parent)), lambda data: self._set(parent, parse_int(data))
            ),
            "gpu_instance_id": File(text(lambda: self._instance_id(self._need(parent)))),
            "placement_id": File(
                text(lambda: self._need(parent).placement),
                lambda data: self._place(self._need(parent), parse_int(data)),
            ),
            "vgpu_params": File(
                text(lambda: self._need(parent).params),
                lambda data: self._host.set_params(self._need(parent), data),
            ),
            "vm_name": File(text(lambda: self._need(parent).vm)),
        }
        root.make(f"{path}/nvidia").own.update(files)

    def _vgpu(self, parent: Parent) -> Vgpu | None:
        return next(iter(self._host.vgpus(parent)), None)

    def _need(self, parent: Parent) -> Vgpu:
        vgpu = self._vgpu(parent)
        if vgpu is None:
            raise refuse(errno.ENXIO)
        return vgpu

    def _creatable(self, parent: Parent) -> bytes:
        """One ``<id> : <name>`` line for each type that can be made here now, below a heading."""
        state, gpu = self._host.state, parent.gpu.index
        rows = [t for t in parent.types if state.available(gpu, parent.vf, t.id)]
        lines = ["ID    : vGPU Name", *(f"{kind.id:<5} : {kind.name}" for kind in rows)]
        return ("\n".join(lines) + "\n").encode()

    def _current(self, parent: Parent) -> int:
        vgpu = self._vgpu(parent)
        return self._host.type_of(vgpu, parent).id if vgpu else 0

    def _set(self, parent: Parent, type_id: int) -> None:
        vgpu = self._vgpu(parent)
        if vgpu is not None and (type_id or vgpu.vm):
            raise refuse(errno.EPERM)
        if not type_id:
            if vgpu is not None:
                self._host.state.remove(vgpu.id)
            return
        try:
            self._host.state.create(parent.gpu.index, parent.vf, type_id)
        except OSError as err:
            no_room = err.errno in (errno.ENOSPC, errno.EIO)
            raise refuse(errno.EIO if no_room else err.errno or 0) from None

    def _instance_id(self, vgpu: Vgpu) -> int:
        return _NO_INSTANCE if vgpu.gi_id is None else vgpu.gi_id

    def _place(self, vgpu: Vgpu, placement: int) -> None:
        if placement < 0:
            raise refuse(errno.EINVAL)
        self._host.state.set_placement(vgpu.id, placement)
