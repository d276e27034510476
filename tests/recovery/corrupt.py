"""Damage to the state directory: ``python -m tests.recovery.corrupt --seed N --count N``.

The machine has two attachments and one that was being made when the process was killed. A bit of any
byte of our files is flipped, or a file is cut off anywhere. Every time the program must start and
recover: both attachments are there, nothing is lost (neither a layout nor a defined vGPU, which only our
files know), and what may be another program's is kept and reported, until ``detach`` removes it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.recovery.invariants import list_violations
from tests.recovery.killing import copy_machine, do_recover, run_child
from tests.recovery.scenarios import attach, name_ids
from tests.recovery.world import World
from vgpumgr.model.attachment import AttachmentState
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import DesiredLayout
from vgpumgr.model.vgpu import Framework, VgpuRecord, VgpuSpec, VgpuState

#: in the middle of the attach that is interrupted, and after it
KILL_AT = (0, 31, 47, 60, 75)
LAYOUT = DesiredLayout(GpuUuid("GPU-00000000-0000-4000-8000-0000000000ff"), True, (), 2.0)
VGPU = VgpuRecord(
    VgpuSpec(
        "6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11",
        Framework.VENDOR_VFIO,  # no definition of mdevctl has it, too
        "0000:3b:00.0",
        "nvidia-226",
        "T4-2A",
    ),
    VgpuState.INACTIVE,
    boot="boot-1",
    defined=True,
)


def make_templates(directory: Path) -> list[Path]:
    """The machine, the third attach killed at each of those points (0: never begun)."""
    base = directory / "base"
    name_ids("eeee")
    world = World(base)
    world.make(mig=False, running=False)
    attach("vm01")(world)
    attach("vm02")(world)
    with world.store.transaction():
        world.store.save_layouts([LAYOUT])
        world.store.save_vgpu(VGPU)
    found = []
    for point in KILL_AT:
        root = directory / f"at-{point}"
        copy_machine(base, root)
        if point:
            assert run_child(root, lambda w: attach("vm03")(w) and None, point).killed
        found.append(root)
    return found


def damage(root: Path, choice: random.Random) -> str:
    """Flips a bit, or cuts a file off; says what."""
    path = choice.choice(sorted(p for p in (root / "state").iterdir() if p.stat().st_size))
    data = bytearray(path.read_bytes())
    if path.name == "journal":
        data = data.rstrip(b"\0")
    at = choice.randrange(len(data))
    if choice.random() < 0.3:
        path.write_bytes(data[:at])
        return f"{path.name} cut at {at}"
    data[at] ^= 1 << choice.randrange(8)
    path.write_bytes(data)
    return f"{path.name} flipped at {at}"


def check(root: Path) -> list[str]:
    """Recovers twice; every complete attachment must be there, and everything else go."""
    try:
        do_recover(World(root))
        world = World(root)
        second = do_recover(world)
        records = world.store.list_attachments()
        kept = (world.store.read_layouts(), world.store.list_vgpus())
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    wrong = []
    if not second["unchanged"]:
        wrong.append(f"a second recovery does something: {second}")
    if kept != ({str(LAYOUT.gpu): LAYOUT}, (VGPU,)):
        wrong.append(f"lost what only the store knows: {kept}")
    if left := world.store.list_damage():
        wrong.append(f"damage is left: {left}")
    there = {r.vm_name for r in records if r.state is AttachmentState.ATTACHED}
    if not {"vm01", "vm02"} <= there:
        wrong.append(f"lost an attachment: {sorted(there)}")
    for record in records:
        if record.state is not AttachmentState.ATTACHED:
            world.service.detach(record.id)  # kept, and said: the administrator decides
    machine = next(m for m in world.hypervisor.machines.values() if m.name == "vm03")
    if "vm03" not in there and machine.config and machine.config.own_aliases():
        world.service.detach("vm03")  # the same, where even the record was lost
    return wrong + list_violations(World(root))


def corrupt_many(directory: Path, seed: int, count: int) -> dict[str, list[str]]:
    """What was wrong, by what was damaged."""
    choice = random.Random(seed)
    templates = make_templates(directory)
    wrong: dict[str, list[str]] = {}
    for number in range(count):
        template = templates[number % len(templates)]
        root = directory / "damaged"
        copy_machine(template, root)
        what = f"{template.name}: {damage(root, choice)}"
        if problems := check(root):
            wrong[what] = problems
        shutil.rmtree(root)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        wrong = corrupt_many(Path(directory), options.seed, options.count)
    print(json.dumps({"seed": options.seed, "damaged": options.count, "wrong": wrong}, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
