"""Single histories of crashes, each of which once ended wrong; found by ``tests.recovery.simulate``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.recovery import vgpu_host
from tests.recovery.invariants import STRANGER
from tests.recovery.scenarios import BACKED, VENDOR_BACKED, Act, attach, detach, vgpu
from tests.recovery.vgpu_host import VENDOR_GPU, VENDOR_TYPES
from tests.recovery.world import SavedNvml, World
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.app.operations.restore import restore
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import OutcomePendingError, VgpuNoRoomError
from vgpumgr.model.mig import Placement


class Crash(BaseException):
    """The process is gone."""


def crash_at(name: str, count: int = 1) -> Callable[[str], None]:
    """The end of the process where it passes the point of that name for the ``count``-th time."""
    left = count

    def point(passed: str) -> None:
        nonlocal left
        left -= passed == name
        if not left:
            raise Crash

    return point


def crash(root: Path, act: Act, at: str, count: int = 1, boot_id: str = "boot-1") -> World:
    """Begins ``act`` and dies there; a new process on what is left."""
    with pytest.raises(Crash):
        act(World(root, crash_at(at, count), boot_id))
    return World(root, boot_id=boot_id)


def list_instances(world: World) -> list[int]:
    """Of both GPUs."""
    return [i.id for gpu in world.nvml.gpus.values() for i in gpu.instances]


def modes(world: World) -> list[bool]:
    return [gpu.mig.current for gpu in world.nvml.gpus.values()]


@pytest.mark.parametrize(
    "act", [lambda world: world.recovery.recover(Policy()), detach("vm02"), detach("vm01")]
)
def test_the_attach_that_turned_mig_mode_on_is_undone_after_those_that_used_it(
    tmp_path: Path, act: Act
) -> None:
    world = World(tmp_path)
    world.make(mig=False, running=False)
    # as long as this call is on its way, what is interrupted stays as it is
    world.late_at = 1
    with pytest.raises(OutcomePendingError):
        vgpu("create", type="NVIDIA A100X-8C")(world)
    crash(tmp_path, attach(profile="2g.20gb", gpu="0"), "after set_mig_mode")
    with pytest.raises(VgpuNoRoomError) as refused:
        attach("vm02", **BACKED)(World(tmp_path))
    assert "vm01 is half attaching there and waits for process" in refused.value.held_by[0]
    # where both are interrupted all the same, the order decides
    planned = mock.patch("vgpumgr.planning.vgpu_selection._refuse_stuck", return_value=None)
    with planned, mock.patch.object(Transaction, "_check_free"):
        world = crash(tmp_path, attach("vm02", **BACKED), "after create_gpu_instance")
    assert modes(world) == [True, False]
    world.finish_late(takes_effect=False)
    act(world)
    done = world.recovery.recover(Policy())
    assert [a.text for a in done.actions if not a.done] == []
    assert (list_instances(world), modes(world)) == ([], [False, False])


@pytest.mark.parametrize("at", ["after create_compute_instance", "before save", "after save"])
@pytest.mark.parametrize("by", ["detach", "restore"])
def test_a_restore_that_is_killed_leaves_no_instance_that_nobody_has(
    tmp_path: Path, at: str, by: str
) -> None:
    """Killed between the two, the first slice was there and its record named the one of before the boot."""
    world = World(tmp_path)
    world.make(mig=True, running=False)
    attach(gpu="1")(world)
    attach(profile="2g.20gb", gpu="1", add=True)(world)
    world.reboot()
    world = crash(tmp_path, lambda w: restore(w.parts), at, 2, "boot-2")
    if by == "restore":
        # done again, all of it is back
        assert restore(world.parts).problems == []
        refs = [r.mig for r in world.store.list_attachments() if r.mig]
        assert sorted(ref.gpu_instance_id for ref in refs) == sorted(list_instances(world))
        world.recovery.recover(Policy())
        assert world.recovery.diff().drift == []
    detach(every=True)(world)
    world.recovery.recover(Policy())
    assert list_instances(world) == []


def find_place(world: World) -> tuple[int, Placement]:
    """The GPU and the place of the only instance."""
    ((index, place),) = [
        (gpu.index, i.placement) for gpu in world.nvml.gpus.values() for i in gpu.instances
    ]
    return index, place


def boot_with_stranger(world: World, index: int, place: Placement, *, compute: bool) -> World:
    """The machine after a boot, with somebody's instance of the same size at that place: it has the
    id that ours had.
    """
    world.reboot()
    uuid = next(uuid for uuid, gpu in world.nvml.gpus.items() if gpu.index == index)
    world.nvml._next = 100
    instance = super(SavedNvml, world.nvml).create_gpu_instance(uuid, 19, place)
    if compute:
        super(SavedNvml, world.nvml).create_compute_instance(uuid, instance.id, 1)
    world.save()
    return World(world.root, boot_id="boot-2")


@pytest.mark.parametrize("backing", [BACKED, VENDOR_BACKED])
@pytest.mark.parametrize("killed", [None, "after save_vgpu", "after delete", "after delete_vgpu"])
def test_after_a_boot_a_strangers_instance_in_the_place_of_ours_stays(
    tmp_path: Path, backing: dict[str, object], killed: str | None
) -> None:
    world = World(tmp_path)
    world.make(mig=True, running=False)
    for uuid, gpu in world.nvml.gpus.items():
        world.nvml.gpus[uuid] = replace(gpu, instances=())
    attach("vm02", **backing)(world)
    where = find_place(world)
    if killed is not None:
        world = crash(tmp_path, detach("vm02"), killed)
    world = boot_with_stranger(world, *where, compute=True)
    if killed is None:
        done = world.service.detach("vm02")
        assert any("may have another owner" in note for note in done.plan.notes)
    else:
        # the detach is finished
        world.recovery.recover(Policy())
    assert world.store.list_attachments() == ()
    assert find_place(world) == where


@pytest.mark.parametrize("compute", [False, True])
@pytest.mark.parametrize(
    ("act", "at"),
    [
        (vgpu("create", type="GRID A100-1-10C"), "after create_gpu_instance"),
        (vgpu("create", type="GRID A100-1-10C"), "after create"),
        (attach("vm02", **BACKED), "after create_gpu_instance"),
        (attach("vm02", **BACKED), "after create"),
        (attach(gpu="1"), "after create_gpu_instance"),
        (attach(gpu="1"), "after create_compute_instance"),
        (attach(gpu="1"), "before start"),
    ],
)
def test_what_a_boot_ended_is_not_undone_on_strangers(
    tmp_path: Path, act: Act, at: str, compute: bool
) -> None:
    world = World(tmp_path)
    world.make(mig=True, running=False)
    for uuid, gpu in world.nvml.gpus.items():
        world.nvml.gpus[uuid] = replace(gpu, instances=())
    world.save()
    world = crash(tmp_path, act, at)
    where = find_place(world)
    world = boot_with_stranger(world, *where, compute=compute)
    world.recovery.recover(Policy())
    assert find_place(world) == where
    assert world.store.list_attachments() == ()
    assert world.vgpu_store.list_vgpus() == ()
    assert world.parts.open_journal().unfinished() == {}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """vm01 has a vGPU that a GPU instance was made for, with room for one more."""
    two = tuple(replace(t, max_per_gpu_instance=2) if t.is_mig_backed else t for t in VENDOR_TYPES)
    monkeypatch.setitem(vgpu_host.TYPES, VENDOR_GPU, two)
    world = World(tmp_path)
    world.make(mig=True, running=False)
    attach("vm01", **VENDOR_BACKED)(world)
    assert list_instances(world) == [STRANGER, 101]
    return world


@pytest.mark.parametrize(
    "at", ["after delete", "after delete_vgpu", "after destroy_compute_instance"]
)
def test_the_last_vgpu_takes_its_instance_along_though_its_detach_was_killed(
    shared: World, at: str
) -> None:
    attach("vm02", **VENDOR_BACKED)(shared)
    detach("vm01")(shared)
    assert list_instances(shared) == [STRANGER, 101]
    world = crash(shared.root, detach("vm02"), at)
    world.recovery.recover(Policy())
    assert list_instances(world) == [STRANGER]
    assert world.store.list_attachments() == ()


@pytest.mark.parametrize("at", [None, "after delete", "after delete_vgpu"])
def test_an_undone_attach_takes_the_instance_along_that_it_was_the_last_to_join(
    shared: World, at: str | None
) -> None:
    shared.late_at = "create"
    with pytest.raises(OutcomePendingError):
        vgpu("create", type="mtty-2")(shared)
    world = crash(shared.root, attach("vm02", **VENDOR_BACKED), "before attach_device config")
    detach("vm01")(world)
    assert list_instances(world) == [STRANGER, 101]
    world.finish_late(takes_effect=False)
    if at is not None:
        world = crash(shared.root, lambda w: w.recovery.recover(Policy()), at)
    world.recovery.recover(Policy())
    assert list_instances(world) == [STRANGER]
    assert world.store.list_attachments() == ()
