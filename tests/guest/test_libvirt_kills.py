"""libvirtd killed amid attaches and detaches, a few times; docs/recovery.md has the command for hundreds."""

from __future__ import annotations

from tests.guest.lab import GuestLab
from tests.guest.libvirt_kills import attack

COUNT = 4
#: a machine that does other things as well may take its time
POLLS = 100


def test_libvirtd_killed_while_slices_come_and_go(scene: GuestLab) -> None:
    tally = attack(scene, seed=1, count=COUNT, polls=POLLS)
    assert tally.wrong == []
    assert sum(tally.blows.values()) == COUNT, "planned faults are counted"
    assert tally.in_operation > 0
