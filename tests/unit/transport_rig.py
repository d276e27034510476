"""A channel without a VM: a keeper, the guest agent in QEMU's place, and guest processes on this host."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from vgpumgr.host.machine import LIB_DIR
from vgpumgr.virtio import arbiter, keeper, keeper_options
from vgpumgr.virtio.keeper import Keeper, KeeperError, KeeperOptions, KeeperStatus

LIB = LIB_DIR
if "VGPUMGR_TEST_LIB" in os.environ:  # another build of the native part: see tests/sanitize
    LIB = Path(os.environ["VGPUMGR_TEST_LIB"])
    keeper.KEEPER_PROGRAM = keeper_options.KEEPER_PROGRAM = LIB / "bin" / "vgpumgr-keeper"
    # sanitizers write reports and call what no filter of ours lets through
    os.environ["VGPUMGR_ALLOW_UNCONFINED"] = "1"
ECHO = LIB / "test" / "vgpumgr-test-echo"
CLIENT = LIB / "test" / "vgpumgr-test-client"
HOSTILE = LIB / "test" / "vgpumgr-test-hostile"
FUZZ = LIB / "test" / "vgpumgr-test-fuzz"
AGENT = LIB / "guest" / "vgpumgr-guestd"
PATIENCE_S = 240.0
"""For anything that should take milliseconds: the machine may be busy."""


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Waits until the condition holds; fails the test with ``what`` otherwise."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process of this number runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Rig:
    """One VM's channel. ``transport`` is what the agent may use: ring, serial or auto; private is the
    ring with private lanes.
    """

    def __init__(
        self,
        transport: str,
        *,
        shm_size_bytes: int = 64 << 20,
        worker: Path = ECHO,
        worker_args: Sequence[str] = (),
        agent_options: Sequence[str] = (),
    ) -> None:
        self.transport = "ring" if transport == "private" else transport
        self.lanes = "private" if transport == "private" else "shared"
        self.agent_options = agent_options
        self._temporary = tempfile.TemporaryDirectory(prefix="vgt")
        self.directory = Path(self._temporary.name)
        self.keeper = Keeper(self.directory / "k")
        self.serial = self.directory / "serial.sock"
        self.socket = self.directory / "guest.sock"
        self.options = KeeperOptions(
            worker=worker,
            worker_args=worker_args,
            shm_size_bytes=shm_size_bytes,
            serial=self.serial,
        )
        self.agent: subprocess.Popen[bytes] | None = None
        self._clients: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        self._take_share()
        self.keeper.start(self.options)
        try:
            self.keeper.wait_ready()
            self.start_agent()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _take_share(self) -> None:
        """``VGPUMGR_TEST_SHARE=burst`` or ``fixed`` has each channel's time granted by an arbiter of its own."""
        policy = os.environ.get("VGPUMGR_TEST_SHARE")
        if policy and self.options.compute is None:
            socket = arbiter.ensure("GPU-test", policy, self.directory / "arbiter", linger_s=1)
            self.options = replace(self.options, compute=50, compute_policy=policy, arbiter=socket)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients:
            if client.poll() is None:
                client.kill()
            client.communicate()
        self.stop_agent()
        self.keeper.stop()
        self._temporary.cleanup()

    def start_agent(self) -> None:
        """Starts vgpumgr-guestd and waits for its hello."""
        words = [str(AGENT), "--socket", str(self.socket), "--transport", self.transport]
        words += ["--lanes", self.lanes, *self.agent_options]
        if self.transport != "serial":
            words += ["--ivshmem-socket", str(self.keeper.ivshmem_socket)]
        if self.transport != "ring":
            words += ["--serial-listen", str(self.serial)]
        with (self.directory / "agent.log").open("ab") as log:
            self.agent = subprocess.Popen(words, stderr=log)
        wanted = {"ring": ("ring",), "serial": ("serial",), "auto": ("ring", "serial")}
        self.wait_status(
            lambda s: s.worker.state == "ready" and s.transports == wanted[self.transport], "hello"
        )

    def stop_agent(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the agent, as the end of a VM does."""
        if self.agent is not None:
            self.agent.send_signal(how)
            self.agent.wait()
            self.agent = None

    @property
    def env(self) -> dict[str, str]:
        """The environment of a guest process."""
        return {**os.environ, "VGPUMGR_AGENT": str(self.socket)}

    def client(self, *steps: str, program: Path = CLIENT) -> subprocess.Popen[str]:
        """Starts a guest process; its output is one line for each step."""
        process = subprocess.Popen(
            [str(program), *steps], env=self.env, stdout=subprocess.PIPE, text=True
        )
        self._clients.append(process)
        return process

    def run(self, *steps: str) -> str:
        """Runs a guest process to its end and returns its output."""
        return self.client(*steps).communicate(timeout=PATIENCE_S * 2)[0]

    def check(self, *steps: str) -> None:
        """Runs a guest process in which every step must succeed."""
        assert self.run(*steps).splitlines() == [f"ok {step}" for step in steps]

    def status(self) -> KeeperStatus:
        """What the keeper says."""
        return self.keeper.status()

    def wait_status(self, condition: Callable[[KeeperStatus], bool], what: str) -> KeeperStatus:
        """Waits for a status, and returns it."""
        seen: list[KeeperStatus] = []

        def look() -> bool:
            try:
                seen[:] = [self.status()]
            except KeeperError:
                return False
            return condition(seen[0])

        end = time.monotonic() + PATIENCE_S
        while not look():
            assert time.monotonic() < end, f"not in time: {what}; last: {seen}"
            time.sleep(0.01)
        return seen[0]


def read_line(client: subprocess.Popen[str]) -> str:
    """The next line of a running guest process."""
    assert client.stdout is not None
    return client.stdout.readline().strip()


def children(pid: int) -> list[int]:
    """The processes that a process has started and not reaped."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_fds(pid: int) -> int:
    """How many descriptors a process holds."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
