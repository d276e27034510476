"""Endurance: ``python -m tests.recovery.cycles --count N [--on WHAT] [--backend B]``: attach and detach, and look
what grows.

On ``fakes`` a cycle takes milliseconds; ``fakes-daemon`` is a daemon on them; there ``--backend all`` is every backend
in each cycle. ``here`` and ``daemon`` work on simulated machines with a genuine libvirtd, in this process or through
the daemon. What still grows in the second half of the cycles is an error: see ``growth``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.recovery import growth, machine_cycles
from tests.recovery.fakes_backends import ASKED, NEEDS_MIG, make_application, make_world
from tests.recovery.machine_cycles import call_daemon, count_entries
from tests.recovery.watched_daemon import ask

#: caches, histories and the journal have their size by then, or in the first half
WARM_UP = {"fakes": 20, "fakes-daemon": 20, "here": 50, "daemon": 50}
#: on fakes
LOOKS = 20
VMS = ("vm01", "vm02")
PATIENCE_S = 120.0


def cycle(call: Callable[..., Any], backends: Sequence[str], count: int) -> None:
    """Every backend once in each of them."""
    for number in range(count):
        for backend in backends:
            vm = VMS[number % len(VMS)]
            if backend in NEEDS_MIG:
                call("set_mig_mode", gpu="0", enabled=True)
            call("attach", vm=vm, **ASKED[backend])
            call("detach", vm=vm)
            if backend in NEEDS_MIG:
                call("set_mig_mode", gpu="0", enabled=False)


def run_here(backends: Sequence[str], count: int, warm_up: int, leak: str | None) -> dict[str, Any]:
    """On fakes in this process: objects, descriptors, threads, files, and the machine before and after."""
    with open_directory() as directory:
        world = make_world(directory)
        application = make_application(directory, world, leak)
        call = lambda operation, **asked: getattr(application, operation)(**asked)  # noqa: E731
        cycle(call, backends, warm_up)
        machine, before = world.summary(), measure_here(directory)
        more = partial(cycle, call, backends)
        series = growth.watch(more, growth.read_own, count, LOOKS)
        after = measure_here(directory)
        same = world.summary() == machine
    return describe(series, count, before, after) | {"same_machine": same}


def measure_here(directory: Path) -> dict[str, int]:
    """What a cycle must leave as it was; a journal that was put away is one file, and bounded."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {
        "descriptors": count_entries("/proc/self/fd"),
        "threads": threading.active_count(),
        "files": sum(path.name != "journal.old" for path in files),
    }


def run_daemon(
    backends: Sequence[str], count: int, warm_up: int, leak: str | None
) -> dict[str, Any]:
    """The same through a daemon, a process of its own."""
    with open_directory() as directory:
        watch = directory / "watch.sock"
        home = directory / "home"
        words = ["tests.recovery.watched_daemon", str(watch), "--fakes", str(home)]
        words += ["--leak", leak] if leak else []
        with call_daemon(words, home / "run") as (call, pid):
            cycle(call, backends, warm_up)
            before = measure_process(pid)
            more = partial(cycle, call, backends)
            series = growth.watch(more, lambda: look(watch, home), count, LOOKS)
            after = settle(lambda: measure_process(pid), before)
    return describe(series, count, before, after)


def look(watch: Path, home: Path) -> growth.Sample:
    """What the daemon holds, in memory and in its state directory."""
    return {**ask(watch), **growth.measure_state(home / "state")}


def measure_process(pid: int) -> dict[str, int]:
    """As the kernel counts."""
    return {
        "descriptors": count_entries(f"/proc/{pid}/fd"),
        "threads": count_entries(f"/proc/{pid}/task"),
    }


def settle(measure: Callable[[], dict[str, int]], before: dict[str, int]) -> dict[str, int]:
    """What is there at rest: now and then a daemon looks at its machine, and opens something for that."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        after = measure()
        if all(after[key] <= before[key] for key in before) or time.monotonic() > end_s:
            return after
        time.sleep(0.2)


@contextmanager
def open_directory() -> Iterator[Path]:
    """In memory where there is room: no cycle waits for a disk."""
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        yield Path(name)


def describe(
    series: growth.Series, count: int, before: dict[str, int], after: dict[str, int]
) -> dict[str, Any]:
    """What was found, before it is judged."""
    return {
        "cycles": count,
        "before": before,
        "after": after,
        "growth": series.describe(),
        "largest": series.find_largest(),
    }


def judge(answer: dict[str, Any]) -> list[str]:
    """What has leaked."""
    wrong = machine_cycles.judge(answer)
    return wrong if answer.get("same_machine", True) else [*wrong, "the machine is not as before"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--on", choices=list(WARM_UP), default="fakes")
    parser.add_argument("--backend", choices=["all", *ASKED], default="mdev")
    parser.add_argument("--warm-up", type=int)
    parser.add_argument(
        "--leak", choices=list(ASKED), help="on fakes: keep an object for each such attach"
    )
    asked = parser.parse_args()
    warm_up = WARM_UP[asked.on] if asked.warm_up is None else asked.warm_up
    if asked.on in ("fakes", "fakes-daemon"):
        backends = tuple(ASKED) if asked.backend == "all" else (asked.backend,)
        work = run_here if asked.on == "fakes" else run_daemon
        answer = work(backends, asked.count, warm_up, asked.leak)
    elif asked.backend not in machine_cycles.BACKENDS:
        parser.error(f"--on {asked.on} has no backend {asked.backend}")
    else:
        through = {"daemon": asked.on == "daemon"}
        answer = machine_cycles.run(asked.backend, asked.count, warm_up, **through)
    answer["wrong"] = judge(answer)
    print(json.dumps(answer, indent=1))
    return int(bool(answer["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
