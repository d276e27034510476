"""The one recovery: all operations that the journal has without an end, of every family, newest first.

A family of operations (attachments, layouts, PCI functions, vGPUs) contributes one ``Family``. What cannot be
recovered is reported, and hinders only what collides with it: older operations on the same place, and later plans
(see ``transaction``). An operation is left, too, where this version cannot read one of its steps: the others still
count. A helper process that still runs makes an operation wait, for it may yet do the last step of the operation.

Claims are what a step takes for itself on the host: a place on a GPU, a PCI function, a vGPU. They are read from
the step as the journal has it, whatever the family of its operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from functools import cached_property
from typing import Any, Protocol, cast

from vgpumgr.engine.journal import Contents, Event, Journal
from vgpumgr.engine.step import NothingDoneError, Step, decode_step
from vgpumgr.errors import JournalError, OutcomePendingError, VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.model.frozen import dataclass

#: the kind of claims on a GPU or a place on it; its name is the GPU's UUID
GPU_CLAIM = "gpu"
#: steps that concern a whole GPU
_WHOLE = ("mig.mode.enable", "mig.mode.disable", "mdev.mixed-sizes")


@dataclass(frozen=True, slots=True)
class Claim:
    """``first`` and ``size`` are a place on a GPU; None: all of it. Two that are ``shared`` do not collide."""

    kind: str
    name: str
    first: int | None = None
    size: int = 0
    shared: bool = False
    #: of a GPU instance: its profile, where the step says it
    profile: str | None = None

    def collides(self, other: Claim) -> bool:
        """Whether not both can be had."""
        if (self.kind, self.name) != (other.kind, other.name) or (self.shared and other.shared):
            return False
        if self.first is None or other.first is None:
            return True
        return self.first < other.first + other.size and other.first < self.first + self.size


def list_claims(step: Step) -> Iterator[Claim]:
    """The claims of one step."""
    kind, target = step.kind, cast("Mapping[str, Any]", step.target)
    if kind.startswith("mig.") or kind in _WHOLE or kind == "attachment.take":
        yield from _list_gpu_claims(kind, target)
    elif kind.startswith(("passthrough.", "vf.")):
        row = target.get("binding", target)
        address = row.get("address", row.get("physical"))
        if address is not None:
            yield Claim("function", str(address))
        if row.get("gpu_uuid"):
            yield Claim(GPU_CLAIM, str(row["gpu_uuid"]))
    elif kind.startswith("mdev."):
        if target.get("uuid"):
            yield Claim("vgpu", str(target["uuid"]))
        if target.get("parent"):
            yield Claim("function", str(target["parent"]), shared=True)


def _list_gpu_claims(kind: str, target: Mapping[str, Any]) -> Iterator[Claim]:
    place = target.get("parent_placement") or target.get("placement")
    if kind in _WHOLE:
        yield Claim(GPU_CLAIM, str(target["gpu"]))
    elif place is not None:
        profile = target.get("profile") if kind.startswith("mig.gi.") else None
        first, size = int(place["start"]), int(place["size"])
        yield Claim(GPU_CLAIM, str(target["gpu"]), first, size, profile=profile)


def find_collision(wanted: Iterable[Claim], held: Iterable[Claim]) -> Claim | None:
    """The first that is wanted and held."""
    kept = list(held)
    return next((one for one in wanted if any(one.collides(other) for other in kept)), None)


def list_attachment_ids(plan: Mapping[str, Any]) -> Sequence[str | None]:
    """The attachments that a plan in the journal is about; None for one that is about none."""
    result = plan.get("result", {})
    found: Sequence[str | None] = result.get("attachments") or [result.get("attachment")]
    return found


def list_last_known(contents: Contents) -> dict[str, bool]:
    """Attachments that the journal knows, and whether they exist after their last operation."""
    known: dict[str, bool] = {}
    begun: dict[str, Mapping[str, Any]] = {}
    for event in contents.events:
        if event.event == "begin":
            begun[event.op] = event.data
        elif event.event == "end" and event.op in begun:
            plan = begun.pop(event.op)
            for attachment in list_attachment_ids(plan):
                exists = _exists_after(plan, event.data, attachment)
                if attachment and exists is not None:
                    known[attachment] = exists
    return known


def _exists_after(
    plan: Mapping[str, Any], end: Mapping[str, Any], attachment: str | None
) -> bool | None:
    operation = str(plan.get("operation"))
    exists = end.get("exists")
    if isinstance(exists, list):
        return attachment in exists
    if exists is not None:
        return bool(exists)
    outcome = end.get("outcome")
    if operation in ("attach", "run"):
        return outcome == "done"
    # a recovery without an operation to end: of a record alone
    forgets = any(step["kind"] == "attachment.forget" for step in plan.get("steps", ()))
    return False if forgets and outcome == "done" else None


#: a helper whose command was killed ends by itself when its call is done
ORPHAN_WAIT_S = 5.0
_POLL_S = 0.1
#: the operation of a recovery: what it was about is recovered before it
RECOVER = "recover"


@dataclass(frozen=True)
class Unfinished:
    """An operation that began and has no end; without ``op``, one that only a record tells of."""

    op: str
    operation: str
    subject: str
    events: tuple[Event, ...] = ()
    #: where it began in the journal: a later one may rest on what an earlier one made
    order: int = 0
    #: whether something stands behind the last whole line of the journal
    torn: bool = False
    #: of one that only a record tells of: the record's id
    about: str | None = None

    @property
    def boot(self) -> str:
        """In which it began."""
        return self.events[0].boot if self.events else ""

    @property
    def is_late(self) -> bool:
        """Whether its command has given a helper up; then waiting for that one again is of no use."""
        return any(event.event == "late" for event in self.events)

    @cached_property
    def _decoded(self) -> Sequence[Step | JournalError]:
        """Each step of its plan, or why it cannot be read."""
        rows = self.events[0].data.get("steps", ()) if self.events else ()
        return [_try_decode(row) for row in rows]

    @property
    def unreadable(self) -> JournalError | None:
        """Why a step of its plan cannot be read; None: all can."""
        return next((one for one in self._decoded if isinstance(one, JournalError)), None)

    @property
    def steps(self) -> list[Step]:
        """The steps of its plan, as far as they can be read."""
        return [one for one in self._decoded if isinstance(one, Step)]

    @property
    def begun(self) -> list[Step]:
        """The steps that may have happened, in order, as far as they can be read."""
        numbers = {int(e.data["step"]) for e in self.events if e.event == "intent"}
        found = (one for number, one in enumerate(self._decoded) if number in numbers)
        return [one for one in found if isinstance(one, Step)]

    @cached_property
    def claims(self) -> Sequence[Claim]:
        """What it may have taken, or may give back; a step that cannot be read claims nothing."""
        return [claim for step in self.begun for claim in list_claims(step)]


def _try_decode(row: Mapping[str, Any]) -> Step | JournalError:
    try:
        return decode_step(row)
    except JournalError as error:
        return error


@dataclass(frozen=True, slots=True)
class Report:
    """What was done about something, or why it was not."""

    subject: str
    text: str
    done: bool = True
    #: whether it only says what had ended by itself
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class Recovered:
    """How an operation ended: what its last line in the journal says."""

    reports: Sequence[Report] = ()
    outcome: str = "recovered"
    more: Mapping[str, Any] = field(default_factory=dict)
    #: False: the reports say what it waits for
    ended: bool = True

    @classmethod
    def describe(
        cls, subject: str, text: str, notes: Iterable[str] = (), outcome: str = "recovered"
    ) -> Recovered:
        """One that ended, with one report; ``notes`` are what its steps had to say."""
        return cls((Report(subject, "; ".join(dict.fromkeys((text, *notes)))),), outcome)


class Family(ABC):
    """What one family of operations knows about recovery."""

    def repair(self, contents: Contents) -> Iterable[Report]:  # noqa: ARG002 (as all defaults)
        """Repairs what is recorded, before any operation is recovered; nothing, usually."""
        return ()

    def list_more(self, contents: Contents) -> Sequence[Unfinished]:  # noqa: ARG002
        """Operations that only records tell of; usually all are in the journal."""
        return ()

    def describe(self, found: Unfinished) -> tuple[str, str]:
        """Subject and name, for reports: ``vm01``, ``the interrupted attach``."""
        return found.subject, f"the interrupted {found.operation}"

    @abstractmethod
    def may_wait_for(self, found: Unfinished, helper: str) -> bool:
        """Whether that helper process may be doing one of the operation's steps."""

    def concerns(self, found: Unfinished, subject: str) -> bool:  # noqa: ARG002
        """Whether it is about that VM or attachment; most are about none."""
        return False

    @abstractmethod
    def recover(self, found: Unfinished) -> Recovered:
        """Completes it or undoes it, by what is observed. All its steps can be read. May raise any VgpumgrError."""


class Families(Protocol):
    """The registry of families."""

    def find(self, operation: str) -> Family | None:
        """The family of an operation; None: not to be recovered now."""

    def list_all(self, contents: Contents) -> Sequence[Family]:
        """Families that have to repair something, or have operations that only records tell of."""


@dataclass
class Outcome:
    """What a recovery did and what it left."""

    reports: list[Report] = field(default_factory=list)
    #: operations that were left to the caller, which is about to end them
    spared: list[Unfinished] = field(default_factory=list)
    #: those that began before: they are recovered once the caller is through
    postponed: list[Unfinished] = field(default_factory=list)
    #: operations that could not be recovered
    left: list[Unfinished] = field(default_factory=list)
    #: why records could not be repaired; the operations were recovered all the same
    problems: list[VgpumgrError] = field(default_factory=list)

    def list_notes(self) -> list[str]:
        """For the answer of the command that recovered."""
        return [
            text if subject.lower() in text.lower() else f"{subject}: {text}"
            for subject, text in ((report.subject, report.text) for report in self.reports)
        ]


@dataclass
class Recovery:
    """One pass; the caller holds the machine's lock."""

    #: opened for each line: what recovers an operation writes lines of its own
    open_journal: Callable[[], Journal]
    boot_id: str
    clock: Clock
    list_late: Callable[[], Sequence[str]]
    families: Families
    spare: str | None = None
    outcome: Outcome = field(default_factory=Outcome)

    def run(self) -> Outcome:
        """Recovers everything but what concerns ``spare``, which the caller ends by itself; then what began before
        that is left, too, and the caller recovers once more.

        Raises:
            JournalFailedError: an fdatasync failed; only ``recover`` goes on from there.
            OutcomePendingError: ``spare`` itself waits for a helper process.
        """
        with closing(self.open_journal()) as journal:
            if journal.has_failed:
                raise journal.refusal()
            contents = self._read(journal)
        families = self.families.list_all(contents)
        for family in families:
            self._repair(family, contents)
        found = self._list_newest_first(contents, families)
        if found:
            self._recover_all(found)
        return self.outcome

    def _read(self, journal: Journal) -> Contents:
        contents = journal.look()
        if contents.problem is None:
            return contents
        kept = journal.put_away("corrupt")
        text = f"{contents.problem}; kept as {kept}, what is observed decides"
        self.outcome.reports.append(Report("journal", text))
        return Contents()

    def _repair(self, family: Family, contents: Contents) -> None:
        try:
            self.outcome.reports += family.repair(contents)
        except VgpumgrError as error:
            self.outcome.problems.append(error)

    def _list_newest_first(
        self, contents: Contents, families: Sequence[Family]
    ) -> list[tuple[Unfinished, Family]]:
        found: list[tuple[Unfinished, Family]] = []
        for one in list_unfinished(contents):
            family = self.families.find(one.operation)
            if family is None:
                self.outcome.left.append(one)
            else:
                found.append((one, family))
        found += [(one, family) for family in families for one in self._list_more(family, contents)]
        # recoveries last: what they were about is recovered by then
        return sorted(found, key=lambda each: (each[0].operation == RECOVER, -each[0].order))

    def _list_more(self, family: Family, contents: Contents) -> Sequence[Unfinished]:
        try:
            return family.list_more(contents)
        except VgpumgrError as error:
            self.outcome.problems.append(error)
            return ()

    def _recover_all(self, found: Sequence[tuple[Unfinished, Family]]) -> None:
        late = self._wait_for_orphans([one for one, _ in found])
        for one, family in found:
            if self._is_spared(one, family):
                self._check_not_late(one, family, late)
                self.outcome.spared.append(one)
            elif self.outcome.spared:
                self.outcome.postponed.append(one)
            elif not self._recover_one(one, family, late):
                self.outcome.left.append(one)

    def _is_spared(self, found: Unfinished, family: Family) -> bool:
        if self.spare is None or found.operation == RECOVER or found.unreadable is not None:
            return False
        return family.concerns(found, self.spare)

    def _wait_for_orphans(self, found: Sequence[Unfinished]) -> Sequence[str]:
        """Helpers that still run. Those of a command that was killed get a moment to come back."""
        late = self.list_late()
        patient = any(not one.is_late and one.boot in ("", self.boot_id) for one in found)
        end_s = self.clock.monotonic_s() + (ORPHAN_WAIT_S if patient else 0.0)
        while late and self.clock.monotonic_s() < end_s:
            self.clock.sleep(_POLL_S)
            late = self.list_late()
        return late

    def _list_running(self, found: Unfinished, family: Family, late: Sequence[str]) -> list[str]:
        if found.boot not in ("", self.boot_id):
            return []
        return [helper for helper in late if family.may_wait_for(found, helper)]

    def _check_not_late(self, found: Unfinished, family: Family, late: Sequence[str]) -> None:
        if running := self._list_running(found, family, late):
            raise OutcomePendingError(
                f"the {found.operation} of {found.subject} waits for a helper process",
                why="it may still take effect",
                held_by=running,
                hint="vgpumgr status",
            )

    def _recover_one(self, found: Unfinished, family: Family, late: Sequence[str]) -> bool:
        """Whether it has ended."""
        subject, name = family.describe(found)
        if (unreadable := found.unreadable) is not None:
            text = f"{unreadable}: {unreadable.cause}; {unreadable.why}: {unreadable.hint}"
            return self._report_left(subject, f"{name} is not recovered: {text}")
        if running := self._list_running(found, family, late):
            return self._report_left(subject, f"{name} waits for {'; '.join(running)}")
        if (newer := self._find_newer(found)) is not None:
            return self._report_left(subject, f"{name} waits for {newer.operation} {newer.subject}")
        try:
            done = family.recover(found)
        except (VgpumgrError, NothingDoneError) as stopped:
            error = stopped.error if isinstance(stopped, NothingDoneError) else stopped
            held = f", held by {', '.join(error.held_by)}" if error.held_by else ""
            return self._report_left(subject, f"{name} is not recovered: {error}{held}")
        except Exception as error:  # a fault of ours: it hinders nothing else, and is not hidden
            what = f"{type(error).__name__}: {error}"
            return self._report_left(subject, f"{name} is not recovered; vgpumgr has a bug: {what}")
        self.outcome.reports += done.reports
        if done.ended and found.op:
            with closing(self.open_journal()) as journal:
                journal.append(found.op, "end", {"outcome": done.outcome, **done.more})
        return done.ended

    def _find_newer(self, found: Unfinished) -> Unfinished | None:
        """One that came later, has not ended, and stands on what this one made."""
        left = (one for one in self.outcome.left if one.boot == self.boot_id)
        return next((one for one in left if find_collision(found.claims, one.claims)), None)

    def _report_left(self, subject: str, text: str) -> bool:
        self.outcome.reports.append(Report(subject, text, done=False))
        return False


def list_unfinished(contents: Contents) -> list[Unfinished]:
    """The operations of a journal that have no end, oldest first."""
    return [
        Unfinished(
            op,
            str(events[0].data.get("operation")),
            str(events[0].data.get("subject")),
            events,
            events[0].seq,
            contents.torn,
        )
        for op, events in contents.unfinished.items()
    ]
