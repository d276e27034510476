"""The application in this process: what a command uses while no daemon answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vgpumgr.daemon.application import Application
from vgpumgr.daemon.managing import open_managing
from vgpumgr.host.machine import find_machine
from vgpumgr.nvml.client import NvmlClient


@contextmanager
def open_application(machine_name: str | None) -> Iterator[Application]:
    """The application for the machine of that name (None: as the environment says)."""
    machine = find_machine(machine_name)
    with NvmlClient(machine) as nvml, open_managing(machine, nvml) as application:
        yield application
