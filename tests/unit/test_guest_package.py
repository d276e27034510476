"""The archive that goes into a VM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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


#: what install.sh calls
TOOLS = ("sh", "cp", "dirname", "id", "ln", "mkdir")
LINK = "etc/systemd/system/multi-user.target.wants/vgpumgr-guestd.service"


def write_program(path: Path, text: str) -> None:
    """A program of the shell."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def make_root(directory: Path, *tools: str) -> Path:
    """A root with copies of these programs and of the libraries that they need."""
    root = directory / "root"
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    write_program(root / "usr/sbin/ldconfig", "exit 0")
    for tool in tools:
        path = shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin")
        if path is None:
            pytest.skip(f"no {tool} here")
        needed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for name in (path, *re.findall(r"(/\S+) \(0x", needed)):
            target = root / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, target)
    (root / "etc").mkdir()
    return root


def install(library_directory: Path, root: Path) -> str:
    """Unpacks the archive in the root, and runs install.sh in a chroot of it; its output."""
    archive = root / "guest.tar.gz"
    write_archive(library_directory, archive)
    with tarfile.open(archive) as package:
        package.extractall(root, filter="data")
    command = ["chroot", str(root), "/vgpumgr-guest/install.sh"]
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=path).stdout


def add_systemd(root: Path) -> None:
    """What tells that the image boots with systemd."""
    systemd = root / "usr/lib/systemd/systemd"
    systemd.parent.mkdir(parents=True, exist_ok=True)
    systemd.write_text("")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it calls chroot")


@needs_root
@pytest.mark.parametrize("tools", [TOOLS, (*TOOLS, "systemctl")])
def test_in_a_chroot_the_agent_is_enabled(
    library_directory: Path, tmp_path: Path, tools: tuple[str, ...]
) -> None:
    root = make_root(tmp_path, *tools)
    add_systemd(root)
    for _ in range(2):  # an upgrade is no different
        assert "starts at the next boot" in install(library_directory, root)
        assert (root / LINK).is_symlink()
        target = (root / LINK).readlink()
        assert target.name == "vgpumgr-guestd.service"
        assert (root / str(target).lstrip("/")).is_file()
        assert (root / "usr/sbin/vgpumgr-guestd").is_file()


@needs_root
@pytest.mark.parametrize("lies", ["exit 1", "exit 0"])
def test_a_systemctl_that_does_nothing_is_made_good(
    library_directory: Path, tmp_path: Path, lies: str
) -> None:
    root = make_root(tmp_path, *TOOLS)
    add_systemd(root)
    write_program(root / "usr/bin/systemctl", f'echo "$@" >>/asked\n{lies}')
    install(library_directory, root)
    assert (root / "asked").read_text() == "--root=/ enable vgpumgr-guestd.service\n"
    assert (root / LINK).is_symlink()


@needs_root
def test_where_systemd_runs_it_starts_the_agent(library_directory: Path, tmp_path: Path) -> None:
    root = make_root(tmp_path, *TOOLS)
    add_systemd(root)
    (root / "run/systemd/system").mkdir(parents=True)
    write_program(root / "usr/bin/systemctl", 'echo "$@" >>/asked')
    install(library_directory, root)
    asked = (root / "asked").read_text().splitlines()
    assert asked == ["daemon-reload", "enable --now vgpumgr-guestd.service"]


@needs_root
def test_without_systemd_it_says_what_to_start(library_directory: Path, tmp_path: Path) -> None:
    root = make_root(tmp_path, *TOOLS)
    assert "start the agent from your init system" in install(library_directory, root)
    assert not (root / LINK).exists()
