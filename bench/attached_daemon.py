"""A daemon on a simulated machine whose VMs have slices: NVML, keepers and workers are the simulated
machine's, libvirt is in memory. ``python -m bench.attached_daemon DIRECTORY COUNT [--attach]``.

``--attach`` gives every VM its slice, writes the VMs down for the daemons that follow, and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.domains import PC
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_hypervisor import Machine as Vm
from vgpumgr.app.application import Application
from vgpumgr.app.context import Parts, list_late_processes
from vgpumgr.app.metrics import MetricsService
from vgpumgr.app.metrics_source import MetricsCache, MetricsSource
from vgpumgr.domain.domain import Domain
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.host.statistics import open_statistics
from vgpumgr.nvml.client import NvmlClient, read_machine_inventory
from vgpumgr.server.server import _listen, _only_daemon, serve
from vgpumgr.state.store import Store
from vgpumgr.virtio.keeper import KeeperChannels

PROFILE = "1g.10gb"


def make_vms(count: int) -> list[Vm]:
    """VMs that are shut off, each with a name and a UUID of its own."""
    template = Domain.from_xml(PC)
    names = [(f"vm{n:03}", f"00000000-0000-4000-9000-{n:012}") for n in range(count)]
    return [Vm(name, uuid, template.changed(name=name, uuid=uuid)) for name, uuid in names]


@contextmanager
def open_application(machine: Machine, hypervisor: FakeHypervisor) -> Iterator[Application]:
    """The application, with everything real but libvirt."""
    store = Store(machine.state_dir / "state.sqlite")
    clock = SystemClock()
    with NvmlClient(machine) as nvml:
        parts = Parts(
            nvml=nvml,
            read_inventory=lambda: read_machine_inventory(nvml, machine),
            hypervisor=hypervisor,
            channels=KeeperChannels(machine),
            store=store,
            clock=clock,
            state_dir=machine.state_dir,
            run_dir=machine.run_dir,
            boot_id="bench",
            is_privileged=True,
            list_late=lambda: list_late_processes(machine),
        )
        late = LateRecords(machine.run_dir)
        source = MetricsSource(parts.read_inventory, store, parts.channels, late)
        cache = MetricsCache(source.observe, clock)
        metrics = MetricsService(cache.read, open_statistics(machine.run_dir))
        yield Application(machine, parts, metrics)


def main() -> None:
    """Attach, or serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--attach", action="store_true")
    options = parser.parse_args()
    machine = find_machine("dgx-a100")
    path = options.directory / "vms.pickle"
    if options.attach:
        vms = make_vms(options.count)
        with open_application(machine, FakeHypervisor(vms)) as application:
            for vm in vms:
                application.attach(vm=vm.name, profile=PROFILE)
        path.write_bytes(pickle.dumps(vms))
        return
    vms = pickle.loads(path.read_bytes()) if path.exists() else make_vms(options.count)
    hypervisor = FakeHypervisor(vms)
    with _only_daemon(machine), _listen(machine) as listener:
        asyncio.run(serve(machine, listener, lambda: open_application(machine, hypervisor)))


if __name__ == "__main__":
    main()
