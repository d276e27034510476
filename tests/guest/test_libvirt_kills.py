"""libvirtd killed amid attaches and detaches, a few times; docs/recovery.md has the command for hundreds."""

from __future__ import annotations

from tests.guest.lab import GuestLab
from tests.guest.libvirt_kills import attack

COUNT = 5


def test_libvirtd_killed_while_slices_come_and_go(scene: GuestLab) -> None:
    tally = attack(scene, seed=1, count=COUNT)
    assert tally.wrong == []
    assert sum(tally.blows.values()) == COUNT, "planned faults are counted"
    assert tally.in_operation > 0
