"""Runs sequences directly and forwarded, compares what each call gave, and makes a failing sequence short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from tests.differential.arrays import ARRAY_PROGRAMS
from tests.differential.graphs import GRAPH_PROGRAMS
from tests.differential.tensors import TENSOR_PROGRAMS
from tests.differential.virtual import VIRTUAL_PROGRAMS
from tests.differential.waits import WAIT_PROGRAMS
from tests.unit.calls_rig import PROGRAM_S, SHIM, guest_env
from tests.unit.several_rig import Guest
from tests.unit.transport_rig import LIB, Rig
from vgpumgr.virtio.codegen.__main__ import load

ROOT = Path(__file__).parents[2]
OWN_PROGRAMS = {
    **GRAPH_PROGRAMS,
    **VIRTUAL_PROGRAMS,
    **ARRAY_PROGRAMS,
    **WAIT_PROGRAMS,
    **TENSOR_PROGRAMS,
}
DRIVER = LIB / "sim" / "libcuda.so.1"
#: what depends on time: done, or not yet
TIMELY = {"cuStreamQuery", "cuEventQuery", "cuEventElapsedTime_v2"}
NOT_READY = 600


class Runner:
    """A process that runs one sequence after the other, each in a child of its own."""

    def __init__(self, library: Path, env: dict[str, str]) -> None:
        words = [sys.executable, "-m", "tests.differential.program", str(library)]
        env = env | {"PYTHONPATH": str(ROOT), "VGPUMGR_QUIET": "1"}
        self.process = subprocess.Popen(
            words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def send(self, sequence: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(sequence) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the program of the sequences has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, sequence: dict[str, Any]) -> dict[str, Any]:
        self.send(sequence)
        return self.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PROGRAM_S)
        finally:
            self.process.kill()
            self.process.wait()


@contextmanager
def direct(**more: str) -> Iterator[Runner]:
    with Runner(DRIVER, os.environ | more) as runner:
        yield runner


@contextmanager
def forwarded_to(guest: Guest) -> Iterator[Runner]:
    """Over a channel for each device."""
    with Runner(SHIM, guest.environment()) as runner:
        yield runner


@contextmanager
def forwarded(rig: Rig) -> Iterator[Runner]:
    with Runner(SHIM, guest_env(rig)) as runner:
        yield runner


def normalise(name: str, answer: Any) -> Any:
    if name in TIMELY and isinstance(answer, list) and answer[0] == NOT_READY:
        return [0, *answer[1:]]
    return answer


@dataclass(frozen=True)
class Difference:
    """The first call that gave something else."""

    sequence: dict[str, Any]
    position: int
    expected: Any
    found: Any

    @property
    def kind(self) -> tuple[Any, ...]:
        """The call, and the codes that it gave."""
        if self.position < 0:
            return ("whole",)
        codes = [a[0] if isinstance(a, list) and a else a for a in (self.expected, self.found)]
        return (self.sequence["steps"][self.position][1], *codes)

    def __str__(self) -> str:
        steps = self.sequence["steps"]
        lines = [f"  {i:3} thread {t}: {name}({', '.join(map(str, a))})"
                 for i, (t, name, a) in enumerate(steps)]  # fmt: skip
        if 0 <= self.position < len(lines):
            lines[self.position] += f"   <-- directly {self.expected}, forwarded {self.found}"
        else:
            lines.append(f"  directly {self.expected}, forwarded {self.found}")
        return "\n".join([f"seed {self.sequence['seed']}:", *lines])


def compare(
    sequence: dict[str, Any], expected: dict[str, Any], found: dict[str, Any]
) -> Difference | None:
    if expected.keys() != found.keys() or "died" in expected:
        return Difference(sequence, -1, expected, found)
    steps, answers = sequence["steps"], zip(expected["answers"], found["answers"], strict=True)
    for position, (one, other) in enumerate(answers):
        name = steps[position][1]
        if normalise(name, one) != normalise(name, other):
            return Difference(sequence, position, one, other)
    for part in ("order", "printed"):
        if expected[part] != found[part]:
            return Difference(sequence, -1, expected[part], found[part])
    return None


def shorten(difference: Difference, one: Runner, other: Runner) -> Difference:
    """Leaves out steps, in ever smaller pieces, as long as something differs."""
    best, piece = difference, max(1, len(difference.sequence["steps"]) // 2)

    def is_alike(found: Difference | None) -> bool:
        """The same call, the same codes: another difference is another finding."""
        return found is not None and found.kind == difference.kind

    while True:
        start = 0
        while start < len(best.sequence["steps"]):
            steps = best.sequence["steps"]
            shorter = best.sequence | {"steps": steps[:start] + steps[start + piece :]}
            found = compare(shorter, one.run(shorter), other.run(shorter))
            if found and is_alike(found):
                best = found
            else:
                start += piece
        if piece == 1:
            return best
        piece //= 2


def list_operations() -> dict[str, tuple[str, ...]]:
    """Which operations of the description each function is made of."""
    spec = load()
    by_name = {f.name: f for f in spec.functions}
    found = {}
    for name, function in by_name.items():
        last = by_name[function.via] if function.via else function
        found[name] = last.uses or ((last.operation,) if last.operation else ())
    for name, others in OWN_PROGRAMS.items():
        found[name] = tuple({o for n in (name, *others) for o in found[n]})
    return found


@dataclass
class Reached:
    """What has been called with success, and with an error; which call came after which in one thread."""

    sequences: int = 0
    calls: Counter[tuple[str, bool]] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    printed: int = 0

    def add(self, sequence: dict[str, Any], answer: dict[str, Any]) -> None:
        self.sequences += 1
        self.printed += len(answer["printed"])
        by_thread: dict[int, list[str]] = {}
        for (thread, name, _), got in zip(sequence["steps"], answer["answers"], strict=True):
            if name != "settle":
                self.calls[name, got[0] == 0] += 1
                by_thread.setdefault(thread, []).append(name)
        for names in by_thread.values():
            self.pairs.update(pairwise(names))

    @property
    def operations(self) -> set[str]:
        """Operations of the description below the calls that have succeeded."""
        below = list_operations()
        found = {o for name, good in self.calls if good for o in below.get(name, ())}
        return found | {"output_next"} if self.printed else found

    @property
    def operation_pairs(self) -> set[tuple[str, str]]:
        below = list_operations()
        return {(a, b) for one, other in self.pairs
                for a in below.get(one, ()) for b in below.get(other, ())}  # fmt: skip

    def describe(self) -> str:
        good = {name for name, good in self.calls if good}
        bad = {name for name, good in self.calls if not good}
        every = load().operations
        return (
            f"{self.sequences} sequences, {self.calls.total()} calls of {len(good | bad)} functions "
            f"({len(good)} succeeded, {len(bad)} failed at least once), {len(self.pairs)} pairs of functions; "
            f"{len(self.operations)} of {len(every)} operations of the description, "
            f"{len(self.operation_pairs)} of {len(every) ** 2} pairs of operations, "
            f"{self.printed} printed lines"
        )


def run_all(
    sequences: Sequence[dict[str, Any]], one: Runner, others: Sequence[Runner]
) -> tuple[Reached, list[Difference]]:
    """What was reached, and the differences, the first of each kind made short."""
    reached, differences, kinds = Reached(), list[Difference](), set[tuple[Any, ...]]()
    for sequence in sequences:
        for runner in (one, *others):
            runner.send(sequence)
        expected, *found = [runner.receive() for runner in (one, *others)]
        reached.add(sequence, expected) if "died" not in expected else None
        for runner, answer in zip(others, found, strict=True):
            if difference := compare(sequence, expected, answer):
                known = difference.kind in kinds
                kinds.add(difference.kind)
                differences.append(difference if known else shorten(difference, one, runner))
    return reached, differences
