"""The table of ``python -m tests.trials`` is of the sources as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.trials.__main__ import check_lines
from tests.trials.guarantees import TRIALS

ROOT = Path(__file__).parents[2]


def test_each_change_can_be_made() -> None:
    check_lines(TRIALS)
    assert all(trial.old != trial.new for trial in TRIALS)


def test_a_line_that_is_gone_is_named() -> None:
    gone = replace(TRIALS[0], old="this line is in no source")
    with pytest.raises(SystemExit, match=f"do not have: {gone.guarantee}"):
        check_lines([*TRIALS[1:], gone])


def test_each_trial_names_tests_that_exist() -> None:
    for trial in TRIALS:
        for test in trial.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text()
            assert not name or f"def {name.partition('[')[0]}(" in text, test
