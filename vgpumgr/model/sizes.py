"""Sizes: bytes inside and in JSON, IEC units for people."""

from __future__ import annotations

import re

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?B)?", re.IGNORECASE)


def format_size(size_bytes: int) -> str:
    """``85899345920`` -> ``80 GiB``; one decimal where the number is not whole."""
    value = float(size_bytes)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    number = f"{value:.1f}"
    return f"{number.removesuffix('.0')} {unit}"


def parse_size(text: str) -> int:
    """``8GiB``, ``8G``, ``512 MiB``, ``1.5T`` or plain bytes -> bytes. K, M, G are powers of 1024.

    Decimal units (``GB``) are refused, because people mean both by them. Raises ValueError.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}; write it like 8GiB or 512MiB")
    number, prefix, suffix = match.groups()
    if prefix and suffix and suffix.lower() == "b":
        raise ValueError(f"{text!r} is ambiguous: write {number}{prefix.upper()}iB")
    power = "KMGTP".index(prefix.upper()) + 1 if prefix else 0
    return int(float(number) * 1024**power)


def tell_count(number: int, noun: str) -> str:
    """``1 vGPU``, ``2 vGPUs``: for nouns that take an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
