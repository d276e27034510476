# ruff: noqa: ARG002  # they implement protocols
"""A host's PCI bus and vGPUs in memory: they behave, and every change fails on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.support.fake_hypervisor import FakeHypervisor
from vgpumgr.errors import (
    DriverMissingError,
    HelperLateError,
    PciNotFoundError,
    VfUnsupportedError,
    VgpuBusyError,
    VgpuNoRoomError,
    VgpuTakenError,
)
from vgpumgr.model.pci import (
    VFIO,
    Binding,
    Condition,
    Function,
    PciAddress,
    Quota,
    User,
    UserKind,
    VfSetting,
    VfSupport,
)
from vgpumgr.model.vgpu import (
    Framework,
    VgpuBoard,
    VgpuDefinition,
    VgpuDevice,
    VgpuHost,
    VgpuOffer,
    VgpuParent,
    VgpuRecord,
    VgpuSpec,
    VgpuType,
    stamp,
)

GPU, AUDIO = PciAddress(0, 0x3B, 0, 0), PciAddress(0, 0x3B, 0, 1)
OTHER_GPU = PciAddress(0, 0x5E, 0, 0)
FLEX = PciAddress(0, 3, 0, 0)
DISK = PciAddress(0, 1, 0, 0)
VARIANT = "nvgrace_gpu_vfio_pci"
DRIVERS = {VFIO, VARIANT, "pci-stub", "nvidia", "i915", "snd_hda_intel", "nvme"}
MTTY = VgpuType("mtty-2", "Dual port serial", Framework.MDEV, max_instances=None)


def make_functions() -> list[Function]:
    """An NVIDIA GPU with audio, one beside a disk in its group, an Intel GPU with VFs, a disk."""
    return [
        Function(DISK, 0x1B36, 0x10, 0x010802, "nvme", group=1),
        Function(FLEX, 0x8086, 0x56C0, 0x038000, "i915", group=3, vf_total=7, vf_offset=1, vf_stride=1),
        Function(GPU, 0x10DE, 0x2330, 0x030200, "nvidia", group=10, numa_node=1),
        Function(AUDIO, 0x10DE, 0x22E8, 0x040300, "snd_hda_intel", group=10),
        Function(OTHER_GPU, 0x10DE, 0x2330, 0x030000, "nvidia", group=11),
    ]  # fmt: skip


class FakePci:
    """Implements ``passthrough.control.PciControl``."""

    def __init__(self, functions: Sequence[Function] = ()) -> None:
        self.functions = {f.address: f for f in functions}
        self.bindings: dict[PciAddress, Binding] = {}
        self.settings: dict[PciAddress, VfSetting] = {}
        self.overrides: dict[PciAddress, str] = {}
        self.users: dict[PciAddress, str] = {}
        self.drivers = set(DRIVERS)
        self.conventional: set[PciAddress] = set()
        self.variants: dict[PciAddress, str] = {}
        self.fail: dict[str, Exception] = {}
        self.stalls: list[str] = []
        self.boot_id = "test"
        self.hypervisor: FakeHypervisor | None = None

    def list_functions(self) -> tuple[Function, ...]:
        return tuple(self.functions[a] for a in sorted(self.functions))

    def read_function(self, address: PciAddress) -> Function:
        if address not in self.functions:
            raise PciNotFoundError(f"there is no PCI function {address}")
        return self.functions[address]

    def list_users(self, functions: Sequence[Function]) -> Mapping[PciAddress, tuple[User, ...]]:
        found = {f.address: tuple(self._list_users(f.address)) for f in functions}
        return {address: users for address, users in found.items() if users}

    def _list_users(self, address: PciAddress) -> list[User]:
        users = [User(UserKind.PROCESS, text) for a, text in self.users.items() if a == address]
        for machine in self.hypervisor.machines.values() if self.hypervisor else ():
            devices = machine.running.pci_hostdevs if machine.running else ()
            if any(d.source and d.source.pci == address for d in devices):
                users.append(User(UserKind.PROCESS, f"QEMU of {machine.name}"))
        return users

    def list_bars(self, address: PciAddress) -> tuple[int, ...]:
        self.read_function(address)
        return (16 << 20,)

    def is_conventional(self, address: PciAddress) -> bool:
        return address in self.conventional

    def list_variants(self, addresses: Sequence[PciAddress]) -> Mapping[PciAddress, str]:
        return {a: self.variants[a] for a in addresses if a in self.variants}

    def read_condition(self, address: PciAddress) -> Condition:
        return Condition(("flr",), "D0")

    def list_stalls(self) -> tuple[str, ...]:
        return tuple(self.stalls)

    def list_removals(self) -> tuple[str, ...]:
        return tuple(self.stalls)

    def list_kernel_parameters(self) -> tuple[str, ...]:
        return ()

    def read_override(self, address: PciAddress) -> str | None:
        return self.overrides.get(address)

    def load_driver(self, driver: str) -> None:
        if driver not in self.drivers:
            raise DriverMissingError(f"the driver {driver} is not loaded")

    def bind(self, address: PciAddress, driver: str) -> None:
        self._enter("bind", address)
        self.overrides[address] = driver
        self._set_driver(address, driver)

    def release(self, address: PciAddress, driver: str | None, override: str | None) -> None:
        self._enter("release", address)
        self.overrides.pop(address, None)
        if override is not None:
            self.overrides[address] = override
        self._set_driver(address, driver)

    def _set_driver(self, address: PciAddress, driver: str | None) -> None:
        function = self.read_function(address)
        if self._list_users(address) and function.driver != driver:
            raise HelperLateError(f"unbinding {address} hangs", cause="a process has it open")
        self.functions[address] = replace(function, driver=driver)

    def set_vf_count(self, physical: PciAddress, count: int) -> None:
        self._enter("set_vf_count", physical)
        now = self.read_function(physical)
        if not now.vf_total or now.driver in (None, VFIO):
            raise VfUnsupportedError(f"{physical} makes none")
        for vf in now.vfs:
            if self._list_users(vf):
                raise HelperLateError(f"removing {vf} hangs")
            del self.functions[vf]
            self.overrides.pop(vf, None)
        bare = replace(now, vfs=())
        places = [bare.locate_vf(index) for index in range(count)]
        made = tuple(place for place in places if place is not None)
        for number, place in enumerate(made):
            self.functions[place] = replace(
                bare, address=place, driver=None, group=100 + number, physical=physical, vf_total=0
            )
        self.functions[physical] = replace(now, vfs=made)

    def observe_vfs(self, physical: Function) -> VfSupport:
        return VfSupport(physical.vf_total)

    def list_quotas(self, physical: PciAddress, count: int) -> Sequence[Mapping[str, str]]:
        return [{} for _ in range(count)]

    def check_quotas(self, physical: PciAddress, values: Sequence[Quota]) -> None:
        raise AssertionError("no quotas")

    def provide_quotas(self, physical: PciAddress, count: int, values: Sequence[Quota]) -> None:
        raise AssertionError("no quotas")

    def take_back_quotas(self, physical: PciAddress, count: int, values: Sequence[Quota]) -> None:
        raise AssertionError("no quotas")

    def write_quotas(
        self, physical: PciAddress, indexes: Sequence[int], values: Sequence[Quota]
    ) -> None:
        raise AssertionError("no quotas")

    def list_bindings(self) -> tuple[Binding, ...]:
        return tuple(self.bindings.values())

    def save_binding(self, binding: Binding) -> None:
        self._enter("save_binding", binding.address)
        self.bindings[binding.address] = binding

    def forget_binding(self, address: PciAddress) -> None:
        self._enter("forget_binding", address)
        self.bindings.pop(address, None)

    def list_vf_settings(self) -> tuple[VfSetting, ...]:
        return tuple(self.settings.values())

    def save_vf_setting(self, setting: VfSetting) -> None:
        self._enter("save_vf_setting", setting.physical)
        self.settings[setting.physical] = setting

    def forget_vf_setting(self, physical: PciAddress) -> None:
        self._enter("forget_vf_setting", physical)
        self.settings.pop(physical, None)

    def snapshot(self) -> object:
        """All that a roll-back must restore."""
        return dict(self.functions), dict(self.bindings), dict(self.settings), dict(self.overrides)

    def _enter(self, name: str, address: PciAddress) -> None:
        for key in (name, f"{name} {address}"):
            if error := self.fail.pop(key, None):
                raise error


class FakeVgpus:
    """Implements ``mdev.control.VgpuControl``: one device without hardware, room for a few."""

    def __init__(self, room: int = 4) -> None:
        self.room = room
        self.devices: dict[str, VgpuDevice] = {}
        self.fail: dict[str, Exception] = {}
        self.hypervisor: FakeHypervisor | None = None
        #: who has every vGPU open beside the running machines
        self.held_by: tuple[str, ...] = ()
        #: who has the group of one that is removed open
        self.group_holders: tuple[str, ...] = ()

    def read_host(self) -> VgpuHost:
        offers = (VgpuOffer(MTTY, self.room - len(self.devices)),)
        parent = VgpuParent("mtty", Framework.MDEV, offers)
        if not self.room:
            return VgpuHost()
        board = VgpuBoard("mtty", (MTTY,))
        return VgpuHost((parent,), tuple(self.devices.values()), (board,))

    def may_have_devices(self) -> bool:
        return bool(self.devices)

    def find_device(self, spec: VgpuSpec) -> VgpuDevice | None:
        return self.devices.get(spec.uuid)

    def create(self, spec: VgpuSpec) -> VgpuDevice:
        self._enter("create")
        known = self.devices.get(spec.uuid)
        if known is not None and known.type_id != spec.type_id:
            raise VgpuTakenError(f"{spec.uuid} is taken")
        if known is None and len(self.devices) >= self.room:
            raise VgpuNoRoomError(f"no room for {spec.type_name}")
        made = VgpuDevice(spec.uuid, spec.parent, spec.framework, spec.type_id, spec.type_name)
        self.devices[spec.uuid] = replace(made, iommu_group=50 + len(self.devices))
        return self.devices[spec.uuid]

    def delete(self, spec: VgpuSpec) -> None:
        self._enter("delete")
        known = self.devices.get(spec.uuid)
        if known is not None and (held_by := self.list_holders(known)):
            raise VgpuBusyError(f"{spec.uuid} is held", held_by=held_by)
        self.devices.pop(spec.uuid, None)

    def list_holders(self, device: VgpuDevice) -> tuple[str, ...]:
        machines = self.hypervisor.machines.values() if self.hypervisor else ()
        return self.held_by + tuple(
            f"QEMU of {machine.name}"
            for machine in machines
            if machine.running and any(d.uuid == device.uuid for d in machine.running.mdev_hostdevs)
        )

    def list_group_holders(self, iommu_group: int) -> tuple[str, ...]:
        return self.group_holders

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        return ()

    def has_definition(self, parent: str, uuid: str) -> bool:
        return False

    def write_definition(self, definition: VgpuDefinition) -> None:
        raise AssertionError("an attachment defines nothing")

    def remove_definition(self, parent: str, uuid: str) -> None:
        raise AssertionError("an attachment defines nothing")

    def _enter(self, name: str) -> None:
        if error := self.fail.pop(name, None):
            raise error


class FakeVgpuStore:
    """Implements ``plan.vgpu_record.VgpuStore``."""

    def __init__(self, boot_id: str = "test") -> None:
        self.boot_id = boot_id
        self.records: dict[str, VgpuRecord] = {}

    def list_vgpus(self) -> Sequence[VgpuRecord]:
        return tuple(self.records.values())

    def save_vgpu(self, record: VgpuRecord) -> None:
        # as the file does, but for the boot of the record: tests say that themselves
        self.records[record.spec.uuid] = replace(stamp(record, self.boot_id), boot=record.boot)

    def delete_vgpu(self, uuid: str) -> None:
        self.records.pop(uuid, None)
