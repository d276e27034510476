"""The state file and its copy survive any damage to one of them, and nothing is lost unsaid where both are."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.support.service import Bench, make_bench
from tests.support.unprivileged import as_nobody
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.backends.forward import AttachRequest
from vgpumgr.errors import StoreError, VgpumgrError
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import DesiredLayout
from vgpumgr.model.pci import Binding, PciAddress, VfSetting
from vgpumgr.model.vgpu import Framework, VgpuRecord, VgpuSpec, VgpuState
from vgpumgr.state.store import STATE_FILE, Store

ADDRESS = PciAddress.parse("0000:3a:00.0")
SETTING = VfSetting(ADDRESS, 4, 0x8086, 0x56C0, "boot")
BINDING = Binding(ADDRESS, "vfio-pci", "nvidia", None, 0x10DE, 1, "boot", persist=True)
LAYOUT = DesiredLayout(GpuUuid("GPU-00000000-0000-4000-8000-000000000000"), True, (), 2.0)
SPEC = VgpuSpec(
    "6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11", Framework.MDEV, "0000:3b:00.0", "nvidia-226", "T4-2A"
)
VGPU = VgpuRecord(SPEC, VgpuState.INACTIVE, boot="boot", defined=True, auto=True)
KEPT = ((SETTING,), (BINDING,), {str(LAYOUT.gpu): LAYOUT}, (VGPU,))
#: one that was detached, as an earlier command left it
LATER = GpuUuid("GPU-00000000-0000-4000-8000-000000000009")


def fill(store: Store) -> None:
    """One record of each kind that has no other source."""
    with store.transaction():
        store.save_vf_setting(SETTING)
        store.save_binding(BINDING)
        store.save_layouts([LAYOUT])
        store.save_vgpu(VGPU)


def read_all(store: Store) -> tuple[object, ...]:
    return (
        store.list_vf_settings(),
        store.list_bindings(),
        dict(store.read_layouts()),
        store.list_vgpus(),
    )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A machine with two attachments, and a record of each other kind."""
    bench = make_bench(tmp_path)
    for vm in ("vm01", "vm02"):
        bench.service.attach(AttachRequest(vm, "1g.10gb"))
    with Store(bench.store.path, "boot").held_open():
        fill(Store(bench.store.path, "boot"))
    return bench


def at(bench: Bench, which: str) -> Path:
    return bench.store.path if which == "file" else bench.store.path.with_suffix(".copy")


def read_files(directory: Path) -> dict[str, bytes]:
    """All of ours but the index of a log, which SQLite makes anew when it reads."""
    found = (p for p in directory.rglob("*") if p.is_file())
    return {p.name: p.read_bytes() for p in found if not p.name.endswith(("-shm", "-wal", ".lock"))}


def drift_of_store(bench: Bench) -> list[tuple[str, str, str | None]]:
    """As status and diff say it, which have to agree."""
    recovery = Recovery(bench.service.parts)
    status, diff = recovery.status().drift, recovery.diff().drift
    assert status is not None
    found = [(d.kind, d.subject, d.hint) for d in status if d.kind.startswith("state-")]
    assert found == [(d.kind, d.subject, d.hint) for d in diff if d.kind.startswith("state-")]
    return found


def flip(path: Path, offset: int, bit: int = 4) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk: these repair thousands of times."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.mark.usefixtures("quick")
def test_bytes_of_the_copy_flipped_or_cut_off_is_noticed_and_repaired(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.sqlite", "boot")
    fill(store)
    copy = store.path.with_suffix(".copy")
    good = copy.read_bytes()
    for offset in range(0, len(good) - 1, 3):  # the last one is the line's end
        for bad in (
            good[:offset],
            good[:offset] + bytes([good[offset] ^ 0x10]) + good[offset + 1 :],
        ):
            copy.write_bytes(bad)
            assert read_all(store) == KEPT
            assert [d.kind for d in store.list_damage()] == ["state-copy"], offset
            assert store.repair_copy() is not None
            assert copy.read_bytes() == good
    copy.unlink()
    assert [d.kind for d in store.list_damage()] == ["state-copy"]
    store.save_binding(BINDING)
    store.repair_copy()
    assert (copy.read_bytes(), store.list_damage()) == (good, ())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("bit", [0, 6])
def test_flips_in_every_page_of_the_file_lose_nothing(tmp_path: Path, bit: int) -> None:
    """Wherever it is, what is read is right; it is noticed where it matters, and repaired from the copy."""
    store = Store(tmp_path / "state.sqlite", "boot")
    fill(store)
    good = store.path.read_bytes()
    used = [offset for offset, byte in enumerate(good) if byte]
    pages = sorted({*range(0, len(good), 4096), *range(40, len(good), 4096)})
    noticed = 0
    for offset in sorted({*used[bit::9], *pages}):
        store.path.write_bytes(good)
        flip(store.path, offset, bit)
        assert read_all(store) == KEPT, offset
        if store.find_damage() is not None:
            noticed += 1
            store.put_away()
            assert store.list_damage() == (), offset
        assert read_all(store) == KEPT, offset
        for path in tmp_path.glob("*.corrupt-*"):
            path.unlink()
    assert noticed > len(used) / 10


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.8, 0.99])
def test_a_file_cut_off_anywhere_loses_nothing(bench: Bench, share: float) -> None:
    before = bench.store.list_attachments()
    data = bench.store.path.read_bytes()
    bench.store.path.write_bytes(data[: int(len(data) * share)])
    assert drift_of_store(bench) == [("state-damaged", "state file", "vgpumgr recover")]
    done = Recovery(bench.service.parts).recover(Policy())
    assert next(a.subject for a in done.actions) == "state file"
    assert bench.store.list_attachments() == before
    assert read_all(Store(bench.store.path, "boot")) == KEPT
    assert drift_of_store(bench) == []


def test_a_deleted_file_loses_nothing(bench: Bench) -> None:
    before = bench.store.list_attachments()
    bench.store.path.unlink()
    assert drift_of_store(bench) == [("state-damaged", "state file", "vgpumgr recover")]
    assert read_all(Store(bench.store.path, "boot")) == KEPT
    Recovery(bench.service.parts).recover(Policy())
    assert bench.store.list_attachments() == before
    assert read_all(Store(bench.store.path, "boot")) == KEPT
    assert drift_of_store(bench) == []


@pytest.mark.parametrize("harm", ["garbage", "flip", "cut", "gone", "old", "empty"])
def test_one_damaged_copy_is_drift_and_written_again(bench: Bench, harm: str) -> None:
    copy = at(bench, "copy")
    good = copy.read_bytes()
    if harm == "gone":
        copy.unlink()
    elif harm == "flip":
        flip(copy, len(good) // 2)
    elif harm == "old":
        Store(bench.store.path, "boot").forget_binding(ADDRESS)
        good, _ = copy.read_bytes(), copy.write_bytes(good)
    else:
        copy.write_bytes({"garbage": b"garbage", "cut": good[:-40], "empty": b""}[harm])
    damaged = copy.read_bytes() if copy.exists() else None
    assert drift_of_store(bench) == [("state-copy", "copy of the state file", "vgpumgr recover")]
    assert (copy.read_bytes() if copy.exists() else None) == damaged, "looking changes nothing"
    done = Recovery(bench.service.parts).recover(Policy())
    (action,) = [a for a in done.actions if "copy" in a.subject]
    assert (action.done, done.drift) == (True, [])
    assert copy.read_bytes() == good
    assert drift_of_store(bench) == []
    assert Recovery(bench.service.parts).recover(Policy()).actions == []


HARMS = ("garbage", "gone", "flip")


@pytest.mark.parametrize(
    ("file", "copy"),
    # with both gone, nothing says that there was ever anything
    [(file, copy) for file in HARMS for copy in HARMS if (file, copy) != ("gone", "gone")],
)
def test_both_damaged_is_said_and_nothing_is_changed(bench: Bench, file: str, copy: str) -> None:
    for path, harm in ((at(bench, "file"), file), (at(bench, "copy"), copy)):
        if harm == "gone":
            path.unlink()
        elif harm == "garbage":
            path.write_bytes(b"garbage, and a lot of it" * 1000)
        else:
            text = path.read_bytes()
            assert b"vfio-pci" in text
            path.write_bytes(text.replace(b"vfio-pci", b"vfio-pcj"))
    before = read_files(bench.store.path.parent)
    found = drift_of_store(bench)
    assert {kind for kind, _, _ in found} == {"state-lost"}
    assert "record of functions taken from the host" in {subject for _, subject, _ in found}
    assert all(hint and "backup" in hint for _, _, hint in found)
    store = Store(bench.store.path, "boot")
    acts: list[Callable[[], object]] = [
        lambda: Recovery(bench.service.parts).recover(Policy()),
        lambda: bench.service.detach("vm01"),
        lambda: bench.service.attach(AttachRequest("vm01", "1g.10gb", add=True)),
        lambda: store.save_binding(BINDING),
        lambda: store.forget_binding(ADDRESS),
        store.list_bindings,
    ]
    for act in acts:
        with pytest.raises(
            StoreError, match=r"cannot use the (record of functions|remembered MIG)"
        ):
            act()
    assert read_files(bench.store.path.parent) == before
    assert len(bench.channels.running) == 2


def test_a_kind_that_is_intact_survives_damage_to_the_file_and_to_the_copy(tmp_path: Path) -> None:
    """The file has lost a vGPU's bit, the copy is gone: functions and layouts are in the file still."""
    store = Store(tmp_path / "state.sqlite", "boot")
    fill(store)
    store.path.write_bytes(store.path.read_bytes().replace(b"T4-2A", b"T4-2B"))
    store.path.with_suffix(".copy").unlink()
    assert (store.list_bindings(), dict(store.read_layouts())) == KEPT[1:3]
    with pytest.raises(StoreError, match="cannot use the record of vGPUs"):
        store.list_vgpus()
    assert [(d.kind, d.subject) for d in store.list_damage()] == [("state-lost", "record of vGPUs")]


def test_a_file_that_lost_its_last_changes_is_noticed_by_its_copy(tmp_path: Path) -> None:
    """A damaged log looks like a shorter one; and a file from a backup is intact, but old."""
    store = Store(tmp_path / "state.sqlite", "boot")
    fill(store)
    shutil.copy(store.path, tmp_path / "backup")
    store.save_layouts([DesiredLayout(LATER, True, (), 3.0)])
    now = read_all(store)
    shutil.copy(tmp_path / "backup", store.path)
    assert "older than its copy" in str(store.find_damage())
    store.save_vf_setting(SETTING)  # a write repairs it first
    assert read_all(store) == now
    assert store.list_damage() == ()


def test_a_copy_that_cannot_be_written_now_is_written_by_the_next_command(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.sqlite", "boot")
    fill(store)
    blocked = tmp_path / ".state.copy.new"
    blocked.mkdir()
    store.forget_binding(ADDRESS)
    assert store.list_bindings() == ()
    assert [d.kind for d in store.list_damage()] == ["state-copy"]
    blocked.rmdir()
    store.save_binding(BINDING)
    assert store.list_damage() == ()


def test_a_link_in_the_place_of_a_new_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    for name in (".state.sqlite.new", ".state.copy.new"):
        (tmp_path / name).symlink_to(target)
    with suppress(StoreError):
        fill(Store(tmp_path / "state.sqlite", "boot"))
    assert target.read_text() == "theirs"


@pytest.mark.parametrize("umask", [0, 0o077])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        fill(Store(tmp_path / "state.sqlite"))
    finally:
        os.umask(before)
    for name in ("state.sqlite", "state.copy"):
        assert (tmp_path / name).stat().st_mode & 0o022 == 0


def test_another_user_reads_all_and_changes_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    store = Store(tmp_path / "state.sqlite", "boot")
    fill(store)
    assert as_nobody(lambda: read_all(store) == KEPT)
    before = read_files(tmp_path)
    with pytest.raises(StoreError):
        as_nobody(lambda: store.forget_binding(ADDRESS))
    store.path.write_bytes(b"garbage" * 1000)
    assert as_nobody(lambda: read_all(store) == KEPT), "the copy is for all"
    with pytest.raises(VgpumgrError):
        as_nobody(store.put_away)
    assert {**read_files(tmp_path), "state.sqlite": before["state.sqlite"]} == before


def test_reading_makes_no_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "state.sqlite")
    assert read_all(store) == ((), (), {}, ())
    assert (store.list_damage(), store.find_damage(), store.repair_copy()) == ((), None, None)
    store.delete_vgpu("none")
    store.forget_binding(ADDRESS)
    assert not (tmp_path / "deep").exists()


def test_what_is_said_is_on_disk_with_fewer_syncs_where_it_is_held_open(tmp_path: Path) -> None:
    """The copy is written once, however much is changed meanwhile."""
    store = Store(tmp_path / "state.sqlite", "boot")
    fill(store)
    copy = store.path.with_suffix(".copy")
    before = copy.stat().st_ino
    with store.held_open():
        store.forget_binding(ADDRESS)
        store.delete_vgpu(SPEC.uuid)
        assert copy.stat().st_ino == before
        # as a crash now leaves it: the file counts
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for path in tmp_path.glob("state.[!l]*"):
            shutil.copy(path, crashed)
        assert Store(crashed / "state.sqlite").list_bindings() == ()
    assert copy.stat().st_ino != before
    assert store.list_damage() == ()
    again = Store(crashed / "state.sqlite", "boot")
    assert [d.kind for d in again.list_damage()] == ["state-copy"]
    again.save_layouts([LAYOUT, DesiredLayout(LATER, True, (), 3.0)])
    assert again.list_damage() == ()
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_boot_unit_waits_for_the_file_that_is_written() -> None:
    root = Path(__file__).parents[2]
    unit = (root / "templates/systemd/vgpumgr-passthrough.service").read_text()
    assert f"\nConditionPathExists=/var/lib/vgpumgr/{STATE_FILE}\n" in unit
