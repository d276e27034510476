"""Faults put into the program on purpose: a harness that does not notice them is worth nothing."""

from __future__ import annotations

from collections.abc import Callable

BREAKAGES: dict[str, Callable[[], None]] = {}
