"""Where tests write: in memory where this machine allows it. Half the time of the recovery tests was waiting for a
disk, and nothing here must outlive the machine: power cuts are played from what was recorded.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
#: what the largest tests hold at a time (a fresh Debian with NVIDIA's compiler), twice
NEEDED_BYTES = 12 << 30
#: names the directory that ``make_scratch`` has made
VARIABLE = "VGPUMGR_TEST_SCRATCH"


def short() -> Path:
    """Where a directory goes in which sockets are, whose paths may have 107 bytes."""
    return Path(os.environ.get(VARIABLE, "/tmp"))


def make_scratch() -> Path | None:
    """A directory in memory for all that this run of the tests writes, named by the environment from now on. None: this
    machine has too little of it, or allows no programs or devices there.
    """
    if not os.access(MEMORY, os.W_OK) or "TMPDIR" in os.environ:
        return None
    for old in MEMORY.glob("vg.*"):
        if not _is_in_use(old):
            shutil.rmtree(old, ignore_errors=True)
    found = os.statvfs(MEMORY)
    if found.f_flag & (os.ST_NOEXEC | os.ST_NODEV) or not _has_room(
        found.f_bavail * found.f_frsize
    ):
        return None
    scratch = Path(tempfile.mkdtemp(prefix="vg.", dir=MEMORY))
    # other users find their way through it
    scratch.chmod(0o755)
    # held until this process ends
    fcntl.flock(os.open(scratch, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.environ |= {"TMPDIR": str(scratch), VARIABLE: str(scratch)}
    tempfile.tempdir = None
    return scratch


def _is_in_use(scratch: Path) -> bool:
    """By a run that may have another view of processes: one on a fresh Debian shares this memory."""
    descriptor = os.open(scratch, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _has_room(free_bytes: int) -> bool:
    (line,) = [
        text for text in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in text
    ]
    return min(free_bytes, int(line.split()[1]) << 10) >= NEEDED_BYTES
