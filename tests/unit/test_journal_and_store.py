"""The journal and the state file: what survives a crash, a torn write, and other versions."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import tempfile
import threading
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.unprivileged import as_nobody
from vgpumgr.errors import (
    AlreadyAttachedError,
    JournalError,
    RollbackIncompleteError,
    RolledBackError,
    StoreError,
    StoreTooNewError,
    VgpumgrError,
)
from vgpumgr.model.codec import encode
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.slice import Backend, MigInstanceRef
from vgpumgr.model.vgpu import Framework, VgpuSpec
from vgpumgr.plan import journal as journal_module
from vgpumgr.plan.executor import Executor
from vgpumgr.plan.journal import Journal, parse_journal
from vgpumgr.plan.record import (
    AddedController,
    AttachmentRecord,
    AttachmentState,
    ChannelPart,
    HostDevice,
    HostDeviceKind,
    MigPart,
    Transport,
    decode_record,
)
from vgpumgr.plan.step import NothingDoneError, OnFailure, Plan
from vgpumgr.store.attachments import SqliteAttachments
from vgpumgr.store.database import MIGRATIONS, is_damage

GPU = GpuUuid("GPU-00000000-0000-4000-8000-000000000001")
MIG = MigUuid("MIG-00000000-0000-4000-8000-000000000002")
RECORD = AttachmentRecord(
    id="a1",
    vm_name="vm01",
    vm_uuid="u1",
    gpu=GPU,
    profile="1g.10gb",
    memory_bytes=10 << 30,
    backend=Backend.FORWARD,
    created_s=1.5,
    mig_part=MigPart(gpu_profile_id=19, placement=Placement(0, 1)),
    channel=ChannelPart(Transport.AUTO),
)
FULL = replace(
    RECORD.with_mig(ref=MigInstanceRef(7, 0, Placement(0, 1), MIG), mode_enabled=True),
    state=AttachmentState.ATTACHED,
    controllers=(AddedController("pci", 3, "pcie-root-port"),),
)


# ---- journal


def write(path: Path, count: int) -> None:
    journal = Journal(path, "boot")
    for number in range(count):
        journal.append(f"op{number}", "begin", {"number": number, "text": "ä\n"})
    journal.close()


def test_reads_what_was_written_and_counts_on(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal"
    write(path, 2)
    write(path, 1)
    events = list(Journal(path, "boot").read())
    assert [(e.seq, e.op, e.data["number"]) for e in events] == [
        (1, "op0", 0),
        (2, "op1", 1),
        (3, "op0", 0),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


@given(st.integers(min_value=0, max_value=400))
@settings(max_examples=60, deadline=None)
def test_torn_at_any_byte_the_whole_lines_remain(cut: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        write(path, 3)
        whole = path.read_bytes()
        path.write_bytes(whole[:cut])
        lines = whole[:cut].count(b"\n")
        journal = Journal(path, "boot")
        assert len(list(journal.read())) == lines
        journal.append("next", "begin", {})
        journal.close()
        events = list(journal.read())
        assert [e.seq for e in events] == list(range(1, lines + 2))
        assert len(list(Path(directory).iterdir())) == 1


def test_a_line_that_somebody_took_out_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, 3)
    first, _, third, *_ = path.read_bytes().splitlines(keepends=True)
    contents = parse_journal(first + third)
    assert contents.problem == "line 2 does not check, and later ones do"
    assert contents.events == ()


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
@settings(max_examples=60, deadline=None)
def test_flipped_anywhere_it_is_noticed_and_never_stops_us(where: int, bits: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        write(path, 3)
        data = bytearray(path.read_bytes())
        data[where % len(data)] ^= bits
        path.write_bytes(data)
        journal = Journal(path, "boot")
        journal.append("next", "begin", {})
        journal.close()
        events = list(Journal(path, "boot").read())
        assert events[-1].op == "next"
        kept = [p for p in Path(directory).iterdir() if "corrupt" in p.name]
        # moved aside and kept, unless only the last line was hit, which looks torn
        assert [p.read_bytes() for p in kept] in ([bytes(data)], [])
        assert bool(kept) == (len(events) == 1) or len(events) == 3


@pytest.mark.parametrize(("last", "rotated"), [("end", True), ("intent", False)])
def test_a_large_journal_is_put_away_once_all_is_finished(
    tmp_path: Path, last: str, rotated: bool
) -> None:
    path = tmp_path / "journal"
    journal = Journal(path, "boot")
    journal.append("op", "begin", {"text": "x" * (1 << 20)})
    journal.append("op", last, {})
    journal.close()
    journal = Journal(path, "boot")
    journal.append("next", "begin", {})
    journal.close()
    assert (tmp_path / "journal.old").exists() == rotated
    assert [e.seq for e in Journal(path, "boot").read()][-1] == 3, "numbers go on"


def test_what_was_read_of_a_journal_is_not_parsed_again(tmp_path: Path) -> None:
    """All its lines are kept, however many operations it has seen; and it does not grow without end."""
    path = tmp_path / "journal"
    for number in range(1000):
        journal = Journal(path, "c0ffee00-0000-4000-8000-000000000000")
        journal.append(f"operation-{number}", "begin", {"vm": "vm01", "steps": [{"name": "x"}] * 4})
        journal.append(f"operation-{number}", "end", {})
        journal.close()
        if number % 100 == 0:
            assert path.stat().st_size <= journal_module._ROTATE_BYTES + journal_module._CHUNK_BYTES
            journal.look()
            before = journal_module._decode.cache_info().misses
            journal.look()
            assert journal_module._decode.cache_info().misses == before
    assert (tmp_path / "journal.old").exists()


def test_nothing_is_done_that_cannot_be_journalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    plan = Plan("attach", "vm", (Put("a"),))

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(JournalError) as caught:
        Executor(world, Journal(tmp_path / "journal", "boot")).run(plan, "op")
    assert "Input/output error" in str(caught.value.cause)
    assert world.things == []


def test_intent_is_on_disk_before_the_step(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    seen: list[list[str]] = []

    class Look(Put):
        def do(self, world: World) -> None:
            assert world.things == []
            seen.append([e.event for e in Journal(path, "boot").read()])

    Executor(World(), Journal(path, "boot")).run(Plan("x", "y", (Look("a"), Look("b"))), "op")
    assert seen == [["begin", "intent"], ["begin", "intent", "done", "intent"]]
    assert Journal(path, "boot").unfinished() == {}


def test_a_new_journal_is_safe_in_its_directory(tmp_path: Path) -> None:
    """Also one that takes the place of another: its name is synced before anything relies on it."""
    path = tmp_path / "journal"

    def open_anew() -> int:
        with mock.patch.object(os, "fsync", wraps=os.fsync) as sync:
            journal = Journal(path, "boot")
            journal.append("a", "begin", {})
            journal.close()
        return sync.call_count

    assert [open_anew(), open_anew()] == [1, 0]
    path.unlink()
    assert [open_anew(), open_anew()] == [1, 0]
    Journal(path, "boot").put_away("failed")
    assert open_anew() == 1
    # that another process has made it says nothing
    journal_module._safe_names.clear()
    assert open_anew() == 1


# ---- executor, on a world that is a list


class World:
    """Things that are there, in the order in which they came."""

    def __init__(self) -> None:
        self.things: list[str] = []


class StepError(VgpumgrError):
    """A failure on request."""


@dataclass(frozen=True)
class Put:
    """Puts a thing there; fails before or after that, and undoing may fail too."""

    name: str
    fails: str = ""
    undo_fails: bool = False
    kind: ClassVar[str] = "test.put"

    @property
    def target(self) -> dict[str, object]:
        return {"name": self.name}

    def describe(self) -> str:
        return f"put {self.name}"

    def do(self, world: World) -> None:
        if self.fails == "nothing":
            raise NothingDoneError(StepError("refused"))
        if self.fails == "before":
            raise StepError("before")
        world.things.append(self.name)
        if self.fails == "after":
            raise StepError("after")
        if self.fails == "bug":
            raise ZeroDivisionError

    def undo(self, world: World) -> None:
        if self.undo_fails:
            raise StepError("stuck")
        assert world.things[-1] == self.name or world.things[-1] in self.stuck(world)
        world.things.remove(self.name)

    def stuck(self, world: World) -> Sequence[str]:
        return [thing for thing in world.things if thing.startswith("stuck")]

    def observe(self, world: World) -> bool:
        return self.name in world.things


@given(
    st.lists(st.booleans(), min_size=1, max_size=6),
    st.integers(min_value=0, max_value=6),
    st.sampled_from(["nothing", "before", "after", "bug"]),
)
@settings(max_examples=150, deadline=None)
def test_executor_undoes_in_reverse_and_lists_what_is_left(
    stuck: list[bool], failing: int, how: str
) -> None:
    steps = [
        Put(f"{'stuck' if s else 'thing'}{i}", how if i == failing else "", s)
        for i, s in enumerate(stuck)
    ]
    world = World()
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(Path(directory) / "journal", "boot")
        executor = Executor(world, journal)
        plan = Plan("attach", "vm", tuple(steps))
        happened = steps[: failing + (how in ("after", "bug"))]
        left = [step.name for step in happened if step.undo_fails]
        if failing >= len(steps):
            executor.run(plan, "op")
            assert world.things == [step.name for step in steps]
        elif left:
            with pytest.raises(RollbackIncompleteError) as caught:
                executor.run(plan, "op")
            assert all(name in str(caught.value.why) for name in left)
            assert world.things == left
            assert list(journal.unfinished()) == ["op"]
        else:
            expected = StepError if not happened and how != "bug" else RolledBackError
            with pytest.raises(expected):
                executor.run(plan, "op")
            assert world.things == []
        if not left:
            assert journal.unfinished() == {}
        journal.close()


def test_a_plan_that_stops_leaves_what_was_done(tmp_path: Path) -> None:
    world = World()
    plan = Plan("detach", "vm", (Put("a"), Put("b", "before"), Put("c")), OnFailure.STOP)
    with pytest.raises(StepError, match="before"):
        Executor(world, Journal(tmp_path / "journal", "boot")).run(plan, "op")
    assert world.things == ["a"]


# ---- store


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Every connection that is opened."""
    connect, found = sqlite3.connect, list[sqlite3.Connection]()

    def note(*arguments: Any, **named: Any) -> sqlite3.Connection:
        found.append(connect(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(sqlite3, "connect", note)
    return found


def test_held_open_the_transactions_share_a_connection(
    tmp_path: Path, opened: list[sqlite3.Connection]
) -> None:
    path = tmp_path / "state.sqlite"
    store = SqliteAttachments(path)
    store.save_attachment(RECORD)
    opened.clear()
    with store.held_open():
        assert store.find_damage() is None
        store.save_attachment(FULL)
        # as if it were closed: what is committed stands in the file, not in its log
        assert path.with_name("state.sqlite-wal").stat().st_size == 0
        with store.held_open():
            assert store.list_attachments() == (FULL,)
        assert len(opened) == 1
        others: list[tuple[AttachmentRecord, ...]] = []
        thread = threading.Thread(target=lambda: others.append(store.list_attachments()))
        thread.start()
        thread.join()
        assert others == [(FULL,)]
        assert len(opened) == 2, "another thread has its own"
    with pytest.raises(sqlite3.ProgrammingError):
        opened[0].execute("SELECT 1")
    assert store.list_attachments() == (FULL,)


def test_held_open_an_error_and_another_file_end_the_connection(
    tmp_path: Path, opened: list[sqlite3.Connection]
) -> None:
    path = tmp_path / "state.sqlite"
    store = SqliteAttachments(path)
    with store.held_open():
        store.save_attachment(RECORD)
        assert store.list_attachments() == (RECORD,)
        opened.clear()
        with pytest.raises(AlreadyAttachedError):
            store.save_attachment(replace(RECORD, id="other"))
        assert store.list_attachments() == (RECORD,)
        assert len(opened) == 1
        # somebody puts another file in its place
        other = SqliteAttachments(tmp_path / "other.sqlite")
        other.save_attachment(FULL)
        (tmp_path / "other.sqlite").replace(path)
        assert store.list_attachments() == (FULL,)
        store.put_away()
        assert store.list_attachments() == ()
        store.save_attachment(RECORD)
        assert store.list_attachments() == (RECORD,)
    assert SqliteAttachments(path).list_attachments() == (RECORD,)


def test_held_open_a_damaged_file_is_told_and_not_put_away(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    path.write_bytes(b"no database at all, but as long as one" * 200)
    store = SqliteAttachments(path)
    with store.held_open():
        assert "not a database" in str(store.find_damage())
        assert [p.name for p in tmp_path.glob("*corrupt*")] == []


def test_store_keeps_every_field(tmp_path: Path) -> None:
    store = SqliteAttachments(tmp_path / "deep" / "state.sqlite")
    assert store.list_attachments() == ()
    assert not (tmp_path / "deep").exists(), "reading makes nothing"
    store.save_attachment(RECORD)
    store.save_attachment(FULL)
    assert SqliteAttachments(tmp_path / "deep" / "state.sqlite").list_attachments() == (FULL,)
    (owner,) = store.list_owners()
    assert (owner.gpu, owner.gpu_instance_id, owner.vm_name) == (GPU, 7, "vm01")
    attachment = FULL.attachment
    assert attachment is not None
    assert attachment.slice.cuda_device == MIG
    store.delete_attachment("a1")
    store.delete_attachment("a1")
    assert store.list_attachments() == ()


def test_a_number_is_given_once_in_a_vm(tmp_path: Path) -> None:
    store = SqliteAttachments(tmp_path / "state.sqlite")
    store.save_attachment(RECORD)
    with pytest.raises(AlreadyAttachedError):
        store.save_attachment(replace(RECORD, id="a2"))
    second = replace(RECORD, id="a2", number=1)
    store.save_attachment(second)
    assert store.list_attachments() == (RECORD, second)


def test_a_vm_with_devices_of_the_host_has_no_slice_of_mig(tmp_path: Path) -> None:
    function = HostDevice(
        HostDeviceKind.VF,
        "ua-vgpumgr-a1-pci0",
        PciAddress.parse("0000:41:00.4"),
        previous_driver="nvidia",
        parent=PciAddress.parse("0000:41:00.0"),
        vgpu=VgpuSpec(
            "6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11",
            Framework.VENDOR_VFIO,
            "0000:41:00.4",
            "588",
            "NVIDIA A40-8Q",
        ),
        created=True,
    )
    record = replace(
        RECORD, backend=Backend.VF, gpu=None, mig_part=None, channel=None, host_devices=(function,)
    )
    store = SqliteAttachments(tmp_path / "state.sqlite")
    store.save_attachment(record)
    assert store.list_attachments() == (record,)
    assert store.list_owners() == ()


#: as version 0.1.0 before attachments had parts wrote it
EARLIER = {
    "id": "a1",
    "vm_name": "vm01",
    "vm_uuid": "u1",
    "gpu": str(GPU),
    "profile": "1g.10gb",
    "gpu_profile_id": 19,
    "placement": {"start": 0, "size": 1},
    "memory_bytes": 10 << 30,
    "backend": "forward",
    "transport": "auto",
    "created_s": 1.5,
    "state": "attached",
    "mig": {
        "gpu_instance_id": 7,
        "compute_instance_id": 0,
        "placement": {"start": 0, "size": 1},
        "uuid": str(MIG),
    },
    "mig_mode_enabled": True,
    "controllers": [{"type": "pci", "index": 3, "model": "pcie-root-port"}],
    "controllers_before": None,
    "gpu_instance_id": 7,
    "qemu_owner": [64055, 108],
}


def test_reads_what_earlier_versions_recorded(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    text = json.dumps(EARLIER)
    with sqlite3.connect(path) as connection:
        for number, migration in enumerate(MIGRATIONS[:2], 1):
            connection.executescript(f"{migration} PRAGMA user_version = {number};")
        connection.execute(
            "INSERT INTO attachment VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            ("a1", "u1", "vm01", str(GPU), "attached", 1.5, text, zlib.crc32(text.encode())),
        )
    wanted = FULL.with_mig(gpu_instance_id=7).with_channel(qemu_owner=(64055, 108))
    store = SqliteAttachments(path)
    assert store.list_attachments() == (wanted,)
    assert store.find_damage() is None
    assert decode_record(EARLIER) == decode_record(encode(wanted)) == wanted


def test_wal_strict_and_numbered(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    SqliteAttachments(path).save_attachment(RECORD)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE attachment SET created_s = 'yesterday'")
        connection.rollback()
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreTooNewError) as caught:
        SqliteAttachments(path).list_attachments()
    assert "99" in str(caught.value.cause)


@pytest.mark.parametrize("busy", [False, True])
def test_another_user_reads_what_root_has_written(busy: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name) / "it's 100%" / "state.sqlite"
        Path(name).chmod(0o755)
        SqliteAttachments(path).save_attachment(RECORD)
        with closing(sqlite3.connect(path)) as writer:
            written = [RECORD]
            if busy:  # its log exists, and what was written last stands only there
                writer.execute("PRAGMA user_version").fetchone()
                written.append(replace(RECORD, id="a2", vm_uuid="u2"))
                SqliteAttachments(path).save_attachment(written[1])
                assert path.with_name(f"{path.name}-wal").stat().st_size
            found = as_nobody(lambda: [r.id for r in SqliteAttachments(path).list_attachments()])
            assert found == [record.id for record in written]
            with pytest.raises(StoreError):
                as_nobody(lambda: SqliteAttachments(path).delete_attachment("a1"))
        assert SqliteAttachments(path).list_attachments() == tuple(written)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough" * 100, b"\0" * 4096])
def test_a_corrupt_file_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.sqlite"
    path.write_bytes(content)
    store = SqliteAttachments(path)
    assert store.list_attachments() == ()
    store.save_attachment(RECORD)
    assert store.list_attachments() == (RECORD,)
    (aside,) = tmp_path.glob("*.corrupt-*")
    assert aside.read_bytes() == content


def test_many_writers(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"

    def work(number: int) -> None:
        for turn in range(5):
            record = replace(RECORD, id=f"{number}-{turn}", vm_uuid=f"{number}-{turn}")
            SqliteAttachments(path).save_attachment(record)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(SqliteAttachments(path).list_attachments()) == 20


def fail_with(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("it did not work")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "damage"),
    [
        (OSError(errno.ENOSPC, "no space left on device"), False),
        (PermissionError(errno.EACCES, "permission denied"), False),
        (fail_with(sqlite3.SQLITE_FULL), False),
        (fail_with(sqlite3.SQLITE_BUSY), False),
        (fail_with(sqlite3.SQLITE_IOERR_WRITE), False),
        (fail_with(sqlite3.SQLITE_IOERR_SHORT_READ), True),
        (fail_with(sqlite3.SQLITE_CORRUPT), True),
        (fail_with(sqlite3.SQLITE_NOTADB), True),
        (ValueError("no JSON"), True),
    ],
    ids=str,
)
def test_only_a_bad_file_costs_the_file(error: Exception, damage: bool) -> None:
    """A database that is damaged is put aside and made anew from what the machine says."""
    assert is_damage(error) == damage
