"""What the description of the forwarded calls says, as frozen values: no files, no output.

:mod:`parse` makes these from YAML, :mod:`check` judges them, and each ``emit_*`` module is one visitor over them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class SpecError(Exception):
    """A description that cannot be generated from; the text begins with ``file:line:``."""

    def __init__(self, where: Where, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where
        self.message = message


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the description."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class CallClass(StrEnum):
    """How a call travels; see docs/wire-format.md."""

    LOCAL = "local"
    QUIET = "quiet"
    CACHED = "cached"
    SYNC = "sync"


class Kind(StrEnum):
    """The encodings of a field on the wire."""

    U64 = "u64"
    U32 = "u32"
    I32 = "i32"
    F32 = "f32"
    BYTES = "bytes"
    STRING = "string"
    HANDLE = "handle"
    MINT = "mint"


SCALARS = frozenset({Kind.U64, Kind.U32, Kind.I32, Kind.F32})
BLOBS = frozenset({Kind.BYTES, Kind.STRING})


@dataclass(frozen=True, slots=True)
class HandleKind:
    """A table of objects: wire tag, C type, and how many one guest process may have."""

    name: str
    tag: int
    c_type: str
    cap: int
    where: Where = field(compare=False)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a payload. ``cap`` is the largest length in bytes of a blob, ``handle`` the kind of a handle."""

    name: str
    kind: Kind
    where: Where = field(compare=False)
    cap: int = 0
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Param:
    """One C parameter."""

    name: str
    c_type: str

    @property
    def pointee(self) -> str:
        """The type behind the last ``*``, or "" if this is no pointer."""
        return self.c_type.removesuffix("*").strip() if self.c_type.endswith("*") else ""


@dataclass(frozen=True, slots=True)
class Range:
    """Device memory that a parameter names: ``rows`` is empty for a plain range, else a pitched rectangle."""

    param: str
    count: str
    factor: int
    rows: str = ""
    pitch: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """What crosses the wire under one id."""

    name: str
    id: int
    call_class: CallClass
    request: tuple[Field, ...]
    reply: tuple[Field, ...]
    where: Where = field(compare=False)
    context: bool = False
    bulk: str = "none"
    blocking: bool = False
    #: puts work on the device's engines, so that a session of a share waits for its turn
    work: bool = False
    reply_always: bool = False
    run_after_error: bool = False
    worker_by_hand: bool = False
    ranges: tuple[Range, ...] = ()
    #: of a meaning that changed while the fields did not
    revision: int = 1

    @property
    def context_field(self) -> Field:
        """The word that the request begins with where the operation runs in a context."""
        return Field("context", Kind.HANDLE, self.where, handle="context")


@dataclass(frozen=True, slots=True)
class Function:
    """One exported C function. ``operation``: it has an id of its own; ``via``: it only adds a default stream;
    ``most``: the largest values of enumerations, which the guest checks.
    """

    name: str
    params: tuple[Param, ...]
    where: Where = field(compare=False)
    operation: str = ""
    outs: frozenset[str] = frozenset()
    most: tuple[tuple[str, int], ...] = ()
    via: str = ""
    hand: str = ""
    uses: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    generated_guest: bool = False

    @property
    def exports(self) -> tuple[str, ...]:
        """The names that this entry exports: itself and its per-thread default-stream variants."""
        return (self.name, *(f"{self.name}_{v}" for v in self.variants))


@dataclass(frozen=True, slots=True)
class Spec:
    """The whole description."""

    file: str
    schema: str
    revision: int
    header: str
    handles: tuple[HandleKind, ...]
    types: dict[str, Kind]
    retired: tuple[int, ...]
    operations: tuple[Operation, ...]
    functions: tuple[Function, ...]

    def handle(self, name: str) -> HandleKind:
        """The handle kind of that name; KeyError if there is none."""
        return {h.name: h for h in self.handles}[name]

    def operation(self, name: str) -> Operation:
        """The operation of that name; KeyError if there is none."""
        return {o.name: o for o in self.operations}[name]

    def class_of(self, function: Function) -> CallClass:
        """The class of a function: its operation's, or the slowest of those that it uses."""
        order = list(CallClass)
        names = function.uses or ((function.operation,) if function.operation else ())
        if function.via:
            return self.class_of(next(f for f in self.functions if f.name == function.via))
        return max(
            (self.operation(n).call_class for n in names), key=order.index, default=CallClass.LOCAL
        )
