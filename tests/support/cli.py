"""Running command lines in this process, against an application on given GPUs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tests.support.clock import FakeClock
from tests.support.fake_channels import FakeChannels
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.application import Application, find_operation
from vgpumgr.app.context import Parts
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.cli.main import main
from vgpumgr.cli.session import Backend, GlobalOptions, Session, Streams
from vgpumgr.host.machine import Machine
from vgpumgr.model.attachment import AttachmentRecord, SliceOwner
from vgpumgr.model.gpu import Drain
from vgpumgr.model.health import GpuHealth
from vgpumgr.model.mig import DesiredLayout
from vgpumgr.nvml.client import complete_inventory, read_machine_inventory
from vgpumgr.server.routes import read_hints


class Terminal(io.StringIO):
    """Looks like a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Owners:
    """Remembers what the test says."""

    entries: Sequence[SliceOwner] = ()

    def list_owners(self) -> Sequence[SliceOwner]:
        return self.entries


@dataclass(frozen=True)
class Result:
    """What a command line did."""

    code: int
    out: str
    err: str


@dataclass
class Cli:
    """A command line on a machine whose NVML and /sys the test made."""

    nvml: FakeNvml
    root: Path
    owners: Owners = field(default_factory=Owners)
    width: int = 100

    def run(self, *words: str, terminal: bool = False) -> Result:
        """One command, as typed."""
        out = Terminal() if terminal else io.StringIO()
        err = io.StringIO()
        options = GlobalOptions()
        environ = {"NO_COLOR": "1"} if terminal else {}
        streams = FixedWidth(options, out, err, environ)
        streams.columns = self.width
        code = main(words, Session(options, streams, self.open_backend))
        return Result(code, out.getvalue(), err.getvalue())

    @contextmanager
    def open_backend(self, _options: GlobalOptions) -> Iterator[Backend]:
        """The application of this machine."""
        machine = Machine("test", self.root, self.root, self.root, "test:///default")
        yield CheckedBackend(Application(machine, make_parts(machine, self.nvml, self.owners)))


class _OwnerStore:
    """Remembers no attachment, but the owners that the test gave."""

    def __init__(self, owners: Owners) -> None:
        self.list_owners = owners.list_owners

    def list_attachments(self) -> Sequence[AttachmentRecord]:
        return ()

    def list_drains(self) -> Sequence[Drain]:
        return ()

    def list_health(self) -> Sequence[GpuHealth]:
        return ()

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        return {}


def make_parts(machine: Machine, nvml: FakeNvml, owners: Owners) -> Parts:
    """The parts of a machine with GPUs, and nothing else."""
    return Parts(
        nvml=nvml,
        read_inventory=lambda: read_machine_inventory(nvml, machine),
        complete_inventory=lambda inventory: complete_inventory(inventory, machine),
        hypervisor=FakeHypervisor([]),
        channels=FakeChannels(machine.run_dir / "channels"),
        store=cast(Any, _OwnerStore(owners)),
        clock=FakeClock(),
        state_dir=machine.state_dir,
        run_dir=machine.run_dir,
        boot_id="test",
        is_privileged=True,
    )


class CheckedBackend(LocalBackend):
    """Holds every document against its declaration, as the API's clients may."""

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        data = super().call(operation, **params)
        read_hints(find_operation(operation))["return"].from_data(data)
        return data


class FixedWidth(Streams):
    """A terminal of a width that the test chose."""

    columns = 100

    @property
    def width(self) -> int:
        return self.columns
