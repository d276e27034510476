"""What one family of operations leaves behind is recovered by the next command of any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.recovery.invariants import describe_machine, list_broken_links
from tests.recovery.killing import Counter, fork_child
from tests.recovery.scenarios import name_ids
from tests.recovery.verbs import MACHINES, VERBS, open_application
from tests.recovery.world import World
from tests.support.boards import make_uuid
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.errors import GpuStuckError
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement

GPU = GpuUuid(make_uuid("GPU", 0))
VERB = {verb.name: verb.act for verb in VERBS}


@dataclass
class KillAt(Counter):
    """At a point of that name."""

    name: str = ""
    nth: int = 1

    def __call__(self, name: str) -> None:
        self.count += name == self.name
        if name == self.name and self.count == self.nth:
            self.count, self.kill_at = 0, 1
            super().__call__(name)


@dataclass
class Killed:
    """A machine on which a verb was killed."""

    root: Path
    before: list[str]

    @property
    def world(self) -> World:
        return World(self.root)


@pytest.fixture
def kill(tmp_path: Path) -> Callable[..., Killed]:
    def do(machine: str, verb: str, name: str, nth: int = 1) -> Killed:
        (chosen,) = [m for m in MACHINES if m.name == machine]
        chosen.build(tmp_path / "machine")
        before = describe_machine(World(tmp_path / "machine"))
        name_ids("bbbb")
        counter = KillAt(None, name=name, nth=nth)
        assert fork_child(tmp_path / "machine", VERB[verb], counter, None).killed
        return Killed(tmp_path / "machine", before)

    return do


def recover(killed: Killed) -> list[str]:
    actions = killed.world.recovery.recover(Policy()).actions
    assert all(action.done for action in actions)
    assert killed.world.recovery.recover(Policy()).actions == []
    assert list_broken_links(killed.world) == []
    return [action.text for action in actions]


@pytest.mark.parametrize("point", ["before create_gpu_instance", "after create_gpu_instance"])
def test_an_attach_takes_no_place_from_a_layout_that_was_interrupted(
    kill: Callable[..., Killed], point: str
) -> None:
    killed = kill("mig", "mig layout apply", point, nth=2)
    name_ids("cccc")
    done = open_application(killed.world).attach(vm="vm01", profile="1g.10gb", gpu="0")
    assert any("change of layout was undone" in note for note in done.notes)
    assert recover(killed) == []
    open_application(killed.world).detach(vm="vm01")
    assert describe_machine(killed.world) == killed.before


def test_a_layout_that_took_an_instance_away_and_was_killed(kill: Callable[..., Killed]) -> None:
    """The instance is back before anybody else gets its place."""
    killed = kill("used", "mig layout apply", "after destroy_gpu_instance")
    name_ids("cccc")
    open_application(killed.world).attach(vm="vm02", profile="1g.10gb", gpu="0")
    assert recover(killed) == []
    open_application(killed.world).detach(vm="vm02")
    assert describe_machine(killed.world) == killed.before


def test_a_layout_after_an_attach_that_was_killed(kill: Callable[..., Killed]) -> None:
    killed = kill("mig", "attach --gpu 0", "after create_gpu_instance")
    name_ids("cccc")
    text = (
        "schema: vgpumgr/mig-layout/v1\nlayouts:\n  a:\n    - gpus: 0\n      instances: [7g.80gb]\n"
    )
    # the stranger's instance is nobody's, so it goes
    open_application(killed.world).apply_layout(text=text, source="a.yaml", name="a")
    assert recover(killed) == []
    assert [str(i.profile) for i in killed.world.nvml.gpus[GPU].instances] == ["7g.80gb"]


def test_a_vgpu_after_an_attach_that_was_killed(kill: Callable[..., Killed]) -> None:
    killed = kill("mig", "attach of a MIG-backed vGPU", "after create")
    name_ids("cccc")
    done = open_application(killed.world).create_vgpu(type="A100-1-10C")
    assert any("the interrupted attach was undone" in note for note in done.notes)
    assert recover(killed) == []
    assert killed.world.store.list_attachments() == ()


def test_an_attach_goes_beside_what_cannot_be_recovered(kill: Callable[..., Killed]) -> None:
    """The GPU waits for a helper process: another one is taken, and nothing is refused for long."""
    killed = kill("mig", "mig layout apply", "before create_gpu_instance", nth=1)
    world = killed.world
    gpu = world.nvml.gpus[GPU]
    world.pending = ("nvml", "create_gpu_instance", (gpu.uuid, 9, Placement(0, 4)), {}, True)
    world.save()
    name_ids("cccc")
    open_application(world).attach(vm="vm01", profile="1g.10gb")
    (record,) = killed.world.store.list_attachments()
    assert record.gpu != GPU
    with pytest.raises(GpuStuckError) as refused:
        open_application(killed.world).attach(vm="vm02", profile="1g.10gb", gpu="0")
    assert any("the MIG layout has not ended" in text for text in refused.value.held_by)
    killed.world.finish_late(takes_effect=True)
    assert recover(killed) == ["an interrupted change of layout was undone"]
    open_application(killed.world).detach(vm="vm01")
    assert describe_machine(killed.world) == killed.before
