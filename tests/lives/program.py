"""``python -m tests.lives.program COUNT SEED``: that many lives of guest processes, one after the other.

Each life is a process that says in shared memory which phase it is in. A third of them are killed: a phase is
chosen, and a moment in it. Prints how many kills were meant for each phase, and how many came in it.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import signal
import sys
import time
from collections import Counter
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

from tests.lives import PHASES
from tests.unit.guest_cuda import context, cu, memory, module, ok

SIZE = 1 << 20
IMAGE = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry count(.param .u64 a, .param .u32 n) {
 .reg .u64 %p; .reg .u32 %r<3>; .reg .pred %q;
 ld.param.u64 %p, [a]; ld.param.u32 %r0, [n]; mov.u32 %r1, 0;
again: add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, %r0; @%q bra again;
 st.global.u32 [%p], %r1; ret; }
\0"""
HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
ROUNDS = 20_000
#: a launch takes a microsecond: so many that a kill comes between them
SHORT_LAUNCHES = 1000


def live(enter: mmap.mmap) -> None:
    """All that a program does with a GPU, phase by phase."""

    def phase(number: int) -> None:
        enter[0] = number + 1

    phase(0)
    ok(cu.cuInit(0))
    phase(1)
    context()
    phase(2)
    blocks = [memory(SIZE) for _ in range(4)]
    phase(3)
    data = os.urandom(SIZE)
    for block in blocks:
        ok(cu.cuMemcpyHtoD_v2(block, data, c_size_t(SIZE)))
    phase(4)
    loaded, kernel = module(IMAGE), c_void_p()
    ok(cu.cuModuleGetFunction(byref(kernel), loaded, b"count"))
    phase(5)
    for rounds in [1] * SHORT_LAUNCHES + [ROUNDS] * 4:
        values = (blocks[0], c_uint(rounds))
        array = (c_void_p * 2)(*map(ctypes.addressof, values))
        ok(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, array, None))
    phase(6)
    ok(cu.cuCtxSynchronize())
    phase(7)
    done = c_int(0)

    def host(_data: int | None) -> None:
        done.value = 1

    function = HOST_FUNCTION(host)
    ok(cu.cuLaunchHostFunc(None, function, None))
    ok(cu.cuCtxSynchronize())
    assert done.value == 1
    phase(8)
    back = ctypes.create_string_buffer(SIZE)
    ok(cu.cuMemcpyDtoH_v2(back, blocks[0], c_size_t(SIZE)))
    assert back.raw[:4] == ROUNDS.to_bytes(4, "little")
    assert back.raw[4:] == data[4:]
    phase(9)
    for block in blocks:
        ok(cu.cuMemFree_v2(c_uint64(block.value)))
    ok(cu.cuModuleUnload(loaded))
    ok(cu.cuDevicePrimaryCtxRelease_v2(0))


def run_life(page: mmap.mmap, target: int | None, delay_s: float) -> tuple[int, int]:
    """The status it ended with, and the phase it was in."""
    page[0] = 0
    child = os.fork()
    if not child:
        try:
            live(page)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    if target is not None:
        while page[0] <= target:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.0001)
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return status, page[0] - 1


def main(count: int, seed: int) -> None:
    chance = random.Random(seed)
    page = mmap.mmap(-1, 4096)
    meant, hit = Counter[str](), Counter[str]()
    targets = list[int]()
    for number in range(count):
        if number % 3 == 0 and not targets:
            targets = chance.sample(range(len(PHASES)), len(PHASES))
        target = targets.pop() if number % 3 == 0 else None
        status, phase = run_life(page, target, chance.choice((0, 0, 0.0002, 0.001)))
        if target is None:
            assert status == 0, status
            continue
        meant[PHASES[target]] += 1
        if os.WIFSIGNALED(status):
            hit[PHASES[phase]] += 1
        else:
            assert status == 0, status
    print(json.dumps({"meant": meant, "hit": hit}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
