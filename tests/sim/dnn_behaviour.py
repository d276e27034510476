# SPDX-License-Identifier: Apache-2.0
"""How the simulated cuDNN behaves beside computing: ``python -m tests.sim.dnn_behaviour CASE``, each in a process."""

from __future__ import annotations

import sys
import time
from ctypes import byref, c_uint64, c_void_p

import numpy as np

from tests.sim.blas_behaviour import ILLEGAL_ADDRESS, MIB, Gate, free_memory
from tests.sim.blas_client import run_threads
from tests.sim.dnn_client import (
    CONFIG,
    DOUBLE,
    ENGINE,
    FORWARD,
    NULL_POINTER,
    OK,
    T_DESCRIPTOR,
    T_DOUBLE,
    T_INT64,
    T_POINTER,
    Dnn,
    Shape,
    Values,
    assert_close,
)

N = 1000


class Sum:
    """y = x + number, as a plan: what streams, graphs and addresses are tried with."""

    def __init__(self, dnn: Dnn, n: int = N) -> None:
        self.dnn = dnn
        x, y = dnn.tensor(1, [n, 1]), dnn.tensor(2, [n, 1])
        number = dnn.tensor(3, [1, 1], by_value=True)
        graph = dnn.graph(dnn.pointwise(0, x=x, b=number, y=y))
        (config,) = dnn.configs(graph, 2)
        self.plan = dnn.plan(config)
        self.number = np.zeros(1, "f4")

    def run(self, x: int, y: int, number: float) -> int:
        """Execute; the number is read at the call."""
        self.number[0] = number
        pack = self.dnn.pack({1: x, 2: y, 3: self.number.ctypes.data}, 0)
        status = self.dnn.execute(self.plan, pack)
        self.dnn.good(self.dnn.dnn.cudnnBackendDestroyDescriptor(pack))
        self.number[0] = 1e9
        return status


def read(dnn: Dnn, address: int, n: int = N) -> np.ndarray:
    out = np.zeros(n, "f4")
    dnn.download(address, out)
    return out


def use(dnn: Dnn, stream: c_void_p) -> None:
    dnn.good(dnn.dnn.cudnnSetStream(dnn.dnn_handle, stream))


def streams(dnn: Dnn) -> None:
    """Work waits for what is before it on its stream, the caller for neither; plan and handle may be gone."""
    stream, x = dnn.stream(), dnn.upload(np.ones(N, "f4"))
    add = Sum(dnn)
    use(dnn, stream)
    assert add.run(x, x, 0) == OK
    dnn.ok(dnn.cuda.cuStreamSynchronize(stream))
    gate = Gate(dnn, stream)
    assert add.run(x, x, 3) == OK
    assert add.run(x, x, 4) == OK
    dnn.good(dnn.dnn.cudnnBackendDestroyDescriptor(add.plan))
    dnn.good(dnn.dnn.cudnnDestroy(dnn.dnn_handle))
    time.sleep(0.05)
    assert dnn.cuda.cuStreamQuery(stream) == 600
    assert np.all(read(dnn, x) == 1)
    gate.open()
    dnn.ok(dnn.cuda.cuStreamSynchronize(stream))
    assert np.all(read(dnn, x) == 8)


def capture(dnn: Dnn) -> None:
    """Captured work runs with each replay and in order, and after its plan and handle are gone."""
    x, y = dnn.upload(np.ones(N, "f4")), dnn.upload(np.zeros(N, "f4"))
    stream, graph, runnable = dnn.stream(), c_void_p(), c_void_p()
    add = Sum(dnn)
    use(dnn, stream)
    dnn.ok(dnn.cuda.cuStreamBeginCapture_v2(stream, 0))
    assert add.run(x, x, 2) == OK
    assert add.run(x, y, 5) == OK
    dnn.ok(dnn.cuda.cuStreamEndCapture(stream, byref(graph)))
    assert np.all(read(dnn, x) == 1), "nothing runs while it is captured"
    dnn.ok(dnn.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    dnn.ok(dnn.cuda.cuGraphDestroy(graph))
    dnn.good(dnn.dnn.cudnnBackendDestroyDescriptor(add.plan))
    dnn.good(dnn.dnn.cudnnDestroy(dnn.dnn_handle))
    for _ in range(3):
        dnn.ok(dnn.cuda.cuGraphLaunch(runnable, stream))
    dnn.ok(dnn.cuda.cuStreamSynchronize(stream))
    assert np.all(read(dnn, x) == 7)
    assert np.all(read(dnn, y) == 12)
    dnn.ok(dnn.cuda.cuGraphExecDestroy(runnable))


def wild_address(dnn: Dnn) -> None:
    """An address that is none of the device's makes the context fail, as a kernel would; nothing is changed."""
    x, add = dnn.upload(np.ones(N, "f4")), Sum(dnn)
    assert add.run(0x1000, x, 1) == OK
    assert dnn.wait() == ILLEGAL_ADDRESS
    assert add.run(x, x, 1) != OK


def few_bytes(dnn: Dnn) -> None:
    """So does memory that ends too early."""
    x, add = dnn.alloc(4 * MIB), Sum(dnn, 8 * MIB)
    assert add.run(x, x, 1) == OK
    assert dnn.wait() == ILLEGAL_ADDRESS


def host_memory(dnn: Dnn) -> None:
    """So does memory of the host that the driver does not know."""
    x, add = np.ones(N, "f4"), Sum(dnn)
    assert add.run(dnn.alloc(4 * N), x.ctypes.data, 1) == OK
    assert dnn.wait() == ILLEGAL_ADDRESS
    assert np.all(x == 1)


def freed(dnn: Dnn) -> None:
    """A replayed graph looks for the memory again."""
    x, stream, graph, runnable = dnn.alloc(4 * MIB), dnn.stream(), c_void_p(), c_void_p()
    add = Sum(dnn)
    use(dnn, stream)
    dnn.ok(dnn.cuda.cuStreamBeginCapture_v2(stream, 0))
    assert add.run(x, x, 2) == OK
    dnn.ok(dnn.cuda.cuStreamEndCapture(stream, byref(graph)))
    dnn.ok(dnn.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    dnn.ok(dnn.cuda.cuGraphLaunch(runnable, stream))
    dnn.ok(dnn.wait())
    dnn.free(x)
    # it may fail while the rest is launched
    assert dnn.cuda.cuGraphLaunch(runnable, stream) in (OK, ILLEGAL_ADDRESS)
    assert dnn.wait() == ILLEGAL_ADDRESS


def make_convolution(dnn: Dnn, engine: int) -> tuple[c_void_p, dict[int, int]]:
    """A plan that needs a workspace, and its tensors."""
    shape = Shape(1, 1, 16, 4, (32, 32), (3, 3))
    operator = dnn.operator(shape.stride, shape.pre, shape.post, shape.dilation)
    sizes = (shape.x, shape.w, shape.y)
    tensors = [dnn.tensor(uid, size) for uid, size in enumerate(sizes, 1)]
    graph = dnn.graph(dnn.convolution(FORWARD, operator, tensors))
    one = dnn.make(ENGINE, (1300, T_DESCRIPTOR, graph), (1301, T_INT64, engine))
    plan = dnn.plan(dnn.make(CONFIG, (300, T_DESCRIPTOR, one)))
    return plan, {uid: dnn.alloc(4 * int(np.prod(size))) for uid, size in enumerate(sizes, 1)}


def workspace(dnn: Dnn) -> None:
    """The workspace is the program's: none is an error of the call, one that is no memory is one of the context."""
    before = free_memory(dnn)
    for engine in (0, 2):
        plan, tensors = make_convolution(dnn, engine)
        assert dnn.execute(plan, dnn.pack(tensors, 0)) == NULL_POINTER
        without = dnn.make(16, (1000, T_INT64, *tensors), (1001, T_POINTER, *tensors.values()))
        assert dnn.execute(plan, without) == NULL_POINTER
        for address in tensors.values():
            dnn.free(address)
    assert free_memory(dnn) == before, "the library takes no memory of the device"
    plan, tensors = make_convolution(dnn, 1)
    assert dnn.execute(plan, dnn.pack(tensors, 0x1000)) == OK, "it needs none and does not use it"
    dnn.ok(dnn.wait())
    plan, tensors = make_convolution(dnn, 0)
    assert dnn.execute(plan, dnn.pack(tensors, 0x1000)) == OK
    assert dnn.wait() == ILLEGAL_ADDRESS


def lifetimes(dnn: Dnn) -> None:
    """What a descriptor was made of may be destroyed; what was read of it stays."""
    shape = Shape(1, 1, 2, 3, (4, 4), (3, 3))
    values = [
        Values(np.random.default_rng(1).standard_normal(s), DOUBLE)
        for s in (shape.x, shape.w, shape.y)
    ]
    destroy, made = dnn.dnn.cudnnBackendDestroyDescriptor, []
    create = dnn.create
    dnn.create = lambda kind: made.append(create(kind)) or made[-1]  # type: ignore[method-assign, func-returns-value]
    operator = dnn.operator(shape.stride, shape.pre, shape.post, shape.dilation, compute=DOUBLE)
    tensors = [dnn.tensor_of(uid, v) for uid, v in enumerate(values, 1)]
    graph = dnn.graph(dnn.convolution(FORWARD, operator, tensors, scale=T_DOUBLE))
    plan = dnn.plan(dnn.configs(graph)[0])
    dnn.create = create  # type: ignore[method-assign]
    for descriptor in made:
        if descriptor.value != plan.value:
            dnn.good(destroy(descriptor))
            assert destroy(descriptor) != OK, "once only"
    dnn.run_plan(plan, dict(enumerate(values, 1)))
    wanted = shape.forward(values[0].get(), values[1].get())
    assert_close(values[2].get(), wanted, DOUBLE, "after all else is gone")


def threads(dnn: Dnn) -> None:
    """Threads with handles and plans of their own, on one device."""

    def work(seed: int) -> None:
        dnn.ok(dnn.cuda.cuCtxSetCurrent(dnn.context))
        one = Dnn.__new__(Dnn)
        one.__dict__.update(dnn.__dict__, dnn_handle=c_void_p())
        one.good(one.dnn.cudnnCreate(byref(one.dnn_handle)))
        use(one, one.stream())
        add, x = Sum(one), one.upload(np.full(N, seed, "f4"))
        for _ in range(50):
            one.good(add.run(x, x, 1))
        one.ok(one.wait())
        assert np.all(read(one, x) == seed + 50)

    run_threads(work, 4)


def exit_in_work(dnn: Dnn) -> None:
    """A process may end while its work is under way."""
    plan, tensors = make_convolution(dnn, 0)
    pack = dnn.pack(tensors, dnn.alloc(MIB))
    for _ in range(20):
        assert dnn.execute(plan, pack) == OK


def without_context(dnn: Dnn) -> None:
    """Without a current context the device's primary one is used; cuDNN beside cuBLAS."""
    dnn.ok(dnn.cuda.cuCtxSetCurrent(None))
    handle = c_void_p()
    dnn.good(dnn.dnn.cudnnCreate(byref(handle)))
    dnn.dnn_handle = handle
    x = dnn.upload(np.ones(N, "f4"))
    assert Sum(dnn).run(x, x, 1) == OK
    dnn.ok(dnn.wait())
    assert np.all(read(dnn, x) == 2)


CASES = {
    case.__name__: case
    for case in (
        streams, capture, wild_address, few_bytes, host_memory, freed, workspace, lifetimes,
        threads, exit_in_work, without_context,
    )
}  # fmt: skip

if __name__ == "__main__":
    CASES[sys.argv[1]](Dnn())
