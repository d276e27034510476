"""Sets of numbers as libvirt and the kernel write them."""

from __future__ import annotations


def parse_set(text: str) -> frozenset[int]:
    """A set as libvirt and the kernel write it: ``0-3,^2,8``. What is no number is left out: libvirt
    checks its own documents.
    """
    found: set[int] = set()
    excluded: set[int] = set()
    for part in text.replace(" ", "").split(","):
        target = excluded if part.startswith("^") else found
        low, _, high = part.removeprefix("^").partition("-")
        if low.isdecimal() and (high or low).isdecimal() and int(high or low) - int(low) < 1 << 16:
            target |= set(range(int(low), int(high or low) + 1))
    return frozenset(found - excluded)
