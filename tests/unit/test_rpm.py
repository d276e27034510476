"""The RPMs: the files of the .deb packages in RHEL's places, and their life: installed, upgraded, erased.

Debian's rpm installs them into an overlay of this Debian, without what they depend on: that is RHEL's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.debian import HAS_RPM, NAMES, ROOT, Debian, remember_attachment
from tools.package import build_rpms
from vgpumgr import __version__

PYTHON = "python{}.{}".format(*sys.version_info)
PACKAGES = f"/usr/lib64/vgpumgr-host/lib/{PYTHON}/site-packages/"
#: what RHEL has elsewhere, or not at all
MOVED = (
    ("/usr/lib/vgpumgr", "/usr/lib64/vgpumgr"),
    ("/usr/share/zsh/vendor-completions/", "/usr/share/zsh/site-functions/"),
)
OF_DEBIAN = re.compile(
    r"/etc/apparmor\.d\b|/usr/share/(doc-base|lintian)\b|/usr/share/doc/[^/]+/changelog\.gz"
)
#: bytecode, the licence, and libraries that Debian has as packages and RHEL has not
ADDED = re.compile(
    r"__pycache__/|/usr/share/licenses/vgpumgr[^/]*/LICENSE$|"
    + PACKAGES
    + r"(_cffi_backend|nacl|bcrypt|jinja2|"
    r"markupsafe|libvirt|(PyNaCl|pynacl|bcrypt|jinja2|MarkupSafe|markupsafe|libvirt_python)-[^/]+\.dist-info)"
)
#: a path in them is another
REWRITTEN = re.compile(r"/usr/bin/vgpumgr|/etc/ld\.so\.conf\.d/vgpumgr\.conf|.*/copyright")
pytestmark = [
    pytest.mark.native,
    pytest.mark.xdist_group("packages"),
    pytest.mark.skipif(shutil.which("dpkg-shlibdeps") is None, reason="no dpkg-dev here"),
    pytest.mark.skipif(not HAS_RPM, reason="no rpmbuild here"),
]


@pytest.fixture(scope="module")
def rpms(dist: Path) -> dict[str, Path]:
    """By name."""
    found = {query(path, "%{NAME}"): path for path in dist.glob("*.rpm")}
    assert sorted(found) == sorted(NAMES)
    return found


@pytest.fixture(scope="module")
def trees(rpms: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What they have, unpacked, each in a folder of its name."""
    directory = tmp_path_factory.mktemp("rpms")
    for name, path in rpms.items():
        (directory / name).mkdir()
        words = 'rpm2archive - <"$1" | tar -xz -C "$2"'
        subprocess.run(["bash", "-ec", words, "-", path, directory / name], check=True)
    return directory


@pytest.fixture
def host(bare: Debian, rpms: dict[str, Path], tmp_path: Path) -> Debian:
    """A host with the two RPMs of a host."""
    debian = Debian(tmp_path / "host", bare)
    install(debian, "-i", rpms["vgpumgr"], rpms["vgpumgr-host"])
    return debian


def query(package: Path, form: str) -> str:
    """Of what the header says."""
    words = ["rpm", "-qp", "--qf", form, package]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def list_files(package: Path) -> dict[str, tuple[str, str, str, str]]:
    """By place: owner and group, mode, digest, target of a link."""
    form = r"[%{FILENAMES}\t%{FILEUSERNAME}:%{FILEGROUPNAME}\t%{FILEMODES:perms}\t%{FILEDIGESTS}\t%{FILELINKTOS}\n]"
    rows = [line.split("\t") for line in query(package, form).splitlines()]
    return {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}


def install(debian: Debian, option: str, *files: Path) -> str:
    for file in files:
        shutil.copy(file, debian.upper / "packages" / file.name)
    names = " ".join(f"/packages/{file.name}" for file in files)
    return debian.ok(f"rpm --force-debian --nodeps {option} {names} 2>&1")


def test_each_has_the_files_of_the_deb_in_rhels_places(
    rpms: dict[str, Path], packages: dict[str, Path]
) -> None:
    for name in NAMES:
        theirs = list_files(rpms[name])
        process = subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", packages[name]], stdout=subprocess.PIPE
        )
        ours: dict[str, tarfile.TarInfo] = {}
        with process, tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                place = member.name.removeprefix(".")
                if not member.isdir() and not OF_DEBIAN.match(place):
                    for old, new in MOVED:
                        place = place.replace(old, new)
                    ours[place] = member
        assert set(ours) - set(theirs) == set(), name
        for place, (owner, mode, _digest, link) in theirs.items():
            assert owner == "root:root", place
            if mode.startswith("l"):
                wanted = ours[place].linkname.replace("bin/python3", f"bin/{PYTHON}")
                assert link == wanted, place
            elif mode.startswith("d"):
                assert mode == "drwxr-xr-x", place
                assert "vgpumgr" in place, f"{place} is not ours"
            elif place in ours:
                assert mode == ("-rwxr-xr-x" if ours[place].mode & 0o111 else "-rw-r--r--"), place
            else:
                assert mode in ("-rw-r--r--", "-rwxr-xr-x"), place
                assert ADDED.search(place), place


def test_their_bytes_are_the_debs(
    rpms: dict[str, Path], packages: dict[str, Path], tmp_path: Path
) -> None:
    import hashlib

    compared = 0
    for name in NAMES:
        subprocess.run(["dpkg-deb", "-x", packages[name], tmp_path / name], check=True)
        for place, (_owner, mode, digest, _link) in list_files(rpms[name]).items():
            if not mode.startswith("-") or ADDED.search(place) or REWRITTEN.fullmatch(place):
                continue
            source = place
            for old, new in MOVED:
                source = source.replace(new, old)
            data = (tmp_path / name / source.lstrip("/")).read_bytes()
            assert hashlib.sha256(data).hexdigest() == digest, place
            compared += 1
    assert compared > 500


def test_nothing_names_debians_places_or_the_machine_that_built_it(trees: Path) -> None:
    base = sys.base_prefix if sys.base_prefix != "/usr" else sys.prefix
    places = (str(ROOT), str(trees), sys.prefix, base, "/rpmbuild", "BUILDROOT")
    words = [word for place in places for word in ("-e", rf"{re.escape(place)}([^A-Za-z0-9_.-]|$)")]
    found = subprocess.run(
        ["grep", "-rlaE", *words, trees], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""
    words = ["grep", "-rlF", "/usr/lib/vgpumgr", "--exclude-dir=doc", trees]
    naming = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
    # the archive for guests of any distribution, advice by how it was installed, a profile for who has AppArmor, and
    # a check that knows both places
    found_in = {Path(name).name: name for name in naming if "__pycache__" not in name}
    assert found_in.keys() == {
        "vgpumgr.conf", "unexpected.py", "vgpumgr-worker", "vgpumgr-guest-check",
    }  # fmt: skip
    assert "/_lib/templates/guest/" in found_in["vgpumgr.conf"]
    assert "/_lib/templates/apparmor/" in found_in["vgpumgr-worker"]


def test_what_they_need_is_rhels_and_what_they_offer_is_their_own(rpms: dict[str, Path]) -> None:
    for name, path in rpms.items():
        provided = query(path, r"[%{PROVIDES}\n]").split()
        assert {re.sub(r"\(.*", "", one) for one in provided} <= {name, "config"}
        needed = query(path, r"[%{REQUIRES}\n]").split()
        own = re.compile(r"lib(cuda|cudart|nvidia-ml|vgpumgr|amdsmi).*|/usr/lib64/vgpumgr.*")
        assert [one for one in needed if own.match(one)] == []
        if PYTHON == "python3.11":
            # RHEL 9 has glibc 2.34
            found = [
                tuple(map(int, n.split("."))) for n in re.findall(r"GLIBC_([\d.]+)", str(needed))
            ]
            assert max(found, default=(2, 0)) <= (2, 34), name
    needed = query(rpms["vgpumgr"], r"[%{REQUIRENEVRS}\n]").splitlines()
    version = PYTHON.removeprefix("python")
    assert {f"python(abi) = {version}", f"{PYTHON}dist(cryptography)"} <= set(needed)
    exact = query(rpms["vgpumgr"], "vgpumgr = %{VERSION}-%{RELEASE}")
    assert exact in query(rpms["vgpumgr-host"], r"[%{REQUIRENEVRS}\n]").splitlines()


def test_the_scriptlets_are_of_any_shell(rpms: dict[str, Path], tmp_path: Path) -> None:
    checked = 0
    for name, path in rpms.items():
        for kind in ("PREIN", "POSTIN", "PREUN", "POSTUN"):
            text = query(path, f"%{{{kind}}}")
            if text == "(none)":
                continue
            script = tmp_path / f"{name}.{kind}"
            script.write_text(f"#!/bin/sh\n{text}\n")
            assert "%" not in text, "a macro that rpmbuild does not know"
            subprocess.run(["sh", "-n", script], check=True)
            if shutil.which("shellcheck"):
                subprocess.run(["shellcheck", "-s", "sh", script], check=True)
            checked += 1
    assert checked == 6


def test_an_installed_copy_runs(host: Debian) -> None:
    assert host.ok("cd / && vgpumgr --version") == f"vgpumgr {__version__}\n"
    where = "/usr/lib64/vgpumgr-host/bin/python -c 'import vgpumgr, libvirt; print(vgpumgr.__file__, libvirt.__file__)'"
    places = host.ok(f"cd / && {where}").split()
    assert all(place.startswith(PACKAGES) for place in places)
    host.ok("cd / && vgpumgr config check && vgpumgr virtio guest-package --out - | tar -tz")
    assert host.ok("getent group vgpumgr vgpumgr-ro | wc -l").strip() == "2"
    assert host.ok("stat -c %a:%U /var/lib/vgpumgr").strip() == "700:root"
    assert host.ok("rpm --force-debian -V --nodeps vgpumgr vgpumgr-host") == ""
    # what runs as root writes no bytecode beside what is installed: it is there
    assert host.ok("find /usr/lib64/vgpumgr-host -newer /packages -name '*.pyc' | wc -l") == "0\n"
    asked = (host.upper / "var/log/systemctl").read_text()
    assert re.search(r"--no-reload preset vgpumgr\.socket .*vgpumgr-restore\.service", asked)
    assert not re.search(r"\bstart\b|\brestart\b", asked), "that is the administrator's"


def test_an_upgrade_restarts_the_daemon_only_and_an_erasure_keeps_the_state(
    host: Debian, rpms: dict[str, Path], trees: Path, tmp_path: Path
) -> None:
    state = remember_attachment(host)
    before = state.read_bytes()
    version = query(rpms["vgpumgr"], "%{VERSION}").replace("~", "~9")
    target = tmp_path / "newer"
    target.mkdir()
    newer = {query(path, "%{NAME}"): path for path in build_rpms(trees, version, 1, target)}
    (host.upper / "etc/vgpumgr/vgpumgr.toml").write_text("# mine\n")
    host.take_calls()
    install(host, "-U", newer["vgpumgr"], newer["vgpumgr-host"])
    assert host.ok("rpm --force-debian -q --qf '%{VERSION}\\n' vgpumgr") == f"{version}\n"
    calls = host.take_calls()
    assert "try-restart vgpumgr.service" in calls
    words = r"\bstop\b|\bkill\b|preset|disable|vgpumgr-restore|vgpumgr-passthrough"
    assert [call for call in calls if re.search(words, call)] == []
    assert state.read_bytes() == before
    assert (host.upper / "etc/vgpumgr/vgpumgr.toml").read_text() == "# mine\n"
    assert host.ok("cd / && vgpumgr --version") == f"vgpumgr {__version__}\n"
    erased = host.run("rpm --force-debian -e vgpumgr-host vgpumgr")
    assert erased.returncode == 0, erased.stderr
    assert "these VMs keep their slices and devices:\n  db1 1g.10gb\n" in erased.stderr
    assert any(
        "stop vgpumgr-metrics.timer vgpumgr-metrics.service vgpumgr.socket" in call
        for call in host.take_calls()
    )
    assert state.read_bytes() == before
    places = "/etc /usr/bin /usr/lib /usr/lib64 /usr/sbin /usr/share"
    left = host.ok(f"find {places} -xdev -name '*vgpumgr*' | cat").split()
    # what the administrator has written is kept beside
    assert left == ["/etc/vgpumgr", "/etc/vgpumgr/vgpumgr.toml.rpmsave"]


def test_the_guests_rpm_makes_its_libraries_known(
    bare: Debian, rpms: dict[str, Path], tmp_path: Path
) -> None:
    guest = Debian(tmp_path / "guest", bare)
    find = (
        "find /etc /usr/lib /usr/lib64 /usr/sbin /usr/share /var/lib -xdev -name '*vgpumgr*' | cat"
    )
    before = guest.ok(find)
    install(guest, "-i", rpms["vgpumgr-guest"])
    known = guest.ok("ldconfig -p")
    for name in ("libcuda.so.1", "libcudart.so.12", "libcudart.so.13"):
        assert f"{name} (libc6,x86-64) => /usr/lib64/vgpumgr/{name}" in known
    assert any("preset vgpumgr-guestd.service" in call for call in guest.take_calls())
    guest.ok("rpm --force-debian -e vgpumgr-guest")
    assert "/usr/lib64/vgpumgr" not in guest.ok("ldconfig -p")
    assert guest.ok(find) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root (chroot)")
def test_they_install_into_an_empty_root(rpms: dict[str, Path], tmp_path: Path) -> None:
    """As an image's builder does, which runs scriptlets later or elsewhere."""
    words = ["rpm", "--force-debian", "--root", tmp_path, "--nodeps", "--noscripts", "-i"]
    subprocess.run([*words, *rpms.values()], check=True, capture_output=True)
    for name, path in rpms.items():
        for place, (_owner, mode, _digest, _link) in list_files(path).items():
            found = (tmp_path / place.lstrip("/")).lstat()
            assert (found.st_uid, found.st_gid) == (0, 0), place
            assert mode[1:4] == ("rwx" if found.st_mode & 0o100 else "rw-"), (name, place)
