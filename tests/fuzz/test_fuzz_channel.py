"""The agent, lane 0 of the ring and the serial stream, from both sides: some of what ``python -m tests.fuzz`` does.

What is kept for them in ``corpus`` is run again and changed, and what that reaches is measured.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.__main__ import TARGETS, build_agent, read_seeds, try_seed
from tests.fuzz.kept import FUZZERS, build_link, build_ring, fuzz
from tests.support.coverage import read_coverage

pytestmark = pytest.mark.native


def read_numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_ring(tmp_path_factory.mktemp("ring"))


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


def test_nothing_in_lane_0_harms_the_server(tmp_path: Path) -> None:
    target = TARGETS["lane0"]
    program = target.build(tmp_path)
    for seed in (1, *read_seeds().get("lane0", [])):
        done = try_seed(program, target, seed)
        assert done.returncode == 0, done.stderr[-4000:]
        greeted, opened, reserved, claimed, violations, healed = read_numbers(done.stdout)
        assert min(greeted, opened, violations) > 10_000
        assert min(reserved, claimed) > 15
        assert healed == 2100


def test_the_agent_bears_a_window_that_others_write_to(tmp_path: Path) -> None:
    program = TARGETS["ring"].build(tmp_path)
    for seed in (1, *read_seeds().get("ring", [])):
        done = try_seed(program, TARGETS["ring"], seed)
        assert done.returncode == 0, done.stderr[-4000:]


def test_the_server_reads_no_pads_without_end(tmp_path: Path) -> None:
    program = TARGETS["lane0"].build(tmp_path)
    done = subprocess.run([program, "found", "pads"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_cut_after_any_byte_of_a_link_loses_and_repeats_none(tmp_path: Path) -> None:
    program = build_link(tmp_path)
    done = subprocess.run([program, "cuts"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "2052\n"), done.stderr[-4000:]
    done = subprocess.run([program, "bounds"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("found", ["endless", "large", "crooked", "refused", "destroyed", "back"])
def test_the_agent_does_not_again(found: str, tmp_path: Path, ring: Path) -> None:
    """What was found once: see the end of ``ring_fuzz.c``."""
    words = [str(ring), "found", found, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-4000:]


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
