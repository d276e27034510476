"""Debian packages: ``./run package [DIRECTORY]`` writes vgpumgr, vgpumgr-host and vgpumgr-guest to ``dist``.

The native part is built by set-up. Python libraries come from the project's environment, as far as Debian has them
in no version that fits; they lie in an environment of the package's own, which Debian's Python reads. The same
commit gives the same packages.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from tools.install_python import read_pins
from tools.manpages import list_pages
from vgpumgr import __version__
from vgpumgr.cli.program import SCRIPTS
from vgpumgr.server.settings import format_defaults
from vgpumgr.virtio.channel import guest_files

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "vgpumgr/_lib"
PACKAGING = ROOT / "packaging"
#: where the program is installed: an environment of Debian's Python
PLACE = Path("usr/lib/vgpumgr-host")
#: Debian's packages have these in versions that fit, and security updates of them
FROM_DEBIAN = {
    "bcrypt", "cffi", "cryptography", "jinja2", "libvirt-python", "lxml", "markupsafe", "pycparser", "pynacl",
    "pyyaml",
}  # fmt: skip
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/vgpumgr",
    "zsh": "usr/share/zsh/vendor-completions/_vgpumgr",
    "fish": "usr/share/fish/vendor_completions.d/vgpumgr.fish",
}
#: native programs of the package vgpumgr-host; the rest is of simulated machines
CHANNEL_PROGRAMS = ("vgpumgr-keeper", "vgpumgr-worker", "vgpumgr-hold")
UNITS = ("vgpumgr.service", "vgpumgr.socket", "vgpumgr-restore.service", "vgpumgr-passthrough.service")  # fmt: skip


def main(arguments: list[str]) -> int:
    """Builds all of them, and prints their names."""
    target = Path(arguments[0] if arguments else ROOT / "dist")
    target.mkdir(parents=True, exist_ok=True)
    made_s = _find_time()
    os.environ["SOURCE_DATE_EPOCH"] = str(made_s)
    version = f"{__version__}~{time.strftime('%Y%m%d%H%M%S', time.gmtime(made_s))}"
    if arguments[1:]:
        version = arguments[1]
    with tempfile.TemporaryDirectory() as directory:
        for name, fill in (
            ("vgpumgr", fill_program),
            ("vgpumgr-host", fill_channels),
            ("vgpumgr-guest", fill_guest),
        ):
            root = Path(directory, name)
            root.mkdir()
            fill(root)
            print(build(name, root, version, made_s, target))
    return 0


def _find_time() -> int:
    """When what is packaged was made: of the commit; without one, of the list of changes."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    try:
        return int(_run("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))
    except (OSError, subprocess.CalledProcessError):
        return int((ROOT / "CHANGELOG.md").stat().st_mtime)


def fill_program(root: Path) -> None:
    """The command, the daemon, simulated machines, units, manual pages and completions."""
    packages = root / PLACE / "lib" / f"python{_python()}" / "site-packages"
    unwanted = shutil.ignore_patterns("__pycache__", "_lib", "native", "CMakeLists.txt")
    shutil.copytree(ROOT / "vgpumgr", packages / "vgpumgr", ignore=unwanted)
    for part in ("sim", "templates"):
        shutil.copytree(BUILT / part, packages / "vgpumgr/_lib" / part)
    _copy(BUILT / "bin/vgpumgr-simstate", packages / "vgpumgr/_lib/bin/vgpumgr-simstate", 0o755)
    _bundle(packages)
    _mend_scripts(packages)
    _write(root / PLACE / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n")
    (root / PLACE / "bin").mkdir()
    (root / PLACE / "bin/python").symlink_to("../../../bin/python3")
    script = "import sys\n\nfrom vgpumgr.__main__ import main\n\nsys.exit(main())\n"
    _write(root / "usr/bin/vgpumgr", f"#!/{PLACE}/bin/python -I\n{script}", 0o755)
    for unit in UNITS:
        _copy(ROOT / "templates/systemd" / unit, root / "usr/lib/systemd/system" / unit)
    for kind in ("sysusers", "tmpfiles"):
        source = ROOT / f"templates/systemd/vgpumgr.{kind}.conf"
        _copy(source, root / f"usr/lib/{kind}.d/vgpumgr.conf")
    _write(root / "etc/vgpumgr/vgpumgr.toml", format_defaults())
    (root / "etc/vgpumgr/conf.d").mkdir()
    for shell, place in COMPLETIONS.items():
        _write(root / place, SCRIPTS[shell] + "\n")
    for page in ("README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))):
        _copy(ROOT / page, root / "usr/share/doc/vgpumgr" / page)
    _fill_pages(root, lambda name: name.endswith(".1"))


def fill_channels(root: Path) -> None:
    """Keepers and workers, and what the guest's archive and ``vgpumgr run`` take."""
    place = root / PLACE / "lib" / f"python{_python()}" / "site-packages/vgpumgr/_lib"
    for name in CHANNEL_PROGRAMS:
        _copy(BUILT / "bin" / name, place / "bin" / name, 0o755)
    shutil.copytree(BUILT / "guest", place / "guest", symlinks=True)


def fill_guest(root: Path) -> None:
    """The same files as in the archive."""
    for name, source in guest_files(BUILT).items():
        if name != "install.sh":
            _copy(source, root / name, 0o755 if "/sbin/" in name else 0o644)
    _fill_pages(root, lambda name: name.endswith(".8"))


def _bundle(packages: Path) -> None:
    """The libraries of the pins, by what their distributions say that they consist of."""
    pins = read_pins([ROOT / "tools/constraints.txt"])
    for name in sorted(set(pins) - FROM_DEBIAN):
        for file in metadata.distribution(name).files or ():
            # scripts of theirs lie outside; bytecode is made where it is installed
            if ".." in file.parts or "__pycache__" in file.parts or file.name == "RECORD":
                continue
            if file.name not in ("INSTALLER", "REQUESTED", "direct_url.json"):
                _copy(Path(str(file.locate())), packages / file)


def _mend_scripts(packages: Path) -> None:
    """A module is no program; a script that is one may be executed."""
    for path in _walk(packages):
        data = path.read_bytes()
        if data[:2] == b"#!" and path.suffix == ".py":
            path.write_bytes(data[data.index(b"\n") :])
        elif data[:2] == b"#!":
            path.chmod(0o755)


def _fill_pages(root: Path, wanted: object) -> None:
    assert callable(wanted)
    agent = BUILT / "guest/vgpumgr-guestd"
    usage = subprocess.run([agent, "--help"], capture_output=True, text=True, check=False).stderr
    for name, text in list_pages(usage):
        if wanted(name):
            place = root / f"usr/share/man/man{name[-1]}/{name}.gz"
            _write(place, gzip.compress(text.encode(), 9, mtime=0))


def build(name: str, root: Path, version: str, made_s: int, target: Path) -> Path:
    """One package of what is below ``root``."""
    documents = root / "usr/share/doc" / name
    _copy(PACKAGING / "copyright", documents / "copyright")
    when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(made_s))
    source, stanza = _read_control(name)
    entry = (
        f"vgpumgr ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md in the source.\n\n"
    )
    entry += f" -- {source['Maintainer']}  {when}\n"
    _write(documents / "changelog.gz", gzip.compress(entry.encode(), 9, mtime=0))
    overrides = PACKAGING / f"{name}.lintian-overrides"
    if overrides.exists():
        _copy(overrides, root / "usr/share/lintian/overrides" / name)
    programs = list(_list_programs(root))
    for path in programs:
        subprocess.run(["strip", "--strip-unneeded", "-R", ".comment", path], check=True)
    values = {"VERSION": version, "ARCH": _run("dpkg", "--print-architecture")}
    major, minor = _python().split(".")
    values["PYTHON"] = f"python3 (>= {_python()}), python3 (<< {major}.{int(minor) + 1})"
    values["SHLIBS"] = _find_libraries(programs, root)
    size = sum(-(-path.lstat().st_size // 1024) for path in _walk(root))
    control = {
        "Package": name,
        "Source": "vgpumgr",
        "Version": version,
        **{key: source[key] for key in ("Section", "Priority", "Maintainer")},
        "Installed-Size": str(size),
        **stanza,
    }
    control["Source"] = control.pop("Source")
    if name == "vgpumgr":
        del control["Source"]
    text = "".join(f"{key}: {value}\n" for key, value in control.items())
    _write(root / "DEBIAN/control", re.sub(r"@([A-Z]+)@", lambda m: values[m[1]], text))
    _write_control_files(name, root)
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (made_s, made_s), follow_symlinks=False)
    file = target / f"{name}_{version}_{values['ARCH']}.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", str(root), str(file))
    return file


def _write_control_files(name: str, root: Path) -> None:
    """Sums, the files that are the administrator's, triggers, and the maintainer's scripts."""
    sums = [
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n"
        for path in _walk(root)
        if not path.is_symlink() and "DEBIAN" not in path.relative_to(root).parts
    ]
    _write(root / "DEBIAN/md5sums", "".join(sums))
    kept = [f"/{path.relative_to(root)}\n" for path in _walk(root / "etc")]
    if kept:
        _write(root / "DEBIAN/conffiles", "".join(kept))
    if (root / "etc/ld.so.conf.d").exists():
        _write(root / "DEBIAN/triggers", "activate-noawait ldconfig\n")
    for script in ("postinst", "prerm", "postrm"):
        source = PACKAGING / f"{name}.{script}"
        if source.exists():
            _copy(source, root / "DEBIAN" / script, 0o755)


def _read_control(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """The stanza of the source, and that of a package, with continued lines as they are."""
    stanzas = []
    for text in (PACKAGING / "control").read_text().split("\n\n"):
        fields = re.findall(r"^(\S+): (.*(?:\n .*)*)", text, re.MULTILINE)
        stanzas.append(dict(fields))
    source, *packages = stanzas
    (stanza,) = (one for one in packages if one.pop("Package") == name)
    return source, stanza


def _find_libraries(programs: list[Path], root: Path) -> str:
    """Debian's packages of the shared libraries that these need, by dpkg-shlibdeps."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "debian").mkdir()
        _write(
            Path(directory, "debian/control"),
            "Source: vgpumgr\n\nPackage: vgpumgr\nArchitecture: any\n",
        )
        own = sorted({f"-l{path.parent}" for path in programs})
        words = ["dpkg-shlibdeps", "-O", "--ignore-missing-info", "--warnings=0", f"-S{root}"]
        done = subprocess.run(
            [*words, *own, *map(str, programs)],
            cwd=directory, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return done.stdout.strip().removeprefix("shlibs:Depends=")


def _list_programs(root: Path) -> Iterator[Path]:
    """Programs and libraries of machine code."""
    for path in _walk(root):
        if not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def _walk(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_symlink() or path.is_file())


def _python() -> str:
    """Major and minor of Debian's Python. Bytecode and compiled libraries fit no other."""
    words = ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    theirs, ours = _run(*words), "{}.{}".format(*sys.version_info)
    if theirs != ours:
        raise SystemExit(f"package: Debian's Python is {theirs}, the environment's {ours}")
    return theirs


def _copy(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _write(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)


def _run(*words: str) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
