"""The Debian packages: what is in them, and their life on a Debian: installed, upgraded, removed, purged.

That Debian is this one, seen through an overlay: what dpkg writes is thrown away with the test.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import Context

from tools.manpages import list_pages
from vgpumgr import __version__
from vgpumgr.cli.main import Noun, build_root

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("vgpumgr", "vgpumgr-host", "vgpumgr-guest")
pytestmark = [
    pytest.mark.native,
    pytest.mark.xdist_group("packages"),
    pytest.mark.skipif(shutil.which("dpkg-shlibdeps") is None, reason="no dpkg-dev here"),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Built once, by name."""
    target = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "tools.package", str(target)],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = {path.name.partition("_")[0]: path for path in target.glob("*.deb")}
    assert sorted(found) == sorted(NAMES)
    return found


@pytest.fixture(scope="module")
def members(packages: dict[str, Path]) -> dict[str, dict[str, tarfile.TarInfo]]:
    """What each package puts where."""
    found = {}
    for name, path in packages.items():
        process = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", path], stdout=subprocess.PIPE)
        with process, tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            found[name] = {member.name.removeprefix("."): member for member in archive}
    return found


def read(package: Path, name: str) -> bytes:
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True)
    words = ["tar", "-xO", f".{name}"]
    return subprocess.run(words, input=files.stdout, capture_output=True, check=True).stdout


def test_files_are_roots_and_nobody_else_may_write_them(
    members: dict[str, dict[str, tarfile.TarInfo]],
) -> None:
    for files in members.values():
        for name, member in files.items():
            assert (member.uid, member.gid) == (0, 0), name
            if not member.issym():
                executable = member.isdir() or bool(member.mode & 0o111)
                assert member.mode == (0o755 if executable else 0o644), name


def test_each_package_has_its_part(members: dict[str, dict[str, tarfile.TarInfo]]) -> None:
    program, host, guest = (set(members[name]) for name in NAMES)
    native = {name.rpartition("/_lib/")[2] for name in host if "/_lib/" in name}
    assert {"bin/vgpumgr-worker", "bin/vgpumgr-keeper", "guest/libcuda.so.1"} <= native
    assert {"/usr/sbin/vgpumgr-guestd", "/usr/lib/vgpumgr/libcuda.so.1"} <= guest
    assert not any("python" in name for name in guest)
    for unit in ("service", "socket"):
        assert f"/usr/lib/systemd/system/vgpumgr.{unit}" in program
    completions = [name for name in program if "completions" in name and "vgpumgr" in name]
    assert len(completions) == 3
    unwanted = re.compile(
        r"/tests?/|/bench/|/bin/null|ptxrun|/native/|CMakeLists|/cuda\.h|__pycache__|/_pytest/|/mypy/"
    )
    assert [name for name in (program | host | guest) if unwanted.search(name)] == []
    places = [{n for n, member in members[name].items() if not member.isdir()} for name in NAMES]
    assert sum(map(len, places)) == len(set.union(*places))


def test_nothing_names_the_machine_that_built_it(packages: dict[str, Path], tmp_path: Path) -> None:
    for package in packages.values():
        subprocess.run(["dpkg-deb", "-R", package, tmp_path / package.stem], check=True)
    places = (str(ROOT), sys.prefix, sys.base_prefix if sys.base_prefix != "/usr" else sys.prefix)
    # the beginning of a longer name is another place
    words = [word for place in places for word in ("-e", rf"{re.escape(place)}([^A-Za-z0-9_.-]|$)")]
    found = subprocess.run(
        ["grep", "-rlaE", *words, tmp_path], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


def list_commands(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in command.list_visible(context):
        below: Any = command.get_command(context, name)
        inner = Context(below, info_name=name, parent=context)
        yield inner.command_path, below, inner
        if isinstance(below, Noun):
            yield from list_commands(below, inner)


def test_each_command_and_option_is_in_a_manual_page() -> None:
    pages = dict(list_pages("usage: vgpumgr-guestd [--socket PATH] [--mode 0666]"))
    root = build_root()
    for path, command, context in list_commands(root, Context(root, info_name="vgpumgr")):
        page = pages[f"vgpumgr-{path.split()[1]}.1"].replace("\\-", "-")
        assert path in page
        for option in command.params:
            if not option.hidden and (record := option.get_help_record(context)):
                assert f"\\fB{record[0]}\\fR" in page, (path, record)
    assert "\\fB\\-\\-socket\\fR \\fIPATH\\fR" in pages["vgpumgr-guestd.8"]
    assert "vgpumgr\\-attach (1)" in pages["vgpumgr.1"].replace("\\&", "")


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
def test_man_has_nothing_to_complain_of(tmp_path: Path) -> None:
    for name, text in list_pages("[--socket PATH]"):
        (tmp_path / name).write_text(text)
        shown = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", tmp_path / name],
            capture_output=True, text=True, check=True, env=os.environ | {"MANWIDTH": "80"},
        )  # fmt: skip
        assert shown.stderr == "", name
        assert "SYNOPSIS" in shown.stdout


@pytest.mark.skipif(shutil.which("lintian") is None, reason="no lintian here")
def test_lintian_finds_nothing_but_what_is_overridden(packages: dict[str, Path]) -> None:
    words = ["lintian", "--allow-root", "--tag-display-limit", "0", "--display-info"]
    done = subprocess.run(
        [*words, *packages.values()], capture_output=True, text=True, timeout=600, check=False
    )
    # remarks (I:) count where they say that an override overrides nothing
    lines = [line for line in done.stdout.splitlines() if line[:1] in "EW" or "override" in line]
    assert (done.returncode, lines) == (0, [])


def test_documents_say_which_version_it_is(packages: dict[str, Path]) -> None:
    for name, path in packages.items():
        version = subprocess.check_output(["dpkg-deb", "-f", path, "Version"], text=True).strip()
        assert version.startswith(__version__)
        log = gzip.decompress(read(path, f"/usr/share/doc/{name}/changelog.gz")).decode()
        assert log.startswith(f"vgpumgr ({version}) ")


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
        (directory / "work").mkdir()
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


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def installed(bare: Debian, packages: dict[str, Path]) -> Debian:
    """With the two packages of a host."""
    bare.install(packages["vgpumgr"], packages["vgpumgr-host"])
    return bare


@pytest.fixture
def debian(installed: Debian, tmp_path: Path) -> Debian:
    """Such a host, and what the test does to it."""
    return Debian(tmp_path, installed)


def remember_attachment(
    debian: Debian, text: str = '{"vm_name": "db1", "profile": "1g.10gb"}'
) -> Path:
    """A state with a VM's attachment, as far as the maintainer's scripts read it."""
    import sqlite3

    state = debian.upper / "var/lib/vgpumgr/state.sqlite"
    with sqlite3.connect(state) as connection:
        connection.execute("CREATE TABLE record (kind, id, seq, text)")
        connection.execute("INSERT INTO record VALUES ('attachment', 'a1', 0, ?)", (text,))
    connection.close()
    return state


def raise_version(package: Path, directory: Path) -> Path:
    """The same package as of tomorrow."""
    root = directory / f"raised-{package.stem}"
    subprocess.run(["dpkg-deb", "-R", package, root], check=True)
    control = root / "DEBIAN/control"
    control.write_text(re.sub(r"~(\d+)", r"~9\1", control.read_text()))
    target = directory / f"newer-{package.name}"
    words = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", root, target]
    subprocess.run(words, check=True, capture_output=True)
    return target


def test_an_installed_copy_runs(debian: Debian) -> None:
    assert debian.ok("cd / && vgpumgr --version") == f"vgpumgr {__version__}\n"
    where = "/usr/lib/vgpumgr-host/bin/python -c 'import vgpumgr, lxml; print(vgpumgr.__file__, lxml.__file__)'"
    ours, theirs = debian.ok(f"cd / && {where}").split()
    assert ours.startswith("/usr/lib/vgpumgr-host/")
    assert theirs.startswith("/usr/lib/python3/dist-packages/")
    asked = debian.run("cd / && vgpumgr doctor -o json")
    assert asked.returncode in (0, 3), asked.stderr
    checks = {row["id"]: row for row in json.loads(asked.stdout)["checks"]}
    assert {"iommu", "kvm"} <= set(checks)
    debian.ok(
        "cd / && vgpumgr virtio guest-package --out - | tar -tz | grep vgpumgr-guestd.service"
    )
    # a daemon serves, and commands find it
    served = debian.ok(
        "cd /; mkdir -p /run/vgpumgr; vgpumgr daemon & until vgpumgr api GET /1.0 2>/dev/null; do "
        "kill -0 $! || exit 1; sleep 0.2; done; kill $!; wait $!"
    )
    assert json.loads(served)["version"] == __version__
    assert debian.ok("getent group vgpumgr vgpumgr-ro | wc -l").strip() == "2"
    assert debian.ok("stat -c %a:%U /var/lib/vgpumgr").strip() == "700:root"
    wants = debian.ok("cd /etc/systemd/system; ls -d *.wants/vgpumgr* | sed s,.*/,, | sort").split()
    assert wants == [
        "vgpumgr-passthrough.service", "vgpumgr-restore.service", "vgpumgr.service", "vgpumgr.socket",
    ]  # fmt: skip
    compiled = debian.ok("find /usr/lib/vgpumgr-host -name 'main.*.pyc' | wc -l")
    assert int(compiled) > 0


def test_an_upgrade_leaves_vms_alone(
    debian: Debian, packages: dict[str, Path], tmp_path: Path
) -> None:
    log = debian.ok("cat /var/log/systemctl")
    assert "start vgpumgr.socket" in log
    debian.ok("rm /var/log/systemctl")
    state = remember_attachment(debian)
    before = state.read_bytes()
    newer = [raise_version(packages[name], tmp_path) for name in ("vgpumgr", "vgpumgr-host")]
    debian.install(*newer)
    calls = debian.take_calls()
    assert any("try-restart vgpumgr.service" in call for call in calls)
    assert not any(
        re.search(r"\bstop\b|\bkill\b|vgpumgr-restore|vgpumgr-passthrough", c) for c in calls
    )
    assert state.read_bytes() == before
    assert debian.ok("cd / && vgpumgr --version") == f"vgpumgr {__version__}\n"
    unit = (ROOT / "templates/systemd/vgpumgr.service").read_text()
    assert "KillMode=process" in unit, "what a restart does not end"


def test_a_removal_keeps_the_state_and_a_purge_refuses_while_a_vm_has_something(
    debian: Debian, packages: dict[str, Path]
) -> None:
    state = remember_attachment(debian)
    removed = debian.run("dpkg -r vgpumgr-host vgpumgr")
    assert removed.returncode == 0, removed.stderr
    assert "  db1 1g.10gb\n" in removed.stderr
    assert any("stop vgpumgr.socket vgpumgr.service" in call for call in debian.take_calls())
    assert state.exists()
    assert debian.run("test -e /usr/bin/vgpumgr").returncode == 1
    assert debian.ok("find /usr/lib/vgpumgr-host 2>/dev/null | wc -l").strip() == "0"
    purged = debian.run("dpkg -P vgpumgr")
    assert purged.returncode != 0
    assert "these VMs have attachments:\n  db1 1g.10gb\n" in purged.stderr
    assert "vgpumgr detach VM --all" in purged.stderr
    assert state.exists()
    # the way out that it names
    debian.install(packages["vgpumgr"])
    assert delete_records(state) == 1
    debian.ok("dpkg -P vgpumgr")
    assert debian.run("test -e /var/lib/vgpumgr").returncode == 1
    assert debian.run("dpkg-query -W vgpumgr").returncode != 0
    places = "/etc /usr/bin /usr/lib /usr/share /var/lib"
    left = debian.ok(f"find {places} -xdev -name '*vgpumgr*' | cat").splitlines()
    assert [line for line in left if not line.startswith("/var/lib/dpkg/info/vgpumgr-host")] == []


def delete_records(state: Path) -> int:
    import sqlite3

    with sqlite3.connect(state) as connection:
        count = connection.execute("DELETE FROM record").rowcount
    connection.close()
    return count


def test_a_state_that_cannot_be_read_is_not_purged(
    debian: Debian,
) -> None:
    state = debian.upper / "var/lib/vgpumgr/state.sqlite"
    state.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    purged = debian.run("dpkg -P vgpumgr-host vgpumgr")
    assert (purged.returncode != 0, "the state cannot be read" in purged.stderr) == (True, True)
    assert state.exists()
    (state.parent / "attachments.removed").unlink()
    debian.ok("dpkg -P vgpumgr")
    assert not state.exists()


def test_the_guests_package_makes_its_libraries_known(
    debian: Debian, packages: dict[str, Path]
) -> None:
    debian.install(packages["vgpumgr-guest"])
    known = debian.ok("ldconfig -p")
    for name in ("libcuda.so.1", "libcudart.so.12", "libcudart.so.13"):
        assert f"{name} (libc6,x86-64) => /usr/lib/vgpumgr/{name}" in known
    assert any("start vgpumgr-guestd.service" in call for call in debian.take_calls())
    agent = debian.run("vgpumgr-guestd --no-such-option")
    assert (agent.returncode, "usage: vgpumgr-guestd" in agent.stderr) == (2, True)
    debian.ok("dpkg -P vgpumgr-guest")
    assert "/usr/lib/vgpumgr" not in debian.ok("ldconfig; ldconfig -p")
    assert any("stop vgpumgr-guestd.service" in call for call in debian.take_calls())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize(
    ("unit", "limit"),
    [
        ("systemd/vgpumgr.service", 7.0),
        ("systemd/vgpumgr-restore.service", 7.0),
        ("systemd/vgpumgr-passthrough.service", 7.3),
        ("guest/vgpumgr-guestd.service", 3.9),
    ],
)
def test_the_exposure_of_a_unit_never_rises(unit: str, limit: float) -> None:
    """docs/install.md states these scores: lower them together."""
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager"]
    shown = subprocess.run(
        [*words, ROOT / "templates" / unit], capture_output=True, text=True, check=True
    )
    found = re.search(r"exposure level for \S+: ([\d.]+)", shown.stdout)
    assert found is not None
    assert float(found[1]) <= limit
    assert f"| `{Path(unit).name}` | {limit} |" in (ROOT / "docs/install.md").read_text()
