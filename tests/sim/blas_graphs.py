# SPDX-License-Identifier: Apache-2.0
"""Captured work of the simulated cuBLAS: ``python -m tests.sim.blas_graphs CASE``, each in a process."""

from __future__ import annotations

import sys
from ctypes import byref, c_double, c_float, c_uint64, c_void_p

import numpy as np

from tests.sim.blas_behaviour import ILLEGAL_ADDRESS, INVALIDATED, MIB, N, axpy, read, scal, use
from tests.sim.blas_client import DEVICE, EXECUTION_FAILED, OK, Gpu


def begin(gpu: Gpu, stream: c_void_p) -> None:
    gpu.ok(gpu.cuda.cuStreamBeginCapture_v2(stream, 0))


def capture(gpu: Gpu) -> None:
    """Captured work runs with each replay, in order, after its handle is gone, and with a workspace never taken."""
    x, y = gpu.upload(np.ones(N, "f4")), gpu.upload(np.zeros(N, "f4"))
    stream, graph, runnable = gpu.stream(), c_void_p(), c_void_p()
    use(gpu, stream)
    begin(gpu, stream)
    factor = c_float(2)
    assert gpu.blas.cublasSscal_v2(gpu.handle, N, byref(factor), c_void_p(x), 1) == OK
    factor.value = 50
    assert axpy(gpu, 1, x, y) == OK
    gpu.ok(gpu.cuda.cuStreamEndCapture(stream, byref(graph)))
    assert np.all(read(gpu, x) == 1), "nothing runs while it is captured"
    gpu.ok(gpu.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    gpu.ok(gpu.cuda.cuGraphDestroy(graph))
    gpu.ok(gpu.blas.cublasDestroy_v2(gpu.handle))
    for _ in range(3):
        gpu.ok(gpu.cuda.cuGraphLaunch(runnable, stream))
    gpu.ok(gpu.cuda.cuStreamSynchronize(stream))
    assert np.all(read(gpu, x) == 8)
    assert np.all(read(gpu, y) == 2 + 4 + 8)
    gpu.ok(gpu.cuda.cuGraphExecDestroy(runnable))


def capture_result(gpu: Gpu) -> None:
    """A result on the host cannot be captured; one on the device can."""
    x, result = gpu.upload(np.ones(N, "f4")), gpu.upload(np.zeros(1, "f4"))
    stream, graph = gpu.stream(), c_void_p()
    use(gpu, stream)
    begin(gpu, stream)
    assert (
        gpu.blas.cublasSasum_v2(gpu.handle, N, c_void_p(x), 1, byref(c_float())) == EXECUTION_FAILED
    )
    assert gpu.cuda.cuStreamEndCapture(stream, byref(graph)) == INVALIDATED
    gpu.pointer_mode(DEVICE)
    begin(gpu, stream)
    assert gpu.blas.cublasSasum_v2(gpu.handle, N, c_void_p(x), 1, c_void_p(result)) == OK
    gpu.ok(gpu.cuda.cuStreamEndCapture(stream, byref(graph)))
    runnable = c_void_p()
    gpu.ok(gpu.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    gpu.ok(gpu.cuda.cuGraphLaunch(runnable, stream))
    gpu.ok(gpu.cuda.cuStreamSynchronize(stream))
    assert read(gpu, result, 1)[0] == N


def wild_capture(gpu: Gpu) -> None:
    """A replayed graph looks again."""
    x, stream, graph, runnable = gpu.alloc(4 * MIB), gpu.stream(), c_void_p(), c_void_p()
    use(gpu, stream)
    begin(gpu, stream)
    assert scal(gpu, 2, x) == OK
    gpu.ok(gpu.cuda.cuStreamEndCapture(stream, byref(graph)))
    gpu.ok(gpu.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    gpu.ok(gpu.cuda.cuGraphLaunch(runnable, stream))
    gpu.ok(gpu.wait())
    gpu.free(x)
    assert gpu.cuda.cuGraphLaunch(runnable, stream) in (
        OK,
        ILLEGAL_ADDRESS,
    )  # it may fail while the rest is launched
    assert gpu.wait() == ILLEGAL_ADDRESS


def two_instances(gpu: Gpu) -> None:
    """Two instances of one graph run on two streams at once; each has its work done."""
    x = gpu.upload(np.zeros(1 << 16, "f4"))
    one = gpu.upload(np.ones(1 << 16, "f4"))
    streams, graph, runnables = [gpu.stream(), gpu.stream()], c_void_p(), [c_void_p(), c_void_p()]
    use(gpu, streams[0])
    begin(gpu, streams[0])
    for _ in range(5):
        assert axpy(gpu, 1, one, x, 1 << 16) == OK
    gpu.ok(gpu.cuda.cuStreamEndCapture(streams[0], byref(graph)))
    for runnable in runnables:
        gpu.ok(gpu.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    for _ in range(20):
        for runnable, stream in zip(runnables, streams, strict=True):
            gpu.ok(gpu.cuda.cuGraphLaunch(runnable, stream))
    gpu.ok(gpu.wait())
    assert np.all(read(gpu, x, 1 << 16) == 200)


def exit_in_work(gpu: Gpu) -> None:
    """A process may end while its work is under way."""
    size = 512
    a, c = gpu.upload(np.ones(size * size, "f8")), gpu.alloc(8 * size * size)
    one = c_double(1)
    for _ in range(20):
        status = gpu.blas.cublasDgemm_v2(
            gpu.handle,
            0,
            0,
            size,
            size,
            size,
            byref(one),
            c_void_p(a),
            size,
            c_void_p(a),
            size,
            byref(one),
            c_void_p(c),
            size,
        )
        assert status == OK


CASES = {
    case.__name__: case
    for case in (
        capture,
        capture_result,
        wild_capture,
        two_instances,
        exit_in_work,
    )
}


if __name__ == "__main__":
    CASES[sys.argv[1]](Gpu())
