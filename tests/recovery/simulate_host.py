"""What happens in a simulated history beside attachments: vGPUs, functions, layouts, and others who change them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.recovery.scenarios import apply_layout
from tests.recovery.vgpu_host import MDEV_GPU, VENDOR_GPU, list_functions
from tests.recovery.world import PCI_WRITES, World
from tests.support.fake_host import FLEX, GPU, MTTY, OTHER_GPU, make_functions
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.app.operations.restore import restore
from vgpumgr.app.operations.vgpus import VgpuService
from vgpumgr.errors import PciWriteError, VgpuAttributeError, VgpuNoRoomError
from vgpumgr.model.pci import Binding, PciAddress, VfSetting
from vgpumgr.model.vgpu import Framework, VgpuDefinition, VgpuDevice

TYPES = ("mtty-2", "GRID A100-8C", "GRID A100-1-10C", "NVIDIA A100X-8C", "NVIDIA A100X-1-10C")
PROFILES = (*TYPES, "passthrough", "vf:2")
PLACES = (GPU, OTHER_GPU, FLEX, PciAddress(0, 3, 0, 1), PciAddress(0, 3, 0, 2))
#: layouts of GPU 0 and GPU 1: instances, vGPUs
LAYOUTS: tuple[tuple[PciAddress, tuple[str, ...], dict[str, int]], ...] = (
    (MDEV_GPU, (), {"A100-8C": 2}),
    (MDEV_GPU, ("1g.10gb", "2g.20gb"), {}),
    (VENDOR_GPU, ("1g.10gb", "1g.10gb"), {"A100X-1-10C": 2}),
    (VENDOR_GPU, (), {"A100X-8C": 3}),
    (VENDOR_GPU, (), {}),
)
#: what the kernel may refuse once
ERRORS: list[tuple[str, str, Exception]] = [
    *(("pci", name, PciWriteError("refused")) for name in sorted(PCI_WRITES)),
    ("vgpus", "create", VgpuAttributeError("refused")),
    ("vgpus", "create", VgpuNoRoomError("refused")),
]


class HostSide:
    """The part of one history that is about the host's devices."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        #: GPUs that layouts were applied to: their instances and modes are ours
        self.laid_out: set[PciAddress] = set()
        #: GPUs that somebody's vGPU may have lived on in an instance: a detach leaves their mode to it, and says so
        self.lived_on: set[PciAddress] = set()
        #: functions whose driver somebody changed by hand
        self.touched: set[PciAddress] = set()
        #: vGPUs and definitions of others
        self.foreign: set[str] = set()
        self.foreign_definitions: set[str] = set()
        self._count = 0

    def choose(self, world: World) -> tuple[str, Callable[[], object]]:
        """A verb in words, and what it does."""
        verbs = (
            self._create, self._create, self._change_vgpu, self._bind, self._unbind, self._make_vfs,
            self._layout, self._restore,
        )  # fmt: skip
        return self.choice.choice(verbs)(world)

    def _create(self, world: World) -> tuple[str, Callable[[], object]]:
        kind = self.choice.choice(TYPES)
        if kind.endswith("-1-10C"):
            self.lived_on.add(VENDOR_GPU if "A100X" in kind else MDEV_GPU)
        auto, define = self.choice.random() < 0.3, self.choice.random() < 0.3
        service = VgpuService(world.parts)
        if self.choice.random() < 0.2:
            return f"mdev define {kind}", lambda: service.define(type=kind, auto=auto)
        return (
            f"mdev create {kind} auto {auto} define {define}",
            lambda: service.create(type=kind, auto=auto, define=define),
        )

    def _change_vgpu(self, world: World) -> tuple[str, Callable[[], object]]:
        known = sorted(r.spec.uuid for r in world.vgpu_store.list_vgpus())
        known += sorted(d.key for d in world.vgpus.devices.values())
        service = VgpuService(world.parts)
        name = self.choice.choice(known or ["none"])
        verb = self.choice.choice(("delete", "delete", "stop", "start", "define", "adopt"))

        def act() -> None:
            getattr(service, verb)(vgpu=name)
            if verb == "adopt":
                self.foreign.discard(name)
                self.foreign_definitions.discard(name)

        return f"mdev {verb} {name}", act

    def _bind(self, world: World) -> tuple[str, Callable[[], object]]:
        place, persist = self.choice.choice(PLACES), self.choice.random() < 0.4
        service = PassthroughService(world.parts)
        return (
            f"passthrough bind {place} persist {persist}",
            lambda: service.bind(selector=str(place), persist=persist),
        )

    def _unbind(self, world: World) -> tuple[str, Callable[[], object]]:
        places = sorted(world.pci.bindings) or list(PLACES)
        place = self.choice.choice(places)
        service = PassthroughService(world.parts)
        return f"passthrough unbind {place}", lambda: service.unbind(selector=str(place))

    def _make_vfs(self, world: World) -> tuple[str, Callable[[], object]]:
        service = PassthroughService(world.parts)
        if self.choice.random() < 0.4:
            return "vf disable", lambda: service.disable_vfs(selector=str(FLEX))
        count, persist = self.choice.randint(1, 4), self.choice.random() < 0.4
        return (
            f"vf enable {count} persist {persist}",
            lambda: service.enable_vfs(selector=str(FLEX), count=count, persist=persist),
        )

    def _layout(self, world: World) -> tuple[str, Callable[[], object]]:
        place, instances, vgpus = self.choice.choice(LAYOUTS)
        self.laid_out.add(place)
        return (
            f"layout of {place}: {instances} {vgpus}",
            lambda: apply_layout(place, dict(vgpus), *instances)(world),
        )

    def _restore(self, world: World) -> tuple[str, Callable[[], object]]:
        early = self.choice.random() < 0.3
        return f"restore early {early}", lambda: restore(world.parts, early=early)

    def meddle(self, world: World) -> str:
        """Somebody else works on the host's devices; what he did."""
        whats = (self._remove_vgpu, self._add_vgpu, self._add_definition, self._change_driver)
        text = self.choice.choice(whats)(world)
        world.save()
        return text

    def _remove_vgpu(self, world: World) -> str:
        """mdevctl stop: it knows nothing of owners. One that a VM has open stays."""
        devices = [d for d in world.vgpus.devices.values() if not world.vgpus.list_holders(d)]
        if not devices:
            return "nothing"
        device = self.choice.choice(devices)
        world.vgpus.devices.pop(device.key)
        world.vgpus.inside.pop(device.key, None)
        self.foreign.discard(device.key)
        return f"vGPU {device.key} goes"

    def _add_vgpu(self, world: World) -> str:
        if len(world.vgpus.devices) >= world.vgpus.room:
            return "nothing"
        uuid = self._name()
        world.vgpus.devices[uuid] = VgpuDevice(uuid, "mtty", Framework.MDEV, MTTY.id, MTTY.name)
        self.foreign.add(uuid)
        return f"vGPU {uuid} comes"

    def _add_definition(self, world: World) -> str:
        uuid = self._name()
        world.vgpus.definitions["mtty", uuid] = VgpuDefinition(uuid, "mtty", MTTY.id)
        self.foreign_definitions.add(uuid)
        return f"definition {uuid} comes"

    def _name(self) -> str:
        self._count += 1
        return f"ffff0000-0000-4000-8000-{self._count:012x}"

    def _change_driver(self, world: World) -> str:
        place = self.choice.choice(PLACES)
        function = world.pci.functions.get(place)
        # a driver that lets go of the physical function takes the virtual ones along
        if function is None or function.vfs or world.pci._list_users(place):
            return "nothing"
        driver = self.choice.choice((None, "vfio-pci", "nvidia", "i915"))
        world.pci.functions[place] = replace(function, driver=driver)
        self.touched.add(place)
        return f"{place} to {driver}"

    def reboot(self) -> None:
        """Others' vGPUs are gone, drivers are as at boot."""
        self.foreign.clear()
        self.touched.clear()

    def clean(self, world: World) -> None:
        """As an administrator who wants nothing of all that any more."""
        vgpus, pci = VgpuService(world.parts), PassthroughService(world.parts)
        for record in world.vgpu_store.list_vgpus():
            vgpus.delete(vgpu=record.spec.uuid)
        for place, binding in list(world.pci.bindings.items()):
            there = place in world.pci.bindings
            if there and (binding.persist or binding.boot_id == world.pci.boot_id):
                pci.unbind(selector=str(place), confirmed=True)
        if world.pci.functions[FLEX].vfs or world.pci.settings:
            # without the host's driver nobody removes them
            world.pci.functions[FLEX] = replace(world.pci.functions[FLEX], driver="i915")
            pci.disable_vfs(selector=str(FLEX), confirmed=True)
        # an interrupted layout is undone before the next is planned
        world.recovery.recover(Policy())
        for place in sorted(self.laid_out):
            apply_layout(place, {})(world)

    def list_left(self, world: World) -> Iterator[str]:
        """What is left after that, and what of others is missing."""
        if left := world.vgpu_store.list_vgpus():
            yield f"vGPUs are remembered: {left}"
        if set(world.vgpus.devices) != self.foreign:
            yield f"vGPUs are {sorted(world.vgpus.devices)}, others' are {sorted(self.foreign)}"
        defined = {uuid for _, uuid in world.vgpus.definitions}
        if defined != self.foreign_definitions:
            yield f"definitions are {sorted(defined)}, others' {sorted(self.foreign_definitions)}"
        known: list[Binding | VfSetting] = [*world.pci.bindings.values()]
        known += world.pci.settings.values()
        # those of an earlier boot that were not to come back are nobody's
        if left := [k for k in known if k.persist or k.boot_id == world.pci.boot_id]:
            yield f"functions are remembered: {left}"
        expected = {f.address: f for f in (*make_functions(), *list_functions())}
        for place in expected.keys() | world.pci.functions.keys():
            if place not in self.touched and world.pci.functions.get(place) != expected.get(place):
                yield f"{place} is {world.pci.functions.get(place)}"
        overrides = {p: o for p, o in world.pci.overrides.items() if p not in self.touched}
        if overrides:
            yield f"driver_override is {overrides}"
