"""Some of what ``python -m tests.lives`` does with 10,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lives.__main__ import run_lives
from tests.unit.calls_rig import simulated_channel

pytestmark = pytest.mark.native


@pytest.mark.parametrize(("transport", "count"), [("ring", 240), ("serial", 120)])
def test_nothing_is_left_of_many_lives(transport: str, count: int, tmp_path: Path) -> None:
    with simulated_channel(transport, tmp_path) as rig:
        print(run_lives(rig, count).describe())
