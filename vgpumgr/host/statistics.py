"""Counts of operations since the host's boot: a small file in the run directory.

Commands without a daemon and a daemon that restarts count on in the same file. It is no state:
a reader that finds it missing or broken begins anew, as Prometheus expects of counters.
"""

from __future__ import annotations

import bisect
import contextlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path

from vgpumgr.host.clock import Clock
from vgpumgr.host.files import make_directory, replace_file
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.frozen import dataclass

#: seconds; an attachment takes a few of them, most of it the worker's start
DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """One kind of operation. ``buckets[i]`` counts those that took longer than bound i - 1 and at
    most bound i; the last one is without bound.
    """

    op: str
    outcomes: dict[str, int]
    buckets: tuple[int, ...]
    duration_sum_s: float = field(metadata={"alias": "sum_s"})

    def add(self, outcome: str, bucket: int, duration_s: float) -> OperationCounts:
        """With one operation more."""
        outcomes = {**self.outcomes, outcome: self.outcomes.get(outcome, 0) + 1}
        buckets = tuple(n + (i == bucket) for i, n in enumerate(self.buckets))
        total_s = self.duration_sum_s + duration_s
        return replace(self, outcomes=outcomes, buckets=buckets, duration_sum_s=total_s)


class OperationStatistics:
    """The file. Writers hold the machine's lock; readers need none."""

    def __init__(self, path: Path, bounds_s: Sequence[float]) -> None:
        self.path = path
        self._bounds_s = tuple(bounds_s)

    @contextmanager
    def measure(self, op: str, clock: Clock) -> Iterator[None]:
        """Counts what happens inside: ``done``, or by the error ``rolled-back`` (exit code 9),
        ``incomplete`` (10), ``failed``.
        """
        began_s = clock.monotonic_s()
        outcome = "done"
        try:
            yield
        except BaseException as error:
            code = getattr(error, "exit_code", None)
            outcome = {9: "rolled-back", 10: "incomplete"}.get(code or 0, "failed")
            raise
        finally:
            self.count(op, outcome, clock.monotonic_s() - began_s)

    def count(self, op: str, outcome: str, duration_s: float) -> None:
        """Adds one operation; a file that cannot be written is no error of the operation."""
        counts = {entry.op: entry for entry in self.list_counts()}
        empty = OperationCounts(op, {}, (0,) * (len(self._bounds_s) + 1), 0.0)
        bucket = bisect.bisect_left(self._bounds_s, duration_s)
        counts[op] = counts.get(op, empty).add(outcome, bucket, duration_s)
        with contextlib.suppress(OSError):
            make_directory(self.path.parent)
            replace_file(self.path, json.dumps(encode(list(counts.values()))))

    def list_counts(self) -> tuple[OperationCounts, ...]:
        """What is counted so far, by name; nothing if the file is missing, broken or of another version."""
        try:
            found = decode(list[OperationCounts], json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return ()
        for entry in found:
            counts = (*entry.buckets, *entry.outcomes.values())
            if len(entry.buckets) != len(self._bounds_s) + 1 or min(counts) < 0:
                return ()
        return tuple(sorted(found, key=lambda entry: entry.op))


def open_statistics(run_dir: Path) -> OperationStatistics:
    """The counts of operations of the machine with that run directory."""
    return OperationStatistics(run_dir / "operations.json", DURATION_BUCKETS_S)
