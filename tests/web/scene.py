"""A simulated machine with its daemon, in processes of their own, and what reaches it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.support.places import short
from tests.web.page_daemon import NAMES
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.errors import VgpumgrError
from vgpumgr.pool.control.records import (
    GpuRecord,
    HostRecord,
    HostState,
    Life,
    alive_key,
    put,
)
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.store.interface import Delete, Put, Transaction
from vgpumgr.sim import lifecycle
from vgpumgr.sim.machine import machine_env

ROOT = Path(__file__).parents[2]


@dataclass
class Scene:
    """A daemon on a simulated machine, and what reaches it."""

    root: Path
    env: dict[str, str]
    daemon: subprocess.Popen[bytes]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def client(self) -> HttpBackend:
        return HttpBackend(
            partial(connect_unix, f"{self.env['VGPUMGR_SIM']}/host/run/vgpumgr.sock")
        )

    def get(self, path: str) -> dict[str, Any]:
        return self.client.request("GET", path).document()

    def post(self, path: str, body: object) -> dict[str, Any]:
        """A change, when it has ended well."""
        answer = self.client.request("POST", path, json.dumps(body).encode(), Prefer="wait=60")
        document = answer.document()
        if "operation" in document:
            assert document["operation"]["status"] == "succeeded", document
        return document

    def vgpumgr(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """The output of a command."""
        done = subprocess.run(
            [sys.executable, "-m", "vgpumgr", *arguments], env=self.env, cwd=ROOT,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in codes, (arguments, done.stdout, done.stderr)
        return done.stdout

    def open_web(self, *options: str) -> str:
        """The address of a new ``vgpumgr web``."""
        process = subprocess.Popen(
            [sys.executable, "-m", "vgpumgr", "web", *options], env=self.env, cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    @contextmanager
    def file(self, name: str) -> Iterator[None]:
        """While it is there, what it says holds: see ``page_daemon``."""
        (self.root / name).touch()
        try:
            yield
        finally:
            (self.root / name).unlink(missing_ok=True)

    def write_pool(self, *changes: Put | Delete) -> None:
        """Into the store of the machine's pool, as another host would."""
        with mock.patch.dict(os.environ, self.env), open_pool(None) as pool:
            assert pool.store.transact(Transaction((), changes)) is not None

    def add_host(self, name: str, count: int) -> None:
        """One of the pool that is heard, with GPUs of the first host's kind; nothing serves there."""
        found = self.get("/1.0/pool")["hosts"][0]["gpus"][0]
        model, size = found["model"], found["memory_bytes"]
        gpus = [GpuRecord(name, n, f"GPU-{name}{n}", model, size) for n in range(count)]
        host, life = HostRecord(name, f"machine-{name}", HostState.READY), Life(f"machine-{name}")
        self.write_pool(put(host), *map(put, gpus), Put(alive_key(name), str(life)))

    def list_vms(self) -> dict[str, list[dict[str, Any]]]:
        """Attachments by name of the VM."""
        return {vm["name"]: vm["attachments"] for vm in self.get("/1.0/vms")["vms"]}


@contextmanager
def run_scene(name: str, vms: Sequence[str] = NAMES, *, behaves: bool = False) -> Iterator[Scene]:
    """A machine of this name with its daemon, and VMs of these names. Where it ``behaves``, writes below its ``/sys``
    do what they do on a host.
    """
    root = Path(tempfile.mkdtemp(prefix="vgw.", dir=short()))
    sim_root = mock.patch.dict(os.environ, VGPUMGR_SIM_ROOT=str(root / "sim"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        stack.enter_context(sim_root)
        if behaves:
            _, without_fuse = lifecycle.start(name)
            stack.callback(lifecycle.stop, name)
            if without_fuse is not None:
                pytest.skip(f"no FUSE: {without_fuse}")
        yield stack.enter_context(_serve(root, name, vms))


@contextmanager
def _serve(root: Path, name: str, vms: Sequence[str]) -> Iterator[Scene]:
    env = {**os.environ, "VGPUMGR_SIM_ROOT": str(root / "sim"), "PYTHONPATH": str(ROOT)}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.web.page_daemon", str(root), name, *vms], env=env, cwd=ROOT
    )
    env["VGPUMGR_SIM"] = str(root / "sim" / name)
    scene = Scene(root, env, daemon)
    try:
        _await_daemon(scene)
        _add_library(env)
        yield scene
    finally:
        for process in scene.processes:
            process.terminate()
            process.wait(30)
        with suppress(VgpumgrError):
            for vm, attachments in scene.list_vms().items():
                if attachments:
                    scene.post(f"/1.0/attachments/{vm}/detach", {"every": True})
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)


def _add_library(env: dict[str, str]) -> None:
    """What ``vgpumgr sim env`` prints for the machine."""
    with mock.patch.dict(os.environ, VGPUMGR_SIM_ROOT=env["VGPUMGR_SIM_ROOT"]):
        env |= machine_env(Path(env["VGPUMGR_SIM"]).name)


def _await_daemon(scene: Scene) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(VgpumgrError):
            scene.get("/1.0")
            return
        assert scene.daemon.poll() is None, "the daemon ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)
