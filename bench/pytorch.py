"""A warm training step of PyTorch's through the channel against the same on the simulated driver itself.

Also over a line that takes a millisecond each way: a step that waits for the host twice may not be much longer.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.registry import ROOT, Figure, at_most
from tests.support.places import short
from tests.unit.transport_rig import LIB, Rig
from vgpumgr.sim import machine as machines

MACHINE = "dgx-a100"
STEPS = 30
#: of training itself, measured in turn, so that others on the machine slow down all alike
TURNS = 2
DELAY_S = 0.001
LIMIT = 1.3
WORKER = LIB / "bin" / "vgpumgr-worker"


class Line:
    """Between two sockets: what comes in at one goes out at the other a while later."""

    def __init__(self, here: Path, there: Path, delay_s: float) -> None:
        self.there, self.delay_s = there, delay_s
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(here))
        self.listening.listen()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self.listening.accept()
            except OSError:
                return
            other = socket.socket(socket.AF_UNIX)
            try:
                other.connect(str(self.there))
            except OSError:
                # its other end is not there yet: whoever called tries again
                one.close()
                continue
            self._carry(one, other)

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        """Both ways, until one end hangs up."""
        waiting: dict[socket.socket, deque[tuple[float, bytes]]] = {one: deque(), other: deque()}
        others = {one: other, other: one}
        with selectors.DefaultSelector() as selector, one, other:
            for end in others:
                selector.register(end, selectors.EVENT_READ)
            while True:
                due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
                left = None if due is None else max(0.0, due - time.monotonic())
                for key, _ in selector.select(left):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    try:
                        data = end.recv(1 << 20)
                    except ConnectionError:
                        data = b""
                    if not data:
                        return
                    waiting[others[end]].append((time.monotonic() + self.delay_s, data))
                now = time.monotonic()
                for end, queue in waiting.items():
                    while queue and queue[0][0] <= now:
                        try:
                            end.sendall(queue.popleft()[1])
                        except ConnectionError:
                            return

    def close(self) -> None:
        """Take no more calls."""
        self.listening.close()


class FarRig(Rig):
    """A channel over virtio-serial whose line takes a while."""

    def __init__(self, delay_s: float) -> None:
        super().__init__("serial", worker=WORKER, worker_args=worker_args())
        near = self.directory / "far.sock"
        self.line = Line(near, self.serial, delay_s)
        self.options = replace(self.options, serial=near)


def worker_args() -> tuple[str, ...]:
    """The simulated driver, and its mathematics libraries."""
    return ("--cuda", str(LIB / "sim" / "libcuda.so.1"), f"--math={LIB / 'sim'}")


@contextmanager
def machine(directory: Path) -> Iterator[dict[str, str]]:
    """A simulated machine, and the environment of its programs."""
    os.environ["VGPUMGR_SIM_ROOT"] = str(directory)
    machines.create_machine(MACHINE)
    try:
        env = machines.machine_env(MACHINE)
        os.environ.update(env)
        yield {**os.environ, **env}
    finally:
        machines.destroy_machine(MACHINE)


def train(env: Mapping[str, str], libraries: str, kept: Path) -> dict[str, float]:
    """What ``pytorch_step`` says with these libraries."""
    packages = os.environ["VGPUMGR_PYTORCH"]
    more = {
        "LD_LIBRARY_PATH": libraries, "PYTHONPATH": f"{packages}:{ROOT}", "OMP_NUM_THREADS": "1",
        "TRITON_PTXAS_PATH": str(LIB / "sim/ptxas"), "TRITON_CACHE_DIR": str(kept / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(kept / "inductor"),
    }  # fmt: skip
    words = [sys.executable, "-m", "bench.pytorch_step", str(STEPS)]
    done = subprocess.run(
        words, env={**env, **more}, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run() -> Iterator[Figure]:
    """Direct, over shared memory, over a serial line, and over one that is far away."""
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="vgb", dir=short()))
        )
        env = stack.enter_context(machine(directory))
        guest, sim = str(LIB / "guest"), str(LIB / "sim")
        rigs: dict[str, Rig] = {
            "shared memory": Rig("ring", worker=WORKER, worker_args=worker_args()),
            "virtio-serial": Rig("serial", worker=WORKER, worker_args=worker_args()),
            "virtio-serial, 1 ms each way": FarRig(DELAY_S),
        }
        for rig in rigs.values():
            stack.enter_context(rig)
        best: dict[str, float] = {}
        waits: dict[str, float] = {}
        losses = set()
        for _ in range(TURNS):
            # libraries that are only linked with come from the guest's
            found = {"direct": train(env, f"{sim}:{guest}", directory)}
            for name, rig in rigs.items():
                inside = {
                    k: v
                    for k, v in rig.env.items()
                    if not k.startswith(("VGPUMGR_SIM", "VGPUMGR_MACHINE"))
                }
                found[name] = train(inside, guest, directory)
            for name, one in found.items():
                best[name] = min(one["seconds"], best.get(name, one["seconds"]))
                waits[name] = one["waits"]
                losses.add(round(one["loss"], 4))
        assert len(losses) == 1, f"the losses differ: {losses}"
    for name in rigs:
        goal, met = at_most(LIMIT, best[name], best["direct"])
        yield Figure(f"GPT step, {name} ({waits[name]:.0f} waits)", best[name], best["direct"], "s",
                     "the simulated driver itself", goal, met, "simulated driver")  # fmt: skip
