"""The packages, and a Debian to install them on: this one, seen through an overlay, so that what dpkg or rpm writes is
thrown away with the test.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("vgpumgr", "vgpumgr-host", "vgpumgr-guest", "vgpumgr-doc")
HAS_RPM = bool(shutil.which("rpmbuild") and shutil.which("patchelf"))


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the packages are, built once; RPMs, too, where there is a program to build them."""
    target = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "tools.package", *["--rpm"] * HAS_RPM, str(target)],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return target


@pytest.fixture(scope="session")
def packages(dist: Path) -> dict[str, Path]:
    """The .deb files by name."""
    found = {path.name.partition("_")[0]: path for path in dist.glob("*.deb")}
    assert sorted(found) == sorted(NAMES)
    return found


ENTER = """\
set -e
mount --make-rprivate /
mount -t overlay overlay -o lowerdir=/,upperdir=$1/upper,workdir=$1/work $1/root
mount -t proc proc $1/root/proc
mount --rbind /dev $1/root/dev
mount -t tmpfs tmpfs $1/root/run
mount -t tmpfs tmpfs $1/root/tmp
mkdir -p $1/root/run/systemd/system
[ ! -d $1/run ] || cp -a $1/run/. $1/root/run/
exec chroot $1/root /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root PYTHONPATH=/nowhere \
    DEBIAN_FRONTEND=noninteractive bash -c "$2"
"""
#: stands for systemd's, which does not run here: it writes down what it is asked; units' files it does have
SYSTEMCTL = """\
#!/bin/sh
case $* in
*--root*) exec systemctl-of-systemd "$@" ;;
*is-enabled*) exec systemctl-of-systemd --root=/ "$@" ;;
esac
echo "$*" >>/var/log/systemctl
"""


class Debian:
    """An overlay of this Debian, or a copy of one."""

    def __init__(self, directory: Path, below: Debian | None = None) -> None:
        self.directory = directory
        self.upper = directory / "upper"
        (directory / "work").mkdir(parents=True)
        (directory / "root").mkdir()
        if below is not None:
            subprocess.run(["cp", "-a", below.upper, self.upper], check=True)
        else:
            (self.upper / "packages").mkdir(parents=True)
            programs = self.upper / "usr/bin"
            programs.mkdir(parents=True)
            shutil.copy("/usr/bin/systemctl", programs / "systemctl-of-systemd")
            (programs / "systemctl").write_text(SYSTEMCTL)
            (programs / "systemctl").chmod(0o755)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """A command in it."""
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER]
        return subprocess.run(
            [*words, "enter", str(self.directory), command],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    def ok(self, command: str) -> str:
        done = self.run(command)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def install(self, *files: Path) -> str:
        for file in files:
            shutil.copy(file, self.upper / "packages" / file.name)
        names = " ".join(f"/packages/{file.name}" for file in files)
        return self.ok(f"dpkg -i {names} 2>&1")

    def take_calls(self) -> list[str]:
        """What systemctl was asked since the last time."""
        log = self.upper / "var/log/systemctl"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in lines if "is-enabled" not in line]


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Debian:
    """Without our packages, and where what is installed may start."""
    if os.geteuid() != 0:
        pytest.skip("needs root (namespaces)")
    it = Debian(tmp_path_factory.mktemp("bare"))
    probe = it.run("dpkg-query -W -f '${Status}' python3-libvirt python3-lxml python3-nacl")
    if "overlay" in probe.stderr:
        pytest.skip(f"no overlay of this system: {probe.stderr.strip()}")
    if probe.stdout.count("ok installed") != 3:
        pytest.skip("the packages that vgpumgr depends on are not installed here")
    it.ok("rm -f /usr/sbin/policy-rc.d")
    return it


def remember_attachment(
    debian: Debian, text: str = '{"vm_name": "db1", "profile": "1g.10gb"}'
) -> Path:
    """A state with a VM's attachment, as far as the maintainer's scripts read it."""
    state = debian.upper / "var/lib/vgpumgr/state.sqlite"
    with sqlite3.connect(state) as connection:
        connection.execute("CREATE TABLE record (kind, id, seq, text)")
        connection.execute("INSERT INTO record VALUES ('attachment', 'a1', 0, ?)", (text,))
    connection.close()
    return state


def delete_records(state: Path) -> int:
    with sqlite3.connect(state) as connection:
        count = connection.execute("DELETE FROM record").rowcount
    connection.close()
    return count
