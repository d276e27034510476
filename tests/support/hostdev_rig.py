"""VMs on a fake host with devices to give: requests and the bench for them."""

from __future__ import annotations

from pathlib import Path

from tests.support.domains import UUID_PC, UUID_Q35
from tests.support.fake_host import FakeVgpus, make_functions
from tests.support.service import Bench, make_bench
from vgpumgr.domain.devices import Controller
from vgpumgr.domain.domain import Domain
from vgpumgr.model.request import AttachRequest

VM_OF = {"vm01": UUID_PC, "vm02": UUID_Q35}
PORT = Controller(type="pci", index=9, model="pcie-root-port")


def ask(profile: str = "passthrough", vm: str = "vm02", **more: object) -> AttachRequest:
    return AttachRequest(vm, profile, **more)  # type: ignore[arg-type]


def make(directory: Path, *, running: bool = False, **more: object) -> Bench:
    directory.mkdir(parents=True, exist_ok=True)
    bench = make_bench(
        directory,
        running=running,
        functions=make_functions(),
        vgpus=FakeVgpus(),
        **more,  # type: ignore[arg-type]
    )
    machine = bench.hypervisor.machines[UUID_Q35]
    for scope in ("config", "live"):
        domain: Domain | None = getattr(machine, scope)
        if domain is not None:
            bare = domain.changed(pci_hostdevs=(), controllers=(*domain.controllers, PORT))
            setattr(machine, scope, bare)
    return bench


def devices(bench: Bench, vm: str = "vm02", scope: str = "config") -> list[str]:
    domain: Domain | None = getattr(bench.hypervisor.machines[VM_OF[vm]], scope)
    return list(domain.own_aliases()) if domain else []
