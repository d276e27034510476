"""The archive that goes into a VM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from vgpumgr.virtio.channel import SHIMS, ImageError, guest_files, write_archive

#: suffixes of files that are not executable
DATA = ("conf", "service", "overrides")
TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


@pytest.fixture
def library_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "_lib"
    (directory / "guest").mkdir(parents=True)
    (directory / "templates").symlink_to(TEMPLATES)
    for name in (*SHIMS, "vgpumgr-guestd", "vgpumgr-guest-check"):
        (directory / "guest" / name).write_text(name)
    return directory


def test_archive_has_every_part_with_its_mode(library_directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "guest.tar.gz"
    names = write_archive(library_directory, target)
    with tarfile.open(target) as archive:
        members = {m.name.removeprefix("vgpumgr-guest/"): m for m in archive.getmembers()}
    assert sorted(members) == names
    assert members["usr/sbin/vgpumgr-guestd"].mode == 0o755
    assert members["usr/bin/vgpumgr-guest-check"].mode == 0o755
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
TOOLS = ("sh", "chmod", "cp", "dirname", "id", "ln", "mkdir", "mv")
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
        assert (root / "usr/bin/vgpumgr-guest-check").is_file()


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
    unit = "vgpumgr-guestd.service"
    assert asked == ["daemon-reload", f"try-restart {unit}", f"enable --now {unit}"]


@needs_root
def test_an_upgrade_takes_no_file_from_a_program_that_runs(
    library_directory: Path, tmp_path: Path
) -> None:
    """A program that runs cannot be written to, and one whose library is written to dies."""
    root = make_root(tmp_path, *TOOLS, "sleep")
    sleep, agent = root / "usr/bin/sleep", root / "usr/sbin/vgpumgr-guestd"
    if not sleep.exists():
        sleep = root / "bin/sleep"
    install(library_directory, root)
    agent.unlink()
    shutil.copy(sleep, agent)
    with subprocess.Popen([agent, "60"]) as running:
        install(library_directory, root)
        assert agent.read_text() == "vgpumgr-guestd"
        assert running.poll() is None
        running.kill()


@needs_root
def test_what_a_user_unpacked_becomes_roots(library_directory: Path, tmp_path: Path) -> None:
    root = make_root(tmp_path, *TOOLS)
    install(library_directory, root)
    for path in sorted((root / "vgpumgr-guest").rglob("*")):
        os.chown(path, 1000, 1000)
        path.chmod(0o777)
    subprocess.run(["chroot", root, "sh", "/vgpumgr-guest/install.sh"], check=True)
    for name in guest_files(library_directory):
        if name != "install.sh":
            found = (root / name).stat()
            assert (found.st_uid, found.st_gid) == (0, 0), name
            assert found.st_mode & 0o777 == (0o644 if name.endswith(DATA) else 0o755)


needs_xorriso = pytest.mark.skipif(shutil.which("xorriso") is None, reason="no xorriso here")


@needs_xorriso
def test_an_image_has_the_archives_files_under_its_label(
    library_directory: Path, tmp_path: Path
) -> None:
    image = tmp_path / "guest.iso"
    names = write_archive(library_directory, image, image=True)
    assert names == sorted(guest_files(library_directory))
    data = image.read_bytes()
    # the primary volume descriptor
    assert data[32769:32774] == b"CD001"
    assert data[32808:32840].decode().strip() == "VGPUMGR"
    words = ["-indev", f"stdio:{image}", "-find", "/", "-exec", "lsdl"]
    shown = subprocess.run(["xorriso", *words], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=8) for line in shown.splitlines() if line[:1] in "d-"]
    modes = {row[8].strip("'").lstrip("/"): row[0] for row in rows}
    assert all(row[2:4] == ["0", "0"] for row in rows)
    assert {name for name, mode in modes.items() if mode[0] == "-"} == set(names)
    assert all(mode == "drwxr-xr-x" for mode in modes.values() if mode[0] == "d")
    assert modes["install.sh"] == modes["usr/sbin/vgpumgr-guestd"] == "-rwxr-xr-x"
    assert modes["etc/ld.so.conf.d/vgpumgr.conf"] == "-rw-r--r--"


@needs_xorriso
def test_the_same_input_gives_the_same_image(
    library_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "a.iso", tmp_path / "b.iso"
    write_archive(library_directory, first, image=True)
    time.sleep(1.1)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    old = os.umask(0o077)
    try:
        write_archive(library_directory, second, image=True)
    finally:
        os.umask(old)
    assert first.read_bytes() == second.read_bytes()


def test_without_xorriso_the_package_is_named(
    library_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    target = tmp_path / "guest.iso"
    with pytest.raises(ImageError, match="no xorriso"):
        write_archive(library_directory, target, image=True)
    assert not target.exists()


@needs_root
@needs_xorriso
def test_it_installs_from_an_image_that_nobody_may_write_or_execute(
    library_directory: Path, tmp_path: Path
) -> None:
    """As a desktop mounts a CD: read-only, noexec, nodev, nosuid. A loop mount where there may be one."""
    root = make_root(tmp_path, *TOOLS)
    add_systemd(root)
    image = tmp_path / "guest.iso"
    write_archive(library_directory, image, image=True)
    (root / "mnt").mkdir()
    script = """\
    mount -o loop,ro,noexec,nosuid,nodev "$1" "$2/mnt" 2>/dev/null || {
        xorriso -osirrox on -indev "stdio:$1" -extract / "$2/mnt" >/dev/null 2>&1
        mount --bind "$2/mnt" "$2/mnt"
        mount -o remount,bind,ro,noexec,nosuid,nodev "$2/mnt"
    }
    ! touch "$2/mnt/x" 2>/dev/null
    exec chroot "$2" /bin/sh /mnt/install.sh
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "-", image, root],
        capture_output=True, text=True, check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "starts at the next boot" in done.stdout
    assert (root / LINK).is_symlink()
    for name, source in guest_files(library_directory).items():
        if name != "install.sh":
            assert (root / name).read_bytes() == source.read_bytes()
            executable = not name.endswith(DATA)
            assert bool((root / name).stat().st_mode & 0o111) == executable


@needs_root
def test_without_systemd_it_says_what_to_start(library_directory: Path, tmp_path: Path) -> None:
    root = make_root(tmp_path, *TOOLS)
    assert "start the agent from your init system" in install(library_directory, root)
    assert not (root / LINK).exists()
