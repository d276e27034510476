"""Programs compiled by nvcc, from the runtime's shim down to the simulated driver in the worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.build_programs import build_programs
from tests.sim import cuda_harness
from tests.unit.calls_rig import (
    PROGRAM_S,
    run_program,
    run_python,
    simulated_channel,
    start_python,
)
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]


def cases(program: str) -> list[str]:
    source = (cuda_harness.PROGRAMS / f"{program}.c").read_text()
    return re.findall(r'\{ "(\w+)", \w+ \}', source)


GRAPHS = {
    case: program
    for program in (
        "graphs",
        "graph_objects",
        "graph_reads",
        "graph_memory",
        "graph_allocations",
        "conditionals",
        "conditional_rules",
        "captures",
        "batches",
        "stream_memory",
        "attributes",
        "functions",
    )
    for case in cases(program)
}
TEXTURES = [(p, case) for p in ("textures", "texture_faults") for case in cases(p)]
VIRTUAL = cases("virtual")

RECENT = ("descriptors", "peers", "attributes", "perthread", "profiler", "lazy")
PROGRAMS = (
    "vectoradd",
    "matmul",
    "reduction",
    "histogram",
    "linked",
    "overlap",
    "device_functions",
    "errors",
    "output",
    "graphs",
    "graph_reads",
    "managed",
    "pools",
    "libraries",
    "batches",
    "stream_memory",
    "graph_memory",
    "graph_allocations",
    "conditionals",
    "boxes",
    "tensor",
    "virtual",
    "textures",
    "surfaces",
    "together",
    "clusters",
    "processes",
    *RECENT,
    "devices",
    "vectoradd12",
)


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return build_programs(PROGRAMS)


@pytest.fixture(scope="module", params=["ring", "private", "serial"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with simulated_channel(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_right_results(name: str, rig: Rig, programs: dict[str, Path]) -> None:
    done = run_program(rig, str(programs[name]))
    assert done.returncode == 0, (done.stdout, done.stderr, rig.status())
    assert rig.status().violations.count == 0


def test_clusters_on_a_device_that_has_them(programs: dict[str, Path], tmp_path: Path) -> None:
    with simulated_channel("ring", tmp_path, machine="hgx-h100") as rig:
        done = run_program(rig, str(programs["clusters"]))
        assert (done.returncode, done.stdout) == (0, "PASS clusters 24 blocks of 64 threads\n"), (
            done
        )
        assert rig.status().violations.count == 0


def test_host_functions_run_in_stream_order_and_hold_up_no_other_thread(rig: Rig) -> None:
    """Work after a host function waits for it; another thread of the process goes on meanwhile."""
    run_python(
        rig,
        """
import threading
ctx = context(); p = memory(4); back = ctypes.create_string_buffer(4); seen = []; go = threading.Event()
FN = ctypes.CFUNCTYPE(None, c_void_p); stream = c_void_p(); event = c_void_p()
ok(cu.cuStreamCreate(byref(stream), 1)); ok(cu.cuEventCreate(byref(event), 0))
slow = FN(lambda data: (go.wait(60), seen.append(data)))
quick = FN(lambda data: seen.append(data))
ok(cu.cuLaunchHostFunc(stream, slow, c_void_p(1))); ok(cu.cuLaunchHostFunc(stream, quick, c_void_p(2)))
ok(cu.cuMemsetD8Async(p, 9, c_size_t(4), stream)); ok(cu.cuEventRecord(event, stream))
assert cu.cuEventQuery(event) == 600 and cu.cuStreamQuery(stream) == 600 and seen == []
waiter = threading.Thread(target=lambda: (cu.cuCtxSetCurrent(ctx), seen.append(-cu.cuStreamSynchronize(stream))))
waiter.start()
q = memory(4)                                      # another thread of the process is not held up
ok(cu.cuMemsetD8_v2(q, 5, c_size_t(4))); ok(cu.cuMemcpyDtoH_v2(back, q, c_size_t(4))); assert back.raw == bytes([5]) * 4
assert seen == [] and waiter.is_alive()
go.set(); waiter.join(60)
assert seen == [1, 2, 0], seen
ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(4))); assert back.raw == bytes([9]) * 4; ok(cu.cuEventQuery(event))
""",
    )


@pytest.fixture(scope="module")
def driver_programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where programs of the simulated driver's own tests are, for the guest's driver; and their kernels."""
    out = tmp_path_factory.mktemp("driver")
    kernels = cuda_harness.compile_kernels(out / "kernels.ptx", "-ptx", "-arch=sm_80")
    for name in {*GRAPHS.values(), "launches"}:
        cuda_harness.compile_program(name, out)
    return out, kernels


REFUSED = {"wait_until_killed", "a_loop_without_end"}
"""What does not end."""
NAMED = {
    "picture_without": ("an event's node whose event is destroyed",),
    "memory_by_type": ("changing a graph's node of that type",),
    "what_no_body_becomes": ("a copy with host memory in the body of a conditional node",),
    "what_a_node_is": ("changing a graph's node of that type",),
    "wrong_memory": ("memory of a graph for other processes or devices",),
    "as_deep_as_it_goes": (
        "a conditional node inside of 64 others",
        "a graph's node of that type",
    ),
}
"""What is refused by name there."""


@pytest.mark.parametrize("case", sorted({*GRAPHS} - REFUSED))
def test_graphs_are_as_on_the_driver_itself(
    rig: Rig, driver_programs: tuple[Path, Path], case: str
) -> None:
    out, kernels = driver_programs
    done = run_program(rig, "env", f"KERNELS={kernels}", str(out / GRAPHS[case]), case)
    assert done.returncode == 0, (done.stderr, rig.status())
    named = NAMED.get(case, ())
    assert done.stderr.count("\n") == len(named), done.stderr
    assert all(what in done.stderr for what in named)
    assert rig.status().violations.count == 0


def test_functions_of_a_module_are_listed(rig: Rig, driver_programs: tuple[Path, Path]) -> None:
    out, kernels = driver_programs
    done = run_program(rig, "env", f"KERNELS={kernels}", str(out / "launches"), "enumerate")
    assert (done.returncode, done.stderr) == (0, ""), (done.stderr, rig.status())


def test_functions_before_one_whose_name_is_too_long_are_listed(rig: Rig) -> None:
    """No call can have the name; who asks for more functions than there are before it gets none."""
    run_python(
        rig,
        """
context(); names = [b"first", b"second", b"n" * 5000, b"last"]
made = module(PTX[:-1] + b"".join(b".visible .entry %b() { ret; }\\n" % name for name in names))
count, found = c_uint(), (c_void_p * 4)(); ok(cu.cuModuleGetFunctionCount(byref(count), made)); assert count.value == 4
ok(cu.cuModuleEnumerateFunctions(found, 2, made))
for function, name in zip(found, names[:2]):
    back = ctypes.c_char_p(); ok(cu.cuFuncGetName(byref(back), c_void_p(function))); assert back.value == name
assert cu.cuModuleEnumerateFunctions(found, 3, made) == 801
""",
    )


@pytest.fixture(scope="module")
def virtual_program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same of virtual memory."""
    out = tmp_path_factory.mktemp("virtual")
    kernels = cuda_harness.compile_kernels(out / "kernels.ptx", "-ptx", "-arch=sm_80")
    return cuda_harness.compile_program("virtual", out), kernels


@pytest.mark.parametrize("case", VIRTUAL)
def test_virtual_memory_is_as_on_the_driver_itself(
    rig: Rig, virtual_program: tuple[Path, Path], case: str
) -> None:
    """Nothing is said."""
    program, kernels = virtual_program
    done = run_program(rig, "env", f"KERNELS={kernels}", str(program), case)
    assert (done.returncode, done.stderr) == (0, ""), (done.stderr, rig.status())
    assert rig.status().violations.count == 0


@pytest.fixture(scope="module")
def texture_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("textures")
    for name in ("textures", "texture_faults"):
        cuda_harness.compile_program(name, out)
    return out


REFUSED_TEXTURES = {
    "not_done": [
        "an array of this format, a cubemap or a sparse array",
        "a texture with sRGB, seamless cubemaps or a resource view",
    ],
    "cubemaps": ["tex.cube.v4.f32.f32"],
}


@pytest.mark.parametrize(("program", "case"), TEXTURES)
def test_textures_are_as_on_the_driver_itself(
    rig: Rig, texture_programs: Path, program: str, case: str
) -> None:
    """What is not done is refused by name, once, and nothing else is said."""
    done = run_program(rig, str(texture_programs / program), case)
    assert done.returncode == 0, (done.stderr, rig.status())
    lines = done.stderr.splitlines()
    wanted = REFUSED_TEXTURES.get(case, [])
    assert len(lines) == len(wanted), done.stderr
    assert all(word in line for word, line in zip(wanted, lines, strict=True)), done.stderr
    assert rig.status().violations.count == 0


def test_what_a_graph_would_need_of_the_guest_is_refused_and_named_once(rig: Rig) -> None:
    """It must neither run at once nor be missing from the graph; a launch of a graph is waited for by nobody."""
    process = start_python(
        rig,
        """
ctx = context(); s, t, g, e, q = (c_void_p() for _ in range(5)); p = memory(64); back = ctypes.create_string_buffer(4)
ok(cu.cuStreamCreate(byref(s), 1)); FN = ctypes.CFUNCTYPE(None, c_void_p); called = []; fn = FN(called.append)
refused = lambda: cu.cuStreamAddCallback(s, fn, None, 0)
for _ in range(2):
    ok(cu.cuStreamBeginCapture_v2(s, 0)); ok(cu.cuMemsetD8Async(p, 7, c_size_t(4), s))
    assert cu.cuMemFreeAsync(p, s) == 1  # no graph's
    assert refused() == 900 and refused() == 901 and cu.cuMemAllocAsync(byref(q), c_size_t(64), s) == 901
    assert cu.cuMemsetD8Async(p, 7, c_size_t(4), s) == 901 and cu.cuStreamEndCapture(s, byref(g)) == 901 and not g.value
ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(4))); assert called == [] and back.raw != bytes([7]) * 4
ok(cu.cuStreamBeginCapture_v2(s, 0)); ok(cu.cuMemsetD8Async(p, 7, c_size_t(4), s))
ok(cu.cuStreamEndCapture(s, byref(g)))
ok(cu.cuGraphInstantiateWithFlags(byref(e), g, ctypes.c_uint64(0))); ok(cu.cuGraphDestroy(g)); before = waits()
for _ in range(200): ok(cu.cuGraphLaunch(e, s))
assert waits() == before
ok(cu.cuStreamSynchronize(s)); ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(4))); assert back.raw == bytes([7]) * 4
""",
    )
    said = process.communicate(timeout=PROGRAM_S)[1].splitlines()
    assert process.returncode == 0, said
    told = "vgpumgr: cuStreamAddCallback in a captured stream is not supported over a forwarded GPU"
    assert said == [told]
    assert rig.status().violations.count == 0


def test_a_graph_under_capture_has_its_handle_and_is_read(rig: Rig) -> None:
    """As cuda-core asks for it: also from a stream that has joined."""
    process = start_python(
        rig,
        """
ctx = context(); s, t, e, f, g = (c_void_p() for _ in range(5)); p = memory(64); u64 = ctypes.c_uint64
for stream in (s, t): ok(cu.cuStreamCreate(byref(stream), 1))
ok(cu.cuEventCreate(byref(e), 0))
def ask(stream):
    status, number, graph = c_int(), u64(), c_void_p()
    ok(cu.cuStreamGetCaptureInfo_v3(stream, byref(status), byref(number), byref(graph), None, None, None))
    return status.value, number.value, graph.value
assert ask(s) == (0, 0, None)
for _ in range(3):
    ok(cu.cuStreamBeginCapture_v2(s, 0)); ok(cu.cuMemsetD8Async(p, 7, c_size_t(4), s))
    status, number, graph = ask(s)
    assert status == 1 and number and graph and ask(t) == (0, 0, None)
    ok(cu.cuEventRecord(e, s)); ok(cu.cuStreamWaitEvent(t, e, 0))
    assert ask(t) == (1, number, graph)
    assert cu.cuGraphDestroy(c_void_p(graph)) == 401
    nodes = c_size_t(); ok(cu.cuGraphGetNodes(c_void_p(graph), None, byref(nodes))); assert nodes.value == 1
    ok(cu.cuEventRecord(e, t)); ok(cu.cuStreamWaitEvent(s, e, 0))
    ok(cu.cuStreamEndCapture(s, byref(g))); assert g.value == graph and ask(s) == (0, 0, None)
    ok(cu.cuGraphInstantiateWithFlags(byref(f), g, u64(0))); ok(cu.cuGraphLaunch(f, s)); ok(cu.cuGraphDestroy(g))
ok(cu.cuStreamBeginCapture_v2(s, 0)); ok(cu.cuStreamDestroy_v2(s))     # its handle is given back
""",
    )
    said = process.communicate(timeout=PROGRAM_S)[1].splitlines()
    assert process.returncode == 0, said
    assert not said
    assert rig.status().violations.count == 0


def test_what_a_stream_under_capture_depends_on(rig: Rig) -> None:
    """As PyTorch asks before each allocation in a graph. The nodes have the same handles when the capture has ended."""
    program = """
ctx = context(); e, g, p = c_void_p(), c_void_p(), memory(64); u64 = ctypes.c_uint64
def stream():
    made = c_void_p(); ok(cu.cuStreamCreate(byref(made), 1)); return made
def ask(stream):
    status, nodes, edges, count = c_int(), c_void_p(), c_void_p(), c_size_t(99)
    ok(cu.cuStreamGetCaptureInfo_v3(
        stream, byref(status), None, None, byref(nodes), byref(edges), byref(count)))
    assert status.value == 1
    kinds = (ctypes.c_uint8 * (8 * count.value)).from_address(edges.value) if count.value else ()
    assert not any(kinds)
    return nodes.value, count.value
def read(at):
    return list((u64 * at[1]).from_address(at[0])) if at[1] else []
def behind(node, room=64):
    count = c_size_t(room); found = (u64 * room)()
    ok(cu.cuGraphNodeGetDependencies(c_void_p(node), found, byref(count)))
    only = c_size_t(); ok(cu.cuGraphNodeGetDependencies(c_void_p(node), None, byref(only)))
    assert only.value >= count.value
    return list(found[:count.value])
def work(stream):
    ok(cu.cuMemsetD8Async(p, 7, c_size_t(4), stream))
    (node,) = read(ask(stream))
    return node
def wait(stream, other):
    ok(cu.cuEventRecord(e, other)); ok(cu.cuStreamWaitEvent(stream, e, 0))
ok(cu.cuEventCreate(byref(e), 0)); s, t = stream(), stream()
for turn in range(2):
    ok(cu.cuStreamBeginCapture_v2(s, 0)); assert ask(s)[1] == 0
    first, second = work(s), work(s); assert behind(second) == [first] and behind(first) == []
    wait(t, s); assert read(ask(t)) == [second]
    left, right = work(s), work(t); assert behind(left) == behind(right) == [second]
    wait(s, t); there = ask(s); assert sorted(read(there)) == sorted([left, right])
    ask(t); assert sorted(read(there)) == sorted([left, right]), "another stream's list is another"
    others = [stream() for _ in range(30)]
    for other in others: wait(other, s)
    tips = [work(other) for other in others]
    for other in others: wait(s, other)
    all = read(ask(s)); assert set(tips) <= set(all) and len(set(all)) == len(all)
    last = work(s); assert sorted(behind(last)) == sorted(all)
    assert len(behind(last, room=7)) == 7
    assert cu.cuGraphNodeGetDependencies(c_void_p(last + 500), None, byref(c_size_t())) == 1
    ok(cu.cuStreamEndCapture(s, byref(g)))
    count = c_size_t(64); nodes = (u64 * 64)(); ok(cu.cuGraphGetNodes(g, nodes, byref(count)))
    assert {first, second, left, right, last, *tips} == set(nodes[:count.value])
    kind = c_int(); ok(cu.cuGraphNodeGetType(c_void_p(left), byref(kind))); assert kind.value == 2
    assert behind(second) == [first] and sorted(behind(last)) == sorted(all)
    f = c_void_p(); ok(cu.cuGraphInstantiateWithFlags(byref(f), g, u64(0))); ok(cu.cuGraphLaunch(f, s))
    ok(cu.cuGraphDestroy(g)); assert cu.cuGraphNodeGetDependencies(c_void_p(last), None, byref(c_size_t())) == 1
ok(cu.cuStreamBeginCapture_v2(s, 0)); node = work(s); assert cu.cuStreamQuery(s) == 900
status = c_int(); count = c_size_t(5)
ok(cu.cuStreamGetCaptureInfo_v2(s, byref(status), None, None, None, byref(count))); assert status.value == 2
assert cu.cuGraphNodeGetDependencies(c_void_p(node), None, byref(c_size_t())) != 0
assert cu.cuStreamEndCapture(s, byref(g)) == 901
"""
    assert run_python(rig, program) == ""
    assert rig.status().violations.count == 0


HOSTS = """
import os, signal, threading, time
FN = ctypes.CFUNCTYPE(None, c_void_p); u64 = ctypes.c_uint64; libc = ctypes.CDLL(None)
libc.munmap.argtypes = [c_void_p, c_size_t]
def stream():
    s = c_void_p(); ok(cu.cuStreamCreate(byref(s), 1)); return s
def captured(s, *work):
    g = c_void_p(); ok(cu.cuStreamBeginCapture_v2(s, 0))
    for each in work: ok(each())
    ok(cu.cuStreamEndCapture(s, byref(g))); return g
def instantiated(g):
    e = c_void_p(); ok(cu.cuGraphInstantiateWithFlags(byref(e), g, u64(0))); return e
def to_device(p, at, n, s): return lambda: cu.cuMemcpyHtoDAsync_v2(p, at, c_size_t(n), s)
def to_host(at, p, n, s): return lambda: cu.cuMemcpyDtoHAsync_v2(at, p, c_size_t(n), s)
def on_device(q, p, n, s): return lambda: cu.cuMemcpyDtoDAsync_v2(q, p, c_size_t(n), s)
def host(fn, s): return lambda: cu.cuLaunchHostFunc(s, fn, None)
ctx = context(); s = stream()
"""


def test_a_graph_reads_host_memory_when_its_copy_runs_in_each_of_many_launches(rig: Rig) -> None:
    """A function before the copy changes the memory, one behind the other copy reads it; nobody waits in between."""
    run_python(
        rig,
        HOSTS
        + """
n = 3 << 20; p, q = memory(n), memory(n)               # more than one frame holds
source, target = ctypes.create_string_buffer(n), ctypes.create_string_buffer(n); seen = []; launches = 0
def change(_):
    global launches
    launches += 1; ctypes.memset(source, launches, n); source[n - 1] = bytes([launches ^ 1])
right = lambda: target.raw == bytes([launches]) * (n - 1) + bytes([launches ^ 1])
change, check = FN(change), FN(lambda _: seen.append(right()))
e = instantiated(captured(s, host(change, s), to_device(p, source, n, s), on_device(q, p, n, s),
                          to_host(target, q, n, s), host(check, s)))
for _ in range(8): ok(cu.cuGraphLaunch(e, s))
ok(cu.cuStreamSynchronize(s)); assert seen == [True] * 8, seen
""",
    )
    assert rig.status().violations.count == 0


def test_what_waits_for_a_graph_does_not_keep_it_from_the_guest(rig: Rig) -> None:
    """A free waits in the driver; the graph is destroyed and another of the same origin runs, all before it goes on."""
    run_python(
        rig,
        HOSTS
        + """
p, q, t = memory(64), memory(64), stream(); go = threading.Event()
a, b = (ctypes.create_string_buffer(64) for _ in "ab")
slow = FN(lambda _: go.wait(60)); ctypes.memset(a, 7, 64)
g = captured(s, host(slow, s), to_device(p, a, 64, s), to_host(b, p, 64, s)); e, f = instantiated(g), instantiated(g)
ok(cu.cuGraphDestroy(g)); ok(cu.cuGraphLaunch(e, s)); ok(cu.cuGraphLaunch(f, t)); ok(cu.cuGraphExecDestroy(e))
threading.Timer(0.5, go.set).start()
ok(cu.cuMemFree_v2(q)); ok(cu.cuGraphExecDestroy(f)); ok(cu.cuCtxSynchronize()); assert b.raw == bytes([7]) * 64
""",
    )


def test_shapes_and_changes_of_copies_with_host_memory(rig: Rig) -> None:
    run_python(
        rig,
        HOSTS
        + """
class Copy(ctypes.Structure): _fields_ = [("sides", c_size_t * 22), ("extent", c_size_t * 3)]
def side(device, host, pitch, height): return [0, 0, 0, 0, 2 if device else 1, host, device, 0, 0, pitch, height]
def node(g, *deps):
    return c_void_p(), g, (c_void_p * 4)(*[d.value for d in deps]), c_size_t(len(deps))
p = memory(4096); a, b, c = (ctypes.create_string_buffer(os.urandom(4096), 4096) for _ in "abc"); kept = b.raw
def copy(source, target, *extent): return Copy((c_size_t * 22)(*source, *target), (c_size_t * 3)(*extent))
down = lambda source: copy(side(0, addressof(source), 40, 5), side(p.value, 0, 64, 6), 33, 4, 3)
up = copy(side(p.value, 0, 64, 6), side(0, addressof(b), 50, 7), 33, 4, 3)
over = copy(side(0, addressof(b), 0, 0), side(0, addressof(c), 0, 0), 4096, 1, 1)
def expect(source):
    want = bytearray(kept)
    for z in range(3):
        for y in range(4): at = z * 350 + y * 50; want[at:at + 33] = source.raw[z * 200 + y * 40:][:33]
    ok(cu.cuGraphLaunch(e, s)); ok(cu.cuStreamSynchronize(s)); assert b.raw == bytes(want) and c.raw == bytes(want)
g = c_void_p(); ok(cu.cuGraphCreate(byref(g), 0)); kind = ctypes.c_uint()
first, *where = node(g); ok(cu.cuGraphAddMemcpyNode(byref(first), *where, byref(down(a)), ctx))
second, *where = node(g, first); ok(cu.cuGraphAddMemcpyNode(byref(second), *where, byref(up), ctx))
third, *where = node(g, second); ok(cu.cuGraphAddMemcpyNode(byref(third), *where, byref(over), ctx))
for each in (first, second): ok(cu.cuGraphNodeGetType(each, byref(kind))); assert kind.value == 1
e = instantiated(g); expect(a); other = ctypes.create_string_buffer(os.urandom(4096), 4096)
for _ in range(40):                                    # the executable graph alone; the old memory is not read
    other[:100] = os.urandom(100)
    ok(cu.cuGraphExecMemcpyNodeSetParams(e, first, byref(down(other)), ctx)); expect(other)
more = ctypes.create_string_buffer(os.urandom(4096), 4096)
ok(cu.cuGraphMemcpyNodeSetParams(first, byref(down(more))))
result = (c_void_p * 3)(); expect(other); ok(cu.cuGraphExecUpdate_v2(e, g, result)); expect(more)
parent = c_void_p(); ok(cu.cuGraphCreate(byref(parent), 0)); child, *where = node(parent)
ok(cu.cuGraphAddChildGraphNode(byref(child), *where, g))
os.environ["VGPUMGR_QUIET"] = "1"
assert cu.cuGraphAddChildGraphNode(byref(child), *where, g) == 801   # both would have one memory at the host
e = instantiated(parent); ok(cu.cuGraphDestroy(g)); expect(more)
clone = c_void_p(); ok(cu.cuGraphClone(byref(clone), parent)); ok(cu.cuGraphDestroy(parent))
e = instantiated(clone); expect(more)
""",
    )
    assert rig.status().violations.count == 0


def test_host_memory_that_is_gone_costs_the_context_and_nothing_else(rig: Rig) -> None:
    run_python(
        rig,
        HOSTS
        + """
libc.mmap.restype = c_void_p; libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_size_t]
for make in (lambda: to_device(p, c_void_p(at), 8192, s), lambda: to_host(c_void_p(at), p, 8192, s)):
    at = libc.mmap(None, 8192, 3, 0x22, -1, 0); ctx = context(); s = stream(); p = memory(8192)
    e = instantiated(captured(s, make())); ok(cu.cuGraphLaunch(e, s)); ok(cu.cuStreamSynchronize(s))
    assert libc.munmap(at + 4096, 4096) == 0
    assert cu.cuGraphLaunch(e, s) in (0, 700)      # it may be lost before the launch is through
    assert cu.cuStreamSynchronize(s) == 700 and cu.cuCtxSynchronize() == 700
    q = ctypes.c_uint64(); assert cu.cuMemAlloc_v2(byref(q), c_size_t(64)) == 700; ok(cu.cuDevicePrimaryCtxReset_v2(0))
ctx = context(); p = memory(4); ok(cu.cuMemsetD8_v2(p, 1, c_size_t(4))); ok(cu.cuCtxSynchronize())
""",
    )
    assert rig.status().violations.count == 0


def test_a_function_of_a_graph_that_calls_cuda_and_a_process_killed_in_one(rig: Rig) -> None:
    code = (
        HOSTS
        + """
p = memory(64); a = ctypes.create_string_buffer(b"7" * 64, 64); b = ctypes.create_string_buffer(64); seen = []
def calls(_):
    q, t = ctypes.c_uint64(), c_void_p()
    cu.cuCtxSetCurrent(ctx); seen.append(cu.cuMemAlloc_v2(byref(q), c_size_t(64)))
    seen.append(cu.cuStreamCreate(byref(t), 1)); seen.append(cu.cuMemsetD8Async(q, 3, c_size_t(64), t))
calls = FN(calls); e = instantiated(captured(s, host(calls, s), to_device(p, a, 64, s), to_host(b, p, 64, s)))
"""
    )
    run_python(
        rig,
        code
        + """
ok(cu.cuGraphLaunch(e, s)); ok(cu.cuStreamSynchronize(s)); assert seen == [0, 0, 0] and b.raw == a.raw, seen
""",
    )
    killed = start_python(
        rig,
        code
        + """
die = FN(lambda _: os.kill(os.getpid(), signal.SIGKILL))
e = instantiated(captured(s, to_device(p, a, 64, s), host(die, s), to_host(b, p, 64, s)))
for _ in range(5): ok(cu.cuGraphLaunch(e, s))
ok(cu.cuMemFree_v2(p)); ok(cu.cuStreamSynchronize(s))
""",
    )
    killed.communicate(timeout=PROGRAM_S)
    assert killed.returncode == -9
    run_python(
        rig,
        code + "ok(cu.cuGraphLaunch(e, s)); ok(cu.cuStreamSynchronize(s)); assert b.raw == a.raw",
    )
    assert rig.status().violations.count == 0


@pytest.mark.parametrize("bytes_in_all", [4096, 16352, 16360, 32764])
def test_parameters_of_every_size_arrive(rig: Rig, bytes_in_all: int) -> None:
    run_python(
        rig,
        """
import os, sys
n = int(sys.argv[1]) - 8
image = f'''.version 8.1
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .align 4 .b8 data[{n}])
{{ .reg .u64 %p; .reg .u32 %a, %b;
ld.param.u64 %p, [out]; ld.param.u32 %a, [data]; ld.param.u32 %b, [data+{n - 4}];
st.global.u32 [%p], %a; st.global.u32 [%p+4], %b; ret; }}'''.encode() + bytes(1)
ctx = context(); f = function(module(image), b"k"); p = memory(8); back = ctypes.create_string_buffer(8)
data = os.urandom(n); first = ctypes.create_string_buffer(data, n)
array = (c_void_p * 2)(addressof(p), addressof(first))
def check():
    ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(8))); assert back.raw == data[:4] + data[-4:]
    ok(cu.cuMemsetD8_v2(p, 0, c_size_t(8)))
ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, array, None)); check()
packed = bytes(p) + data; size = c_size_t(len(packed))       # the same in one buffer
extra = (c_void_p * 5)(1, ctypes.cast(packed, c_void_p), 2, addressof(size), 0)
ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, extra)); check()
""",
        str(bytes_in_all),
    )


@pytest.mark.parametrize("major", [12, 13])
def test_the_runtime_is_not_newer_than_its_driver(rig: Rig, major: int) -> None:
    run_python(
        rig,
        f"""
import os
runtime = ctypes.CDLL(os.environ["LD_LIBRARY_PATH"].split(":")[0] + "/libcudart.so.{major}")
below, own = c_int(), c_int()
assert runtime.cudaDriverGetVersion(byref(below)) == 0 and below.value == 13000
assert runtime.cudaRuntimeGetVersion(byref(own)) == 0
assert own.value <= below.value and own.value // 1000 == {major}, own.value
""",
    )


def test_processes_killed_while_their_streams_wait_for_memory_leave_nothing(rig: Rig) -> None:
    """Nothing ends their waits; lanes and memory are the next processes'."""
    code = """
context(); s = c_void_p(); p = memory(4096)
ok(cu.cuStreamCreate(byref(s), 1)); ok(cu.cuMemsetD8_v2(p, 0, c_size_t(4096))); ok(cu.cuCtxSynchronize())
ok(cu.cuStreamWaitValue32_v2(s, p, 1, 0)); ok(cu.cuMemsetD8Async(p, 7, c_size_t(64), s))
"""
    before = rig.status().worker.pid
    for how in (
        "ok(cu.cuStreamSynchronize(s))",
        "ok(cu.cuMemFree_v2(p)); ok(cu.cuCtxSynchronize())",
    ) * 4:
        waits = start_python(rig, f"{code}print('waits', flush=True); {how}")
        assert waits.stdout is not None
        assert waits.stdout.readline() == "waits\n"
        waits.kill()
        waits.communicate(timeout=PROGRAM_S)
        rig.wait_status(lambda s: len(s.lanes) < 8, "lanes freed")
    rig.wait_status(lambda s: not s.lanes, "all lanes freed")
    run_python(
        rig, code + "ok(cu.cuStreamWriteValue32_v2(None, p, 1, 0)); ok(cu.cuStreamSynchronize(s))"
    )
    status = rig.status()
    assert (status.worker.pid, status.violations.count) == (before, 0)
