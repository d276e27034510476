"""Single histories of crashes, each of which once ended wrong; found by ``tests.recovery.simulate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recovery.scenarios import BACKED, Act, attach, detach, vgpu
from tests.recovery.world import World
from vgpumgr.daemon.recovery import Policy
from vgpumgr.daemon.restore import restore
from vgpumgr.errors import OutcomePendingError


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


def test_the_attach_that_turned_mig_mode_on_is_undone_after_those_that_used_it(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.make(mig=False, running=False)
    # as long as this call is on its way, what is interrupted stays as it is
    world.late_at = 1
    with pytest.raises(OutcomePendingError):
        vgpu("create", type="NVIDIA A100X-8C")(world)
    crash(tmp_path, attach(profile="2g.20gb", gpu="0"), "after set_mig_mode")
    world = crash(tmp_path, attach("vm02", **BACKED), "after create_gpu_instance")
    assert modes(world) == [True, False]
    world.finish_late(takes_effect=False)
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
