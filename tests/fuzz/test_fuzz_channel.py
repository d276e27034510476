"""The guest's agent, and the server's end of the serial stream: some of what ``python -m tests.fuzz`` does.

What is kept for them in ``corpus`` is run again and changed, and what that reaches is measured.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz.__main__ import TARGETS, build_agent, read_seeds, try_seed
from tests.fuzz.kept import FUZZERS, fuzz
from tests.fuzz.test_fuzz_stateful import read_coverage

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
        greeted, opened, calls, hung_up, compared = read_numbers(done.stdout)
        assert min(greeted, opened, calls) > 5000
        assert compared > 500
        assert hung_up > 100


def test_nothing_on_lane_0_harms_the_server(tmp_path: Path) -> None:
    """Another processor of the guest writes over it in half of the rounds, at any moment."""
    program = TARGETS["lane0"].build(tmp_path)
    for seed in (1, *read_seeds().get("lane0", [])):
        done = try_seed(program, TARGETS["lane0"], seed)
        assert done.returncode == 0, done.stderr[-4000:]
        greeted, opened, claims, resets, spoilt = read_numbers(done.stdout)
        assert min(greeted, opened, claims, resets, spoilt) > 10_000, done.stdout


@pytest.mark.parametrize("name", FUZZERS)
def test_what_is_kept_and_its_like_harm_nobody(name: str, tmp_path: Path) -> None:
    program = FUZZERS[name].build(tmp_path)
    for seed in (1, *read_seeds().get(f"{name}-kept", [])):
        done = fuzz(program, name, seed, tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        kept, changed = read_numbers(done.stdout)
        assert kept >= 8
        assert changed == FUZZERS[name].rounds


@pytest.mark.parametrize("name", FUZZERS)
def test_what_is_kept_reaches_what_it_is_for(name: str, tmp_path: Path) -> None:
    program = FUZZERS[name].build(tmp_path, "coverage")
    done = fuzz(program, name, 1, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    shares = read_coverage(tmp_path)
    gates = FUZZERS[name].files
    short = {p.name: f"{shares[p]:.1%}" for p, gate in gates.items() if shares[p] < gate}
    assert not short, "below its gate, of its lines"
