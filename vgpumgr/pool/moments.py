"""Moments and durations, as people write them."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

from vgpumgr.errors import UsageError
from vgpumgr.host.zone import find_zone

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"([0-9]{1,6})([smhdw])")
_FORM = "2026-12-01T08:00, in the time zone of this machine, or with one: 2026-12-01T08:00+01:00"
#: the year 9999 is beyond what some clocks show
_LAST_S = 4_102_444_800.0


def read_moment(text: str, option: str, zone: str | None = None) -> float:
    """Seconds since 1970. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=check_zone(zone or find_zone()))
        time_s = moment.timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"no time for {option}: {text!r}",
            why=f"it is written as {_FORM}",
            hint=f"{option} 2026-12-01T08:00",
        ) from error
    if not 0 <= time_s < _LAST_S:
        raise UsageError(f"no time for {option}: {text!r}", why="the year is from 1970 to 2099")
    return time_s


def read_duration(text: str, option: str) -> float:
    """Seconds. Raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise UsageError(
            f"no duration for {option}: {text!r}",
            why="it is a number with s, m, h, d or w, as 90m or 2h",
            hint=f"{option} 2h",
        )
    return float(int(match[1]) * _UNITS[match[2]])


def check_zone(name: str) -> tzinfo:
    """The zone. Raises UsageError where this machine has none of that name."""
    from zoneinfo import ZoneInfo  # no listing needs it

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(
            f"no time zone: {name!r}",
            why="it is a name as Europe/Berlin, and Debian has them in the package tzdata",
            hint="--zone UTC",
        ) from error
