"""The files of both vGPU frameworks, as the helper process touches them.

Facts go out as they stand in the files; what they mean is for ``mdev``. Reading
``available_instances`` or ``creatable_vgpu_types`` asks the vendor's driver, which may take a lock:
no other process of ours does that.

All free virtual functions of one GPU offer the same, so only one of them is read in full: a host with
500 functions and 60 types each has 30,000 directories of types. A function whose vGPU was removed while
a process has it open looks free and offers nothing, so one that offers nothing is not believed alone.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vgpumgr.host.helper_server import HelperFaultError

_MDEV_PARENTS = "sys/class/mdev_bus"
_MDEV_DEVICES = "sys/bus/mdev/devices"
_PCI_DEVICES = "sys/bus/pci/devices"
_TYPES = "mdev_supported_types"
#: functions of a GPU that are asked as long as each offers nothing: where it is full, all do
_MOST_SILENT = 8
#: what ends in the answer "there is no such thing"
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})
#: attributes of vendor-VFIO functions that are ours to read back
_VENDOR = "nvidia"


class VgpuFiles:
    """Methods are calls of the helper protocol: plain values in and out.

    A refused system call raises HelperFaultError of kind ``os`` with errno and path.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_host(self) -> dict[str, Any]:
        """Parents, grouped by the GPU that they are functions of, and devices."""
        vendor = dict(self._read_functions())
        mdevs = list(self._list_mdevs())
        taken = {row["parent"] for row in mdevs} | {
            n for n, type_ in vendor.items() if type_ != "0"
        }
        functions = (self.find_function(name) for name, type_ in vendor.items() if type_ != "0")
        names = [(name, "mdev") for name in _list(self._root / _MDEV_PARENTS)]
        names += [(name, "vendor-vfio") for name in vendor]
        return {
            "parents": list(self._list_parents(names, taken)),
            "devices": [*mdevs, *(row for row in functions if row is not None)],
        }

    def read_parent(self, name: str, framework: str) -> dict[str, Any] | None:
        """One parent with what it offers now; None if it is gone."""
        directory = self._parent_dir(name, framework)
        if not (directory / (_TYPES if framework == "mdev" else _VENDOR)).is_dir():
            return None
        return self._describe_parent(name, framework, directory)

    def find_mdev(self, uuid: str) -> dict[str, Any] | None:
        """One mediated device; None if the bus does not have it (any more)."""
        return self._describe_mdev(self._root / _MDEV_DEVICES / uuid)

    def find_function(self, name: str) -> dict[str, Any] | None:
        """The vGPU of a vendor-VFIO function; None if it has none."""
        return self._describe_function(self._root / _PCI_DEVICES / name)

    def create_mdev(self, parent: str, type_id: str, uuid: str) -> None:
        """Writes the UUID to ``create``."""
        self._write(self._root / _MDEV_PARENTS / parent / _TYPES / type_id / "create", uuid)

    def remove_mdev(self, uuid: str) -> None:
        """Writes 1 to ``remove``: blocks as long as the device is open."""
        self._write(self._root / _MDEV_DEVICES / uuid / "remove", "1")

    def set_type(self, name: str, type_id: str) -> None:
        """Writes ``current_vgpu_type`` of a function; 0 takes its vGPU away."""
        self._write(self._root / _PCI_DEVICES / name / _VENDOR / "current_vgpu_type", type_id)

    def write_attribute(self, device: str, framework: str, name: str, value: str) -> None:
        """Writes an attribute of a device, by a path below its directory."""
        self._write(self._device_dir(device, framework) / name, value)

    def read_attribute(self, device: str, framework: str, name: str) -> str | None:
        """Reads one; None where it cannot be read."""
        try:
            return _read(self._device_dir(device, framework) / name)
        except HelperFaultError:
            return None  # write-only ones are common

    def _parent_dir(self, name: str, framework: str) -> Path:
        return self._root / (_MDEV_PARENTS if framework == "mdev" else _PCI_DEVICES) / name

    def _device_dir(self, device: str, framework: str) -> Path:
        return self._root / (_MDEV_DEVICES if framework == "mdev" else _PCI_DEVICES) / device

    def _list_parents(
        self, names: list[tuple[str, str]], taken: set[str]
    ) -> Iterator[dict[str, Any]]:
        """What functions of one GPU share is read from one of them: the first that offers something.

        Types None: not asked. Those that were asked before it say for themselves what they offer.
        """
        shared: dict[tuple[str, str], dict[str, Any]] = {}
        asked: Counter[tuple[str, str]] = Counter()
        for name, framework in names:
            directory = self._parent_dir(name, framework)
            physical = _link_name(directory / "physfn")
            group = (framework, physical or name)
            # a function in use offers nothing; a GPU of its own always counts for itself
            wanted = physical is None or (name not in taken and asked[group] < _MOST_SILENT)
            if group not in shared:
                shared[group] = _read_shared(directory)
            types: list[dict[str, Any]] | None = None
            if wanted:
                known_silent = asked[group] > 0 and not _offers_some(framework, directory)
                types = [] if known_silent else self._list_offers(framework, directory)
                offers = any(row["available"] != "0" for row in types)
                asked[group] += _MOST_SILENT if offers else 1
            head = {"name": name, "framework": framework, "physical": physical}
            yield {**head, **shared[group], "types": types}

    def _list_offers(self, framework: str, directory: Path) -> list[dict[str, Any]]:
        return _list_types(directory) if framework == "mdev" else _list_creatable(directory)

    def _describe_parent(self, name: str, framework: str, directory: Path) -> dict[str, Any]:
        return {
            "name": name,
            "framework": framework,
            "physical": _link_name(directory / "physfn"),
            **_read_shared(directory),
            "types": self._list_offers(framework, directory),
        }

    def _read_functions(self) -> Iterator[tuple[str, str]]:
        """Functions that take a vGPU type, with the type that they have."""
        for name in _list(self._root / _PCI_DEVICES):
            type_ = _read(self._root / _PCI_DEVICES / name / _VENDOR / "current_vgpu_type")
            if type_ is not None:
                yield name, type_ or "0"

    def _list_mdevs(self) -> Iterator[dict[str, Any]]:
        for uuid in _list(self._root / _MDEV_DEVICES):
            found = self._describe_mdev(self._root / _MDEV_DEVICES / uuid)
            if found is not None:
                yield found

    def _describe_mdev(self, directory: Path) -> dict[str, Any] | None:
        type_id = _link_name(directory / "mdev_type")
        if type_id is None:
            return None
        type_dir = directory / "mdev_type"
        return {
            "framework": "mdev",
            "uuid": directory.name,
            "parent": Path(os.path.realpath(directory)).parent.name,
            "type": type_id,
            "type_name": _read(type_dir / "name"),
            **_describe_common(directory),
        }

    def _describe_function(self, directory: Path) -> dict[str, Any] | None:
        type_id = _read(directory / _VENDOR / "current_vgpu_type")
        if type_id in (None, "", "0"):
            return None
        return {
            "framework": "vendor-vfio",
            "uuid": None,
            "parent": directory.name,
            "type": type_id,
            "type_name": None,
            **_describe_common(directory),
        }

    def _write(self, path: Path, text: str) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                # one write: the kernel takes it as a whole or not at all
                os.write(descriptor, f"{text}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _fault(error, path) from error


def _read_shared(directory: Path) -> dict[str, Any]:
    """The same for all functions of a GPU."""
    return {
        "vendor": _read(directory / "vendor"),
        "numa_node": _read(directory / "numa_node"),
        "driver": _link_name(directory / "driver"),
    }


def may_have_vgpus(root: Path) -> bool:
    """Whether a mediated device exists, or a virtual function that takes a vGPU type."""
    functions = root / _PCI_DEVICES
    try:
        return bool(_list(root / _MDEV_DEVICES)) or any(
            (functions / name / _VENDOR / "current_vgpu_type").exists() for name in _list(functions)
        )
    except (HelperFaultError, OSError):
        return True


def _offers_some(framework: str, directory: Path) -> bool:
    """Whether there is anything to read in full."""
    if framework != "mdev":
        return bool(_list_creatable(directory))
    types = directory / _TYPES
    return any(
        _read(types / id_ / "available_instances") not in (None, "0") for id_ in _list(types)
    )


def _list_types(directory: Path) -> list[dict[str, Any]]:
    types = directory / _TYPES
    found = []
    for id_ in _list(types):
        available = _read(types / id_ / "available_instances")
        if available is None:
            continue  # it went while we looked
        names = ("name", "description", "device_api")
        more = {name: _read(types / id_ / name) for name in names}
        found.append({"id": id_, "available": available, **more})
    return found


def _list_creatable(directory: Path) -> list[dict[str, Any]]:
    """``<id> : <name>`` lines; a header or a blank line may stand before them."""
    found: list[dict[str, Any]] = []
    for line in (_read(directory / _VENDOR / "creatable_vgpu_types") or "").splitlines():
        id_, colon, name = (part.strip() for part in line.partition(":"))
        if colon and id_.isdigit():
            row = {"id": id_, "available": "1", "name": name, "description": None}
            found.append({**row, "device_api": "vfio-pci"})
    return found


def _describe_common(directory: Path) -> dict[str, Any]:
    group = _link_name(directory / "iommu_group")
    params = _try_read(directory / _VENDOR / "vgpu_params")
    return {
        "iommu_group": int(group) if group and group.isdigit() else None,
        "driver": _link_name(directory / "driver"),
        "params": params,
        "vm_name": _try_read(directory / _VENDOR / "vm_name"),
        "placement": _number(_try_read(directory / _VENDOR / "placement_id")),
        "gpu_instance": _number(_try_read(directory / _VENDOR / "gpu_instance_id")),
    }


def _list(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(directory))
    except OSError as error:
        if error.errno in _ABSENT:
            return []
        raise _fault(error, directory) from error


def _read(path: Path) -> str | None:
    """The attribute without its last newline; None if there is none (any more)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _fault(error, path) from error


def _try_read(path: Path) -> str | None:
    try:
        return _read(path)
    except HelperFaultError:
        return None


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError as error:
        if error.errno in _ABSENT or error.errno == errno.EINVAL:
            return None
        raise _fault(error, path) from error


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def _fault(error: OSError, path: Path) -> HelperFaultError:
    return HelperFaultError("os", {"errno": error.errno or 0, "path": str(path)})
