"""The lab host's initial file system, and the small programs that run in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.guest import image

HERE = Path(__file__).parent
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")
DIRECTORIES = ("bin", "modules", "proc", "sys", "dev", "lower", "rw", "new")


def modules_root() -> Path:
    """The directory that stands for ``/`` before ``lib/modules``."""
    return image.cache() / "kernel"


def build_image() -> Path:
    """busybox, ``init`` and the modules that reach the root file system, as a gzip'ed cpio archive; cached."""
    modules = list_modules()
    key = image.content_key({"/init": HERE / "init"} | {m.name: m for m in modules}, {})
    target = image.cache() / "guest-images" / f"lab-{key}.gz"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "root"
        for directory in DIRECTORIES:
            (tree / directory).mkdir(parents=True)
        shutil.copy("/bin/busybox", tree / "bin/busybox")
        shutil.copy(HERE / "init", tree / "init")
        (tree / "init").chmod(0o755)
        for number, module in enumerate(modules, 10):
            shutil.copy(module, tree / "modules" / f"{number}-{module.name}")
        image.pack(tree, target)
    return target


def list_modules() -> list[Path]:
    """The modules' files in loading order."""
    version = (modules_root() / "version").read_text().strip()
    found = []
    for name in MODULES:
        done = subprocess.run(
            ["modprobe", "-d", str(modules_root()), "-S", version, "--show-depends", name],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found += [Path(line.split()[1]) for line in done.stdout.splitlines() if "insmod" in line]
    return image.unique(found)


def build_hold() -> Path:
    """``vfio_hold.c``, statically linked; cached."""
    source, target = HERE / "vfio_hold.c", image.cache() / "vfio-hold"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        part = target.with_suffix(f".{os.getpid()}")
        words = ["gcc", "-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(part)]
        subprocess.run([*words, str(source)], check=True)
        part.rename(target)
    return target
