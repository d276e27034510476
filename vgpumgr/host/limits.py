"""Limits of this process, open files and address space: raised where allowed, checked before a change begins."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from vgpumgr.errors import HostResourceError

#: what an operation opens at once, and some for a worker that inherits the limit
NEEDED_DESCRIPTORS = 48
#: below that libvirt's library crashes while it is loaded
NEEDED_ADDRESS_SPACE_BYTES = 160 << 20
DESCRIPTORS = 1024


def raise_descriptor_limit(wanted: int = DESCRIPTORS) -> None:
    """Raises the soft limit to ``wanted``, as far as the hard limit allows; what is started later inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def read_descriptor_limit() -> int:
    """The number of descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def check_limits() -> None:
    """Checks that a change can be carried through with this process's limits. Raises HostResourceError."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        _check_descriptors(soft)
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and space < NEEDED_ADDRESS_SPACE_BYTES:
        raise HostResourceError(
            "not enough memory for a change",
            cause=f"RLIMIT_AS: this process may use {space >> 20} MiB of addresses",
            why=f"vgpumgr needs {NEEDED_ADDRESS_SPACE_BYTES >> 20} MiB; nothing was changed",
            hint="ulimit -v unlimited; for a systemd unit LimitAS=infinity",
        )


def _check_descriptors(soft: int) -> None:
    try:
        # the listing itself opens one
        used = len(list(Path("/proc/self/fd").iterdir())) - 1
    except OSError:
        used = soft
    if soft - used < NEEDED_DESCRIPTORS:
        raise HostResourceError(
            "not enough open files for a change",
            cause=f"RLIMIT_NOFILE: this process may have {soft} files open, and has {used}",
            why=f"vgpumgr needs {NEEDED_DESCRIPTORS} more; nothing was changed",
            hint="ulimit -n 1024; for a systemd unit LimitNOFILE=1024",
        )
