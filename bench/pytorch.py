"""A warm training step of PyTorch's through the channel against the same on the simulated driver itself.

Also over a line that takes a millisecond each way: a step that waits for the host twice may not be much longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.registry import ROOT, Figure, at_most
from tests.sim.forwarded import MATH
from tests.support.far import DELAY_S, FarRig
from tests.support.places import short
from tests.support.pytorch import torch_env
from tests.unit.calls_rig import guest_env, simulated_channel
from tests.unit.transport_rig import LIB, Rig

STEPS = 30
#: of all, in turn, so that others on the machine slow down all alike
TURNS = 2
LIMIT = 1.3
DIRECT = "direct"
WAYS: dict[str, tuple[str, type[Rig]]] = {
    DIRECT: ("ring", Rig),
    "shared memory": ("ring", Rig),
    "virtio-serial": ("serial", Rig),
    f"virtio-serial, {DELAY_S * 1000:g} ms each way": ("serial", FarRig),
}


def train(way: str, root: Path, kept: Path, steps: int) -> dict[str, float]:
    """What ``pytorch_step`` says: in a guest process of a channel, or beside it."""
    transport, make = WAYS[way]
    with simulated_channel(transport, root, MATH, machine="dgx-a100", make=make) as rig:
        # libraries that PyTorch is only linked with are the guest's
        libraries = {"LD_LIBRARY_PATH": f"{LIB / 'sim'}:{LIB / 'guest'}"}
        env = {**os.environ, **libraries} if way == DIRECT else guest_env(rig)
        done = subprocess.run(
            [sys.executable, "-m", "bench.pytorch_step", str(steps)],
            env=env | torch_env(kept), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(*, small: bool = False) -> Iterator[Figure]:
    """Direct, over shared memory, over a serial line, and over one that is far away."""
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="vgb", dir=short()) as name:
        for _ in range(1 if small else TURNS):
            for way in WAYS:
                found = train(way, Path(name) / "sim", Path(name), 2 if small else STEPS)
                best[way] = min(found, best.get(way, found), key=lambda one: one["seconds"])
    losses = {round(one["loss"], 4) for one in best.values()}
    assert len(losses) == 1, f"the losses differ: {losses}"
    floor = best.pop(DIRECT)["seconds"]
    for way, one in best.items():
        goal, met = at_most(LIMIT, one["seconds"], floor)
        yield Figure(f"GPT step, {way} ({one['waits']:g} waits)", one["seconds"], floor, "s",
                     "the simulated driver itself", goal, met, "simulated driver")  # fmt: skip
