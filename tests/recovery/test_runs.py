"""Runs killed at every point of their beginning and their end: ``recover`` leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.recovery.invariants import describe_machine, list_broken_links
from tests.recovery.killing import Counter, fork_child, recover_twice, run_and_copy, run_child
from tests.recovery.verbs import open_application
from tests.recovery.world import World

#: more points than there are
ALL = frozenset(range(1, 5000))


def begin(world: World) -> str:
    """As ``vgpumgr run`` does; this process is the run's. Answers the attachment's id."""
    application = open_application(world)
    asked = {"name": "train", "command": "true", "profile": "1g.10gb", "pid": os.getpid()}
    document = application.start_run(**asked)
    return str(document.attachment.id)


def begin_and_end(world: World) -> None:
    open_application(world).detach(vm=begin(world))


@pytest.mark.parametrize("mig", [True, False], ids=["mig", "off"])
def test_a_run_that_is_killed_anywhere_leaves_nothing(mig: bool, tmp_path: Path) -> None:
    template, copies = tmp_path / "machine", tmp_path / "copies"
    World(template).make(mig=mig, running=False)
    before = describe_machine(World(template))
    done = run_and_copy(template, begin_and_end, ALL, copies)
    assert done.error is None, done.error
    assert describe_machine(World(template)) == before
    points = sorted(copies.iterdir(), key=lambda path: int(path.name))
    assert len(points) >= 40
    for root in points:
        recovered = run_child(root, recover_twice, None)
        assert recovered.error is None, (root.name, recovered.error)
        world = World(root)
        assert describe_machine(world) == before, root.name
        assert list_broken_links(world) == [], root.name
        assert recovered.answer[1]["actions"] == [], (root.name, recovered.answer)


def test_a_run_of_an_earlier_boot_takes_nothing_of_this_one(tmp_path: Path) -> None:
    """Where its slice was, another instance may be by now."""
    World(tmp_path).make(mig=True, running=False)
    before = describe_machine(World(tmp_path))
    assert fork_child(tmp_path, begin, Counter(None), None).killed is False
    world = World(tmp_path)
    (record,) = world.store.list_attachments()
    assert record.run is not None
    # a run of the same process number and start, which lives: it is the boot that differs
    later = World(tmp_path, boot_id="boot-2")
    document = open_application(later).recover()
    assert [action.done for action in document.actions] == [True]
    assert later.store.list_attachments() == ()
    assert later.channels.list_ids() == ()
    # the instance is as it was found: the simulated boot has kept it
    assert len(describe_machine(later)) == len(before) + 1
