"""A simulated machine of a benchmark's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.sim.fuse import write_snapshot
from vgpumgr.sim.machine import create_machine, running_machine
from vgpumgr.sim.pcibus import PciBus
from vgpumgr.sim.tree import MachineTree

NAME = "dgx-a100"


@contextmanager
def simulated(name: str = NAME, text: str | None = None) -> Iterator[Machine]:
    """A DGX A100, or a machine by its description, whose ``/sys`` is plain files, and a libvirt of libvirt's own for
    tests.
    """
    with (
        tempfile.TemporaryDirectory(prefix="vgb", dir="/tmp") as directory,
        mock.patch.dict(os.environ, VGPUMGR_SIM_ROOT=directory),
    ):
        data = None
        if text is not None:
            data = Path(directory) / "machine.toml"
            data.write_text(text)
        machine_dir = create_machine(name, data)
        bus = PciBus.of(running_machine(name).functions())
        write_snapshot(MachineTree(bus, {}, {}).root(), machine_dir / "root")
        with (machine_dir / "env").open("a") as env:
            env.write("VGPUMGR_LIBVIRT_URI=test:///default\n")
        yield find_machine(name)
