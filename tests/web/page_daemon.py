"""A daemon for the page's tests: ``python -m tests.web.page_daemon ROOT NAME [FILE]``.

The simulated machine NAME runs below ROOT with the simulator's NVML and genuine keepers; libvirt is a fake in memory with four VMs.
While ROOT/down exists SIGTERM ends only the serving, and it begins again when the file is removed: a restart that the VMs outlive.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from tests.support.attached_machine import Attached, make_scene
from tests.support.domains import PC, UUID_PC
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_hypervisor import Machine as FakeVm
from vgpumgr.domain.domain import Domain
from vgpumgr.host.machine import find_machine
from vgpumgr.nvml.client import NvmlClient
from vgpumgr.server.server import _listen, _only_daemon, serve
from vgpumgr.sim.fuse import write_snapshot
from vgpumgr.sim.machine import create_machine, load_machine, read_machine
from vgpumgr.sim.pcibus import PciBus
from vgpumgr.sim.tree import MachineTree

#: a name that is markup: what writes names as HTML would run it
MARKUP = "<img src=x onerror=alert(1)>"
NAMES = ("vm01", "vm02", "vm03", MARKUP)


def main() -> None:
    """Serve until it is killed."""
    root, name = Path(sys.argv[1]), sys.argv[2]
    data = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    directory = create_machine(name, data)
    definition = read_machine(data, name) if data else load_machine(name)
    write_snapshot(
        MachineTree(PciBus.of(definition.functions()), {}, {}).root(), directory / "root"
    )
    machine = find_machine(name)
    with NvmlClient(machine) as nvml:
        _serve_again(make_scene(machine, nvml, FakeHypervisor(make_vms())), root / "down")


def make_vms() -> list[FakeVm]:
    """Four that are shut off."""
    uuids = [UUID_PC[:-1] + str(number) for number in range(len(NAMES))]
    return [
        FakeVm(name, uuid, Domain.from_xml(PC.replace(UUID_PC, uuid)))
        for name, uuid in zip(NAMES, uuids, strict=True)
    ]


def _serve_again(scene: Attached, down: Path) -> None:
    with _only_daemon(scene.machine):
        while True:
            with _listen(scene.machine) as listener:
                asyncio.run(
                    serve(scene.machine, listener, lambda: nullcontext(scene.application))
                )
            if not down.exists():
                return
            while down.exists():
                time.sleep(0.05)


if __name__ == "__main__":
    main()
