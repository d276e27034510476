# ruff: noqa: ARG002  # they implement protocols
"""The recovery of all families: its order, what waits, what fails, and what later plans must not take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from tests.support.clock import FakeClock
from tests.support.service import make_bench
from vgpumgr.app.operations.gpus import DRAIN, RESUME
from vgpumgr.app.operations.shares import SET
from vgpumgr.app.transactions import FAMILIES, MachineFamilies
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.journal import Contents, Journal
from vgpumgr.engine.recovery import (
    ORPHAN_WAIT_S,
    Claim,
    Family,
    Recovered,
    Recovery,
    Report,
    Unfinished,
    find_collision,
    list_claims,
)
from vgpumgr.engine.step import OnFailure, Plan, Step
from vgpumgr.engine.transaction import Transaction, open_transaction
from vgpumgr.errors import JournalFailedError, NotPermittedError, NvmlError, OutcomePendingError
from vgpumgr.host.statistics import OperationStatistics
from vgpumgr.model.frozen import dataclass
from vgpumgr.planning import layouts, passthrough, vgpus

GPU = "GPU-00000000-0000-4000-8000-000000000000"


class Places(OperationContext):
    """The context of the steps of these tests: the places that are taken."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def encode_records(self) -> Mapping[str, object]:
        return {}


@dataclass(frozen=True)
class Create(Step):
    """Takes a place on the GPU."""

    first: int
    kind: ClassVar[str] = "mig.gi.trial"

    @property
    def target(self) -> Mapping[str, object]:
        return {"gpu": GPU, "profile": "1g.10gb", "placement": {"start": self.first, "size": 2}}

    def describe(self) -> str:
        return f"create at {self.first}"

    def do(self, context: OperationContext) -> None:
        cast(Places, context).taken.append(self.first)

    def undo(self, context: OperationContext) -> None:
        cast(Places, context).taken.remove(self.first)

    def observe(self, context: OperationContext) -> bool:
        return self.first in cast(Places, context).taken


@dataclass
class OneFamily(Family):
    """Ends what it is asked for, in the order in which it is asked."""

    fails: dict[str, Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    waits: bool = True

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:
        return self.waits

    def concerns(self, found: Unfinished, subject: str) -> bool:
        return found.subject == subject

    def recover(self, found: Unfinished) -> Recovered:
        self.asked.append(found.subject)
        if found.subject in self.fails:
            raise self.fails[found.subject]
        return Recovered([Report(found.subject, "undone")])


class OneFamilies:
    def __init__(self, family: Family) -> None:
        self.family = family

    def find(self, operation: str) -> Family | None:
        return None if operation == "later" else self.family

    def list_all(self, contents: Contents) -> Sequence[Family]:
        return [self.family]


@dataclass
class OneHost:
    """A machine in a directory."""

    run_dir: Path
    is_privileged: bool = True
    boot_id: str = "boot"
    late: list[str] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)

    def list_late(self) -> Sequence[str]:
        return self.late

    def open_journal(self) -> Journal:
        return Journal(self.run_dir / "journal", self.boot_id)

    def open_statistics(self) -> OperationStatistics:
        return OperationStatistics(self.run_dir / "operations.json", (1.0,))

    def hold_store(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(
        self,
        subject: str,
        *places: int,
        operation: str = "apply",
        late: bool = False,
        foreign: Mapping[str, object] | None = None,
    ) -> None:
        """An operation that ends nowhere; ``foreign``: with a step of another version before its others."""
        journal = self.open_journal()
        steps = [Create(place) for place in places]
        begin = Plan(operation, subject, tuple(steps)).encode()
        if foreign is not None:
            begin["steps"] = [foreign, *(step.encode() for step in steps)]
            steps.insert(0, steps[0])
        journal.append(subject, "begin", begin)
        for number, step in enumerate(steps):
            journal.append(subject, "intent", {"step": number, "kind": step.kind})
        if late:
            journal.append(subject, "late", {"step": 0})
        journal.close()

    def list_left(self) -> list[str]:
        return list(self.open_journal().look().unfinished)


@pytest.fixture
def host(tmp_path: Path) -> OneHost:
    return OneHost(tmp_path)


def run(host: OneHost, family: OneFamily, spare: str | None = None) -> Recovery:
    recovery = Recovery(
        host.open_journal, host.boot_id, host.clock, host.list_late, OneFamilies(family), spare
    )
    recovery.run()
    return recovery


def texts(recovery: Recovery) -> list[tuple[str, str, bool]]:
    return [(r.subject, r.text, r.done) for r in recovery.outcome.reports]


def test_the_newest_first_and_recoveries_last(host: OneHost) -> None:
    host.begin("a", 0)
    host.begin("b", 2, operation="recover")
    host.begin("c", 4)
    family = OneFamily()
    run(host, family)
    assert family.asked == ["c", "a", "b"]
    assert host.list_left() == []


def test_what_fails_is_reported_and_stops_only_what_it_stands_on(host: OneHost) -> None:
    host.begin("below", 0)
    host.begin("beside", 4)
    host.begin("fails", 1)
    family = OneFamily({"fails": NvmlError("no")})
    recovery = run(host, family)
    assert family.asked == ["fails", "beside"]
    assert texts(recovery) == [
        ("fails", "the interrupted apply is not recovered: no", False),
        ("beside", "undone", True),
        ("below", "the interrupted apply waits for apply fails", False),
    ]
    assert host.list_left() == ["below", "fails"]
    family.fails.clear()
    run(host, family)
    assert host.list_left() == []


def test_a_fault_of_ours_is_named_and_stops_nothing_else(host: OneHost) -> None:
    host.begin("beside", 4)
    host.begin("fails", 0)
    recovery = run(host, OneFamily({"fails": KeyError("step")}))
    assert "vgpumgr has a bug: KeyError: 'step'" in texts(recovery)[0][1]
    assert host.list_left() == ["fails"]


@pytest.mark.parametrize(("late", "waited_s"), [(False, ORPHAN_WAIT_S), (True, 0.0)])
def test_a_helper_that_runs_makes_it_wait(host: OneHost, late: bool, waited_s: float) -> None:
    """That of a command that was killed gets a moment; one that was given up before gets none."""
    host.begin("a", 0, late=late)
    host.late.append("process 7 (create)")
    family = OneFamily()
    began_s = host.clock.monotonic_s()
    recovery = run(host, family)
    assert host.clock.monotonic_s() - began_s == pytest.approx(waited_s, abs=0.2)
    assert texts(recovery) == [("a", "the interrupted apply waits for process 7 (create)", False)]
    assert (family.asked, host.list_left()) == ([], ["a"])
    host.late.clear()
    run(host, family)
    assert host.list_left() == []


def test_what_recovers_may_journal_operations_of_its_own(host: OneHost) -> None:
    for subject, place in (("a", 0), ("b", 2), ("c", 4)):
        host.begin(subject, place)

    class Writes(OneFamily):
        def recover(self, found: Unfinished) -> Recovered:
            host.begin(f"inner {found.subject}", 6)
            journal = host.open_journal()
            journal.append(f"inner {found.subject}", "end", {"outcome": "done"})
            journal.close()
            return super().recover(found)

    run(host, Writes())
    contents = host.open_journal().look()
    assert (contents.problem, dict(contents.unfinished)) == (None, {})
    assert [e.op for e in contents.events if e.event == "end"] == [
        "inner c", "c", "inner b", "b", "inner a", "a",
    ]  # fmt: skip


def test_what_is_spared_is_left_with_all_before_it(host: OneHost) -> None:
    for subject, place in (("before", 0), ("spared", 2), ("after", 4)):
        host.begin(subject, place)
    family = OneFamily()
    recovery = run(host, family, spare="spared")
    assert family.asked == ["after"]
    assert [one.subject for one in recovery.outcome.spared] == ["spared"]
    assert [one.subject for one in recovery.outcome.postponed] == ["before"]
    assert recovery.outcome.left == []
    host.late.append("process 7")
    with pytest.raises(OutcomePendingError, match="apply of spared waits"):
        run(host, family, spare="spared")


def test_nothing_is_recovered_after_a_failed_sync(host: OneHost) -> None:
    host.begin("a", 0)
    (host.run_dir / "journal.failed").touch()
    with pytest.raises(JournalFailedError):
        run(host, OneFamily())


def test_a_plan_takes_nothing_that_an_unfinished_operation_accounts_for(host: OneHost) -> None:
    host.begin("stays", 4)
    places = Places()
    families = OneFamilies(OneFamily({"stays": NvmlError("no")}))
    with open_transaction(host, families, "attach") as transaction:
        transaction.recover()
        with pytest.raises(OutcomePendingError) as refused:
            transaction.execute(Plan("attach", "vm01", (Create(5),)), places)
        assert refused.value.why == "an earlier apply of stays has not ended"
        assert places.taken == []
        transaction.execute(Plan("attach", "vm01", (Create(0),)), places)
        assert places.taken == [0]
    assert transaction.notes == ["stays: the interrupted apply is not recovered: no"]
    assert [c.op for c in host.open_statistics().list_counts()] == ["attach"]


def test_what_gives_back_waits_for_helpers_alone(host: OneHost) -> None:
    """What holds an operation up may be just what is detached."""
    host.begin("stays", 4, late=True)
    plan = Plan("detach", "vm01", (Create(4),), OnFailure.STOP)
    families = OneFamilies(OneFamily({"stays": NvmlError("no")}))
    host.late.append("process 7")
    with open_transaction(host, families, "detach") as transaction:
        with pytest.raises(OutcomePendingError) as refused:
            transaction.execute(plan, Places())
        assert refused.value.held_by == ("process 7",)
        host.late.clear()
        transaction.execute(plan, Places())


def test_what_an_earlier_boot_left_hinders_nothing(host: OneHost) -> None:
    host.begin("old", 4)
    host.boot_id = "another"
    with open_transaction(host, OneFamilies(OneFamily()), "attach") as transaction:
        transaction.execute(Plan("attach", "vm01", (Create(4),)), Places())


def test_who_may_not_change_the_machine_takes_no_lock(host: OneHost) -> None:
    host.is_privileged = False
    families = OneFamilies(OneFamily())
    with (
        pytest.raises(NotPermittedError, match="cannot attach as this user"),
        open_transaction(host, families, "attach"),
    ):
        pass
    assert list(host.run_dir.iterdir()) == []


def test_an_operation_that_is_not_recovered_now_is_left(host: OneHost) -> None:
    host.begin("a", 0, operation="later")
    recovery = run(host, OneFamily())
    assert [one.subject for one in recovery.outcome.left] == ["a"]
    assert (texts(recovery), host.list_left()) == ([], ["a"])


def test_an_operation_of_another_version_is_left_and_reported(
    host: OneHost, tmp_path: Path
) -> None:
    host.begin("a", 0, operation="fly")
    families = MachineFamilies(make_bench(tmp_path / "bench").service.parts)
    recovery = Recovery(host.open_journal, host.boot_id, host.clock, host.list_late, families)
    recovery.run()
    assert host.list_left() == ["a"]
    text = "the interrupted fly is not recovered: this version knows no operation 'fly'"
    assert texts(recovery) == [("a", text, False)]


@pytest.mark.parametrize(
    ("foreign", "cause"),
    [
        ({"kind": "mig.fly"}, "no step is called 'mig.fly'"),
        ({"kind": "mig.gi.trial"}, "first"),
    ],
    ids=["an unknown kind", "a field is missing"],
)
def test_a_step_of_another_version_is_reported_and_stops_nothing_else(
    host: OneHost, foreign: Mapping[str, object], cause: str
) -> None:
    host.begin("below", 4)
    host.begin("beside", 0)
    host.begin("foreign", 4, foreign=foreign)
    family = OneFamily()
    families = OneFamilies(family)
    with open_transaction(host, families, "attach") as transaction:
        outcome = transaction.recover()
        assert family.asked == ["beside"]
        assert [one.subject for one in outcome.left] == ["foreign", "below"]
        first = outcome.reports[0]
        assert (first.subject, first.done) == ("foreign", False)
        start = "the interrupted apply is not recovered: cannot read a step in the journal: "
        assert first.text.startswith(start)
        assert cause in first.text
        assert "vgpumgr recover, with the version that began the operation" in first.text
        places = Places()
        with pytest.raises(OutcomePendingError):
            transaction.execute(Plan("attach", "vm01", (Create(5),)), places)
        transaction.execute(Plan("attach", "vm01", (Create(0),)), places)
        assert places.taken == [0]
    # who ends it by himself cannot know what its other step has done
    assert run(host, family, spare="foreign").outcome.spared == []
    assert set(host.list_left()) == {"foreign", "below"}


def test_every_operation_has_its_family() -> None:
    known = (layouts.OPERATION, *passthrough.OPERATIONS, *vgpus.OPERATIONS, DRAIN, RESUME, SET)
    assert set(FAMILIES) == {"attach", "detach", "run", "restart", "recover", *known}


@pytest.mark.parametrize(
    ("one", "other", "collides"),
    [
        (Claim("gpu", "a", 0, 2), Claim("gpu", "a", 1, 1), True),
        (Claim("gpu", "a", 0, 2), Claim("gpu", "a", 2, 1), False),
        (Claim("gpu", "a"), Claim("gpu", "a", 2, 1), True),
        (Claim("gpu", "a"), Claim("gpu", "b", 2, 1), False),
        (Claim("function", "a"), Claim("gpu", "a"), False),
        (Claim("function", "a", shared=True), Claim("function", "a", shared=True), False),
        (Claim("function", "a", shared=True), Claim("function", "a"), True),
    ],
)
def test_what_collides(one: Claim, other: Claim, collides: bool) -> None:
    assert (find_collision([one], [other]) == one) is collides
    assert (find_collision([other], [one]) == other) is collides


@pytest.mark.parametrize(
    ("kind", "target", "claims"),
    [
        ("mig.mode.enable", {"gpu": GPU}, [Claim("gpu", GPU)]),
        (
            "mig.ci.create",
            {
                "gpu": GPU,
                "placement": {"start": 0, "size": 1},
                "parent_placement": {"start": 4, "size": 2},
            },
            [Claim("gpu", GPU, 4, 2)],
        ),
        (
            "passthrough.unbind",
            {"binding": {"address": "0000:3b:00.0", "gpu_uuid": GPU}},
            [Claim("function", "0000:3b:00.0"), Claim("gpu", GPU)],
        ),
        ("vf.enable", {"physical": "0000:03:00.0"}, [Claim("function", "0000:03:00.0")]),
        (
            "mdev.create",
            {"uuid": "u", "parent": "mtty"},
            [Claim("vgpu", "u"), Claim("function", "mtty", shared=True)],
        ),
        ("domain.attach", {"gpu": GPU}, []),
    ],
)
def test_what_a_step_claims(kind: str, target: dict[str, Any], claims: list[Claim]) -> None:
    step = cast(Step, SimpleNamespace(kind=kind, target=target))
    assert list(list_claims(step)) == claims


def test_a_transaction_needs_no_steps(host: OneHost) -> None:
    Transaction(host, OneFamilies(OneFamily())).execute(Plan("a", "b", ()), Places())
    assert list(host.run_dir.iterdir()) == []
