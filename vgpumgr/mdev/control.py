"""A host's vGPUs, of both frameworks behind one interface, and mdevctl's definitions.

``VgpuControl`` is the interface; ``HostVgpus`` implements it on the machine's files, vGPUs through a helper process
with deadlines, definitions directly. It decides and remembers nothing: ``planning`` and ``state`` know who owns a vGPU.

A definition is ``/etc/mdevctl.d/PARENT/UUID``, JSON:
``{"mdev_type": "nvidia-222", "start": "auto", "attrs": [{"nvidia/vgpu_params": "a=1"}]}``. ``start`` is ``auto`` or
``manual``, ``attrs`` an ordered list of objects with one key and a text each. mdevctl 1.2 stops with a panic at any
value that is no text, so only such are written.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from vgpumgr.errors import (
    NotPermittedError,
    NvmlMissingError,
    NvmlNotSupportedError,
    ReadBackError,
    SysfsError,
    SysfsPermissionError,
    VgpuAttributeError,
    VgpuBusyError,
    VgpuDefinitionError,
    VgpumgrError,
    VgpuNoRoomError,
    VgpuNotSupportedError,
    VgpuParentGoneError,
    VgpuTakenError,
    VgpuTypeNotFoundError,
)
from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.files import make_directory, replace_file
from vgpumgr.host.helper import HelperFaultError, HelperOnDemand
from vgpumgr.host.holders import list_group_holders
from vgpumgr.host.machine import Machine
from vgpumgr.host.vgpu_files import may_have_vgpus
from vgpumgr.mdev.observe import NVIDIA, make_device, make_host, make_offers
from vgpumgr.model.vgpu import (
    Attributes,
    Framework,
    GpuVgpus,
    VgpuDefinition,
    VgpuDevice,
    VgpuHost,
    VgpuSpec,
    is_uuid,
)
from vgpumgr.nvml.protocol import Nvml


class VgpuControl(Protocol):
    """One machine's vGPUs. Every method looks afresh, in a helper process with a deadline, and may
    raise HelperLateError, HelperDiedError, SysfsError and SysfsPermissionError besides what it names.
    """

    def read_host(self) -> VgpuHost:
        """All parents with their types, and all vGPUs, ours and others'."""

    def may_have_devices(self) -> bool:
        """Whether there may be a vGPU, ours or another program's; without a helper process, which
        ``read_host`` needs to find out.
        """

    def find_device(self, spec: VgpuSpec) -> VgpuDevice | None:
        """The vGPU at the spec's UUID or function, whatever type it is; None if there is none."""

    def create(self, spec: VgpuSpec) -> VgpuDevice:
        """Creates it, sets its attributes in order, reads type and attributes back.

        A vGPU of that UUID, parent and type that is there already is completed. With vendor-VFIO the
        function must be free.

        Raises:
            VgpuTakenError: the UUID or the function is another vGPU's, or of another type.
            VgpuNoRoomError: the driver has no capacity for one more of that type.
            VgpuParentGoneError: the parent is gone, or has no driver that makes vGPUs.
            VgpuTypeNotFoundError: the parent does not offer the type.
            VgpuAttributeError: an attribute was refused; the vGPU is there.
            ReadBackError: the write was accepted, but the vGPU is not as asked for.
        """

    def delete(self, spec: VgpuSpec) -> None:
        """Removes the vGPU at the spec's UUID or function; one that is gone is no error.

        The write may block as long as a process has the vGPU open: the helper is then left alone
        (HelperLateError), and the removal completes by itself once it is released.

        Raises:
            VgpuBusyError: the driver refuses while it is held.
            ReadBackError: the write was accepted, but the vGPU is still there.
        """

    def list_holders(self, device: VgpuDevice) -> tuple[str, ...]:
        """Processes that have its VFIO device or group open, in words."""

    def list_group_holders(self, iommu_group: int) -> tuple[str, ...]:
        """As ``list_holders``, of a vGPU that is removed already, by its former IOMMU group."""

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        """mdevctl's definitions, ours and others', in the order of parents and UUIDs."""

    def has_definition(self, parent: str, uuid: str) -> bool:
        """Whether mdevctl has a definition of that parent and UUID, also one that cannot be read."""

    def write_definition(self, definition: VgpuDefinition) -> None:
        """Writes one as mdevctl does, in the place of the one with the same parent and UUID."""

    def remove_definition(self, parent: str, uuid: str) -> None:
        """Removes one; absent is no error."""


class NoVgpus:
    """A machine that has none; what operations get that never touch one."""

    def read_host(self) -> VgpuHost:
        """Nothing."""
        return VgpuHost()

    def may_have_devices(self) -> bool:
        """No."""
        return False

    def find_device(self, spec: VgpuSpec) -> VgpuDevice | None:  # noqa: ARG002
        """Nothing."""
        return None

    def create(self, spec: VgpuSpec) -> VgpuDevice:
        """Refuses."""
        raise VgpuNotSupportedError(f"cannot create {spec.type_name}", why="there is no vGPU host")

    def delete(self, spec: VgpuSpec) -> None:
        """Nothing to remove."""

    def list_holders(self, device: VgpuDevice) -> tuple[str, ...]:  # noqa: ARG002
        """Nobody."""
        return ()

    def list_group_holders(self, iommu_group: int) -> tuple[str, ...]:  # noqa: ARG002
        """Nobody."""
        return ()

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        """None."""
        return ()

    def has_definition(self, parent: str, uuid: str) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def write_definition(self, definition: VgpuDefinition) -> None:
        """Refuses."""
        raise VgpuNotSupportedError(f"cannot define {definition.uuid}", why="there is no vGPU host")

    def remove_definition(self, parent: str, uuid: str) -> None:
        """Nothing to remove."""


T = TypeVar("T")
READ_TIMEOUT_S = 15.0
CHANGE_TIMEOUT_S = 15.0
#: a device may appear, or go, a moment after the write
SETTLE_S = 3.0
_POLL_S = 0.05
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR})
_FULL = frozenset({errno.ENOSPC, errno.EIO, errno.ENOMEM, errno.EUSERS, errno.EINVAL})
_HELD = frozenset({errno.EBUSY, errno.EPERM})


DIRECTORY = "/etc/mdevctl.d"


class DefinitionFiles:
    """The definitions of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.directory = machine.path(DIRECTORY)

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        """All that can be read, by parent and UUID. One that cannot hides no other."""
        found = []
        for path in self._list_paths():
            try:
                found.append(read_definition(path))
            except VgpuDefinitionError:
                continue
        return tuple(found)

    def has_definition(self, parent: str, uuid: str) -> bool:
        """See ``VgpuControl``."""
        return self._path(parent, uuid).exists()

    def write_definition(self, definition: VgpuDefinition) -> None:
        """Writes one; a reader sees the old file or the new one, never half of it.

        What else the file said before, and this program does not know, stays in it.
        Raises VgpuDefinitionError, NotPermittedError.
        """
        path = self._path(definition.parent, definition.uuid)
        document = _read_unknown(path) | {
            "mdev_type": definition.type_id,
            "start": "auto" if definition.auto else "manual",
            "attrs": [{name: value} for name, value in definition.attributes],
        }
        try:
            make_directory(path.parent)
            # by way of a hidden file, which mdevctl takes for no definition
            replace_file(path, json.dumps(document, indent=2) + "\n", sync=True)
        except OSError as error:
            raise _refused(path, error) from error

    def remove_definition(self, parent: str, uuid: str) -> None:
        """Removes one, and its parent's directory if that was the last one."""
        path = self._path(parent, uuid)
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        except OSError as error:
            raise _refused(path, error) from error

    def _path(self, parent: str, uuid: str) -> Path:
        if not is_uuid(uuid) or "/" in parent or parent in ("", ".", ".."):
            raise VgpuDefinitionError(f"cannot define {uuid} on {parent}", why="no such names")
        return self.directory / parent / uuid

    def _list_paths(self) -> Iterator[Path]:
        try:
            parents = sorted(path for path in self.directory.iterdir() if path.is_dir())
            for parent in parents:
                # beside parents there are callout scripts
                if parent.name not in ("scripts.d", "callouts.d", "notifiers.d"):
                    yield from sorted(path for path in parent.iterdir() if is_uuid(path.name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _refused(self.directory, error) from error


class HostVgpus(DefinitionFiles):
    """One machine's vGPUs."""

    def __init__(
        self,
        machine: Machine,
        nvml: Nvml,
        *,
        clock: Clock | None = None,
        change_timeout_s: float = CHANGE_TIMEOUT_S,
    ) -> None:
        super().__init__(machine)
        self._machine = machine
        self._nvml = nvml
        self._clock = clock or SystemClock()
        self._change_timeout_s = change_timeout_s
        root = str(machine.root)
        self._helper = HelperOnDemand(machine, "vgpumgr.mdev.helper", root, clock=clock)

    def read_host(self) -> VgpuHost:
        """See ``VgpuControl``."""
        raw = self._read("read the vGPUs", "read_host")
        boards = any(row["vendor"] == NVIDIA for row in raw["parents"])
        return make_host(raw, self._read_nvml() if boards else ())

    def may_have_devices(self) -> bool:
        """See ``VgpuControl``."""
        return may_have_vgpus(self._machine.root)

    def find_device(self, spec: VgpuSpec) -> VgpuDevice | None:
        """See ``VgpuControl``."""
        if spec.framework is Framework.MDEV:
            row = self._read(f"read vGPU {spec.uuid}", "find_mdev", uuid=spec.uuid)
        else:
            row = self._read(f"read {spec.parent}", "find_function", name=spec.parent)
        return None if row is None else make_device(row)

    def create(self, spec: VgpuSpec) -> VgpuDevice:
        """See ``VgpuControl``."""
        there = self.find_device(spec)
        if there is None:
            self._check_offer(spec)
            self._create(spec)
        elif spec.framework is Framework.VENDOR_VFIO or not _is_same(spec, there):
            place = f"UUID {spec.uuid}" if spec.framework is Framework.MDEV else spec.parent
            why = f"{place} is a {there.type_name} on {there.parent} already"
            raise _cannot_create(VgpuTakenError, spec, why)
        self._set_attributes(spec)
        return self._read_back(spec)

    def delete(self, spec: VgpuSpec) -> None:
        """See ``VgpuControl``."""
        there = self.find_device(spec)
        if there is None:
            return
        what = f"remove vGPU {there.key}"
        try:
            if spec.framework is Framework.MDEV:
                self._change(what, "remove_mdev", uuid=spec.uuid)
            else:
                self._change(what, "set_type", name=spec.parent, type_id="0")
        except _RefusedError as error:
            if error.errno not in _GONE:
                raise self._explain_delete(spec, error) from error
        if not self._await(lambda: self.find_device(spec) is None):
            raise ReadBackError(
                f"vGPU {there.key} is still there after its removal",
                why="the driver accepted the removal, and did nothing",
            )

    def list_holders(self, device: VgpuDevice) -> tuple[str, ...]:
        """See ``VgpuControl``."""
        group = device.iommu_group
        found = () if group is None else list_group_holders(self._machine, group, device.key)
        vm = f'vm "{device.vm_name}"'
        if not device.vm_name or any(text.startswith(vm) for text in found):
            return found
        return vm, *found

    def list_group_holders(self, iommu_group: int) -> tuple[str, ...]:
        """See ``VgpuControl``."""
        return list_group_holders(self._machine, iommu_group)

    def close(self) -> None:
        """Ends the helper; the next call would start another."""
        self._helper.close()

    def _read_nvml(self) -> tuple[GpuVgpus, ...]:
        """A host without NVML has vGPUs all the same (Intel, or a driver without the library)."""
        try:
            return self._nvml.list_vgpus()
        except (NvmlMissingError, NvmlNotSupportedError):
            return ()

    def _check_offer(self, spec: VgpuSpec) -> None:
        """Before the write: what can be said clearly now comes back as a bare errno later."""
        row = self._read(
            f"read {spec.parent}", "read_parent", name=spec.parent, framework=str(spec.framework)
        )
        if row is None:
            raise _parent_gone(spec)
        offers = make_offers(row, None)
        offer = next((o for o in offers if o.type.id == spec.type_id), None)
        if offer is None and spec.framework is Framework.MDEV:
            names = ", ".join(offer.type.id for offer in offers) or "none"
            raise VgpuTypeNotFoundError(
                f"{spec.parent} has no vGPU type {spec.type_id}",
                why=f"it has {names}",
                hint="vgpumgr mdev types",
            )
        if offer is None or not offer.available:
            why = "the driver offers none of it there now"
            raise _cannot_create(VgpuNoRoomError, spec, why, hint="vgpumgr mdev types")

    def _create(self, spec: VgpuSpec) -> None:
        what = f"create vGPU {spec.type_name} on {spec.parent}"
        try:
            if spec.framework is Framework.MDEV:
                call = {"parent": spec.parent, "type_id": spec.type_id, "uuid": spec.uuid}
                self._change(what, "create_mdev", **call)
                return
            self._change(what, "set_type", name=spec.parent, type_id=spec.type_id)
        except _RefusedError as error:
            raise _explain_create(spec, error) from error

    def _set_attributes(self, spec: VgpuSpec) -> None:
        # of both frameworks: the file has a meaning only while there is a vGPU
        if spec.placement_id is not None:
            self._set_attribute(spec, "nvidia/placement_id", str(spec.placement_id))
        for name, value in spec.attributes:
            self._set_attribute(spec, name, value)

    def _set_attribute(self, spec: VgpuSpec, name: str, value: str) -> None:
        device = spec.uuid if spec.framework is Framework.MDEV else spec.parent
        call = {"device": device, "framework": str(spec.framework), "name": name}
        what = f"set {name} of vGPU {device}"
        if name.startswith("/") or ".." in name.split("/"):
            raise VgpuAttributeError(f"cannot {what}", why="it leads out of the device's directory")
        try:
            self._change(what, "write_attribute", **call, value=value)
        except _RefusedError as error:
            raise VgpuAttributeError(f'cannot {what} to "{value}"', cause=error.cause) from error
        now = self._read(what, "read_attribute", **call)
        # drivers show values in their own words; only an empty answer proves that it was not taken
        if now == "" and value.strip():
            raise ReadBackError(f"{what} was accepted, but it is still empty")

    def _read_back(self, spec: VgpuSpec) -> VgpuDevice:
        device = self._await(lambda: self.find_device(spec))
        if device is None:
            raise ReadBackError(
                f"vGPU {spec.type_name} on {spec.parent} is not there",
                why="the driver accepted the write, and did nothing",
            )
        if not _is_same(spec, device):
            raise ReadBackError(
                f"asked for {spec.type_id} on {spec.parent}, got {device.type_id} on {device.parent}"
            )
        return device

    def _explain_delete(self, spec: VgpuSpec, error: _RefusedError) -> VgpumgrError:
        device = self.find_device(spec)
        held_by = self.list_holders(device) if device else ()
        if error.errno in _HELD:
            return VgpuBusyError(
                f"cannot remove vGPU {spec.type_name} on {spec.parent}",
                cause=error.cause,
                why="the driver releases it only when its VM has ended",
                held_by=held_by,
                hint="shut the VM down, then repeat",
            )
        return error.as_error(f"cannot remove vGPU {spec.type_name} on {spec.parent}")

    def _await(self, condition: Callable[[], T]) -> T:
        deadline_s = self._clock.monotonic_s() + SETTLE_S
        while not (found := condition()) and self._clock.monotonic_s() < deadline_s:
            self._clock.sleep(_POLL_S)
        return found

    def _read(self, what: str, method: str, **params: Any) -> Any:
        try:
            return self._helper.call(method, params, READ_TIMEOUT_S)
        except HelperFaultError as fault:
            raise _RefusedError(fault).as_error(f"cannot {what}") from None

    def _change(self, what: str, method: str, **params: Any) -> None:
        try:
            self._helper.call(method, params, self._change_timeout_s, what)
        except HelperFaultError as fault:
            raise _RefusedError(fault) from None


class _RefusedError(Exception):
    """A system call of the helper was refused."""

    def __init__(self, fault: HelperFaultError) -> None:
        self.errno = int(fault.data["errno"])
        name = errno.errorcode.get(self.errno, "?")
        self.cause = f"{fault.data['path']}: {os.strerror(self.errno)} ({name})"
        super().__init__(self.cause)

    def as_error(self, error: str) -> SysfsError:
        """Where there is no better class."""
        kind = SysfsPermissionError if self.errno == errno.EACCES else SysfsError
        return kind(error, cause=self.cause)


def _is_same(spec: VgpuSpec, device: VgpuDevice) -> bool:
    return (device.parent, device.type_id) == (spec.parent, spec.type_id)


def _explain_create(spec: VgpuSpec, error: _RefusedError) -> VgpumgrError:
    if error.errno == errno.EEXIST:
        return _cannot_create(
            VgpuTakenError,
            spec,
            f"UUID {spec.uuid} is in use; a removed vGPU that is still held keeps its UUID",
            error.cause,
            "take another UUID, or none",
        )
    if error.errno in _GONE:
        return _parent_gone(spec, error.cause)
    if error.errno in _FULL:
        why = "the driver has no capacity for it"
        return _cannot_create(VgpuNoRoomError, spec, why, error.cause, "vgpumgr mdev types")
    if error.errno in _HELD:
        return _cannot_create(
            VgpuTakenError, spec, "the driver says that it is in use", error.cause
        )
    return error.as_error(f"cannot create vGPU {spec.type_name} on {spec.parent}")


def _parent_gone(spec: VgpuSpec, cause: str | None = None) -> VgpumgrError:
    why = f"{spec.parent} is gone, or no driver on it makes vGPUs"
    return _cannot_create(VgpuParentGoneError, spec, why, cause, "vgpumgr mdev types")


def _cannot_create(
    kind: type[VgpumgrError],
    spec: VgpuSpec,
    why: str,
    cause: str | None = None,
    hint: str = "vgpumgr mdev list",
) -> VgpumgrError:
    error = f"cannot create vGPU {spec.type_name} on {spec.parent}"
    return kind(error, cause=cause, why=why, hint=hint)


def read_definition(path: Path) -> VgpuDefinition:
    """One file. Raises VgpuDefinitionError."""
    try:
        return parse_definition(path.read_text(encoding="utf-8"), path.parent.name, path.name)
    except (OSError, ValueError) as error:
        raise VgpuDefinitionError(f"cannot read {path}", cause=str(error)) from error


def parse_definition(text: str, parent: str, uuid: str) -> VgpuDefinition:
    """A file's content. Raises ValueError."""
    document = _load(text)
    if not isinstance(document, dict) or not isinstance(document.get("mdev_type"), str):
        raise ValueError("no mdev_type")
    start = document.get("start", "manual")
    if start not in ("auto", "manual"):
        raise ValueError(f'start is "{start}", neither auto nor manual')
    attributes = _parse_attributes(document.get("attrs") or [])
    return VgpuDefinition(uuid, parent, document["mdev_type"], start == "auto", attributes)


def _load(text: str) -> Any:
    """Raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _parse_attributes(rows: Any) -> Attributes:
    found = []
    for row in rows if isinstance(rows, list) else [None]:
        if not isinstance(row, dict) or len(row) != 1:
            raise ValueError("attrs is a list of objects with one key")
        ((name, value),) = row.items()
        if not isinstance(value, str):
            raise ValueError(f"attribute {name} is no text")
        found.append((name, value))
    return tuple(found)


def _read_unknown(path: Path) -> dict[str, Any]:
    try:
        document = _load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _refused(path: Path, error: OSError) -> VgpuDefinitionError | NotPermittedError:
    if isinstance(error, PermissionError):
        return NotPermittedError(
            f"cannot change {path} as this user", cause=str(error), hint="repeat it with sudo"
        )
    return VgpuDefinitionError(f"cannot change {path}", cause=str(error))
