"""A pool of real processes on a real etcd: hosts that serve are killed, stand still, and lose the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.etcd import Etcd
from vgpumgr.host.machine import find_machine
from vgpumgr.pool.control.records import (
    POOL,
    GpuRecord,
    HostState,
    LeaseRecord,
    Timing,
    View,
    format_record,
)
from vgpumgr.pool.membership import init_pool, join_pool, open_pool
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.store.gateway import Endpoints
from vgpumgr.pool.store.interface import Put, Transaction

ROOT = Path(__file__).parents[2]
#: so long that a slow machine's heartbeats are in time, and so short that a test need not wait long
TIMING = Timing(2, 10, 2)


class Machine:
    """A host of the pool with one GPU, and the process that serves."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir()
        self.name = name
        self.env = {
            "VGPUMGR_SIM": str(directory),
            "VGPUMGR_STATE_DIR": str(directory / "state"),
            "VGPUMGR_RUN_DIR": str(directory / "run"),
        }
        self.process: subprocess.Popen[str] | None = None

    def join(self, etcd: Endpoints) -> None:
        with (
            self.chosen(),
            join_pool(
                None,
                etcd,
                self.name,
                [GpuRecord(self.name, 0, f"GPU-{self.name}", "A100", 80 << 30)],
            ),
        ):
            pass

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """This process is on that machine."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            assert find_machine(None).is_simulated
            yield

    def serve(self) -> None:
        words = [sys.executable, "-m", "vgpumgr", "pool", "serve"]
        env = os.environ | self.env | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    """Two hosts that serve. The first one leads."""
    (tmp_path / "etcd").mkdir()
    with Etcd(tmp_path / "etcd").running() as etcd, ExitStack() as stack:
        found = [Machine(tmp_path / name, name) for name in ("a", "b")]
        endpoints = Endpoints(etcd.urls)
        with found[0].chosen(), init_pool(None, endpoints, "fgd") as pool:
            record = pool.record(pool.view())
            text = format_record(replace(record, timing=TIMING))
            pool.store.transact(Transaction((), (Put(POOL, text),)))
        for machine in found:
            machine.join(endpoints)
            stack.callback(machine.stop)
        found[0].serve()
        await_view(found[0], lambda view: view.leader == "a")
        found[1].serve()
        await_view(found[0], lambda view: view.is_ready("a") and view.is_ready("b"))
        yield found


def await_view(machine: Machine, condition: Callable[[View], bool]) -> View:
    """The pool, once it is so."""
    end_s = time.monotonic() + 240
    with machine.chosen(), open_pool(None) as pool:
        while not condition(view := pool.view()):
            assert time.monotonic() < end_s, (view.hosts, view.claims, view.leases)
            time.sleep(0.05)
    return view


def create(machine: Machine, name: str, if_lost: str) -> LeaseRecord | None:
    with machine.chosen(), open_pool(None) as pool:
        PoolOperations(pool).create(name, "default", "share:4GiB,5%", 1, if_lost)
        view = pool.view()
    return view.find_lease(view.claims[name])


def find_host(view: View, name: str) -> str | None:
    lease = view.find_lease(view.claims[name])
    return lease and lease.host


def test_the_leader_is_killed_and_what_it_held_is_kept_or_moves(machines: list[Machine]) -> None:
    first, second = machines
    moved = create(second, "moved", "move")
    assert moved is not None
    kept = None
    for number in range(10):
        kept = create(second, f"kept-{number}", "keep")
        if kept is not None and kept.host == moved.host:
            break
    assert kept is not None
    assert kept.host == moved.host
    lost, other = (first, second) if kept.host == "a" else (second, first)
    began = time.monotonic()
    lost.stop()
    view = await_view(other, lambda view: find_host(view, "moved") == other.name)
    assert time.monotonic() - began > TIMING.fence_s
    assert view.hosts[lost.name].state is HostState.FENCED
    assert view.leader == other.name
    assert find_host(view, kept.claim) == lost.name
    lost.serve()
    view = await_view(other, lambda view: view.is_ready(lost.name))
    assert find_host(view, kept.claim) == lost.name
    with other.chosen(), open_pool(None) as pool:
        assert PoolOperations(pool).delete(kept.claim)


def test_a_host_that_stands_still_for_a_moment_keeps_what_may_move(
    machines: list[Machine],
) -> None:
    first, second = machines
    lease = create(second, "moved", "move")
    assert lease is not None
    still = first if lease.host == "a" else second
    other = second if still is first else first
    still.signal(signal.SIGSTOP)
    await_view(other, lambda view: still.name not in view.alive)
    still.signal(signal.SIGCONT)
    view = await_view(other, lambda view: view.is_ready(still.name))
    assert find_host(view, "moved") == still.name
    assert view.find_token(view.leases[f"{still.name}/moved"]) > 0
