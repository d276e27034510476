"""A few modules of other projects' tests, in a minute: ``./run bench suites-small``; all of them are ``suites``."""

from __future__ import annotations

from collections.abc import Iterable

from bench import suites
from bench.registry import Figure


def run() -> Iterable[Figure]:
    """As ``suites``."""
    return suites.run(small=True)
