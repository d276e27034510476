"""Attacks of tests/hostile from a real guest, beside a VM whose results are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.guest.conftest import attached_vm, wait_for
from tests.guest.lab import GuestLab
from tests.hostile.scene import read_numbers

ATTACKER, NEIGHBOUR = "attacker", "neighbour"
#: a guest without KVM is slow: much less than on the host
REFUSED = ("D1 1", "D2 1", "D5 1", "D9 6")


@pytest.fixture(scope="module")
def vms(scene: GuestLab) -> Iterator[GuestLab]:
    with attached_vm(scene, ATTACKER), attached_vm(scene, NEIGHBOUR):
        scene.start(ATTACKER)
        scene.start(NEIGHBOUR)
        yield scene


def channel(scene: GuestLab, vm: str) -> dict[str, Any]:
    shown: dict[str, Any] = scene.document("virtio", "show", vm)["channel"]
    return shown


def attack(scene: GuestLab, *commands: str) -> list[dict[str, int]]:
    """Runs them one after the other, while the neighbour computes."""
    worker = channel(scene, ATTACKER)["worker_pid"]
    running = scene.shell(ATTACKER).start("; ".join(f"attacks {words}" for words in commands))
    assert "PASS" in scene.shell(NEIGHBOUR).check("matmul")
    done = scene.shell(ATTACKER).finish(running)
    found = [read_numbers(line) for line in done.output.splitlines() if line.strip()]
    assert len(found) == len(commands), done.output
    assert "PASS" in scene.shell(NEIGHBOUR).check("vectoradd")
    wait_for(lambda: scene.shell(ATTACKER).run("vectoradd").status == 0, "the attacker's VM works")
    wait_for(lambda: not channel(scene, ATTACKER)["lanes"], "nothing is left")
    assert channel(scene, ATTACKER)["worker_pid"] == worker
    return found


def test_what_breaks_the_protocol_ends_its_session(vms: GuestLab) -> None:
    for found in attack(vms, *REFUSED):
        assert found["ended"] == found["tried"] > 0


def test_floods_are_served_beside_the_others(vms: GuestLab) -> None:
    frames, storm, forged = attack(vms, "D3 20000", "D6 2000", "S5 2000")
    assert (frames["posted"], frames["status"]) == (20_000, 0)
    assert storm["rang"] > 100
    assert forged == {"forged": 2000, "accepted": 0}


def test_programs_get_errors_and_nobody_else_does(vms: GuestLab) -> None:
    memory, pitches, trap = attack(vms, "D15 1", "D18", "D24-trap")
    assert (memory["end"], memory["freed"]) == (2, 1)
    assert pitches["accepted"] == 0
    assert trap == {"launch": 0, "sync": 719, "then": 719}
