"""Two VMs of one host: one attacks, the other computes and checks what it gets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.lives.__main__ import list_descendants, read_memory_kib
from tests.unit.calls_rig import (
    PROGRAM_S,
    guest_env,
    run_python,
    simulated_channel,
    start_python,
)
from tests.unit.transport_rig import LIB, Rig, read_line, wait_for
from vgpumgr.virtio.keeper import KeeperStatus

ATTACKS = LIB / "test" / "vgpumgr-test-attacks"
#: what an attack may cost for good in processes that outlive it, and in files
GROWTH_KIB = 16 << 10
LOG_BYTES = 256 << 10
WORK = r"""
import json, select, sys, time
IMAGE = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 a, .param .u32 v) { .reg .u64 %p<3>; .reg .u32 %r<4>;
 ld.param.u64 %p0, [a]; ld.param.u32 %r1, [v]; mov.u32 %r0, %tid.x; mul.wide.u32 %p1, %r0, 4; add.u64 %p2, %p0, %p1;
 ld.global.u32 %r2, [%p2]; add.u32 %r2, %r2, %r1; st.global.u32 [%p2], %r2; ret; }
\0'''
context()
kernel, data, size = function(module(IMAGE), b'add'), memory(1 << 16), 1 << 16
back = ctypes.create_string_buffer(size)
def once(round):
    ok(cu.cuMemsetD32_v2(data, c_uint(round), c_size_t(size // 4)))
    values = (data, c_uint(7)); array = (c_void_p * 2)(*(addressof(v) for v in values))
    ok(cu.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, None, array, None))
    ok(cu.cuMemcpyDtoH_v2(back, data, c_size_t(size)))
    assert back.raw == (round + 7).to_bytes(4, 'little') * 64 + round.to_bytes(4, 'little') * (size // 4 - 64)
"""
ONCE = f"{WORK}\nonce(5)"
LOOP = f"""{WORK}
times = []; round = 0; print('up', flush=True)
while True:
    started = time.monotonic(); round += 1; once(round); times.append(time.monotonic() - started)
    if select.select([sys.stdin], [], [], 0.005)[0]:
        if not sys.stdin.readline(): break
        times.sort(); print(json.dumps([len(times), times[len(times) // 2] * 1e3, times[-1] * 1e3]), flush=True)
        times.clear()
"""


@dataclass(frozen=True, slots=True)
class Pace:
    """What the neighbour has done since it was asked last; all of it was right, or it would have ended."""

    rounds: int
    median_ms: float
    longest_ms: float


class Neighbour:
    """A guest process of the other VM, which works without a pause."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.process = start_python(rig, LOOP)
        assert read_line(self.process) == "up"

    def ask(self) -> Pace:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = read_line(self.process)
        assert line, self.process.communicate(timeout=PROGRAM_S)
        return Pace(*json.loads(line))

    def stop(self) -> None:
        _, errors = self.process.communicate(timeout=PROGRAM_S)
        assert (self.process.returncode, errors) == (0, "")


@dataclass(frozen=True, slots=True)
class Scene:
    """The attacker's VM, and the other one."""

    rig: Rig
    neighbour: Neighbour

    @property
    def is_ring(self) -> bool:
        return self.rig.transport == "ring"

    def start(self, name: str, *count: int) -> subprocess.Popen[str]:
        """A process of the attacker's VM."""
        return subprocess.Popen(
            [ATTACKS, name, *map(str, count)],
            env=guest_env(self.rig),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def attack(self, name: str, *count: int) -> dict[str, int]:
        """Runs it to its end; what it says: a word and a number in turns."""
        process = self.start(name, *count)
        out, errors = process.communicate(timeout=PROGRAM_S)
        assert process.returncode == 0, (out, errors)
        return read_numbers(out)

    def read_memory(self) -> dict[int, int]:
        """KiB of each process of the attacker's channel that outlives its sessions."""
        status = self.rig.status()
        sessions = list_descendants(status.worker.pid)
        pids = {status.keeper_pid, *list_descendants(status.keeper_pid)}.difference(sessions)
        return {pid: read_memory_kib(pid) for pid in pids}

    def settle(self) -> KeeperStatus:
        """Nothing of the attacker's guest runs any more, and nothing is held for it."""
        status = self.rig.wait_status(lambda s: not s.lanes and not s.sessions.stuck, "lanes freed")
        worker = status.worker.pid
        wait_for(lambda: len(list_descendants(worker)) == 1, "only the spare is left")
        assert status.totals.memory_bytes == 0
        return status

    def logs(self) -> int:
        keeper = self.rig.keeper
        files = (
            keeper.worker_log,
            keeper.directory / "keeper.log",
            self.rig.directory / "agent.log",
        )
        return sum(path.stat().st_size for path in files if path.exists())

    def check(self) -> None:
        """A process of the attacker's VM that means no harm gets what it asks for."""
        run_python(self.rig, ONCE)

    @contextmanager
    def everybody_stays_well(self) -> Iterator[None]:
        """What holds of every attack, whatever it is."""
        before = self.settle()
        memory = self.read_memory()
        self.neighbour.ask()
        yield
        pace = self.neighbour.ask()
        after = self.settle()
        assert pace.rounds > 0
        assert (after.worker.pid, after.worker.starts) == (before.worker.pid, before.worker.starts)
        grown = {pid: kib - memory[pid] for pid, kib in self.read_memory().items()}
        assert max(grown.values()) < GROWTH_KIB, grown
        assert self.logs() < LOG_BYTES
        theirs = self.neighbour.rig.status()
        assert (theirs.violations.count, theirs.sessions.lost, theirs.worker.starts) == (0, 0, 1)
        self.check()
        print(
            f"neighbour: {pace.rounds} rounds, {pace.median_ms:.1f} ms, {pace.longest_ms:.0f} ms at most"
        )


def read_numbers(text: str) -> dict[str, int]:
    words = text.split()
    return {name: int(value) for name, value in pairwise(words) if value.lstrip("-").isdigit()}


@contextmanager
def scene(transport: str, root: Path) -> Iterator[Scene]:
    """Both VMs are up, and the neighbour works."""
    (root / "one").mkdir()
    (root / "two").mkdir()
    with (
        simulated_channel("auto", root / "two") as other,
        simulated_channel(transport, root / "one") as rig,
    ):
        neighbour = Neighbour(other)
        yield Scene(rig, neighbour)
        neighbour.stop()
