"""Attaches and detaches by a claim, killed anywhere; then a command of another family is next, with the pool's store
or without it: what the store calls used is what is attached here, and the claim's lease stays.
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
from vgpumgr.errors import PoolStoreError
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
