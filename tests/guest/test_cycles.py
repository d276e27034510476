"""Given and taken back again and again, on simulated machines with a genuine libvirtd: nothing is left, nothing grows.

A slice of ``python -m tests.recovery.cycles --on here|daemon``, which does 1,000 of each.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.recovery import machine_cycles
from tests.recovery.machine_cycles import Scene

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a private libvirtd needs root"),
    pytest.mark.xdist_group("libvirtd"),
    pytest.mark.native,
]
CYCLES = 4


@pytest.mark.parametrize("name", ["vendor", "passthrough"])
def test_nothing_is_left_in_process(name: str) -> None:
    answer = machine_cycles.run(name, CYCLES, 1, daemon=False)
    assert machine_cycles.judge(answer) == []


@pytest.mark.parametrize("name", ["mdev", "vf"])
def test_nothing_is_left_by_the_daemon(name: str) -> None:
    answer = machine_cycles.run(name, CYCLES, 1, daemon=True)
    assert machine_cycles.judge(answer) == []


def test_what_leaks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor, a file and a piece of memory for each cycle."""
    kept: list[Any] = []
    cycle = Scene.cycle

    def leak(scene: Scene, asked: dict[str, Any], count: int) -> None:
        cycle(scene, asked, count)
        for number in range(count):
            file = (scene.directory / f"host/state/left-{len(kept)}-{number}").open("w")
            kept.append((file, bytearray(64 << 10)))

    monkeypatch.setattr(Scene, "cycle", leak)
    wrong = " ".join(machine_cycles.judge(machine_cycles.run("mdev", 3, 1, daemon=False)))
    for file, _ in kept:
        file.close()
    assert "files of the host" in wrong
    assert "it holds" in wrong
    assert "Python holds" in wrong
