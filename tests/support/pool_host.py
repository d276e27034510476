"""A host of a pool on fakes: its rounds are made one by one, and attachments are planned and done for real."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.host.machine import find_machine, read_boot_id
from vgpumgr.model.gpu import Gpu
from vgpumgr.pool.control.controller import Controller
from vgpumgr.pool.control.host import HostAgent
from vgpumgr.pool.control.records import GpuRecord, HostRecord, Timing, View
from vgpumgr.pool.leases import PoolLeases
from vgpumgr.pool.local import has_ended
from vgpumgr.pool.membership import (
    init_pool,
    join_pool,
    open_pool,
    read_seen,
    write_seen,
)
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.queue import QueueWatch
from vgpumgr.pool.recorder import Recorder
from vgpumgr.pool.serving import Server
from vgpumgr.pool.store.gateway import Endpoints
from vgpumgr.pool.store.steps import drive


def choose_machine(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is of the machine in that directory."""
    directory.mkdir(exist_ok=True)
    monkeypatch.setenv("VGPUMGR_SIM", str(directory))
    monkeypatch.setenv("VGPUMGR_STATE_DIR", str(directory / "state"))
    monkeypatch.setenv("VGPUMGR_RUN_DIR", str(directory / "run"))
    # no process serves beside the test: what waits for one need not wait long
    monkeypatch.setattr("vgpumgr.pool.membership._ANSWER_S", 0.2)


class PoolHost:
    """Host ``a`` of a new pool, with the GPUs of its bench."""

    def __init__(
        self, directory: Path, gpus: list[Gpu], etcd: Endpoints | None = None, **more: Any
    ) -> None:
        self.machine = find_machine(None)
        self.bench: Bench = make_bench(directory, gpus, **more)
        self.leases = PoolLeases(self.machine)
        self.parts = replace(
            self.bench.service.parts,
            leases=self.leases,
            state_dir=self.machine.state_dir,
            run_dir=self.machine.run_dir,
            boot_id=read_boot_id(self.machine),
        )
        self.service = AttachmentService(self.parts)
        self.recovery = Recovery(self.parts)
        with init_pool(None, etcd, "fgd"):
            pass
        records = [
            GpuRecord("a", g.index, str(g.uuid), g.model, g.memory.total_bytes) for g in gpus
        ]
        with join_pool(None, etcd, "a", records):
            pass
        self._agent: HostAgent | None = None
        #: what a test wants to have of rounds
        self.queue: QueueWatch | None = None
        self.recorder: Recorder | None = None
        self.round()

    def round(self) -> None:
        """What the process that serves does once; then another may lead."""
        with open_pool(None) as pool:
            timing, clock = Timing(), pool.clock
            if self._agent is None:
                host = HostRecord("a", pool.membership.machine)
                self._agent = HostAgent(host, timing, clock.monotonic_s)
            controller = Controller("a", timing, clock.monotonic_s, observer=self.queue)
            server = Server(
                pool.store, "a", self._agent, controller, lambda _: None, lambda _: None,
                lambda seen: write_seen(self.machine, seen), before=read_seen(self.machine),
                has_ended=lambda want: has_ended(want, self.machine),
                queue=self.queue, recorder=self.recorder,
            )  # fmt: skip
            server.run_round(0)
            server.stop()
            drive(pool.store, controller.resign())

    def restart(self) -> None:
        """The process that serves is another one."""
        self._agent = None

    def claim(self, name: str, profile: str, **more: Any) -> dict[str, Any]:
        """A new claim, granted where it fits; the host has seen it."""
        asked = {"class_name": "default", "gpus": 1, "if_lost": "keep"} | more
        with open_pool(None) as pool:
            found = PoolOperations(pool).create(name, profile=profile, **asked)
        self.round()
        return found

    def ask(self, verb: str, *arguments: Any) -> Any:
        """An operation of the pool."""
        with open_pool(None) as pool:
            return getattr(PoolOperations(pool), verb)(*arguments)

    def view(self) -> View:
        """The pool now."""
        with open_pool(None) as pool:
            return pool.view()

    def recover(self) -> list[tuple[str, bool]]:
        """``vgpumgr recover``: what it did."""
        return [(one.text, one.done) for one in self.recovery.recover(Policy()).actions]

    def list_drift(self) -> list[str]:
        """The kinds of what ``vgpumgr diff`` lists."""
        return [one.kind for one in self.recovery.diff().drift]
