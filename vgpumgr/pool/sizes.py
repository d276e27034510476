"""The size of a claim, as people write it."""

from __future__ import annotations

import re

from vgpumgr.errors import UsageError
from vgpumgr.model.shares import parse_share

#: a profile that is no share
WHOLE = "whole"
_MEMORY_ONLY = re.compile(r"share:[0-9.]+[A-Za-z]+")


def read_size(profile: str) -> tuple[int | None, float | None]:
    """Memory and percent of time of each GPU; None of both for a whole one. Raises UsageError."""
    if profile.strip().lower() == WHOLE:
        return None, None
    try:
        share = parse_share(profile)
    except ValueError as error:
        why, hint = str(error), f"--profile {WHOLE}"
        if _MEMORY_ONLY.fullmatch(profile.strip()):
            why, hint = "the percentage of time is missing", f"--profile {profile.strip()},30%"
        raise UsageError(f"no profile of a claim: {profile!r}", why=why, hint=hint) from error
    return share.memory, share.compute
