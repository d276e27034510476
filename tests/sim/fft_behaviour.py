# SPDX-License-Identifier: Apache-2.0
"""How the simulated cuFFT behaves beside computing: ``python -m tests.sim.fft_behaviour CASE``, each in a process."""

from __future__ import annotations

import sys
import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

import numpy as np

from tests.sim.blas_behaviour import ILLEGAL_ADDRESS, MIB, Gate, free_memory
from tests.sim.blas_client import run_threads
from tests.sim.fft_client import ALLOC_FAILED, C2C, FORWARD, INVERSE, OK, Fft

N = 64


def read(fft: Fft, address: int, n: int = N) -> np.ndarray:
    out = np.zeros(n, "c8")
    fft.download(address, out)
    return out


def ones(fft: Fft) -> int:
    return fft.upload(np.ones(N, "c8"))


def streams(fft: Fft) -> None:
    """Work waits for what is before it on its stream, the caller for neither; the plan may be gone."""
    stream, x, plan = fft.stream(), ones(fft), fft.plan(C2C, N)
    fft.good(fft.fft.cufftSetStream(plan, stream))
    gate = Gate(fft, stream)
    assert fft.execute(plan, C2C, x, x) == OK
    assert fft.execute(plan, C2C, x, x, INVERSE) == OK
    fft.good(fft.fft.cufftDestroy(plan))
    time.sleep(0.05)
    assert fft.cuda.cuStreamQuery(stream) == 600
    gate.open()
    fft.ok(fft.cuda.cuStreamSynchronize(stream))
    assert np.allclose(read(fft, x), N)


def capture(fft: Fft) -> None:
    """Captured work runs with each replay and in order, and after its plan is gone."""
    x, plan, other = ones(fft), fft.plan(C2C, N), fft.plan(C2C, N)
    stream, graph, runnable = fft.stream(), c_void_p(), c_void_p()
    for one in (plan, other):
        fft.good(fft.fft.cufftSetStream(one, stream))
    fft.ok(fft.cuda.cuStreamBeginCapture_v2(stream, 0))
    assert fft.execute(plan, C2C, x, x) == OK
    assert fft.execute(other, C2C, x, x, INVERSE) == OK
    fft.ok(fft.cuda.cuStreamEndCapture(stream, byref(graph)))
    assert np.all(read(fft, x) == 1), "nothing runs while it is captured"
    fft.ok(fft.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
    fft.ok(fft.cuda.cuGraphDestroy(graph))
    for one in (plan, other):
        fft.good(fft.fft.cufftDestroy(one))
    for _ in range(3):
        fft.ok(fft.cuda.cuGraphLaunch(runnable, stream))
    fft.ok(fft.cuda.cuStreamSynchronize(stream))
    assert np.allclose(read(fft, x), float(N) ** 3)
    fft.ok(fft.cuda.cuGraphExecDestroy(runnable))


def wild_address(fft: Fft) -> None:
    """An address that is none of the device's makes the context fail, as a kernel would; nothing is changed."""
    x, plan = ones(fft), fft.plan(C2C, N)
    assert fft.execute(plan, C2C, 0x1000, x) == OK
    assert fft.wait() == ILLEGAL_ADDRESS
    assert fft.execute(plan, C2C, x, x) != OK or fft.wait() == ILLEGAL_ADDRESS


def few_bytes(fft: Fft) -> None:
    """So does memory that ends too early."""
    plan, x = fft.plan(C2C, 1 << 10, 1 << 10), fft.alloc(2 * MIB)
    assert fft.execute(plan, C2C, x, x) == OK
    assert fft.wait() == ILLEGAL_ADDRESS


def host_memory(fft: Fft) -> None:
    """So does memory of the host that the driver does not know."""
    x, plan = np.ones(N, "c8"), fft.plan(C2C, N)
    assert fft.execute(plan, C2C, fft.alloc(8 * N), x.ctypes.data) == OK
    assert fft.wait() == ILLEGAL_ADDRESS
    assert np.all(x == 1)


def small_area(fft: Fft) -> None:
    """So does a work area that is too small."""
    plan, x = fft.create(), fft.alloc(8 << 20)
    fft.good(fft.fft.cufftSetAutoAllocation(plan, 0))
    fft.good(fft.fft.cufftMakePlan2d(plan, 1 << 10, 1 << 10, C2C, byref(c_size_t())))
    fft.good(fft.fft.cufftSetWorkArea(plan, c_void_p(fft.alloc(1))))
    assert fft.execute(plan, C2C, x, x) == OK
    assert fft.wait() == ILLEGAL_ADDRESS


def work_areas(fft: Fft) -> None:
    """The library's own is device memory from when the plan is made until it ends or is given another."""
    before, x = free_memory(fft), fft.alloc(8 << 20)
    plan = fft.plan(C2C, 1 << 10, 1 << 10)
    assert fft.size(plan) == 8 << 20
    assert before - free_memory(fft) >= 16 * MIB
    assert fft.execute(plan, C2C, x, x) == OK
    area = fft.alloc(8 << 20)
    fft.good(fft.fft.cufftSetWorkArea(plan, c_void_p(area)))
    assert fft.execute(plan, C2C, x, x) == OK
    fft.good(fft.wait())
    assert before - free_memory(fft) < 20 * MIB
    fft.good(fft.fft.cufftDestroy(plan))
    fft.free(area), fft.free(x)
    ended = before - free_memory(fft)
    for _ in range(20):
        fft.good(fft.fft.cufftDestroy(fft.plan(C2C, 1 << 9, 1 << 9)))
    assert before - free_memory(fft) == ended, "nothing is left of plans"


def no_memory(fft: Fft) -> None:
    """Without memory for it there is no plan; the program may try again."""
    plan, kept = c_int(-1), []
    for megabytes in (1 << 15, 1 << 10, 1 << 5, 2):
        while True:
            address = c_uint64()
            if fft.cuda.cuMemAlloc_v2(byref(address), c_size_t(megabytes * MIB)):
                break
            kept.append(address.value)
    assert fft.fft.cufftPlan2d(byref(plan), 1 << 11, 1 << 11, C2C) == ALLOC_FAILED
    for address in kept:
        fft.free(address)
    fft.good(fft.fft.cufftPlan2d(byref(plan), 1 << 10, 1 << 10, C2C))


def threads(fft: Fft) -> None:
    """Threads make, execute and end plans of their own at once."""
    wrong: list[str] = []

    def work(seed: int) -> None:
        fft.cuda.cuCtxSetCurrent(fft.context)
        values = np.random.default_rng(seed).standard_normal(N).astype("c8")
        for _ in range(10):
            plan = fft.plan(C2C, N)
            if not np.allclose(
                fft.transform(plan, C2C, values, (N,)), np.fft.fft(values), atol=1e-4
            ):
                wrong.append("values")
            fft.good(fft.fft.cufftDestroy(plan))

    run_threads(work, 4)
    assert not wrong


def without_context(fft: Fft) -> None:
    """Without a current context the device's primary one is used."""
    fft.ok(fft.cuda.cuCtxSetCurrent(None))
    plan = fft.plan(C2C, N)
    x = ones(fft)
    assert fft.execute(plan, C2C, x, x, FORWARD) == OK
    fft.ok(fft.wait())
    assert np.allclose(read(fft, x)[0], N)


CASES = {
    case.__name__: case
    for case in (
        streams, capture, wild_address, few_bytes, host_memory, small_area, work_areas, no_memory,
        threads, without_context,
    )
}  # fmt: skip

if __name__ == "__main__":
    CASES[sys.argv[1]](Fft())
