"""Taking functions from a simulated host and giving them back: real helpers, real files, the kernel's rules."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.support.boards import make_gpu
from tests.support.pci_scene import (
    AMD,
    AUDIO,
    BOOT,
    GPU,
    INTEL,
    MXGPU,
    NIC,
    NVME,
    OTHER_INTEL,
    UCSI,
    USB,
    VGPU,
    Scene,
    make_scene,
    mount_scene,
    open_scene,
)
from vgpumgr.app.context import Parts
from vgpumgr.app.operations.recovery import find_drift_of_pci
from vgpumgr.app.operations.restore import restore
from vgpumgr.engine.executor import Executor
from vgpumgr.engine.journal import Journal
from vgpumgr.errors import (
    DriverMissingError,
    GroupNotViableError,
    NotBoundError,
    OutcomePendingError,
    PciAmbiguousError,
    PciBusyError,
    PciNotFoundError,
    PciStalledError,
    RolledBackError,
    VfCountError,
    VfUnsupportedError,
    VfVendorToolError,
)
from vgpumgr.model.pci import PciAddress
from vgpumgr.planning.drift import DriftKind


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mount_scene(tmp_path_factory.mktemp("root")) as mounted:
        yield mounted


@pytest.fixture
def scene(root: Path, tmp_path: Path) -> Iterator[Scene]:
    with open_scene(root, tmp_path) as opened:
        yield opened


def test_a_gpu_goes_with_its_companions_and_comes_back(scene: Scene) -> None:
    done = scene.service.bind(selector=GPU)
    assert [s.target["address"] for s in done.steps] == [AUDIO, USB, UCSI, GPU]
    assert {scene.driver(a) for a in (GPU, AUDIO, USB, UCSI)} == {"vfio-pci"}
    assert scene.bindings() == [GPU, AUDIO, USB, UCSI]
    again = scene.service.bind(selector="0")
    assert again.steps == []
    scene.service.unbind(selector=GPU)
    assert [scene.driver(a) for a in (GPU, AUDIO, USB, UCSI)] == [
        "nvidia", "snd_hda_intel", "xhci_hcd", None,
    ]  # fmt: skip
    assert scene.bindings() == []


def test_companions_may_only_be_kept_away_or_left(scene: Scene) -> None:
    with pytest.raises(GroupNotViableError) as refused:
        scene.service.bind(selector=GPU, companions="keep")
    assert any(AUDIO in held for held in refused.value.held_by)
    scene.service.bind(selector=GPU, companions="stub")
    assert scene.driver(AUDIO) == "pci-stub"
    assert scene.driver(GPU) == "vfio-pci"
    verdicts = {f.address: f.verdict for f in scene.service.list_functions().functions}
    assert verdicts[GPU] == "viable"


def test_a_group_with_a_strangers_function_names_it(scene: Scene) -> None:
    with pytest.raises(GroupNotViableError) as refused:
        scene.service.bind(selector=AMD)
    assert "network interface eth0 is up" in refused.value.held_by[0]
    assert "ACS" in (refused.value.why or "")
    with pytest.raises(PciBusyError, match="in use"):
        scene.service.bind(selector=AMD, whole_group=True)
    scene.service.bind(selector=AMD, whole_group=True, confirmed=True)
    assert (scene.driver(AMD), scene.driver(NIC)) == ("vfio-pci", "vfio-pci")
    scene.service.unbind(selector=AMD)
    assert (scene.driver(AMD), scene.driver(NIC)) == ("amdgpu", "e1000e")


def test_every_group_says_whether_it_can_go(scene: Scene) -> None:
    groups = {g.number: g for g in scene.service.list_groups(all_groups=True).groups}
    assert {n: g.verdict for n, g in groups.items()} == {
        2: "in-use", 10: "bindable", 13: "bindable", 20: "shared", 27: "bindable",
        28: "bindable", 29: "in-use", 30: "bindable",
    }  # fmt: skip
    assert [m.address for m in groups[10].members if m.kind == "bridge"] == ["0000:00:01.0"]
    assert 29 not in {g.number for g in scene.service.list_groups().groups}


def test_the_boot_display_is_not_taken_unasked(scene: Scene) -> None:
    with pytest.raises(PciBusyError) as refused:
        scene.service.bind(selector=BOOT)
    assert "boots with" in refused.value.held_by[0]
    assert scene.driver(BOOT) == "i915"
    assert scene.service.bind(selector=BOOT, dry_run=True).concerns == list(refused.value.held_by)
    scene.service.bind(selector=BOOT, confirmed=True)
    assert scene.driver(BOOT) == "vfio-pci"


def test_mounted_disks_are_taken_by_no_word(scene: Scene) -> None:
    with pytest.raises(PciBusyError) as refused:
        scene.service.bind(selector=NVME, confirmed=True)
    assert refused.value.held_by == ("disk nvme0n1p1 is mounted at /srv",)
    assert scene.driver(NVME) == "nvme"


def test_functions_have_many_names(scene: Scene) -> None:
    for selector in (GPU, "01:00.0", "0", "A100-SXM"):
        assert scene.service.bind(selector=selector, dry_run=True).subject == GPU
    with pytest.raises(PciAmbiguousError):
        scene.service.bind(selector="NVIDIA", dry_run=True)
    with pytest.raises(PciNotFoundError, match=r"0000:01:00\.7"):
        scene.service.bind(selector="0000:01:00.7")


def test_a_uuid_finds_its_gpu_also_while_nvml_does_not_see_it(scene: Scene) -> None:
    (uuid,) = scene.nvml.gpus
    scene.service.bind(selector=uuid)
    scene.nvml.gpus.clear()
    assert scene.service.unbind(selector=uuid[:12]).subject == GPU
    assert scene.driver(GPU) == "nvidia"


def test_an_index_does_not_wander_on_to_the_next_gpu(scene: Scene) -> None:
    (gpu,) = scene.nvml.gpus.values()
    other = replace(make_gpu(index=1, layout=None), pci=PciAddress.parse(VGPU))
    scene.nvml.gpus[other.uuid] = other
    scene.service.bind(selector="0")
    # the driver's library forgets the first GPU and counts anew
    del scene.nvml.gpus[gpu.uuid]
    scene.nvml.gpus[other.uuid] = replace(other, index=0)
    for change in (scene.service.bind, scene.service.unbind):
        with pytest.raises(PciAmbiguousError) as refused:
            change(selector="0")
        assert GPU in (refused.value.why or "")
        assert VGPU in (refused.value.why or "")
    assert (scene.driver(GPU), scene.driver(VGPU)) == ("vfio-pci", "nvidia")
    scene.service.unbind(selector=GPU)
    assert scene.driver(GPU) == "nvidia"


def test_what_was_not_taken_is_not_given_back(scene: Scene) -> None:
    with pytest.raises(NotBoundError):
        scene.service.unbind(selector=GPU)
    device = scene.root / "sys/bus/pci/devices" / GPU
    (device / "driver_override").write_text("vfio-pci")
    (device / "driver/unbind").write_text(GPU)
    (scene.root / "sys/bus/pci/drivers_probe").write_text(GPU)
    with pytest.raises(NotBoundError, match="not taken by vgpumgr"):
        scene.service.unbind(selector=GPU)
    scene.service.unbind(selector=GPU, driver="nvidia")
    assert scene.driver(GPU) == "nvidia"


def test_what_others_set_comes_back_as_they_had_it(scene: Scene) -> None:
    device = scene.root / "sys/bus/pci/devices" / UCSI
    (device / "driver_override").write_text("ucsi_of_somebody")
    audio = scene.root / "sys/bus/pci/devices" / AUDIO
    (audio / "driver/unbind").write_text(AUDIO)
    scene.service.bind(selector=GPU)
    assert {scene.driver(a) for a in (GPU, AUDIO, UCSI)} == {"vfio-pci"}
    scene.service.unbind(selector=GPU)
    assert [scene.driver(a) for a in (GPU, AUDIO, UCSI)] == ["nvidia", None, None]
    assert (device / "driver_override").read_text() == "ucsi_of_somebody\n"
    assert (audio / "driver_override").read_text() == "(null)\n"


def test_what_cannot_be_reset_is_told(scene: Scene) -> None:
    rows = {row.address: row for row in scene.service.list_functions().functions}
    assert (rows[GPU].reset_methods, rows[GPU].power_state) == (["flr", "bus"], "D0")
    assert rows[AMD].reset_methods == []
    asked = {"whole_group": True, "dry_run": True}
    (note,) = scene.service.bind(selector=AMD, **asked).notes
    assert "has no reset" in note
    assert scene.service.bind(selector=GPU, dry_run=True).notes == []


def test_a_driver_that_is_not_there_stops_before_anything_is_done(scene: Scene) -> None:
    scene.ask("unload", "vfio-pci")
    with pytest.raises(DriverMissingError) as refused:
        scene.service.bind(selector=GPU)
    assert "vfio-pci" in refused.value.error
    assert scene.driver(AUDIO) == "snd_hda_intel"
    assert scene.bindings() == []


@pytest.mark.parametrize("fault", ["ignore", "fail"])
def test_a_write_that_has_no_effect_is_noticed_and_everything_undone(
    scene: Scene, fault: str
) -> None:
    error = " EIO" if fault == "fail" else ""
    scene.service.bind(selector=AUDIO, dry_run=True)
    # the last function of four is refused once the others are through
    scene.ask("fault", f"{fault} /sys/bus/pci/drivers/nvidia/unbind{error} 1")
    with pytest.raises(RolledBackError) as failed:
        scene.service.bind(selector=GPU)
    assert GPU in failed.value.error
    assert [scene.driver(a) for a in (GPU, AUDIO, USB, UCSI)] == [
        "nvidia", "snd_hda_intel", "xhci_hcd", None,
    ]  # fmt: skip
    assert scene.bindings() == []
    override = scene.root / "sys/bus/pci/devices" / GPU / "driver_override"
    assert override.read_text() == "(null)\n"


def test_a_function_that_leaves_is_forgotten(scene: Scene) -> None:
    scene.service.bind(selector=INTEL)
    scene.ask("gone", INTEL)
    with pytest.raises(PciNotFoundError):
        scene.service.bind(selector=INTEL)
    assert scene.bindings() == [INTEL]


def test_virtual_functions_come_without_drivers_and_go(scene: Scene) -> None:
    made = scene.service.enable_vfs(selector=INTEL, count=3, quotas={"exec_quantum_ms": 20})
    assert made.result["count"] == 3
    (intel,) = scene.service.list_vfs(selector=INTEL).physicals
    assert [vf.driver for vf in intel.vfs] == [None] * 3
    assert [vf.quotas["exec_quantum_ms"] for vf in intel.vfs] == ["20"] * 3
    autoprobe = scene.root / "sys/bus/pci/devices" / INTEL / "sriov_drivers_autoprobe"
    assert autoprobe.read_text() == "1\n", "as it was before"
    scene.service.enable_vfs(selector=INTEL, count=5)
    assert len(scene.service.list_vfs(selector=INTEL).physicals[0].vfs) == 5
    with pytest.raises(PciBusyError, match="5 virtual functions"):
        scene.service.bind(selector=INTEL)
    scene.service.disable_vfs(selector=INTEL)
    assert scene.service.list_vfs(selector=INTEL).physicals[0].vfs == []
    assert scene.parts.pci.list_vf_settings() == ()


def test_a_virtual_function_in_use_keeps_all_of_them(scene: Scene) -> None:
    scene.service.enable_vfs(selector=INTEL, count=2)
    vf = scene.service.list_vfs(selector=INTEL).physicals[0].vfs[1].address
    scene.service.bind(selector=vf)
    with scene.guest("build7", vf):
        (user,) = scene.service.list_vfs(selector=INTEL).physicals[0].vfs[1].users
        assert user.startswith('vm "build7", process ')
        for refusal in (
            lambda: scene.service.disable_vfs(selector=INTEL),
            lambda: scene.service.enable_vfs(selector=INTEL, count=4),
        ):
            with pytest.raises(PciBusyError) as refused:
                refusal()
            assert "build7" in refused.value.held_by[0]
    scene.service.disable_vfs(selector=INTEL)
    assert not scene.has(vf)
    assert scene.bindings() == []


def test_the_host_driver_does_not_keep_new_virtual_functions(scene: Scene) -> None:
    scene.ask("fault", f"ignore */{INTEL}/sriov_drivers_autoprobe 1")
    scene.service.enable_vfs(selector=INTEL, count=2)
    assert {vf.driver for vf in scene.service.list_vfs(selector=INTEL).physicals[0].vfs} == {None}


def test_a_driver_that_grabs_them_for_good_undoes_all(scene: Scene) -> None:
    scene.ask("fault", f"ignore */{INTEL}/sriov_drivers_autoprobe 1")
    scene.ask("fault", "ignore /sys/bus/pci/drivers/xe/unbind 9")
    with pytest.raises(RolledBackError) as failed:
        scene.service.enable_vfs(selector=INTEL, count=2)
    assert any("driver xe" in held for held in failed.value.held_by)
    assert scene.service.list_vfs(selector=INTEL).physicals[0].vfs == []


def test_an_ignored_number_is_noticed(scene: Scene) -> None:
    scene.ask("fault", f"ignore */{INTEL}/sriov_numvfs 1")
    with pytest.raises(RolledBackError, match="was to have 2"):
        scene.service.enable_vfs(selector=INTEL, count=2)
    assert scene.parts.pci.list_vf_settings() == ()


def test_numbers_that_cannot_be(scene: Scene) -> None:
    for count in (0, 8):
        with pytest.raises(VfCountError):
            scene.service.enable_vfs(selector=INTEL, count=count)
    with pytest.raises(VfUnsupportedError, match="no virtual functions"):
        scene.service.enable_vfs(selector=GPU)


def test_vendors_have_their_own_ways(scene: Scene) -> None:
    with pytest.raises(VfVendorToolError) as nvidia:
        scene.service.enable_vfs(selector=VGPU)
    assert "sriov-manage" in (nvidia.value.why or "")
    with pytest.raises(VfVendorToolError) as amd:
        scene.service.enable_vfs(selector=MXGPU)
    assert "libamdsmi.so" in (amd.value.cause or "")
    assert "vf_num" in (amd.value.hint or "")


def test_an_unbind_while_held_sticks_and_completes_by_itself(scene: Scene) -> None:
    scene.service.bind(selector=INTEL)
    impatient = make_scene(scene.directory, scene.root, bind_timeout_s=3)
    with scene.guest("vm01", INTEL) as end_guest:
        with pytest.raises(PciBusyError) as refused:
            scene.service.unbind(selector=INTEL)
        assert 'vm "vm01"' in refused.value.held_by[0]
        with impatient.pci, pytest.raises(OutcomePendingError) as pending:
            impatient.service.unbind(selector=INTEL, confirmed=True)
        assert INTEL in pending.value.held_by[0]
        assert 'vm "vm01"' in pending.value.held_by[1]
        (row,) = [f for f in scene.service.list_functions().functions if f.address == INTEL]
        assert 'vm "vm01"' in row.users[0]
        with pytest.raises(OutcomePendingError):
            scene.service.bind(selector=INTEL, confirmed=True)
        scene.service.bind(selector=GPU)  # others are not held up
        end_guest()
    scene.await_no_late()
    assert scene.driver(INTEL) == "xe"
    notes = scene.service.unbind(selector=GPU).notes
    assert notes == [f"the interrupted passthrough unbind of {INTEL} was completed"]
    assert scene.bindings() == []


def test_while_a_removal_waits_nothing_global_is_begun(scene: Scene) -> None:
    scene.service.bind(selector=INTEL)
    remove = scene.root / "sys/bus/pci/devices" / INTEL / "remove"
    with scene.guest("vm01", INTEL) as end_guest:
        remover = subprocess.Popen(["sh", "-c", f"echo 1 >{remove}"])
        await_stall(scene)
        with pytest.raises(PciStalledError) as refused:
            scene.service.enable_vfs(selector=OTHER_INTEL, count=2)
        remover_told, holder_told = refused.value.held_by
        assert f"process {remover.pid} " in remover_told
        assert holder_told.startswith(f"{INTEL} is held by ")
        assert 'vm "vm01"' in holder_told
        found = {d.kind: d for d in find_drift_of_pci(scene.parts)}
        stalled, leaving = found[DriftKind.PCI_STALLED], found[DriftKind.DRIVER_CHANGED]
        assert remover_told in stalled.text
        assert holder_told in stalled.text
        assert "is being taken from vfio-pci, which waits for" in leaving.text
        assert leaving.hint is None, "binding it would wait as well"
        scene.service.bind(selector=GPU)  # this is not global
        assert scene.service.list_vfs().physicals, "looking goes on"
        end_guest()
        remover.wait(timeout=60)
    scene.service.enable_vfs(selector=OTHER_INTEL, count=2)


def test_a_removal_of_what_nobody_here_has_taken_is_told_too(scene: Scene) -> None:
    scene.service.bind(selector=INTEL)
    scene.parts.pci.forget_binding(PciAddress.parse(INTEL))
    assert find_drift_of_pci(scene.parts) == ()
    with scene.guest("vm01", INTEL) as end_guest:
        remove = scene.root / "sys/bus/pci/devices" / INTEL / "remove"
        remover = subprocess.Popen(["sh", "-c", f"echo 1 >{remove}"])
        await_stall(scene)
        assert [d.kind for d in find_drift_of_pci(scene.parts)] == [DriftKind.PCI_STALLED]
        end_guest()
        remover.wait(timeout=60)
    assert find_drift_of_pci(scene.parts) == ()


def await_stall(scene: Scene) -> None:
    end_s = time.monotonic() + 60
    while not scene.parts.pci.list_stalls():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def boot(scene: Scene) -> Scene:
    """The same disk, another boot."""
    scene.ask("boot", "1")
    return make_scene(scene.directory, scene.root, 60)


def test_a_boot_brings_back_what_was_to_persist_and_forgets_the_rest(scene: Scene) -> None:
    scene.service.enable_vfs(selector=INTEL, count=3, persist=True, quotas={"exec_quantum_ms": 5})
    vf = scene.service.list_vfs(selector=INTEL).physicals[0].vfs[2].address
    scene.service.bind(selector=vf, persist=True)
    scene.service.bind(selector=GPU)
    scene.service.bind(selector=GPU, persist=True)
    scene.service.bind(selector=GPU)
    scene.service.bind(selector=AMD, whole_group=True, confirmed=True)
    scene.service.enable_vfs(selector=OTHER_INTEL, count=1)
    after = boot(scene)
    assert {d.kind for d in find_drift_of_pci(after.parts)} == {"not-restored"}
    with after.pci:
        bindings = after.bindings()
        planned = restore(after.parts, early=True, dry_run=True)
        assert (after.driver(GPU), after.bindings()) == ("nvidia", bindings)
        document = restore(after.parts, early=True)
        assert document.problems == []
        assert (planned.done, planned.problems) == (document.done, [])
        assert [after.driver(a) for a in (GPU, AUDIO, vf)] == ["vfio-pci"] * 3
        (intel,) = after.service.list_vfs(selector=INTEL).physicals
        assert [v.quotas["exec_quantum_ms"] for v in intel.vfs] == ["5"] * 3
        assert (after.driver(AMD), after.driver(NIC)) == ("amdgpu", "e1000e")
        assert set(after.bindings()) == {GPU, AUDIO, USB, UCSI, vf}
        assert find_drift_of_pci(after.parts) == ()
        assert restore(after.parts).done == []
        after.service.unbind(selector=GPU)
        assert after.driver(GPU) == "nvidia"


def test_what_is_there_already_is_remembered_and_gets_its_quotas(scene: Scene) -> None:
    scene.service.enable_vfs(selector=INTEL, count=2)
    scene.service.enable_vfs(selector=INTEL, count=2, quotas={"exec_quantum_ms": 7})
    (intel,) = scene.service.list_vfs(selector=INTEL).physicals
    assert [v.quotas["exec_quantum_ms"] for v in intel.vfs] == ["7"] * 2
    done = scene.service.enable_vfs(selector=INTEL, count=2, persist=True)
    assert [step.kind for step in done.steps] == ["vf.remember"]
    assert scene.service.enable_vfs(selector=INTEL, count=2, persist=True).steps == []
    after = boot(scene)
    with after.pci:
        assert restore(after.parts, early=True).problems == []
        (intel,) = after.service.list_vfs(selector=INTEL).physicals
        assert [v.quotas["exec_quantum_ms"] for v in intel.vfs] == ["7"] * 2


def test_what_cannot_be_restored_is_told_and_stays_wanted(scene: Scene) -> None:
    scene.service.bind(selector=INTEL, persist=True)
    after = boot(scene)
    after.ask("fault", "ignore /sys/bus/pci/drivers/xe/unbind 1")
    with after.pci:
        (problem,) = restore(after.parts).problems
        assert "was to have vfio-pci" in problem
        assert after.driver(INTEL) == "xe"
        assert restore(after.parts).done == [f"{INTEL} to vfio-pci"]
        assert after.driver(INTEL) == "vfio-pci"


def test_what_was_changed_behind_our_back_is_told(scene: Scene) -> None:
    scene.service.bind(selector=INTEL)
    scene.service.enable_vfs(selector=OTHER_INTEL, count=2)
    device = scene.root / "sys/bus/pci/devices" / INTEL
    (device / "driver_override").write_text("\n")
    (device / "driver/unbind").write_text(INTEL)
    (scene.root / "sys/bus/pci/drivers_probe").write_text(INTEL)
    (scene.root / "sys/bus/pci/devices" / OTHER_INTEL / "sriov_numvfs").write_text("0")
    found = {d.kind: d for d in find_drift_of_pci(scene.parts)}
    assert set(found) == {"driver-changed", "vfs-changed"}
    assert found[DriftKind.DRIVER_CHANGED].text == "was given to vfio-pci, and has xe now"
    scene.service.bind(selector=INTEL)
    scene.service.unbind(selector=INTEL)
    assert scene.driver(INTEL) == "xe"
    assert (device / "driver_override").read_text() == "(null)\n"
    scene.service.bind(selector=INTEL)
    scene.ask("gone", INTEL)
    assert {d.kind for d in find_drift_of_pci(scene.parts)} == {"function-gone", "vfs-changed"}
    scene.service.unbind(selector=INTEL)
    scene.service.enable_vfs(selector=OTHER_INTEL, count=2)
    assert find_drift_of_pci(scene.parts) == ()


@pytest.mark.parametrize("last", [1, 2, 3, 8])
def test_a_bind_that_a_crash_interrupted_is_undone(scene: Scene, last: int) -> None:
    class Crash(BaseException):
        """Nothing of ours catches it."""

    journal = scene.parts.open_journal()
    appended = [0]

    def append(op: str, event: str, data: Mapping[str, object]) -> None:
        if appended[0] == last:
            raise Crash
        appended[0] += 1
        Journal.append(journal, op, event, data)

    journal.append = append  # type: ignore[method-assign]
    with (
        mock.patch.object(Parts, "open_journal", return_value=journal),
        mock.patch.object(Executor, "_fail", crash),
        pytest.raises(Crash),
    ):
        scene.service.bind(selector=GPU)
    done = scene.service.bind(selector=INTEL)
    assert [scene.driver(a) for a in (GPU, AUDIO, USB, UCSI)] == [
        "nvidia", "snd_hda_intel", "xhci_hcd", None,
    ]  # fmt: skip
    assert scene.bindings() == [INTEL]
    assert "was undone" in done.notes[0]


def crash(*arguments: object) -> None:
    """A killed process undoes nothing."""
    error = arguments[-1]
    assert isinstance(error, BaseException)
    raise error
