"""A machine whose state is a file: GPUs, domains and channels that outlive whoever works on them.

Every change goes through a *point* before and after it, where the process may be killed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.support.boards import make_gpu
from tests.support.domains import PC, Q35, UUID_PC, UUID_Q35
from tests.support.fake_channels import FakeChannels
from tests.support.fake_host import FakePci, FakeVgpus, FakeVgpuStore, make_functions
from tests.support.fake_hypervisor import FakeHypervisor, Machine
from tests.support.fake_nvml import FakeNvml
from tests.support.service import FakeClock
from vgpumgr.daemon.attachments import AttachmentService
from vgpumgr.daemon.parts import Parts
from vgpumgr.daemon.recovery import Recovery
from vgpumgr.domain.devices import Controller
from vgpumgr.domain.document import document_digest
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm, VmState
from vgpumgr.domain.metadata import AttachmentNote, read_notes, write_notes
from vgpumgr.errors import HelperLateError
from vgpumgr.plan.record import AttachmentRecord
from vgpumgr.store.attachments import SqliteAttachments

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
    """NVML whose every change is saved; ``late`` names a call that gives no answer in time."""

    world: World
    late: str | None = None

    def _enter(self, name: str) -> None:
        super()._enter(name)

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in CHANGES:
            return value
        return lambda *arguments, **more: self._change(name, value, arguments, more)

    def _change(self, name: str, value: Any, arguments: Any, more: Any) -> Any:
        if name == self.late:
            self.late = None
            self.world.pending = (name, arguments, more)
            self.world.save()
            raise HelperLateError(f"{name} has not answered", cause="it still runs")
        self.world.point(f"before {name}")
        result = value(*arguments, **more)
        self.world.save()
        self.world.point(f"after {name}")
        return result

    def destroy_gpu_instance(self, gpu, gpu_instance_id):  # type: ignore[no-untyped-def]
        super().destroy_gpu_instance(gpu, gpu_instance_id)
        if not any(i.id > 100 for each in self.gpus.values() for i in each.instances):
            self._next = 100  # ids are used again, as by the driver


class SavedHypervisor(FakeHypervisor):
    """libvirt whose every change is saved."""

    world: World

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
        super().attach_device(uuid, xml, scope)
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

    def stop(self, channel_id: str) -> None:
        self.world.point("before stop")
        super().stop(channel_id)
        self.next_memory.pop(channel_id, None)
        self.world.save()
        self.world.point("after stop")

    def set_memory(self, channel_id: str, memory_bytes: int) -> None:
        self.world.point("before set_memory")
        super().set_memory(channel_id, memory_bytes)
        self.world.save()
        self.world.point("after set_memory")


#: changes of the bus and of vGPUs, and what is remembered of them
HOST_CHANGES = {
    "bind", "release", "set_vf_count", "save_binding", "forget_binding", "save_vf_setting",
    "forget_vf_setting", "create", "delete", "save_vgpu", "delete_vgpu",
}  # fmt: skip


class _Saved:
    """A part of the host whose every change is saved."""

    world: World

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in HOST_CHANGES:
            return value

        def change(*arguments: Any) -> Any:
            self.world.point(f"before {name}")
            result = value(*arguments)
            self.world.save()
            self.world.point(f"after {name}")
            return result

        return change


class SavedPci(_Saved, FakePci):
    """The PCI bus, and the file of bindings."""


class SavedVgpus(_Saved, FakeVgpus):
    """Mediated devices."""


class SavedVgpuStore(_Saved, FakeVgpuStore):
    """The file of vGPUs."""


class SavedStore(SqliteAttachments):
    """The real state file, with points around every write."""

    world: World

    def save_attachment(self, record: AttachmentRecord) -> None:
        self.world.point("before save")
        super().save_attachment(record)
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
        self.nvml = SavedNvml([])
        self.hypervisor = SavedHypervisor([])
        # only names: nobody listens there
        self.channels = SavedChannels(Path("/run/vgpumgr/channels"))
        self.store = SavedStore(root / "state" / "state.sqlite")
        self.pci, self.vgpus, self.vgpu_store = SavedPci(), SavedVgpus(), SavedVgpuStore()
        self.pci.hypervisor = self.vgpus.hypervisor = self.hypervisor
        host = (self.pci, self.vgpus, self.vgpu_store)
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
            pci=self.pci,
            vgpus=self.vgpus,
            vgpu_store=self.vgpu_store,
        )
        self.service = AttachmentService(self.parts)
        self.recovery = Recovery(self.parts)
        if (root / "world").exists():
            self._load()

    def list_late(self) -> list[str]:
        return [] if self.pending is None else ["process 4711 (a call)"]

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
        self.pci.functions = {f.address: f for f in make_functions()}
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
                )
                for m in self.hypervisor.machines.values()
            },
            "running": self.channels.running,
            "next_memory": self.channels.next_memory,
            "hello": self.channels.hello,
            "host": self.host(),
            "pending": self.pending,
            "changes": self.changes,
        }

    def _load(self) -> None:
        state = pickle.loads((self.root / "world").read_bytes())
        self.nvml.gpus, self.nvml._next = state["gpus"], state["next"]
        self.hypervisor.machines = {
            uuid: Machine(
                name,
                uuid,
                config and parse_domain(config),
                live and parse_domain(live),
                parse_notes(notes) if notes else (),
            )
            for uuid, (name, config, live, notes) in state["machines"].items()
        }
        self.channels.running = state["running"]
        self.channels.next_memory = state["next_memory"]
        self.channels.hello = state["hello"]
        functions, bindings, settings, overrides, devices, records = state["host"]
        self.pci.functions, self.pci.bindings = functions, bindings
        self.pci.settings, self.pci.overrides = settings, overrides
        self.vgpus.devices, self.vgpu_store.records = devices, records
        self.pending, self.changes = state["pending"], state["changes"]

    def finish_late(self, *, takes_effect: bool) -> None:
        """The late call comes back at last."""
        name, arguments, more = self.pending
        self.pending = None
        if takes_effect:
            getattr(FakeNvml, name)(self.nvml, *arguments, **more)
        self.save()

    def reboot(self) -> None:
        """Instances, keepers and running machines are gone; modes and definitions stay."""
        for uuid, gpu in self.nvml.gpus.items():
            self.nvml.gpus[uuid] = replace(gpu, instances=())
        self.channels.running.clear()
        for machine in list(self.hypervisor.machines.values()):
            machine.live = None
        self.pending = None
        self.save()

    def host(self) -> tuple[dict[Any, Any], ...]:
        """The PCI bus, vGPUs, and what is remembered of them."""
        pci = self.pci
        known = (pci.functions, pci.bindings, pci.settings, pci.overrides)
        return tuple(map(dict, (*known, self.vgpus.devices, self.vgpu_store.records)))

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
        return {**self.hardware(), "records": self.store.list_attachments()}
