"""``./run bench [NAME...] [--json FILE]``: run benchmarks, print a table, exit 1 if a goal is missed.

``pytorch``, ``suites`` and ``suites-small`` run only when they are named. ``page --minutes N`` also measures the
memory of a page that is open so long.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.registry import Figure, circumstances

BENCHMARKS = {
    "cli": "bench.cli_start",
    "channel": "bench.channel",
    "calls": "bench.calls",
    "guest": "bench.guest",
    "planner": "bench.planner",
    "pool": "bench.pool",
    "link": "bench.link",
    "binding": "bench.binding",
    "top": "bench.top",
    "daemon": "bench.daemon",
    "recovery": "bench.recovery",
    "inventory": "bench.inventory",
    "lab": "bench.lab",
    "page": "bench.page",
    "ptx": "bench.ptx",
    "share": "bench.share",
    "pytorch": "bench.pytorch",
    "suites": "bench.suites",
    "suites-small": "bench.suites_small",
}
#: only when they are named: they install packages of their own, and one takes most of an hour
LONG = ("pytorch", "suites", "suites-small")


def measure(names: list[str], minutes: float) -> Iterator[Figure]:
    """Run the named benchmarks one after another."""
    for name in names:
        module = importlib.import_module(BENCHMARKS[name])
        yield from module.run()
        if name == "page" and minutes:
            yield from module.run_long(minutes)


def show(figure: Figure) -> str:
    """One line of the table."""
    verdict = "met" if figure.met else "MISSED"
    return (
        f"{figure.name:44} {figure.ours:12.4g} {figure.floor:12.4g} {figure.unit:8} {figure.ratio:8.3g}x  "
        f"{verdict:6} ({figure.goal}; against {figure.floor_name}; {figure.backend})"
    )


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--minutes",
        type=float,
        default=0,
        metavar="N",
        help="page: its memory after so many minutes",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if options.minutes and "page" not in options.names:
        parser.error("--minutes is for page")
    about = circumstances()
    print("  ".join(f"{key}: {value}" for key, value in about.items()))
    print(f"{'what':44} {'ours':>12} {'floor':>12} {'unit':8} {'ratio':>9}")
    names = options.names or [name for name in BENCHMARKS if name not in LONG]
    figures = []
    for figure in measure(names, options.minutes):
        figures.append(figure)
        print(show(figure), flush=True)
    if options.json:
        document = {"about": about, "figures": [f.as_dict() for f in figures]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(f.met for f in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
