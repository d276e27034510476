"""Which driver of VFIO's a function gets for a VM: bind and attach choose alike; detach gives back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.domains import UUID_Q35
from tests.support.fake_host import AUDIO, FLEX, GPU, VARIANT
from tests.support.hostdev_rig import ask, make
from tests.support.service import Bench
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.app.operations.restore import restore
from vgpumgr.domain.libvirt import LibvirtHypervisor
from vgpumgr.model.pci import VFIO, PciAddress


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """The kernel has a driver of its own for the first GPU."""
    made = make(tmp_path)
    made.pci.variants = {GPU: VARIANT}
    return made


def drivers(bench: Bench, *addresses: PciAddress) -> list[str | None]:
    return [bench.pci.functions[address].driver for address in addresses]


def test_attach_chooses_as_bind_does_and_detach_gives_back(bench: Bench) -> None:
    before = bench.snapshot()
    planned = PassthroughService(bench.service.parts).bind(selector=str(GPU), dry_run=True)
    asked = ask(gpu=str(GPU))
    plan = bench.service.attach(asked, dry_run=True).plan
    why = f"{GPU} goes to {VARIANT}: the kernel has it for this device (modules.alias)"
    assert why in plan.notes
    assert why in planned.notes
    tell = f"give {GPU} from nvidia to {VARIANT}"
    assert tell in [step.description for step in planned.steps]
    assert tell in [step.description for step in plan.steps]
    bench.service.attach(asked)
    assert drivers(bench, GPU, AUDIO) == [VARIANT, VFIO]
    config = bench.hypervisor.machines[UUID_Q35].config
    assert config is not None
    assert [device.managed for device in config.pci_hostdevs] == [False, False]
    bench.service.detach("vm02")
    assert bench.snapshot() == before
    assert drivers(bench, GPU, AUDIO) == ["nvidia", "snd_hda_intel"]


@pytest.mark.parametrize("forgotten", [False, True])
def test_the_driver_of_before_comes_back_after_a_boot(bench: Bench, forgotten: bool) -> None:
    """Restored at the same driver; what is remembered of the binding may be lost."""
    bench.service.attach(ask(gpu=str(GPU)))
    bench.pci.boot_id = "boot-2"
    for address, driver in ((GPU, "nvidia"), (AUDIO, "snd_hda_intel")):
        bench.pci.functions[address] = replace(bench.pci.functions[address], driver=driver)
    bench.pci.overrides.clear()
    parts = replace(bench.service.parts, boot_id="boot-2")
    assert restore(parts).problems == []
    assert drivers(bench, GPU, AUDIO) == [VARIANT, VFIO]
    if forgotten:
        bench.pci.bindings.clear()
    bench.service.detach("vm02")
    assert drivers(bench, GPU, AUDIO) == ["nvidia", "snd_hda_intel"]


def test_what_was_to_come_back_at_a_boot_stays_bound_though_a_vm_has_it_first(bench: Bench) -> None:
    """Attached and detached between a boot and ``restore``."""
    PassthroughService(bench.service.parts).bind(selector=str(GPU), persist=True, confirmed=True)
    bench.pci.boot_id = "boot-2"
    bench.pci.functions[GPU] = replace(bench.pci.functions[GPU], driver="nvidia")
    bench.pci.functions[AUDIO] = replace(bench.pci.functions[AUDIO], driver="snd_hda_intel")
    bench.pci.overrides.clear()
    service = AttachmentService(replace(bench.service.parts, boot_id="boot-2"))
    service.attach(ask(gpu=str(GPU)))
    service.detach("vm02")
    assert drivers(bench, GPU) == [VARIANT]
    assert [b.persist for b in bench.pci.bindings.values() if b.address == GPU] == [True]


def test_an_old_libvirt_gets_the_one_driver_that_it_takes(bench: Bench) -> None:
    bench.hypervisor.variant_drivers = False
    done = bench.service.attach(ask(gpu=str(GPU)))
    assert drivers(bench, GPU, AUDIO) == [VFIO, VFIO]
    (told,) = (note for note in done.plan.notes if VARIANT in note)
    assert told.endswith("takes no other driver than vfio-pci (10.0 and later do)")


def test_what_was_bound_before_keeps_its_driver(bench: Bench) -> None:
    PassthroughService(bench.service.parts).bind(selector=str(GPU), driver=VFIO, confirmed=True)
    bench.service.attach(ask(gpu=str(GPU)))
    assert drivers(bench, GPU, AUDIO) == [VFIO, VFIO]
    bench.service.detach("vm02")
    assert drivers(bench, GPU) == [VFIO], "attach did not take it"


@pytest.mark.parametrize(("takes", "driver"), [(True, VARIANT), (False, VFIO)])
@pytest.mark.parametrize("there", [True, False])
def test_virtual_functions_choose_likewise(
    bench: Bench, there: bool, takes: bool, driver: str
) -> None:
    """Also one that the attach makes: its device is known once it is there."""
    bench.hypervisor.variant_drivers = takes
    if there:
        bench.pci.set_vf_count(FLEX, 2)
    first = bench.pci.functions[FLEX].locate_vf(0)
    assert first is not None
    bench.pci.variants = {first: VARIANT}
    before = bench.snapshot()
    done = bench.service.attach(ask("vf", gpu=str(FLEX)))
    assert done.plan.result["devices"] == [str(first)]
    assert drivers(bench, first) == [driver]
    bench.service.detach("vm02")
    assert bench.snapshot() == before


@pytest.mark.parametrize(("version", "takes"), [(9_000_000, False), (10_000_000, True)])
def test_libvirts_version_tells(version: int, takes: bool) -> None:
    hypervisor = LibvirtHypervisor("test:///default")
    hypervisor._connection = SimpleNamespace(getLibVersion=lambda: version)
    assert hypervisor.takes_variant_drivers() is takes
