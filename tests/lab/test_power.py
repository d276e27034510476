"""Power failures on a real ext4: see ``power.py``."""

from __future__ import annotations

import random
import struct

from tests.lab.disks import FS_BYTES, LOG_SECTOR
from tests.lab.host import LabHost
from tests.lab.power import MAGIC, Entry, Recording, parse_log, play

#: python -m tests.lab power --states 500 for more
STATES = 10


def test_a_machine_recovers_from_any_moment(lab_host: LabHost) -> None:
    done = play(lab_host, states=STATES)
    assert done["wrong"] == {}
    assert done["played"] == STATES
    assert done["entries"] > 500


def test_unflushed_writes_may_be_lost_and_flushed_ones_may_not() -> None:
    recording = Recording(bytearray(b"\0" * 4 * LOG_SECTOR))
    recording.do(Entry(0, b"a" * LOG_SECTOR, False))
    recording.do(Entry(0, b"", True))
    recording.do(Entry(LOG_SECTOR, b"b" * LOG_SECTOR, False))
    recording.do(Entry(2 * LOG_SECTOR, b"c" * LOG_SECTOR, False))
    choice = random.Random(1)
    images = {recording.image(choice)[::LOG_SECTOR] for _ in range(200)}
    assert images == {b"a\0\0\0", b"ab\0\0", b"a\0c\0", b"abc\0"}


def test_marks_are_no_part_of_the_file_system() -> None:
    recording = Recording(bytearray(FS_BYTES))
    recording.do(Entry(FS_BYTES, b"\0" * LOG_SECTOR, False))
    assert recording.last_mark() is None
    assert not recording.pending


def test_log_of_writes_is_read_as_the_kernel_documents_it() -> None:
    head = struct.pack("<QQQI", MAGIC, 1, 2, LOG_SECTOR).ljust(LOG_SECTOR, b"\0")
    write = struct.pack("<QQQQ", 3, 1, 0, 0).ljust(LOG_SECTOR, b"\0") + b"x" * LOG_SECTOR
    flush = struct.pack("<QQQQ", 0, 0, 1, 0).ljust(LOG_SECTOR, b"\0")
    assert list(parse_log(head + write + flush)) == [
        Entry(3 * LOG_SECTOR, b"x" * LOG_SECTOR, False),
        Entry(0, b"", True),
    ]
