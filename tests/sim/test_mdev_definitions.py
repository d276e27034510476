"""Definitions on simulated machines: where new vGPUs go beside them, what a boot makes of them, ghosts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.vgpu_machine import MDEVS, UUID, VgpuMachine, vgpu_machine
from vgpumgr.errors import VgpuForeignError, VgpuNoRoomError, VgpuNotFoundError, VgpuTakenError
from vgpumgr.host.clock import SystemClock
from vgpumgr.mdev.control import HostVgpus

pytestmark = pytest.mark.native
A100, TYPE = "0000:41:00.0", "A100-4C"


@pytest.fixture
def a100(tmp_path: Path) -> Iterator[VgpuMachine]:
    """Mediated devices on virtual functions."""
    with vgpu_machine("vgpu-a100", tmp_path) as machine:
        machine.enable_functions(A100)
        yield machine


@pytest.fixture
def t4(tmp_path: Path) -> Iterator[VgpuMachine]:
    """Mediated devices on the GPUs themselves."""
    with vgpu_machine("vgpu-t4", tmp_path) as machine:
        yield machine


def test_each_definition_has_a_function_of_its_own_and_comes_back(a100: VgpuMachine) -> None:
    functions = sorted(
        path.name for path in (a100.root / "sys/class/mdev_bus").iterdir() if "41" in path.name
    )
    home = a100.directory / "host/etc/mdevctl.d" / functions[0]
    home.mkdir(parents=True)
    (home / UUID.format(1)).write_text(json.dumps({"mdev_type": "nvidia-471", "start": "auto"}))
    told = [
        a100.call("define_vgpu", type=TYPE, gpu="0", auto=True),
        a100.call("create_vgpu", type=TYPE, gpu="0", auto=True),
        a100.call("define_vgpu", type=TYPE, gpu="0"),
    ]
    advised = ["vf enable 0 --persist" in " ".join(one.plan.notes) for one in told]
    assert advised == [True, True, False], "where it matters at a boot"
    made = [one.vgpu for one in told]
    assert [v.parent for v in made] == functions[1:4], "the first is kept for mdevctl's"
    a100.call("stop_vgpu", vgpu=made[1].uuid)
    # what is only created goes to none of them, until it is named
    other = a100.call("create_vgpu", type=TYPE, gpu="0").vgpu
    assert other.parent == functions[4]
    named = a100.call("create_vgpu", type=TYPE, gpu=functions[3])
    assert made[2].uuid in " ".join(named.plan.notes)
    # a function's address names what is there, not what is only defined there
    assert a100.call("delete_vgpu", vgpu=functions[3]).plan.result["vgpu"] == named.vgpu.uuid
    assert a100.call("delete_vgpu", vgpu=functions[3]).plan.result["vgpu"] == made[2].uuid
    a100.reboot()
    command = f"vgpumgr vf enable {A100} --persist"
    drift = a100.call("status").drift
    assert {d.subject for d in drift} == {v.uuid for v in made[:2]}
    assert {d.hint for d in drift} == {command}
    planned = a100.call("restore", dry_run=True)
    assert [command in problem for problem in planned.problems] == [True, True]
    assert planned.done == []
    restored = a100.call("restore")
    assert [command in problem for problem in restored.problems] == [True, True]
    assert restored.done == [], "what ended with the boot is no gain"
    assert [other.uuid in note for note in restored.notes] == [True]
    a100.call("enable_vfs", selector=A100, persist=True)
    assert {d.hint for d in a100.call("status").drift} == {"vgpumgr restore"}
    planned = a100.call("restore", dry_run=True)
    restored = a100.call("restore")
    assert (planned.done, planned.problems) == (restored.done, restored.problems)
    assert restored.problems == []
    more = a100.call("create_vgpu", type=TYPE, gpu="0", auto=True, dry_run=True)
    assert "--persist" not in " ".join(more.plan.notes)
    states = {v.uuid: (v.state, v.parent) for v in a100.call("list_vgpus").vgpus if v.ours}
    assert states == {v.uuid: ("active", v.parent) for v in made[:2]}
    assert not a100.call("status").drift
    # what others have on a function is found by its address, and left alone
    vf = a100.call("create_vgpu", type=TYPE, gpu="0", dry_run=True).plan.result["parent"]
    create = f"sys/class/mdev_bus/{vf}/mdev_supported_types/{made[0].type_id}/create"
    a100.write(create, UUID.format(2))
    with pytest.raises(VgpuForeignError):
        a100.call("delete_vgpu", vgpu=vf)


def test_a_ghost_on_the_first_function_hides_no_room(
    a100: VgpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = a100.call("create_vgpu", type="A100-10C", gpu="0").vgpu
    a100.write(".sim/hold", f"{made.uuid} vm7")
    writer = subprocess.Popen(["sh", "-c", f"echo 1 >{a100.root / MDEVS / made.uuid}/remove"])
    try:
        clock = SystemClock()
        deadline_s = clock.monotonic_s() + 60
        while a100.list_uuids():
            assert clock.monotonic_s() < deadline_s
            clock.sleep(0.05)
        holder = "process 412 (qemu-system-x86)"
        monkeypatch.setattr(HostVgpus, "list_group_holders", lambda _self, _group: (holder,))
        assert a100.free("NVIDIA A100-10C", "0") == 3
        with pytest.raises(VgpuTakenError) as taken:
            a100.call("create_vgpu", type="A100-10C", uuid=made.uuid)
        assert taken.value.why == "it is ghost, ours"
        others = [a100.call("create_vgpu", type="A100-10C", gpu="0").vgpu for _ in range(3)]
        assert made.parent not in {other.parent for other in others}
        with pytest.raises(VgpuNoRoomError) as full:
            a100.call("create_vgpu", type="A100-10C", gpu="0")
        assert full.value.held_by == (holder,)
    finally:
        a100.write(".sim/release", made.uuid)
        assert writer.wait(60) == 0


def test_a_definition_keeps_what_is_not_named(t4: VgpuMachine) -> None:
    asked = ["nvidia/vgpu_params=disable_vnc=1"]
    made = t4.call("create_vgpu", type="T4-2A", attributes=asked, auto=True).vgpu
    place = f"{made.parent}/{made.uuid}"
    again = t4.call("define_vgpu", vgpu=made.uuid)
    assert (again.plan.steps, again.vgpu.auto) == ([], True)
    assert again.plan.notes == ["nothing to do: it is defined so already"]
    changed = t4.call("define_vgpu", vgpu=made.uuid, attributes=["nvidia/vgpu_params=b=2"])
    assert "with nvidia/vgpu_params=b=2" in changed.plan.steps[0].description
    assert t4.list_definitions()[place] == {
        "mdev_type": "nvidia-226", "start": "auto", "attrs": [{"nvidia/vgpu_params": "b=2"}]
    }  # fmt: skip
    assert t4.call("define_vgpu", vgpu=made.uuid, auto=False).vgpu.auto is False
    assert t4.list_definitions()[place]["attrs"] == [{"nvidia/vgpu_params": "b=2"}]
    # somebody else took the file away: it is written again
    (t4.directory / "host/etc/mdevctl.d" / place).unlink()
    assert len(t4.call("define_vgpu", vgpu=made.uuid).plan.steps) == 1
    assert t4.list_definitions()[place]["start"] == "manual"
    told = t4.call("adopt_vgpu", vgpu=made.uuid).plan
    assert (told.steps, told.notes) == ([], ["nothing to do: it is ours already"])
    # the address of a GPU that holds many names none of them
    with pytest.raises(VgpuNotFoundError):
        t4.call("delete_vgpu", vgpu=made.parent)


def change_definition(machine: VgpuMachine, place: str, **keys: object) -> None:
    """As ``mdevctl modify`` does."""
    path = machine.directory / "host/etc/mdevctl.d" / place
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


@pytest.fixture
def adopted(t4: VgpuMachine) -> VgpuMachine:
    """A vGPU that runs and that mdevctl had defined to start at boot, taken over."""
    place = f"0000:3b:00.0/{UUID.format(1)}"
    home = t4.directory / "host/etc/mdevctl.d/0000:3b:00.0"
    home.mkdir(parents=True)
    (home / UUID.format(1)).write_text(json.dumps({"mdev_type": "nvidia-226", "start": "auto"}))
    t4.call("adopt_vgpu", vgpu=UUID.format(1))
    t4.call("start_vgpu", vgpu=UUID.format(1))
    assert t4.list_definitions()[place]["start"] == "auto"
    return t4


@pytest.mark.parametrize("before_boot", [True, False])
def test_a_boot_obeys_what_mdevctl_made_manual(adopted: VgpuMachine, before_boot: bool) -> None:
    uuid, place = UUID.format(1), f"0000:3b:00.0/{UUID.format(1)}"
    if before_boot:
        change_definition(
            adopted, place, start="manual", attrs=[{"nvidia/vgpu_params": "disable_vnc=1"}]
        )
        assert adopted.call("list_vgpus").vgpus[0].auto is False
    adopted.reboot()
    if not before_boot:
        change_definition(
            adopted, place, start="manual", attrs=[{"nvidia/vgpu_params": "disable_vnc=1"}]
        )
    assert not adopted.call("status").drift
    restored = adopted.call("restore")
    assert (restored.done, restored.problems, adopted.list_uuids()) == ([], [], [])
    assert [v.state for v in adopted.call("list_vgpus").vgpus] == ["defined"]
    # the attributes are mdevctl's, too; and what is made auto there comes back
    change_definition(adopted, place, start="auto")
    adopted.reboot()
    assert [d.kind for d in adopted.call("status").drift] == ["not-restored"]
    assert adopted.call("restore").problems == []
    assert adopted.list_uuids() == [uuid]
    assert adopted.read(f"{MDEVS}/{uuid}/nvidia/vgpu_params") == "disable_vnc=1"


def test_a_boot_obeys_another_type(adopted: VgpuMachine) -> None:
    uuid, place = UUID.format(1), f"0000:3b:00.0/{UUID.format(1)}"
    change_definition(adopted, place, mdev_type="nvidia-231")
    (running,) = adopted.call("list_vgpus").vgpus
    assert running.type == "GRID T4-2A"
    adopted.reboot()
    assert adopted.call("restore").problems == []
    (now,) = adopted.call("list_vgpus").vgpus
    assert (now.uuid, now.state, now.type) == (uuid, "active", "GRID T4-2Q")


@pytest.mark.parametrize("before_boot", [True, False])
def test_a_boot_obeys_what_mdevctl_undefined(adopted: VgpuMachine, before_boot: bool) -> None:
    file = adopted.directory / f"host/etc/mdevctl.d/0000:3b:00.0/{UUID.format(1)}"
    if before_boot:
        file.unlink()
        (shown,) = adopted.call("list_vgpus").vgpus
        assert (shown.state, shown.ours, shown.defined) == ("active", True, False)
    adopted.reboot()
    if not before_boot:
        file.unlink()
    assert not adopted.call("status").drift
    restored = adopted.call("restore")
    assert (restored.done, restored.problems, adopted.list_uuids()) == ([], [], [])
    assert adopted.call("list_vgpus").vgpus == []
    # its function is kept for nobody, and its UUID is free
    assert adopted.call("create_vgpu", type="T4-2A", uuid=UUID.format(1)).vgpu.state == "active"


def test_what_mdevctl_undefined_can_be_deleted_and_leaves_nothing(adopted: VgpuMachine) -> None:
    uuid = UUID.format(1)
    (adopted.directory / f"host/etc/mdevctl.d/0000:3b:00.0/{uuid}").unlink()
    deleted = adopted.call("delete_vgpu", vgpu=uuid)
    assert [step.kind for step in deleted.plan.steps] == ["mdev.delete"]
    assert (adopted.call("list_vgpus").vgpus, adopted.list_uuids()) == ([], [])


def test_a_definition_that_cannot_be_read_changes_nothing(adopted: VgpuMachine) -> None:
    uuid = UUID.format(1)
    (adopted.directory / f"host/etc/mdevctl.d/0000:3b:00.0/{uuid}").write_text("{")
    adopted.reboot()
    assert [d.kind for d in adopted.call("status").drift] == ["not-restored"]
    assert adopted.call("restore").problems == []
    assert adopted.list_uuids() == [uuid]
