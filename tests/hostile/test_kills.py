"""Some of what ``python -m tests.hostile.kills`` does with hundreds of kills."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.hostile.kills import ChannelKills, HostKills, run_on_host
from tests.unit.calls_rig import simulated_channel

pytestmark = pytest.mark.native


@pytest.mark.parametrize(("transport", "rounds"), [("ring", 12), ("serial", 6)])
def test_the_next_process_works_after_each_kill(
    transport: str, rounds: int, tmp_path: Path
) -> None:
    with simulated_channel(transport, tmp_path) as rig:
        print(ChannelKills(rig, 1).run(rounds))


def test_nothing_is_left_of_what_a_daemon_made() -> None:
    with tempfile.TemporaryDirectory(
        prefix="vgk"
    ) as root:  # short: the paths of sockets are limited
        assert run_on_host(Path(root), 3).count(" 1") == 3
    assert len(HostKills.TARGETS) == 6
