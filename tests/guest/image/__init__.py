"""The test guest's initial file system: busybox, Debian's virtio modules, and what a test wants in it.

Stock parts only: Debian's kernel as ``tools/setup.sh`` unpacked it, busybox from Debian, and the shared libraries of
this machine for programs that are linked dynamically.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).parent
SYSTEM_LIBRARIES = (
    "ld-linux",
    "libc.",
    "libm.",
    "libpthread.",
    "libdl.",
    "librt.",
    "libgcc_s.",
    "libstdc++.",
)


def cache() -> Path:
    """Where set-up keeps what it made."""
    default = Path(__file__).resolve().parents[3] / ".cache"
    return Path(os.environ.get("VGPUMGR_CACHE", default))


def kernel() -> Path:
    """Debian's kernel, uncompressed."""
    return cache() / "kernel" / "vmlinux"


def needed_libraries(program: Path) -> list[Path]:
    """The system libraries that ``ldd`` finds for a program (not CUDA's: those come from the guest package)."""
    result = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    words = (word for line in result.stdout.splitlines() for word in line.split())
    return [
        Path(w) for w in words if w.startswith("/") and Path(w).name.startswith(SYSTEM_LIBRARIES)
    ]


def build(files: Mapping[str, Path], *, symlinks: Mapping[str, str] | None = None) -> Path:
    """An initial file system with ``files`` (path in the guest: file here), cached by content.

    Libraries that the files need are added. Returns the path of the gzip'ed cpio archive.
    """
    key = content_key(files, symlinks or {})
    target = cache() / "guest-images" / f"{key}.gz"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "root"
        populate(tree, files, symlinks or {})
        pack(tree, target)
    return target


def content_key(files: Mapping[str, Path], symlinks: Mapping[str, str]) -> str:
    """A name for the image that changes with anything in it."""
    digest = hashlib.sha256((cache() / "kernel" / "version").read_bytes())
    digest.update((HERE / "init").read_bytes())
    for destination, source in sorted(files.items()):
        digest.update(destination.encode() + b"\0" + source.read_bytes())
    digest.update(repr(sorted(symlinks.items())).encode())
    return digest.hexdigest()[:20]


def populate(tree: Path, files: Mapping[str, Path], symlinks: Mapping[str, str]) -> None:
    """Lay out the image's tree."""
    for directory in (
        "bin",
        "modules",
        "proc",
        "sys",
        "dev",
        "lib64",
        "lib/x86_64-linux-gnu",
        "root",
        "etc",
    ):
        (tree / directory).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin/busybox")
    shutil.copy(HERE / "init", tree / "init")
    (tree / "init").chmod(0o755)
    for module in sorted((cache() / "kernel" / "guest-modules").iterdir()):
        shutil.copy(module, tree / "modules")
    for destination, source in files.items():
        place(tree, destination, source)
    for library in unique(lib for source in files.values() for lib in needed_libraries(source)):
        home = "lib64" if library.name.startswith("ld-linux") else "lib/x86_64-linux-gnu"
        place(tree, f"{home}/{library.name}", library)
    for link, to in symlinks.items():
        path = tree / link.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to)


def place(tree: Path, destination: str, source: Path) -> None:
    """One file into the tree, executable as it was."""
    path = tree / destination.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source.resolve(), path)


def unique(paths: Iterable[Path]) -> list[Path]:
    """Each path once."""
    return list(dict.fromkeys(paths))


def pack(tree: Path, target: Path) -> None:
    """cpio and gzip, renamed into place when whole."""
    names = "\n".join(["."] + sorted(str(p.relative_to(tree)) for p in tree.rglob("*")))
    archive = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"],
        cwd=tree, input=names.encode(), capture_output=True, check=True,
    ).stdout  # fmt: skip
    part = target.with_suffix(f".{os.getpid()}")
    part.write_bytes(gzip.compress(archive, compresslevel=1))
    part.rename(target)
