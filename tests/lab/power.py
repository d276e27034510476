"""Power failures on a real disk: what the lab host's kernel wrote, cut off anywhere and put together anew.

The history of ``tests/recovery/power.py`` runs in the lab host on ext4, on a disk whose every write and flush is
recorded. A power failure is any moment of it: all writes before the last flush are on the disk, of those after it any
subset, the last of them torn at a sector. Each such image is mounted by a real kernel, and vgpumgr recovers from it.

    python -m tests.lab power --states N --seed N [--break NAME]
"""

from __future__ import annotations

import hashlib
import pickle
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab import disks
from tests.lab.host import LabHost
from tests.lab.power_inside import BLOCK

SECTOR = disks.LOG_SECTOR
#: include/linux/device-mapper/dm-log-writes.c: entry flags and the superblock's magic
FLUSH, MAGIC = 1, 0x6A736677736872


@dataclass(frozen=True, slots=True)
class Entry:
    """One request: data at an offset, or a flush."""

    offset: int
    data: bytes
    flush: bool


def parse_log(data: bytes) -> Iterator[Entry]:
    """The entries of a log in the form of dm-log-writes, in order. The first sector is a superblock."""
    magic, _version, count, _size = struct.unpack_from("<QQQI", data)
    assert magic == MAGIC, f"no log of writes: {magic:#x}"
    at = SECTOR
    for _ in range(count):
        sector, sectors, flags, _length = struct.unpack_from("<QQQQ", data, at)
        at += SECTOR
        size = 0 if flags & 4 else sectors * SECTOR
        yield Entry(sector * SECTOR, data[at : at + size], bool(flags & FLUSH))
        at += size


@dataclass
class Recording:
    """A disk over time: ``durable`` is what certainly is on it, ``pending`` what was written since the last flush."""

    durable: bytearray
    pending: list[Entry] = field(default_factory=list)
    marks: bytearray = field(default_factory=bytearray)

    def do(self, entry: Entry) -> None:
        """The next request."""
        if entry.flush:
            for write in self.pending:
                apply(self.durable, write)
            self.pending.clear()
        if entry.data and entry.offset >= disks.FS_BYTES:
            at = entry.offset - disks.FS_BYTES
            self.marks[at : at + len(entry.data)] = entry.data
        elif entry.data:
            self.pending.append(entry)

    def image(self, choice: random.Random) -> bytes:
        """One of the states in which a power failure now may leave the file system."""
        image = bytearray(self.durable)
        kind = choice.choice(("none", "all", "prefix", "subset", "subset", "torn"))
        if kind == "none":
            return bytes(image)
        writes = list(self.pending)
        if kind in ("prefix", "torn"):
            writes = writes[: choice.randint(0, len(writes))]
        torn = [writes.pop()] if kind == "torn" and writes else []
        for write in writes:
            if kind != "subset" or choice.random() < 0.5:
                apply(image, write)
        for write in torn:
            for start in range(0, len(write.data), SECTOR):
                if choice.random() < 0.5:
                    part = write.data[start : start + SECTOR]
                    apply(image, Entry(write.offset + start, part, False))
        return bytes(image)

    def last_mark(self) -> tuple[bytes, str] | None:
        """The hardware and what had been acknowledged; None before the first mark."""
        at, found = 0, None
        while at + 8 <= len(self.marks):
            size = int.from_bytes(self.marks[at : at + 8], "little")
            if size == 0 or at + 8 + size > len(self.marks):
                break
            found = pickle.loads(bytes(self.marks[at + 8 : at + 8 + size]))
            at += -(-(8 + size) // BLOCK) * BLOCK
        return found


def apply(image: bytearray, write: Entry) -> None:
    """A write reaches the disk."""
    image[write.offset : write.offset + len(write.data)] = write.data


def enumerate_failures(
    base: bytes, log: bytes, seed: int, states: int
) -> Iterator[tuple[bytes, tuple[bytes, str, bool]]]:
    """Up to that many distinct power failures: the file system, and (hardware, acknowledged, rebooted)."""
    choice = random.Random(seed)
    entries = list(parse_log(log))
    cuts = sorted(choice.choices(range(len(entries)), k=states * 2))
    recording, seen = Recording(bytearray(base)), set[bytes]()
    done = 0
    for cut in cuts:
        while done <= cut:
            recording.do(entries[done])
            done += 1
        mark = recording.last_mark()
        if mark is None or len(seen) >= states:
            continue
        image, reboot = recording.image(choice), bool(len(seen) % 2)
        key = hashlib.sha256(image + repr((mark, reboot)).encode()).digest()
        if key not in seen:
            seen.add(key)
            yield image, (*mark, reboot)


def play(
    host: LabHost, *, states: int, seed: int = 1, breakage: str | None = None
) -> dict[str, Any]:
    """Record in the lab host, enumerate here, recover there."""
    more = ["--break", breakage] if breakage else []
    inside = "tests.lab.power_inside"
    host.run_module(inside, "record", *more)
    base = disks.path(host.directory, "base").read_bytes()
    log = disks.path(host.directory, "log").read_bytes()
    place = host.out / "power"
    place.mkdir()
    played = 0
    for image, mark in enumerate_failures(base, log, seed, states):
        write_sparse(place / f"{played:05}.img", image)
        (place / f"{played:05}.mark").write_bytes(pickle.dumps(mark))
        played += 1
    wrong = host.run_module(inside, "replay", "/out/power", timeout_s=60 + 20 * states)
    shutil.rmtree(place)
    return {
        "seed": seed,
        "entries": sum(1 for _ in parse_log(log)),
        "played": played,
        "wrong": wrong,
    }


def write_sparse(path: Path, data: bytes) -> None:
    """A file without its empty blocks."""
    with path.open("wb") as file:
        file.truncate(len(data))
        for start in range(0, len(data), BLOCK):
            block = data[start : start + BLOCK]
            if block.count(0) != len(block):
                file.seek(start)
                file.write(block)
