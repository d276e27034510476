"""The state file: what it keeps, its versions, damage, many writers."""

from __future__ import annotations

import errno
import sqlite3
import tempfile
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import short
from tests.support.unprivileged import as_nobody
from vgpumgr.errors import AlreadyAttachedError, StoreError, StoreTooNewError
from vgpumgr.model.attachment import (
    AddedController,
    AttachmentRecord,
    AttachmentState,
    ChannelPart,
    HostDevice,
    HostDeviceKind,
    MigInstanceRef,
    MigPart,
)
from vgpumgr.model.choices import Backend, Transport
from vgpumgr.model.gpu import Drain
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.mig import Placement
from vgpumgr.model.pci import Binding, PciAddress, VfSetting
from vgpumgr.model.vgpu import Framework, VgpuSpec
from vgpumgr.state import records
from vgpumgr.state.database import is_damage
from vgpumgr.state.records import DRAIN, KEPT, Kind, current_version, read_copy, write_copy
from vgpumgr.state.store import Store

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
BINDING = Binding(PciAddress(0, 1, 0, 0), "vfio-pci", "nvidia", None, 0x10DE, 1, "boot", True)
OTHER = PciAddress(0, 2, 0, 0)
DRAINED = Drain(BINDING.address, "GPU-1", "root", 1.0, "fan")


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
    store = Store(path)
    store.save_attachment(RECORD)
    opened.clear()
    with store.held_open():
        assert store.find_damage() is None
        store.save_attachment(FULL)
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
    # closed: what is committed stands in the file, not in its log
    assert not path.with_name("state.sqlite-wal").exists()
    assert store.list_attachments() == (FULL,)


def test_held_open_a_refusal_is_no_end_and_another_file_is(
    tmp_path: Path, opened: list[sqlite3.Connection]
) -> None:
    path = tmp_path / "state.sqlite"
    store = Store(path)
    with store.held_open():
        store.save_attachment(RECORD)
        assert store.list_attachments() == (RECORD,)
        opened.clear()
        with pytest.raises(AlreadyAttachedError):
            store.save_attachment(replace(RECORD, id="other"))
        assert store.list_attachments() == (RECORD,)
        assert opened == []
        # somebody puts another file in its place
        other = Store(tmp_path / "other.sqlite")
        other.save_attachment(FULL)
        (tmp_path / "other.sqlite").replace(path)
        assert store.list_attachments() == (FULL,)
        path.unlink()
        path.write_bytes(b"no database at all, but as long as one" * 200)
        assert store.put_away() == ()
        assert store.list_attachments() == ()
        store.save_attachment(RECORD)
        assert store.list_attachments() == (RECORD,)
    assert Store(path).list_attachments() == (RECORD,)


def test_held_open_a_damaged_file_is_told_and_not_put_away(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    path.write_bytes(b"no database at all, but as long as one" * 200)
    store = Store(path)
    with store.held_open():
        assert "not a database" in str(store.find_damage())
        assert [p.name for p in tmp_path.glob("*corrupt*")] == []


def test_store_keeps_every_field(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "state.sqlite")
    assert store.list_attachments() == ()
    assert not (tmp_path / "deep").exists(), "reading makes nothing"
    store.save_attachment(RECORD)
    store.save_attachment(FULL)
    assert Store(tmp_path / "deep" / "state.sqlite").list_attachments() == (FULL,)
    (owner,) = store.list_owners()
    assert (owner.gpu, owner.gpu_instance_id, owner.vm_name) == (GPU, 7, "vm01")
    store.delete_attachment("a1")
    store.delete_attachment("a1")
    assert store.list_attachments() == ()


def test_a_number_is_given_once_in_a_vm(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.sqlite")
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
    store = Store(tmp_path / "state.sqlite")
    store.save_attachment(record)
    assert store.list_attachments() == (record,)
    assert store.list_owners() == ()


def test_wal_strict_and_numbered(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    Store(path).save_attachment(RECORD)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE record SET seq = 'yesterday'")
        connection.rollback()


def make_newer(path: Path, version: int) -> None:
    """As a newer program says it in its file."""
    with closing(sqlite3.connect(path)) as connection:
        (own,) = connection.execute("PRAGMA application_id").fetchone()
        connection.execute(f"PRAGMA application_id = {own - current_version() + version}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store = Store(path)
    store.save_attachment(RECORD)
    make_newer(path, 99)
    before = path.read_bytes()
    for act in (
        store.list_attachments,
        store.read_layouts,
        store.find_damage,
        store.put_away,
        lambda: store.save_attachment(FULL),
        lambda: store.delete_attachment("a1"),
    ):
        with pytest.raises(StoreTooNewError) as caught:
            act()
        assert "version 99, this program knows 3" in str(caught.value.cause)
    assert path.read_bytes() == before
    path.unlink()
    copy = path.with_suffix(".copy")
    write_copy(copy, {name: Kind() for name in KEPT}, 99)
    with pytest.raises(StoreTooNewError, match="copy"):
        store.save_attachment(RECORD)
    assert not path.exists()


def rename_profiles(kind: str, data: Any) -> Any:
    """What a later version could be: it calls profiles otherwise, and knows no numbers of functions."""
    if kind == "attachment":
        return data | {"profile": data["profile"].upper()}
    return None if kind == "vf-setting" else data


@pytest.mark.parametrize("lost", [False, True])
def test_a_later_version_brings_the_records_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """All of them as one; also those that only the copy has, in the format of the version before."""
    path = tmp_path / "state.sqlite"
    store = Store(path)
    store.save_attachment(RECORD)
    store.save_binding(BINDING)
    store.save_vf_setting(VfSetting(BINDING.address, 4, 0x8086, 0x56C0, "boot"))
    if lost:
        path.unlink()
    monkeypatch.setattr(records, "MIGRATIONS", (*records.MIGRATIONS, rename_profiles))
    newer = Store(path)
    assert (newer.list_bindings(), newer.list_vf_settings()) == ((BINDING,), ())
    assert [r.profile for r in newer.list_attachments()] == ([] if lost else ["1G.10GB"])
    if not lost:
        assert newer.repair_copy() is None, "the copy of the version before says the same"
    newer.save_attachment(replace(RECORD, id="a2", vm_uuid="u2"))
    newer.delete_attachment("a2")
    assert newer.list_damage() == ()
    monkeypatch.undo()
    with pytest.raises(StoreTooNewError) as caught:
        Store(path).list_bindings()
    assert "version 4, this program knows 3" in str(caught.value.cause)


def test_a_version_that_cannot_read_a_record_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.sqlite"
    Store(path).save_attachment(RECORD)

    def fails(_kind: str, data: Any) -> Any:
        return data["a field that is not there"]

    with monkeypatch.context() as patched:
        patched.setattr(records, "MIGRATIONS", (*records.MIGRATIONS, fails))
        with pytest.raises(StoreError, match="state file") as caught:
            Store(path).list_attachments()
        assert "cannot be brought up to date" in str(caught.value.cause)
    assert Store(path).list_attachments() == (RECORD,)


@pytest.mark.parametrize("lost", [False, True])
def test_a_file_from_before_there_were_drains(tmp_path: Path, lost: bool) -> None:
    """Version 1 had no such kind, and loses nothing."""
    path = tmp_path / "state.sqlite"
    Store(path).save_attachment(RECORD)
    Store(path).save_binding(BINDING)
    copy = path.with_suffix(".copy")
    kinds = read_copy(copy, KEPT, current_version())
    assert kinds is not None
    write_copy(copy, {name: kind for name, kind in kinds.items() if name != DRAIN}, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM seal WHERE kind = ?", (DRAIN,))
    make_newer(path, 1)
    if lost:
        path.unlink()
    store = Store(path)
    assert (store.list_drains(), store.list_bindings()) == ((), (BINDING,))
    assert store.list_attachments() == (() if lost else (RECORD,))
    store.save_drain(DRAINED)
    assert store.list_damage() == ()
    assert Store(path).list_drains() == (DRAINED,)


def test_drains_have_a_second_copy_and_one_record_each(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store = Store(path)
    by_slot = replace(DRAINED, uuid=None, address=OTHER, reason="x")
    for drain in (DRAINED, by_slot, replace(DRAINED, reason=None), replace(by_slot, reason="y")):
        store.save_drain(drain)
    path.write_bytes(b"bad" * 999)
    store = Store(path)
    assert store.list_drains() == (replace(DRAINED, reason=None), replace(by_slot, reason="y"))
    store.forget_drain(DRAINED)
    store.forget_drain(DRAINED)
    assert [drain.address for drain in store.list_drains()] == [OTHER]


def test_a_drain_goes_with_the_card() -> None:
    """By its UUID, wherever it is; by the slot where NVML does not say whose it is."""
    here, uuid = DRAINED.address, DRAINED.uuid
    for address, seen, of in (
        (here, uuid, True),
        (OTHER, uuid, True),
        (here, "GPU-2", False),
        (here, None, True),
        (OTHER, None, False),
    ):
        assert DRAINED.is_of(address, seen) is of
    assert replace(DRAINED, uuid=None).is_of(here, "GPU-2")


@pytest.mark.parametrize("busy", [False, True])
def test_another_user_reads_what_root_has_written(busy: bool) -> None:
    with tempfile.TemporaryDirectory(dir=short()) as name:
        path = Path(name) / "it's 100%" / "state.sqlite"
        Path(name).chmod(0o755)
        Store(path).save_attachment(RECORD)
        with closing(sqlite3.connect(path)) as writer:
            written = [RECORD]
            if busy:  # its log exists, and what was written last stands only there
                writer.execute("PRAGMA user_version").fetchone()
                written.append(replace(RECORD, id="a2", vm_uuid="u2"))
                Store(path).save_attachment(written[1])
                assert path.with_name(f"{path.name}-wal").stat().st_size
            found = as_nobody(lambda: [r.id for r in Store(path).list_attachments()])
            assert found == [record.id for record in written]
            with pytest.raises(StoreError):
                as_nobody(lambda: Store(path).delete_attachment("a1"))
        assert Store(path).list_attachments() == tuple(written)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough" * 100, b"\0" * 4096])
def test_a_corrupt_file_is_said_and_put_aside_by_a_write(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.sqlite"
    store = Store(path)
    store.save_binding(BINDING)
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        store.list_attachments()
    assert caught.value.hint == "vgpumgr recover"
    assert path.read_bytes() == content, "reading changes nothing"
    store.save_attachment(RECORD)
    assert store.list_attachments() == (RECORD,)
    assert store.list_bindings() == (BINDING,)
    (aside,) = tmp_path.glob("*.corrupt-*")
    assert aside.read_bytes() == content
    assert store.list_damage() == ()


def test_records_of_every_kind_are_written_as_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.sqlite")

    def write_all(*records: AttachmentRecord) -> None:
        with store.transaction():
            store.save_binding(BINDING)
            assert store.list_bindings() == (BINDING,), "it sees what it writes"
            for record in records:
                store.save_attachment(record)

    with pytest.raises(AlreadyAttachedError):
        write_all(RECORD, replace(RECORD, id="other"))
    assert (store.list_attachments(), store.list_bindings()) == ((), ())
    write_all(RECORD)
    again = Store(store.path)
    assert (again.list_attachments(), again.list_bindings()) == ((RECORD,), (BINDING,))
    with sqlite3.connect(store.path) as connection:
        (revision,) = connection.execute(
            "SELECT revision FROM seal WHERE kind = 'function'"
        ).fetchone()
    assert revision == 1


def test_many_writers(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"

    def work(number: int) -> None:
        for turn in range(5):
            record = replace(RECORD, id=f"{number}-{turn}", vm_uuid=f"{number}-{turn}")
            Store(path).save_attachment(record)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Store(path).list_attachments()) == 20


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
