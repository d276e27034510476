"""``python -m vgpumgr``, and the command ``vgpumgr``."""

from __future__ import annotations

import sys


def main() -> int:
    """Loads the command line and runs it; returns the exit code."""
    try:
        from vgpumgr.cli.main import main as run
    except KeyboardInterrupt:
        return 130  # nothing is begun yet
    except (ImportError, MemoryError, OSError, SyntaxError, SystemError) as error:
        return _explain(error)
    try:
        return run()
    except MemoryError as error:  # not even for its error text; what the command had is free by now
        return _explain(error)


def _explain(error: BaseException) -> int:
    """What kept the program from being loaded; may itself have no memory to load more."""
    hint = "install vgpumgr again"
    try:
        from vgpumgr.errors.unexpected import advise_installation, find_lack

        lack, hint = find_lack(error), advise_installation()
    except (ImportError, SyntaxError):
        lack = None  # as little of it is there
    except (MemoryError, OSError, SystemError):
        lack = "not enough memory"
    if lack is not None:
        sys.stderr.write(
            f"error:   vgpumgr lacks what it needs of the host\nwhy:     {lack}        (VG192, exit 1)\n"
        )
        return 1
    if not isinstance(error, ImportError | SyntaxError):
        raise error
    sys.stderr.write(
        f"error:   the installation of vgpumgr is incomplete\ncause:   {error}\n"
        f"try:     {hint}        (VG133, exit 7)\n"
    )
    return 7


if __name__ == "__main__":
    sys.exit(main())
