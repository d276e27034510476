"""Arrays over the channel: what is charged, what racing threads leave, and arrays under a running copy."""

from __future__ import annotations

import pytest

from tests.unit.calls_rig import null_channel, run_python, start_python
from tests.unit.test_limits import CONTEXT, MIB, OUT_OF_MEMORY, limited, used, wait_unused
from tests.unit.transport_rig import wait_for

pytestmark = pytest.mark.native

KEY = "device-memory"
PRELUDE = """
import sys, threading
FLOAT = 0x20
def made(width, height, depth=0, flags=0):
    return (ctypes.c_uint64 * 5)(width, height, depth, 4 << 32 | FLOAT, flags)      # CUDA_ARRAY3D_DESCRIPTOR
def create(*shape):
    handle = ctypes.c_uint64()
    return cu.cuArray3DCreate_v2(byref(handle), made(*shape)), handle
def create_levels(levels, *shape):
    handle = ctypes.c_uint64()
    return cu.cuMipmappedArrayCreate(byref(handle), made(*shape), levels), handle
def level(whole, number):
    handle = ctypes.c_uint64()
    return cu.cuMipmappedArrayGetLevel(byref(handle), whole, number), handle
def texture(array):
    number, what, how = ctypes.c_uint64(), (ctypes.c_uint64 * 18)(0, array.value), (ctypes.c_uint64 * 14)()
    return cu.cuTexObjectCreate(byref(number), what, how, None), number
def pause(word):
    ok(cu.cuCtxSynchronize()); print(word, flush=True); sys.stdin.readline()
ctx = context()
"""


@pytest.mark.parametrize("transport", ["ring", "serial"])
def test_arrays_are_charged_until_they_are_destroyed(transport: str) -> None:
    """A float4 array of 1024 x 1024 takes 16 MiB, its levels a third more, small ones whole rows and eight of them."""
    with limited(f"{KEY}={CONTEXT + 48 * MIB}", transport=transport) as rig:
        process = start_python(
            rig,
            PRELUDE
            + f"""
arrays = [create(1024, 1024) for _ in range(4)]
assert [r for r, _ in arrays] == [0, 0, 0, {OUT_OF_MEMORY}]; pause("48")
ok(texture(arrays[0][1])[0])                                # takes nothing, and keeps nothing
for _, array in arrays[:2]: ok(cu.cuArrayDestroy(array))
pause("16"); r, whole = create_levels(2, 1024, 1024); ok(r); pause("36")
r, second = level(whole, 1); ok(r); assert cu.cuArrayDestroy(second) == 400
assert create(1024, 1024)[0] == {OUT_OF_MEMORY} == create_levels(11, 1024, 1024)[0]; pause("still 36")
ok(cu.cuMipmappedArrayDestroy(whole)); ok(cu.cuArrayDestroy(arrays[2][1])); pause("0")
assert create(131072, 65536)[0] == {OUT_OF_MEMORY} == create(16384, 16384, 16384)[0]; pause("still 0")
made_small = [create(1024, 1, 0) for _ in range(8)]; pause("1"); pause("never")
""",
        )
        assert process.stdout is not None
        assert process.stdin is not None
        for word in ("48", "16", "36", "still 36", "0", "still 0", "1"):
            assert process.stdout.readline().strip() == word
            size = int(word.split()[-1]) * MIB
            rig.wait_status(lambda s, n=size: s.totals.memory_bytes == n, word)
            wait_for(lambda n=size: used(rig, KEY) == CONTEXT + n, word)
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.stdout.readline().strip() == "never"
        process.kill()
        process.communicate()
        wait_unused(rig)


def test_an_array_under_a_running_copy_stays_until_that_has_ended() -> None:
    """The null driver ends the process if a copy meets an array that has gone."""
    with null_channel("ring", VGPUMGR_NULL_SLOW="cuMemcpy3DAsync_v2:400000") as rig:
        before = rig.status().worker.pid
        run_python(
            rig,
            PRELUDE
            + """
import time
r, array = create(64, 4); ok(r); r, whole = create_levels(3, 64, 4); ok(r); r, part = level(whole, 1); ok(r); codes = []
back = ctypes.create_string_buffer(512)
def copy(which):
    ok(cu.cuCtxSetCurrent(ctx)); codes.append(cu.cuMemcpyAtoH_v2(back, which, c_size_t(0), c_size_t(512)))
threads = [threading.Thread(target=copy, args=(a,)) for a in (array, part)]
for thread in threads: thread.start()
time.sleep(0.1); begun = time.monotonic()
ok(cu.cuArrayDestroy(array)); ok(cu.cuMipmappedArrayDestroy(whole))
assert time.monotonic() - begun < 0.25 and not codes          # nobody waits for the copies
for thread in threads: thread.join(60)
assert codes == [0, 0]
""",
        )
        status = rig.wait_status(lambda s: not s.lanes, "lanes freed")
        assert (status.worker.pid, status.violations.count, status.sessions.lost) == (before, 0, 0)
        assert status.totals.memory_bytes == 0


@pytest.mark.parametrize("transport", ["ring", "private", "serial"])
def test_racing_threads_leave_nothing(transport: str) -> None:
    with null_channel(transport) as rig:
        before = rig.status().worker.pid
        run_python(
            rig,
            PRELUDE
            + """
import random
shared = [create(64, 4)[1] for _ in range(4)]; wholes = [create_levels(3, 64, 4)[1] for _ in range(4)]
levels = [level(whole, 1)[1] for whole in wholes]; numbers = []; counts = {}
back = ctypes.create_string_buffer(1024)
def race(seed):
    chance = random.Random(seed); ok(cu.cuCtxSetCurrent(ctx))
    def again(kind, end, make):
        i = chance.randrange(4); code = end(kind[i])
        r = 400 if code == 0 else 0
        while r == 400: r, kind[i] = make()     # it may tell of a copy whose array another thread has destroyed
        ok(r); return code
    for _ in range(300):
        array = chance.choice(shared + levels); code = chance.choice((
            lambda: again(shared, cu.cuArrayDestroy, lambda: create(64, 4)),
            lambda: again(wholes, cu.cuMipmappedArrayDestroy, lambda: create_levels(3, 64, 4)),
            lambda: levels.__setitem__(chance.randrange(4), level(chance.choice(wholes), 1)[1]) or 0,
            lambda: cu.cuMemcpyAtoH_v2(back, array, c_size_t(0), c_size_t(512)),
            lambda: cu.cuMemcpyAtoA_v2(array, c_size_t(0), chance.choice(shared), c_size_t(0), c_size_t(512)),
            lambda: (lambda found: numbers.append(found[1]) or found[0])(texture(array)),
            lambda: cu.cuTexObjectDestroy(numbers.pop() if numbers else ctypes.c_uint64())))()
        assert code in (0, 1, 400), code
        counts[code] = counts.get(code, 0) + 1
threads = [threading.Thread(target=race, args=(i,)) for i in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert counts[0] > 500 and counts[400] > 0, counts
""",
        )
        status = rig.wait_status(lambda s: not s.lanes, "lanes freed")
        assert (status.worker.pid, status.violations.count, status.sessions.lost) == (before, 0, 0)
        assert status.totals.memory_bytes == 0


def test_a_box_read_during_the_call_is_waited_for_also_where_an_array_is_the_source() -> None:
    """Host memory is read at the call anyhow; memory of the device and arrays must be waited for."""
    with null_channel("ring") as rig:
        run_python(
            rig,
            PRELUDE
            + """
POINTER, ARRAY, STREAM, DURING, ANY = 1, 2, 1, 2, 3
stream = c_void_p(); ok(cu.cuStreamCreate(byref(stream), 1)); p, q = memory(4096), memory(4096)
r, array = create(16, 8); ok(r); host = ctypes.create_string_buffer(4096)
sources = {"array": (ARRAY, array.value, 0, 0, 0), "memory": (POINTER, p.value, 0, 0, 0),
           "host": (POINTER, ctypes.addressof(host), 0, 0, 0)}
def waited(source, order):
    box = (c_uint64 * 14)(*sources[source], POINTER, q.value, 0, 0, 0, 16, 8, 1, order)   # CUDA_MEMCPY3D_BATCH_OP
    ok(cu.cuStreamSynchronize(stream)); before = waits()
    ok(cu.cuMemcpy3DBatchAsync_v2(c_size_t(1), box, c_uint64(0), stream)); return waits() - before
for source in sources:
    found = {order: waited(source, order) for order in (STREAM, ANY, DURING)}
    assert found == {STREAM: 0, ANY: 0, DURING: int(source != "host")}, (source, found)
""",
        )
        assert rig.status().violations.count == 0
