"""What a VM needs to use a ``forward`` attachment: the agent, the CUDA shims, a unit, a loader
path.

The files come from the native part (``_lib/guest``) and the templates (``_lib/templates/guest``).
"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

SHIMS = ("libcuda.so.1", "libcudart.so.12", "libcudart.so.13")
LIBRARY_DIRECTORY = "usr/lib/vgpumgr"


def guest_files(library_directory: Path) -> dict[str, Path]:
    """The guest package: path in the guest (relative to its root) to the file here.

    ``library_directory`` is the native part's, ``vgpumgr/_lib``. Raises ``FileNotFoundError`` if a
    part is not built.
    """
    built, templates = library_directory / "guest", library_directory / "templates" / "guest"
    files = {f"{LIBRARY_DIRECTORY}/{name}": built / name for name in SHIMS}
    files["usr/sbin/vgpumgr-guestd"] = built / "vgpumgr-guestd"
    files["usr/lib/systemd/system/vgpumgr-guestd.service"] = templates / "vgpumgr-guestd.service"
    files["etc/ld.so.conf.d/vgpumgr.conf"] = templates / "vgpumgr.conf"
    files["install.sh"] = templates / "install.sh"
    for source in files.values():
        if not source.is_file():
            raise FileNotFoundError(source)
    return files


def write_archive(library_directory: Path, target: Path) -> list[str]:
    """Write the package as ``.tar.gz``; returns the paths in it. Same input, same bytes.

    Raises ``OSError`` if the target cannot be written, ``FileNotFoundError`` as ``guest_files``
    does.
    """
    files = guest_files(library_directory)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, source in sorted(files.items()):
            archive.addfile(entry(name, source), io.BytesIO(source.read_bytes()))
    target.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return sorted(files)


def entry(name: str, source: Path) -> tarfile.TarInfo:
    """The archive's header for one file: root's, without times."""
    info = tarfile.TarInfo(f"vgpumgr-guest/{name}")
    info.size = source.stat().st_size
    executable = name.startswith(("usr/sbin/", "install.sh", LIBRARY_DIRECTORY))
    info.mode = 0o755 if executable else 0o644
    info.uname = info.gname = "root"
    return info
