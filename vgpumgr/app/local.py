"""The application in this process: what a command uses while no daemon answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vgpumgr.errors import LockHeldError
from vgpumgr.host.limits import check_limits, raise_descriptor_limit
from vgpumgr.host.lock import find_holder
from vgpumgr.host.machine import find_machine
from vgpumgr.nvml.client import NvmlClient

if TYPE_CHECKING:
    from vgpumgr.app.application import Application

DAEMON_LOCK = "daemon.lock"


@contextmanager
def open_application(machine_name: str | None) -> Iterator[Application]:
    """The application for the machine of that name (None: as the environment says)."""
    # what is started here (a channel's worker) inherits it
    raise_descriptor_limit()
    machine = find_machine(machine_name)
    with NvmlClient(machine) as nvml:
        # NVML's helper loads the driver's library while the application is loaded here
        nvml.start_early()
        from vgpumgr.app.managing import open_managing

        with open_managing(machine, nvml) as application:
            yield application


def check_change(run_dir: Path) -> None:
    """Checks what every change in this process needs. Raises LockHeldError, HostResourceError."""
    check_limits()
    check_no_daemon(run_dir)


def check_no_daemon(run_dir: Path) -> None:
    """A daemon is the only writer. Raises LockHeldError that names it.

    One that starts behind this check is harmless: each change holds the machine's own lock, too.
    """
    path = run_dir / DAEMON_LOCK
    holder = find_holder(path)
    if holder is not None:
        raise LockHeldError(
            "a daemon owns this machine, and does not answer",
            cause=f"flock {path}: held",
            held_by=[holder],
            hint="systemctl restart vgpumgr",
        )
