"""A sync, an undo, an order taken out on purpose: the harness notices each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.recovery.breakages import IN_ORDER, IN_SYNC
from tests.recovery.commands import run


@pytest.mark.parametrize("name", sorted(IN_ORDER))
def test_the_sweep_notices(name: str) -> None:
    words = ("--every", "3", "--nested", "0", "--break", name, "attach turns MIG mode on")
    done = run("sweep", *words)
    assert done["wrong"], "the harness is blind"
    assert done["code"] == 1


@pytest.mark.parametrize("name", sorted(IN_SYNC))
def test_power_failures_notice(name: str) -> None:
    done = run("power", "--states", "400", "--break", name)
    assert done["wrong"], "the harness is blind"
    assert done["code"] == 1


def test_names_that_were_never_synced() -> None:
    assert run("power", "--states", "60", "--forget-names")["wrong"], "the harness is blind"


def test_without_breakage_they_are_silent() -> None:
    words = ("--every", "3", "--nested", "0", "attach turns MIG mode on")
    assert run("sweep", *words)["wrong"] == {}
    assert run("power", "--states", "50")["wrong"] == {}


def test_undone_in_the_wrong_order() -> None:
    """The record goes first then, and a kill leaves what nobody remembers."""
    words = ("--every", "2", "--nested", "0", "--break", "undo-in-the-wrong-order")
    assert run("sweep", *words, "attach that fails late")["wrong"], "the harness is blind"


@pytest.mark.parametrize("backend", ["mdev", "passthrough"])
def test_an_object_that_stays(backend: str) -> None:
    words = ("--backend", backend, "--leak", backend, "--count", "20", "--warm-up", "5")
    done = run("cycles", *words)
    assert [wrong for wrong in done["wrong"] if "objects grow by 1.0 in" in wrong]
    assert done["code"] == 1


def test_every_fault_in_the_documentation_has_its_test() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs/recovery.md").read_text()
    table = text[text.index("## Faults of devices") :].split("\n\n")[1]
    names = set(re.findall(r"`(test_\w+)`", table))
    assert len(names) >= 20
    tests = "".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    assert [name for name in sorted(names) if f"def {name}(" not in tests] == []
