"""cuDNN of the guest over a channel, with the library that computes on the CPU on the host's side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.forwarded import begin, channel, list_complaints_without_library
from tests.unit.calls_rig import (
    NULL_DRIVER,
    WORKER,
    run_python,
)
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: what the programs below begin with
BEGIN = begin("dnn")
#: and, for most, with a convolution whose descriptors are all made anew by describe()
CONVOLUTION = """
shape = Shape(2, 1, 3, 4, (6, 5), (3, 3), pre=(1, 1))
random = np.random.default_rng(3)
x, w, y = (Values(random.standard_normal(s)) for s in (shape.x, shape.w, shape.y))
addresses = {uid: dnn.upload(v.raw) for uid, v in ((1, x), (2, w), (3, y))}
space = dnn.alloc(1 << 20)
def describe(mode=0):
    operator = dnn.operator(shape.stride, shape.pre, shape.post, shape.dilation)
    tensors = [dnn.tensor_of(uid, v) for uid, v in ((1, x), (2, w), (3, y))]
    graph = dnn.graph(dnn.convolution(FORWARD, operator, tensors))
    plan = dnn.plan(dnn.configs(graph, mode)[0])
    assert dnn.get(plan, 402, T_INT64)[0] <= 1 << 20
    return plan
def result():
    dnn.ok(dnn.wait())
    dnn.download(addresses[3], y.raw)
    return y.get()
"""


def test_what_was_seen_before_waits_for_nothing(rig: Rig) -> None:
    """A second round describes all anew, as a program does whose own cache is cold: the same contents are known."""
    code = """
from tests.unit.guest_cuda import waits
def step(plan):
    return dnn.execute(plan, dnn.pack(addresses, space))
first = describe()
assert step(first) == OK
before = waits()
for _ in range(20):
    assert step(first) == OK
second = describe()
assert step(second) == OK
for config in dnn.configs(dnn.graph(dnn.convolution(FORWARD, dnn.operator(
    shape.stride, shape.pre, shape.post, shape.dilation),
    [dnn.tensor_of(uid, v) for uid, v in ((1, x), (2, w), (3, y))]
)), 0):
    (engine,) = dnn.get_all(config, 300, ENGINE)
assert waits() == before
assert np.allclose(result(), shape.forward(x.get(), w.get()), atol=1e-4)
before = waits()
describe(1)  # another mode of the heuristics
assert waits() > before
"""
    assert run_python(rig, BEGIN + CONVOLUTION + code) == ""


def test_batch_normalisation_waits_in_its_first_step_only(rig: Rig) -> None:
    code = """
from tests.unit.guest_cuda import waits
from tests.sim.dnn_norm import Layer, PERSISTENT, ACTIVATE
layer = Layer(dnn, (4, 3, 5, 2), HALF, PERSISTENT, ACTIVATE, True)
assert layer.forward() == OK and layer.backward() == OK
before = waits()
for _ in range(10):
    assert layer.forward() == OK and layer.backward() == OK
for name in ("ForwardTrainingExWorkspaceSize", "BackwardExWorkspaceSize"):
    layer.ask("GetBatchNormalization" + name)
assert waits() == before
dnn.ok(dnn.wait())
"""
    assert run_python(rig, BEGIN + code) == ""


def test_a_value_on_the_host_travels_with_each_execution(rig: Rig) -> None:
    code = """
from tests.unit.guest_cuda import waits
a, out = Values(np.arange(6.0).reshape(1, 6, 1)), Values(np.zeros((1, 6, 1)))
operation = dnn.pointwise(1, x=dnn.tensor_of(1, a), b=dnn.tensor(2, (1, 1, 1), by_value=True), y=dnn.tensor_of(3, out))
plan = dnn.plan(dnn.configs(dnn.graph(operation))[0])
A, O = dnn.upload(a.raw), [dnn.alloc(out.raw.nbytes) for _ in range(4)]
scalar = np.zeros(1, "f4")
for round in range(4):
    if round == 1:
        before = waits()
    scalar[0] = 10 ** round
    assert dnn.execute(plan, dnn.pack({1: A, 2: scalar.ctypes.data, 3: O[round]}, 0)) == OK
    scalar[0] = -1  # it has gone with the call
assert waits() == before
dnn.ok(dnn.wait())
for round in range(4):
    dnn.download(O[round], out.raw)
    mode = out.get() - a.get()
    assert np.allclose(mode, 10 ** round) or np.allclose(out.get(), a.get() * 10 ** round), (round, out.get())
"""
    assert run_python(rig, BEGIN + code) == ""


def test_a_plan_outlives_the_handle_that_it_was_made_with(ring: Rig) -> None:
    code = """
plan, old = describe(), dnn.dnn_handle
assert dnn.execute(plan, dnn.pack(addresses, space)) == OK
dnn.dnn_handle = dnn.new_handle()
assert dnn.execute(plan, dnn.pack(addresses, space)) == OK
dnn.good(dnn.dnn.cudnnDestroy(old))
for _ in range(3):
    assert dnn.execute(plan, dnn.pack(addresses, space)) == OK
assert np.allclose(result(), shape.forward(x.get(), w.get()), atol=1e-4)
dnn.good(dnn.dnn.cudnnDestroy(dnn.dnn_handle))
assert dnn.execute(plan, dnn.pack(addresses, space)) == BAD_PARAM
"""
    assert run_python(ring, BEGIN + CONVOLUTION + code) == ""


def test_threads_share_a_plan_and_a_child_gets_an_error(ring: Rig) -> None:
    code = """
import os, threading
plan, wrong = describe(), []
def work(handle):
    dnn.cuda.cuCtxSetCurrent(dnn.context)
    for _ in range(50):
        if dnn.dnn.cudnnBackendExecute(handle, plan, dnn.pack(addresses, space)):
            wrong.append("status")
    describe()
threads = [threading.Thread(target=work, args=(h,)) for h in (dnn.dnn_handle, dnn.dnn_handle, dnn.new_handle())]
[t.start() for t in threads], [t.join() for t in threads]
assert not wrong
assert np.allclose(result(), shape.forward(x.get(), w.get()), atol=1e-4)
child = os.fork()
if not child:
    os._exit(1 if dnn.execute(plan, dnn.pack(addresses, space)) == OK else 7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert dnn.execute(plan, dnn.pack(addresses, space)) == OK
"""
    assert run_python(ring, BEGIN + CONVOLUTION + code) == ""


#: calls made by hand, as a guest with another library could
BY_HAND = """
import struct
from tests.unit.guest_cuda import addressof, c_uint, c_uint64, context, cu
from tests.sim.math_by_hand import ASK, POST, TRY, create, send
CHECK, READ, FIND, PLAN_, EXECUTE, VERSIONS = range(1, 7)
mine = create(3)
def call(function, words, handle=None, make=False, wait=None):
    if wait is None:
        wait = TRY if function == EXECUTE else ASK
    result, status, _, made = send(mine if handle is None else handle, function, words, wait, make=make)
    assert result in (0, 2, 400, 801), result
    return result or status or made
def attribute(number, type_, *values):
    data = b"".join(values)
    data += bytes(-len(data) % 8)
    return [number | type_ << 16 | len(values) << 32, *struct.unpack(f"<{len(data) // 8}Q", data)]
def long(*values):
    return [struct.pack("<q", v) for v in values]
def tensor(uid, by_value=0, *more, dims=(1, 1, 1), strides=(1, 1, 1), type_=0):
    rows = [
        attribute(901, 1, struct.pack("<i", type_)), attribute(902, 3, *long(*dims)),
        attribute(903, 3, *long(*strides)), attribute(900, 3, *long(4)), attribute(908, 2, bytes([by_value])), *more,
    ]
    rows += [] if uid is None else [attribute(906, 3, *long(uid))]
    return [17 | len(rows) << 32, *sum(rows, [])]
def tree(*descriptors):
    return [len(descriptors), *sum(descriptors, [])]
assert call(CHECK, tree(tensor(1))) == OK
"""


def test_trees_that_no_library_of_ours_would_send(ring: Rig) -> None:
    code = """
def bad(*rows, first=(), type_=17):
    return call(CHECK, tree(*first, [type_ | len(rows) << 32, *sum(rows, [])]))
alignment = attribute(900, 3, *long(4))
assert bad(alignment, alignment) == BAD_PARAM                              # twice
assert bad(attribute(900, 2, b"\\1")) == BAD_PARAM                          # of another type
assert bad(attribute(900, 3, *long(4, 4))) == BAD_PARAM                    # of more elements than it has
assert bad(attribute(902, 3, *long(*range(1, 10)))) == BAD_PARAM
assert bad(attribute(908, 2, b"\\2")) == BAD_PARAM                          # no truth value
assert bad(attribute(700, 4, bytes(4))) == BAD_PARAM                       # of another descriptor
assert bad(attribute(910, 3, *long(1))) == NOT_SUPPORTED                   # not known here
assert bad(attribute(405, 24, b"{")) in (BAD_PARAM, NOT_SUPPORTED)         # a text to be parsed
assert bad(attribute(2402, 24, b"{")) == NOT_SUPPORTED
assert bad(attribute(1001, 6, *long(0x4711)), type_=16) == BAD_PARAM       # pointers: no descriptor of trees
assert bad(attribute(1302, 15, *long(0)), type_=2) == BAD_PARAM            # what only the library sets
for kind in (6, 16, 34, 51, 77, 0xffffffff):
    assert bad(type_=kind) == BAD_PARAM
assert bad(attribute(801, 15, *long(0)), first=[tensor(1)], type_=15) == BAD_PARAM      # a tensor is no operation
for place in (0, 1, 2, -1, 1 << 40):                                      # itself, and what is not there
    assert bad(attribute(1300, 15, *long(place)), type_=2) == BAD_PARAM
lone = tree(tensor(1))
for words in ([], [0], [1], [257, *[17] * 257], [1 << 60], [1, 17 | 33 << 32], [1, 17 | 1 << 32], [*lone, 0]):
    assert call(CHECK, words) == BAD_PARAM, words
    assert call(READ, [901, 1, *words]) == BAD_PARAM and call(FIND, [202, 0, *words]) == BAD_PARAM
assert call(CHECK, tree(tensor(1), tensor(1, 1))) == BAD_PARAM             # one id on the host and on the device
assert call(CHECK, tree(tensor(1, 1), tensor(1, 1, type_=1))) == BAD_PARAM # and of two lengths
for more in (
    {"dims": (1, 2, 1)}, {"dims": (1, 1 << 20, 1)}, {"dims": (1 << 32, 1 << 32, 1)},
    {"strides": (1 << 45, 1, 1), "dims": (2, 1, 1)},
):
    assert call(CHECK, tree(tensor(1, 1, **more), tensor(2))) == NOT_SUPPORTED, more   # more than a number
assert call(CHECK, tree(tensor(1, 1, attribute(904, 3, *long(4096))), tensor(2))) == NOT_SUPPORTED
assert call(CHECK, tree(tensor(1, 1), tensor(None))) == BAD_PARAM          # its id could be the number's
assert call(READ, [801, 15, *lone]) == BAD_PARAM and call(READ, [901, 1 << 40, *lone]) == BAD_PARAM
assert call(READ, [700, 4, *tree(tensor(1))]) == BAD_PARAM
assert call(FIND, [901, 0, *tree(tensor(1))]) == BAD_PARAM
assert call(PLAN_, tree(tensor(1)), make=True) == BAD_PARAM
assert call(CHECK, tree(tensor(1)), make=True) == 801
for function in (0, PLAN_, 8, 63, 1 << 63, 0x123456789abcdef0):
    assert call(function, [1, 2, 3]) == NOT_SUPPORTED
assert call(CHECK, tree(tensor(1))) == OK
"""
    assert run_python(ring, BEGIN + BY_HAND + code) == ""
    assert ring.status().violations.count == 0


#: the plan of a sum of a tensor on the device and a number
SUM = """
def pointwise(*rows):
    return [0 | len(rows) << 32, *sum(rows, [])]
def add():
    described = pointwise(attribute(0, 14, struct.pack("<i", 0)), attribute(1, 1, bytes(4)))
    rows = [attribute(n, 15, *long(p)) for n, p in ((750, 3), (751, 0), (752, 1), (753, 2))]
    operation = [13 | 4 << 32, *sum(rows, [])]
    graph = [15 | 2 << 32, 800 | 1 << 32, *attribute(801, 15, *long(4))]
    engine = [2 | 2 << 32, *attribute(1300, 15, *long(5)), *attribute(1301, 3, *long(0))]
    config = [3 | 1 << 32, *attribute(300, 15, *long(6))]
    plan = [5 | 2 << 32, 400 | 1 << 32, *attribute(401, 15, *long(7))]
    return tree(tensor(1), tensor(2, 1), tensor(3), described, operation, graph, engine, config, plan)
"""


def test_executions_that_no_library_of_ours_would_send(ring: Rig) -> None:
    """A tensor on the host has its value in the message; an address there is never the guest's to name."""
    code = """
plan = call(PLAN_, add(), make=True)
assert plan > 6000, plan
X = dnn.upload(np.array([4], "f4"))
Y = dnn.alloc(4)
seven = struct.unpack("<Q", struct.pack("<f4x", 7))[0]
right = [plan, 0, 2, 1, X, 3, Y, 1, 2, 4, seven]
assert call(EXECUTE, right) == OK
dnn.ok(dnn.wait())
back = np.zeros(1, "f4")
dnn.download(Y, back)
assert back[0] == 11, back
for words in (
    [plan, 0, 3, 1, X, 2, 0x4711, 3, Y, 0],          # an address for what is on the host
    [plan, 0, 3, 1, X, 2, 0x4711, 3, Y, 1, 2, 4, seven],
    [plan, 0, 1, 1, X, 2, 2, 4, seven, 3, 4, seven],  # a value for what is on the device
    [plan, 0, 2, 1, X, 3, Y, 1, 2, 8, seven],         # more bytes than it has
    [plan, 0, 2, 1, X, 3, Y, 1, 2, 1 << 40, seven],
    [plan, 0, 2, 1, X, 3, Y, 2, 2, 4, seven, 2, 4, seven],
    [plan, 0, 3, 1, X, 3, Y, 3, Y, 1, 2, 4, seven],   # twice
    [plan, 0, 1 << 61, 1, X], [plan, 0, 2, 1, X, 3, Y, 1 << 61, 2, 4, seven],
    right + [0], right[:-1], right[:5], [plan], [],
):
    assert call(EXECUTE, words) not in (OK, None), words
assert call(EXECUTE, right, wait=ASK) == 801          # it gives nothing back
second = create(3)                                    # two handles, each as the other's plan
import threading
crossed = [(mine, second), (second, mine)] * 8
def cross(a, b, wait):
    context()
    call(EXECUTE, [b, *right[1:]], a, False, wait)
threads = [threading.Thread(target=cross, args=(a, b, w)) for w in (TRY, ASK) for a, b in crossed]
[t.start() for t in threads], [t.join() for t in threads]
for other in (0, 1, mine, plan ^ 1 << 40, plan + 1):
    assert call(EXECUTE, [other, *right[1:]]) in (400, BAD_PARAM, NOT_SUPPORTED)
for function in range(1, 7):                          # a plan is no handle
    assert call(function, right, handle=plan) != OK
blas = create(1)
assert call(EXECUTE, right, handle=blas) != OK and call(EXECUTE, [blas, *right[1:]]) != OK
assert call(EXECUTE, right) == OK
assert cu.vgpumgr_math_destroy(c_uint64(plan)) == 0
assert call(EXECUTE, right) == 400
assert call(CHECK, tree(tensor(1))) == OK
"""
    assert run_python(ring, BEGIN + BY_HAND + SUM + code) == ""
    assert ring.status().violations.count == 0


def test_what_failed_before_is_no_answer_to_a_question(ring: Rig) -> None:
    """A program tries the next engine where one is not supported: a posted failure must not look like that."""
    code = """
def finalise(uid):
    descriptor = dnn.create(17)
    for row in ((901, 1, 0), (902, 3, 2, 3, 4), (903, 3, 12, 4, 1), (906, 3, uid), (900, 3, 4)):
        assert dnn.set(descriptor, *row) == OK
    return dnn.finalize(descriptor)
first = finalise(1)
assert first == OK, first
for failed in (0x123456789abcdef0, EXECUTE):          # not supported; wrong
    assert call(failed, [1, 2, 3], wait=POST) == 0
    first = finalise(failed % 1000)
    assert first not in (OK, NOT_SUPPORTED, BAD_PARAM), first
    again = finalise(failed % 1000)
    assert again == OK, again                         # and nothing is kept of it
"""
    assert run_python(ring, BEGIN + BY_HAND + code) == ""


def test_sizes_are_asked_for_once_and_while_a_stream_captures(rig: Rig) -> None:
    code = """
from tests.unit.guest_cuda import byref, c_int, c_size_t, c_void_p, cu, waits
from tests.sim.dnn_norm import Layer, PERSISTENT, ACTIVATE
layers = [Layer(dnn, (n, c, 5, 2), HALF, PERSISTENT, ACTIVATE, True) for n in (1, 2, 3, 4) for c in range(1, 13)]
names = ("ForwardTrainingExWorkspaceSize", "Backward", "")
def ask():
    for layer in layers:
        for name in names:
            layer.ask(name)
ask()
before = waits()
ask(), ask()
assert waits() == before
stream, graph = c_void_p(), c_void_p()
assert cu.cuStreamCreate(byref(stream), 1) == 0
assert dnn.dnn.cudnnSetStream(dnn.dnn_handle, stream) == OK
assert cu.cuStreamBeginCapture_v2(stream, c_int(0)) == 0
layers[0].ops = 0                                     # without an activation: what was not asked yet
before = waits()
for name in names:
    layers[0].ask(name)
assert waits() > before
assert cu.cuStreamEndCapture(stream, byref(graph)) == 0 and graph.value
"""
    assert run_python(rig, BEGIN + code) == ""


def test_a_host_without_the_library_is_named() -> None:
    code = """
import ctypes
lib, h = ctypes.CDLL("libcudnn.so.9"), ctypes.c_void_p()
assert lib.cudnnCreate(ctypes.byref(h)) == 3000
assert lib.cudnnRNNForward() == 3000 and lib.cudnnGetVersion() == 92400
"""
    assert list_complaints_without_library(code) == [
        "vgpumgr: cuDNN, which the host does not have, is not supported over a forwarded GPU",
        "vgpumgr: cudnnRNNForward is not supported over a forwarded GPU",
    ]


def test_what_is_documented_as_a_number_is_never_an_address() -> None:
    """The null library takes all: it is the session that refuses."""
    code = """
for operation, number in ((20, 794), (20, 795), (20, 796), (29, 2007), (29, 2008), (30, 2106)):
    row = attribute(number, 15, *long(0))
    finalised = [operation | 1 << 32, *row]
    assert call(CHECK, tree(tensor(1, 1), finalised)) == OK, number
    assert call(CHECK, tree(tensor(1, 0), finalised)) == NOT_SUPPORTED, number
"""
    args = ("--cuda", str(NULL_DRIVER), f"--math={NULL_DRIVER.parent}")
    with Rig("ring", worker=WORKER, worker_args=args) as rig:
        assert run_python(rig, BEGIN + BY_HAND + code) == ""


def test_handles_and_plans_are_charged(tmp_path: Path) -> None:
    code = """
handles = []
while True:
    made, status = c_uint64(), c_int()
    result = cu.vgpumgr_math_create(3, byref(made), byref(status))
    if result or status.value:
        break
    handles.append(made)
assert result == 2 and 10 < len(handles) < 63, (result, len(handles))   # 64 MiB beside the context
assert call(PLAN_, add(), make=True) == 2
assert cu.vgpumgr_math_destroy(handles.pop()) == 0 and cu.cuCtxSynchronize() == 0
assert call(PLAN_, add(), make=True) > 6000
assert call(PLAN_, add(), make=True) == 2
"""
    with channel("ring", tmp_path, f"--limits=device-memory:{192 << 20}") as rig:
        assert run_python(rig, BEGIN + BY_HAND + SUM + code) == ""


def test_what_the_library_refuses_is_refused_after_calls_that_it_took(rig: Rig) -> None:
    """The first of its kind waits: another epsilon that is good is of the same kind, a negative one is not."""
    code = """
from ctypes import c_double
from tests.unit.guest_cuda import waits
from tests.sim.dnn_norm import Layer, PERSISTENT, ONLY, FLOAT, describe
layer = Layer(dnn, (3, 2, 4, 5), FLOAT, PERSISTENT, ONLY, False)
x = describe(dnn, layer.x)
where = [layer.at(v) for v in (layer.x, layer.y, layer.scale, layer.bias, layer.running_mean, layer.running_variance)]
def infer(epsilon, out=where[1]):
    return dnn.dnn.cudnnBatchNormalizationForwardInference(
        dnn.dnn_handle, PERSISTENT, layer.scalar(1), layer.scalar(0), x, where[0], x, out, layer.descriptor,
        *where[2:], c_double(epsilon))
assert infer(1e-3) == OK
before = waits()
assert infer(1e-5) == OK and waits() == before
assert infer(-1.0) == BAD_PARAM
assert infer(1e-4) == OK
before = waits()
assert infer(1e-3, where[0]) == OK and waits() == before + 1   # in place
"""
    assert run_python(rig, BEGIN + code) == ""


def test_the_null_library_makes_the_way_without_arithmetic() -> None:
    """Fuzzers and benchmarks stand on it: descriptors, plans, and executions that succeed."""
    code = "assert dnn.execute(describe(), dnn.pack(addresses, space)) == OK\n"
    args = ("--cuda", str(NULL_DRIVER), f"--math={NULL_DRIVER.parent}")
    with Rig("ring", worker=WORKER, worker_args=args) as rig:
        assert run_python(rig, BEGIN + CONVOLUTION + code) == ""
