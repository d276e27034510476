"""Given and taken back again and again, on simulated machines with a genuine libvirtd: nothing is left, nothing grows.

A slice of ``python -m tests.recovery.cycles --on here|daemon``, which does 1,000 of each.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.recovery import machine_cycles
from tests.recovery.commands import run
from tests.recovery.machine_cycles import Scene

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a private libvirtd needs root"),
    pytest.mark.xdist_group("libvirtd"),
    pytest.mark.native,
]


@pytest.mark.parametrize(
    ("on", "name"),
    [("here", "vendor"), ("here", "passthrough"), ("daemon", "mdev"), ("daemon", "vf")],
)
def test_nothing_is_left(on: str, name: str) -> None:
    """In a process of its own: what other tests have loaded does not count."""
    counts = ("--count", "4", "--warm-up", "2")
    done = run("cycles", "--on", on, "--backend", name, *counts)
    assert done["wrong"] == []
    assert done["code"] == 0


def test_what_leaks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor, a file and a piece of memory for each cycle."""
    kept: list[Any] = []
    cycle = Scene.cycle

    def leak(scene: Scene, asked: dict[str, Any], count: int) -> None:
        cycle(scene, asked, count)
        for number in range(count):
            file = (scene.directory / f"host/state/left-{len(kept)}-{number}").open("w")
            kept.append((file, bytearray(1 << 20)))

    monkeypatch.setattr(Scene, "cycle", leak)
    wrong = " ".join(machine_cycles.judge(machine_cycles.run("mdev", 3, 1, daemon=False)))
    for file, _ in kept:
        file.close()
    assert "files of the host" in wrong
    assert "it holds" in wrong
    assert "malloc_bytes grow by" in wrong
