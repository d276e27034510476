"""vGPUs of both frameworks on simulated machines: create, delete, capacity, definitions, others' devices."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.vgpu_machine import MDEVS, UUID, VgpuMachine, vgpu_machine
from vgpumgr.errors import (
    PlanOutdatedError,
    ReadBackError,
    RolledBackError,
    UsageError,
    VgpuAmbiguousError,
    VgpuAttributeError,
    VgpuBusyError,
    VgpuDefinedError,
    VgpuForeignError,
    VgpuFunctionsOffError,
    VgpumgrError,
    VgpuNoRoomError,
    VgpuNotFoundError,
    VgpuNotSupportedError,
    VgpuTakenError,
    VgpuTypeAmbiguousError,
    VgpuTypeNotFoundError,
)
from vgpumgr.host.clock import SystemClock
from vgpumgr.mdev.control import HostVgpus
from vgpumgr.state.store import Store

pytestmark = pytest.mark.native
PARAMS = "nvidia/vgpu_params"
#: the GPUs whose functions are needed: each function costs time
FIRST = {"vgpu-a100": "0000:41:00.0", "vgpu-l40s": "0000:3a:00.0"}
#: create and delete; 1,000 when it is run for the numbers
CYCLES = int(os.environ.get("VGPUMGR_MDEV_CYCLES", "6"))


@pytest.fixture
def t4(tmp_path: Path) -> Iterator[VgpuMachine]:
    """Mediated devices on the GPUs themselves."""
    with vgpu_machine("vgpu-t4", tmp_path) as machine:
        yield machine


@pytest.fixture
def l40s(tmp_path: Path) -> Iterator[VgpuMachine]:
    """Virtual functions that take a type."""
    with vgpu_machine("vgpu-l40s", tmp_path) as machine:
        machine.enable_functions(FIRST["vgpu-l40s"])
        yield machine


def fill(machine: VgpuMachine, name: str) -> int:
    """Creates until it is refused."""
    for count in range(100):
        try:
            machine.call("create_vgpu", type=name, gpu="0")
        except VgpuNoRoomError:
            return count
    raise AssertionError("without end")


@pytest.mark.parametrize(
    ("name", "type_", "room"),
    [("vgpu-t4", "GRID T4-4Q", 4), ("vgpu-a100", "NVIDIA A100-10C", 4), ("vgpu-l40s", "NVIDIA L40S-12C", 4)],
)  # fmt: skip
def test_what_is_said_to_be_free_is_what_can_be_created(
    tmp_path: Path, name: str, type_: str, room: int
) -> None:
    with vgpu_machine(name, tmp_path) as machine:
        if name != "vgpu-t4":
            machine.enable_functions(FIRST[name])
        assert machine.free(type_, "0") == room
        assert fill(machine, type_) == room
        assert machine.free(type_, "0") == 0
        vgpus = machine.call("list_vgpus").vgpus
        assert [(v.state, v.ours, v.gpu_index) for v in vgpus] == [("active", True, 0)] * room
        machine.call("delete_vgpu", vgpu=vgpus[0].uuid)
        assert machine.free(type_, "0") == 1


def test_attributes_of_types(t4: VgpuMachine) -> None:
    rows = {row.name: row for row in t4.call("list_vgpu_types", selector="0").types}
    row = rows["GRID T4-2A"]
    assert (row.id, row.framebuffer_bytes, row.heads) == ("nvidia-226", 2 << 30, 1)
    assert (row.max_instances, row.frame_rate_limit) == (8, 60)
    assert row.resolution.as_data() == {"width": 1280, "height": 1024}


def test_one_size_on_a_gpu_and_who_says_so(t4: VgpuMachine) -> None:
    t4.call("create_vgpu", type="t4-2a", gpu="0")
    with pytest.raises(VgpuNoRoomError, match="cannot create GRID T4-4Q") as refused:
        t4.call("create_vgpu", type="T4-4Q", gpu="0")
    assert "1 x GRID T4-2A" in str(refused.value.why)
    row = next(r for r in t4.call("list_vgpu_types").types if r.name == "GRID T4-4Q")
    assert row.free == 0
    assert "equal-size" in row.reason
    # the other GPU takes it
    other = t4.call("create_vgpu", type="T4-4Q").vgpu
    assert other.gpu_index == 1


def test_names_of_types(t4: VgpuMachine) -> None:
    assert (
        t4.call("create_vgpu", type="nvidia-226", dry_run=True).plan.result["type"] == "GRID T4-2A"
    )
    assert t4.call("create_vgpu", type="16c", dry_run=True).plan.result["type"] == "GRID T4-16C"
    with pytest.raises(VgpuTypeAmbiguousError, match="not one vGPU type"):
        t4.call("create_vgpu", type="T4-1")
    with pytest.raises(VgpuTypeNotFoundError) as unknown:
        t4.call("create_vgpu", type="T4-2X")
    assert "T4-2" in str(unknown.value.why)
    assert t4.list_uuids() == []


def test_attributes_are_written_in_order_or_nothing_stays(t4: VgpuMachine) -> None:
    asked = [f"{PARAMS}=disable_vnc=1", f"{PARAMS}=frame_rate_limiter=0"]
    made = t4.call("create_vgpu", type="T4-2A", attributes=asked).vgpu
    assert t4.read(f"{MDEVS}/{made.uuid}/{PARAMS}") == "frame_rate_limiter=0"
    assert [f"{a.name}={a.value}" for a in made.attributes] == asked
    with pytest.raises(RolledBackError, match="vgpu_params"):
        t4.call("create_vgpu", type="T4-2A", attributes=[f"{PARAMS}=colour=green"], define=True)
    assert t4.list_uuids() == [made.uuid]
    assert t4.list_definitions() == {}
    for wrong in ("novalue", "../remove=1", "/etc/passwd=x"):
        with pytest.raises(UsageError, match="not an attribute"):
            t4.call("create_vgpu", type="T4-2A", attributes=[wrong])


def test_a_uuid_is_never_used_twice(t4: VgpuMachine) -> None:
    uuid = UUID.format(1)
    t4.call("create_vgpu", type="T4-2A", uuid=uuid.upper())
    with pytest.raises(VgpuTakenError, match="in use"):
        t4.call("create_vgpu", type="T4-2A", uuid=uuid)
    with pytest.raises(UsageError, match="not a UUID"):
        t4.call("create_vgpu", type="T4-2A", uuid="1234")
    t4.call("create_vgpu", type="T4-2A", uuid=UUID.format(2))
    with pytest.raises(VgpuAmbiguousError):
        t4.call("delete_vgpu", vgpu=uuid[:10])
    with pytest.raises(VgpuNotFoundError):
        t4.call("delete_vgpu", vgpu="abcd")


def test_stop_keeps_the_definition_and_start_brings_it_back(t4: VgpuMachine) -> None:
    uuid = t4.call("create_vgpu", type="T4-2A", attributes=[f"{PARAMS}=disable_vnc=1"]).vgpu.uuid
    with pytest.raises(VgpuDefinedError, match="cannot stop"):
        t4.call("stop_vgpu", vgpu=uuid)
    t4.call("define_vgpu", vgpu=uuid, auto=True)
    place = f"0000:3b:00.0/{uuid}"
    assert t4.list_definitions()[place] == {
        "mdev_type": "nvidia-226", "start": "auto", "attrs": [{PARAMS: "disable_vnc=1"}]
    }  # fmt: skip
    stopped = t4.call("stop_vgpu", vgpu=uuid[:8]).vgpu
    assert (stopped.state, stopped.auto, t4.list_uuids()) == ("defined", True, [])
    started = t4.call("start_vgpu", vgpu=uuid).vgpu
    assert (started.state, t4.read(f"{MDEVS}/{uuid}/{PARAMS}")) == ("active", "disable_vnc=1")
    t4.call("define_vgpu", vgpu=uuid, auto=False)
    assert t4.list_definitions()[place]["start"] == "manual"
    t4.call("delete_vgpu", vgpu=uuid)
    assert (t4.list_uuids(), t4.list_definitions()) == ([], {})


@pytest.mark.parametrize("name", ["vgpu-t4", "vgpu-l40s"])
def test_a_boot_brings_back_what_is_auto_and_forgets_the_rest(tmp_path: Path, name: str) -> None:
    with vgpu_machine(name, tmp_path) as machine:
        type_ = "T4-2A"
        if name == "vgpu-l40s":
            machine.enable_functions(FIRST[name])
            type_ = "L40S-12C"
        make = {"auto": {"auto": True}, "manual": {"define": True}, "transient": {}}
        made = {
            kind: machine.call("create_vgpu", type=type_, gpu="0", **asked).vgpu
            for kind, asked in make.items()
        }
        machine.reboot()
        if name == "vgpu-l40s":
            told = machine.call("restore")
            assert "virtual functions come first" in " ".join(told.problems)
            machine.enable_functions(FIRST[name])
        restored = machine.call("restore")
        assert restored.problems == []
        left = {v.uuid: (v.state, v.parent) for v in machine.call("list_vgpus").vgpus}
        assert left == {
            made["auto"].uuid: ("active", made["auto"].parent),
            made["manual"].uuid: ("defined", made["manual"].parent),
        }
        assert machine.call("restore").done == []


def test_what_mdevctl_started_first_is_no_error(t4: VgpuMachine) -> None:
    uuid = t4.call("create_vgpu", type="T4-2A", auto=True).vgpu.uuid
    t4.reboot()
    t4.write("sys/class/mdev_bus/0000:3b:00.0/mdev_supported_types/nvidia-226/create", uuid)
    assert t4.call("restore").problems == []
    assert [v.state for v in t4.call("list_vgpus").vgpus] == ["active"]


def test_types_are_kept_by_name(t4: VgpuMachine) -> None:
    """A new driver numbers its types anew; the definition follows the name."""
    uuid = t4.call("create_vgpu", type="T4-2A", define=True).vgpu.uuid
    t4.call("stop_vgpu", vgpu=uuid)
    path = t4.directory / "host/state/state.sqlite"
    (record,) = Store(path).list_vgpus()
    Store(path, record.boot).save_vgpu(
        replace(record, spec=replace(record.spec, type_id="nvidia-9"))
    )
    assert t4.call("start_vgpu", vgpu=uuid).vgpu.type_id == "nvidia-226"
    assert t4.list_definitions()[f"0000:3b:00.0/{uuid}"]["mdev_type"] == "nvidia-226"


def test_what_is_not_ours_is_left_alone_until_adopted(t4: VgpuMachine) -> None:
    theirs, defined = UUID.format(1), UUID.format(2)
    t4.write("sys/class/mdev_bus/0000:3b:00.0/mdev_supported_types/nvidia-226/create", theirs)
    home = t4.directory / "host/etc/mdevctl.d/0000:af:00.0"
    home.mkdir(parents=True)
    document = {"mdev_type": "nvidia-231", "start": "manual", "attrs": [], "site": "kept"}
    (home / defined).write_text(json.dumps(document))
    (home / "README").write_text("no definition")
    listed = {v.uuid: (v.state, v.ours, v.type) for v in t4.call("list_vgpus").vgpus}
    assert listed == {
        theirs: ("active", False, "GRID T4-2A"), defined: ("defined", False, "GRID T4-2Q")
    }  # fmt: skip
    for operation in ("delete_vgpu", "stop_vgpu", "start_vgpu", "define_vgpu"):
        for uuid in (theirs, defined):
            with pytest.raises(VgpuForeignError) as refused:
                t4.call(operation, vgpu=uuid)
            assert refused.value.hint == f"vgpumgr mdev adopt {uuid}"
    with pytest.raises(VgpuForeignError):
        t4.call("create_vgpu", type="T4-2A", uuid=defined)
    assert t4.list_uuids() == [theirs]
    t4.call("adopt_vgpu", vgpu=theirs)
    t4.call("adopt_vgpu", vgpu=defined)
    assert t4.call("adopt_vgpu", vgpu=defined).plan.steps == []
    t4.call("define_vgpu", vgpu=defined, auto=True)
    assert t4.list_definitions()[f"0000:af:00.0/{defined}"] == {**document, "start": "auto"}
    t4.call("start_vgpu", vgpu=defined)
    t4.call("delete_vgpu", vgpu=theirs)
    assert t4.list_uuids() == [defined]


def test_a_function_of_others_is_adopted_by_its_address(l40s: VgpuMachine) -> None:
    place = "sys/bus/pci/devices/0000:3a:00.4/nvidia/current_vgpu_type"
    l40s.write(place, "1168")
    with pytest.raises(VgpuForeignError):
        l40s.call("delete_vgpu", vgpu="3a:00.4")
    adopted = l40s.call("adopt_vgpu", vgpu="3a:00.4").vgpu
    assert (adopted.type, adopted.ours) == ("NVIDIA L40S-12C", True)
    l40s.call("delete_vgpu", vgpu=adopted.uuid)
    assert l40s.read(place) == "0"


def test_a_held_vgpu_stays_and_its_holder_is_named(l40s: VgpuMachine) -> None:
    made = l40s.call("create_vgpu", type="L40S-12C", gpu="0").vgpu
    l40s.write(".sim/hold", f"{made.parent} vm7")
    with pytest.raises(VgpuBusyError) as refused:
        l40s.call("delete_vgpu", vgpu=made.uuid)
    assert 'vm "vm7"' in refused.value.held_by
    l40s.write(".sim/release", made.parent)
    l40s.call("delete_vgpu", vgpu=made.uuid)


def test_a_mig_backed_vgpu_has_its_instance_made_and_taken_away(l40s: VgpuMachine) -> None:
    # the mode first, then the functions: it cannot change while there are any
    l40s.call("set_mig_mode", gpu="2", enabled=True)
    l40s.enable_functions("0000:d8:00.0")
    first = l40s.call("create_vgpu", type="DC-1-2Q")
    kinds = [step.kind for step in first.plan.steps]
    assert kinds == ["mig.gi.create", "mig.ci.create", "mdev.create"]
    second = l40s.call("create_vgpu", type="DC-1-2Q")
    assert [step.kind for step in second.plan.steps] == ["mdev.create"]
    assert first.vgpu.gpu_instance == second.vgpu.gpu_instance
    instances = l40s.call("list_mig_instances").instances
    assert [i.profile for i in instances] == ["1g.24gb+gfx"]
    assert instances[0].attachment in (first.vgpu.uuid, second.vgpu.uuid)
    assert l40s.free("NVIDIA RTX Pro 6000 Blackwell DC-1-2Q") == 46
    with pytest.raises(VgpuNoRoomError, match="DC-2Q") as mixed:
        l40s.call("create_vgpu", type="DC-2Q")
    assert "MIG mode is on" in str(mixed.value.why)
    l40s.call("delete_vgpu", vgpu=first.vgpu.uuid)
    assert len(l40s.call("list_mig_instances").instances) == 1
    last = l40s.call("delete_vgpu", vgpu=second.vgpu.uuid)
    assert [step.kind for step in last.plan.steps] == [
        "mdev.delete", "mig.ci.destroy", "mig.gi.destroy"
    ]  # fmt: skip
    assert l40s.call("list_mig_instances").instances == []


def test_without_functions_the_command_that_enables_them_is_named(tmp_path: Path) -> None:
    """The one refusal, whoever asks; and what it names is what helps."""
    with vgpu_machine("vgpu-a100", tmp_path) as machine:
        assert machine.call("list_vgpu_types").types == []
        layout = VGPU_LAYOUT.partition("    - gpus: 2")[0].replace("L40S-12C", "A100-10C")
        asked: list[tuple[str, dict[str, Any]]] = [
            ("create_vgpu", {"type": "A100-10C"}),
            ("create_vgpu", {"type": "A100-10C", "gpu": "0"}),
            ("define_vgpu", {"type": "A100-10C", "gpu": "0", "auto": True}),
            ("plan_layout", {"text": layout, "source": "both.yaml", "name": "both"}),
            ("assert_layout", {"text": layout, "source": "both.yaml", "name": "both"}),
        ]
        for call, more in asked:
            with pytest.raises(VgpuFunctionsOffError) as refused:
                machine.call(call, **more)
            assert refused.value.hint == "vgpumgr vf enable 0 --persist"
        with pytest.raises(VgpuNotSupportedError):
            machine.call("create_vgpu", type="H100-1C")
        machine.call("enable_vfs", selector="0", persist=True)
        for _ in range(4):
            machine.call("create_vgpu", type="A100-10C")
        with pytest.raises(VgpuNoRoomError) as full:
            machine.call("create_vgpu", type="A100-10C")
        assert full.value.hint == "vgpumgr vf enable 1 --persist"


def test_mig_mode_comes_before_functions(tmp_path: Path) -> None:
    with vgpu_machine("vgpu-l40s", tmp_path) as machine:
        kind = "DC-1-24Q"
        with pytest.raises(VgpuFunctionsOffError) as refused:
            machine.call("create_vgpu", type=kind, gpu="2")
        first, second = str(refused.value.hint).split(", then ")
        assert (first, second) == ("vgpumgr mig enable 2", "vgpumgr vf enable 2 --persist")
        machine.call("set_mig_mode", gpu="2", enabled=True)
        with pytest.raises(VgpuFunctionsOffError) as refused:
            machine.call("create_vgpu", type=kind, gpu="2")
        assert refused.value.hint == second


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("ignore */create", ReadBackError),
        ("fail */create EIO", VgpuNoRoomError),
        ("fail */create ENOSPC", VgpuNoRoomError),
        ("fail */create EEXIST", VgpuTakenError),
        ("fail */create EACCES", VgpumgrError),
    ],
)
def test_a_refused_or_ignored_create_leaves_nothing(
    t4: VgpuMachine, fault: str, error: type[VgpumgrError]
) -> None:
    t4.write(".sim/fault", fault)
    with pytest.raises((error, RolledBackError)) as refused:
        t4.call("create_vgpu", type="T4-2A", define=True)
    assert isinstance(refused.value, error) or isinstance(refused.value.__cause__, error)
    assert t4.call("list_vgpus").vgpus == []
    assert t4.list_definitions() == {}
    t4.call("create_vgpu", type="T4-2A", define=True)


def test_an_ignored_removal_is_noticed_and_can_be_repeated(t4: VgpuMachine) -> None:
    uuid = t4.call("create_vgpu", type="T4-2A", define=True).vgpu.uuid
    t4.write(".sim/fault", "ignore */remove")
    with pytest.raises(ReadBackError, match="still there"):
        t4.call("delete_vgpu", vgpu=uuid)
    assert [v.state for v in t4.call("list_vgpus").vgpus] == ["active"]
    t4.call("delete_vgpu", vgpu=uuid)
    assert t4.call("list_vgpus").vgpus == []


def test_a_gpu_that_falls_off_the_bus_takes_nothing_along(t4: VgpuMachine) -> None:
    lost = t4.call("create_vgpu", type="T4-2A", gpu="0", define=True).vgpu.uuid
    kept = t4.call("create_vgpu", type="T4-2A", gpu="1").vgpu.uuid
    t4.write(".sim/gone", "0000:3b:00.0")
    states = {v.uuid: v.state for v in t4.call("list_vgpus").vgpus}
    assert states == {lost: "missing", kept: "active"}
    with pytest.raises(VgpumgrError, match="cannot create"):
        t4.call("start_vgpu", vgpu=lost)
    t4.call("delete_vgpu", vgpu=lost)
    assert [v.uuid for v in t4.call("list_vgpus").vgpus] == [kept]
    assert t4.list_definitions() == {}


def test_a_vgpu_whose_function_is_gone_is_named_by_its_address(l40s: VgpuMachine) -> None:
    made = l40s.call("create_vgpu", type="L40S-12Q", gpu="0").vgpu
    l40s.write(".sim/gone", made.gpu)
    l40s.call("delete_vgpu", vgpu=made.parent)
    assert l40s.call("list_vgpus").vgpus == []


def test_cycles_leave_nothing_behind(t4: VgpuMachine) -> None:
    for number in range(CYCLES + 1):
        if number == 1:
            descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        made = t4.call("create_vgpu", type="T4-4Q", auto=True)
        t4.call("delete_vgpu", vgpu=made.vgpu.uuid)
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208
    assert t4.call("list_vgpus").vgpus == []
    t4.forget()
    assert (t4.list_uuids(), t4.list_definitions()) == ([], {})
    assert list((t4.directory / "host/run/late").iterdir()) == []
    ended = [event["event"] for event in t4.read_journal()]
    assert ended.count("begin") == ended.count("end")
    assert Store(t4.directory / "host/state/state.sqlite").list_vgpus() == ()


VGPU_LAYOUT = """schema: vgpumgr/mig-layout/v1
layouts:
  both:
    - gpus: 0
      vgpus: {L40S-12C: 2}
    - gpus: 2
      instances: [1g.24gb+gfx]
      vgpus: {DC-1-2Q: 2}
  other:
    - gpus: 0
      vgpus: {L40S-24C: 1}
"""


def test_a_layout_of_instances_and_vgpus_is_one_change(l40s: VgpuMachine) -> None:
    l40s.call("set_mig_mode", gpu="2", enabled=True)
    l40s.enable_functions("0000:d8:00.0")
    asked = {"text": VGPU_LAYOUT, "source": "both.yaml", "name": "both"}
    # the last vGPU is refused: everything before it is undone, GPU instances as well
    l40s.write(".sim/fault", "fail */0000:d8:00.5/nvidia/current_vgpu_type EIO")
    with pytest.raises(RolledBackError):
        l40s.call("apply_layout", **asked)
    assert l40s.call("list_vgpus").vgpus == []
    assert l40s.call("list_mig_instances").instances == []

    done = l40s.call("apply_layout", **asked)
    kinds = [step.kind for step in done.steps]
    assert kinds == ["mig.gi.create", "mig.ci.create", *["mdev.create"] * 4]
    assert l40s.call("assert_layout", **asked).matches
    again = l40s.call("plan_layout", **asked)
    assert (again.steps, again.cost.kept) == ([], 1)
    assert all(v.defined and v.auto for v in l40s.call("list_vgpus").vgpus)

    for dialect in ("vgpumgr", "vgpu-device-manager"):
        file = l40s.call("export_layout", dialect=dialect, label="now", placements=True).file
        now = l40s.call("plan_layout", text=json.dumps(file), source="now.json")
        assert now.steps == [], dialect

    plan = l40s.call("plan_layout", **{**asked, "name": "other"})
    assert plan.destructive
    assert (plan.cost.vgpu_deletes, plan.cost.vgpu_creates) == (2, 1)
    saved = json.dumps(plan.as_data())
    l40s.call("delete_vgpu", vgpu="3a:00.5")
    with pytest.raises(PlanOutdatedError):
        l40s.call("apply_layout", text=saved, source="saved.json")
    fresh = json.dumps(l40s.call("plan_layout", **{**asked, "name": "other"}).as_data())
    l40s.call("apply_layout", text=fresh, source="saved.json")
    names = sorted(v.type for v in l40s.call("list_vgpus").vgpus if v.gpu_index == 0)
    assert names == ["NVIDIA L40S-24C"]


def test_mixed_sizes_go_on_with_the_first_and_again_after_a_boot(l40s: VgpuMachine) -> None:
    asked = {"gpu": "0", "auto": True, "mixed_sizes": True}
    first = l40s.call("create_vgpu", type="L40S-12C", **asked)
    assert [step.kind for step in first.plan.steps][:1] == ["mdev.mixed-sizes"]
    second = l40s.call("create_vgpu", type="L40S-24C", **asked)
    assert [step.kind for step in second.plan.steps] == ["mdev.create", "mdev.define"]
    l40s.reboot()
    l40s.enable_functions(FIRST["vgpu-l40s"])
    assert l40s.call("restore").problems == []
    sizes = sorted(v.type for v in l40s.call("list_vgpus").vgpus)
    assert sizes == ["NVIDIA L40S-12C", "NVIDIA L40S-24C"]


def test_a_place_is_only_taken_by_a_gpu_of_several_sizes(l40s: VgpuMachine) -> None:
    """Planning says so, with what would do; the driver says EPERM after the vGPU was made."""
    with pytest.raises(VgpuAttributeError, match="cannot place NVIDIA L40S-12C at 24") as refused:
        l40s.call("create_vgpu", type="L40S-12C", placement=24)
    advice, otherwise = str(refused.value.hint).split(", or ")
    words = advice.split()
    assert words[:4] == ["vgpumgr", "mdev", "create", "L40S-12C"]
    assert words[-1] == "--mixed-sizes"
    assert otherwise == "without --placement"
    asked = {"gpu": words[words.index("--gpu") + 1], "placement": 24}
    made = l40s.call("create_vgpu", type="L40S-12C", mixed_sizes=True, auto=True, **asked)
    assert made.vgpu.placement == 24
    with pytest.raises(VgpuTakenError, match="at 24") as taken:
        l40s.call("create_vgpu", type="L40S-24C", placement=24)
    assert taken.value.held_by == (f"vGPU NVIDIA L40S-12C {made.vgpu.parent}",)
    other = l40s.call("create_vgpu", type="L40S-24C", placement=0, auto=True).vgpu
    assert (other.parent[:10], other.placement) == (made.vgpu.parent[:10], 0)
    l40s.call("delete_vgpu", vgpu=made.vgpu.uuid)
    l40s.reboot()
    l40s.enable_functions(FIRST["vgpu-l40s"])
    assert l40s.call("restore").problems == []
    assert [(v.type, v.placement) for v in l40s.call("list_vgpus").vgpus] == [
        ("NVIDIA L40S-24C", 0)
    ]


def test_sizes_are_mixed_on_the_gpu_that_can(l40s: VgpuMachine) -> None:
    """Not on the fullest, whose mode cannot change any more."""
    l40s.call("create_vgpu", type="L40S-12C", gpu="0")
    with pytest.raises(VgpuAttributeError, match="cannot place") as refused:
        l40s.call("create_vgpu", type="L40S-12C", placement=24)
    assert str(refused.value.hint).startswith("once no vGPU is left there: vgpumgr mdev create")
    assert len(refused.value.held_by) == 1
    l40s.enable_functions("0000:b1:00.0")
    made = l40s.call("create_vgpu", type="L40S-12C", mixed_sizes=True).vgpu
    assert made.parent.startswith("0000:b1:")


def test_sizes_are_not_mixed_where_the_mode_cannot_be(t4: VgpuMachine) -> None:
    with pytest.raises(VgpuNotSupportedError, match="several sizes"):
        t4.call("create_vgpu", type="T4-2A", mixed_sizes=True)
    with pytest.raises(VgpuAttributeError, match="cannot place") as refused:
        t4.call("create_vgpu", type="T4-2A", placement=0)
    assert "no mode" in str(refused.value.why)
    assert refused.value.hint == "without --placement"
    assert t4.list_uuids() == []


def test_what_is_so_already_is_said_and_left(t4: VgpuMachine) -> None:
    made = t4.call("create_vgpu", type="T4-2A", define=True).vgpu
    before = len(t4.read_journal())
    for verb, word, state in (
        ("start_vgpu", "started", "active"),
        ("stop_vgpu", "stopped", "defined"),
    ):
        if verb == "stop_vgpu":
            t4.call("stop_vgpu", vgpu=made.uuid)
            before = len(t4.read_journal())
        again = t4.call(verb, vgpu=made.uuid)
        assert again.plan.steps == []
        assert again.plan.notes == [f"nothing to do: it is {word} already"]
        assert again.vgpu.state == state
    assert len(t4.read_journal()) == before


def list_drift(machine: VgpuMachine) -> list[str]:
    """There is no libvirt on the machine: only what is beside attachments is known."""
    return [found.subject for found in machine.call("status").drift or ()]


def test_status_tells_of_what_a_boot_took_and_nobody_brought_back(t4: VgpuMachine) -> None:
    auto = t4.call("create_vgpu", type="T4-2A", auto=True).vgpu.uuid
    manual = t4.call("create_vgpu", type="T4-2A", define=True).vgpu.uuid
    t4.reboot()
    (drift,) = t4.call("status").drift
    assert (drift.kind, drift.subject, drift.hint) == ("not-restored", auto, "vgpumgr restore")
    t4.call("stop_vgpu", vgpu=manual)  # a change settles what a boot took
    assert [d.subject for d in t4.call("status").drift] == [auto]
    t4.call("restore")
    assert list_drift(t4) == []
    t4.call("stop_vgpu", vgpu=auto)
    assert list_drift(t4) == [], "somebody wanted it so"


def test_a_vgpu_that_somebody_else_removed_is_missing_or_a_ghost(
    t4: VgpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = t4.call("create_vgpu", type="T4-4Q", gpu="0", define=True).vgpu
    t4.write(f"{MDEVS}/{made.uuid}/remove", "1")
    assert [v.state for v in t4.call("list_vgpus").vgpus] == ["missing"]
    assert [(d.kind, d.subject) for d in t4.call("status").drift] == [("vgpu-gone", made.uuid)]
    t4.call("start_vgpu", vgpu=made.uuid)
    holder = "process 412 (qemu-system-x86)"
    t4.write(".sim/hold", f"{made.uuid} vm7")
    path = t4.root / MDEVS / made.uuid / "remove"
    writer = subprocess.Popen(["sh", "-c", f"echo 1 >{path}"])
    try:
        clock = SystemClock()
        deadline_s = clock.monotonic_s() + 60
        while t4.list_uuids():
            assert clock.monotonic_s() < deadline_s
            clock.sleep(0.05)
        monkeypatch.setattr(HostVgpus, "list_group_holders", lambda _self, _group: (holder,))
        (ghost,) = t4.call("list_vgpus").vgpus
        assert (ghost.state, ghost.held_by) == ("ghost", [holder])
        assert t4.free("GRID T4-4Q", "0") == 3
        (drift,) = t4.call("status").drift
        assert (drift.kind, drift.subject) == ("vgpu-held", made.uuid)
        assert holder in drift.text
        for verb in ("start_vgpu", "stop_vgpu", "delete_vgpu"):
            with pytest.raises(VgpumgrError) as refused:
                t4.call(verb, vgpu=made.uuid)
            assert refused.value.held_by == (holder,)
    finally:
        t4.write(".sim/release", made.uuid)
        assert writer.wait(60) == 0
    monkeypatch.undo()
    t4.call("delete_vgpu", vgpu=made.uuid)
    assert t4.free("GRID T4-4Q", "0") == 4
    assert list_drift(t4) == []
