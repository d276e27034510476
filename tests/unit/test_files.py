"""Files and directories that are made: modes whatever the umask, no link followed, no stranger's directory used."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.unprivileged import NOBODY
from vgpumgr.engine.journal import Journal
from vgpumgr.errors import Exit, UntrustedPathError, VgpumgrError
from vgpumgr.host import files
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.lock import lock_file
from vgpumgr.host.machine import find_machine, list_machines
from vgpumgr.host.process import ProcessId
from vgpumgr.host.statistics import OperationStatistics
from vgpumgr.mdev.control import DefinitionFiles
from vgpumgr.model.pci import Binding, PciAddress
from vgpumgr.model.vgpu import VgpuDefinition
from vgpumgr.server.audit import AuditLog
from vgpumgr.state.records import write_copy
from vgpumgr.state.store import Store

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives files away")
UUID = "11111111-1111-4111-8111-111111111111"


def write_lock(directory: Path) -> None:
    with lock_file(directory / "vgpumgr.lock"):
        pass


def write_journal(directory: Path) -> None:
    journal = Journal(directory / "journal", "boot")
    journal.append("op", "begin", {})
    journal.close()


def write_audit(directory: Path) -> None:
    AuditLog(directory / "audit.jsonl", FakeClock()).append({"event": "x"})


def write_statistics(directory: Path) -> None:
    OperationStatistics(directory / "statistics.json", (1.0,)).count("attach", "done", 1.0)


def write_state(directory: Path) -> None:
    write_copy(directory / "state.copy", {}, 1)


def write_database(directory: Path) -> None:
    Store(directory / "state.sqlite").save_binding(
        Binding(PciAddress(0, 59, 0, 0), "vfio-pci", None, None, 1, 2, "boot")
    )


def write_late(directory: Path) -> None:
    LateRecords(directory, FakeClock()).note_start(ProcessId(1, 1))


def write_definition(directory: Path) -> None:
    files_ = DefinitionFiles(find_machine(None, {}))
    files_.directory = directory
    files_.write_definition(VgpuDefinition(UUID, "0000:3b:00.0", "nvidia-1", auto=False))


WRITERS: tuple[Callable[[Path], None], ...] = (
    write_lock, write_journal, write_audit, write_statistics, write_state, write_database, write_late,
    write_definition,
)  # fmt: skip


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("write", WRITERS)
def test_no_umask_makes_anything_writable_for_others(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path / "new/directory")
    made = [path for path in tmp_path.rglob("*") if not path.is_symlink()]
    assert len(made) > 2
    loose = {path.name: oct(path.stat().st_mode) for path in made if path.stat().st_mode & 0o022}
    assert not loose


@pytest.mark.usefixtures("umask")
def test_what_is_private_stays_so(tmp_path: Path) -> None:
    for write in (write_lock, write_journal, write_audit):
        write(tmp_path)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.iterdir()
        if path.is_file()
    }
    assert modes == {"vgpumgr.lock": 0o600, "journal": 0o600, "audit.jsonl": 0o600}


def test_what_was_made_too_open_is_closed(tmp_path: Path) -> None:
    write_journal(tmp_path)
    (tmp_path / "journal").chmod(0o666)
    write_journal(tmp_path)
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o600


def test_a_stricter_umask_is_kept(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_state(tmp_path / "state")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state/state.copy").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["vgpumgr.lock", "journal", "audit.jsonl"])
def test_a_link_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    """The target ends in a torn line, which a repair would cut off."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious\nand torn")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).symlink_to(victim)
    write = {"vgpumgr.lock": write_lock, "journal": write_journal, "audit.jsonl": write_audit}[name]
    with pytest.raises(UntrustedPathError) as caught:
        write(tmp_path / "state")
    assert (caught.value.id, caught.value.exit_code) == ("VG134", Exit.NOT_PERMITTED)
    assert str(tmp_path / "state" / name) in f"{caught.value.cause}"
    assert victim.read_bytes() == b"precious\nand torn"


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_only_a_regular_file_is_taken(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "journal"
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(VgpumgrError) as caught:
        write_journal(tmp_path)
    assert caught.value.id in ("VG134", "VG217", "VG205")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("state.copy", write_state),
        ("statistics.json", write_statistics),
        (".state.copy.new", write_state),
        (".statistics.json.new", write_statistics),
        ("late/1-1.run", write_late),
        ("late/.1-1.run.new", write_late),
        (f"0000:3b:00.0/{UUID}", write_definition),
        (f"0000:3b:00.0/.{UUID}.new", write_definition),
    ],
)
def test_a_link_is_replaced_and_its_target_is_untouched(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("{}")
    link = tmp_path / "state" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    write(tmp_path / "state")
    assert victim.read_text() == "{}"


def test_the_database_is_not_opened_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "state").mkdir()
    for name in ("state.sqlite", "state.lock"):
        (tmp_path / "state" / name).symlink_to(victim)
        with pytest.raises(UntrustedPathError):
            write_database(tmp_path / "state")
        assert victim.read_bytes() == b"precious"
        (tmp_path / "state" / name).unlink()


def test_a_link_to_no_database_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/state.sqlite").symlink_to(tmp_path / "victim")
    write_database(tmp_path / "state")
    assert not (tmp_path / "victim").exists()
    assert not (tmp_path / "state/state.sqlite").is_symlink()


@root_only
@pytest.mark.parametrize("write", WRITERS)
def test_another_users_directory_is_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    for path in ("late", "0000:3b:00.0"):
        (directory / path).mkdir()
        os.chown(directory / path, NOBODY, NOBODY)
    os.chown(directory, NOBODY, NOBODY)
    with pytest.raises(UntrustedPathError) as caught:
        write(directory)
    assert str(directory) in str(caught.value.cause)
    assert f"user {NOBODY}" in str(caught.value.why)
    assert caught.value.hint
    assert sorted(path.name for path in directory.rglob("*")) == ["0000:3b:00.0", "late"]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o757, 0o1777])
def test_a_directory_that_others_may_write_is_refused(
    tmp_path: Path, write: Callable[[Path], None], mode: int
) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    for path in (directory / "late", directory / "0000:3b:00.0", directory):
        path.mkdir(exist_ok=True)
        path.chmod(mode)
    with pytest.raises(UntrustedPathError) as caught:
        write(directory)
    assert "chmod go-w" in str(caught.value.hint)


@root_only
@pytest.mark.parametrize("write", [write_lock, write_journal, write_audit])
def test_another_users_file_is_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    (file,) = [path for path in tmp_path.iterdir() if path.is_file()]
    os.chown(file, NOBODY, NOBODY)
    before = file.read_bytes()
    with pytest.raises(UntrustedPathError) as caught:
        write(tmp_path)
    assert "another user" in str(caught.value.why)
    assert file.read_bytes() == before


def test_a_file_is_cut_by_its_descriptor_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("0123456789")
    files.truncate_file(path, 4)
    assert path.read_text() == "0123"
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(UntrustedPathError):
        files.truncate_file(tmp_path / "link", 0)
    assert path.read_text() == "0123"


# the directory of simulated machines: libraries are loaded for what stands there


def plant(base: Path) -> dict[str, str]:
    """A machine below ``$TMPDIR/vgpumgr-UID`` whose libraries are somebody else's."""
    machine = base / f"vgpumgr-{NOBODY}/vgpumgr/sim/dgx"
    machine.mkdir(parents=True)
    (machine / "env").write_text("LD_LIBRARY_PATH=/tmp/evil\n")
    return {"TMPDIR": str(base)}


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The environment of an ordinary user without a session's runtime directory."""
    environ = plant(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: NOBODY)
    monkeypatch.setattr("os.getuid", lambda: NOBODY)
    return environ


@root_only
@pytest.mark.parametrize(
    "which", [".", "vgpumgr", "vgpumgr/sim", "vgpumgr/sim/dgx", "vgpumgr/sim/dgx/env"]
)
@pytest.mark.parametrize("how", ["owner", "mode", "link"])
def test_a_planted_machine_is_refused(
    tmp_path: Path, nobody: dict[str, str], which: str, how: str
) -> None:
    base = tmp_path / f"vgpumgr-{NOBODY}"
    assert find_machine("dgx", nobody).variables["LD_LIBRARY_PATH"] == "/tmp/evil"
    path = base / which
    if how == "owner":
        os.chown(path, 1234, 1234)
    elif how == "mode":
        path.chmod(0o777)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        os.chown(path, 1234, 1234, follow_symlinks=False)
    with pytest.raises(UntrustedPathError) as caught:
        find_machine("dgx", nobody)
    assert (caught.value.id, caught.value.exit_code) == ("VG134", Exit.NOT_PERMITTED)
    assert str(base) in str(caught.value.cause)
    assert caught.value.hint
    if not which.startswith("vgpumgr/sim/"):
        with pytest.raises(UntrustedPathError):
            list_machines(nobody)


@root_only
def test_a_chosen_directory_of_machines_may_be_one_for_all_users(tmp_path: Path) -> None:
    (tmp_path / "sim/dgx").mkdir(parents=True)
    (tmp_path / "sim").chmod(0o1777)
    environ = {"VGPUMGR_SIM_ROOT": str(tmp_path / "sim")}
    assert find_machine("dgx", environ).name == "dgx"
    os.chown(tmp_path / "sim/dgx", NOBODY, NOBODY)
    with pytest.raises(UntrustedPathError):
        find_machine("dgx", environ)
    (tmp_path / "sim").chmod(0o777)
    os.chown(tmp_path / "sim/dgx", 0, 0)
    with pytest.raises(UntrustedPathError):
        find_machine("dgx", environ)


def test_a_replaced_file_is_whole_or_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    files.replace_file(path, json.dumps(1))
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        files.replace_file(path, json.dumps(2))
    assert path.read_text() == "1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]
