"""``python -m tests.lives [COUNT] [TRANSPORT]``: that many lives of guest processes.

COUNT is 10,000 and TRANSPORT the ring unless said.

Four run at a time. Prints how many were killed in which phase, how long it took, and what is left; fails if
anything is, or if too few of the kills came.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from tests.lives import PHASES
from tests.unit.calls_rig import guest_env, simulated_channel
from tests.unit.transport_rig import Rig, open_fds, wait_for

ROOT = Path(__file__).parents[2]
AT_ONCE = 4
#: of the kills that were meant: the others came too late, after the process's end
HITS = 0.8
#: memory that a process may keep for later use
GROWTH_KIB = 16 << 10
FREE = """
from tests.unit.guest_cuda import *
f, n = c_size_t(), c_size_t(); context(); ok(cu.cuMemGetInfo_v2(byref(f), byref(n))); print(f.value)
"""


def list_descendants(pid: int) -> list[int]:
    """None of a process that has ended."""
    children = list[int]()
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (task / "children").read_text().split())
    return children + [other for child in children for other in list_descendants(child)]


def read_memory_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def run_guest(rig: Rig, *words: str) -> subprocess.Popen[str]:
    env = guest_env(rig) | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *words], env=env, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


@dataclass(frozen=True, slots=True)
class Held:
    """What a channel's processes hold on this host when no guest process runs."""

    processes: int
    worker_files: int
    keeper_files: int
    agent_files: int
    free_bytes: int

    def exceeds(self, before: Held) -> bool:
        pairs = zip(astuple(self)[:-1], astuple(before)[:-1], strict=True)
        return self.free_bytes != before.free_bytes or any(now > then for now, then in pairs)


def settle(rig: Rig) -> None:
    """Nothing runs but the spare session."""
    status = rig.wait_status(lambda s: not s.lanes and not s.sessions.stuck, "lanes freed")
    wait_for(lambda: len(list_descendants(status.worker.pid)) == 1, "only the spare is left")


def measure(rig: Rig) -> Held:
    out, _ = run_guest(rig, "-c", FREE).communicate()
    settle(rig)
    status = rig.status()
    assert status.totals.memory_bytes == 0
    assert rig.agent is not None
    return Held(
        len(list_descendants(status.keeper_pid)),
        open_fds(status.worker.pid),
        open_fds(status.keeper_pid),
        open_fds(rig.agent.pid),
        int(out),
    )


@dataclass(frozen=True, slots=True)
class Lives:
    """How many there were, and where they were killed."""

    count: int
    meant: Counter[str]
    hit: Counter[str]
    seconds: float
    grown_kib: dict[str, int]

    def describe(self) -> str:
        phases = ", ".join(f"{name} {self.hit[name]}" for name in PHASES)
        grown = ", ".join(f"{name} {kib:+} KiB" for name, kib in self.grown_kib.items())
        return (
            f"{self.count} lives in {self.seconds:.0f} s, {self.hit.total()} killed of "
            f"{self.meant.total()} meant ({phases}); memory: {grown}; nothing left"
        )


def run_lives(rig: Rig, count: int, seed: int = 1) -> Lives:
    """Runs them, and asserts that nothing is left and that the kills came."""
    run_guest(rig, "-m", "tests.lives.program", "9", "0").communicate()  # what is made once
    settle(rig)
    before, first, held = rig.status(), time.monotonic(), measure(rig)
    assert rig.agent is not None
    pids = {"worker": before.worker.pid, "keeper": before.keeper_pid, "agent": rig.agent.pid}
    memory = {name: read_memory_kib(pid) for name, pid in pids.items()}
    parts = [count // AT_ONCE + (i < count % AT_ONCE) for i in range(AT_ONCE)]
    programs = [
        run_guest(rig, "-m", "tests.lives.program", str(part), str(seed * AT_ONCE + i))
        for i, part in enumerate(parts)
    ]
    meant, hit = Counter[str](), Counter[str]()
    for program in programs:
        out, _ = program.communicate()
        assert program.returncode == 0
        found = json.loads(out.splitlines()[-1])
        meant.update(found["meant"])
        hit.update(found["hit"])
    settle(rig)
    seconds = time.monotonic() - first
    wait_for(lambda: not measure(rig).exceeds(held), f"no more than {held} is held")
    after = rig.status()
    assert (after.worker.pid, after.worker.starts) == (before.worker.pid, before.worker.starts)
    assert (after.violations, after.sessions) == (before.violations, before.sessions)
    grown = {name: read_memory_kib(pid) - memory[name] for name, pid in pids.items()}
    assert max(grown.values()) < GROWTH_KIB, grown
    assert meant.total() >= count // 3 - AT_ONCE
    assert hit.total() >= HITS * meant.total(), (hit, meant)
    assert set(hit) == set(PHASES) or count < 100, hit
    return Lives(count, meant, hit, seconds, grown)


def main(words: list[str]) -> int:
    count, transport = int(words[0]) if words else 10_000, (words[1:] or ["ring"])[0]
    with (
        tempfile.TemporaryDirectory(prefix="vgl") as root,
        simulated_channel(transport, Path(root)) as rig,
    ):
        print(f"{transport}: {run_lives(rig, count).describe()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
