"""The archive that goes into a VM."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from vgpumgr.virtio.channel import SHIMS, guest_files, write_archive

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


@pytest.fixture
def library_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "_lib"
    (directory / "guest").mkdir(parents=True)
    (directory / "templates").symlink_to(TEMPLATES)
    for name in (*SHIMS, "vgpumgr-guestd"):
        (directory / "guest" / name).write_text(name)
    return directory


def test_archive_has_every_part_with_its_mode(library_directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "guest.tar.gz"
    names = write_archive(library_directory, target)
    with tarfile.open(target) as archive:
        members = {m.name.removeprefix("vgpumgr-guest/"): m for m in archive.getmembers()}
    assert sorted(members) == names
    assert members["usr/sbin/vgpumgr-guestd"].mode == 0o755
    assert members["etc/ld.so.conf.d/vgpumgr.conf"].mode == 0o644
    assert {f"usr/lib/vgpumgr/{name}" for name in SHIMS} <= set(members)
    assert all((m.uid, m.gid) == (0, 0) for m in members.values())


def test_same_input_same_bytes(library_directory: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    write_archive(library_directory, first)
    write_archive(library_directory, second)
    assert first.read_bytes() == second.read_bytes()


def test_a_missing_part_is_named(library_directory: Path) -> None:
    (library_directory / "guest" / "libcudart.so.12").unlink()
    with pytest.raises(FileNotFoundError, match=r"libcudart\.so\.12"):
        guest_files(library_directory)
