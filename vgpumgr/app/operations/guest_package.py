"""The operation that writes the archive for VMs."""

from __future__ import annotations

from pathlib import Path

from vgpumgr.app.documents.attachments import GuestPackageDocument
from vgpumgr.errors import FileWriteError, LibraryNotFoundError
from vgpumgr.host.machine import LIB_DIR
from vgpumgr.virtio.guest_package import guest_files, write_archive


def write_guest_package(target: str) -> GuestPackageDocument:
    """Writes agent, shims and unit as one archive. Raises LibraryNotFoundError, FileWriteError."""
    try:
        guest_files(LIB_DIR)
    except FileNotFoundError as error:
        raise LibraryNotFoundError(
            "the guest part of vgpumgr is not installed", cause=str(error), hint="./run setup"
        ) from error
    try:
        files = write_archive(LIB_DIR, Path(target))
    except OSError as error:
        raise FileWriteError(f"cannot write {target}", cause=str(error)) from error
    return GuestPackageDocument(path=target, files=files)
