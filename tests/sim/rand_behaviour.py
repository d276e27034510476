# SPDX-License-Identifier: Apache-2.0
"""How the simulated cuRAND behaves beside computing: ``python -m tests.sim.rand_behaviour CASE``, each in a process."""

from __future__ import annotations

import sys
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p

import numpy as np

from tests.sim.blas_behaviour import ILLEGAL_ADDRESS, MIB, Gate, free_memory
from tests.sim.blas_client import run_threads
from tests.sim.rand_client import ALLOCATION_FAILED, OK, PHILOX, TYPES, XORWOW, Rand

N = 64


def read(rand: Rand, address: int, n: int = N) -> np.ndarray:
    out = np.zeros(n, "u4")
    rand.download(address, out)
    return out


def zeros(rand: Rand, n: int = N) -> int:
    return rand.upload(np.zeros(n, "u4"))


def streams(rand: Rand) -> None:
    """Numbers wait for what is before them on their stream, the caller for neither; the generator may be gone."""
    stream, x, generator = rand.stream(), zeros(rand), rand.create(PHILOX, 4)
    rand.good(rand.rand.curandSetStream(generator, stream))
    gate = Gate(rand, stream)
    assert rand.post(generator, "Generate", x, N) == OK
    rand.seed(generator, 5)
    assert rand.post(generator, "Generate", x + 2 * N, N // 2) == OK
    time.sleep(0.05)
    assert rand.cuda.cuStreamQuery(stream) == 600
    gate.open()
    rand.destroy(generator)
    rand.ok(rand.cuda.cuStreamSynchronize(stream))
    got = read(rand, x)
    first = rand.numbers(rand.create(PHILOX, 4), "Generate", N)
    second = rand.numbers(rand.create(PHILOX, 5, N), "Generate", N // 2)
    assert np.array_equal(got[: N // 2], first[: N // 2])
    assert np.array_equal(got[N // 2 :], second)


def capture(rand: Rand) -> None:
    """Captured numbers are made with each replay, which goes on in the sequence, and after the generator is gone."""
    for type_ in TYPES:
        x, y, generator = zeros(rand), zeros(rand), rand.create(type_, 8)
        stream, graph, runnable = rand.stream(), c_void_p(), c_void_p()
        rand.good(rand.rand.curandSetStream(generator, stream))
        rand.ok(rand.cuda.cuStreamBeginCapture_v2(stream, 0))
        assert rand.post(generator, "Generate", x, N) == OK
        assert rand.post(generator, "Generate", y, N) == OK
        rand.ok(rand.cuda.cuStreamEndCapture(stream, byref(graph)))
        assert not read(rand, x).any(), "nothing is made while it is captured"
        rand.ok(rand.cuda.cuGraphInstantiateWithFlags(byref(runnable), graph, c_uint64(0)))
        rand.ok(rand.cuda.cuGraphDestroy(graph))
        rand.destroy(generator)
        whole = rand.numbers(rand.create(type_, 8), "Generate", 6 * N)
        for i in range(3):
            rand.ok(rand.cuda.cuGraphLaunch(runnable, stream))
            rand.ok(rand.cuda.cuStreamSynchronize(stream))
            got = np.concatenate([read(rand, x), read(rand, y)])
            assert np.array_equal(got, whole[2 * i * N : 2 * (i + 1) * N]), (type_, i)
        rand.ok(rand.cuda.cuGraphExecDestroy(runnable))


def wild_address(rand: Rand) -> None:
    """An address that is none of the device's makes the context fail, as a kernel would."""
    generator = rand.create(XORWOW)
    assert rand.post(generator, "GenerateUniform", 0x1000, N) == OK
    assert rand.wait() == ILLEGAL_ADDRESS
    x = 0x1000
    assert rand.post(generator, "GenerateUniform", x, N) != OK or rand.wait() == ILLEGAL_ADDRESS


def few_bytes(rand: Rand) -> None:
    """So does memory that ends too early."""
    generator, x = rand.create(PHILOX), rand.alloc(2 * MIB)
    assert rand.post(generator, "GenerateUniformDouble", x, 8 * MIB) == OK
    assert rand.wait() == ILLEGAL_ADDRESS


def too_many(rand: Rand) -> None:
    """More numbers than there are addresses for are none."""
    generator, x = rand.create(PHILOX), rand.alloc(2 * MIB)
    status = rand.post(generator, "GenerateUniformDouble", x, (1 << 64) - 8)
    assert status != OK or rand.wait() == ILLEGAL_ADDRESS


def memory(rand: Rand) -> None:
    """A generator has device memory until it ends; without any there is none, and the program may try again."""
    before = free_memory(rand)
    kept = [rand.create(PHILOX) for _ in range(8)]
    assert before - free_memory(rand) >= 8 * MIB
    for generator in kept:
        rand.destroy(generator)
    assert free_memory(rand) == before
    filled: list[int] = []
    for megabytes in (1 << 15, 1 << 10, 1 << 5, 2, 1):
        while True:
            address = c_uint64()
            if rand.cuda.cuMemAlloc_v2(byref(address), c_size_t(megabytes * MIB)):
                break
            filled.append(address.value)
    one = c_void_p()
    assert rand.rand.curandCreateGenerator(byref(one), PHILOX) == ALLOCATION_FAILED
    for address in filled:
        rand.free(address)
    rand.destroy(rand.create(PHILOX))


def threads(rand: Rand) -> None:
    """Threads make, use and end generators of their own at once."""
    wrong: list[int] = []
    expected = {seed: rand.numbers(rand.create(XORWOW, seed), "Generate", N) for seed in range(4)}

    def work(seed: int) -> None:
        rand.cuda.cuCtxSetCurrent(rand.context)
        for _ in range(10):
            generator = rand.create(XORWOW, seed)
            if not np.array_equal(rand.numbers(generator, "Generate", N), expected[seed]):
                wrong.append(seed)
            rand.destroy(generator)

    run_threads(work, 4)
    assert not wrong


def without_context(rand: Rand) -> None:
    """Without a current context the device's primary one is used."""
    rand.ok(rand.cuda.cuCtxSetCurrent(None))
    generator, current = rand.create(PHILOX), c_void_p()
    rand.ok(rand.cuda.cuCtxGetCurrent(byref(current)))
    assert current.value
    assert len(rand.numbers(generator, "Generate", N)) == N


CASES = {
    case.__name__: case
    for case in (
        streams, capture, wild_address, few_bytes, too_many, memory, threads, without_context,
    )
}  # fmt: skip

if __name__ == "__main__":
    CASES[sys.argv[1]](Rand())
