"""Runs in the lab host: records a history on the recorded disk, or recovers from images of it. See ``power.py``.

    python -m tests.lab.power_inside record [--break NAME]
    python -m tests.lab.power_inside replay DIRECTORY

Both print JSON. Marks stand in the raw region behind the file system: the state of the hardware and what had been
acknowledged at that moment. They are written past every cache but without a flush, so that they make nothing else
durable.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

from tests.lab.disks import FS_BYTES
from tests.recovery import power
from tests.recovery.breakages import BREAKAGES
from tests.recovery.world import World

DISK = Path("/run/disks/power")
BLOCK = 4096


class Marks:
    """Appends to the region behind the file system."""

    def __init__(self, disk: Path) -> None:
        self._file = os.open(disk, os.O_WRONLY | os.O_DIRECT)
        self._at = FS_BYTES
        self.machine = b""
        self.acknowledged = ""

    def announce(self, line: str) -> None:
        """What is said to the operator."""
        self.acknowledged += line
        self.put()

    def put(self) -> None:
        """How things are now."""
        data = pickle.dumps((self.machine, self.acknowledged))
        whole = len(data).to_bytes(8, "little") + data
        size = -(-len(whole) // BLOCK) * BLOCK
        with mmap.mmap(-1, size) as buffer:
            buffer[: len(whole)] = whole
            assert os.pwrite(self._file, buffer, self._at) == size
        self._at += size


def record(root: Path, breakage: str | None) -> dict[str, int]:
    """The history, on the recorded disk."""
    if breakage:
        BREAKAGES[breakage]()
    marks = Marks(DISK)

    class MarkedWorld(World):
        def save(self) -> None:
            super().save()
            marks.machine = (self.root / "world").read_bytes()
            marks.put()

    vars(power)["World"] = MarkedWorld
    (root / "state").mkdir(parents=True)
    subprocess.run(["mount", "-t", "ext4", str(DISK), str(root / "state")], check=True)
    (root / "state/lost+found").rmdir()
    os.sync()
    MarkedWorld(root).make(mig=False, running=False)
    power.history(root, marks.announce)
    subprocess.run(["umount", str(root / "state")], check=True)
    shutil.rmtree(root)
    return {"marks_bytes": marks._at - FS_BYTES}


def replay(root: Path, directory: Path) -> dict[str, list[str]]:
    """Each image mounted, recovered and judged; what was wrong, by the image's name."""
    wrong: dict[str, list[str]] = {}
    subprocess.run(["modprobe", "loop"], check=True)
    for image in sorted(directory.glob("*.img")):
        machine, acknowledged, reboot = pickle.loads(image.with_suffix(".mark").read_bytes())
        failure = power.Failure({}, machine, acknowledged, reboot)
        copy = root.with_suffix(".img")
        shutil.copy(image, copy)
        (root / "state").mkdir(parents=True)
        try:
            command = ["mount", "-t", "ext4", "-o", "loop", str(copy), str(root / "state")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                wrong[image.stem] = [f"not mounted: {done.stderr}"]
            elif problems := power.judge(failure, root):
                wrong[image.stem] = problems
        finally:
            subprocess.run(["umount", "-l", str(root / "state")], check=False)
            shutil.rmtree(root)
    return wrong


def main() -> int:
    """Parse and act."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("record", "replay"))
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--break", dest="breakage", choices=sorted(BREAKAGES))
    options = parser.parse_args()
    root = Path("/dev/shm/power")
    if options.what == "record":
        print(json.dumps(record(root, options.breakage)))
    else:
        print(json.dumps(replay(root, options.directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
