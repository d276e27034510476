"""What somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def list_near(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """At most ``n`` known words that look like this one, the likeliest first."""
    import difflib  # mistakes are rare, and it is no small module

    return difflib.get_close_matches(word, list(known), n, cutoff)
