"""Each verb killed, then each other verb, then ``recover``: a part of the sweep, and that it notices faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recovery.breakages import IN_PAIRS
from tests.recovery.commands import run
from tests.recovery.verbs import MACHINES, VERBS

#: of the points and verbs on each machine; and how many cases, pairs of verbs and points that reaches at least
EVERY = "811"
AT_LEAST = {"off": 75, "mig": 75, "used": 90, "sliced": 35, "running": 70, "booted": 90}


@pytest.mark.parametrize("machine", [machine.name for machine in MACHINES])
def test_each_verb_killed_and_then_another(machine: str) -> None:
    done = run("pairs", "--every", EVERY, machine)
    assert done["wrong"] == {}
    least = AT_LEAST[machine]
    reached = {what: done[what] for what in ("cases", "pairs", "points", "steps")}
    assert min(reached["cases"], reached["pairs"], reached["points"]) >= least, reached
    assert reached["steps"] >= 0.8 * least, reached


@pytest.mark.parametrize("name", sorted(IN_PAIRS))
def test_a_fault_is_noticed(name: str) -> None:
    words = ("--every", "3", "--break", name, "--then", "attach --gpu 0", "mig", "mig layout apply")
    done = run("pairs", *words)
    assert done["wrong"], "the sweep is blind"
    assert done["code"] == 1


def test_the_documentation_has_the_number_of_verbs() -> None:
    page = (Path(__file__).parents[2] / "docs/recovery.md").read_text()
    assert f"`pairs` knows {len(VERBS)} verbs and six machines" in page
    assert len(MACHINES) == 6
