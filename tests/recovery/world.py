"""A machine whose state is a file: GPUs, domains and channels that outlive whoever works on them.

Every change goes through a *point* before and after it, where the process may be killed.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tests.recovery.vgpu_host import FrameworkVgpus, list_functions
from tests.support.boards import make_gpu
from tests.support.domains import PC, Q35, UUID_PC, UUID_Q35
from tests.support.fake_channels import FakeChannels
from tests.support.fake_host import FakePci, make_functions
from tests.support.fake_hypervisor import FakeHypervisor, Machine
from tests.support.fake_nvml import FakeNvml
from tests.support.service import FakeClock
from vgpumgr.app.context import Parts
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.app.operations.recovery import Recovery
from vgpumgr.domain.declare import document_digest
from vgpumgr.domain.devices import Controller
from vgpumgr.domain.domain import AttachmentNote, Domain, read_notes, write_notes
from vgpumgr.domain.hypervisor import Scope, Vm, VmState
from vgpumgr.errors import HelperLateError, LibvirtDownError, NvmlInUseError, VgpumgrError
from vgpumgr.host.machine import Machine as HostMachine
from vgpumgr.model.attachment import AttachmentRecord, ClaimPart
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, MigModeChange, Placement
from vgpumgr.pool.leases import PoolLeases
from vgpumgr.state.leases import ClaimUser
from vgpumgr.state.store import STATE_FILE, Store

UUID_BARE = "44444444-4444-4444-8444-444444444444"
#: no virtio-serial controller: libvirt adds one for our device
BARE = f"""<domain type='kvm'><name>vm03</name><uuid>{UUID_BARE}</uuid>
  <memory unit='KiB'>1048576</memory>
  <os><type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type></os>
  <devices><controller type='pci' index='0' model='pci-root'/></devices></domain>"""
CHANGES = {
    "set_mig_mode",
    "create_gpu_instance",
    "create_compute_instance",
    "destroy_compute_instance",
    "destroy_gpu_instance",
}
Point = Callable[[str], None]


def no_point(_name: str) -> None:
    """Nobody is killed."""


@lru_cache(maxsize=4096)
def parse_domain(xml: str) -> Domain:
    return Domain.from_xml(xml)


@lru_cache(maxsize=4096)
def parse_notes(xml: str) -> tuple[AttachmentNote, ...]:
    return read_notes(xml)


_RENDERED: dict[int, tuple[Domain, str, str]] = {}


def render(domain: Domain) -> tuple[str, str]:
    """Document and digest of a definition, made once for each: they are values."""
    known = _RENDERED.get(id(domain))
    if known is None or known[0] is not domain:
        if len(_RENDERED) > 2000:
            _RENDERED.clear()
        xml = domain.to_xml()
        known = _RENDERED[id(domain)] = (domain, xml, document_digest(xml))
    return known[1], known[2]


class SavedNvml(FakeNvml):
    """NVML whose every change is saved; what a vGPU lives in, or on, stays."""

    world: World

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in CHANGES:
            return value
        return self.world.wrap("nvml", name, value)

    def set_mig_mode(self, gpu: GpuUuid, enabled: bool) -> MigModeChange:
        if self.world.vgpus.is_occupied(gpu):
            raise NvmlInUseError("vGPUs are on it")
        return super().set_mig_mode(gpu, enabled)

    def create_compute_instance(
        self, gpu: GpuUuid, gpu_instance_id: int, slices: int, placement: Placement | None = None
    ) -> ComputeInstance:
        """Where nobody says the place, the driver takes the first that is free."""
        if placement is None:
            taken = [c.placement for c in self._get(gpu, gpu_instance_id).compute_instances]
            places = (Placement(start, slices) for start in range(8))
            placement = next(p for p in places if not any(t and p.overlaps(t) for t in taken))
        return super().create_compute_instance(gpu, gpu_instance_id, slices, placement)

    def destroy_compute_instance(
        self, gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int
    ) -> None:
        if self.world.vgpus.is_occupied(gpu, gpu_instance_id):
            raise NvmlInUseError("a vGPU is in it")
        super().destroy_compute_instance(gpu, gpu_instance_id, compute_instance_id)

    def destroy_gpu_instance(self, gpu: GpuUuid, gpu_instance_id: int) -> None:
        super().destroy_gpu_instance(gpu, gpu_instance_id)
        if not any(i.id > 100 for each in self.gpus.values() for i in each.instances):
            self._next = 100  # ids are used again, as by the driver


#: everything that libvirt is asked for
LIBVIRT_CALLS = {"list_vms", "read_vm", "read_again", "attach_device", "detach_device", "set_notes"}


class SavedHypervisor(FakeHypervisor):
    """libvirt whose every change is saved; the connection may be lost at any call."""

    world: World
    #: calls so far; the one at which the connection is lost
    asked = 0
    cut_at: int | None = None
    #: lost once the call has had its effect, and for the rest of the process
    cut_late = False
    stays_down = False
    #: the running machine has got the device, and libvirt that starts anew does not know of it
    forgets = False

    def __init__(self, machines: Sequence[Machine]) -> None:
        super().__init__(machines)
        #: the calls that gave a running machine a device of the host
        self.plugged: list[int] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return partial(self._ask, value) if name in LIBVIRT_CALLS else value

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.asked += 1
        is_cut = self.asked == self.cut_at
        is_down = self.stays_down and self.cut_at is not None and self.asked > self.cut_at
        if is_down or (is_cut and not self.cut_late):
            raise LibvirtDownError("libvirt does not answer", cause="the connection is lost")
        result = call(*arguments)
        if is_cut:
            raise LibvirtDownError("libvirt has not answered", cause="the connection is lost")
        return result

    def _vm(self, machine: Machine) -> Vm:
        shown = machine.config or machine.live
        assert shown is not None
        return Vm(
            name=machine.name,
            uuid=machine.uuid,
            state=VmState.RUNNING if machine.live else VmState.SHUT_OFF,
            live=machine.live,
            config=machine.config,
            digest=render(shown)[1],
            notes=machine.notes,
        )

    def attach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        self.world.point(f"before attach_device {scope}")
        if scope is Scope.LIVE and "<hostdev" in xml:
            self.plugged.append(self.asked)
        before = self.machines[uuid].live
        super().attach_device(uuid, xml, scope)
        if self.forgets and self.asked == self.cut_at:
            machine = self.machines[uuid]
            machine.unseen, machine.live = machine.live, before
        config = self.machines[uuid].config
        needs = scope is Scope.CONFIG and "<channel" in xml and config is not None
        if needs and config is not None and not config.has_serial_controller:
            added = (*config.controllers, Controller(type="virtio-serial", index=0))
            config = Domain.from_xml(config.changed(controllers=added).to_xml())
            self.machines[uuid].config = config
        self.world.save()
        self.world.point(f"after attach_device {scope}")

    def detach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        self.world.point(f"before detach_device {scope}")
        super().detach_device(uuid, xml, scope)
        self.world.save()
        self.world.point(f"after detach_device {scope}")

    def set_notes(self, uuid: str, notes: Sequence[AttachmentNote], scope: Scope) -> None:
        self.world.point("before set_notes")
        text = write_notes(notes)
        super().set_notes(uuid, read_notes(text) if text else (), scope)
        self.world.save()
        self.world.point("after set_notes")


class SavedChannels(FakeChannels):
    """Keepers that outlive their starter."""

    world: World

    def start(self, spec: Any) -> None:
        self.world.point("before start")
        super().start(spec)
        self.world.save()
        self.world.point("after start")

    def restart_worker(self, channel_id: str) -> None:
        self.world.point("before restart")
        super().restart_worker(channel_id)
        self.world.save()
        self.world.point("after restart")

    def stop(self, channel_id: str, *, keeps_sockets: bool = False) -> None:
        self.world.point("before stop")
        super().stop(channel_id, keeps_sockets=keeps_sockets)
        self.next_memory.pop(channel_id, None)
        self.world.save()
        self.world.point("after stop")

    def set_share(self, channel_id: str, memory_bytes: int, compute: float, priority: str) -> None:
        self.world.point("before set_share")
        super().set_share(channel_id, memory_bytes, compute, priority)
        self.world.save()
        self.world.point("after set_share")

    def set_memory(self, channel_id: str, memory_bytes: int) -> None:
        self.world.point("before set_memory")
        super().set_memory(channel_id, memory_bytes)
        self.world.save()
        self.world.point("after set_memory")


#: writes to the kernel, which may not return
PCI_WRITES = {"bind", "release", "set_vf_count"}
VGPU_WRITES = {"create", "delete"}
#: what is remembered beside these
MEMORIES = {
    "save_binding", "forget_binding", "save_vf_setting", "forget_vf_setting", "save_vgpu",
    "delete_vgpu", "write_definition", "remove_definition",
}  # fmt: skip


class _Saved:
    """A part of the host whose every change is saved."""

    world: World
    part: str
    writes: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in MEMORIES:
            return self.world.wrap(None, name, value)
        if name in object.__getattribute__(self, "writes"):
            return self.world.wrap(object.__getattribute__(self, "part"), name, value)
        return value


class SavedPci(_Saved, FakePci):
    """The PCI bus, and the file of bindings."""

    part, writes = "pci", frozenset(PCI_WRITES)


class SavedVgpus(_Saved, FrameworkVgpus):
    """vGPUs of both frameworks."""

    part, writes = "vgpus", frozenset(VGPU_WRITES)


class SavedLeases(PoolLeases):
    """The real ones, on a pool's file beside the state file, with points around every change."""

    world: World

    def hold(self, part: ClaimPart, user: ClaimUser) -> None:
        self.world.point("before hold")
        super().hold(part, user)
        self.world.point("after hold")

    def release(self, part: ClaimPart, attachment: str) -> None:
        self.world.point("before release")
        super().release(part, attachment)
        self.world.point("after release")


class SavedStore(_Saved, Store):
    """The real state file, with points around every write."""

    def save_attachments(self, records: Sequence[AttachmentRecord]) -> None:
        self.world.point("before save")
        super().save_attachments(records)
        self.world.point("after save")

    def delete_attachment(self, attachment_id: str) -> None:
        self.world.point("before delete")
        super().delete_attachment(attachment_id)
        self.world.point("after delete")


class World:
    """The machine in ``root``: ``world`` is the hardware and libvirt, ``state`` is ours."""

    def __init__(self, root: Path, point: Point = no_point, boot_id: str = "boot-1") -> None:
        self.root = root
        self.point = point
        self.changes = 0
        self.pending: Any = None
        #: host writes so far; the number, or the name, of the one that does not return in time
        self.writes = 0
        self.late_at: int | str | None = None
        #: whoever waits for it is killed
        self.dies_when_late = False
        self.nvml = SavedNvml([])
        self.hypervisor = SavedHypervisor([])
        # only names: nobody listens there
        self.channels = SavedChannels(Path("/run/vgpumgr/channels"))
        self.store = SavedStore(root / "state" / "state.sqlite", boot_id)
        self.pci, self.vgpus = SavedPci(), SavedVgpus()
        self.pci.boot_id = boot_id
        self.vgpu_store = self.store
        self.pci.hypervisor = self.vgpus.hypervisor = self.hypervisor
        self.vgpus.gpus = self.nvml.gpus
        self.machine = HostMachine("world", root, root / "state", root / "run", "test:///default")
        self.leases = SavedLeases(self.machine)
        self.leases.world = self
        host = (self.pci, self.vgpus)
        for part in (self.nvml, self.hypervisor, self.channels, self.store, *host):
            part.world = self  # type: ignore[attr-defined]
        self.clock = FakeClock()
        self.parts = Parts(
            nvml=self.nvml,
            read_inventory=self.nvml.read_inventory,
            hypervisor=self.hypervisor,
            channels=self.channels,
            store=self.store,
            clock=self.clock,
            state_dir=root / "state",
            run_dir=root / "run",
            boot_id=boot_id,
            is_privileged=True,
            list_late=self.list_late,
            list_late_gpus=self.list_late_gpus,
            pci=self.pci,
            vgpus=self.vgpus,
            vgpu_store=self.vgpu_store,
            leases=self.leases,
        )
        self.service = AttachmentService(self.parts)
        self.recovery = Recovery(self.parts)
        if (root / "world").exists():
            self._load()

    def wrap(self, part: str | None, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call with points around it, after which all is saved; a part's write may not return."""

        def change(*arguments: Any, **more: Any) -> Any:
            if part is not None:
                self._count_write(part, name, arguments, more)
            self.point(f"before {name}")
            result = call(*arguments, **more)
            self.save()
            self.point(f"after {name}")
            return result

        return change

    def _count_write(self, part: str, name: str, arguments: Any, more: Any) -> None:
        self.writes += 1
        if self.late_at not in (self.writes, name) or self.pending is not None:
            return
        self.late_at = None
        self.pending = (part, name, arguments, more, self.dies_when_late)
        self.save()
        if self.dies_when_late:
            os.kill(os.getpid(), signal.SIGKILL)
        raise HelperLateError(f"{name} has not answered", cause="it still runs")

    def list_late(self) -> list[str]:
        if self.pending is None:
            return []
        _, name, arguments, _, orphaned = self.pending
        what = "a call of a command that was killed"
        return [f"process 4711 ({what if orphaned else ' '.join(map(str, (name, *arguments)))})"]

    def list_late_gpus(self) -> dict[str, str]:
        if self.pending is None or self.pending[0] != "nvml" or self.pending[4]:
            return {}
        return {str(self.pending[2][0]): self.list_late()[0]}

    def make(self, *, mig: bool, running: bool) -> None:
        """Two GPUs (with MIG mode, the first has a stranger's instance) and three VMs."""
        layout = [("2g.20gb", 4)] if mig else None
        for index in range(2):
            gpu = make_gpu(index=index, layout=layout if index == 0 else layout and ())
            self.nvml.gpus[gpu.uuid] = gpu
        pc, q35 = Domain.from_xml(PC), Domain.from_xml(Q35).changed(mdev_hostdevs=())
        for name, uuid, domain in (
            ("vm01", UUID_PC, pc),
            ("vm02", UUID_Q35, q35),
            ("vm03", UUID_BARE, Domain.from_xml(BARE)),
        ):
            live = domain if running else None
            self.hypervisor.machines[uuid] = Machine(name, uuid, domain, live)
        self.pci.functions = {f.address: f for f in (*make_functions(), *list_functions())}
        self.save()

    def save(self) -> None:
        """Writes all of it, so that a kill leaves the state before or after."""
        self.changes += 1
        self.root.mkdir(parents=True, exist_ok=True)
        temporary = self.root / "world.tmp"
        temporary.write_bytes(pickle.dumps(self._state()))
        temporary.replace(self.root / "world")

    def _state(self) -> dict[str, Any]:
        return {
            "gpus": self.nvml.gpus,
            "next": self.nvml._next,
            "machines": {
                m.uuid: (
                    m.name,
                    m.config and render(m.config)[0],
                    m.live and render(m.live)[0],
                    write_notes(m.notes),
                    m.unseen and render(m.unseen)[0],
                )
                for m in self.hypervisor.machines.values()
            },
            "running": self.channels.running,
            "next_memory": self.channels.next_memory,
            "shares": (
                self.channels.shares,
                self.channels.specs,
                self.channels.used,
                self.channels.priorities,
            ),
            "hello": self.channels.hello,
            "host": self.host(),
            "pending": self.pending,
            "changes": self.changes,
        }

    def _load(self) -> None:
        state = pickle.loads((self.root / "world").read_bytes())
        self.nvml.gpus, self.nvml._next = state["gpus"], state["next"]
        self.vgpus.gpus = self.nvml.gpus
        self.hypervisor.machines = {
            uuid: Machine(
                name,
                uuid,
                config and parse_domain(config),
                live and parse_domain(live),
                parse_notes(notes) if notes else (),
                unseen and parse_domain(unseen),
            )
            for uuid, (name, config, live, notes, unseen) in state["machines"].items()
        }
        self.channels.running = state["running"]
        self.channels.next_memory = state["next_memory"]
        self.channels.shares, self.channels.specs, self.channels.used, self.channels.priorities = (
            state["shares"]
        )
        self.channels.hello = state["hello"]
        functions, bindings, settings, overrides, devices, definitions, inside = state["host"]
        self.pci.functions, self.pci.bindings = functions, bindings
        self.pci.settings, self.pci.overrides = settings, overrides
        self.vgpus.devices, self.vgpus.definitions = devices, definitions
        self.vgpus.inside = inside
        self.pending, self.changes = state["pending"], state["changes"]

    def finish_late(self, *, takes_effect: bool) -> None:
        """The late call comes back at last."""
        part, name, arguments, more, _ = self.pending
        self.pending = None
        bases: dict[str, type] = {"nvml": SavedNvml, "pci": FakePci, "vgpus": FrameworkVgpus}
        with suppress(VgpumgrError):  # what it was about has gone
            if takes_effect:
                getattr(bases[part], name)(getattr(self, part), *arguments, **more)
        self.save()

    def reboot(self) -> None:
        """Instances, keepers, vGPUs and running machines are gone, and functions are with the host;
        modes, definitions and what is remembered stay.
        """
        for uuid, gpu in self.nvml.gpus.items():
            self.nvml.gpus[uuid] = replace(gpu, instances=())
        self.channels.running.clear()
        for machine in list(self.hypervisor.machines.values()):
            machine.live = machine.unseen = None
        self.vgpus.devices.clear()
        self.vgpus.inside.clear()
        self.pci.functions = {f.address: f for f in (*make_functions(), *list_functions())}
        self.pci.overrides.clear()
        self.pending = None
        self.save()

    def host(self) -> tuple[dict[Any, Any], ...]:
        """The PCI bus and vGPUs, with what is remembered of the bus."""
        pci, vgpus = self.pci, self.vgpus
        known = (pci.functions, pci.bindings, pci.settings, pci.overrides)
        return tuple(map(dict, (*known, vgpus.devices, vgpus.definitions, vgpus.inside)))

    def hardware(self) -> dict[str, Any]:
        """Everything outside of us, as comparable values."""
        state = self._state()
        running = {id_: replace(status, memory_bytes=0) for id_, status in state["running"].items()}
        return {
            "gpus": {
                uuid: (gpu.mig, gpu.instances, gpu.index) for uuid, gpu in state["gpus"].items()
            },
            "machines": state["machines"],
            "running": running,
            "host": state["host"],
        }

    def summary(self) -> dict[str, Any]:
        """Everything: hardware, libvirt, channels and what is recorded."""
        return {
            **self.hardware(),
            "records": self.store.list_attachments(),
            # their order is that of a boot; what is undone may come last
            "vgpus": {record.spec.uuid: record for record in self.vgpu_store.list_vgpus()},
            "layouts": read_layouts(self.root),
            "uses": {
                f"{use.part.name} {use.part.number}": use.user for use in self.leases.list_uses()
            },
        }


def read_layouts(root: Path) -> dict[str, Any]:
    """The remembered layouts, without when they were."""
    found = Store(root / "state" / STATE_FILE).read_layouts()
    return {uuid: replace(layout, saved_s=0.0) for uuid, layout in found.items()}
