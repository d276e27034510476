"""Steps and plans: one change of the host each, and the order in which they are made.

A step is a value. The journal stores what ``encode`` makes of it before it is done, and
``decode_step`` gives it back after a crash: both come from its fields. A registry maps each kind to
its class; a class without a kind of its own cannot be constructed.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from vgpumgr.errors import JournalError, VgpumgrError
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.frozen import dataclass

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext

#: the package whose modules define the steps
_PACKAGE = "vgpumgr.steps"
#: metadata of a field that the journal keeps and the step's public ``target`` does not show
PRIVATE = {"shown": ""}
#: of the VM's name and of an attachment's id, which ``target`` calls otherwise
SHOWN_AS_VM, SHOWN_AS_ID, SHOWN_AS_ATTACHMENT = (
    {"shown": name} for name in ("vm", "id", "attachment")
)
_KINDS: dict[str, type[Step]] = {}


class NothingDoneError(Exception):
    """Raised by ``do`` around the real error where it is certain that nothing was changed."""

    def __init__(self, error: VgpumgrError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Step(ABC):
    """One change of the host. Planning makes steps; nothing happens before ``do``.

    Fields hold names that exist before the thing does (a GPU's UUID, a profile, a placement, an
    address), no snapshots. ``do`` and ``undo`` are restartable: what is already so is no error.
    ``undo`` also cleans up after a ``do`` that failed half-way. All three may raise any VgpumgrError.
    """

    #: a fixed name for programs: ``mig.gi.create``
    kind: ClassVar[str] = ""
    #: whether a helper process does it, which may outlive the command
    by_helper: ClassVar[bool] = False
    #: whether it records what the other steps do: it is not undone while anything of them is left,
    #: for recovery would not know whose that is
    is_account: ClassVar[bool] = False
    #: whether a boot ends what it is about: afterwards another one may stand in its place
    ends_with_boot: ClassVar[bool] = False
    #: of a step of a detach: kinds of an attach's steps that it takes back; empty: whatever was done
    takes_back: ClassVar[tuple[str, ...]] = ()

    #: the attachment that it is a step of, where a plan is about several
    of: str | None = field(default=None, kw_only=True, metadata=PRIVATE)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        kind = cls.__dict__.get("kind")
        if kind is not None and _KINDS.setdefault(kind, cls) is not cls:
            raise TypeError(f"step kind {kind} belongs to {_KINDS[kind].__qualname__} already")

    def __post_init__(self) -> None:
        if _KINDS.get(self.kind) is not type(self):
            raise TypeError(f"{type(self).__qualname__} has no kind: it could not be read back")

    @property
    def target(self) -> Mapping[str, object]:
        """What it is done to, as JSON-able values for documents; by default all its fields."""
        shown = ((f.metadata.get("shown", f.name), getattr(self, f.name)) for f in fields(self))
        return {name: encode(value) for name, value in shown if name}

    @abstractmethod
    def describe(self) -> str:
        """What it does, for people: ``create 1g.10gb at 0:1 on GPU 0``."""

    @abstractmethod
    def do(self, context: OperationContext) -> None:
        """Makes the change and reads it back."""

    @abstractmethod
    def undo(self, context: OperationContext) -> None:
        """Takes it back."""

    @abstractmethod
    def observe(self, context: OperationContext) -> bool:
        """Whether the host shows the change, or any part of it."""

    def encode(self) -> dict[str, object]:
        """The step as the journal keeps it; fields with their default value are left out."""
        values = ((f, getattr(self, f.name)) for f in fields(self))
        said = {
            f.name: encode(value)
            for f, value in values
            if f.default is MISSING or value != f.default
        }
        return {"kind": self.kind, **said}

    def as_dict(self) -> dict[str, Any]:
        """The step as documents show it."""
        target = dict(self.target) if self.of is None else {**self.target, "of": self.of}
        return {"kind": self.kind, "target": target, "description": self.describe()}


class OneWayStep(Step):
    """A step that is not taken back: a detach goes on, and what is only waited for or noted does no harm."""

    def undo(self, context: OperationContext) -> None:
        """Nothing."""


def find_step_class(kind: str) -> type[Step]:
    """The class of a kind; the modules that define steps are imported when one is asked for that is
    not known yet. Raises JournalError.
    """
    if kind not in _KINDS:
        for module in pkgutil.iter_modules(import_module(_PACKAGE).__path__):
            import_module(f"{_PACKAGE}.{module.name}")
    try:
        return _KINDS[kind]
    except KeyError:
        raise _unreadable(f"no step is called {kind!r}") from None


def decode_step(row: Mapping[str, Any]) -> Step:
    """The step that ``encode`` made the row from. Raises JournalError."""
    values = dict(row)
    step_class = find_step_class(str(values.pop("kind", None)))
    try:
        return decode(step_class, values)
    except ValueError as error:
        raise _unreadable(str(error)) from error


def _unreadable(cause: str) -> JournalError:
    return JournalError(
        "cannot read a step in the journal",
        cause=cause,
        why="another version of vgpumgr wrote it",
        hint="vgpumgr recover, with the version that began the operation",
    )


class OnFailure(StrEnum):
    """What a failing step means for those before it."""

    UNDO = "undo"
    #: a detach goes on from where it stopped when it is repeated; nothing is put back
    STOP = "stop"


@dataclass(frozen=True)
class Plan:
    """An operation's steps in order, with what a user should know before."""

    operation: str
    subject: str
    steps: tuple[Step, ...]
    on_failure: OnFailure = OnFailure.UNDO
    notes: tuple[str, ...] = ()
    result: Mapping[str, object] = field(default_factory=dict)
    #: what to try where undoing fails; None: a detach of the subject
    repair: str | None = None
    #: of a plan that stops on failure: so many of its first steps are undone where one of them fails
    revocable: int = 0

    def encode(self) -> dict[str, object]:
        """The plan as the journal keeps it."""
        return {
            "operation": self.operation,
            "subject": self.subject,
            "on_failure": str(self.on_failure),
            "result": dict(self.result),
            "steps": [step.encode() for step in self.steps],
        }
