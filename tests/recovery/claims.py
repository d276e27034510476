"""A pool of the machine alone, with a claim that is granted there."""

from __future__ import annotations

from typing import Any

from tests.recovery.world import World
from vgpumgr.pool.control.records import (
    POOL,
    VERSION,
    ClaimRecord,
    GpuRecord,
    HostRecord,
    LeaseRecord,
    PoolRecord,
    Timing,
    alive_key,
    format_record,
    lease_key,
    put,
)
from vgpumgr.pool.membership import Membership, open_pool_of, write_membership
from vgpumgr.pool.store.interface import Delete, Put, Transaction

#: of an attach: what ``make_claim`` has made
CLAIM = {"profile": "", "claim": "train"}


def make_claim_of_two(world: World) -> None:
    """The claim has two GPUs."""
    make_claim(world, 2)


def make_linked_claim(world: World) -> None:
    """The claim is granted on a GPU of host ``b``, which offers it over the network."""
    make_claim(world)
    size: dict[str, Any] = {"memory_bytes": 8 << 30, "compute_percent": 30.0}
    with open_pool_of(world.machine) as pool:
        there = (
            HostRecord("a", "machine", ca="the authority of a"),
            HostRecord("b", "machine-b", ca="the authority of b", links=("10.0.0.5:7443",)),
            GpuRecord("b", 0, "GPU-b", "A100", 80 << 30),
            ClaimRecord("train", "default", host="b", **size),
            LeaseRecord("train", "b", (0,), 300, **size),
        )
        heard, gone = Put(alive_key("b"), "machine-b"), Delete(lease_key("a", "train"))
        pool.store.transact(Transaction((), (*map(put, there), heard, gone)))


def make_claim(world: World, count: int = 1) -> None:
    """This host is in a pool, which has granted a claim on its first GPU, or on several."""
    gpus = [
        GpuRecord("a", gpu.index, str(gpu.uuid), gpu.model, gpu.memory.total_bytes)
        for gpu in world.nvml.gpus.values()
    ]
    size: dict[str, Any] = {"memory_bytes": 8 << 30, "compute_percent": 30.0}
    write_membership(world.machine, Membership("machine", host="a", pool="pool"))
    with open_pool_of(world.machine) as pool:
        records = (
            HostRecord("a", "machine"),
            *gpus,
            ClaimRecord("train", "default", count, host="a", **size),
            LeaseRecord("train", "a", tuple(range(count)), 300, **size),
        )
        whole = Put(POOL, format_record(PoolRecord("pool", VERSION, Timing())))
        pool.store.transact(Transaction((), (whole, *map(put, records))))
