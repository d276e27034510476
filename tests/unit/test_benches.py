"""Benchmarks measure on people's machines; here only that each of them runs, and that it prints."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import calls
from bench.__main__ import BENCHMARKS, show
from bench.registry import ROOT, Figure
from tests.support.far import Line

#: what needs neither a guest nor minutes
QUICK = ("cli", "daemon", "inventory", "planner", "pool", "recovery", "top")


COMPILED = pytest.param("ptx", marks=[pytest.mark.native, pytest.mark.cuda])
WITH_A_WORKER = pytest.param("binding", marks=pytest.mark.native)


@pytest.mark.parametrize("name", [*QUICK, COMPILED, WITH_A_WORKER])
def test_a_benchmark_runs(name: str) -> None:
    figures = list(importlib.import_module(BENCHMARKS[name]).run(small=True))
    assert figures
    for figure in figures:
        assert isinstance(figure, Figure)
        assert figure.ours > 0
        assert figure.floor > 0
        assert figure.name in show(figure)


@pytest.mark.browser
def test_the_page_is_measured() -> None:
    """In a process of its own, as those of the page's tests may have Playwright open."""
    script = (
        "from bench import page; from bench.__main__ import show\n"
        "for figure in [*page.run(small=True), *page.run_long(0.01, 2)]: print(show(figure))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if " met " in line or " MISSED " in line]
    assert len(lines) == 7
    assert [line.split(":")[0] for line in lines] == ["page"] * 7


@pytest.mark.native
def test_a_far_line_takes_its_time_each_way(tmp_path: Path) -> None:
    """What ``bench pytorch`` means by a millisecond: no answer comes sooner, and bytes stay in order."""
    delay_s = 0.05
    with socket.socket(socket.AF_UNIX) as there, socket.socket(socket.AF_UNIX) as here:
        there.bind(str(tmp_path / "there"))
        there.listen()
        line = Line(tmp_path / "here", tmp_path / "there", delay_s)
        here.connect(str(tmp_path / "here"))
        other, _ = there.accept()
        with other:
            began = time.monotonic()
            here.sendall(b"one ")
            here.sendall(b"two")
            got = b""
            while len(got) < len(b"one two"):
                got += other.recv(64)
            other.sendall(got)
            back = b""
            while len(back) < len(got):
                back += here.recv(64)
            assert back == b"one two"
            assert time.monotonic() - began >= 2 * delay_s
        assert here.recv(64) == b""
        line.close()


@pytest.mark.native
def test_a_launch_in_the_guest_takes_few_instructions() -> None:
    """Counted step by step, so that no load of the machine changes it: the library's, the doorbell and the caller's."""
    found = calls.count_instructions()
    assert 100 < found <= calls.GOAL_INSTRUCTIONS
