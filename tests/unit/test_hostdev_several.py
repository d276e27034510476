"""Several host devices at once, near the VM's memory; devices that are gone; profiles nearly written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.domains import UUID_Q35
from tests.support.fake_host import AUDIO, FLEX, GPU, OTHER_GPU
from tests.support.hostdev_rig import ask, devices, make
from tests.support.service import Bench
from vgpumgr.app.application import Application
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.cli.gpu import render
from vgpumgr.domain.domain import Domain
from vgpumgr.errors import GpuLostError, LibvirtError, PciWriteError, VgpumgrError
from vgpumgr.host.machine import Machine
from vgpumgr.model.gpu import LostGpu
from vgpumgr.model.pci import VFIO, Function, PciAddress


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make(tmp_path)


# several at once


def test_two_whole_gpus_go_together_each_card_in_a_slot_of_its_own(bench: Bench) -> None:
    before = bench.snapshot()
    done = bench.service.attach(ask(count=2, gpu=None))
    assert [a.backend for a in done.attachments] == ["passthrough"] * 2
    assert done.plan.result["devices"] == [str(FLEX), str(GPU), str(AUDIO)]
    assert [seat["devices"] for seat in done.plan.result["seats"]] == [  # type: ignore[index,union-attr]
        [str(FLEX)],
        [str(GPU), str(AUDIO)],
    ]
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.config is not None
    slots = [(d.address.bus, d.address.function) for d in machine.config.pci_hostdevs if d.address]
    assert len(slots) == len(set(slots)) == 3
    assert slots[1][0] == slots[2][0] != slots[0][0]
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(count=2, add=True))
    assert caught.value.id == "VG481"
    assert "only 1 of 2 GPUs" in caught.value.error
    bench.service.detach("vm02", every=True)
    assert bench.snapshot() == before


def test_so_many_virtual_functions_are_made_as_are_needed(bench: Bench) -> None:
    before = bench.snapshot()
    done = bench.service.attach(ask("vf", count=3))
    assert done.plan.result["devices"] == [f"0000:03:00.{n}" for n in (1, 2, 3)]
    kinds = [step.kind for step in done.plan.steps]
    assert (kinds.count("vf.enable"), kinds.count("vf.prepare")) == (1, 3)
    assert len(bench.pci.functions[FLEX].vfs) == 3
    first = done.attachments[0].id
    bench.service.detach("vm02", attachment=first)
    assert len(bench.pci.functions[FLEX].vfs) == 3, "the others have theirs"
    bench.service.detach("vm02", every=True)
    assert bench.snapshot() == before
    with pytest.raises(VgpumgrError, match="only 7 of 8"):
        bench.service.attach(ask("vf", count=8))
    assert bench.snapshot() == before


def test_so_many_mediated_devices_or_none(bench: Bench) -> None:
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask("mtty-2", count=5))
    assert "4 fit" in caught.value.error
    done = bench.service.attach(ask("mtty-2", count=4, backend="mdev"))
    assert len({a.host_devices[0].uuid for a in done.attachments}) == 4
    assert len(bench.vgpus.devices) == 4
    bench.service.detach("vm02", every=True)
    assert bench.snapshot() == before


@pytest.mark.parametrize("profile", ["passthrough", "vf", "mtty-2"])
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("method", ["attach_device", "set_notes", "bind", "create"])
def test_whichever_of_several_fails_nothing_is_left(
    bench: Bench, profile: str, nth: int, method: str
) -> None:
    parts = (bench.hypervisor, bench.pci, bench.vgpus)
    part = next(p for p in parts if hasattr(p, method))
    real, calls = getattr(part, method), 0

    def count(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise LibvirtError("refused") if part is bench.hypervisor else PciWriteError("refused")
        return real(*arguments)

    before = bench.snapshot()
    setattr(part, method, count)
    try:
        bench.service.attach(ask(profile, count=2))
    except VgpumgrError:
        assert bench.snapshot() == before
    else:
        assert calls < nth, "this backend does not come here"


def test_a_vm_bound_to_a_node_gets_the_devices_of_that_node(bench: Bench) -> None:
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.config is not None
    tune = '<numatune><memory mode="strict" nodeset="1"/></numatune>'
    text = machine.config.to_xml().replace("<devices>", f"{tune}<devices>", 1)
    machine.config = Domain.from_xml(text)
    done = bench.service.attach(ask(), dry_run=True)
    assert done.plan.result["devices"][0] == str(GPU)  # type: ignore[index]
    assert "on the VM's NUMA node 1" in done.plan.notes[0]
    far = bench.service.attach(ask(numa="off"), dry_run=True)
    assert far.plan.result["devices"] == [str(FLEX)]
    for profile, gpu in (("vf", None), ("passthrough", str(FLEX)), ("mtty-2", None)):
        with pytest.raises(VgpumgrError) as caught:
            bench.service.attach(ask(profile, numa="strict", gpu=gpu))
        assert "NUMA nodes" in caught.value.error, profile
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(numa="strict", count=2))
    assert "only 1 of 2" in caught.value.error


def test_a_group_is_one_vms_at_a_time(bench: Bench) -> None:
    for address in (OTHER_GPU, FLEX):
        bench.pci.functions[address] = replace(bench.pci.functions[address], group=11, driver=VFIO)
    bench.service.attach(ask(gpu=str(OTHER_GPU)))
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(gpu=str(FLEX), vm="vm01"))
    assert caught.value.id == "VG480"
    assert "another VM's" in caught.value.error
    bench.service.attach(ask(gpu=str(FLEX), add=True))


# what is gone, and what was nearly written


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(
    ("profile", "gone", "remedy"),
    [
        ("passthrough", [FLEX], "vgpumgr detach vm02"),
        ("vf:2", [PciAddress(0, 3, 0, 1), PciAddress(0, 3, 0, 2)], "vgpumgr restore"),
    ],
)
def test_a_device_that_fell_off_is_told_everywhere_and_detached(
    tmp_path: Path, running: bool, profile: str, gone: list[PciAddress], remedy: str
) -> None:
    bench = make(tmp_path, running=running)
    bench.service.attach(ask(profile))
    for address in gone:
        del bench.pci.functions[address]
    if profile != "passthrough":
        bench.pci.functions[FLEX] = replace(bench.pci.functions[FLEX], vfs=())
    (problem,) = bench.service.show_vm("vm02").vm.problems
    assert f"{gone[0]} has left the bus; {remedy}" in problem
    recovery = Recovery(bench.service.parts)
    (drift,) = [d for d in recovery.status().drift or () if d.kind == "slice-gone"]
    assert drift.hint is not None
    assert drift.hint.startswith(remedy)
    recovery.recover(Policy())
    with pytest.raises(VgpumgrError):
        bench.service.attach(ask(profile, gpu=str(gone[0]), add=True))
    bench.service.detach("vm02")
    assert bench.store.list_attachments() == ()
    assert devices(bench) == []
    assert bench.pci.bindings == {}
    assert [d.kind for d in recovery.status().drift or ()] == []


@pytest.mark.parametrize("profile", ["1g.10gb", "passthrough", "vf", "mtty-2"])
def test_a_gpu_that_is_lost_is_not_called_unknown(bench: Bench, profile: str) -> None:
    bench.nvml.lost = (LostGpu(5, 15, "GPU is lost"),)
    with pytest.raises(GpuLostError, match="GPU 5 is out of reach"):
        bench.service.attach(ask(profile, gpu="5"))
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(profile, gpu="6"))
    assert caught.value.id in ("VG101", "VG402")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("1g.10bg", "1g.10gb"), ("passtrough", "passthrough"), ("1g.1gb0", "1g.10gb"), ("mtty2", "mtty-2")],
)  # fmt: skip
def test_a_profile_that_was_nearly_written(bench: Bench, written: str, meant: str) -> None:
    for call in (bench.service.attach, lambda r: bench.service.attach(r, dry_run=True)):
        with pytest.raises(VgpumgrError) as caught:
            call(ask(written))
        assert meant in str(caught.value.why)
        assert str(caught.value.why).count("did you mean") == 1


def test_gpu_show_says_who_has_it(bench: Bench) -> None:
    """VMs by what is recorded, anybody by the device files that he has open."""
    pci = bench.gpu.pci
    bench.pci.functions[pci] = Function(pci, 0x10DE, 0x20B2, 0x030200, "nvidia", 77)
    machine = Machine("test", bench.state_dir, bench.state_dir, bench.state_dir, "test:///default")
    application = Application(machine, bench.service.parts)
    shown = application.show_gpu("0")
    assert shown.gpu is not None
    assert (shown.gpu.vms, shown.held_by) == ([], [])
    bench.service.attach(ask(gpu=str(pci)))
    bench.pci.users[pci] = "process 9 (qemu), which has /dev/vfio/77 open"
    shown = application.show_gpu("0")
    assert shown.gpu is not None
    assert (shown.gpu.vms, shown.held_by) == (["vm02"], [bench.pci.users[pci]])
    lines = list(render(shown.as_data()))
    assert "  held by" in lines
    assert "    process 9 (qemu), which has /dev/vfio/77 open" in lines
    bench.pci.functions.pop(pci)
    assert application.show_gpu("0").held_by == [], "what cannot be looked at hides nothing"


def test_virtual_functions_of_before_a_boot_are_nobody_elses(bench: Bench) -> None:
    """Gone with the boot, named by a record and by a definition; restore brings them back."""
    bench.service.attach(ask("vf:2"))
    (record,) = bench.store.list_attachments()
    place = record.host_devices[0].address
    assert place is not None
    bench.pci.set_vf_count(FLEX, 0)
    done = bench.service.attach(ask("vf", vm="vm01"))
    assert done.plan.result["devices"] == ["0000:03:00.2"] != [str(place)]
    assert len(bench.pci.functions[FLEX].vfs) == 2, "as many as restore makes"
