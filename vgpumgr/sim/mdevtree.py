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
from collections.abc import Callable

from vgpumgr.sim.pcibus import VFIO_WAIT, Asleep, State, refuse
from vgpumgr.sim.tree import (
    Directory,
    File,
    Node,
    constant,
    device_path,
    link_from,
    parse_int,
    text,
)
from vgpumgr.sim.vgpu_model import VgpuType
from vgpumgr.sim.vgpuhost import Parent, VgpuHost
from vgpumgr.sim.vgpus import Vgpu

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\n?")
_FIRST_GROUP = 1000
_DEVICES = "sys/bus/mdev/devices"
_DRIVER = "sys/bus/mdev/drivers/vfio_mdev"
_GROUPS = "sys/kernel/iommu_groups"


class MdevTree:
    """The part of a machine's files that mediated devices make."""

    def __init__(self, host: VgpuHost) -> None:
        self._host = host

    def generation(self) -> int:
        """Never changes: devices come and go in overlays."""
        return 0

    def add(self, root: Directory) -> None:
        """The class and the bus; the devices themselves stand below their parents."""
        root.make("sys/class/mdev_bus")
        for parent in self._host.parents():
            path = device_path(parent.address)
            root.link(f"sys/class/mdev_bus/{parent.address}", path)
        for bus in (_DEVICES, _DRIVER):
            self._overlay(root.make(bus), self._linking(bus))
        self._overlay(root.make(_GROUPS), self._groups)

    def _overlay(self, directory: Directory, nodes: Callable[[], dict[str, Node]]) -> None:
        directory.overlay(self._host.generation, nodes)

    def _linking(self, base: str) -> Callable[[], dict[str, Node]]:
        return lambda: {
            vgpu.uuid: link_from(f"{base}/{vgpu.uuid}", path) for vgpu, path in self._devices()
        }

    def _groups(self) -> dict[str, Node]:
        groups: dict[str, Node] = {}
        for vgpu, path in self._devices():
            base = f"{_GROUPS}/{group_of(vgpu)}"
            group = groups[str(group_of(vgpu))] = Directory()
            link = link_from(f"{base}/devices/{vgpu.uuid}", path)
            group.make("devices").own[vgpu.uuid] = link
            group.own["type"] = constant("DMA")
        return groups

    def _devices(self) -> list[tuple[Vgpu, str]]:
        """All devices with the paths that they stand at."""
        parents = {(p.gpu.index, p.vf): device_path(p.address) for p in self._host.parents()}
        return [
            (vgpu, f"{parents[vgpu.gpu, vgpu.vf]}/{vgpu.uuid}")
            for vgpu in self._host.all_vgpus()
            if not vgpu.removed and (vgpu.gpu, vgpu.vf) in parents
        ]

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """A parent's types and devices."""
        parent = self._host.parent(state)
        if parent is None:
            return
        types = root.make(f"{path}/mdev_supported_types").own
        for kind in parent.types:
            types[f"nvidia-{kind.id}"] = self._type_directory(path, parent, kind)

        def devices() -> dict[str, Node]:
            vgpus = self._host.vgpus(parent)
            return {v.uuid: self._device_directory(path, parent, v) for v in vgpus}

        self._overlay(root.make(path), devices)

    def _type_directory(self, path: str, parent: Parent, kind: VgpuType) -> Directory:
        """Filled when somebody looks: a large host has 30,000 of them."""

        def fill(directory: Directory) -> None:
            directory.own.update(self._type_files(parent, kind))
            self._overlay(directory.make("devices"), devices)

        def devices() -> dict[str, Node]:
            here = f"{path}/mdev_supported_types/nvidia-{kind.id}/devices"
            of_kind = [v for v in self._host.vgpus(parent) if self._host.type_of(v, parent) is kind]
            return {v.uuid: link_from(f"{here}/{v.uuid}", f"{path}/{v.uuid}") for v in of_kind}

        return Directory(fill)

    def _type_files(self, parent: Parent, kind: VgpuType) -> dict[str, Node]:
        state, gpu = self._host.state, parent.gpu.index
        return {
            "name": constant(kind.name),
            "description": constant(kind.description),
            "device_api": constant("vfio-pci"),
            "available_instances": File(text(lambda: state.available(gpu, parent.vf, kind.id))),
            "create": File(None, lambda data: self._create(parent, kind, data)),
        }

    def _create(self, parent: Parent, kind: VgpuType, data: bytes) -> None:
        uuid = data.decode("ascii", "replace")
        if not _UUID.fullmatch(uuid):
            raise refuse(errno.EINVAL)
        try:
            self._host.state.create(parent.gpu.index, parent.vf, kind.id, uuid.strip().lower())
        except OSError as err:
            raise refuse(errno.ENOSPC if err.errno == errno.EBUSY else err.errno or 0) from None

    def _device_directory(self, parent_path: str, parent: Parent, vgpu: Vgpu) -> Directory:
        return Directory(lambda d: d.own.update(self._device_files(parent_path, parent, vgpu)))

    def _device_files(self, parent_path: str, parent: Parent, vgpu: Vgpu) -> dict[str, Node]:
        path = f"{parent_path}/{vgpu.uuid}"
        kind = f"{parent_path}/mdev_supported_types/nvidia-{self._host.type_of(vgpu, parent).id}"
        links = {
            "mdev_type": kind,
            "driver": _DRIVER,
            "subsystem": "sys/bus/mdev",
            "iommu_group": f"{_GROUPS}/{group_of(vgpu)}",
        }
        nodes: dict[str, Node] = {n: link_from(f"{path}/{n}", to) for n, to in links.items()}
        return nodes | {
            "uevent": constant("DRIVER=vfio_mdev\nMODALIAS=mdev:c4dbb8fe"),
            "remove": File(None, lambda data: self._remove(vgpu, data)),
            "nvidia": self._vendor_directory(vgpu),
        }

    def _vendor_directory(self, vgpu: Vgpu) -> Directory:
        directory = Directory()
        directory.own["vgpu_params"] = File(
            text(lambda: self._now(vgpu).params), lambda data: self._host.set_params(vgpu, data)
        )
        directory.own["vm_name"] = File(text(lambda: self._now(vgpu).vm))
        directory.own["placement_id"] = File(
            text(lambda: self._now(vgpu).placement),
            lambda data: self._host.state.set_placement(vgpu.id, parse_int(data)),
        )
        return directory

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
