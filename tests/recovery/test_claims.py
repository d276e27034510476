"""Attaches and detaches by a claim, killed anywhere; then a command is next, of another family with the pool's store or
without it, or an attach by the same claim: what the store calls used is what is attached here, and the claim's lease
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.killing import do_recover, run_and_copy, run_child
from tests.recovery.scenarios import SCENARIOS
from tests.recovery.verbs import open_application
from tests.recovery.world import World
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.errors import AlreadyAttachedError, ClaimInUseError, PoolStoreError
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.request import AttachRequest
from vgpumgr.pool.membership import open_pool_of
from vgpumgr.pool.store.sqlite import SqliteStore

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
#: each third point, the first ones at other places for each kind
POINTS = {"attach by a claim": range(1, 5000, 3), "detach what a claim gives": range(2, 5000, 3)}


def stop_store() -> None:
    """It does not answer."""

    def fail(*_: object) -> Any:
        raise PoolStoreError("the pool's store does not answer")

    for name in ("get", "range", "transact"):
        setattr(SqliteStore, name, fail)


def drain(world: World) -> None:
    """A command of another family."""
    open_application(world).drain_gpu(selector="1")


def describe(root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Attachments by claim, as they are recorded here, and as the pool's store has them."""
    world = World(root)
    records = world.store.list_attachments()
    with open_pool_of(world.machine) as pool:
        view = pool.view()
    assert list(view.leases) == ["a/train"]
    used = {use.claim: use.attachment for use in view.uses.values()}
    return {record.claim.name: record.id for record in records if record.claim}, used


@pytest.mark.parametrize("breakage", [None, stop_store], ids=["store", "no store"])
@pytest.mark.parametrize("name", POINTS)
def test_a_killed_command_is_followed_by_one_of_another_family(
    name: str, breakage: Callable[[], None] | None, tmp_path: Path
) -> None:
    template, copies, scenario = tmp_path / "machine", tmp_path / "copies", BY_NAME[name]
    scenario.build(World(template))
    done = run_and_copy(template, scenario.run, frozenset(POINTS[name]), copies)
    assert done.error is None, done.error
    points = sorted(copies.iterdir(), key=lambda path: int(path.name))
    assert len(points) >= 15
    left = 0
    for root in points:
        followed = run_child(root, drain, None, breakage)
        assert followed.error is None, (root.name, followed.error)
        assert World(root).parts.open_journal().unfinished() == {}, root.name
        here, used = describe(root)
        if breakage is None:
            assert here == used, root.name
        left += here != used
        recovered = run_child(root, do_recover, None)
        assert recovered.error is None, (root.name, recovered.error)
        here, used = describe(root)
        assert here == used, root.name
    # without the store something is left to be released, or the test shows nothing
    assert (left > 0) == (breakage is not None)


def attach(vm: str) -> Callable[[World], bool]:
    """An attach by the same claim: whether it was made, and not refused because the one before it is whole."""

    def act(world: World) -> bool:
        request = AttachRequest(vm, claim="train", hello_timeout_s=0)
        try:
            AttachmentService(world.parts).attach(request)
        except (AlreadyAttachedError, ClaimInUseError):
            return False
        return True

    return act


@pytest.mark.parametrize("vm", ["vm01", "vm02"])
@pytest.mark.parametrize("name", POINTS)
def test_a_killed_command_is_followed_by_an_attach_by_the_same_claim(
    name: str, vm: str, tmp_path: Path
) -> None:
    template, copies, scenario = tmp_path / "machine", tmp_path / "copies", BY_NAME[name]
    scenario.build(World(template))
    done = run_and_copy(template, scenario.run, frozenset(range(2, 5000, 5)), copies)
    assert done.error is None, done.error
    made = 0
    for root in copies.iterdir():
        followed = run_child(root, attach(vm), None)
        assert followed.error is None, (root.name, followed.error)
        world = World(root)
        # what was interrupted is recovered, also where the claim is in use
        assert world.parts.open_journal().unfinished() == {}, root.name
        (record,) = world.store.list_attachments()
        assert record.state is AttachmentState.ATTACHED
        assert describe(root)[1] == {"train": record.id}, root.name
        if followed.answer:
            assert record.vm_name == vm, root.name
            made += 1
    assert made >= 3
