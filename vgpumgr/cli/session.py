"""What a command is handed: its streams, the global options and a way to the application. Commands
import no globals. Also the options that several verbs share, and how a line asks to print.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, TextIO

import typer
from typer import Context, Option

from vgpumgr.errors import UsageError, VgpumgrError
from vgpumgr.model.choices import (
    MAX_PARTS,
    PROFILE_WORDS,
    BackendChoice,
    ComputePolicy,
    Display,
    Priority,
    Transport,
)
from vgpumgr.model.frozen import dataclass


class Color(StrEnum):
    """``--color``."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(slots=True)
class GlobalOptions:
    """The options of every command, as far as the line is read; ``verbosity`` is -1 for --quiet."""

    machine: str | None = None
    color: Color = Color.AUTO
    verbosity: int = 0
    debug: bool = False
    host: str | None = None
    hosts: tuple[str, ...] = ()
    host_is_given: bool = False
    #: a daemon's operation is begun, and not waited for
    no_wait: bool = False
    #: the line without the program's name, and without what is behind ``--``
    words: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> GlobalOptions:
        """The options that the environment sets."""
        return cls(
            machine=environ.get("VGPUMGR_MACHINE") or None,
            debug=bool(environ.get("VGPUMGR_DEBUG")),
            host=environ.get("VGPUMGR_HOST") or None,
        )

    def update(self, values: Mapping[str, Any]) -> None:
        """Adds the options that one level of the line gives. Raises UsageError.

        ``--hosts`` on the line precedes VGPUMGR_HOST; beside ``--host`` it has no meaning.
        """
        given = {name: value for name, value in values.items() if value not in (None, False, 0)}
        for name in ("machine", "host", "hosts"):
            # an unset variable of a script must not mean "this machine"
            if name in given and not given[name].strip(","):
                raise UsageError(
                    f"--{name} needs a value, and this one is empty", hint="vgpumgr --help"
                )
        self.machine = given.get("machine", self.machine)
        self.host = given.get("host", self.host)
        self.host_is_given |= "host" in given
        if "hosts" in given:
            self.hosts = tuple(host for host in given["hosts"].split(",") if host)
        if self.hosts and self.host_is_given:
            raise UsageError("--host and --hosts contradict each other", hint="one of them")
        if self.hosts:
            self.host = None
        self.color = Color(given.get("color", self.color))
        self.verbosity = -1 if "quiet" in given else self.verbosity + given.get("verbose", 0)
        self.debug |= "debug" in given


def _open_nowhere() -> TextIO:
    """For a stream that the caller has closed (``>&-``)."""
    return Path(os.devnull).open("w")


class Streams:
    """Where a command writes. Data goes to ``out``, all else to ``err``. A terminal gets tables and
    colour, a pipe plain text.
    """

    def __init__(
        self,
        options: GlobalOptions,
        out: TextIO | None = None,
        err: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.out = out or sys.stdout or _open_nowhere()
        self.err = err or sys.stderr or _open_nowhere()
        self._environ = os.environ if environ is None else environ
        self._options = options

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads standard output."""
        return self.out.isatty()

    @property
    def is_quiet(self) -> bool:
        """Whether --quiet leaves out remarks."""
        return self._options.verbosity < 0

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        import shutil

        return shutil.get_terminal_size((100, 24)).columns

    def has_color(self, stream: TextIO) -> bool:
        """Whether to colour a stream: --color, then NO_COLOR, then whether it is a terminal."""
        if self._options.color is not Color.AUTO:
            return self._options.color is Color.ALWAYS
        if self._environ.get("NO_COLOR") or self._environ.get("TERM") == "dumb":
            return False
        return stream.isatty()

    def address(self, text: str) -> str:
        """A hint whose commands name the machine or host, where the line named one."""
        from vgpumgr.cli.commands import address

        return address(text, "".join(f"{name} {value} " for name, value in self._list_targets()))

    def _list_targets(self) -> Iterator[tuple[str, str]]:
        """What the environment sets counts for the next command as well."""
        for name in ("machine", "host"):
            value = getattr(self._options, name)
            if value and value != self._environ.get(f"VGPUMGR_{name.upper()}"):
                yield f"--{name}", value

    def print(self, text: str) -> None:
        """Data, with a newline."""
        self.out.write(text + "\n")

    def note(self, text: str) -> None:
        """A remark on standard error; --quiet leaves it out."""
        if not self.is_quiet:
            self.err.write(text + "\n")

    def show_progress(self, step: str, word: str = "do") -> None:
        """The step that runs, in a line of a terminal's standard error; the next one takes its place, and an
        empty one clears it.
        """
        text = f"undoing: {step}" if word == "undo" else step
        if self._options.verbosity >= 0 and self.err.isatty():
            self.err.write(f"\r\x1b[K{text[: self.width - 1]}")
            self.err.flush()


class OperationBegun(typer.Exit):
    """The end of a command that does not wait for its operation."""

    def __init__(self, operation: dict[str, Any]) -> None:
        super().__init__()
        self.operation = operation


class Backend(Protocol):
    """The application, in this process or behind the daemon's socket."""

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """Answers an operation's document. Raises VgpumgrError."""


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the program."""

    options: GlobalOptions
    streams: Streams
    open_backend: Callable[[GlobalOptions], AbstractContextManager[Backend]]

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """One operation and its document."""
        with self.open_backend(self.options) as backend:
            return backend.call(operation, **params)

    def check_here(self, what: str) -> None:
        """For commands about this host alone. Raises UsageError where the line names other hosts; one
        that the environment names is ignored.
        """
        host = self.options.host
        if self.options.hosts or (host and host != os.environ.get("VGPUMGR_HOST")):
            raise UsageError(
                f"{what} is about this host only", hint="the same there, by ssh; or without --host"
            )


def get_session_here(context: Context, command: str) -> Session:
    """The session of a command about this host alone, such as of the pool that it is in. Raises UsageError."""
    session = get_session(context)
    session.check_here(f"vgpumgr {command}")
    return session


def get_session_at_one(context: Context, command: str) -> Session:
    """The session of a command about one pool, of this host or another. Raises UsageError for several hosts."""
    session = get_session(context)
    if session.options.hosts:
        raise UsageError(f"vgpumgr {command} is about one pool", hint="--host NAME")
    return session


def get_session(context: Context) -> Session:
    """The session in typer's context."""
    session = context.obj
    if not isinstance(session, Session):
        raise TypeError(f"no session in the context: {session!r}")
    return session


def get_streams(context: Context) -> Streams:
    """The streams of the session in typer's context."""
    return get_session(context).streams


def call(context: Context, operation: str, **params: Any) -> dict[str, Any]:
    """One operation and its document."""
    return get_session(context).call(operation, **params)


def get_verbosity(context: Context, *, dry_run: bool) -> int:
    """-1 for --quiet, 1 and more for -v. A dry run prints its plan in any case."""
    verbosity = get_session(context).options.verbosity
    return max(verbosity, 0) if dry_run else verbosity


def confirm(
    streams: Streams, question: str, refusal: VgpumgrError, lines: Iterable[str] = ()
) -> None:
    """Asks on standard error. Anything but yes ends the command as Ctrl-C does. Raises ``refusal``
    without a terminal: the command changes nothing.
    """
    if not streams.is_terminal:
        raise refusal
    streams.err.writelines(f"{line}\n" for line in lines)
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort as error:
        raise KeyboardInterrupt("not confirmed; nothing was done") from error


class Format(StrEnum):
    """``-o``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"
    NAME = "name"


#: formats that give the whole document to a program
DOCUMENTS = (Format.JSON, Format.YAML)


class Layout(NamedTuple):
    """How to print: the options of a verb."""

    format: Format | None = None
    columns: str | None = None
    no_header: bool = False
    sort_by: str | None = None
    filters: Sequence[str] | None = None
    #: seconds after which a list is printed again
    watch_s: float | None = None

    @property
    def is_default(self) -> bool:
        """Whether the line asks for nothing of a list."""
        return self.format is None and self.sort_by is None and not self.filters


def set_layout(context: Context, layout: Layout) -> None:
    """Keeps how to print in typer's context."""
    context.meta[Layout.__name__] = layout


def get_layout(context: Context) -> Layout:
    """How the line asks to print."""
    layout: Layout = context.meta[Layout.__name__]
    return layout


def get_format(context: Context) -> Format | None:
    """``-o`` of the line."""
    return get_layout(context).format


def number(
    kind: type[int] | type[float], low: float | None = None, high: float | None = None
) -> Callable[[str], float]:
    """A reader of numbers from ``low`` to ``high``. Its errors are the same with every typer."""
    name = "whole number" if kind is int else "number"

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a {name}") from None
        # so that nan is outside, too
        below = low is not None and not value >= low
        above = high is not None and not value <= high
        if (below or above) and low is not None and high is not None:
            raise typer.BadParameter(f"{text} is not from {low} to {high}")
        if below or above:
            raise typer.BadParameter(
                f"{text} is less than {low}" if below else f"{text} is more than {high}"
            )
        return value

    return read


def choose_wanted(
    profile: str | None, equal: int | None, claim: str | None, verb: str
) -> dict[str, str]:
    """What ``--profile``, ``--equal`` or ``--claim`` asks for. Raises UsageError where several or none are given."""
    if claim is None:
        return {"profile": choose_profile(profile, equal, verb)}
    if profile is not None or equal is not None:
        raise UsageError(
            f"--claim and {'--profile' if equal is None else '--equal'} contradict each other",
            why="the claim's lease says what it gets",
            hint=f"--claim {claim} alone",
        )
    return {"claim": claim}


def choose_profile(profile: str | None, equal: int | None, verb: str) -> str:
    """What ``--profile`` or ``--equal`` asks for. Raises UsageError where both or none are given."""
    if profile is not None and equal is not None:
        raise UsageError(
            "--profile and --equal contradict each other",
            why=f"--equal {equal} is --profile share:1/{equal}",
            hint="one of them",
        )
    if equal is not None:
        return f"share:1/{equal}"
    if profile is None:
        raise UsageError("missing option '--profile'", hint=f"vgpumgr {verb} --help")
    return profile


Output = Annotated[
    Format | None,
    Option("-o", "--output", help="How to print; the default depends on the terminal."),
]
Columns = Annotated[
    str | None, Option("--columns", metavar="A,B", help="Which columns, in which order.")
]
NoHeader = Annotated[bool, Option("--no-header", help="No line with the columns' names.")]
SortBy = Annotated[
    str | None,
    Option("--sort", metavar="A,-B", help="By which columns; - in front: the largest first."),
]
Filters = Annotated[
    list[str] | None,
    Option(
        "--filter",
        metavar="COLUMN=VALUE",
        help="Only rows with this value; * stands for anything, nothing for none; several.",
    ),
]
Watch = Annotated[
    float | None,
    Option(
        "--watch",
        metavar="[SECONDS]",
        parser=number(float, 0.1, 86400),
        help="Print again every 2 seconds, or so many, until Ctrl-C.",
    ),
]
GpuOption = Annotated[
    str | None,
    Option("--gpu", metavar="GPU", help="Index, UUID or unique prefix, bus address, MIG UUID."),
]
LimitOption = Annotated[
    list[str] | None,
    Option(
        "--limit",
        metavar="KEY=VALUE",
        help="At most so much, as device-memory=8GiB; KEY=none for no limit; several. docs/limits.md",
    ),
]
PolicyOption = Annotated[
    ComputePolicy | None,
    Option(
        "--compute-policy",
        help="Of a share: a weight, so that idle time of others is used (burst, the default), the most "
        "at any time (fixed), or a weight that no time is reserved for (best-effort).",
    ),
]
PriorityOption = Annotated[
    Priority | None,
    Option(
        "--priority",
        help="Of a share: a higher one gets its turns first while it is within its percentage; the "
        "default is normal.",
    ),
]
ClaimOption = Annotated[
    str | None,
    Option(
        "--claim",
        metavar="CLAIM",
        help="A claim of the pool, whose lease on this host says what it gets, in the place of --profile.",
    ),
]
EqualOption = Annotated[
    int | None,
    Option(
        "--equal",
        metavar="N",
        parser=number(int, 1, MAX_PARTS),
        help="One of N equal shares of a GPU, or of the MIG instance that --gpu names, in the place of --profile.",
    ),
]
UnconfinedOption = Annotated[
    bool,
    Option(
        "--allow-unconfined",
        help="Trust the programs with this host: where it can build no sandbox, go without. SECURITY.md",
    ),
]
DryRun = Annotated[
    bool, Option("--dry-run", help="Print the plan, do nothing; exit code 0, or the refusal's.")
]
NoWait = Annotated[
    bool, Option("--no-wait", help="Print the operation's id as soon as the daemon has begun it.")
]


OutFile = Annotated[
    str | None,
    Option("--out", metavar="FILE", help="Where to write it; - is standard output."),
]
Yes = Annotated[bool, Option("-y", "--yes", help="Do not ask.")]


PROFILE_HELP = (
    "What it gets: a MIG profile (1g.10gb), a vGPU type by name or id (A100-4C, nvidia-471), "
    f"{', '.join(PROFILE_WORDS.values())}."
)
BackendOption = Annotated[
    BackendChoice,
    Option(
        "--backend",
        help="How it reaches the VM; auto explains its choice: forward for MIG profiles, "
        "else what the profile needs.",
    ),
]
TransportOption = Annotated[
    Transport, Option("--transport", help="Shared memory, virtio-serial, or both.")
]
DisplayOption = Annotated[
    Display,
    Option(
        "--display",
        help="Of a mediated device: none, a screen, or the screen from the firmware on (ramfb).",
    ),
]
