"""``control.VgpuControl`` on a machine's files, through a helper process with deadlines."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from vgpumgr.errors import (
    NvmlMissingError,
    NvmlNotSupportedError,
    ReadBackError,
    SysfsError,
    SysfsPermissionError,
    VgpuAttributeError,
    VgpuBusyError,
    VgpumgrError,
    VgpuNoRoomError,
    VgpuParentGoneError,
    VgpuTakenError,
    VgpuTypeNotFoundError,
)
from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.helper import HelperFaultError, HelperOnDemand
from vgpumgr.host.machine import Machine
from vgpumgr.host.openers import list_group_holders
from vgpumgr.mdev.definitions import DefinitionFiles
from vgpumgr.mdev.view import NVIDIA, make_device, make_host, make_offers
from vgpumgr.model.vgpu import (
    Framework,
    GpuVgpus,
    VgpuDefinition,
    VgpuDevice,
    VgpuHost,
    VgpuOffer,
    VgpuSpec,
)
from vgpumgr.nvml.protocol import Nvml

READ_TIMEOUT_S = 15.0
CHANGE_TIMEOUT_S = 15.0
#: a device may appear, or go, a moment after the write
SETTLE_S = 3.0
_POLL_S = 0.05
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR})
_FULL = frozenset({errno.ENOSPC, errno.EIO, errno.ENOMEM, errno.EUSERS, errno.EINVAL})
_HELD = frozenset({errno.EBUSY, errno.EPERM})


class HostVgpus:
    """One machine's vGPUs."""

    def __init__(
        self,
        machine: Machine,
        nvml: Nvml,
        *,
        clock: Clock | None = None,
        change_timeout_s: float = CHANGE_TIMEOUT_S,
    ) -> None:
        self._machine = machine
        self._nvml = nvml
        self._clock = clock or SystemClock()
        self._change_timeout_s = change_timeout_s
        self._definitions = DefinitionFiles(machine)
        root = str(machine.root)
        self._helper = HelperOnDemand(machine, "vgpumgr.mdev.helper", root, clock=clock)

    def read_host(self) -> VgpuHost:
        """See ``VgpuControl``."""
        raw = self._read("read the vGPUs", "read_host")
        boards = any(row["vendor"] == NVIDIA for row in raw["parents"])
        return make_host(raw, self._read_nvml() if boards else ())

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
            raise _taken(spec, there)
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

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        """See ``VgpuControl``."""
        return self._definitions.list_definitions()

    def write_definition(self, definition: VgpuDefinition) -> None:
        """See ``VgpuControl``."""
        self._definitions.write_definition(definition)

    def remove_definition(self, parent: str, uuid: str) -> None:
        """See ``VgpuControl``."""
        self._definitions.remove_definition(parent, uuid)

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
            raise _no_type(spec, offers)
        if offer is None or not offer.available:
            raise _no_room(spec, "the driver offers none of it there now")

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
        seen: list[VgpuDevice | None] = [None]

        def is_there() -> bool:
            seen[0] = self.find_device(spec)
            return seen[0] is not None

        self._await(is_there)
        device = seen[0]
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
                why="the driver lets go of it only when its VM has ended",
                held_by=held_by,
                hint="shut the VM down, then repeat",
            )
        return error.as_error(f"cannot remove vGPU {spec.type_name} on {spec.parent}")

    def _await(self, condition: Callable[[], bool]) -> bool:
        deadline_s = self._clock.monotonic_s() + SETTLE_S
        while not condition():
            if self._clock.monotonic_s() >= deadline_s:
                return False
            self._clock.sleep(_POLL_S)
        return True

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
        return VgpuTakenError(
            f"cannot create vGPU {spec.type_name} on {spec.parent}",
            cause=error.cause,
            why=f"UUID {spec.uuid} is in use; a removed vGPU that is still held keeps its UUID",
            hint="take another UUID, or none",
        )
    if error.errno in _GONE:
        return _parent_gone(spec, error.cause)
    if error.errno in _FULL:
        return _no_room(spec, "the driver has no room for it", error.cause)
    if error.errno in _HELD:
        return VgpuTakenError(
            f"cannot create vGPU {spec.type_name} on {spec.parent}",
            cause=error.cause,
            why="the driver says that it is in use",
            hint="vgpumgr mdev list",
        )
    return error.as_error(f"cannot create vGPU {spec.type_name} on {spec.parent}")


def _taken(spec: VgpuSpec, there: VgpuDevice) -> VgpuTakenError:
    place = f"UUID {spec.uuid}" if spec.framework is Framework.MDEV else spec.parent
    return VgpuTakenError(
        f"cannot create vGPU {spec.type_name} on {spec.parent}",
        why=f"{place} is a {there.type_name} on {there.parent} already",
        hint="vgpumgr mdev list",
    )


def _parent_gone(spec: VgpuSpec, cause: str | None = None) -> VgpuParentGoneError:
    return VgpuParentGoneError(
        f"cannot create vGPU {spec.type_name} on {spec.parent}",
        cause=cause,
        why=f"{spec.parent} is gone, or no driver on it makes vGPUs",
        hint="vgpumgr mdev types",
    )


def _no_type(spec: VgpuSpec, offers: tuple[VgpuOffer, ...]) -> VgpuTypeNotFoundError:
    names = ", ".join(offer.type.id for offer in offers) or "none"
    return VgpuTypeNotFoundError(
        f"{spec.parent} has no vGPU type {spec.type_id}",
        why=f"it has {names}",
        hint="vgpumgr mdev types",
    )


def _no_room(spec: VgpuSpec, why: str, cause: str | None = None) -> VgpuNoRoomError:
    return VgpuNoRoomError(
        f"cannot create vGPU {spec.type_name} on {spec.parent}",
        cause=cause,
        why=why,
        hint="vgpumgr mdev types",
    )
