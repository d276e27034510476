"""A daemon for the page's tests: ``python -m tests.web.page_daemon ROOT NAME VM...``.

The simulated machine NAME runs below ROOT, with the simulator's NVML and genuine keepers; one that runs there already
is served as it is. libvirt is a fake in memory with VMs of these names. While ROOT/down exists SIGTERM ends only the
serving, and it begins again when the file is removed: a restart that the VMs outlive. Other files below ROOT say what
libvirt does: ``refuse`` (no answer), ``hold`` (a device waits), ``strip`` (vm01 loses its devices).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tests.support.domains import PC, UUID_PC
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_hypervisor import Machine as FakeVm
from vgpumgr.app.application import Application, open_application
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.errors import LibvirtDownError
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.server.access import Access
from vgpumgr.server.server import _listen, _only_daemon, serve
from vgpumgr.sim.fuse import write_snapshot
from vgpumgr.sim.machine import create_machine, load_machine, machine_directory, machine_env
from vgpumgr.sim.pcibus import PciBus
from vgpumgr.sim.tree import MachineTree

#: a name that is markup: what writes names as HTML would run it
MARKUP = "<img src=x onerror=alert(1)>"
#: names that every object of JavaScript has a value for, and one that a command takes for an option
OBJECTS = ("constructor", "__proto__", "toString", "valueOf")
OPTION = "--all"
#: groups that this host need not have
ADMINISTRATORS, READERS = 47001, 47002
GROUPS = Access(frozenset({os.geteuid()}), ADMINISTRATORS, READERS)
NAMES = ("vm01", "vm02", "vm03", MARKUP, *OBJECTS, OPTION)


class Hypervisor(FakeHypervisor):
    """One that files can hold, stop and make forget."""

    def __init__(self, machines: list[FakeVm], root: Path) -> None:
        super().__init__(machines)
        self._root = root

    def list_vms(self) -> tuple[Vm, ...]:
        if (self._root / "refuse").exists():
            raise LibvirtDownError("libvirt does not answer", cause="test: no socket")
        if (self._root / "strip").exists():
            vm = next(iter(self.machines.values()))
            assert vm.config is not None
            kept = Domain.from_xml(PC.replace(UUID_PC, vm.uuid))
            vm.config = vm.config.changed(shmems=kept.shmems, channels=kept.channels)
            (self._root / "strip").unlink()
        return super().list_vms()

    def attach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        while (self._root / "hold").exists():
            time.sleep(0.05)
        super().attach_device(uuid, xml, scope)


def main() -> None:
    """Serve until it is killed."""
    root, name, *vms = Path(sys.argv[1]), *sys.argv[2:]
    if not machine_directory(name).exists():
        directory = create_machine(name)
        tree = MachineTree(PciBus.of(load_machine(name).functions()), {}, {})
        write_snapshot(tree.root(), directory / "root")
    os.environ.update(machine_env(name))
    hypervisor = Hypervisor(make_vms(vms), root)

    @contextmanager
    def open_fake(_machine: Machine) -> Iterator[FakeHypervisor]:
        yield hypervisor

    with mock.patch("vgpumgr.app.context._open_hypervisor", open_fake):
        _serve_again(find_machine(name), root / "down")


def make_vms(names: Sequence[str]) -> list[FakeVm]:
    """VMs that are shut off."""
    uuids = [UUID_PC[:-1] + str(number) for number in range(len(names))]
    return [
        FakeVm(name, uuid, Domain.from_xml(PC.replace(UUID_PC, uuid)))
        for name, uuid in zip(names, uuids, strict=True)
    ]


def _serve_again(machine: Machine, down: Path) -> None:
    @contextmanager
    def open_one() -> Iterator[Application]:
        with open_application(machine.name) as application:
            yield application

    while True:
        with _only_daemon(machine), _listen(machine) as listener:
            asyncio.run(serve(machine, listener, open_one, GROUPS))
        if not down.exists():
            return
        while down.exists():
            time.sleep(0.05)


if __name__ == "__main__":
    main()
