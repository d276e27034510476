"""A simulated DGX A100 on which VMs have slices: the simulator's NVML, genuine keepers and workers; libvirt is ours."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.domains import PC, Q35, UUID_PC, UUID_Q35
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_hypervisor import Machine as FakeVm
from vgpumgr.app.application import Application
from vgpumgr.app.context import Parts
from vgpumgr.app.metrics import MetricsService
from vgpumgr.app.metrics_source import MetricsCache, MetricsSource, count_drift
from vgpumgr.domain.domain import Domain
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.host.statistics import open_statistics
from vgpumgr.model.health import GpuEvent
from vgpumgr.nvml.client import NvmlClient, complete_inventory, read_machine_inventory
from vgpumgr.sim.fuse import write_snapshot
from vgpumgr.sim.machine import create_machine, load_machine
from vgpumgr.sim.pcibus import PciBus
from vgpumgr.sim.tree import MachineTree
from vgpumgr.state.store import Store
from vgpumgr.virtio.keeper import KeeperChannels


@dataclass
class Attached:
    """The machine with its application."""

    machine: Machine
    hypervisor: FakeHypervisor
    application: Application

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """An operation's document as plain data."""
        document = getattr(self.application, operation)(**params)
        data: dict[str, Any] = document.as_data()
        return data


@contextmanager
def attached_machine() -> Iterator[Attached]:
    """vm01 has 1g.10gb, vm02 has 3g.40gb; one attachment failed and was undone, one VM was detached."""
    with machine_of_vms() as scene:
        application, vms = scene.application, ("vm01", "vm02")
        try:
            application.attach(vm="vm01", profile="1g.10gb")
            application.detach(vm="vm01")
            scene.hypervisor.fail["attach_device config"] = VgpumgrError("refused")
            try:
                application.attach(vm="vm01", profile="1g.10gb")
            except VgpumgrError as error:
                assert error.id != "VG190", error
            application.attach(vm="vm01", profile="1g.10gb")
            application.attach(vm="vm02", profile="3g.40gb")
            gpu = application.parts.read_inventory().gpus[0]
            application.parts.store.save_event(GpuEvent(gpu.pci, gpu.uuid, xid=31), now_s=1.0)
            yield scene
        finally:
            for vm in vms:
                application.detach(vm=vm)


@contextmanager
def machine_of_vms() -> Iterator[Attached]:
    """vm01 and vm02 are shut off and have nothing; what a test attaches it detaches."""
    # short: the paths of sockets are limited
    with tempfile.TemporaryDirectory(prefix="vgm") as directory:
        with mock.patch.dict(os.environ, VGPUMGR_SIM_ROOT=directory):
            machine_dir = create_machine("dgx-a100")
            bus = PciBus.of(load_machine("dgx-a100").functions())
            write_snapshot(MachineTree(bus, {}, {}).root(), machine_dir / "root")
            machine = find_machine("dgx-a100")
        with NvmlClient(machine) as nvml:
            yield _make_scene(machine, nvml)


def _make_scene(machine: Machine, nvml: NvmlClient) -> Attached:
    hypervisor = FakeHypervisor(
        [
            FakeVm("vm01", UUID_PC, Domain.from_xml(PC)),
            FakeVm("vm02", UUID_Q35, Domain.from_xml(Q35).changed(mdev_hostdevs=())),
        ]
    )
    store = Store(Path(machine.state_dir) / "state.sqlite", "test")
    parts = Parts(
        nvml=nvml,
        read_inventory=lambda: read_machine_inventory(nvml, machine),
        complete_inventory=lambda inventory: complete_inventory(inventory, machine),
        hypervisor=hypervisor,
        channels=KeeperChannels(machine),
        store=store,
        clock=SystemClock(),
        state_dir=machine.state_dir,
        run_dir=machine.run_dir,
        boot_id="test",
        is_privileged=True,
    )
    source = MetricsSource(
        parts.read_inventory,
        store,
        parts.channels,
        LateRecords(machine.run_dir),
        partial(count_drift, parts),
        drains=store,
    )
    cache = MetricsCache(source.observe, parts.clock)
    metrics = MetricsService(cache.read, open_statistics(machine.run_dir), "host1")
    return Attached(machine, hypervisor, Application(machine, parts, metrics))
