"""Benchmarks measure on people's machines; here only that each of them runs, and that it prints."""

from __future__ import annotations

import importlib

import pytest

from bench.__main__ import BENCHMARKS, show
from bench.registry import Figure

#: what needs neither a guest nor minutes
QUICK = ("cli", "daemon", "inventory", "planner", "recovery", "top")


COMPILED = pytest.param("ptx", marks=[pytest.mark.native, pytest.mark.cuda])


@pytest.mark.parametrize("name", [*QUICK, COMPILED])
def test_a_benchmark_runs(name: str) -> None:
    figures = list(importlib.import_module(BENCHMARKS[name]).run(small=True))
    assert figures
    for figure in figures:
        assert isinstance(figure, Figure)
        assert figure.ours > 0
        assert figure.floor > 0
        assert figure.name in show(figure)
