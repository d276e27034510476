"""``python -m vgpumgr``, and the command ``vgpumgr``."""

from __future__ import annotations

import sys


def main() -> int:
    """Loads the command line and runs it; returns the exit code."""
    try:
        from vgpumgr.cli.main import main as run
    except KeyboardInterrupt:
        return 130  # nothing is begun yet
    return run()


if __name__ == "__main__":
    sys.exit(main())
