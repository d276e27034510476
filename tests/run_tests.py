"""What ``./run test`` runs: all of pytest, two at a time. ``--fast`` leaves out what boots a guest or the lab
host, and what sets the project up on a fresh system.
"""

from __future__ import annotations

import os
import sys

import pytest

#: no test starts after that; what hangs must end with a report, not with the end of who runs the tests
LIMIT_S = 4200


def main(arguments: list[str]) -> int:
    """Run the tests; arguments go to pytest."""
    options = ["-n", str(min(2, os.cpu_count() or 1)), "--dist", "loadgroup", "--durations", "15"]
    options += ["--session-timeout", str(LIMIT_S)]
    if "--fast" in arguments:
        arguments = [a for a in arguments if a != "--fast"]
        options += ["-m", "not guest and not lab and not fresh"]
    return int(pytest.main([*options, *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
