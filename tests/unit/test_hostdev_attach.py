"""Attach and detach of host devices: whole GPUs, virtual functions, mediated devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.domains import UUID_Q35
from tests.support.fake_host import AUDIO, DISK, FLEX, GPU, OTHER_GPU
from tests.support.hostdev_rig import PORT, ask, devices, make
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.app.operations.restore import restore
from vgpumgr.app.operations.vgpus import VgpuService
from vgpumgr.errors import (
    Exit,
    HelperLateError,
    LibvirtError,
    LiveUnsupportedError,
    NotAttachedError,
    NvmlMissingError,
    PciWriteError,
    ReleasePendingError,
    RollbackIncompleteError,
    RolledBackError,
    VgpuBusyError,
    VgpumgrError,
)
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.choices import Backend
from vgpumgr.model.gpu import Inventory
from vgpumgr.model.pci import VFIO, Binding, Function, PciAddress
from vgpumgr.model.request import AttachRequest


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make(tmp_path)


def drivers(bench: Bench, *addresses: PciAddress) -> list[str | None]:
    return [bench.pci.functions[address].driver for address in addresses]


# whole GPUs


def test_a_whole_gpu_goes_with_its_audio_function_in_one_slot(bench: Bench) -> None:
    before = bench.snapshot()
    done = bench.service.attach(ask(gpu=str(GPU)))
    assert done.attachment is not None
    assert done.attachment.backend == "passthrough"
    assert done.usable == "next-start"
    assert drivers(bench, GPU, AUDIO) == [VFIO, VFIO]
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.config is not None
    gpu, audio = machine.config.pci_hostdevs
    assert (gpu.managed, gpu.rom_bar) == (False, False)
    assert gpu.address is not None
    assert audio.address is not None
    assert (gpu.address.bus, gpu.address.multifunction) == (9, True)
    assert (audio.address.bus, audio.address.function) == (9, 1)
    assert [device.kind for device in done.attachment.host_devices] == ["pci", "pci"]
    assert "with it go the other functions of its card: 0000:3b:00.1 (audio)" in done.plan.notes
    bench.service.detach("vm02")
    assert bench.snapshot() == before


def test_the_first_free_gpu_is_taken_and_why_the_others_are_not_is_said(bench: Bench) -> None:
    bench.pci.users[OTHER_GPU] = "process 7 (python3)"
    first = bench.service.attach(ask())
    assert first.plan.result["devices"] == [str(FLEX)]
    second = bench.service.attach(ask(vm="vm01"))
    assert second.plan.result["devices"] == [str(GPU), str(AUDIO)]
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(add=True))
    error = caught.value
    assert (error.id, error.exit_code) == ("VG481", Exit.BUSY)
    assert "0000:5e:00.0 is in use (process 7 (python3))" in str(error.why)
    assert f"{FLEX} is taken" in str(error.why)


@pytest.mark.parametrize(
    ("change", "request_", "id_", "words"),
    [
        ({GPU: {"group": None}}, ask(gpu=str(GPU)), "VG442", "no IOMMU"),
        ({DISK: {"group": 10}}, ask(gpu=str(GPU)), "VG443", str(DISK)),
        ({}, ask(gpu="0000:ff:00.0"), "VG101", "named by their address"),
        ({}, ask("vf", gpu=str(GPU)), "VG460", "no SR-IOV"),
        ({}, ask("vf:9", gpu=str(FLEX)), "VG461", "it can have 7"),
        ({FLEX: {"vendor_id": 0x10DE}}, ask("vf", gpu=str(FLEX)), "VG212", "vGPU type"),
        ({FLEX: {"driver": None}}, ask("vf", gpu=str(FLEX)), "VG460", "no driver"),
        ({FLEX: {"vf_offset": 0}}, ask("vf", gpu=str(FLEX)), "VG485", "sriov_offset"),
        ({}, ask("mtty-9"), "VG401", "mtty"),
        ({}, ask("mtty-2", backend="vf"), "VG400", "no profile here is called"),
        ({}, ask("mtty-2", display="on"), "VG482", "graphics"),
        ({}, ask("passthrough", live=True), "VG215", "it is shut off"),
        ({}, ask("mtty-2", display="maybe"), "VG100", "there are: off, on, boot"),
        ({GPU: {"class_code": 0x060400}}, ask(gpu=str(GPU)), "VG212", "bridges stay"),
    ],
)  # fmt: skip
def test_refusals_come_before_any_change(
    bench: Bench,
    change: dict[PciAddress, dict[str, object]],
    request_: AttachRequest,
    id_: str,
    words: str,
) -> None:
    for address, values in change.items():
        bench.pci.functions[address] = replace(bench.pci.functions[address], **values)  # type: ignore[arg-type]
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(request_)
    error = caught.value
    assert error.id == id_
    assert words in " ".join([error.error, error.why or "", *error.held_by])
    assert error.error.startswith("cannot attach") or error.id in ("VG100", "VG482")
    assert bench.snapshot() == before
    assert not (bench.state_dir / "journal").exists()


def test_a_function_of_another_vms_definition_is_not_given_away(bench: Bench) -> None:
    bench.service.attach(ask(gpu=str(FLEX)))
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.config is not None
    # as if virsh had done it: nothing of it is recorded
    foreign = [d.changed(alias="ua-else") for d in machine.config.pci_hostdevs]
    bench.service.detach("vm02")
    machine.config = machine.config.changed(pci_hostdevs=tuple(foreign))
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(gpu=str(FLEX), vm="vm01"))
    assert caught.value.id == "VG480"
    assert caught.value.held_by == ('vm "vm02"',)


def test_what_was_at_vfio_before_stays_there(bench: Bench) -> None:
    for address in (GPU, AUDIO):
        bench.pci.functions[address] = replace(bench.pci.functions[address], driver=VFIO)
    before = bench.snapshot()
    done = bench.service.attach(ask(gpu=str(GPU)))
    assert [step.kind for step in done.plan.steps].count("passthrough.bind") == 0
    bench.service.detach("vm02")
    assert bench.snapshot() == before


def test_a_gpu_bound_away_is_known_by_its_uuid(bench: Bench) -> None:
    uuid = "GPU-00000000-0000-0000-0000-00000000abcd"
    bench.pci.functions[OTHER_GPU] = replace(bench.pci.functions[OTHER_GPU], driver=VFIO)
    bench.pci.bindings[OTHER_GPU] = Binding(
        OTHER_GPU, VFIO, "nvidia", None, 0x10DE, 0x2330, "test", gpu_uuid=uuid
    )
    done = bench.service.attach(ask(gpu=uuid[:14]))
    assert done.attachment is not None
    assert done.attachment.gpu == uuid
    assert done.plan.result["devices"] == [str(OTHER_GPU)]
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.config is not None
    assert machine.config.pci_hostdevs[0].rom_bar is None, "a VGA device keeps its ROM"
    bench.service.detach("vm02")
    assert OTHER_GPU in bench.pci.bindings, "somebody else took it, and gives it back"


def test_driver_override_comes_back(bench: Bench) -> None:
    bench.pci.overrides[OTHER_GPU] = "nvidia"
    bench.service.attach(ask(gpu=str(OTHER_GPU)))
    assert bench.pci.overrides[OTHER_GPU] == VFIO
    bench.service.detach("vm02")
    assert bench.pci.overrides == {OTHER_GPU: "nvidia"}


# virtual functions


def test_virtual_functions_are_made_shared_and_removed_by_the_last(bench: Bench) -> None:
    before = bench.snapshot()
    first = bench.service.attach(ask("vf:2"))
    assert first.plan.result["devices"] == ["0000:03:00.1"]
    assert [s.kind for s in first.plan.steps][1:3] == ["vf.enable", "vf.prepare"]
    second = bench.service.attach(ask("vf", vm="vm01"))
    assert second.plan.result["devices"] == ["0000:03:00.2"]
    assert drivers(bench, PciAddress(0, 3, 0, 1), PciAddress(0, 3, 0, 2)) == [VFIO, VFIO]
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask("vf", add=True))
    assert "none of the 2 virtual functions" in str(caught.value.why)
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask("vf:4", gpu=str(FLEX), add=True))
    assert caught.value.id == "VG461"
    bench.service.detach("vm02")
    assert len(bench.pci.functions[FLEX].vfs) == 2, "vm01 still uses one"
    assert bench.pci.functions[PciAddress(0, 3, 0, 1)].driver is None
    bench.service.detach("vm01")
    assert bench.snapshot() == before


def test_virtual_functions_that_were_there_stay(bench: Bench) -> None:
    bench.pci.set_vf_count(FLEX, 3)
    before = bench.snapshot()
    done = bench.service.attach(ask("vf", gpu="0000:03:00.2"))
    assert done.plan.result["devices"] == ["0000:03:00.2"]
    bench.service.detach("vm02")
    assert bench.snapshot() == before


def test_a_virtual_function_elsewhere_is_not_given(bench: Bench) -> None:
    class Moved(type(bench.pci)):  # type: ignore[misc]
        def set_vf_count(self, physical: PciAddress, count: int) -> None:
            function = self.functions[physical]
            self.functions[physical] = replace(function, vf_offset=2)
            super().set_vf_count(physical, count)
            self.functions[physical] = replace(self.functions[physical], vf_offset=1)

    before = bench.snapshot()
    bench.pci.__class__ = Moved
    with pytest.raises(RolledBackError) as caught:
        bench.service.attach(ask("vf"))
    assert "is at 0000:03:00.2" in str(caught.value)
    assert bench.snapshot() == before


# mediated devices


def test_a_mediated_device_is_made_given_and_removed(bench: Bench) -> None:
    before = bench.snapshot()
    done = bench.service.attach(ask("mtty-2"))
    assert done.attachment is not None
    (uuid,) = bench.vgpus.devices
    assert (done.attachment.backend, done.attachment.profile) == ("mdev", "Dual port serial")
    assert done.attachment.host_devices[0].uuid == uuid
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.config is not None
    assert [d.uuid for d in machine.config.mdev_hostdevs] == [uuid]
    assert bench.vgpu_store.records[uuid].attachment == done.attachment.id
    bench.service.detach("vm02")
    assert bench.snapshot() == before


def test_a_type_is_detached_by_the_short_name_that_attach_took(bench: Bench) -> None:
    before = bench.snapshot()
    bench.service.attach(ask("mtty-2"))
    with pytest.raises(NotAttachedError):
        bench.service.detach("vm02", attachment="port")
    bench.service.detach("vm02", attachment="port serial")
    assert bench.snapshot() == before


def test_what_an_attachment_made_gets_no_definition_that_outlives_it(bench: Bench) -> None:
    bench.service.attach(ask("mtty-2"))
    (uuid,) = bench.vgpus.devices
    with pytest.raises(VgpuBusyError) as refused:
        VgpuService(bench.service.parts).define(vgpu=uuid, auto=True)
    assert refused.value.held_by == ('vm "vm02"',)
    assert not bench.vgpu_store.records[uuid].defined


def test_a_vm_holds_slices_of_different_backends(bench: Bench) -> None:
    before = bench.snapshot()
    bench.service.attach(ask("1g.10gb"))
    bench.service.attach(ask("mtty-2", add=True))
    bench.service.attach(ask("vf", add=True))
    bench.service.attach(ask("passthrough", gpu=str(GPU), add=True))
    shown = bench.service.show_vm("vm02").vm
    assert [a.backend for a in shown.attachments] == [
        "forward", "mdev", "vf", "passthrough",
    ]  # fmt: skip
    assert not shown.problems
    bench.service.detach("vm02", attachment="vf")
    assert [a.backend for a in bench.service.show_vm("vm02").vm.attachments] == [
        "forward", "mdev", "passthrough",
    ]  # fmt: skip
    bench.service.detach("vm02", every=True)
    assert bench.snapshot() == before


# failures


STEPS = ("passthrough", "vf:2", "mtty-2")


@pytest.mark.parametrize("profile", STEPS)
@pytest.mark.parametrize(
    "where", ["attach_device config", "attach_device live", "set_notes config"]
)
def test_whatever_libvirt_refuses_everything_is_undone(
    tmp_path: Path, profile: str, where: str
) -> None:
    bench = make(tmp_path, running=True)
    before = bench.snapshot()
    bench.hypervisor.fail[where] = LibvirtError("refused")
    with pytest.raises(RolledBackError):
        bench.service.attach(ask(profile))
    assert bench.snapshot() == before


@pytest.mark.parametrize("call", ["bind", f"bind {AUDIO}", "save_binding", "set_vf_count"])
def test_whatever_the_kernel_refuses_everything_is_undone(bench: Bench, call: str) -> None:
    before = bench.snapshot()
    bench.pci.fail[call] = PciWriteError("EIO")
    request = ask("vf:2") if call == "set_vf_count" else ask(gpu=str(GPU))
    with pytest.raises(VgpumgrError):
        bench.service.attach(request)
    assert bench.snapshot() == before


def test_a_gpu_that_is_in_use_is_refused_with_its_holders(bench: Bench) -> None:
    bench.pci.users[GPU] = "process 9 (Xorg)"
    before = bench.snapshot()
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(gpu=str(GPU)))
    assert (caught.value.id, caught.value.held_by) == ("VG444", ("process 9 (Xorg)",))
    assert bench.snapshot() == before


# running guests


@pytest.mark.parametrize("profile", STEPS)
def test_a_running_guest_gets_it_now_and_loses_it_now(tmp_path: Path, profile: str) -> None:
    bench = make(tmp_path, running=True)
    before = bench.snapshot()
    done = bench.service.attach(ask(profile))
    assert done.usable == "now"
    assert devices(bench, scope="live") == devices(bench, scope="config") != []
    bench.service.detach("vm02")
    assert bench.snapshot() == before


def test_companions_are_plugged_into_slots_of_their_own(tmp_path: Path) -> None:
    bench = make(tmp_path, running=True)
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.live is not None
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask(gpu=str(GPU), live=True))
    assert caught.value.id == "VG215"
    assert "1 free pcie-root-ports" in str(caught.value.why)
    more = PORT.changed(index=10)
    machine.live = machine.live.changed(controllers=(*machine.live.controllers, more))
    bench.service.attach(ask(gpu=str(GPU), live=True))
    assert machine.live is not None
    assert [d.address for d in machine.live.pci_hostdevs] == [None, None], "libvirt chooses"
    assert devices(bench) == []


def test_a_full_machine_gets_it_at_its_next_start(tmp_path: Path) -> None:
    bench = make(tmp_path, running=True)
    done = bench.service.attach(ask(gpu=str(GPU)))
    assert done.usable == "next-start"
    assert any("libvirt plugs none" in note for note in done.plan.notes)


def test_a_conventional_device_goes_to_no_port_of_a_running_machine(tmp_path: Path) -> None:
    bench = make(tmp_path, running=True)
    bench.pci.conventional.add(OTHER_GPU)
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.live is not None
    kept = tuple(c for c in machine.live.controllers if c.model != "pcie-to-pci-bridge")
    machine.live = machine.live.changed(controllers=kept)
    before = bench.snapshot()
    with pytest.raises(LiveUnsupportedError) as caught:
        bench.service.attach(ask(gpu=str(OTHER_GPU), live=True))
    assert "no PCI Express one" in str(caught.value.why)
    assert "without --live" in str(caught.value.hint)
    assert bench.snapshot() == before, "nothing was tried"
    done = bench.service.attach(ask(gpu=str(OTHER_GPU)))
    assert (len(devices(bench)), devices(bench, scope="live")) == (1, [])
    assert any("no PCI Express one" in note for note in done.plan.notes)


@pytest.mark.parametrize("profile", STEPS)
def test_a_guest_that_never_releases_loses_nothing(tmp_path: Path, profile: str) -> None:
    bench = make(tmp_path, running=True)
    before = bench.snapshot()
    bench.service.attach(ask(profile))
    bench.hypervisor.stubborn = {UUID_Q35}
    with pytest.raises(ReleasePendingError) as caught:
        bench.service.detach("vm02")
    assert caught.value.exit_code is Exit.PENDING
    (record,) = bench.store.list_attachments()
    assert record.state is AttachmentState.DETACHING
    assert devices(bench) == [], "its next start is without it"
    assert devices(bench, scope="live") != []
    held = bench.pci.snapshot(), dict(bench.vgpus.devices)
    (drift,) = Recovery(bench.service.parts).status().drift or ()
    (problem, *_) = bench.service.show_vm("vm02").vm.problems
    for text in (drift.text, problem):
        assert "is being detached: " in text
        assert "is still held by QEMU of vm02" in text
    assert drift.kind == "half-done"
    # commands about others go on, quickly, and settle nothing of it
    clock = bench.service.parts.clock
    started_s = clock.monotonic_s()
    bench.service.attach(ask("1g.10gb", vm="vm01", hello_timeout_s=0.2))
    assert clock.monotonic_s() - started_s < 10
    bench.service.detach("vm01")
    assert (bench.pci.snapshot(), dict(bench.vgpus.devices)) == held
    # the guest stops: the next command completes it
    bench.hypervisor.machines[UUID_Q35].live = None
    Recovery(bench.service.parts).recover(Policy())
    after = bench.snapshot()
    bench.hypervisor.machines[UUID_Q35].live = bench.hypervisor.machines[UUID_Q35].config
    assert bench.store.list_attachments() == ()
    assert after != before, "it is shut off"
    assert bench.snapshot() == before


def test_a_vgpu_that_is_held_is_taken_back_when_it_is_released(bench: Bench) -> None:
    """By whom libvirt knows nothing of; exit code 8, and whoever looks next completes it."""
    before = bench.snapshot()
    bench.service.attach(ask("mtty-2"))
    bench.vgpus.held_by = ("process 7 (qemu)",)
    with pytest.raises(ReleasePendingError) as caught:
        bench.service.detach("vm02")
    assert caught.value.held_by == ("process 7 (qemu)",)
    assert "vgpumgr recover" in str(caught.value.hint)
    clock = bench.service.parts.clock
    started_s = clock.monotonic_s()
    told = Recovery(bench.service.parts).recover(Policy())
    assert clock.monotonic_s() - started_s < 5, "it has been waited for before"
    assert [(a.subject, a.done) for a in told.actions] == [("vm02", False)]
    assert "is still held by process 7 (qemu)" in told.drift[0].text
    (problem,) = bench.service.show_vm("vm02").vm.problems
    assert "is still held by process 7 (qemu)" in problem, "and not: somebody else removed it"
    bench.vgpus.held_by = ()
    told = Recovery(bench.service.parts).recover(Policy())
    assert ([a.done for a in told.actions], told.drift) == ([True], [])
    assert bench.snapshot() == before


def test_a_guest_that_releases_late_is_done_by_the_next_command(tmp_path: Path) -> None:
    bench = make(tmp_path, running=True)
    before = bench.snapshot()
    bench.service.attach(ask("mtty-2"))
    bench.hypervisor.stubborn = {UUID_Q35}
    with pytest.raises(ReleasePendingError):
        bench.service.detach("vm02")
    bench.hypervisor.stubborn = set()
    bench.service.detach("vm02")
    assert bench.snapshot() == before


def test_undoing_a_live_attach_never_unbinds_what_the_guest_holds(tmp_path: Path) -> None:
    bench = make(tmp_path, running=True)
    bench.hypervisor.stubborn = {UUID_Q35}
    bench.hypervisor.fail["set_notes config"] = LibvirtError("refused")
    with pytest.raises(RollbackIncompleteError) as caught:
        bench.service.attach(ask(gpu=str(OTHER_GPU)))
    assert caught.value.held_by == ("QEMU of vm02",)
    assert drivers(bench, OTHER_GPU) == [VFIO], "an unbind would hang for as long as the guest runs"
    bench.hypervisor.stubborn = set()
    bench.service.detach("vm02")
    assert drivers(bench, OTHER_GPU) == ["nvidia"]
    assert bench.store.list_attachments() == ()


def test_a_helper_that_does_not_come_back_leaves_the_detach_pending(bench: Bench) -> None:
    before = bench.snapshot()
    bench.service.attach(ask(gpu=str(OTHER_GPU)))
    bench.pci.fail["release"] = HelperLateError("no answer", cause="it still runs")
    with pytest.raises(HelperLateError):
        bench.service.detach("vm02")
    (record,) = bench.store.list_attachments()
    assert record.state is AttachmentState.DETACHING
    Recovery(bench.service.parts).recover(Policy())
    assert bench.snapshot() == before


# what is left


def test_a_device_that_is_gone_does_not_hold_the_detach_up(bench: Bench) -> None:
    bench.service.attach(ask("vf:2"))
    for address in (FLEX, PciAddress(0, 3, 0, 1), PciAddress(0, 3, 0, 2)):
        del bench.pci.functions[address]
    bench.service.detach("vm02")
    assert bench.store.list_attachments() == ()
    assert bench.pci.bindings == {}
    assert bench.pci.settings == {}
    assert devices(bench) == []


def test_after_a_boot_the_host_has_its_functions_and_detach_leaves_them(bench: Bench) -> None:
    bench.service.attach(ask(gpu=str(GPU)))
    for address, driver in ((GPU, "nvidia"), (AUDIO, "snd_hda_intel")):
        bench.pci.functions[address] = replace(bench.pci.functions[address], driver=driver)
    bench.pci.overrides.clear()
    bench.service.detach("vm02")
    assert drivers(bench, GPU, AUDIO) == ["nvidia", "snd_hda_intel"]
    assert bench.pci.bindings == {}


def test_an_undefined_vm_gives_everything_back(bench: Bench) -> None:
    functions = dict(bench.pci.functions)
    bench.service.attach(ask(gpu=str(GPU)))
    del bench.hypervisor.machines[UUID_Q35]
    bench.service.detach(UUID_Q35)
    assert bench.pci.functions == functions


def test_a_lost_state_file_is_rebuilt_from_the_note(bench: Bench) -> None:
    before = bench.snapshot()
    for profile in ("vf:2", "mtty-2", "passthrough"):
        bench.service.attach(
            ask(profile, gpu=str(GPU) if profile == "passthrough" else None, add=True)
        )
    known = bench.store.list_attachments()
    for record in known:
        bench.store.delete_attachment(record.id)
    Recovery(bench.service.parts).recover(Policy())
    rebuilt = bench.store.list_attachments()
    assert sorted(rebuilt, key=lambda r: r.id) == sorted(known, key=lambda r: r.id)
    bench.service.detach("vm02", every=True)
    assert bench.snapshot() == before


def test_dry_run_touches_nothing_and_says_why(bench: Bench) -> None:
    before = bench.snapshot()
    document = bench.service.attach(ask(gpu=str(GPU)), dry_run=True)
    assert document.plan.notes[0].startswith("backend passthrough: a whole GPU goes")
    assert [step.kind for step in document.plan.steps] == [
        "attachment.record",
        "passthrough.bind",
        "passthrough.bind",
        "domain.attach",
        "domain.note",
        "attachment.mark",
    ]
    assert bench.snapshot() == before


def test_auto_says_why_it_forwards(bench: Bench) -> None:
    document = bench.service.attach(ask("1g.10gb"), dry_run=True)
    assert document.plan.notes[0] == "auto: forward, because it needs no vGPU licence"
    assert document.plan.result["backend"] == str(Backend.FORWARD)
    document = bench.service.attach(ask("1g.10gb", backend="forward"), dry_run=True)
    assert not document.plan.notes[0].startswith("auto")


def test_iommufd_where_libvirt_and_the_kernel_have_it(bench: Bench) -> None:
    parts = replace(bench.service.parts, has_iommufd=lambda: True)
    service = type(bench.service)(parts)
    for offered, expected in ((False, None), (True, True)):
        bench.hypervisor.iommufd = offered
        service.attach(ask(gpu=str(OTHER_GPU)))
        machine = bench.hypervisor.machines[UUID_Q35]
        assert machine.config is not None
        assert machine.config.pci_hostdevs[0].iommufd is expected
        service.detach("vm02")


def test_a_function_that_is_no_gpu_goes_by_its_address_only(tmp_path: Path) -> None:
    function = Function(DISK, 0x1B36, 0x10, 0x010802, "nvme", group=1)
    bench = make_bench(tmp_path, functions=[function])
    with pytest.raises(VgpumgrError) as caught:
        bench.service.attach(ask())
    assert caught.value.id == "VG481"
    document = bench.service.attach(ask(gpu=str(DISK)))
    assert "though no GPU (storage)" in document.plan.notes[0]
    assert drivers(bench, DISK) == [VFIO]


@pytest.mark.parametrize("profile", STEPS)
def test_a_host_without_nvml_has_devices_to_give(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    def missing() -> Inventory:
        raise NvmlMissingError("cannot load NVML")

    before = bench.snapshot()
    monkeypatch.setattr(bench.nvml, "read_inventory", missing)
    parts = replace(bench.service.parts, read_inventory=missing)
    service = type(bench.service)(parts)
    service.attach(ask(profile))
    assert Recovery(parts).diff().drift == []
    assert restore(parts).problems == []
    assert Recovery(parts).recover(Policy()).drift == []
    service.detach("vm02")
    assert bench.snapshot() == before
    with pytest.raises(NvmlMissingError):
        service.attach(ask("1g.10gb"))
