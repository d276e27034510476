"""Endurance: ``python -m tests.recovery.cycles --count N [--on fakes|here|daemon]``: attach and detach, and look
what grows.

On fakes every cycle takes a millisecond. ``here`` and ``daemon`` work on simulated machines with a genuine libvirtd
(``--backend mdev|vendor|mig-backed|vf|passthrough``), in this process or through the daemon.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import tracemalloc
from pathlib import Path

from tests.recovery import machine_cycles
from tests.support.fake_host import FakeVgpus, make_functions
from tests.support.service import Bench, make_bench
from vgpumgr.plan.attach import AttachRequest

#: caches are full and files have their size by then
WARM_UP = 50
MAX_GROWTH_BYTES = 1 << 20


def measure(bench: Bench, directory: Path) -> dict[str, int]:
    """What must not grow."""
    gc.collect()
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "rows": len(bench.store.list_attachments()),
        "files": len(files),
        "keepers": len(bench.channels.running),
        "vgpus": len(bench.vgpus.devices) + len(bench.vgpu_store.records),
        "bindings": len(bench.pci.bindings) + len(bench.pci.settings),
    }


def cycle(bench: Bench, count: int, profile: str) -> None:
    for number in range(count):
        vm = ("vm01", "vm02")[number % 2]
        bench.service.attach(AttachRequest(vm, profile))
        bench.service.detach(vm)
        # the fakes remember every call for the tests that look
        bench.nvml.calls.clear()
        bench.channels.specs.clear()
        bench.channels.next_memory.clear()


def run(count: int, profile: str = "1g.10gb") -> dict[str, object]:
    """Counts before and after, and the memory that Python holds more."""
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        directory = Path(name)
        bench = make_bench(directory, functions=make_functions(), vgpus=FakeVgpus())
        machine = bench.snapshot()
        cycle(bench, WARM_UP, profile)
        before = measure(bench, directory)
        tracemalloc.start()
        cycle(bench, 2, profile)
        start = tracemalloc.get_traced_memory()[0]
        cycle(bench, count, profile)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - start
        tracemalloc.stop()
        after = measure(bench, directory)
        # one file more where the journal has been put away once
        after["files"] -= (directory / "state" / "journal.old").exists()
        same = bench.snapshot() == machine
    return {
        "cycles": count,
        "before": before,
        "after": after,
        "grown_bytes": grown,
        "same_machine": same,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--on", choices=["fakes", "here", "daemon"], default="fakes")
    parser.add_argument(
        "--profile", default="1g.10gb", help="fakes: passthrough, vf:2, mtty-2, ..."
    )
    parser.add_argument("--backend", choices=list(machine_cycles.BACKENDS), default="mdev")
    parser.add_argument("--warm-up", type=int, default=WARM_UP)
    asked = parser.parse_args()
    if asked.on == "fakes":
        answer = run(asked.count, asked.profile)
        good = answer["before"] == answer["after"] and answer["same_machine"]
        bad = not good or int(str(answer["grown_bytes"])) > MAX_GROWTH_BYTES
    else:
        through = {"daemon": asked.on == "daemon"}
        answer = machine_cycles.run(asked.backend, asked.count, asked.warm_up, **through)
        answer["wrong"] = machine_cycles.judge(answer)
        bad = bool(answer["wrong"])
    print(json.dumps(answer, indent=1))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
