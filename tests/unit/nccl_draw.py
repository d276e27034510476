"""Ranks of one guest process, random collectives, and what numpy makes of them."""

from __future__ import annotations

from ctypes import byref, c_size_t, c_uint64, c_void_p

import numpy as np

from tests.unit.guest_cuda import cu, ok
from tests.unit.guest_nccl import (
    AVG,
    MAX,
    PROD,
    SUM,
    TYPES,
    Array,
    done,
    from_device,
    make_id,
    nccl,
    stream,
    synchronize,
    to_device,
    use,
)

COUNTS = (0, 1, 3, 17, 1000, 40000, 300001)


class Ranks:
    """Several ranks of this process, each on a device with a stream of its own."""

    def __init__(self, devices: list[int]) -> None:
        self.size = len(devices)
        self.contexts, self.streams, self.comms = [], [], []
        made = [c_void_p() for _ in devices]
        unique = make_id()
        done(nccl.ncclGroupStart())
        for rank, device in enumerate(devices):
            self.contexts.append(use(device))
            self.streams.append(stream())
            done(nccl.ncclCommInitRank(byref(made[rank]), self.size, unique, rank))
        done(nccl.ncclGroupEnd())
        self.comms = made

    def put(self, rank: int, values: Array) -> c_uint64:
        """Values in the memory of a rank's device."""
        ok(cu.cuCtxSetCurrent(self.contexts[rank]))
        return to_device(values)

    def get(self, rank: int, address: c_uint64, like: Array) -> Array:
        """What is there when the rank's stream has got so far."""
        ok(cu.cuCtxSetCurrent(self.contexts[rank]))
        synchronize(self.streams[rank])
        return from_device(address, like)

    def free(self, rank: int, address: c_uint64) -> None:
        """Memory of a rank's device."""
        ok(cu.cuCtxSetCurrent(self.contexts[rank]))
        ok(cu.cuMemFree_v2(address))

    def end(self) -> None:
        """All of them."""
        for comm in self.comms:
            done(nccl.ncclCommDestroy(comm))


def reduce_values(values: list[Array], op: int) -> Array:
    """In the order of the ranks, 16-bit floats as floats."""
    kind = values[0].dtype
    wide = [v.astype(np.float32) if kind == np.float16 else v for v in values]
    total = wide[0].copy()
    with np.errstate(all="ignore"):
        for one in wide[1:]:
            if op in (SUM, AVG):
                total = total + one
            elif op == PROD:
                total = total * one
            else:
                total = np.maximum(total, one) if op == MAX else np.minimum(total, one)
        if op == AVG:
            size = len(values)
            # integers towards zero
            total = total / kind.type(size) if kind.kind == "f" else np.trunc(total / size)
        return total.astype(kind)


class Draw:
    """Random calls, and what comes of them by numpy."""

    def __init__(self, ranks: Ranks, seed: int) -> None:
        self.ranks, self.random = ranks, np.random.default_rng(seed)
        self.expected: list[tuple[int, c_uint64, Array]] = []
        self.memory: list[tuple[int, c_uint64]] = []

    def values(self, count: int, kind: str) -> list[Array]:
        """For each rank; of floats ones whose sum depends on the order."""
        if kind.startswith("f"):
            return [self.random.normal(0, 3, count).astype(kind) for _ in range(self.ranks.size)]
        span = 4 if kind.endswith("int8") else 100
        low = 0 if kind.startswith("u") else -span
        return [self.random.integers(low, span, count).astype(kind) for _ in range(self.ranks.size)]

    def put(self, values: list[Array], offset: int) -> list[c_uint64]:
        """On each device, some elements behind an address of its own."""
        made = []
        for rank, one in enumerate(values):
            at = self.ranks.put(rank, np.concatenate([np.zeros(offset, one.dtype), one]))
            self.memory.append((rank, at))
            made.append(c_uint64(at.value + offset * one.dtype.itemsize))
        return made

    def call(self) -> None:
        """One collective, by all ranks."""
        n, random = self.ranks.size, self.random
        name = str(random.choice([
            "AllReduce", "Reduce", "Broadcast", "Bcast", "AllGather", "ReduceScatter", "AlltoAll", "Gather",
            "Scatter", "SendRecv",
        ]))  # fmt: skip
        kind, count = str(random.choice(list(TYPES))), int(random.choice(COUNTS))
        op, root = int(random.integers(0, 5)), int(random.integers(0, n))
        in_place, offset = bool(random.integers(0, 2)), int(random.integers(0, 4))
        many = name in ("ReduceScatter", "AlltoAll", "Scatter")
        sent = self.values(count * n if many else count, kind)
        if name in ("AllGather", "Gather"):
            wanted = [np.concatenate(sent)] * n
        elif name == "AlltoAll":
            wanted = [
                np.concatenate([one[r * count : (r + 1) * count] for one in sent]) for r in range(n)
            ]
        elif name in ("AllReduce", "Reduce"):
            wanted = [reduce_values(sent, op)] * n
        elif name == "ReduceScatter":
            total = reduce_values(sent, op)
            wanted = [total[r * count : (r + 1) * count] for r in range(n)]
        elif name == "Scatter":
            wanted = [sent[root][r * count : (r + 1) * count] for r in range(n)]
        elif name == "SendRecv":
            wanted = [sent[(r + root) % n] for r in range(n)]
        else:
            wanted = [sent[root]] * n
        self.run(name, kind, count, op, root, offset, sent, wanted, in_place)

    def run(
        self, name: str, kind: str, count: int, op: int, root: int, offset: int, sent: list[Array],
        wanted: list[Array], in_place: bool,
    ) -> None:  # fmt: skip
        """Puts it into the streams, in a group."""
        n, type_, c_count = self.ranks.size, TYPES[kind], c_size_t(count)
        step = count * np.dtype(kind).itemsize
        from_ = self.put(sent, offset)
        to = self.put([np.full_like(w, 77) for w in wanted], offset)
        if name == "Bcast" or (in_place and name in ("AllReduce", "Reduce", "Broadcast")):
            to = from_
        elif in_place and name == "ReduceScatter":
            to = [c_uint64(at.value + r * step) for r, at in enumerate(from_)]
        elif in_place and name == "AllGather":
            for r, at in enumerate(to):
                ok(cu.cuCtxSetCurrent(self.ranks.contexts[r]))
                from_[r] = c_uint64(at.value + r * step)
                ok(
                    cu.cuMemcpyHtoD_v2(from_[r], sent[r].ctypes.data_as(c_void_p), c_size_t(step))
                ) if step else None
        for rank in range(n):
            comm, flow = self.ranks.comms[rank], self.ranks.streams[rank]
            f, t = from_[rank], to[rank]
            if name in ("AllReduce", "ReduceScatter"):
                done(getattr(nccl, f"nccl{name}")(f, t, c_count, type_, op, comm, flow))
            elif name == "Reduce":
                done(nccl.ncclReduce(f, t, c_count, type_, op, root, comm, flow))
            elif name in ("AllGather", "AlltoAll"):
                done(getattr(nccl, f"nccl{name}")(f, t, c_count, type_, comm, flow))
            elif name == "Bcast":
                done(nccl.ncclBcast(t, c_count, type_, root, comm, flow))
            elif name == "SendRecv":
                done(nccl.ncclSend(f, c_count, type_, (rank - root) % n, comm, flow))
                done(nccl.ncclRecv(t, c_count, type_, (rank + root) % n, comm, flow))
            else:
                done(getattr(nccl, f"nccl{name}")(f, t, c_count, type_, root, comm, flow))
            if rank == root or name not in ("Reduce", "Gather"):
                self.expected.append((rank, t, wanted[rank]))

    def check(self) -> None:
        """All that was called is as by numpy, bit by bit."""
        for rank, address, wanted in self.expected:
            got = self.ranks.get(rank, address, wanted)
            assert got.tobytes() == wanted.tobytes(), (rank, wanted.dtype, got[:8], wanted[:8])
        for rank, address in self.memory:
            self.ranks.free(rank, address)
        self.expected, self.memory = [], []


def table_of(exponent: int, fraction: int, finite: bool) -> list[float]:
    """What each pattern of a small float without its sign is, by the format's definition."""
    bias, values = (1 << (exponent - 1)) - 1, []
    for code in range(1 << (exponent + fraction)):
        e, f = code >> fraction, code & ((1 << fraction) - 1)
        if e == (1 << exponent) - 1 and (not finite or f == (1 << fraction) - 1):
            values.append(float("inf") if not f and not finite else float("nan"))
        elif e:
            values.append((1 + f / (1 << fraction)) * 2.0 ** (e - bias))
        else:
            values.append(f / (1 << fraction) * 2.0 ** (1 - bias))
    return values


def round_all(table: list[float], values: Array, saturate: bool) -> Array:
    """The nearest pattern of each, of two the even one, by the table alone; -1 for what is no number."""
    known = np.array([v for v in table if np.isfinite(v)])
    size = np.abs(values.astype(np.float64))
    above = np.clip(np.searchsorted(known, size), 1, len(known) - 1)
    below = above - 1
    down, up = size - known[below], known[above] - size
    code = np.where((down < up) | ((down == up) & (below % 2 == 0)), below, above)
    top = known[-1] if saturate else known[-1] + (known[-1] - known[-2]) / 2
    code = np.where(size >= top, len(known) - saturate, code)
    return np.where(np.isnan(size), -1, code + np.signbit(values) * len(table))
