"""The Debian packages: what is in them, and their life on a Debian: installed, upgraded, removed, purged.

That Debian is this one, seen through an overlay: what dpkg writes is thrown away with the test.
"""

from __future__ import annotations

import fnmatch
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

from tests.support.debian import NAMES, ROOT, Debian, delete_records, remember_attachment
from tools.manpages import list_pages
from vgpumgr import __version__
from vgpumgr.cli.main import Noun, build_root

pytestmark = [
    pytest.mark.native,
    pytest.mark.xdist_group("packages"),
    pytest.mark.skipif(shutil.which("dpkg-shlibdeps") is None, reason="no dpkg-dev here"),
]


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


def test_each_package_has_its_part(
    packages: dict[str, Path], members: dict[str, dict[str, tarfile.TarInfo]]
) -> None:
    program, host, guest, pages = (set(members[name]) for name in NAMES)
    native = {name.rpartition("/_lib/")[2] for name in host if "/_lib/" in name}
    assert {"bin/vgpumgr-worker", "bin/vgpumgr-keeper", "guest/libcuda.so.1"} <= native
    assert {"/usr/sbin/vgpumgr-guestd", "/usr/lib/vgpumgr/libcuda.so.1"} <= guest
    assert "/usr/share/man/man1/vgpumgr-guest-check.1.gz" in guest
    assert not any("python" in name for name in guest)
    assert "/usr/share/doc/vgpumgr-doc/html/tutorial.html" in pages
    assert not any("/lib/" in name for name in pages)
    for unit in ("service", "socket"):
        assert f"/usr/lib/systemd/system/vgpumgr.{unit}" in program
    completions = [name for name in program if "completions" in name and "vgpumgr" in name]
    assert len(completions) == 3
    page = (ROOT / "vgpumgr/_web/index.html").exists()
    cockpit = {f"/usr/share/cockpit/vgpumgr/{name}" for name in ("manifest.json", "index.html")}
    assert (cockpit <= program) == page
    if page:
        manifest = json.loads(read(packages["vgpumgr"], "/usr/share/cockpit/vgpumgr/manifest.json"))
        assert set(manifest["menu"]) == {"index"}
    assert any(name.endswith("/vgpumgr/_web/index.html") for name in program) == page
    unwanted = re.compile(
        r"/tests?/|/bench/|/bin/null|ptxrun|/native/|CMakeLists|/cuda\.h|__pycache__|/_pytest/|/mypy/"
    )
    assert [name for name in (program | host | guest) if unwanted.search(name)] == []
    places = [{n for n, member in members[name].items() if not member.isdir()} for name in NAMES]
    assert sum(map(len, places)) == len(set.union(*places))


def test_both_packages_of_a_host_say_of_which_build_they_are(
    packages: dict[str, Path], members: dict[str, dict[str, tarfile.TarInfo]]
) -> None:
    told = set()
    for package, name in (("vgpumgr", "version"), ("vgpumgr-host", "channels.version")):
        (file,) = (path for path in members[package] if path.endswith(f"/_lib/{name}"))
        told.add(read(packages[package], file).decode().strip())
    field = ["dpkg-deb", "-f", packages["vgpumgr"], "Version"]
    assert told == {subprocess.check_output(field, text=True).strip()}
    assert not any(path.endswith("/_lib/channels.version") for path in members["vgpumgr"])


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


@pytest.fixture(scope="module")
def installed(
    bare: Debian, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Debian:
    """With the two packages of a host."""
    host = Debian(tmp_path_factory.mktemp("installed"), bare)
    host.install(packages["vgpumgr"], packages["vgpumgr-host"])
    return host


@pytest.fixture
def debian(installed: Debian, tmp_path: Path) -> Debian:
    """Such a host, and what the test does to it."""
    return Debian(tmp_path, installed)


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
    assert any(
        "stop vgpumgr-metrics.timer vgpumgr-metrics.service vgpumgr.socket" in call
        for call in debian.take_calls()
    )
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
    debian.ok("dpkg -P vgpumgr-host vgpumgr")
    assert debian.run("test -e /var/lib/vgpumgr").returncode == 1
    assert debian.run("dpkg-query -W vgpumgr").returncode != 0
    places = "/etc /usr/bin /usr/lib /usr/share /var/lib"
    assert debian.ok(f"find {places} -xdev -name '*vgpumgr*' | cat") == ""


def test_the_profile_of_workers_is_loaded_where_apparmor_is_on(
    debian: Debian, packages: dict[str, Path], members: dict[str, dict[str, tarfile.TarInfo]]
) -> None:
    profile = "/etc/apparmor.d/vgpumgr-worker"
    text = read(packages["vgpumgr-host"], profile).decode()
    (place,) = re.findall(r"^@\{vgpumgr_lib\}=(.*)$", text, re.MULTILINE)
    named = [f"{place}/bin/vgpumgr-{name}" for name in ("hold", "worker")]
    assert all(fnmatch.filter(members["vgpumgr-host"], one) for one in named)
    assert profile in debian.ok("cat /var/lib/dpkg/info/vgpumgr-host.conffiles")
    # this machine has no AppArmor: its tools are stood in for, as of a host that has it on
    programs = debian.upper / "usr/bin"
    for name, answer in (("aa-enabled", "exit 0"), ("apparmor_parser", 'echo "$*" >>/parsed')):
        (programs / name).write_text(f"#!/bin/sh\n{answer}\n")
        (programs / name).chmod(0o755)
    debian.ok("echo '# mine' >/etc/apparmor.d/local/vgpumgr-worker")
    debian.install(packages["vgpumgr-host"])
    assert (debian.upper / "parsed").read_text() == f"-r -T -W {profile}\n"
    assert debian.ok("cat /etc/apparmor.d/local/vgpumgr-worker") == "# mine\n"


def test_debians_parser_takes_the_profile() -> None:
    tools = Path(os.environ.get("VGPUMGR_CACHE", ROOT / ".cache")) / "apparmor"
    if not tools.is_dir():
        pytest.skip("Debian's AppArmor could not be fetched")
    rules, parser = tools / "etc/apparmor.d", next(tools.glob("**/sbin/apparmor_parser"))
    words = [parser, "--skip-kernel-load", "--skip-cache", "--base", rules, "--Include", rules]
    done = subprocess.run(
        [*words, "--debug", ROOT / "templates/apparmor/vgpumgr-worker"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "vgpumgr-worker" in done.stdout) == (0, True), done.stderr


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
    checked = debian.run("vgpumgr-guest-check").stdout
    assert "vgpumgr-guestd does not run" in checked
    assert re.search(
        r"libraries +ok .*\nloader +ok +programs find /usr/lib/vgpumgr/libcuda", checked
    )
    debian.ok("dpkg -P vgpumgr-guest")
    assert "/usr/lib/vgpumgr" not in debian.ok("ldconfig; ldconfig -p")
    assert any("stop vgpumgr-guestd.service" in call for call in debian.take_calls())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize(
    ("unit", "limit"),
    [
        # it reads the kernel's log
        ("systemd/vgpumgr.service", 7.3),
        ("systemd/vgpumgr-restore.service", 7.0),
        ("systemd/vgpumgr-passthrough.service", 7.3),
        ("systemd/vgpumgr-metrics.service", 2.2),
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


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages as the previous commit builds them, with this one's native part."""
    tree, target = tmp_path_factory.mktemp("previous"), tmp_path_factory.mktemp("previous-dist")
    words = ["git", "-C", ROOT, "rev-parse", "--verify", "--quiet", "HEAD~1"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    # a clone without history has only this one, which then upgrades itself
    commit = found.stdout.strip() or "HEAD"
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", commit], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    (tree / "vgpumgr/_lib").symlink_to(ROOT / "vgpumgr/_lib")
    done = subprocess.run(
        [sys.executable, "-m", "tools.package", target],
        cwd=tree, capture_output=True, text=True, timeout=900, check=False,
        env=os.environ | {"PYTHONPATH": str(tree), "SOURCE_DATE_EPOCH": "1700000000"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return {path.name.partition("_")[0]: path for path in target.glob("*.deb")}


def test_the_previous_commits_packages_are_upgraded_and_purged(
    bare: Debian, previous: dict[str, Path], packages: dict[str, Path], tmp_path: Path
) -> None:
    host = Debian(tmp_path / "host", bare)
    host.install(previous["vgpumgr"], previous["vgpumgr-host"])
    assert host.ok("cd / && vgpumgr --version").startswith("vgpumgr ")
    state = remember_attachment(host)
    before = state.read_bytes()
    host.ok("mkdir -p /etc/vgpumgr/conf.d; echo '# mine' >/etc/vgpumgr/conf.d/mine.toml")
    host.ok("systemctl-of-systemd --root=/ disable vgpumgr-restore.service")
    # what an older version had, and this one has not
    stale = host.upper / f"usr/lib/vgpumgr-host/lib/python{version_of_debian(host)}/site-packages"
    assert (stale / "vgpumgr/cli").is_dir()
    host.install(packages["vgpumgr"], packages["vgpumgr-host"])
    assert host.ok("cd / && vgpumgr --version") == f"vgpumgr {__version__}\n"
    assert state.read_bytes() == before
    assert host.ok("cd / && vgpumgr config check && cat /etc/vgpumgr/conf.d/mine.toml")
    assert host.run("systemctl is-enabled vgpumgr-restore.service").stdout == "disabled\n"
    strangers = host.ok(
        "find /usr/lib/vgpumgr-host -type f -not -name '*.pyc' | sort >/tmp/there; "
        "dpkg -L vgpumgr vgpumgr-host | sort >/tmp/known; comm -23 /tmp/there /tmp/known"
    )
    assert strangers == ""
    assert delete_records(state) == 1
    host.ok("dpkg -P vgpumgr-host vgpumgr")
    kept = host.ok("find /etc/vgpumgr /usr/lib/vgpumgr-host /var/lib/vgpumgr -type f 2>&1 | cat")
    assert [line for line in kept.splitlines() if line.startswith("/")] == [
        "/etc/vgpumgr/conf.d/mine.toml"
    ]


def version_of_debian(debian: Debian) -> str:
    return debian.ok("python3 -Ic 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").strip()


#: a file or folder below site-packages that an interrupted installation has not brought, or only begun; a command
MISSING = (
    ("vgpumgr", "--version"),
    ("vgpumgr/errors", "--version"),
    ("vgpumgr/cli/main.py", "--version"),
    ("vgpumgr/cli/gpu.py", "gpu list"),
    ("vgpumgr/app/application.py", "gpu list"),
    ("vgpumgr/server", "daemon"),
    ("typer", "--version"),
    ("pydantic_core", "daemon"),
)


def test_an_interrupted_installation_says_what_is_missing(debian: Debian) -> None:
    place = f"/usr/lib/vgpumgr-host/lib/python{version_of_debian(debian)}/site-packages"
    # the last is there, and empty
    cases = [(name, command, "true") for name, command in MISSING]
    cases.append(("vgpumgr/cli/main.py", "--version", f"touch {place}/vgpumgr/cli/main.py"))
    for name, command, how in cases:
        debian.ok(f"mv {place}/{name} /away && {how}")
        done = debian.run(f"cd /; timeout 20 vgpumgr {command}")
        debian.ok(f"rm -rf {place}/{name}; mv /away {place}/{name}")
        said, text = (name, how, done.stderr), done.stderr
        assert done.returncode not in (0, 124), said
        assert "Traceback" not in text, said
        assert text.startswith("error:   the installation of vgpumgr is incomplete\ncause:"), said
        assert "install" in text.partition("\ntry:     ")[2], said
    assert debian.ok("cd / && vgpumgr --version") == f"vgpumgr {__version__}\n"


def test_without_the_hosts_package_it_is_named(debian: Debian) -> None:
    debian.ok("dpkg -P vgpumgr-host")
    assert debian.ok("cd / && vgpumgr --version") == f"vgpumgr {__version__}\n"
    done = debian.run("cd / && vgpumgr virtio guest-package --out /tmp/x.tar.gz")
    assert (done.returncode, "Traceback" in done.stderr) == (7, False)
    assert done.stderr.startswith("error:   the guest part of vgpumgr is not installed\n")
    assert "\nwhy:     the package vgpumgr-host has it\n" in done.stderr
    assert "install the packages vgpumgr and vgpumgr-host again" in done.stderr
    asked = json.loads(debian.run("cd / && vgpumgr doctor --check programs -o json").stdout)
    (check,) = (row for row in asked["checks"] if row["id"] == "programs")
    assert (check["result"], "vgpumgr-keeper" in check["text"]) == ("problem", True)
    assert "vgpumgr-host" in check["hint"]


def test_a_killed_dpkg_is_made_good_by_the_next_one(
    debian: Debian, packages: dict[str, Path], tmp_path: Path
) -> None:
    state = remember_attachment(debian)
    before = state.read_bytes()
    newer = [raise_version(packages[name], tmp_path) for name in ("vgpumgr", "vgpumgr-host")]
    for file in newer:
        shutil.copy(file, debian.upper / "packages")
    names = " ".join(f"/packages/{file.name}" for file in newer)
    # killed where the files are being renamed, and once more in the middle of what follows
    for seconds in (0.4, 1.5):
        debian.run(f"timeout -s KILL {seconds} dpkg -i --force-unsafe-io {names}")
        done = debian.run("cd / && vgpumgr --version")
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0 or "try:" in done.stderr
    debian.ok(f"dpkg -i {names} 2>&1")
    assert debian.ok("cd / && vgpumgr --version") == f"vgpumgr {__version__}\n"
    assert debian.ok("dpkg --audit") == ""
    assert state.read_bytes() == before
