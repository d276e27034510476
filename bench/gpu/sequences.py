"""Random call sequences (tests/differential) on the host's driver: directly against forwarded.

usage: python3 -m bench.gpu.sequences COUNT SEED [--answers FILE] [--against FILE]

``--answers`` keeps what the driver answered; on a machine with the simulated driver, ``--against`` such a file tells
where the simulated driver answers something else than the GPU did.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.gpu.rig import SHIMS, channel, direct, find_driver
from tests.differential.compare import Difference, Reached, Runner, compare, shorten
from tests.differential.generate import generate

LONGEST = 25
#: a step that is no call
BY_HAND = {"settle"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--shorten", type=int, default=6, help="so many differences are made short")
    options = parser.parse_args()
    driver = ctypes.CDLL(str(find_driver()))
    sequences = [shared(driver, generate(options.seed + i)) for i in range(options.count)]
    if options.against:
        return compare_with(options.against)
    reached, differences = Reached(), list[Difference]()
    answers = []
    with ExitStack() as stack:
        one = stack.enter_context(Runner(find_driver(), direct()))
        rig = stack.enter_context(channel())
        other = stack.enter_context(Runner(SHIMS / "libcuda.so.1", rig.guest()))
        kinds = set[tuple[Any, ...]]()
        for sequence in sequences:
            for runner in (one, other):
                runner.send(sequence)
            expected, found = one.receive(), other.receive()
            answers.append({"sequence": sequence, "answer": expected})
            if "died" not in expected:
                reached.add(sequence, expected)
            if difference := compare(sequence, expected, found):
                if difference.kind not in kinds and len(kinds) < options.shorten:
                    difference = shorten(difference, one, other)
                kinds.add(difference.kind)
                differences.append(difference)
        violations = rig.status().violations.count
    if options.answers:
        options.answers.write_text(json.dumps(answers))
    return tell(reached, differences, violations)


def shared(driver: ctypes.CDLL, sequence: dict[str, Any]) -> dict[str, Any]:
    """Without the calls that this driver is too old for."""
    steps = [step for step in sequence["steps"] if step[1] in BY_HAND or hasattr(driver, step[1])]
    return sequence | {"steps": steps}


def compare_with(file: Path) -> int:
    """The simulated driver of the machine that the environment names, against what a GPU answered."""
    reached, differences = Reached(), list[Difference]()
    with Runner(find_driver(), direct()) as one:
        for kept in json.loads(file.read_text()):
            sequence = kept["sequence"]
            found = one.run(sequence)
            if "died" not in found:
                reached.add(sequence, found)
            if difference := compare(sequence, kept["answer"], found):
                differences.append(difference)
    return tell(reached, differences, 0)


def tell(reached: Reached, differences: list[Difference], violations: int) -> int:
    """Counts, and the shortest of each kind."""
    print(f"{reached.describe()}; {len(differences)} differ; {violations} violations")
    count = Counter(d.kind for d in differences)
    for kind, number in count.most_common(LONGEST):
        shortest = min(
            (d for d in differences if d.kind == kind), key=lambda d: len(d.sequence["steps"])
        )
        print(f"\n{number} x {kind}\n{str(shortest)[-2500:]}")
    return int(bool(differences or violations))


if __name__ == "__main__":
    sys.exit(main())
