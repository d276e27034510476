"""vGPUs in the simulated ``/sys``: which function is which parent, what a VM holds, and both frameworks of NVIDIA's.

Mediated devices (``Documentation/driver-api/vfio-mediated-device.rst``), as the vGPU manager before kernel 6.8 makes
them: each device of a type, on a VF or, without SR-IOV, on the GPU. Error numbers of ``create``: EINVAL no UUID, EEXIST
the UUID is in use (also by a ghost), ENOSPC no more of them here, EIO does not fit beside the GPU's other vGPUs. A
``remove`` while a VM holds the device sleeps until the VM closes it; the device has left the file system by then, its
capacity comes back only afterwards.

The vendor-specific VFIO framework of kernel 6.8 and later: a VF stays with NVIDIA's driver, which is its VFIO provider.
In ``nvidia/`` below the VF a type's number written to ``current_vgpu_type`` makes the vGPU, 0 removes it. EPERM: the VF
has a type already, or a VM holds it. EIO: does not fit beside the GPU's other vGPUs. EINVAL: no such type. ENXIO: needs
a vGPU. What real drivers answer in the rarer cases is not documented; these are the answers of their kin.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from vgpumgr.model.frozen import dataclass
from vgpumgr.sim.machine_model import Gpu, Machine
from vgpumgr.sim.pcibus import VFIO_WAIT, Address, Asleep, PciBus, State, refuse
from vgpumgr.sim.tree import (
    Directory,
    File,
    Node,
    Part,
    constant,
    device_path,
    link_from,
    parse_int,
    text,
)
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

    def files(self, now: Callable[[], Vgpu]) -> dict[str, Node]:
        """What both frameworks have in ``nvidia/`` of a vGPU; ``now`` gives it, or refuses."""
        return {
            "placement_id": File(
                text(lambda: now().placement), lambda data: self._place(now(), parse_int(data))
            ),
            "vgpu_params": File(
                text(lambda: now().params), lambda data: self._set_params(now(), data)
            ),
            "vm_name": File(text(lambda: now().vm)),
        }

    def _place(self, vgpu: Vgpu, placement: int) -> None:
        if placement < 0:
            raise refuse(errno.EINVAL)
        self.state.set_placement(vgpu.id, placement)

    def _set_params(self, vgpu: Vgpu, data: bytes) -> None:
        """``vgpu_params``: comma-separated ``name=value``. EINVAL: not that. EPERM: a VM uses the vGPU already."""
        text = data.decode(errors="replace").strip()
        pairs = [pair.strip().partition("=") for pair in text.split(",")] if text else []
        if any(name not in _PARAMS or not value for name, _, value in pairs):
            raise refuse(errno.EINVAL)
        try:
            self.state.set_params(vgpu.id, text)
        except OSError as err:
            raise refuse(errno.EPERM if err.errno == errno.EBUSY else errno.EINVAL) from None


_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\n?")
_FIRST_GROUP = 1000
_DEVICES = "sys/bus/mdev/devices"
_DRIVER = "sys/bus/mdev/drivers/vfio_mdev"
_GROUPS = "sys/kernel/iommu_groups"


class MdevTree(Part):
    """The part of a machine's files that mediated devices make."""

    def __init__(self, host: VgpuHost) -> None:
        self._host = host

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
        """Filled at the first access: a large host has 30,000 of them."""

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
            "nvidia": Directory(lambda d: d.own.update(self._host.files(lambda: self._now(vgpu)))),
        }

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


_NO_INSTANCE = 0xFFFFFFFF  # INVALID_GPU_INSTANCE_ID of nvml.h: time-sliced


class VendorTree(Part):
    """The part of a machine's files that this framework makes."""

    def __init__(self, host: VgpuHost) -> None:
        self._host = host

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
        }
        files |= self._host.files(lambda: self._need(parent))
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
            full = err.errno in (errno.ENOSPC, errno.EIO)
            raise refuse(errno.EIO if full else err.errno or 0) from None

    def _instance_id(self, vgpu: Vgpu) -> int:
        return _NO_INSTANCE if vgpu.gi_id is None else vgpu.gi_id
