"""What goes wrong around vGPUs: a removal that cannot end, and a crash at every moment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.recovering import recover_parts
from tests.support.vgpu_machine import MDEVS, VgpuMachine, vgpu_machine
from vgpumgr.engine import journal as journals
from vgpumgr.errors import OutcomePendingError, VgpuReleasingError, VgpuTakenError
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.holders import list_group_holders
from vgpumgr.host.machine import Machine
from vgpumgr.mdev.control import HostVgpus
from vgpumgr.model.vgpu import Framework, VgpuSpec
from vgpumgr.steps.vgpu import DeleteVgpu

pytestmark = pytest.mark.native
T4 = "GRID T4-2A"


@pytest.fixture
def t4(tmp_path: Path) -> Iterator[VgpuMachine]:
    """Mediated devices on the GPUs themselves."""
    with vgpu_machine("vgpu-t4", tmp_path) as machine:
        yield machine


def parts_of(machine: VgpuMachine) -> Any:
    """What the application of the machine works with."""
    machine.call("list_vgpus")
    application: Any = machine._application
    return application.parts


def test_removed_while_held(t4: VgpuMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody opens it between our look and our write: the writer sleeps, and nobody else does."""
    made = t4.call("create_vgpu", type=T4, gpu="0", define=True).vgpu
    t4.write(".sim/hold", f"{made.uuid} vm7")
    control = parts_of(t4).vgpus
    control._change_timeout_s = 0.5
    with monkeypatch.context() as patch:
        patch.setattr(HostVgpus, "list_holders", lambda _self, _device: ())
        with pytest.raises(OutcomePendingError, match="delete vGPU") as pending:
            t4.call("delete_vgpu", vgpu=made.uuid)
    assert len(pending.value.held_by) == 1
    assert f"remove vGPU {made.uuid}" in pending.value.held_by[0]

    # the kernel does not show it, but its room is taken, and it is not forgotten
    assert t4.list_uuids() == []
    ghost = t4.call("list_vgpus").vgpus[0]
    assert (ghost.uuid, ghost.state) == (made.uuid, "releasing")
    assert t4.free(T4, "0") == 7
    with pytest.raises(VgpuReleasingError):
        t4.call("delete_vgpu", vgpu=made.uuid)
    with pytest.raises(VgpuTakenError):
        t4.call("create_vgpu", type=T4, uuid=made.uuid)

    # others go on meanwhile, on the same GPU as well, and status answers
    other = t4.call("create_vgpu", type=T4, gpu="0")
    assert any("waits for process" in note for note in other.notes)
    assert t4.free(T4, "0") == 6
    late = [text for text in parts_of(t4).list_late() if f"remove vGPU {made.uuid}" in text]
    assert len(late) == 1

    # released: it goes by itself, and the next command recovers the rest
    t4.write(".sim/release", made.uuid)
    await_helper(t4)
    parts = parts_of(t4)
    assert any("was finished" in note for note in recover_parts(parts))
    assert recover_parts(parts) == []
    assert [v.uuid for v in t4.call("list_vgpus").vgpus] == [other.vgpu.uuid]
    assert t4.list_definitions() == {}
    assert t4.free(T4, "0") == 7


def await_helper(machine: VgpuMachine) -> None:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + 60
    while parts_of(machine).list_late():
        assert clock.monotonic_s() < deadline_s, "the helper does not end"
        clock.sleep(0.05)


def test_the_holder_of_a_ghost_is_named(t4: VgpuMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the VFIO group that it has open, which outlives the device's directory."""
    made = t4.call("create_vgpu", type=T4, gpu="0").vgpu
    t4.write(".sim/hold", f"{made.uuid} vm7")
    parts = parts_of(t4)
    parts.vgpus._change_timeout_s = 0.5
    asked: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(HostVgpus, "list_holders", lambda _self, _device: ())
        with pytest.raises(OutcomePendingError):
            t4.call("delete_vgpu", vgpu=made.uuid)

    def name(_self: HostVgpus, group: int) -> tuple[str, ...]:
        asked.append(group)
        return ("process 412 (qemu-system-x86)",)

    monkeypatch.setattr(HostVgpus, "list_group_holders", name)
    assert t4.call("list_vgpus").vgpus[0].held_by == ["process 412 (qemu-system-x86)"]
    with pytest.raises(VgpuReleasingError) as refused:
        t4.call("delete_vgpu", vgpu=made.uuid)
    assert refused.value.held_by == ("process 412 (qemu-system-x86)",)
    assert set(asked) == {made.iommu_group}
    t4.write(".sim/release", made.uuid)
    await_helper(t4)


def test_processes_that_have_a_group_open_are_found(tmp_path: Path) -> None:
    machine = Machine(None, tmp_path, tmp_path, tmp_path, "test:///default")
    node = tmp_path / "dev/vfio/12"
    node.parent.mkdir(parents=True)
    with node.open("w"):
        (holder,) = list_group_holders(machine, 12)
        assert f"process {os.getpid()} " in holder
        assert list_group_holders(machine, 1) == ()
    assert list_group_holders(machine, 12) == ()


def test_a_late_release_does_not_take_the_next_ones_vgpu(tmp_path: Path) -> None:
    """A virtual function has no UUID of its own: the record tells its users apart."""
    with vgpu_machine("vgpu-l40s", tmp_path) as machine:
        machine.enable_functions("0000:3a:00.0")
        first = machine.call("create_vgpu", type="L40S-12C", gpu="0").vgpu
        machine.call("delete_vgpu", vgpu=first.uuid)
        second = machine.call("create_vgpu", type="L40S-12C", gpu="0").vgpu
        assert second.parent == first.parent
        parts = parts_of(machine)
        world = parts.make_context()
        DeleteVgpu(spec_of(first)).do(world)
        place = f"sys/bus/pci/devices/{second.parent}/nvidia/current_vgpu_type"
        assert machine.read(place) == second.type_id
        # and what others put there instead of ours is theirs
        machine.write(place, "0")
        machine.write(place, "1165")
        machine.call("delete_vgpu", vgpu=second.uuid)
        assert machine.read(place) == "1165"
        assert [v.ours for v in machine.call("list_vgpus").vgpus] == [False]


def spec_of(document: Any) -> VgpuSpec:
    return VgpuSpec(
        document.uuid, Framework(document.framework), document.parent, document.type_id, document.type
    )  # fmt: skip


def crash_at(machine: VgpuMachine, number: int, operation: str, **asked: Any) -> bool:
    """Runs it in a process that is killed at the n-th line of the journal; False: there is none."""
    machine.forget()
    child = os.fork()
    if child == 0:
        count, write = 0, journals.Journal.append

        def append(self: journals.Journal, op: str, event: str, data: Any) -> None:
            nonlocal count
            count += 1
            if count == number:
                os._exit(9)
            write(self, op, event, data)

        journals.Journal.append = append  # type: ignore[method-assign]
        try:
            machine.call(operation, **asked)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_crash_at_any_line_of_the_journal_is_recovered(t4: VgpuMachine) -> None:
    """A create is undone, a delete is finished; ours, the kernel's and mdevctl's view agree."""
    number = 1
    asked = {"type": T4, "gpu": "0", "auto": True}
    while crash_at(t4, number, "create_vgpu", **asked):
        recover_parts(parts_of(t4))
        assert t4.call("list_vgpus").vgpus == [], f"line {number}"
        assert (t4.list_uuids(), t4.list_definitions()) == ([], {}), f"line {number}"
        number += 1
    assert number > 5
    lines = 1
    while True:
        uuid = t4.call("list_vgpus").vgpus[0].uuid
        if not crash_at(t4, lines, "delete_vgpu", vgpu=uuid):
            break
        recover_parts(parts_of(t4))
        left = [v.state for v in t4.call("list_vgpus").vgpus]
        # before its first line nothing has happened
        assert left == (["active"] if lines == 1 else []), f"line {lines}"
        assert len(t4.list_uuids()) == len(t4.list_definitions()) == len(left), f"line {lines}"
        if not left:
            t4.call("create_vgpu", **asked)
        lines += 1
    assert lines > 5
    events = [event["event"] for event in t4.read_journal()]
    assert events.count("begin") == events.count("end")
    assert not list((t4.root / MDEVS).iterdir())
