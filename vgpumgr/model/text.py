"""How people write values, and read them: sizes, sets of numbers, words that were nearly right."""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(i?B)?", re.IGNORECASE)
_LONGEST_SIZE = 24
_LONG_WORD = re.compile(r"(\S{200})\S{800,}")


def format_size(size_bytes: int) -> str:
    """``85899345920`` -> ``80 GiB``; one decimal where the number is not whole."""
    value = float(size_bytes)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    number = f"{value:.1f}"
    return f"{number.removesuffix('.0')} {unit}"


def format_vm(name: str, uuid: str = "") -> str:
    """A VM as a word of a command for a shell: its name, or its UUID where that would be an option there."""
    import shlex  # no listing needs it

    return uuid if uuid and name.startswith("-") else shlex.quote(name)


def format_gpus(milli: int) -> str:
    """``4`` or ``0.5``: thousandths of a GPU as GPUs, none of them lost."""
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def describe_waiting(claim: str, place: object, why: object) -> str:
    """A claim in the queue of its pool."""
    return f"claim {claim} waits, place {place}: {why}"


def format_exact(size_bytes: int) -> str:
    """A size without a space that ``parse_size`` reads back to the byte, in the largest unit that allows it."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes and size_bytes % (1 << shift) == 0:
            return f"{size_bytes >> shift}{unit}"
    return str(size_bytes)


def format_time(wall_s: float) -> str:
    """Seconds since 1970 as this host's clock on the wall shows them."""
    from datetime import datetime  # no listing needs it

    return datetime.fromtimestamp(wall_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


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
    if len(number) > _LONGEST_SIZE:
        raise ValueError(f"not a size: {number[:_LONGEST_SIZE]}... has {len(number)} digits")
    # whole numbers stay exact: a float has 53 bits
    return int(number) * 1024**power if number.isdecimal() else int(float(number) * 1024**power)


def make_printable(text: str) -> str:
    """Text of a file or of another user for a terminal: what would command it is written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode("ascii")
        for one in text
    )


def shorten_words(text: str) -> str:
    """A message that repeats what a user or a file said; of a word of a thousand characters or more, its beginning."""
    return _LONG_WORD.sub(lambda word: f"{word[1]}... ({len(word[0])} characters)", text)


def tell_count(number: int, noun: str) -> str:
    """``1 vGPU``, ``2 vGPUs``: for nouns that take an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def parse_set(text: str) -> frozenset[int]:
    """A set as libvirt and the kernel write it, from left to right: ``0-3,^2,8``. What is no number is left out:
    libvirt checks its own documents.
    """
    found: frozenset[int] = frozenset()
    for part in text.replace(" ", "").split(","):
        low, _, high = part.removeprefix("^").partition("-")
        if low.isdecimal() and (high or low).isdecimal() and int(high or low) - int(low) < 1 << 16:
            numbers = range(int(low), int(high or low) + 1)
            found = found.difference(numbers) if part.startswith("^") else found.union(numbers)
    return found


def list_near(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """At most ``n`` known words that look like this one, the likeliest first."""
    import difflib  # mistakes are rare, and it is no small module

    return difflib.get_close_matches(word, list(known), n, cutoff)


def shorten_type(name: str) -> str:
    """A vGPU type without the vendor's words: ``T4-4C`` of ``GRID T4-4C``."""
    return name.rpartition(" ")[2] or name
