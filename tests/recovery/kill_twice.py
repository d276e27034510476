"""Two commands killed, one after the other: ``python -m tests.recovery.kill_twice [--every N] [--step KIND]``.

The first is killed at each of its points, the second, which begins with what the first left, at each of its own;
then ``recover`` runs, twice. Nothing may be left over or lost then. One of the VMs gets a controller with its device,
which only the record of what its definition had before can tell from one of the administrator's. With ``--step``
the first is killed in that step alone; with ``--every N`` only each N-th case is tried.

Prints what was reached: cases and pairs of points. Exits 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.recovery.breakages import BREAKAGES
from tests.recovery.kill_many import check
from tests.recovery.killing import ALL_POINTS, copied, do_recover, run_and_copy
from tests.recovery.pairs import find_step
from tests.recovery.scenarios import Act, attach, detach
from tests.recovery.sweep import _scratch
from tests.recovery.world import World
from vgpumgr.errors import VgpumgrError

#: the first command, with what comes before it; and those that follow
FIRST: dict[str, tuple[Act, Act]] = {
    "attach": (lambda _world: None, attach("vm03")),
    "detach": (attach("vm03"), detach("vm03")),
}
SECOND: dict[str, Act | Callable[[World], Any]] = {
    "attach": attach("vm03"),
    "attach of another": attach("vm01"),
    "detach": detach("vm03"),
    "recover": do_recover,
}


def _quietly(act: Callable[[World], Any]) -> Callable[[World], None]:
    def run(world: World) -> None:
        with suppress(VgpumgrError):
            act(world)

    return run


def _kill(root: Path, act: Callable[[World], Any], points: frozenset[int], to: Path) -> int:
    """How many points it passes; what a kill at each of those asked for leaves is in ``to`` then."""
    outcome = run_and_copy(root, _quietly(act), points, to)
    assert outcome.error is None, outcome.error
    return outcome.points


def kill_twice(directory: Path, every: int, step: str | None) -> Iterator[tuple[str, list[str]]]:
    """Yields (case, what is wrong): each ``every``-th."""
    skip = 0
    for first, (before, act) in FIRST.items():
        template, once = directory / first, directory / f"{first} killed"
        World(template).make(mig=False, running=False)
        before(World(template))
        with copied(template, directory / "first") as root:
            points = _kill(root, act, ALL_POINTS, once)
        for point in range(1, points + 1):
            if step is not None and find_step(once / str(point)) != step:
                continue
            for second, following in SECOND.items():
                twice = directory / "twice"
                chosen = frozenset(range(skip + 1, 1000, every))
                with copied(once / str(point), directory / "second") as root:
                    passed = _kill(root, following, chosen, twice)
                reached = [again for again in sorted(chosen) if again <= passed]
                for again in reached:
                    yield f"{first} @{point}, {second} @{again}", check(twice / str(again))
                skip = (skip - passed) % every
                shutil.rmtree(twice, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of the cases")
    parser.add_argument("--step", metavar="KIND", help="in which the first is killed")
    parser.add_argument("--break", dest="breakage", choices=sorted(BREAKAGES))
    options = parser.parse_args()
    if options.breakage:
        BREAKAGES[options.breakage]()
    wrong: dict[str, list[str]] = {}
    cases = 0
    with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
        for case, problems in kill_twice(Path(directory), options.every, options.step):
            cases += 1
            if problems:
                wrong[case] = problems
                print(case, *problems, sep="\n    ", file=sys.stderr, flush=True)
    print(json.dumps({"cases": cases, "wrong": wrong}, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
