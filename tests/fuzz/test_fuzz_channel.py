"""The guest's agent, and the server's end of the serial stream: some of what ``python -m tests.fuzz`` does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz.__main__ import TARGETS, build_agent, read_seeds, try_seed

pytestmark = pytest.mark.native


def read_numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_the_agent_serves_and_gives_back_whatever_its_processes_do(tmp_path: Path) -> None:
    program = build_agent(tmp_path)
    for seed in (1, *read_seeds()["agent"]):
        done = try_seed(program, TARGETS["agent"], seed)
        assert done.returncode == 0, done.stderr[-4000:]
        steps, lanes, messages = read_numbers(done.stdout)
        assert (steps >= 100_000, lanes > 300, messages > 300) == (True, True, True), done.stdout


def test_nothing_on_the_serial_stream_harms_the_server(tmp_path: Path) -> None:
    target = TARGETS["serial"]
    program = target.build(tmp_path)
    for seed in (1, *read_seeds().get("serial", [])):
        done = try_seed(program, target, seed)
        assert done.returncode == 0, done.stderr[-4000:]
        greeted, opened, calls, hung_up = read_numbers(done.stdout)
        assert min(greeted, opened, calls) > 5000
        assert hung_up > 100
