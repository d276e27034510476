"""What a VM is to be given, whatever it is: devices, the steps on the host before, and what to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpumgr.domain.devices import GuestPciAddress
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hostdev import (
    Display,
    GivenFunction,
    Hostdev,
    mdev_alias,
    mdev_hostdev,
    pci_alias,
    pci_hostdevs,
)
from vgpumgr.domain.hostdev_advice import DeviceFacts
from vgpumgr.domain.slots import choose_shared_slot
from vgpumgr.errors import BackendUnsupportedError, PreviewImpossibleError
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.slice import Backend
from vgpumgr.model.vgpu import VgpuSpec
from vgpumgr.passthrough.drivers import DriverChoice, choose_driver
from vgpumgr.passthrough.values import VFIO, Function
from vgpumgr.plan.hostdev_choice import OneVf, WholeGpu
from vgpumgr.plan.hostdev_host import HostObserved
from vgpumgr.plan.hostdev_steps import TakeFunction, TakeVf
from vgpumgr.plan.pci_steps import BindDriver, CreateVfs, PrepareVf
from vgpumgr.plan.record import HostDevice, HostDeviceKind
from vgpumgr.plan.step import Step
from vgpumgr.plan.world import World

#: VGA-compatible: firmware draws the first screen with its ROM
_VGA = 0x0300


@dataclass(frozen=True, slots=True)
class Given:
    """All that differs between the ways to give a VM a device of the host."""

    backend: Backend
    #: what it is called from now on: the type's full name, or what was asked for
    profile: str
    why: str
    #: what the record keeps
    devices: tuple[HostDevice, ...]
    #: on the host, before the domain gets anything
    steps: tuple[Step[World], ...]
    gpu: GpuUuid | None = None
    memory_bytes: int = 0
    facts: DeviceFacts = field(default_factory=DeviceFacts)
    iommufd: bool = False
    #: how many of the devices are no PCI Express devices
    conventional: int = 0
    display: Display = Display.OFF
    notes: tuple[str, ...] = ()

    def make_devices(
        self, attachment: str, definition: Domain | None, *, in_slots: bool = False
    ) -> tuple[Hostdev, ...]:
        """See ``make_hostdevs``."""
        return make_hostdevs(
            attachment, self.devices, definition, iommufd=self.iommufd, in_slots=in_slots
        )


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


def give_whole_gpu(
    host: HostObserved, choice: WholeGpu, attachment: str, *, persist: bool = True
) -> Given:
    """A GPU with its companions; those that the host's driver has are taken from it first, and with
    ``persist`` again at every boot.
    """
    gpu = host.find_gpu(choice.gpu.address)
    uuid = str(choice.uuid) if choice.uuid else None
    drivers = _choose_drivers(host, [f for f in choice.functions if not f.is_ready])
    binds = [
        BindDriver(
            f.address,
            drivers[f.address].name,
            previous=f.driver,
            persist=persist,
            gpu_uuid=uuid if f is choice.gpu else None,
            model=gpu.model if gpu and f is choice.gpu else None,
        )
        for f in choice.functions
        if not f.is_ready
    ]
    taken = {bind.address for bind in binds}
    return Given(
        backend=Backend.PASSTHROUGH,
        profile="passthrough",
        why=f"a whole GPU goes to a VM by VFIO; {choice.why}",
        devices=tuple(
            HostDevice(
                kind=HostDeviceKind.PCI,
                alias=pci_alias(attachment, number),
                address=f.address,
                previous_driver=f.driver if f.address in taken else None,
                rom=_draws(f),
                created=f.address in taken,
                driver=_name_variant(drivers.get(f.address)),
            )
            for number, f in enumerate(choice.functions)
        ),
        steps=tuple(TakeFunction(bind) for bind in binds),
        gpu=choice.uuid,
        memory_bytes=gpu.memory.total_bytes if gpu else 0,
        facts=_describe(host, choice.gpu),
        iommufd=host.iommufd,
        conventional=sum(f.address in host.conventional for f in choice.functions),
        notes=(*_tell_companions(choice), *_tell_drivers(drivers)),
    )


def _choose_drivers(
    host: HostObserved, functions: Sequence[Function]
) -> dict[PciAddress, DriverChoice]:
    takes = host.takes_variants
    return {f.address: choose_driver(f, host.variants, takes_variants=takes) for f in functions}


def _name_variant(choice: DriverChoice | None) -> str | None:
    """As the record has it: only what is not the usual one."""
    return None if choice is None or choice.name == VFIO else choice.name


def _tell_drivers(drivers: Mapping[PciAddress, DriverChoice]) -> tuple[str, ...]:
    return tuple(choice.why for choice in drivers.values() if choice.why is not None)


def _draws(function: Function) -> bool:
    return function.class_code >> 8 == _VGA


def _tell_companions(choice: WholeGpu) -> tuple[str, ...]:
    if not choice.companions:
        return ()
    names = ", ".join(f"{f.address} ({f.kind})" for f in choice.companions)
    return (f"with it go the other functions of its card: {names}",)


def give_vf(
    host: HostObserved, choice: OneVf, profile: str, attachment: str, *, persist: bool = True
) -> Given:
    """A virtual function as its driver makes it; with ``persist`` it comes back at every boot."""
    address = choice.address
    if address is None:
        raise PreviewImpossibleError(
            f"where the virtual functions of {choice.physical.address} will be is not known",
            why="the kernel has no sriov_offset for it",
            hint=f"vgpumgr vf enable {choice.physical.address} --count {choice.make or 1}, then attach",
        )
    physical, there = choice.physical, choice.function
    bound = there is not None and there.is_ready
    drivers = _choose_drivers(host, [there]) if there is not None and not bound else {}
    steps: list[Step[World]] = []
    if choice.make is not None:
        steps.append(CreateVfs(physical.address, choice.make, persist=persist))
    if not bound:
        # of one that is still to be made the kernel tells no more than that it will be there
        later = None if host.takes_variants else VFIO
        driver = drivers[address].name if address in drivers else later
        steps.append(TakeVf(PrepareVf(physical.address, choice.index, driver), address, persist))
    device = HostDevice(
        kind=HostDeviceKind.VF,
        alias=pci_alias(attachment, 0),
        address=address,
        previous_driver=there.driver if there is not None and not bound else None,
        parent=physical.address,
        index=choice.index,
        made_vfs=choice.make or 0,
        created=not bound,
        driver=_name_variant(drivers.get(address)),
    )
    return Given(
        backend=Backend.VF,
        profile=profile,
        why=f"a virtual function goes to a VM by VFIO; {choice.why}",
        devices=(device,),
        steps=tuple(steps),
        facts=_describe(host, there or physical, own_bars=there is not None),
        iommufd=host.iommufd,
        notes=_tell_drivers(drivers),
    )


def give_vgpu(
    host: HostObserved,
    spec: VgpuSpec,
    steps: tuple[Step[World], ...],
    why: str,
    attachment: str,
    display: Display = Display.OFF,
    gpu: GpuUuid | None = None,
    memory_bytes: int = 0,
) -> Given:
    """A vGPU of either framework, which ``steps`` make."""
    pci = spec.pci
    if pci is not None and display is not Display.OFF:
        raise BackendUnsupportedError(
            f"{spec.type_name} has no display",
            why="libvirt shows the screen of mediated devices only",
            hint="--display off",
        )
    device = HostDevice(
        kind=HostDeviceKind.MDEV if pci is None else HostDeviceKind.VF,
        alias=mdev_alias(attachment) if pci is None else pci_alias(attachment, 0),
        address=pci,
        vgpu=spec,
        display=str(display),
        created=True,
    )
    function = host.find(pci) if pci else _find_parent(host, spec)
    return Given(
        backend=Backend.MDEV if pci is None else Backend.VF,
        profile=spec.type_name,
        why=why,
        devices=(device,),
        steps=steps,
        gpu=gpu,
        memory_bytes=memory_bytes,
        facts=DeviceFacts(
            address=pci,
            numa_node=function.numa_node if function else None,
            numa_matters=host.numa_matters,
            pins_memory=True,
        ),
        iommufd=host.iommufd and pci is not None,
        display=display,
    )


def _find_parent(host: HostObserved, spec: VgpuSpec) -> Function | None:
    try:
        return host.find(PciAddress.parse(spec.parent))
    except ValueError:
        return None  # a parent without hardware


def _describe(host: HostObserved, function: Function, *, own_bars: bool = True) -> DeviceFacts:
    return DeviceFacts(
        address=function.address,
        bar_bytes=host.bars.get(function.address, ()) if own_bars else (),
        numa_node=function.numa_node,
        numa_matters=host.numa_matters,
    )
