# SPDX-License-Identifier: Apache-2.0
"""Mediated devices in the simulated ``/sys`` (``Documentation/driver-api/vfio-mediated-device.rst``), as NVIDIA's vGPU
manager before kernel 6.8 makes them: each device of a type, on a VF or, without SR-IOV, on the GPU.

Error numbers of ``create``: EINVAL no UUID, EEXIST the UUID is in use (also by a ghost), ENOSPC no more of them here,
EIO does not fit beside the GPU's other vGPUs. A ``remove`` while a VM holds the device sleeps until it lets go; the
device has left the file system by then, its capacity comes back only afterwards.
"""

from __future__ import annotations

import errno
import re

from vgpumgr.sim.pcibus import VFIO_WAIT, Asleep, State, refuse
from vgpumgr.sim.tree import Directory, File, Node, constant, device_path, parse_int, text
from vgpumgr.sim.vgpu_model import VgpuType
from vgpumgr.sim.vgpuhost import Parent, VgpuHost
from vgpumgr.sim.vgpus import Vgpu

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\n?")
_FIRST_GROUP = 1000
_DRIVER = "sys/bus/mdev/drivers/vfio_mdev"


class MdevTree:
    """The part of a machine's files that mediated devices make."""

    def __init__(self, host: VgpuHost) -> None:
        self._host = host

    def generation(self) -> int:
        """Rises when devices come or go."""
        return self._host.generation()

    def add(self, root: Directory) -> None:
        """The classes and the bus; a device of its own below its parent."""
        root.make("sys/class/mdev_bus")
        root.make("sys/bus/mdev/devices")
        root.make(_DRIVER)
        for parent in self._host.parents():
            path = device_path(parent.address)
            root.link(f"sys/class/mdev_bus/{parent.address}", path)
        for vgpu, parent in self._devices():
            path = f"{device_path(parent.address)}/{vgpu.uuid}"
            root.link(f"sys/bus/mdev/devices/{vgpu.uuid}", path)
            root.link(f"{_DRIVER}/{vgpu.uuid}", path)
            group = group_of(vgpu)
            root.link(f"sys/kernel/iommu_groups/{group}/devices/{vgpu.uuid}", path)

    def _devices(self) -> list[tuple[Vgpu, Parent]]:
        parents = {(p.gpu.index, p.vf): p for p in self._host.parents()}
        return [
            (vgpu, parents[vgpu.gpu, vgpu.vf])
            for vgpu in self._host.state.list()
            if not vgpu.removed and (vgpu.gpu, vgpu.vf) in parents
        ]

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """A parent's types and devices."""
        parent = self._host.parent(state)
        if parent is None:
            return
        for kind in parent.types:
            self._add_type(root, f"{path}/mdev_supported_types/nvidia-{kind.id}", parent, kind)
        for vgpu in self._host.vgpus(parent):
            self._add_device(root, path, parent, vgpu)

    def _add_type(self, root: Directory, path: str, parent: Parent, kind: VgpuType) -> None:
        available = text(lambda: self._host.state.available(parent.gpu.index, parent.vf, kind.id))
        files: dict[str, Node] = {
            "name": constant(kind.name),
            "description": constant(kind.description),
            "device_api": constant("vfio-pci"),
            "available_instances": File(available),
            "create": File(None, lambda data: self._create(parent, kind, data)),
        }
        root.make(path).entries.update(files)
        root.make(f"{path}/devices")

    def _create(self, parent: Parent, kind: VgpuType, data: bytes) -> None:
        uuid = data.decode("ascii", "replace")
        if not _UUID.fullmatch(uuid):
            raise refuse(errno.EINVAL)
        try:
            self._host.state.create(parent.gpu.index, parent.vf, kind.id, uuid.strip().lower())
        except OSError as err:
            raise refuse(errno.ENOSPC if err.errno == errno.EBUSY else err.errno or 0) from None

    def _add_device(self, root: Directory, parent_path: str, parent: Parent, vgpu: Vgpu) -> None:
        path = f"{parent_path}/{vgpu.uuid}"
        kind = f"{parent_path}/mdev_supported_types/nvidia-{self._host.type_of(vgpu, parent).id}"
        root.link(f"{path}/mdev_type", kind)
        root.link(f"{kind}/devices/{vgpu.uuid}", path)
        root.link(f"{path}/driver", _DRIVER)
        root.link(f"{path}/subsystem", "sys/bus/mdev")
        root.link(f"{path}/iommu_group", f"sys/kernel/iommu_groups/{group_of(vgpu)}")
        root.add(f"{path}/uevent", constant("DRIVER=vfio_mdev\nMODALIAS=mdev:c4dbb8fe"))
        root.add(f"{path}/remove", File(None, lambda data: self._remove(vgpu, data)))
        files: dict[str, Node] = {
            "vgpu_params": File(
                text(lambda: self._now(vgpu).params),
                lambda data: self._host.set_params(vgpu, data),
            ),
            "vm_name": File(text(lambda: self._now(vgpu).vm)),
            "placement_id": File(
                text(lambda: self._now(vgpu).placement),
                lambda data: self._host.state.set_placement(vgpu.id, parse_int(data)),
            ),
        }
        root.make(f"{path}/nvidia").entries.update(files)

    def _now(self, vgpu: Vgpu) -> Vgpu:
        now = self._host.state.get(vgpu.id)
        if now is None:
            raise refuse(errno.ENODEV)
        return now

    def _remove(self, vgpu: Vgpu, data: bytes) -> None:
        if not parse_int(data):
            return
        if not self._host.state.remove(vgpu.id):
            gone = self._host.state
            raise Asleep(lambda: gone.get(vgpu.id) is None, lambda: None, where=VFIO_WAIT)


def group_of(vgpu: Vgpu) -> int:
    """The IOMMU group that a mediated device stands in, alone."""
    return _FIRST_GROUP + vgpu.id
