"""The attachment service on fakes alone: quick, and every part fails on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.boards import make_gpu
from tests.support.clock import FakeClock
from tests.support.domains import FULL, PC, Q35, UUID_PC, UUID_Q35
from tests.support.fake_channels import FakeChannels
from tests.support.fake_host import FakePci, FakeVgpus, FakeVgpuStore
from tests.support.fake_hypervisor import FakeHypervisor, Machine
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.context import Parts
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.domain.domain import Domain
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.pci import Function
from vgpumgr.state.store import Store

UUID_FULL = "33333333-3333-4333-8333-333333333333"


@dataclass
class Bench:
    """All parts, and the service on them."""

    nvml: FakeNvml
    channels: FakeChannels
    hypervisor: FakeHypervisor
    store: Store
    service: AttachmentService
    state_dir: Path
    pci: FakePci
    vgpus: FakeVgpus
    vgpu_store: FakeVgpuStore

    @property
    def gpu(self) -> Gpu:
        """The first GPU as it is now."""
        return next(iter(self.nvml.gpus.values()))

    def snapshot(self) -> object:
        """All that a roll-back must restore. Ids that the fake driver counts up do not matter."""
        return (
            {
                u: (g.mig, [(i.profile, i.placement) for i in g.instances])
                for u, g in self.nvml.gpus.items()
            },
            self.hypervisor.snapshot(),
            set(self.channels.running),
            self.store.list_attachments(),
            self.pci.snapshot(),
            dict(self.vgpus.devices),
            dict(self.vgpu_store.records),
        )


def make_bench(
    directory: Path,
    gpus: Sequence[Gpu] = (),
    *,
    running: bool = False,
    privileged: bool = True,
    functions: Sequence[Function] = (),
    vgpus: FakeVgpus | None = None,
) -> Bench:
    """vm01 (i440fx), vm02 (q35), vm03 (i440fx, full), on the GPUs (default: one A100 without MIG mode)."""
    nvml = FakeNvml(gpus or [make_gpu(layout=None)])
    pc, q35 = Domain.from_xml(PC), Domain.from_xml(Q35).changed(mdev_hostdevs=())
    full = Domain.from_xml(FULL).changed(name="vm03", uuid=UUID_FULL)
    hypervisor = FakeHypervisor(
        [
            Machine("vm01", UUID_PC, pc, pc if running else None),
            Machine("vm02", UUID_Q35, q35, q35 if running else None),
            Machine("vm03", UUID_FULL, full),
        ]
    )
    channels = FakeChannels(directory / "channels")
    store = Store(directory / "state.sqlite")
    pci, vgpus, vgpu_store = FakePci(functions), vgpus or FakeVgpus(room=0), FakeVgpuStore()
    pci.hypervisor = vgpus.hypervisor = hypervisor
    parts = Parts(
        nvml=nvml,
        read_inventory=nvml.read_inventory,
        hypervisor=hypervisor,
        channels=channels,
        store=store,
        clock=FakeClock(),
        state_dir=directory / "state",
        run_dir=directory / "run",
        boot_id="test",
        is_privileged=privileged,
        pci=pci,
        vgpus=vgpus,
        vgpu_store=vgpu_store,
    )
    service, state_dir = AttachmentService(parts), directory / "state"
    return Bench(nvml, channels, hypervisor, store, service, state_dir, pci, vgpus, vgpu_store)
