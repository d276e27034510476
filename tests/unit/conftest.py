"""Fixtures of several files."""

from tests.support.debian import bare, dist, packages

__all__ = ["bare", "dist", "packages"]
