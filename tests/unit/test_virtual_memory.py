"""Virtual memory over the channel: what is charged, what racing threads and ended processes leave, bounds."""

from __future__ import annotations

import pytest

from tests.unit.calls_rig import null_channel, run_python, start_python
from tests.unit.test_limits import CONTEXT, MIB, OUT_OF_MEMORY, limited, used, wait_unused
from tests.unit.transport_rig import wait_for
from vgpumgr.model.limits import WORKER_KEYS

pytestmark = pytest.mark.native

UNIT = 2 * MIB
KEY = "device-memory"
assert KEY in {key.name for key in WORKER_KEYS}

PRELUDE = f"""
import sys, threading
UNIT = {UNIT}
# CUmemAllocationProp: pinned, no handles for others, on device 0; CUmemAccessDesc: that device, read and write
properties, access = (ctypes.c_uint64 * 16)(1, 1), (ctypes.c_int * 4)(1, 0, 3)
def create(units=1):
    made = ctypes.c_uint64()
    return cu.cuMemCreate(byref(made), c_size_t(units * UNIT), properties, ctypes.c_uint64(0)), made
def reserve(units):
    at = ctypes.c_uint64()
    return cu.cuMemAddressReserve(byref(at), c_size_t(units * UNIT), *[ctypes.c_uint64(0)] * 3), at.value
def map(at, handle, units=1):
    return cu.cuMemMap(ctypes.c_uint64(at), c_size_t(units * UNIT), c_size_t(0), handle, ctypes.c_uint64(0))
def unmap(at, units=1):
    return cu.cuMemUnmap(ctypes.c_uint64(at), c_size_t(units * UNIT))
def allow(at, units=1):
    return cu.cuMemSetAccess(ctypes.c_uint64(at), c_size_t(units * UNIT), access, c_size_t(1))
def free(at, units):
    return cu.cuMemAddressFree(ctypes.c_uint64(at), c_size_t(units * UNIT))
def pause(word):
    ok(cu.cuCtxSynchronize()); print(word, flush=True); sys.stdin.readline()
ctx = context()
"""


@pytest.mark.parametrize("transport", ["ring", "serial"])
def test_memory_is_charged_until_its_handle_and_its_mappings_are_gone(transport: str) -> None:
    with limited(f"{KEY}={CONTEXT + 3 * UNIT + 1}", transport=transport) as rig:
        process = start_python(
            rig,
            PRELUDE
            + f"""
r, at = reserve(1 << 12); ok(r); pause("addresses take none")
handles = [create() for _ in range(4)]
assert [r for r, _ in handles] == [0, 0, 0, {OUT_OF_MEMORY}]; pause("three units")
for i in range(2): ok(map(at + i * UNIT, handles[0][1]))
ok(map(at + 2 * UNIT, handles[1][1])); ok(allow(at, 3))
for _, handle in handles[:3]: ok(cu.cuMemRelease(handle))
pause("two are mapped"); assert create(2)[0] == {OUT_OF_MEMORY}
ok(unmap(at)); pause("still two, one of them at one place only")
ok(unmap(at + UNIT, 2)); pause("none"); ok(create(3)[0]); pause("all again"); pause("never")
""",
        )
        assert process.stdout is not None
        assert process.stdin is not None
        for word, units in (
            ("addresses take none", 0),
            ("three units", 3),
            ("two are mapped", 2),
            ("still two, one of them at one place only", 2),
            ("none", 0),
            ("all again", 3),
        ):
            assert process.stdout.readline().strip() == word
            rig.wait_status(lambda s, n=units: s.totals.memory_bytes == n * UNIT, word)
            wait_for(lambda n=units: used(rig, KEY) == CONTEXT + n * UNIT, word)
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.stdout.readline().strip() == "never"
        process.kill()
        process.communicate()
        wait_unused(rig)


def test_memory_under_a_running_copy_stays_until_that_has_ended() -> None:
    """The null driver ends the process if a copy meets what is unmapped."""
    with null_channel("ring", VGPUMGR_NULL_SLOW="cuMemcpyDtoHAsync_v2:400000") as rig:
        before = rig.status().worker.pid
        run_python(
            rig,
            PRELUDE
            + """
import time
r, at = reserve(4); ok(r); back = ctypes.create_string_buffer(4096); codes = []
for i in range(2): ok(map(at + i * UNIT, create()[1]))
ok(allow(at, 2))
def copy():
    ok(cu.cuCtxSetCurrent(ctx))
    codes.append(cu.cuMemcpyDtoH_v2(back, ctypes.c_uint64(at + UNIT - 2048), c_size_t(4096)))
thread = threading.Thread(target=copy); thread.start(); time.sleep(0.1)
begun = time.monotonic()
ok(unmap(at, 2)); ok(free(at, 4)); r, other = reserve(4); ok(r); ok(map(other, create()[1])); ok(allow(other))
assert time.monotonic() - begun < 0.25 and not codes          # nobody waits for the copy
thread.join(60); assert codes == [0]
ok(cu.cuMemsetD8_v2(ctypes.c_uint64(other), 1, c_size_t(UNIT)))
""",
        )
        status = rig.wait_status(lambda s: not s.lanes, "lanes freed")
        assert (status.worker.pid, status.violations.count, status.sessions.lost) == (before, 0, 0)
        assert status.totals.memory_bytes == 0


@pytest.mark.parametrize("transport", ["ring", "private", "serial"])
def test_racing_threads_leave_nothing_and_never_have_two_things_at_one_address(
    transport: str,
) -> None:
    with null_channel(transport) as rig:
        before = rig.status().worker.pid
        run_python(
            rig,
            PRELUDE
            + """
import random
r, at = reserve(8); ok(r); back = ctypes.create_string_buffer(64); counts = [0, 0]
shared = [create()[1] for _ in range(4)]
ok(map(at + 7 * UNIT, shared[0]))                        # so that the addresses stay
def race(seed):
    chance = random.Random(seed); ok(cu.cuCtxSetCurrent(ctx))
    for _ in range(400):
        place, units = at + chance.randrange(6) * UNIT, chance.choice((1, 1, 2))
        handle = chance.choice(shared)
        code = chance.choice((
            lambda: map(place, handle), lambda: map(place, handle), lambda: unmap(place, units),
            lambda: allow(place, units), lambda: allow(place, units), lambda: free(at, 8),
            lambda: cu.cuMemRetainAllocationHandle(byref(ctypes.c_uint64()), c_void_p(place)),
            lambda: cu.cuMemcpyDtoH_v2(back, ctypes.c_uint64(place + UNIT - 32), c_size_t(64)),
            lambda: cu.cuMemsetD8Async(ctypes.c_uint64(place), 1, c_size_t(UNIT + 1), None)))()
        assert code in (0, 1), code
        counts[code] += 1
threads = [threading.Thread(target=race, args=(i,)) for i in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert min(counts) > 100, counts
""",
        )
        status = rig.wait_status(lambda s: not s.lanes, "lanes freed")
        assert (status.worker.pid, status.violations.count, status.sessions.lost) == (before, 0, 0)
        assert status.totals.memory_bytes == 0


def test_addresses_are_bounded() -> None:
    """16 TiB for a process; another one has its own."""
    with null_channel("ring") as rig:
        code = (
            PRELUDE
            + f"""
units = (1 << 36) // UNIT
made = [reserve(units) for _ in range(300)]
assert [r for r, _ in made] == [0] * 256 + [{OUT_OF_MEMORY}] * 44
ok(free(made[7][1], units)); ok(reserve(units)[0]); assert reserve(1)[0] == {OUT_OF_MEMORY}
"""
        )
        for _ in range(2):
            run_python(rig, code)
        status = rig.wait_status(lambda s: not s.lanes, "lanes freed")
        assert (status.violations.count, status.sessions.lost) == (0, 0)
