"""Shares of a GPU's time, kept on a simulated GPU with a clock: what each tenant has had is read from the hardware.

Bounds are loose, since the machine may be busy; ``./run bench share`` prints the errors themselves.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

import pytest

from tests.support.shares_rig import (
    ENDLESS,
    GPU,
    Load,
    Tenant,
    find_arbiter,
    mean,
    measure,
    share_out,
)
from tests.unit.calls_rig import start_python
from tests.unit.transport_rig import wait_for
from vgpumgr.virtio import arbiter
from vgpumgr.virtio.keeper import KeeperError

pytestmark = pytest.mark.native

#: kernels of 5 ms, always more than one in the stream: no lack of work, and little of the host's processors
BUSY = Load(5_000_000)
#: percentage points
NEAR = 9.0
TRIES = 5


def parts(tenants: Sequence[Tenant], seconds: float = 4) -> list[float]:
    """Of what all have had of the GPU together the percentage of each."""
    had = mean(measure(tenants, seconds))
    return [100 * one / sum(had) for one in had]


def is_kept(weights: Sequence[int], found: Sequence[float]) -> bool:
    """Whether each has what its weight says of them all."""
    return all(
        abs(part - 100 * w / sum(weights)) < NEAR for w, part in zip(weights, found, strict=True)
    )


def check_kept(tenants: Sequence[Tenant], weights: Sequence[int], seconds: float = 4) -> None:
    """In one of some measurements: tenants that the busy host does not let run have less than their weight."""
    found: list[list[float]] = []
    while len(found) < TRIES:
        found.append(parts(tenants, seconds))
        if is_kept(weights, found[-1]):
            return
    raise AssertionError(found)


def start_all(tenants: Sequence[Tenant], *loads: Load) -> None:
    """The same load, or one for each."""
    for number, tenant in enumerate(tenants):
        tenant.start(loads[number % len(loads)])


def test_hardware_alone_divides_equally() -> None:
    """What the other tests would find without an arbiter."""
    with share_out(None, (15, 85)) as tenants:
        start_all(tenants, BUSY)
        found = parts(tenants)
        assert not is_kept((15, 85), found), found
        assert is_kept((50, 50), found), found


@pytest.mark.parametrize(
    "weights", [(10, 90), (30, 70), (50, 50), (10, 20, 30, 40), (5, 5, 10, 10, 10, 10, 20, 30)]
)
def test_bursting_tenants_have_their_weights(weights: Sequence[int]) -> None:
    with share_out("burst", weights) as tenants:
        start_all(tenants, BUSY)
        check_kept(tenants, weights, 5)


def test_kernels_of_any_length_have_their_weights() -> None:
    """From 1 ms to 500 ms: long ones make debt that is worked off."""
    weights = (40, 30, 30)
    with share_out("burst", weights) as tenants:
        start_all(tenants, Load(50_000_000, 10, 1), Load(50_000_000, 1, 1), Load(1_000_000, 1, 8))
        check_kept(tenants, weights, 12)


def test_short_kernels_keep_their_turns() -> None:
    """Of 10 us: the GPU stands idle between them, which counts as theirs; so turns are compared."""
    with share_out("burst", (70, 30)) as tenants:
        start_all(tenants, Load(10_000, 1, 256), BUSY)
        before = [t.rig.status().share for t in tenants]
        time.sleep(4)
        after = [t.rig.status().share for t in tenants]
        used = [a.used_ns - b.used_ns for a, b in zip(after, before, strict=True) if a and b]
        assert is_kept((70, 30), [100 * one / sum(used) for one in used]), used


def test_a_tenant_that_waits_for_its_kernels_keeps_its_turn() -> None:
    """It has nothing to do for the time of a call, and is behind by its weight: the GPU waits for it."""
    with share_out("burst", (80, 20)) as tenants:
        start_all(tenants, Load(5_000_000, depth=4, flight=1), BUSY)
        wait_for(lambda: parts(tenants)[0] > 55, "most of the GPU")


@pytest.mark.parametrize("percents", [(30,), (20, 50)])
def test_a_cap_holds_also_where_nobody_else_computes(percents: Sequence[int]) -> None:
    with share_out("fixed", percents) as tenants:
        start_all(tenants, BUSY)
        found = mean(measure(tenants, 4))
        for percent, had in zip(percents, found, strict=True):
            assert percent * 0.6 < had < percent + NEAR, found


def test_idle_time_is_lent_and_taken_back() -> None:
    with share_out("burst", (20, 80)) as tenants:
        tenants[0].start(BUSY)
        alone = mean(measure(tenants, 2))
        assert alone[0] > 60, alone
        assert not alone[1], alone
        tenants[1].start(BUSY)
        check_kept(tenants, (20, 80))
        tenants[1].stop()
        wait_for(lambda: mean(measure(tenants, 1))[0] > 60, "the GPU is the first one's again")


def test_weights_change_while_it_runs() -> None:
    with share_out("burst", (20, 80)) as tenants:
        start_all(tenants, BUSY)
        check_kept(tenants, (20, 80))
        tenants[0].rig.keeper.set_compute(80)
        tenants[1].rig.keeper.set_compute(20)
        check_kept(tenants, (80, 20))
        share = tenants[0].rig.status().share
        assert share is not None
        assert (share.compute, share.kept, share.turns > 0) == (80, True, True)
        for wrong in (0, 101):
            with pytest.raises(KeeperError, match="refused share") as caught:
                tenants[0].rig.keeper.set_compute(wrong)
            assert "from 1 to 100" in str(caught.value.cause)


def test_an_endless_kernel_is_named_and_stops_nobody() -> None:
    with share_out("burst", (50, 50)) as tenants:
        tenants[0].start(ENDLESS)
        check_named(tenants, lambda: tenants[0].stop(signal.SIGKILL))


def check_named(tenants: Sequence[Tenant], end: Callable[[], object]) -> None:
    """The endless loop of the first is named, delays no other session, and ends with its process."""
    tenants[1].start(BUSY)
    wait_for(lambda: bool((s := tenants[0].rig.status().share) and s.overdue_ns), "it is named")
    found = mean(measure(tenants, 3))
    assert found[1] > 25, found  # the hardware's own slices
    end()
    wait_for(lambda: mean(measure(tenants, 1))[1] > 60, "all of the GPU for the other")
    wait_for(lambda: not (s := tenants[0].rig.status().share) or not s.overdue_ns, "its end")


#: a loop in a graph whose value nothing changes; each turn takes a millisecond of the device
LOOPING = r"""
context(); graph, node, h, s, run = c_void_p(), c_void_p(), c_uint64(), c_void_p(), c_void_p()
rest = b".visible .entry rest() { .reg .u32 %n; mov.u32 %n, 1000000; nanosleep.u32 %n; ret; }\n\0"
rest = function(module(PTX[:-1] + rest), b"rest"); ok(cu.cuStreamCreate(byref(s), 1))
ok(cu.cuGraphCreate(byref(graph), 0))
ok(cu.cuGraphConditionalHandleCreate(byref(h), graph, None, 1, 1))
loop = (c_uint64 * 32)(13); loop[2], loop[3] = h, 1 | 1 << 32
ok(cu.cuGraphAddNode(byref(node), graph, None, c_size_t(0), byref(loop))); body = c_void_p.from_address(loop[4])
ok(cu.cuStreamBeginCaptureToGraph(s, body, None, None, c_size_t(0), 2))
ok(cu.cuLaunchKernel(rest, 1, 1, 1, 1, 1, 1, 0, s, None, None)); ok(cu.cuStreamEndCapture(s, byref(c_void_p())))
ok(cu.cuGraphInstantiateWithFlags(byref(run), graph, c_uint64(0))); ok(cu.cuGraphLaunch(run, s))
print("loops", flush=True)
ok(cu.cuStreamSynchronize(s))
"""


def test_an_endless_loop_in_a_graph_is_named_and_stops_nobody() -> None:
    with share_out("burst", (50, 50)) as tenants:
        before = tenants[0].read_device_ns()
        process = start_python(tenants[0].rig, LOOPING)
        assert process.stdout is not None
        assert process.stdout.readline() == "loops\n"
        check_named(tenants, process.kill)
        process.communicate()
        assert tenants[0].read_device_ns() - before > 500_000_000


#: a stream waits for memory until a line comes; then a copy, which waits for no turn, ends that, and more follows
WAITING = """
context(); s, p = c_void_p(), memory(64)
ok(cu.cuStreamCreate(byref(s), 1)); ok(cu.cuMemsetD8_v2(p, 0, c_size_t(64))); ok(cu.cuCtxSynchronize())
ok(cu.cuStreamWaitValue32_v2(s, p, 1, 0))
print("waits", flush=True)
sys.stdin.readline()
assert cu.cuStreamQuery(s) == 600
ok(cu.cuMemcpyHtoD_v2(p, (ctypes.c_uint32 * 1)(1), c_size_t(4)))
for i in range(8): ok(cu.cuMemsetD32Async(ctypes.c_uint64(p.value + 8), i, c_size_t(4), s))
ok(cu.cuStreamSynchronize(s))
back = ctypes.c_uint32(); ok(cu.cuMemcpyDtoH_v2(byref(back), ctypes.c_uint64(p.value + 8), c_size_t(4)))
print(back.value, flush=True)
"""


def test_a_stream_that_waits_for_memory_has_no_turn() -> None:
    with share_out("burst", (50, 50)) as tenants:
        process = start_python(tenants[0].rig, "import sys\n" + WAITING)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        tenants[1].start(BUSY)
        found = mean(measure(tenants, 3))
        share = tenants[0].rig.status().share
        assert share is not None
        assert (found[1] > 60, share.overdue_ns) == (True, 0), (found, share)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "7\n", process.stderr
        process.communicate(timeout=60)
        assert process.returncode == 0


@pytest.mark.parametrize("place", ["before", "behind", "graph"])
def test_what_stands_beside_a_wait_for_memory_is_paid(place: str) -> None:
    """Kernels behind a wait that ends in another's turn, also within a graph, and kernels with a wait behind them."""
    with share_out("burst", (20, 80)) as tenants:
        tenants[0].start(
            Load(5_000_000, 1, 8, 1, 1, 1, 15_000, place == "behind", place == "graph")
        )
        tenants[1].start(BUSY)
        before, had = tenants[0].rig.status().share, tenants[0].read_device_ns()
        time.sleep(4)
        had = tenants[0].read_device_ns() - had
        after = tenants[0].rig.status().share
        assert before is not None
        assert after is not None
        assert 0 < had < 1.2 * (after.used_ns - before.used_ns), (had, before, after)


def test_more_streams_and_processes_are_no_more_time() -> None:
    with share_out("burst", (50, 50)) as tenants:
        tenants[0].start(Load(5_000_000, 1, 1, streams=16, processes=4))
        tenants[1].start(BUSY)
        check_kept(tenants, (50, 50), 6)


def test_sessions_killed_in_their_turns_leave_them() -> None:
    with share_out("burst", (50, 50)) as tenants:
        tenants[1].start(BUSY)
        for _ in range(3):
            tenants[0].start(Load(1_000_000, 100, 4))
            time.sleep(0.3)
            tenants[0].stop(signal.SIGKILL)
        wait_for(lambda: mean(measure(tenants, 1))[1] > 60, "all of the GPU for the other")


def test_work_goes_on_without_an_arbiter_and_shares_come_back() -> None:
    """The arbiter is killed: turns are open until another one runs at the same place."""
    with share_out("burst", (15, 85)) as tenants:
        start_all(tenants, BUSY)
        socket = tenants[0].rig.options.arbiter
        assert socket is not None
        os.kill(find_arbiter(socket), signal.SIGKILL)
        for tenant in tenants:
            wait_for(lambda t=tenant: not t.rig.status().share.kept, "it is said")  # type: ignore[misc]
        check_kept(tenants, (50, 50), 3)
        arbiter.ensure(GPU, "burst", socket.parent, linger_s=1)
        for tenant in tenants:
            wait_for(lambda t=tenant: t.rig.status().share.kept, "shares are kept again")  # type: ignore[misc]
        check_kept(tenants, (15, 85))
