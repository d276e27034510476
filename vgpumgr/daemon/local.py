"""The application in this process: what a command uses while no daemon answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vgpumgr.errors import LockHeldError
from vgpumgr.host.lock import lock_file
from vgpumgr.host.machine import find_machine
from vgpumgr.nvml.client import NvmlClient

if TYPE_CHECKING:
    from vgpumgr.daemon.application import Application

DAEMON_LOCK = "daemon.lock"


@contextmanager
def open_application(machine_name: str | None) -> Iterator[Application]:
    """The application for the machine of that name (None: as the environment says)."""
    machine = find_machine(machine_name)
    with NvmlClient(machine) as nvml:
        # NVML's helper loads the driver's library while the application is loaded here
        nvml.start_early()
        from vgpumgr.daemon.managing import open_managing

        with open_managing(machine, nvml) as application:
            yield application


def check_no_daemon(run_dir: Path) -> None:
    """A daemon is the only writer. Raises LockHeldError that names it.

    One that starts behind this check is harmless: each change holds the machine's own lock, too.
    """
    try:
        with lock_file(run_dir / DAEMON_LOCK, timeout_s=0):
            return
    except LockHeldError as error:
        raise LockHeldError(
            "a daemon owns this machine, and does not answer",
            cause=error.cause,
            held_by=error.held_by,
            hint="systemctl restart vgpumgr",
        ) from error
