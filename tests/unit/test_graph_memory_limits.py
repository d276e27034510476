"""Memory of graphs counts as any other: nodes, captures and launches get a guest no more than its limit."""

from __future__ import annotations

import pytest

from tests.unit.calls_rig import start_python
from tests.unit.test_limits import CONTEXT, MIB, OUT_OF_MEMORY, limited, used, wait_unused

pytestmark = pytest.mark.native

EACH = 16 * MIB
LIMIT = 1024 * MIB
ALL = (LIMIT - CONTEXT) // EACH

#: each line of input has the guest go on
GUEST = f"""
EACH = {EACH}
context()
s = c_void_p()
ok(cu.cuStreamCreate(byref(s), 1))

def graph():
    made = c_void_p()
    ok(cu.cuGraphCreate(byref(made), 0))
    return made

def by_node(g):
    p, node = (ctypes.c_uint64 * 15)(1, 1), c_void_p()
    p[13] = EACH
    r = cu.cuGraphAddMemAllocNode(byref(node), g, None, c_size_t(0), p)
    return r, p[14]

def by_capture(g):
    made = c_uint64()
    return cu.cuMemAllocAsync(byref(made), c_size_t(EACH), s), made.value

def take_all(make, g=None):
    found = []
    while True:
        r, address = make(g)
        if r:
            return r, found
        found.append(address)

def can_have():
    made = c_void_p()
    r = cu.cuMemAlloc_v2(byref(made), c_size_t(EACH))
    if not r:
        ok(cu.cuMemFree_v2(made))
    return r

def tell(*what):
    print(*what, flush=True)
    input()
"""


def hear(code: str, *lines: str) -> None:
    """Runs the code in a guest; after each line that it tells, its VM has no more than it may."""
    with limited(f"device-memory={LIMIT}") as rig:
        guest = start_python(rig, GUEST + code)
        assert guest.stdout is not None
        assert guest.stdin is not None
        for line in lines:
            assert guest.stdout.readline() == f"{line}\n", guest.stderr
            assert used(rig, "device-memory") <= LIMIT
            guest.stdin.write("\n")
            guest.stdin.flush()
        guest.communicate()
        assert guest.returncode == 0
        wait_unused(rig)


def test_nodes_are_charged_until_nobody_has_their_memory() -> None:
    hear(
        """
g, e, f = graph(), c_void_p(), c_void_p()
r, found = take_all(by_node, g)
tell(r, len(found), len(set(found)), can_have())
ok(cu.cuGraphInstantiateWithFlags(byref(e), g, ctypes.c_uint64(0)))
ok(cu.cuGraphDestroy(g))
tell(can_have())
ok(cu.cuGraphLaunch(e, s))
ok(cu.cuGraphExecDestroy(e))
tell(can_have(), by_node(graph())[0])
for address in found[1:]:
    ok(cu.cuMemFreeAsync(ctypes.c_uint64(address), s))
ok(cu.cuStreamSynchronize(s))
tell(len(take_all(by_node, graph())[1]))
ok(cu.cuMemFree_v2(ctypes.c_uint64(found[0])))
tell(can_have())
""",
        f"{OUT_OF_MEMORY} {ALL} {ALL} {OUT_OF_MEMORY}",
        f"{OUT_OF_MEMORY}",
        f"{OUT_OF_MEMORY} {OUT_OF_MEMORY}",
        f"{ALL - 1}",
        "0",
    )


def test_captures_are_charged_also_where_nothing_comes_of_them() -> None:
    """One is good, one is spoilt, and one has a copy that the null driver puts there: it is refused at its end."""
    hear(
        """
g = c_void_p()
for turn in range(3):
    ok(cu.cuStreamBeginCapture_v2(s, 2))
    r, found = take_all(by_capture)
    tell(r, len(found), can_have())
    if turn == 1:
        cu.cuStreamQuery(s)  # which ends it
    r = cu.cuStreamEndCapture(s, byref(g))
    if not r:
        ok(cu.cuGraphDestroy(g))
    tell(bool(r), can_have())
""",
        f"{OUT_OF_MEMORY} {ALL} {OUT_OF_MEMORY}",
        "False 0",
        f"{OUT_OF_MEMORY} {ALL} {OUT_OF_MEMORY}",
        "True 0",
        f"{OUT_OF_MEMORY} {ALL} {OUT_OF_MEMORY}",
        "True 0",
    )


def test_launches_and_copies_of_a_graph_get_no_more() -> None:
    hear(
        f"""
g, e, other, clone = graph(), c_void_p(), c_void_p(), c_void_p()
found = [by_node(g)[1] for _ in range({ALL})]
ok(cu.cuGraphInstantiateWithFlags(byref(e), g, ctypes.c_uint64(1)))
for _ in range(5):
    ok(cu.cuGraphLaunch(e, s))
tell(can_have())
again = cu.cuGraphInstantiateWithFlags(byref(other), g, ctypes.c_uint64(0))
tell(again, cu.cuGraphClone(byref(clone), g), cu.cuGraphAddChildGraphNode(byref(other), graph(), None, c_size_t(0), g))
at = ctypes.c_uint64(found[0])
ok(cu.cuMemFreeAsync(at, s))
tell(cu.cuMemFreeAsync(at, s), cu.cuMemFree_v2(at), can_have())
""",
        f"{OUT_OF_MEMORY}",
        "1 1 1",
        f"1 1 {OUT_OF_MEMORY}",
    )
