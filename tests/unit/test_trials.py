"""The table of ``python -m tests.trials`` is of the sources as they are."""

from __future__ import annotations

from pathlib import Path

from tests.trials.guarantees import TRIALS

ROOT = Path(__file__).parents[2]


def test_each_change_can_be_made() -> None:
    for trial in TRIALS:
        assert trial.old in (ROOT / trial.file).read_text(), trial.guarantee
        assert trial.old != trial.new


def test_each_trial_names_tests_that_exist() -> None:
    for trial in TRIALS:
        for test in trial.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text()
            assert not name or f"def {name.partition('[')[0]}(" in text, test
