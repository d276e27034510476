"""What a guest process does with NCCL: ``python -m tests.unit.nccl_cases CASE [+ CASE...]``; each prints "ok"."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p

import numpy as np

from tests.unit.guest_cuda import cu, ok
from tests.unit.guest_nccl import (
    ARGUMENT,
    CUDA,
    PATIENCE_S,
    PROGRESS,
    REMOTE,
    SUCCESS,
    SUM,
    SYSTEM,
    USAGE,
    Config,
    UniqueId,
    async_error,
    done,
    from_device,
    init_all,
    join,
    last_error,
    make_id,
    nccl,
    read_id,
    stream,
    synchronize,
    to_device,
    use,
)
from tests.unit.nccl_draw import Draw, Ranks, round_all, table_of


def sequences(first: str, seeds: str) -> None:
    """Three ranks on two devices: groups of one to four calls, some nested, one after the other in the streams."""
    ranks = Ranks([0, 1, 0])
    for seed in range(int(first), int(first) + int(seeds)):
        draw = Draw(ranks, seed)
        for _ in range(3):
            nested = bool(draw.random.integers(0, 2))
            for _ in range(1 + nested):
                done(nccl.ncclGroupStart())
            for _ in range(int(draw.random.integers(1, 5))):
                draw.call()
            for _ in range(1 + nested):
                done(nccl.ncclGroupEnd())
        draw.check()
    ranks.end()


#: the interface's number, bits of exponent and fraction, no infinities, too large is the largest
SMALL = (
    (10, 4, 3, True, True),
    (11, 5, 2, False, True),
    (6, 5, 10, False, False),
    (9, 8, 7, False, False),
)


def small_floats() -> None:
    """All pairs of 8-bit floats, and many of 16 bits, are added and rounded once."""
    ranks = Ranks([0, 1])
    random = np.random.default_rng(5)
    for type_, exponent, fraction, finite, saturate in SMALL:
        table, bits = table_of(exponent, fraction, finite), exponent + fraction + 1
        whole = np.array(table + [-v for v in table], np.float32)
        kind = np.uint8 if bits == 8 else np.uint16
        a = (
            np.repeat(np.arange(256), 256) if bits == 8 else random.integers(0, 1 << bits, 20000)
        ).astype(kind)
        b = (
            np.tile(np.arange(256), 256) if bits == 8 else random.integers(0, 1 << bits, 20000)
        ).astype(kind)
        at = [ranks.put(0, a), ranks.put(1, b)]
        done(nccl.ncclGroupStart())
        for rank in range(2):
            comm, flow = ranks.comms[rank], ranks.streams[rank]
            done(nccl.ncclAllReduce(at[rank], at[rank], c_size_t(a.size), type_, SUM, comm, flow))
        done(nccl.ncclGroupEnd())
        got = [ranks.get(rank, at[rank], a) for rank in range(2)]
        assert got[0].tobytes() == got[1].tobytes()
        with np.errstate(all="ignore"):
            sums = whole[a] + whole[b]
        want = round_all(table, sums, saturate)
        numbers = want >= 0
        assert np.array_equal(got[0][numbers], want[numbers].astype(kind)), type_
        assert np.isnan(whole[got[0][~numbers]]).all(), type_
    ranks.end()


def scaled_sums() -> None:
    """Sums of products with each rank's own scalar, of the host and of the device."""
    ranks = Ranks([0, 1])
    values = [np.arange(5, dtype=np.float32) + 1, np.arange(5, dtype=np.float32) * 2]
    scalars = [np.array([3], np.float32), np.array([0.5], np.float32)]
    for residence in (1, 0):
        at = [ranks.put(r, values[r]) for r in range(2)]
        done(nccl.ncclGroupStart())
        for r in range(2):
            made = c_int()
            scalar = (
                ranks.put(r, scalars[r]) if residence == 0 else scalars[r].ctypes.data_as(c_void_p)
            )
            done(nccl.ncclRedOpCreatePreMulSum(byref(made), scalar, 7, residence, ranks.comms[r]))
            done(
                nccl.ncclAllReduce(
                    at[r], at[r], c_size_t(5), 7, made, ranks.comms[r], ranks.streams[r]
                )
            )
            assert (
                nccl.ncclAllReduce(
                    at[r], at[r], c_size_t(5), 8, 77, ranks.comms[r], ranks.streams[r]
                )
                == ARGUMENT
            )
            done(nccl.ncclRedOpDestroy(made, ranks.comms[r]))
            assert nccl.ncclRedOpDestroy(made, ranks.comms[r]) == ARGUMENT
        assert nccl.ncclGroupEnd() == ARGUMENT, "a group with a wrong call does nothing"
        for r in range(2):
            assert np.array_equal(ranks.get(r, at[r], values[r]), values[r])
        done(nccl.ncclGroupStart())
        for r in range(2):
            made = c_int()
            scalar = (
                ranks.put(r, scalars[r]) if residence == 0 else scalars[r].ctypes.data_as(c_void_p)
            )
            done(nccl.ncclRedOpCreatePreMulSum(byref(made), scalar, 7, residence, ranks.comms[r]))
            done(
                nccl.ncclAllReduce(
                    at[r], at[r], c_size_t(5), 7, made, ranks.comms[r], ranks.streams[r]
                )
            )
            done(nccl.ncclRedOpDestroy(made, ranks.comms[r]))
        done(nccl.ncclGroupEnd())
        for r in range(2):
            assert np.array_equal(
                ranks.get(r, at[r], values[r]), values[0] * 3 + values[1] * np.float32(0.5)
            )
    ranks.end()


def held_stream() -> None:
    """A call returns while its stream is held by something else, and what is put behind it sees its result."""
    ranks = Ranks([0, 1])
    values, gate = np.arange(100000, dtype=np.float32), np.zeros(1, np.uint32)
    at = [ranks.put(r, values) for r in range(2)]
    word = ranks.put(0, gate)
    copy = ranks.put(0, np.zeros_like(values))
    ok(cu.cuCtxSetCurrent(ranks.contexts[0]))
    ok(cu.cuStreamWaitValue32_v2(ranks.streams[0], word, c_uint(1), c_uint(0)))
    for r in range(2):
        done(
            nccl.ncclAllReduce(
                at[r], at[r], c_size_t(values.size), 7, SUM, ranks.comms[r], ranks.streams[r]
            )
        )
    ok(cu.cuMemcpyDtoDAsync_v2(copy, at[0], c_size_t(values.nbytes), ranks.streams[0]))
    time.sleep(0.2)
    for r in range(2):
        ok(cu.cuCtxSetCurrent(ranks.contexts[r]))
        assert cu.cuStreamQuery(ranks.streams[r]) == 600, "the all-reduce cannot have begun"
        assert async_error(ranks.comms[r]) == SUCCESS
    ok(cu.cuCtxSetCurrent(ranks.contexts[0]))
    other = stream()
    ok(cu.cuStreamWriteValue32_v2(other, word, c_uint(1), c_uint(0)))
    assert np.array_equal(ranks.get(0, copy, values), values * 2)
    ranks.end()


def capture(flow: c_void_p, mode: int = 0) -> None:
    """Begins, in the mode that refuses unsafe calls of all threads."""
    ok(cu.cuStreamBeginCapture_v2(flow, mode))


def captured() -> None:
    """Collectives in graphs are done at each launch, with what is in memory then; one that fails holds no launch."""
    ranks = Ranks([0, 1])
    values, count = np.arange(70000, dtype=np.float32), c_size_t(70000)
    at = [ranks.put(r, values) for r in range(2)]
    out = [ranks.put(r, values) for r in range(2)]
    graphs = [c_void_p(), c_void_p()]
    for r in range(2):
        comm, flow, other = ranks.comms[r], ranks.streams[r], 1 - r
        ok(cu.cuCtxSetCurrent(ranks.contexts[r]))
        capture(flow)
        done(nccl.ncclAllReduce(at[r], out[r], count, 7, SUM, comm, flow))
        done(nccl.ncclGroupStart())
        done(nccl.ncclSend(out[r], count, 7, other, comm, flow))
        done(nccl.ncclRecv(at[r], count, 7, other, comm, flow))
        done(nccl.ncclGroupEnd())
        made = c_void_p()
        ok(cu.cuStreamEndCapture(flow, byref(made)))
        ok(cu.cuGraphInstantiateWithFlags(byref(graphs[r]), made, c_size_t(0)))
    for turn in range(1, 4):
        for r in range(2):
            ok(cu.cuCtxSetCurrent(ranks.contexts[r]))
            ok(cu.cuGraphLaunch(graphs[r], ranks.streams[r]))
        for r in range(2):
            assert np.array_equal(ranks.get(r, at[r], values), values * 2**turn), turn
    ok(cu.cuCtxSetCurrent(ranks.contexts[0]))
    ok(cu.cuGraphLaunch(graphs[0], ranks.streams[0]))
    done(nccl.ncclCommAbort(ranks.comms[1]))
    synchronize(ranks.streams[0])
    assert async_error(ranks.comms[0]) == REMOTE
    for _ in range(2):
        ok(cu.cuGraphLaunch(graphs[0], ranks.streams[0]))
    synchronize(ranks.streams[0])
    done(nccl.ncclCommAbort(ranks.comms[0]))


def beside_a_capture() -> None:
    """What waits for its turn goes on while this thread captures something else."""
    ranks = Ranks([0, 1])
    at = [ranks.put(r, np.ones(10, np.float32)) for r in range(2)]
    ok(cu.cuCtxSetCurrent(ranks.contexts[0]))
    flow = stream()
    done(nccl.ncclAllReduce(at[0], at[0], c_size_t(10), 7, SUM, ranks.comms[0], ranks.streams[0]))
    capture(flow)
    time.sleep(0.1)
    done(nccl.ncclAllReduce(at[1], at[1], c_size_t(10), 7, SUM, ranks.comms[1], ranks.streams[1]))
    time.sleep(0.1)
    ok(cu.cuStreamEndCapture(flow, byref(c_void_p())))
    assert [ranks.get(r, at[r], np.ones(10, np.float32))[0] for r in range(2)] == [2, 2]
    ranks.end()


def aborted() -> None:
    """A rank that waits for one which aborts gets the error, and its stream goes on."""
    ranks = Ranks([0, 1])
    values = np.ones(1000, np.float32)
    at = ranks.put(0, values)
    done(nccl.ncclAllReduce(at, at, c_size_t(1000), 7, SUM, ranks.comms[0], ranks.streams[0]))
    time.sleep(0.1)
    assert cu.cuStreamQuery(ranks.streams[0]) == 600
    done(nccl.ncclCommAbort(ranks.comms[1]))
    synchronize(ranks.streams[0])
    assert async_error(ranks.comms[0]) == REMOTE
    assert "rank 1 is no more: it has failed or aborted" in last_error()
    assert (
        nccl.ncclAllReduce(at, at, c_size_t(1000), 7, SUM, ranks.comms[0], ranks.streams[0])
        == REMOTE
    )
    done(nccl.ncclCommAbort(ranks.comms[0]))
    again = Ranks([0, 1])  # and the process has communicators as before
    done(nccl.ncclCommDestroy(again.comms[1]))
    ok(cu.cuCtxSetCurrent(ranks.contexts[0]))
    done(nccl.ncclAllReduce(at, at, c_size_t(1000), 7, SUM, again.comms[0], again.streams[0]))
    synchronize(again.streams[0])
    assert async_error(again.comms[0]) == REMOTE
    assert "rank 1 is no more: it has destroyed its communicator" in last_error()
    done(nccl.ncclCommAbort(again.comms[0]))


def abort_own() -> None:
    """One that nothing can end any more, by its own abort: the stream goes on."""
    ranks = Ranks([0, 1])
    at = ranks.put(0, np.ones(10, np.float32))
    done(nccl.ncclRecv(at, c_size_t(10), 7, 1, ranks.comms[0], ranks.streams[0]))
    done(nccl.ncclCommAbort(ranks.comms[0]))
    synchronize(ranks.streams[0])
    done(nccl.ncclCommAbort(ranks.comms[1]))


def other_calls() -> None:
    """Ranks that call different collectives, or with different counts, get an error for it."""
    for first, second in (((100, 7), (101, 7)), ((100, 7), (100, 2))):
        ranks = Ranks([0, 1])
        for r, (count, type_) in enumerate((first, second)):
            at = ranks.put(r, np.zeros(200, np.float32))
            done(
                nccl.ncclAllReduce(
                    at, at, c_size_t(count), type_, SUM, ranks.comms[r], ranks.streams[r]
                )
            )
        for r in range(2):
            ok(cu.cuCtxSetCurrent(ranks.contexts[r]))
            synchronize(ranks.streams[r])
        found = {async_error(comm) for comm in ranks.comms}
        assert USAGE in found
        assert found <= {USAGE, REMOTE}
        for comm in ranks.comms:
            done(nccl.ncclCommAbort(comm))
    ranks = Ranks([0, 1])
    both = [ranks.put(r, np.zeros(200, np.float32)) for r in range(2)]
    ok(cu.cuCtxSetCurrent(ranks.contexts[0]))
    done(nccl.ncclSend(both[0], c_size_t(100), 7, 1, ranks.comms[0], ranks.streams[0]))
    done(nccl.ncclRecv(both[1], c_size_t(50), 7, 0, ranks.comms[1], ranks.streams[1]))
    ranks.get(1, both[1], np.zeros(1))
    assert async_error(ranks.comms[1]) == USAGE
    assert "rank 0 sends 400 bytes, rank 1 receives 200" in last_error()
    for comm in ranks.comms:
        done(nccl.ncclCommAbort(comm))


def nonblocking() -> None:
    """Calls return ncclInProgress, and the communicator is ready later."""
    use(0)
    unique, comms = make_id(), [c_void_p(), c_void_p()]
    config = Config(blocking=0)
    assert nccl.ncclCommInitRankConfig(byref(comms[0]), 2, unique, 0, byref(config)) == PROGRESS
    assert async_error(comms[0]) == PROGRESS
    at, count = to_device(np.ones(4, np.float32)), c_size_t(4)
    assert nccl.ncclAllReduce(at, at, count, 7, SUM, comms[0], None) == ARGUMENT
    assert "before it is ready" in last_error()
    use(1)
    assert nccl.ncclCommInitRankConfig(byref(comms[1]), 2, unique, 1, byref(config)) == PROGRESS
    deadline = time.monotonic() + PATIENCE_S
    while any(async_error(comm) == PROGRESS for comm in comms):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [async_error(comm) for comm in comms] == [SUCCESS] * 2
    use(0)
    flow = stream()
    done(nccl.ncclRecv(at, count, 7, 1, comms[0], flow))
    assert nccl.ncclCommFinalize(comms[0]) == PROGRESS
    use(1)
    there, other = to_device(np.full(4, 9, np.float32)), stream()
    done(nccl.ncclSend(there, count, 7, 0, comms[1], other))
    while async_error(comms[0]) == PROGRESS:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    use(0)
    synchronize(flow)
    assert np.array_equal(from_device(at, np.zeros(4, np.float32)), np.full(4, 9, np.float32))
    assert nccl.ncclAllReduce(at, at, count, 7, SUM, comms[0], None) == USAGE, last_error()
    for comm in comms:
        done(nccl.ncclCommDestroy(comm))
    alone = c_void_p()
    assert nccl.ncclCommInitRankConfig(byref(alone), 2, make_id(), 0, byref(config)) == PROGRESS
    done(nccl.ncclCommAbort(alone))  # while nothing has come of it


def splits() -> None:
    """By colour and key, without some ranks, shrunk, and each of them works."""
    ranks = Ranks([0, 1, 0])
    made = [c_void_p() for _ in range(3)]
    colors, keys = (4, 4, -1), (1, 0, 0)
    done(nccl.ncclGroupStart())
    for r in range(3):
        done(nccl.ncclCommSplit(ranks.comms[r], colors[r], keys[r], byref(made[r]), None))
    done(nccl.ncclGroupEnd())
    number = c_int()
    assert made[2].value is None
    for r, place in ((0, 1), (1, 0)):
        done(nccl.ncclCommUserRank(made[r], byref(number)))
        assert number.value == place
        done(nccl.ncclCommCount(made[r], byref(number)))
        assert number.value == 2
        done(nccl.ncclCommCuDevice(made[r], byref(number)))
        assert number.value == r
    values = [np.array([10.0 + r], np.float32) for r in range(3)]
    at = [ranks.put(r, values[r]) for r in range(3)]
    for r in range(2):
        done(nccl.ncclAllReduce(at[r], at[r], c_size_t(1), 7, SUM, made[r], ranks.streams[r]))
    assert [ranks.get(r, at[r], values[0])[0] for r in range(2)] == [21, 21]
    small = [c_void_p() for _ in range(3)]
    out = (c_int * 1)(1)
    done(nccl.ncclGroupStart())
    for r in (0, 2):
        done(nccl.ncclCommShrink(ranks.comms[r], out, 1, byref(small[r]), None, 0))
    done(nccl.ncclGroupEnd())
    for r in (0, 2):
        done(nccl.ncclAllReduce(at[r], at[r], c_size_t(1), 7, SUM, small[r], ranks.streams[r]))
    assert [ranks.get(r, at[r], values[0])[0] for r in (0, 2)] == [33, 33]
    assert nccl.ncclCommSplit(ranks.comms[0], -5, 0, byref(number), None) == ARGUMENT
    for comm in (made[0], made[1], small[0], small[2]):
        done(nccl.ncclCommDestroy(comm))
    ranks.end()


def bad_input() -> None:
    """What is wrong is refused where it is called, with a sentence; nothing is put into a stream."""
    comms = init_all([0, 1])
    use(0)
    flow, values = stream(), np.zeros(8, np.float32)
    at, unique, count = to_device(values), make_id(), c_size_t(8)
    use(1)
    other = to_device(values)
    use(0)
    all_reduce, made = nccl.ncclAllReduce, c_void_p()
    wrong = Config(blocking=7)
    none = Config(blocking=1)
    none.magic = 1
    cases: list[tuple[int, int, str]] = [
        (all_reduce(at, at, count, 12, SUM, comms[0], flow), ARGUMENT, "there is no data type 12"),
        (all_reduce(at, at, count, 7, 5, comms[0], flow), ARGUMENT, "no reduction 5"),
        (all_reduce(at, at, count, 7, -1, comms[0], flow), ARGUMENT, "no reduction -1"),
        (all_reduce(None, at, count, 7, SUM, comms[0], flow), ARGUMENT, "send buffer"),
        (all_reduce(at, None, count, 7, SUM, comms[0], flow), ARGUMENT, "receive buffer"),
        (all_reduce(at, other, count, 7, SUM, comms[0], flow), ARGUMENT, "of device 1"),
        (all_reduce(at, at, c_size_t(2**62), 8, SUM, comms[0], flow), ARGUMENT, "more than there is memory"),
        (all_reduce(at, at, count, 7, SUM, None, flow), ARGUMENT, "no communicator"),
        (all_reduce(at, at, count, 7, SUM, comms[0], c_void_p(12345678)), CUDA, "stream"),
        (nccl.ncclBroadcast(at, at, count, 7, 2, comms[0], flow), ARGUMENT, "rank 2 of 2"),
        (nccl.ncclSend(at, count, 7, -1, comms[0], flow), ARGUMENT, "rank -1 of 2"),
        (nccl.ncclCommInitRank(byref(made), 2, unique, 2), ARGUMENT, "ranks are 0 to 1"),
        (nccl.ncclCommInitRank(byref(made), 65, unique, 0), ARGUMENT, "has 1 to 64"),
        (nccl.ncclCommInitRank(None, 2, unique, 0), ARGUMENT, "no place"),
        (nccl.ncclCommInitRankConfig(byref(made), 1, unique, 0, byref(wrong)), ARGUMENT, "blocking is 7"),
        (nccl.ncclCommInitRankConfig(byref(made), 1, unique, 0, byref(none)), ARGUMENT, "INITIALIZER"),
        (nccl.ncclCommInitAll(byref(made), 2, (c_int * 2)(0, 0)), USAGE, "twice"),
        (nccl.ncclCommInitAll(byref(made), 9, None), ARGUMENT, "this process has 2"),
        (nccl.ncclCommInitRank(byref(made), 2, UniqueId(b"x" * 100), 0), SYSTEM, "not one that this library"),
        (nccl.ncclGroupEnd(), USAGE, "without ncclGroupStart"),
        (nccl.ncclCommGrow(comms[0], 3, None, 0, None, None), USAGE, "is not supported over a forwarded GPU"),
    ]  # fmt: skip
    for result, expected, _ in cases:
        assert result == expected, cases.index((result, expected, _))
    # one by one for the sentences: the list above was made before it was checked
    again: list[tuple[Callable[[], object], int]] = [
        (lambda: all_reduce(at, at, count, 12, SUM, comms[0], flow), 0),
        (lambda: all_reduce(at, other, count, 7, SUM, comms[0], flow), 5),
        (lambda: nccl.ncclBroadcast(at, at, count, 7, 2, comms[0], flow), 9),
        (lambda: nccl.ncclCommInitRank(byref(made), 65, unique, 0), 12),
        (lambda: nccl.ncclCommInitRank(byref(made), 2, UniqueId(b"x" * 100), 0), 18),
        (lambda: nccl.ncclCommGrow(comms[0], 3, None, 0, None, None), 20),
    ]
    for call, number in again:
        call()
        assert cases[number][2] in last_error(), (cases[number], last_error())
    assert made.value is None
    synchronize(flow)
    assert nccl.ncclGetErrorString(REMOTE).startswith(b"remote process")
    assert nccl.ncclGetErrorString(99) == b"unknown result code"
    for comm in comms:
        assert async_error(comm) == SUCCESS
        done(nccl.ncclCommDestroy(comm))


def child_of_fork() -> None:
    """A communicator is its process's: a child gets an error, and the parent goes on."""
    ranks = Ranks([0, 1])
    at = [ranks.put(r, np.ones(4, np.float32)) for r in range(2)]
    child = os.fork()
    if not child:
        result = nccl.ncclAllReduce(at[0], at[0], c_size_t(4), 7, SUM, ranks.comms[0], None)
        os._exit(0 if result == USAGE and "forked" in last_error() and make_id() else 1)
    assert os.waitpid(child, 0)[1] == 0
    for r in range(2):
        done(
            nccl.ncclAllReduce(at[r], at[r], c_size_t(4), 7, SUM, ranks.comms[r], ranks.streams[r])
        )
    assert ranks.get(0, at[0], np.ones(4, np.float32))[0] == 2
    ranks.end()


def pair(rank: str, path: str) -> None:
    """One of two processes, which know the id by a file."""
    use(int(rank))
    unique = make_id(path) if rank == "0" else read_id(path)
    comm, flow = join(unique, 2, int(rank)), stream()
    values = np.arange(1 << 20, dtype=np.float32) + int(rank)
    at = to_device(values)
    done(nccl.ncclAllReduce(at, at, c_size_t(values.size), 7, SUM, comm, flow))
    synchronize(flow)
    assert np.array_equal(from_device(at, values), np.arange(1 << 20, dtype=np.float32) * 2 + 1)
    done(nccl.ncclCommDestroy(comm))


def endless(rank: str, path: str) -> None:
    """Reductions until the other one is no more; then what it is called, and a stream that has gone on."""
    use(int(rank))
    unique = make_id(path) if rank == "0" else read_id(path)
    comm, flow = join(unique, 2, int(rank)), stream()
    at = to_device(np.zeros(1 << 22, np.float32))
    print("begun", flush=True)
    result, turns = SUCCESS, 0
    while result == SUCCESS:
        result = nccl.ncclAllReduce(at, at, c_size_t(1 << 22), 7, SUM, comm, flow)
        synchronize(flow)
        turns += 1
        if turns == 2:
            print("going", flush=True)
        result = result or async_error(comm)
    print(result, last_error(), flush=True)
    done(nccl.ncclCommAbort(comm))


def alone(path: str, rank: str) -> None:
    """A rank whose communicator does not become whole: the error and its sentence."""
    use(0)
    unique = make_id(path) if rank == "0" else read_id(path)
    made = c_void_p()
    result = nccl.ncclCommInitRank(byref(made), 2, unique, int(rank))
    assert made.value is None
    print(result, last_error(), flush=True)


CASES: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        sequences, small_floats, scaled_sums, held_stream, captured, beside_a_capture, aborted, abort_own,
        other_calls, nonblocking, splits, bad_input, child_of_fork, pair, endless, alone,
    )
}  # fmt: skip

if __name__ == "__main__":
    for words in " ".join(sys.argv[1:]).split(" + "):
        name, *arguments = words.split()
        case: Callable[..., None] = CASES[name]
        case(*arguments)
        print(name, "ok", flush=True)
