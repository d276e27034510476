"""``./run docs [DIRECTORY]``."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.site import ROOT, build


def main(arguments: list[str]) -> int:
    """Build the site; exit status 1 if a page has a mistake."""
    target = Path(arguments[0]) if arguments else ROOT / "dist/site"
    mistakes = build(target)
    for mistake in mistakes:
        print(f"docs: {mistake}", file=sys.stderr)
    print(target / "index.html")
    return int(bool(mistakes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
