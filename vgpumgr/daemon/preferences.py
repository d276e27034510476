"""What a caller would like of an answer: the header ``Prefer`` (RFC 7240)."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: a request is not held longer than this
MAX_WAIT_S = 60.0
_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)


def read_wait_s(preferences: Sequence[str]) -> float | None:
    """How long the caller would wait for the end of what is begun; None: not at all. What cannot be
    read is ignored, as preferences are.
    """
    for words in preferences:
        for word in re.split("[,;]", words):
            match = _WAIT.fullmatch(word.strip())
            if match is not None:
                return min(float(match[1]), MAX_WAIT_S)
    return None
