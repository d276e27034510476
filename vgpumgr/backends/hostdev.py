"""What the backends share that give a VM devices of the host: grants, scopes, and taking them back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vgpumgr.backends.base import Backend, DeviceGrant, Restored, Revocation, Scopes, Target, Wanted
from vgpumgr.domain.devices import (
    GivenFunction,
    GuestPciAddress,
    Hostdev,
    mdev_hostdev,
    pci_hostdevs,
)
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hostdev_advice import DeviceFacts, advise
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.domain.slots import (
    SlotCheck,
    check_hostdevs_config,
    check_hostdevs_live,
    choose_shared_slot,
)
from vgpumgr.engine.step import Step
from vgpumgr.errors import (
    DisplayImpossibleError,
    LiveUnsupportedError,
    NoFreeSlotError,
    VgpumgrError,
)
from vgpumgr.model.attachment import AttachmentRecord, HostDevice
from vgpumgr.model.choices import Display
from vgpumgr.model.pci import VFIO, Binding, Function, PciAddress
from vgpumgr.model.request import AttachRequest
from vgpumgr.model.text import format_vm
from vgpumgr.passthrough.groups import DriverChoice, choose_driver
from vgpumgr.planning.drift import Drift, DriftKind, describe_remedy, make_drift
from vgpumgr.planning.snapshot import NumaPolicy, Snapshot
from vgpumgr.steps.domain import DetachDevices
from vgpumgr.steps.pci import ReleaseDriver
from vgpumgr.steps.record import HandOverVfs
from vgpumgr.steps.vf import RemoveVfs
from vgpumgr.virtio.channel import ChannelPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDeviceGrant(DeviceGrant):
    """Devices of the host for one attachment."""

    #: what the record keeps
    devices: tuple[HostDevice, ...]
    #: on the host, before the domain gets anything
    steps: tuple[Step, ...]
    facts: DeviceFacts = field(default_factory=DeviceFacts)
    iommufd: bool = False
    #: how many of the devices are no PCI Express devices
    conventional: int = 0
    display: Display = Display.OFF
    #: the boot in which GPU instances are made for its vGPUs
    instances_boot: str = ""

    @property
    def has_several(self) -> bool:
        """See ``DeviceGrant``."""
        return len(self.devices) > 1

    @property
    def parts(self) -> dict[str, Any]:
        """See ``DeviceGrant``."""
        return {"host_devices": self.devices, "instances_boot": self.instances_boot}

    @property
    def details(self) -> dict[str, Any]:
        """See ``DeviceGrant``."""
        places = [device.place for device in self.devices]
        return {"transport": None, "gpu_index": None, "placement": None, "devices": places}

    def list_host_steps(self, record: AttachmentRecord, vm: Vm, scopes: Scopes) -> Sequence[Step]:  # noqa: ARG002
        """See ``DeviceGrant``."""
        return self.steps

    def make_devices(
        self,
        record: AttachmentRecord,
        scope: Scope,  # noqa: ARG002
        definition: Domain | None,
        *,
        in_slots: bool,
    ) -> tuple[Hostdev, ...]:
        """See ``make_hostdevs``."""
        return make_hostdevs(
            record.id, self.devices, definition, iommufd=self.iommufd, in_slots=in_slots
        )

    def describe_time(self, vm: Vm, request: AttachRequest, scopes: Scopes) -> tuple[str, ...]:
        """See ``DeviceGrant``."""
        if scopes.live:
            return (f"{vm} runs: live now, if the guest's kernel takes the device",)
        if not vm.is_active:
            return (f"{vm} is shut off: the device is there at its next start",)
        not_live = "".join(scopes.reasons) or None
        why = "as --config asks" if request.config else f"because {not_live}"
        return (f"{vm} runs: the device is there at its next start, {why}",)

    def advise(self, vm: Vm) -> tuple[str, ...]:
        """See ``DeviceGrant``."""
        domain = vm.config or vm.live
        return tuple(f"advice: {line}" for line in advise(domain, self.facts)) if domain else ()


def make_hostdevs(
    attachment: str,
    devices: Sequence[HostDevice],
    definition: Domain | None,
    *,
    iommufd: bool = False,
    in_slots: bool = False,
) -> tuple[Hostdev, ...]:
    """The domain's devices. For a definition the functions of a card share a slot of it; without one
    each gets its own, as a running machine takes them. ``in_slots``: also a single function is told
    its slot, which libvirt would else choose among those that others are told.
    """
    vgpu = devices[0].vgpu
    if vgpu is not None and vgpu.pci is None:
        return (mdev_hostdev(attachment, vgpu.uuid, Display(devices[0].display)),)
    functions = [GivenFunction(d.address, d.rom) for d in devices if d.address is not None]
    slot: GuestPciAddress | None = None
    if definition is not None and (in_slots or len(functions) > 1):
        slot = choose_shared_slot(definition)
    return pci_hostdevs(attachment, functions, slot, iommufd=iommufd)


class HostDeviceBackend(Backend):
    """A backend of which the VM gets devices of the host."""

    def choose(
        self, wanted: Wanted, target: Target, snapshot: Snapshot
    ) -> Sequence[HostDeviceGrant]:
        """See ``Backend``."""
        near = NumaPolicy.of(wanted.request.numa, target.nodes)
        return self._choose(wanted, target, snapshot.replace(vm_uuid=target.vm.uuid, numa=near))

    def _choose(
        self, wanted: Wanted, target: Target, snapshot: Snapshot
    ) -> Sequence[HostDeviceGrant]:
        """Selects devices in a snapshot that knows for which VM, and grants them."""
        raise NotImplementedError

    def explain(
        self,
        error: VgpumgrError,
        wanted: Wanted,
        target: Target,
        snapshot: Snapshot,  # noqa: ARG002
    ) -> None:
        """See ``Backend``."""
        error.error = f"cannot attach {wanted.request.profile} to {target.vm}: {error.error}"

    def choose_scopes(self, wanted: Wanted, vm: Vm, grants: Sequence[DeviceGrant]) -> Scopes:
        """See ``Backend``. Raises LiveUnsupportedError, NoFreeSlotError, DisplayImpossibleError."""
        found = [grant for grant in grants if isinstance(grant, HostDeviceGrant)]
        conventional = sum(grant.conventional for grant in found)
        count = sum(len(grant.devices) for grant in found) - conventional
        scopes = choose_scopes(wanted.request, vm, count, conventional)
        for grant in found:
            _check_display(vm, grant)
        return scopes

    def list_aliases(self, record: AttachmentRecord) -> list[str]:
        """See ``Backend``."""
        return [device.alias for device in record.host_devices]

    def make_again(
        self,
        record: AttachmentRecord,
        definition: Domain,
        paths: ChannelPaths,  # noqa: ARG002
    ) -> tuple[Hostdev, ...]:
        """See ``Backend``."""
        return make_hostdevs(record.id, record.host_devices, definition)

    def revoke(
        self, record: AttachmentRecord, vm: Vm | None, snapshot: Snapshot, timeout_s: float
    ) -> Revocation:
        """Everything back to what it was before the attach, in reverse."""
        steps: list[Step] = []
        for device in reversed(record.host_devices):
            steps += self._give_back(device, record, snapshot)
            if device.made_vfs and device.parent is not None:
                steps.append(_plan_vfs(record, snapshot.records, device.parent, device.made_vfs))
        unplug = () if vm is None else self._unplug(record, vm, timeout_s)
        return Revocation(unplug, steps, kept=self._describe_kept(record, snapshot))

    def _give_back(
        self,
        device: HostDevice,
        record: AttachmentRecord,  # noqa: ARG002
        snapshot: Snapshot,  # noqa: ARG002
    ) -> Sequence[Step]:
        """A function goes back to its driver."""
        if device.address is None or not device.created:
            return ()
        return (ReleaseDriver(_make_binding(device, device.address), for_vm=True),)

    def _describe_kept(self, record: AttachmentRecord, snapshot: Snapshot) -> Sequence[str]:  # noqa: ARG002
        """What stays, and why."""
        return ()

    def _unplug(self, record: AttachmentRecord, vm: Vm, timeout_s: float) -> list[Step]:
        """The definition first: should the guest not let go, its next start is without the device."""
        aliases = tuple(self.list_aliases(record))
        steps: list[Step] = []
        if vm.config is not None:
            steps.append(DetachDevices(vm.name, vm.uuid, aliases, Scope.CONFIG, timeout_s))
        if vm.live is not None:
            live = DetachDevices(
                vm.name, vm.uuid, aliases, Scope.LIVE, timeout_s, must_release=True
            )
            steps.append(live)
        return steps

    def restore(self, record: AttachmentRecord, snapshot: Snapshot) -> Restored | None:  # noqa: ARG002
        """See ``Backend``: functions that are taken at every boot are back without the attachment."""
        return None

    def drift(self, record: AttachmentRecord, snapshot: Snapshot) -> Iterator[Drift]:
        """See ``Backend``. No vendor library sees a GPU that a VM has; its devices tell."""
        if what := snapshot.absent.get(record.id):
            yield make_drift(record, DriftKind.SLICE_GONE, what, describe_remedy(record))


def choose_drivers(
    snapshot: Snapshot, functions: Sequence[Function]
) -> dict[PciAddress, DriverChoice]:
    """The driver that gives each function to a VM."""
    variants = snapshot.variants
    return {
        f.address: choose_driver(f, variants, takes_variants=snapshot.takes_variants)
        for f in functions
    }


def name_variant(choice: DriverChoice | None) -> str | None:
    """As the record has it: only what is not the usual one."""
    return None if choice is None or choice.name == VFIO else choice.name


def describe_drivers(drivers: dict[PciAddress, DriverChoice]) -> tuple[str, ...]:
    """Why drivers other than the usual one are taken."""
    return tuple(choice.why for choice in drivers.values() if choice.why is not None)


def describe_facts(snapshot: Snapshot, function: Function, *, own_bars: bool = True) -> DeviceFacts:
    """What a VM's definition should be like for a function."""
    return DeviceFacts(
        address=function.address,
        bar_bytes=snapshot.bars.get(function.address, ()) if own_bars else (),
        numa_node=function.numa_node,
        numa_matters=snapshot.numa_matters,
    )


def choose_scopes(request: AttachRequest, vm: Vm, count: int, conventional: int = 0) -> Scopes:
    """Running machine, definition or both, as asked and as far as they take the devices; ``count`` are
    those for ports of PCI Express, where the VM has such.

    Raises LiveUnsupportedError, NoFreeSlotError.
    """
    slot = SlotCheck(False, "it is shut off")
    if vm.live:
        slot = check_hostdevs_live(vm.live, count, conventional)
    wants_config = vm.config is not None and (request.config or not request.live)
    wants_live = slot.fits and (request.live or not request.config)
    if (request.live and not slot.fits) or not (wants_config or wants_live):
        transient = "" if vm.config is not None else "it is transient; "
        raise LiveUnsupportedError(
            f"cannot attach to {vm}" + (" live" if request.live else ""),
            why=transient + (slot.why or "--config was asked for"),
            hint=slot.hint or f"virsh start {format_vm(vm.name, vm.uuid)}",
        )
    if wants_config and vm.config is not None:
        room = check_hostdevs_config(vm.config, count, conventional)
        if not room.fits:
            raise NoFreeSlotError(
                f"cannot attach to {vm}: it has no free PCI slot", why=room.why, hint=room.hint
            )
    return Scopes(wants_live, wants_config, (slot.why,) if slot.why else ())


def _check_display(vm: Vm, grant: HostDeviceGrant) -> None:
    """libvirt starts no VM that has a display without a graphics device; it defines one, though."""
    if grant.display is Display.OFF:
        return
    shown = vm.config or vm.live
    if shown is None or not shown.to_element().xpath("boolean(devices/graphics)"):
        raise DisplayImpossibleError(
            f"{vm} cannot show a display",
            why="it has no graphics device",
            hint="virt-xml VM --add-device --graphics spice,gl.enable=yes; or --display off",
        )


def _make_binding(device: HostDevice, address: PciAddress) -> Binding:
    """As ``attach`` bound it; what is remembered of the binding itself may be lost."""
    return Binding(
        address=address,
        driver=device.driver or VFIO,
        previous=device.previous_driver,
        override=None,
        vendor_id=0,
        device_id=0,
        boot_id="",
    )


def _plan_vfs(
    record: AttachmentRecord,
    records: Sequence[AttachmentRecord],
    physical: PciAddress,
    count: int,
) -> Step:
    """The attachment that made the virtual functions removes them, or hands that over."""
    for other in records:
        if other.id != record.id and any(d.parent == physical for d in other.host_devices):
            return HandOverVfs(physical, count, other.id, other.vm_name)
    return RemoveVfs(physical, count, for_vm=True)
