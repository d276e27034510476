"""Where claims get their GPUs: by the memory that each GPU has."""

from __future__ import annotations

import pytest

from tests.support.memory_store import MemoryStore
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.placing import Placing
from vgpumgr.pool.control.records import (
    ROOT,
    ClaimRecord,
    ClassRecord,
    GpuRecord,
    HostRecord,
    HostState,
    LeaseRecord,
    Timing,
    View,
    alive_key,
    put,
)
from vgpumgr.pool.store.interface import Put, Transaction
from vgpumgr.pool.store.steps import drive

GIB = 1 << 30
#: of one model, and so near that a rounded size is the same
SIZES = (40 * GIB, 80 * GIB, 80 * GIB - 1)


@pytest.fixture
def store() -> MemoryStore:
    """A host with GPUs of one model and several sizes, of which one has less by its error correction."""
    found = MemoryStore(lambda: 0.0)
    write(
        found,
        put(HostRecord("h", "machine", HostState.READY)),
        Put(alive_key("h"), "machine "),
        put(ClassRecord("default")),
        *(put(GpuRecord("h", n, f"GPU-{n}", "A100", size)) for n, size in enumerate(SIZES)),
    )
    return found


def write(store: MemoryStore, *changes: Put) -> None:
    store.transact(Transaction((), changes))


def run(store: MemoryStore) -> View:
    controller = Controller("c", Timing(), lambda: 0.0)
    drive(store, controller.step())
    drive(store, controller.resign())
    return View(store.range(ROOT))


def list_granted(view: View) -> list[int]:
    """The memory that is granted of each GPU."""
    return [
        sum(lease.memory_bytes or 0 for lease in view.leases.values() if index in lease.gpus)
        for index in range(len(SIZES))
    ]


@pytest.mark.parametrize("size", [4 * GIB, 15 * GIB, 25 * GIB, 79 * GIB, 80 * GIB])
@pytest.mark.parametrize("order", [1, -1])
def test_no_gpu_has_more_granted_than_it_has(store: MemoryStore, size: int, order: int) -> None:
    gpus = [put(GpuRecord("h", n, f"GPU-{n}", "A100", s)) for n, s in enumerate(SIZES[::order])]
    write(store, *gpus)
    write(store, *(put(ClaimRecord(f"c{n}", "default", memory_bytes=size)) for n in range(90)))
    granted = list_granted(run(store))
    sizes = SIZES[::order]
    assert all(used <= size for used, size in zip(granted, sizes, strict=True))
    assert sum(granted) // size == sum(1000 // -(-size * 1000 // one) for one in sizes)


def test_another_size_counts_by_the_memory_of_its_own_gpu(store: MemoryStore) -> None:
    write(store, put(ClaimRecord("c", "default", memory_bytes=40 * GIB)))
    for number in (1, 2):
        write(store, put(ClaimRecord(f"d{number}", "default", memory_bytes=60 * GIB)))
    view = run(store)
    assert view.leases["h/c"].gpus == (0,)
    write(store, put(ClaimRecord("c", "default", memory_bytes=50 * GIB, host="h")))
    view = run(store)
    assert (view.leases["h/c"].milli, list_granted(view)[0]) == (1000, 40 * GIB)
    assert "it keeps what it has" in view.claims["c"].why
    write(store, put(ClaimRecord("c", "default", memory_bytes=20 * GIB, host="h")))
    assert run(store).leases["h/c"].milli == 500


def test_a_lease_of_gpus_of_several_sizes_counts_on_each(store: MemoryStore) -> None:
    lease = LeaseRecord("c", "h", (0, 1), 600)
    write(store, put(lease), put(ClaimRecord("c", "default", host="h")))
    view = View(store.range(ROOT))
    placing = Placing(view)
    assert list(placing.read_free().values()) == [400, 400, 1000]
    assert "different" in str(placing.resize(view.claims["c"], lease))


def test_what_is_free_is_unusable_for_the_part_of_the_mix_that_it_is_too_small_for() -> None:
    store = MemoryStore(lambda: 0.0)
    write(
        store,
        put(HostRecord("h", "machine", HostState.READY)),
        Put(alive_key("h"), "machine "),
        put(ClassRecord("default")),
        *(put(GpuRecord("h", n, f"GPU-{n}", "A100", 80 * GIB)) for n in range(3)),
        put(GpuRecord("h", 3, "GPU-3", "A100", 80 * GIB, closed="a fan")),
    )
    assert Placing(View(store.range(ROOT)), everything=True).measure_unusable() == 0
    write(store, put(ClaimRecord("a", "default", memory_bytes=60 * GIB)))
    view = run(store)
    # one piece of 250 is left, and no claim is as small; what is closed is not free
    assert Placing(view, everything=True).measure_unusable() == 250
    write(store, put(ClaimRecord("b", "default", memory_bytes=20 * GIB)))
    store_view = View(store.range(ROOT))
    # every second claim of the mix could use it
    assert Placing(store_view, everything=True).measure_unusable() == 125
