"""The lab host's disks: one for its state, which outlives a power cut, and one whose every write is recorded.

The second, ``power``, has a small ext4 file system and behind it a raw region for marks (see ``power.py``). QEMU's
``blklogwrites`` writes down in order what the lab host's kernel sends to it, with its flushes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

STATE_BYTES = 512 << 20
#: the file system's part of the recorded disk; marks begin there
FS_BYTES = 16 << 20
POWER_BYTES = FS_BYTES + (48 << 20)
LOG_BYTES = 256 << 20
LOG_SECTOR = 512


def make(directory: Path) -> None:
    """New disks, sparse."""
    for name, size in (("state", STATE_BYTES), ("power", POWER_BYTES), ("log", LOG_BYTES)):
        with path(directory, name).open("wb") as file:
            file.truncate(size)
    make_fs(path(directory, "state"), STATE_BYTES)
    make_fs(path(directory, "power"), FS_BYTES)
    base = path(directory, "power").read_bytes()[:FS_BYTES]
    path(directory, "base").write_bytes(base)


def make_fs(file: Path, size: int) -> None:
    """ext4 at the beginning of a file."""
    command = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", str(file), f"{size // 1024}k"]
    subprocess.run(command, check=True, capture_output=True)


def path(directory: Path, name: str) -> Path:
    """Where an image lies; ``base``: the recorded file system as it was when it was new."""
    return directory / f"{name}.img"


def qemu_arguments(directory: Path) -> list[str]:
    """The disks on QEMU's command line."""
    log = f"driver=file,filename={path(directory, 'log')},node-name=log-file"
    recorder = (
        "driver=blklogwrites,node-name=power,file=power-file,log=log-file,log-append=off,"
        f"log-sector-size={LOG_SECTOR},log-super-update-interval=1"
    )
    return [
        "-blockdev", f"driver=file,filename={path(directory, 'state')},node-name=state",
        "-device", "virtio-blk,drive=state,serial=state",
        "-blockdev", f"driver=file,filename={path(directory, 'power')},node-name=power-file",
        "-blockdev", log, "-blockdev", recorder,
        "-device", "virtio-blk,drive=power,serial=power",
    ]  # fmt: skip
