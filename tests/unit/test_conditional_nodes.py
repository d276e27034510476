"""Conditional nodes over the channel: what a launch costs, and what is refused by name.

What they do is in the cases of tests/sim/cuda/conditionals.c, directly and forwarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim import cuda_harness
from tests.unit.calls_rig import PROGRAM_S, run_python, simulated_channel, start_python
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with simulated_channel("ring", tmp_path) as found:
        yield found


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    return cuda_harness.compile_kernels(tmp_path / "kernels.ptx", "-ptx", "-arch=sm_80")


def test_what_kernels_decide_needs_no_message(rig: Rig, kernels: Path) -> None:
    """No launch of a graph with a loop waits; what is not supported in a body is named, once each."""
    process = start_python(
        rig,
        f"""
ctx = context(); g, node, h, s, run, f = (c_void_p() for _ in range(6)); p = memory(64); u64 = ctypes.c_uint64
def value():
    back = c_uint(); ok(cu.cuMemcpyDtoH_v2(byref(back), p, c_size_t(4))); return back.value
def conditional(kind, size):
    made = (u64 * 32)(13); made[2], made[3] = h.value, kind | size << 32
    return cu.cuGraphAddNode(byref(node), g, None, c_size_t(0), byref(made)), made[4]
made = c_void_p(); ok(cu.cuModuleLoad(byref(made), {str(kernels)!r}.encode()))
ok(cu.cuStreamCreate(byref(s), 1)); ok(cu.cuGraphCreate(byref(g), 0)); down = function(made, b"count_down")
ok(cu.cuGraphConditionalHandleCreate(byref(h), g, None, 1, 1))
for _ in range(2): assert conditional(2, 257)[0] == 801
code, bodies = conditional(1, 1); ok(code); body = c_void_p.from_address(bodies)
host = (u64 * 25)(); host[4], host[5], host[15], host[17] = 1, addressof(host), 2, p.value
host[22], host[23], host[24] = 4, 1, 1
for _ in range(2): assert cu.cuGraphAddMemcpyNode(byref(node), body, None, c_size_t(0), byref(host), None) == 801
for _ in range(2):
    ok(cu.cuStreamBeginCaptureToGraph(s, body, None, None, c_size_t(0), 2))
    assert cu.cuMemcpyHtoDAsync_v2(p, host, c_size_t(8), s) == 801
    assert cu.cuStreamEndCapture(s, byref(c_void_p())) == 901
ok(cu.cuStreamBeginCaptureToGraph(s, body, None, None, c_size_t(0), 2))
values = (c_void_p * 2)(addressof(h), addressof(p)); ok(cu.cuLaunchKernel(down, 1, 1, 1, 1, 1, 1, 0, s, values, None))
ok(cu.cuStreamEndCapture(s, byref(c_void_p()))); ok(cu.cuGraphInstantiateWithFlags(byref(run), g, u64(0)))
ok(cu.cuMemsetD32Async(p, 9, c_size_t(1), s)); before = waits()
for _ in range(50): ok(cu.cuMemsetD32Async(p, 9, c_size_t(1), s)); ok(cu.cuGraphLaunch(run, s))
assert waits() == before
ok(cu.cuStreamSynchronize(s)); assert value() == 0
""",
    )
    said = process.communicate(timeout=PROGRAM_S)[1].splitlines()
    assert process.returncode == 0, said
    assert [line.partition(" is not supported")[0] for line in said] == [
        "vgpumgr: a conditional node of more than 256 bodies",
        "vgpumgr: a graph's node of that type, or with such edges,",
        "vgpumgr: a copy with host memory in the body of a conditional node",
        "vgpumgr: a captured copy with host memory in the body of a conditional node",
    ]
    assert rig.status().violations.count == 0


def test_an_update_finds_the_graph_free_when_its_executable_graph_has_been_destroyed(
    rig: Rig,
) -> None:
    run_python(
        rig,
        """
context(); u64 = ctypes.c_uint64
def graph():
    g, h, node = c_void_p(), u64(), c_void_p(); ok(cu.cuGraphCreate(byref(g), 0))
    ok(cu.cuGraphConditionalHandleCreate(byref(h), g, None, 1, 1))
    made = (u64 * 32)(13); made[2], made[3] = h.value, 1 << 32
    ok(cu.cuGraphAddNode(byref(node), g, None, c_size_t(0), byref(made))); return g
def instantiate(g):
    run = c_void_p(); ok(cu.cuGraphInstantiateWithFlags(byref(run), g, u64(0))); return run
a, b = graph(), graph(); run, s = instantiate(a), c_void_p(); ok(cu.cuStreamCreate(byref(s), 1))
for _ in range(100):
    other = instantiate(b); ok(cu.cuGraphLaunch(other, s)); ok(cu.cuGraphExecDestroy(other))
    for g in (b, a): ok(cu.cuGraphExecUpdate_v2(run, g, byref((u64 * 4)())))
""",
    )
