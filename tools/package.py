"""Packages: ``./run package [--rpm] [--without-page] [DIRECTORY]`` writes vgpumgr, vgpumgr-host, vgpumgr-guest and
vgpumgr-doc to ``dist``, for Debian, and with ``--rpm`` also as RPMs.

The native part is built by set-up. Python libraries come from the project's environment, as far as the distribution
has them in no version that fits; they lie in an environment of the package's own, which the distribution's Python
reads. RPMs are made of the same files, in RHEL's places. The same commit gives the same packages.
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
from tools.manpages import GUEST_PAGES, list_pages
from tools.site import build as build_site
from vgpumgr import __version__
from vgpumgr.cli.program import SCRIPTS
from vgpumgr.server.settings import format_defaults
from vgpumgr.virtio.channel import guest_files

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "vgpumgr/_lib"
#: the web page, which the daemon serves, and Cockpit from a directory of its own
WEB = ROOT / "vgpumgr/_web"
COCKPIT = "usr/share/cockpit/vgpumgr"
PACKAGING = ROOT / "packaging"
#: where the program is installed: an environment of Debian's Python
PLACE = Path("usr/lib/vgpumgr-host")
#: Debian's packages have these in versions that fit, and security updates of them
FROM_DEBIAN = {
    "bcrypt", "cffi", "cryptography", "jinja2", "libvirt-python", "lxml", "markupsafe", "pycparser", "pynacl",
    "pyyaml",
}  # fmt: skip
#: RHEL 9 has these for its python3.11, Fedora for its own Python
FROM_RHEL = {"cffi", "cryptography", "lxml", "pycparser", "pyyaml"}
#: where an RPM has what lies elsewhere in a .deb; None: nowhere
PLACES_OF_RPM = {
    "DEBIAN": None,
    "etc/apparmor.d": None,
    "usr/share/doc-base": None,
    "usr/share/lintian": None,
    "usr/lib/vgpumgr": "usr/lib64/vgpumgr",
    "usr/lib/vgpumgr-host": "usr/lib64/vgpumgr-host",
    "usr/share/zsh/vendor-completions": "usr/share/zsh/site-functions",
}
#: files that name such a place
NAMING = ("usr/bin/vgpumgr", "etc/ld.so.conf.d/vgpumgr.conf", "usr/share/doc/{}/copyright")
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/vgpumgr",
    "zsh": "usr/share/zsh/vendor-completions/_vgpumgr",
    "fish": "usr/share/fish/vendor_completions.d/vgpumgr.fish",
}
#: native programs of the package vgpumgr-host; the rest is of simulated machines
CHANNEL_PROGRAMS = (
    "vgpumgr-keeper", "vgpumgr-worker", "vgpumgr-hold", "vgpumgr-arbiter",
    "vgpumgr-relay", "vgpumgr-dial", "vgpumgr-link",
)  # fmt: skip
UNITS = (
    "vgpumgr.service", "vgpumgr.socket", "vgpumgr-restore.service", "vgpumgr-passthrough.service",
    "vgpumgr-metrics.service", "vgpumgr-metrics.timer",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Builds all of them, and prints their names."""
    rpm = "--rpm" in arguments
    # set-up asks for the page, unless --without-page allows that it is not there
    arguments = [word for word in arguments if word not in ("--rpm", "--without-page")]
    if any(word.startswith("-") for word in arguments):
        raise SystemExit("usage: ./run package [--rpm] [--without-page] [DIRECTORY]")
    if rpm and not (shutil.which("rpmbuild") and shutil.which("patchelf")):
        raise SystemExit("package: rpmbuild or patchelf is missing; try: apt install rpm patchelf")
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
            ("vgpumgr-doc", fill_documentation),
        ):
            root = Path(directory, name)
            root.mkdir()
            fill(root)
            mark_version(name, root, version)
            print(build(name, root, version, made_s, target))
        if rpm:
            for root in sorted(Path(directory).iterdir()):
                lay_out_as_rpm(root)
            for file in build_rpms(Path(directory), version, made_s, target):
                print(file)
    return 0


def mark_version(name: str, root: Path, version: str) -> None:
    """The package's own, by which the command knows a host package of another build; see virtio/keeper.py."""
    file = {"vgpumgr": "version", "vgpumgr-host": "channels.version"}.get(name)
    if file is not None:
        place = root / PLACE / "lib" / f"python{_python()}" / "site-packages/vgpumgr/_lib"
        _write(place / file, f"{version}\n")


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
    _bundle(packages, FROM_DEBIAN)
    _mend_scripts(packages)
    _write(root / PLACE / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n")
    (root / PLACE / "bin").mkdir()
    (root / PLACE / "bin/python").symlink_to("../../../bin/python3")
    script = """import sys

try:
    from vgpumgr.__main__ import main
except ImportError as error:
    print("error:   the installation of vgpumgr is incomplete", file=sys.stderr)
    sys.exit(f"cause:   {error}\\ntry:     install its packages again")
sys.exit(main())
"""
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
    pictures = [ROOT / "docs/session.svg", *(ROOT / "docs/web").glob("*.png")]
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *pictures):
        _copy(page, root / "usr/share/doc/vgpumgr" / page.relative_to(ROOT))
    _fill_pages(root, lambda name: name not in GUEST_PAGES)
    _fill_cockpit(root / COCKPIT)


def _fill_cockpit(place: Path) -> None:
    """The same page inside Cockpit: it loads Cockpit's library, and has Cockpit's way to the daemon's socket."""
    if not (WEB / "index.html").exists():
        print("package: without the web page, which was not built: ./run setup", file=sys.stderr)
        return
    _copy(PACKAGING / "cockpit/manifest.json", place / "manifest.json")
    _copy(WEB / "cockpit.html", place / "index.html")
    for file in _walk(WEB / "assets"):
        _copy(file, place / "assets" / file.name)


def fill_channels(root: Path) -> None:
    """Keepers and workers with their AppArmor profile, and what the guest's archive and ``vgpumgr run`` take."""
    place = root / PLACE / "lib" / f"python{_python()}" / "site-packages/vgpumgr/_lib"
    for name in CHANNEL_PROGRAMS:
        _copy(BUILT / "bin" / name, place / "bin" / name, 0o755)
    shutil.copytree(BUILT / "guest", place / "guest", symlinks=True)
    _copy(ROOT / "templates/apparmor/vgpumgr-worker", root / "etc/apparmor.d/vgpumgr-worker")


def fill_guest(root: Path) -> None:
    """The same files as in the archive."""
    for name, source in guest_files(BUILT).items():
        if name != "install.sh":
            _copy(source, root / name, 0o755 if "bin/" in name else 0o644)
    _fill_pages(root, lambda name: name in GUEST_PAGES)


def fill_documentation(root: Path) -> None:
    """The site, and its entry for Debian's register of documents."""
    place = Path("usr/share/doc/vgpumgr-doc/html")
    if mistakes := build_site(root / place):
        raise SystemExit("\n".join(mistakes))
    fields = {
        "Document": "vgpumgr",
        "Title": "vgpumgr",
        "Abstract": "Tutorial, how-tos and reference of the GPU manager for KVM hosts.",
        "Section": "System/Administration\n",
        "Format": "HTML",
        "Index": f"/{place}/index.html",
        "Files": f"/{place}/*",
    }
    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    _write(root / "usr/share/doc-base/vgpumgr-doc.vgpumgr", text)


#: of Pygments, which rich and textual want: how to read six hundred languages, of which nothing here is shown
UNUSED = re.compile(r"pygments/lexers/(?!__init__|_mapping|python|special|text)\w+\.py")


def _bundle(packages: Path, without: set[str]) -> None:
    """The libraries of the pins, by what their distributions say that they consist of."""
    pins = read_pins([ROOT / "tools/constraints.txt"])
    for name in sorted(set(pins) - without):
        for file in metadata.distribution(name).files or ():
            # scripts of theirs lie outside; bytecode is made where it is installed
            if ".." in file.parts or "__pycache__" in file.parts or file.name == "RECORD":
                continue
            if UNUSED.fullmatch(str(file)):
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
    programs = _strip(root)
    values = {"VERSION": version, "ARCH": _run("dpkg", "--print-architecture")}
    major, minor = _python().split(".")
    values["PYTHON"] = f"python3 (>= {_python()}), python3 (<< {major}.{int(minor) + 1})"
    if programs:
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
    architecture = control["Architecture"].replace("@ARCH@", values["ARCH"])
    file = target / f"{name}_{version}_{architecture}.deb"
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
            text = source.read_text().replace("@ATTACHMENTS@\n", _read_attachments_script())
            _write(root / "DEBIAN" / script, text, 0o755)


def _read_attachments_script() -> str:
    """What a removal does about VMs that have something, in both formats."""
    return (PACKAGING / "vgpumgr.attachments").read_text()


def lay_out_as_rpm(root: Path) -> None:
    """Moves what a .deb has just been built of to RHEL's places, with the libraries that RHEL lacks and bytecode."""
    for here, there in PLACES_OF_RPM.items():
        if there is None:
            shutil.rmtree(root / here, ignore_errors=True)
        elif (root / here).exists():
            (root / there).parent.mkdir(parents=True, exist_ok=True)
            (root / here).rename(root / there)
    documents = root / "usr/share/doc" / root.name
    (documents / "changelog.gz").unlink()
    _copy(ROOT / "LICENSE", root / "usr/share/licenses" / root.name / "LICENSE")
    for name in NAMING:
        path = root / name.format(root.name)
        if path.exists():
            path.write_text(path.read_text().replace("/lib/vgpumgr", "/lib64/vgpumgr"))
    if root.name == "vgpumgr":
        _lay_out_environment(root, root / "usr/lib64" / PLACE.name)


def _lay_out_environment(root: Path, place: Path) -> None:
    version = _python()
    packages = place / f"lib/python{version}/site-packages"
    _bundle(packages, FROM_RHEL | (set(read_pins([ROOT / "tools/constraints.txt"])) - FROM_DEBIAN))
    _mend_scripts(packages)
    for library in _strip(packages):
        # what is compiled here may name the directory of the Python that ran the compiler
        if library.name.startswith("libvirtmod") and _run(
            "patchelf", "--print-rpath", str(library)
        ):
            _run("patchelf", "--set-rpath", "$ORIGIN", str(library))
    link = place / "bin/python"
    link.unlink()
    link.symlink_to(f"../../../bin/python{version}")
    words = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(root)]
    # sources that no Python of this version compiles are left out, as by Debian's py3compile
    subprocess.run(
        ["/usr/bin/python3", "-I", *words, "-p", "/", str(packages)],
        check=False, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def build_rpms(trees: Path, version: str, made_s: int, target: Path) -> list[Path]:
    """RPMs of the trees, whose folders have the packages' names."""
    roots = sorted(path for path in trees.iterdir() if path.is_dir())
    libraries = {path.name for root in roots for path in _walk(root) if ".so" in path.name}
    values = {
        "VERSION": version,
        "PYTHON": _python(),
        "PYTHONLIBRARIES": "\n".join(
            f"Requires: python{_python()}dist({name})" for name in sorted(FROM_RHEL - {"pycparser"})
        ),
        "OWN": "|".join(sorted(re.escape(name) + r"[(].*" for name in libraries)),
        "TREES": " ".join(f"{root}/." for root in roots),
        "ATTACHMENTS": _read_attachments_script().rstrip(),
        "DATE": time.strftime("%a %b %d %Y", time.gmtime(made_s)),
        "FILES": "\n".join(_list_for_rpm(root) for root in roots),
    }
    for root in roots:
        source, stanza = _read_control(root.name)
        values["MAINTAINER"] = source["Maintainer"]
        summary, _, description = stanza["Description"].partition("\n")
        suffix = root.name.removeprefix("vgpumgr").upper()
        values[f"SUMMARY{suffix}"] = summary
        values[f"DESCRIPTION{suffix}"] = re.sub(r"(?m)^ \.?", "", description)
    text = (PACKAGING / "vgpumgr.spec").read_text()
    with tempfile.TemporaryDirectory() as directory:
        spec = Path(directory, "vgpumgr.spec")
        _write(spec, re.sub(r"@([A-Z-]+)@", lambda m: values[m[1]], text))
        for root in roots:
            for path in [root, *root.rglob("*")]:
                os.utime(path, (made_s, made_s), follow_symlinks=False)
        subprocess.run(
            ["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {directory}", str(spec)],
            check=True, env=os.environ | {"SOURCE_DATE_EPOCH": str(made_s), "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        built = sorted(Path(directory, "RPMS").rglob("*.rpm"))
        return [Path(shutil.move(path, target / path.name)) for path in built]


def _list_for_rpm(root: Path) -> str:
    """The section of the spec that lists a package's files. It owns directories below one with our name."""
    lines = [f"%files -n {root.name}", "%defattr(-,root,root,-)"]
    for path in sorted(root.rglob("*")):
        place = f"/{path.relative_to(root)}"
        ours = any(part.startswith("vgpumgr") for part in path.relative_to(root).parts)
        if path.is_dir() and not path.is_symlink():
            lines += [f'%dir "{place}"'] * ours
        elif place.startswith("/etc/"):
            lines.append(f'%config(noreplace) "{place}"')
        elif place.startswith("/usr/share/licenses/"):
            lines.append(f'%license "{place}"')
        else:
            lines.append(f'"{place}"')
    return "\n".join(lines) + "\n"


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


def _strip(root: Path) -> list[Path]:
    """Programs and libraries, without what only debuggers read."""
    programs = list(_list_programs(root))
    for path in programs:
        subprocess.run(["strip", "--strip-unneeded", "-R", ".comment", path], check=True)
    return programs


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
