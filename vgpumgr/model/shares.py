"""Shares: memory and time, for several VMs on one GPU that is not in MIG mode, or on one instance of MIG.

Memory is the limit ``device-memory`` of the share's channel; time is a percentage of the GPU's compute, which an
arbiter outside of the sessions grants (docs/shares.md).
"""

from __future__ import annotations

import re

from vgpumgr.model.choices import MAX_PARTS, ComputePolicy
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.limits import LIMIT_KEYS
from vgpumgr.model.text import format_exact, format_size, parse_size

PREFIX = "share:"
#: before the MIG profile of the instance that a share is of, where it is not of a whole GPU
OF_INSTANCE = "@"
#: one share alone may have all of the time, and none has less than that
MAX_COMPUTE = 100
MIN_COMPUTE = 1
#: percentages are exact to so many decimals, so that an eighth is 12.5 % and a 64th 1.5625 %
_DECIMALS = 4
_STEPS = 10**_DECIMALS
#: what one context takes, so that no smaller share can run anything
MIN_BYTES = LIMIT_KEYS["device-memory"].least
_MIB = 1 << 20
_FORM = re.compile(
    r"share:(?P<memory>[^,]+),\s*(?P<compute>\d{1,6}(?:\.\d{1,4})?)\s*%", re.IGNORECASE
)
_PARTS = re.compile(r"share:\s*1\s*/\s*(?P<parts>\d{1,6})", re.IGNORECASE)
_MEMORY = re.compile(r"share:(?P<memory>\s*[0-9.]+\s*[a-z]*)", re.IGNORECASE)
_EXAMPLE = "write it like share:8GiB,30% or share:8GiB,12.5%, or share:1/4 for a quarter of a GPU"


@dataclass(frozen=True, slots=True)
class Share:
    """What a VM or a command has of a GPU: ``memory`` in bytes, ``compute`` in percent of its time, 1 to 100 in steps
    of 0.0001.
    """

    memory: int
    compute: float

    def __str__(self) -> str:
        """As ``parse_share`` reads it: to the byte."""
        return f"{PREFIX}{format_exact(self.memory)},{format_percent(self.compute)}"

    def __add__(self, other: Share) -> Share:
        return Share(self.memory + other.memory, _round(self.compute + other.compute))

    def __sub__(self, other: Share) -> Share:
        return Share(self.memory - other.memory, _round(self.compute - other.compute))

    def fits_in(self, free: Share) -> bool:
        """Whether both memory and time are no more than that."""
        return self.memory <= free.memory and self.compute <= free.compute

    def count_in(self, free: Share) -> int:
        """How many of it fit."""
        count = free.memory // self.memory
        if self.compute:
            count = min(count, round(free.compute * _STEPS) // round(self.compute * _STEPS))
        return count


def name_share(share: Share, instance: str | None) -> str:
    """The profile of a share of an instance of that MIG profile (``share:4GiB,50%@1g.10gb``), or of a whole GPU."""
    return str(share) if instance is None else f"{share}{OF_INSTANCE}{instance}"


def _round(compute: float) -> float:
    """Sums of decimals are decimals again."""
    return round(compute, _DECIMALS)


def format_percent(compute: float) -> str:
    """As short as it is exact: ``30%``, ``12.5%``."""
    return f"{compute:.{_DECIMALS}f}".rstrip("0").rstrip(".") + "%"


def is_share_text(text: str) -> bool:
    """Whether a share is meant, well written or not."""
    return text.strip().lower().startswith(PREFIX)


def parse_share(text: str) -> Share:
    """Reads ``share:8GiB,30%``. Raises ValueError, in a sentence, for another form, 0 % or more than 100 %, and less
    memory than one context needs.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a share: {text[:80]!r}; {_EXAMPLE}")
    return make_share(parse_size(match["memory"]), float(match["compute"]))


def parse_best_effort(text: str) -> Share | None:
    """Reads ``share:8GiB``, which reserves no time: its weight is that of all of a GPU. None for another form. Raises
    ValueError as ``parse_share``.
    """
    match = _MEMORY.fullmatch(text.strip())
    return make_share(parse_size(match["memory"]), MAX_COMPUTE) if match else None


def make_share(memory: int, compute: float) -> Share:
    """The share. Raises ValueError as ``parse_share``."""
    check_memory(memory)
    check_compute(compute)
    return Share(memory, compute)


def check_memory(memory: int) -> None:
    """Raises ValueError for less memory than one context needs."""
    if memory < MIN_BYTES:
        least = format_size(MIN_BYTES)
        raise ValueError(
            f"a share of {format_size(memory)} is too small: one CUDA context takes {least} of it, "
            f"so {least} is the least"
        )


def check_compute(compute: float) -> None:
    """Raises ValueError for less than 1 % or more than 100 %, and for more decimals than are kept."""
    if not MIN_COMPUTE <= compute <= MAX_COMPUTE:
        raise ValueError(
            f"a share of {compute:g}% of a GPU's time cannot be: {MIN_COMPUTE}% to {MAX_COMPUTE}% can"
        )
    if compute != _round(compute):
        raise ValueError(
            f"a share of {compute}% of a GPU's time has more than {_DECIMALS} decimals"
        )


def parse_parts(text: str) -> int | None:
    """How many equal shares ``share:1/4`` makes of a GPU; None for another form. Raises ValueError where that many
    cannot be.
    """
    match = _PARTS.fullmatch(text.strip())
    if match is None:
        return None
    parts = int(match["parts"])
    check_parts(parts)
    return parts


def check_parts(parts: int) -> None:
    """Raises ValueError where a GPU is not to have so many equal shares."""
    if not 1 <= parts <= MAX_PARTS:
        raise ValueError(f"a GPU has 1 to {MAX_PARTS} equal shares, not {parts}")


def divide(memory: int, parts: int) -> Share:
    """One of so many equal shares of a GPU that has so much memory for shares: whole MiB where it has that many, and
    percents to four decimals, rounded down.
    """
    each = memory // parts
    return Share(
        each - each % _MIB if each >= _MIB else each, MAX_COMPUTE * _STEPS // parts / _STEPS
    )


def describe_time(compute: float, policy: str) -> str:
    """For people: ``30% of the time, burst``; ``weight 30, best-effort``."""
    percent = format_percent(compute)
    if policy == ComputePolicy.BEST_EFFORT:
        return f"weight {percent.rstrip('%')}, {policy}"
    return f"{percent} of the time, {policy}"


def describe_free(free: Share) -> str:
    """What still fits beside shares, for people; ``nothing`` where no share does."""
    if free.memory < MIN_BYTES or free.compute < MIN_COMPUTE:
        return "nothing"
    return str(free)
