"""Where the native part lies: programs for the host, libraries for guests and for simulated
machines.
"""

from __future__ import annotations

from pathlib import Path

from vgpumgr.errors import LibraryNotFoundError
from vgpumgr.host.machine import LIB_DIR


def find_host_program(name: str, lib_dir: Path = LIB_DIR) -> Path:
    """A compiled program for the host (``_lib/bin``). Raises LibraryNotFoundError."""
    return _find(lib_dir / "bin" / name)


def find_guest_file(name: str, lib_dir: Path = LIB_DIR) -> Path:
    """A shim or program for guests (``_lib/guest``). Raises LibraryNotFoundError."""
    return _find(lib_dir / "guest" / name)


def _find(path: Path) -> Path:
    if not path.is_file():
        raise LibraryNotFoundError(
            f"the native part {path.name} is not installed",
            cause=f"{path}: no such file",
            hint="./run setup",
        )
    return path
