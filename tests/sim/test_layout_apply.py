"""Changes of layout on the simulated NVML: carried out, rolled back, interrupted, disturbed."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim.nvml_support import TOOL, Client, build_simstate
from tests.support.inprocess_nvml import InProcessNvml
from tests.support.layout_changes import apply_layout
from tests.support.layout_rig import LayoutRig, layout_rig
from tests.support.recovering import recover_parts
from vgpumgr.app.context import list_late_processes
from vgpumgr.errors import (
    Exit,
    LayoutBusyError,
    LayoutChangedError,
    MigModePendingError,
    NotPermittedError,
    NvmlInUseError,
    OutcomePendingError,
    RolledBackError,
    VgpumgrError,
)
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.machine import find_machine
from vgpumgr.mig.layout.planner import plan_layout
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import ComputeInstance, GpuInstance, Placement
from vgpumgr.nvml.client import NvmlClient

pytestmark = pytest.mark.native

MIXED = (TargetInstance("3g.40gb", ("2c.3g.40gb", "1c.3g.40gb")), "2g.20gb", "1g.10gb")
OTHER = ("4g.40gb", TargetInstance("3g.40gb", ("1c.3g.40gb",) * 3))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LayoutRig]:
    with layout_rig("dgx-a100", tmp_path, monkeypatch) as it:
        yield it


@pytest.fixture(scope="module")
def simstate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_simstate(tmp_path_factory.mktemp("simstate"))


def count_calls(rig: LayoutRig, kind: str, before: tuple[Any, ...], after: tuple[Any, ...]) -> int:
    """How many calls of a kind the change takes."""
    rig.apply(*before)
    return sum(step.kind.value == kind for step in rig.plan(*after).steps)


def test_apply_makes_exactly_what_was_asked_and_remembers_it(rig: LayoutRig) -> None:
    outcome = rig.apply(*MIXED)
    assert sorted(name for name, _, _ in rig.shape()) == ["1g.10gb", "2g.20gb", "3g.40gb"]
    inside = {name: places for name, _, places in rig.shape()}
    assert [p and p.size for p in inside["3g.40gb"]] == [2, 1]
    assert len(rig.nvml.changes) == len(outcome.plan.steps)
    layout = rig.parts.store.read_layouts()[str(rig.gpus[0].uuid)]
    assert layout.mig_enabled
    assert {(i.profile, i.placement) for i in layout.instances} == {
        (name, place) for name, place, _ in rig.shape()
    }
    rig.nvml.changes.clear()
    rig.apply(*MIXED)
    assert rig.nvml.changes == []


def test_who_may_not_is_told_before_anything_is_read(rig: LayoutRig) -> None:
    parts = dataclasses.replace(rig.parts, is_privileged=False)
    with pytest.raises(NotPermittedError):
        apply_layout(rig.plan(*MIXED), parts)
    assert rig.nvml.changes == []


@pytest.mark.parametrize("after", [False, True], ids=["nothing-done", "done-all-the-same"])
@pytest.mark.parametrize("kind", ["gi.create", "gi.destroy", "ci.create", "ci.destroy"])
def test_a_fault_at_any_call_leaves_the_layout_of_before(
    rig: LayoutRig, kind: str, after: bool
) -> None:
    calls = count_calls(rig, f"mig.{kind}", MIXED, OTHER)
    assert calls > 0
    before = rig.shape()
    for nth in range(1, calls + 1):
        rig.fault(kind, nth=nth, after=after)
        with pytest.raises(VgpumgrError) as caught:
            rig.apply(*OTHER)
        assert caught.value.exit_code in (Exit.ROLLED_BACK, Exit.ERROR)
        rig.clear()
        assert rig.shape() == before, f"{kind} number {nth}"
    rig.apply(*OTHER)
    assert rig.shape() != before


def test_a_read_that_fails_anywhere_leaves_the_layout_of_before(rig: LayoutRig) -> None:
    rig.apply("7g.80gb")
    before = rig.shape()
    plan = rig.plan("3g.40gb", "3g.40gb")
    for nth in range(1, 400, 23):
        rig.fault("read", nth=nth)
        try:
            apply_layout(plan, rig.parts)
        except VgpumgrError:
            rig.clear()
            assert rig.shape() == before, f"read number {nth}"
        else:
            rig.clear()
            rig.apply("7g.80gb")
        plan = rig.plan("3g.40gb", "3g.40gb")


class Meddler(InProcessNvml):
    """Another client of NVML, which acts just after one of our calls."""

    def __init__(self, after: str, act: Callable[[InProcessNvml], None]) -> None:
        super().__init__()
        self._after = after
        self._act: Callable[[InProcessNvml], None] | None = act

    def _change(self, method: str, *arguments: Any) -> Any:
        answer = super()._change(method, *arguments)
        if method == self._after and self._act is not None:
            act, self._act = self._act, None
            act(InProcessNvml())
        return answer


def make_foreign(nvml: InProcessNvml, uuid: GpuUuid, name: str, place: Placement) -> GpuInstance:
    gpu = next(g for g in nvml.read_inventory().gpus if g.uuid == uuid)
    profile = next(p for p in gpu.profiles if str(p.name) == name)
    made = nvml.create_gpu_instance(uuid, profile.id, place)
    nvml.create_compute_instance(uuid, made.id, made.slices)
    return made


def test_another_client_is_noticed_and_keeps_what_it_made(rig: LayoutRig) -> None:
    rig.apply("4g.40gb")
    before = rig.shape()
    uuid = rig.gpus[0].uuid
    place = Placement(6, 1)
    meddler = Meddler(
        "destroy_gpu_instance", lambda nvml: make_foreign(nvml, uuid, "1g.10gb", place) and None
    )
    other = rig.with_nvml(meddler)
    with pytest.raises(RolledBackError) as caught:
        other.apply("2g.20gb", "2g.20gb")
    assert isinstance(caught.value.__cause__, LayoutChangedError)
    assert "1g.10gb at 6:1" in str(caught.value.why)
    left = [row for row in rig.shape() if row[1] != place]
    assert tuple(left) == before
    assert [row[:2] for row in rig.shape() if row[1] == place] == [("1g.10gb", place)]


def test_a_plan_that_is_stale_touches_nothing(rig: LayoutRig, simstate: Path) -> None:
    rig.apply("3g.40gb", "2g.20gb")
    plan = rig.plan("7g.80gb")
    rig.nvml.changes.clear()
    instance = rig.gpus[0].instances[0]
    compute = instance.compute_instances[0]
    with Client(simstate, 0, instance.id, compute.id) as client:
        with pytest.raises(LayoutBusyError) as caught:
            apply_layout(plan, rig.parts)
        assert str(client.pid) in caught.value.held_by[0]
    rig.nvml.destroy_compute_instance(rig.gpus[0].uuid, instance.id, compute.id)
    rig.nvml.changes.clear()
    with pytest.raises(LayoutChangedError):
        apply_layout(plan, rig.parts)
    assert rig.nvml.changes == []


def test_a_slice_that_gets_busy_at_the_last_moment_is_kept(rig: LayoutRig, simstate: Path) -> None:
    rig.apply("3g.40gb", "2g.20gb")
    before = rig.shape()
    plan = rig.plan("7g.80gb")
    second = rig.gpus[0].instances[1]
    clients: list[Client] = []

    def occupy(_nvml: InProcessNvml) -> None:
        compute = second.compute_instances[0]
        clients.append(Client(simstate, 0, second.id, compute.id).start())

    meddler = Meddler("destroy_compute_instance", occupy)
    with pytest.raises(RolledBackError) as caught:
        apply_layout(plan, rig.with_nvml(meddler).parts)
    cause = caught.value.__cause__
    assert isinstance(cause, NvmlInUseError)
    assert clients[0].result == 0
    clients[0].kill()
    assert rig.shape() == before


def test_a_mode_that_must_wait_is_said_to_wait(rig: LayoutRig, simstate: Path) -> None:
    plan = rig.plan("1g.10gb", gpu=3)
    with Client(simstate, 3) as client:
        with pytest.raises(MigModePendingError) as caught:
            apply_layout(plan, rig.parts)
        assert caught.value.exit_code == Exit.PENDING == 8
        assert [f"process {client.pid}" in name for name in caught.value.held_by] == [True]
        assert rig.gpus[3].mig.pending
        assert not rig.gpus[3].mig.current
    rig.apply("1g.10gb", gpu=3)
    assert [name for name, _, _ in rig.shape(3)] == ["1g.10gb"]


def test_two_gpus_are_changed_together_or_not_at_all(rig: LayoutRig) -> None:
    rig.apply("7g.80gb", gpu=0)
    rig.apply("7g.80gb", gpu=1)
    before = rig.shape(0), rig.shape(1)
    gpus = rig.gpus
    half = (TargetInstance("3g.40gb"), TargetInstance("4g.40gb"))
    plan = plan_layout(gpus, [GpuTarget(gpus[n].uuid, True, half) for n in (0, 1)])
    rig.fault("ci.create", nth=4)
    with pytest.raises(RolledBackError):
        apply_layout(plan, rig.parts)
    assert (rig.shape(0), rig.shape(1)) == before


@pytest.mark.parametrize("victim", range(1, 9))
def test_killed_at_any_call_is_undone_by_the_next_command(rig: LayoutRig, victim: int) -> None:
    rig.apply("3g.40gb", "2g.20gb")
    before = rig.shape()
    plan = rig.plan("4g.40gb", "1g.10gb")
    assert len(plan.steps) == 8
    child = os.fork()
    if child == 0:
        _die_at(plan, rig, victim)
    assert os.waitpid(child, 0)[1] == 9 << 8
    notes = recover_parts(rig.parts)
    assert notes == ["an interrupted change of layout was undone"]
    assert rig.shape() == before
    assert recover_parts(rig.parts) == []


def _die_at(plan: Any, rig: LayoutRig, victim: int) -> None:
    class Mortal(InProcessNvml):
        def _change(self, method: str, *arguments: Any) -> Any:
            answer = super()._change(method, *arguments)
            if len(self.changes) == victim:
                os._exit(9)
            return answer

    apply_layout(plan, rig.with_nvml(Mortal()).parts)
    os._exit(0)


def test_what_a_boot_interrupted_is_closed(rig: LayoutRig) -> None:
    rig.apply("3g.40gb")
    plan = rig.plan("4g.40gb")
    child = os.fork()
    if child == 0:
        _die_at(plan, rig, 1)
    os.waitpid(child, 0)
    later = dataclasses.replace(rig.parts, boot_id="boot-2")
    assert "ended with the boot" in recover_parts(later)[0]
    assert recover_parts(later) == []


def test_a_call_that_hangs_is_left_until_it_ends(rig: LayoutRig) -> None:
    rig.apply("3g.40gb")
    before = rig.shape()
    plan = rig.plan("4g.40gb")
    machine = find_machine("dgx-a100")
    with NvmlClient(machine, clock=SystemClock(), change_timeout_s=0.4) as client:
        words = ["gi.destroy", "1", "1", "0", "2500"]
        subprocess.run([TOOL, "fault", rig.directory, *words], check=True)
        parts = dataclasses.replace(
            rig.parts,
            nvml=client,
            read_inventory=client.read_inventory,
            clock=SystemClock(),
            list_late=lambda: list_late_processes(machine),
        )
        with pytest.raises(OutcomePendingError) as caught:
            apply_layout(plan, parts)
        assert caught.value.held_by
        (text,) = recover_parts(parts)
        assert "an interrupted change of layout waits for process" in text
        with pytest.raises(OutcomePendingError, match="cannot apply the MIG layout yet"):
            apply_layout(rig.plan("4g.40gb"), parts)
        clock = SystemClock()
        end_s = clock.monotonic_s() + 60
        while list_late_processes(machine) and clock.monotonic_s() < end_s:
            clock.sleep(0.1)
        assert recover_parts(parts) == ["an interrupted change of layout was undone"]
    assert rig.shape() == before


def test_a_lost_gpu_stops_it_with_what_is_left(rig: LayoutRig) -> None:
    rig.apply("3g.40gb")
    plan = rig.plan("4g.40gb")
    rig.fault("gi.create", code=15)
    with pytest.raises(RolledBackError) as caught:
        apply_layout(plan, rig.parts)
    assert "15" in str(caught.value.cause)
    assert [name for name, _, _ in rig.shape()] == ["3g.40gb"]


def test_the_remembered_layouts_are_refused_when_damaged(rig: LayoutRig) -> None:
    rig.apply("3g.40gb")
    path = rig.parts.store.path
    good = rig.parts.store.read_layouts()
    path.write_bytes(path.read_bytes().replace(b"3g.40gb", b"7g.80gb"))
    assert rig.parts.store.read_layouts() == good  # its copy counts
    copy = path.with_suffix(".copy")
    copy.write_bytes(copy.read_bytes().replace(b"3g.40gb", b"7g.80gb"))
    with pytest.raises(VgpumgrError, match="remembered MIG layouts"):
        rig.parts.store.read_layouts()


def test_compute_instances_come_at_the_places_that_were_planned(rig: LayoutRig) -> None:
    rig.apply(TargetInstance("7g.80gb", ("4c.7g.80gb", "3c.7g.80gb")))
    (row,) = rig.shape()
    assert row[2] == (Placement(0, 4), Placement(4, 3))
    kept: list[ComputeInstance] = [
        c for c in rig.gpus[0].instances[0].compute_instances if c.slices == 4
    ]
    rig.apply(TargetInstance("7g.80gb", ("4c.7g.80gb", "2c.7g.80gb", "1c.7g.80gb")))
    now = rig.gpus[0].instances[0].compute_instances
    assert kept[0].uuid in {c.uuid for c in now}
