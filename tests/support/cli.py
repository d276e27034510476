"""Running command lines in this process, against an application on given GPUs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.application import Application
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.cli.main import main
from vgpumgr.cli.session import Backend, GlobalOptions, Session, Streams
from vgpumgr.host.machine import Machine
from vgpumgr.model.slice import SliceOwner
from vgpumgr.server.requests import read_hints


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
        yield CheckedBackend(Application(machine, self.nvml, self.owners))


class CheckedBackend(LocalBackend):
    """Holds every document against its declaration, as the API's clients may."""

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        data = super().call(operation, **params)
        method = getattr(type(self._application), operation)
        read_hints(method)["return"].from_data(data)
        return data


class FixedWidth(Streams):
    """A terminal of a width that the test chose."""

    columns = 100

    @property
    def width(self) -> int:
        return self.columns
