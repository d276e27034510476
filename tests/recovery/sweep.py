"""The exhaustive sweep: ``python -m tests.recovery.sweep [--nested N] [NAME...]``.

Each scenario is killed at each of its points; then recovery is, at each of its own (or every N-th).
Prints how many kills were planned and how many happened; exits 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.recovery.breakages import BREAKAGES
from tests.recovery.killing import Breakage, Judge, copied, do_recover, prepare, run_child
from tests.recovery.scenarios import SCENARIOS, Scenario


def sweep(
    scenario: Scenario,
    directory: Path,
    nested_step: int,
    breakage: Breakage | None = None,
    every: int = 1,
) -> Iterator[tuple[str, bool, list[str]]]:
    """Yields (case, whether all planned kills happened, what is wrong)."""
    template, root, again = directory / "template", directory / "root", directory / "again"
    judge, points = prepare(scenario, template, directory / "scratch")
    for number in range(1 + len(scenario.name) % every, points + 1, every):
        with copied(template, root):
            killed = run_child(root, scenario.run, number, breakage).killed
            if nested_step and number // every % nested_step == 0:
                yield from _nested(scenario, number, root, again, judge, breakage)
            yield f"{scenario.name} @{number}", killed, judge.judge(root, breakage)


def _nested(
    scenario: Scenario,
    number: int,
    root: Path,
    again: Path,
    judge: Judge,
    breakage: Breakage | None,
) -> Iterator[tuple[str, bool, list[str]]]:
    second = 0
    while True:
        second += 1
        with copied(root, again):
            if not run_child(again, do_recover, second, breakage).killed:
                return
            yield (
                f"{scenario.name} @{number}, recovery @{second}",
                True,
                judge.judge(again, breakage),
            )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nested", type=int, default=1, metavar="N")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of the points")
    parser.add_argument("--break", dest="breakage", choices=sorted(BREAKAGES))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    chosen = [s for s in SCENARIOS if not options.names or s.name in options.names]
    breakage = BREAKAGES[options.breakage] if options.breakage else None
    planned = happened = 0
    wrong: dict[str, list[str]] = {}
    for scenario in chosen:
        with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
            for case, killed, problems in sweep(
                scenario, Path(directory), options.nested, breakage, options.every
            ):
                planned, happened = planned + 1, happened + killed
                if problems:
                    wrong[case] = problems
    print(json.dumps({"planned": planned, "happened": happened, "wrong": wrong}, indent=1))
    return int(bool(wrong) or planned != happened)


def _scratch() -> str | None:
    """Memory, where there is some: nothing here asks for a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
