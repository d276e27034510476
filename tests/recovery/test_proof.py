"""Nothing that happens to the process or the power loses or doubles anything.

Planned faults are counted: a run with fewer than planned fails. Every command here takes a seed and a
larger count for longer runs.
"""

from __future__ import annotations

import pytest

from tests.recovery.commands import run
from tests.recovery.scarce_host import HOST_CALLS
from tests.recovery.scenarios import SCENARIOS
from tests.recovery.simulate import simulate

NAMES = [scenario.name for scenario in SCENARIOS]
#: kinds of operation whose recovery is killed as well
NESTED = ("attach turns MIG mode on", "detach turns MIG mode off", "attach that fails late")


@pytest.mark.parametrize("part", range(6))
def test_killed_at_every_step_and_journal_write(part: int) -> None:
    """Every kind of operation, at every sixth point, from a first that differs by kind."""
    done = run("sweep", "--nested", "0", "--every", "6", "--really", "6", *NAMES[part::6])
    assert done["wrong"] == {}
    assert done["planned"] == done["happened"] >= 150
    assert done["code"] == 0


@pytest.mark.parametrize(("instead", "every", "at_least"), [("late", 14, 40), ("libvirt", 30, 60)])
def test_no_answer_from_the_kernel_or_libvirt(instead: str, every: int, at_least: int) -> None:
    """A write that does not return in time, a connection that is lost, before or after the effect."""
    done = run("sweep", f"--{instead}", "--every", str(every))
    assert done["wrong"] == {}
    assert done["planned"] == done["happened"] >= at_least
    assert done["code"] == 0


def test_killed_again_in_recovery() -> None:
    done = run("sweep", "--every", "13", "--nested", "2", "--nested-really", "6", *NESTED)
    assert done["wrong"] == {}
    assert done["planned"] == done["happened"] >= 40


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_killed_at_random(seed: int) -> None:
    done = run("kill_many", "--seed", str(seed), "--count", "600")
    assert done["wrong"] == []
    assert done["happened"] == done["planned"] == 600


def test_two_commands_killed_one_after_the_other() -> None:
    """The first while a definition gets its devices, the second at any of its points."""
    done = run("kill_twice", "--step", "domain.attach", "--every", "13")
    assert done["wrong"] == {}
    assert done["cases"] >= 500


@pytest.mark.parametrize("part", ["0/2", "1/2"])
def test_power_fails_at_any_moment(part: str) -> None:
    done = run("power", "--states", "1000", "--part", part)
    assert done["wrong"] == {}
    assert done["distinct"] >= 1000
    assert done["played"] == 500


def test_any_damage_to_the_state_directory() -> None:
    done = run("corrupt", "--count", "300")
    assert done["wrong"] == {}
    assert done["damaged"] == 300


@pytest.mark.parametrize("first", range(1, 1200, 300))
def test_simulated_histories(first: int) -> None:
    seeds = range(first, first + 300)
    done = simulate(seeds)
    assert done["wrong"] == {}, "replay: python -m tests.recovery.simulate -v --count 1 --seed N"
    for fault in ("crash", "late", "error", "disk", "reboot", "keeper", "meddling"):
        assert done["faults"][fault] >= 30, fault
    assert done["faults"]["shared instance"] >= 1


def test_a_seed_replays() -> None:
    first, again = simulate(range(7, 9)), simulate(range(7, 9))
    assert first == again


@pytest.mark.parametrize(("on", "count"), [("fakes", 24), ("fakes-daemon", 40)])
def test_nothing_grows(on: str, count: int) -> None:
    """Every backend in each cycle: hundreds of attaches and detaches, and not one object that stays."""
    done = run("cycles", "--on", on, "--backend", "all", "--count", str(count))
    assert done["wrong"] == []
    assert done["cycles"] == count
    assert done["code"] == 0


@pytest.mark.parametrize(
    ("kind", "words", "at_least"),
    [("disk", ("--step", "3"), 3), ("descriptors", ("--most", "10"), 3)],
)
def test_the_host_runs_out(kind: str, words: tuple[str, ...], at_least: int) -> None:
    """A full disk, no more open files: each call is refused or done, and no state file is given up."""
    done = run("scarce", kind, *words)
    assert done["wrong"] == []
    for name in ("attach", "detach", "recover"):
        assert done["refused"][name] >= at_least
    for name in HOST_CALLS:
        assert done["refused"][name] >= 1, name
