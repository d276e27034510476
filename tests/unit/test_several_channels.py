"""A VM with several channels: one agent for all, and each process on the device that it asks for."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.calls_rig import NULL_DRIVER, SHIM, WORKER
from tests.unit.transport_rig import AGENT, PATIENCE_S, wait_for
from vgpumgr.virtio.keeper import Keeper, KeeperOptions

pytestmark = pytest.mark.native
NAMES = tuple(f"MIG-0000000{n}-0000-4000-8000-000000000000" for n in range(2))
HOLD = "from tests.unit.guest_cuda import *\ncontext()\nprint('ready', flush=True)\ninput()"


@dataclass
class Guest:
    """One agent with a keeper for each attachment."""

    keepers: tuple[Keeper, ...]
    socket: Path

    def start(self, visible: str | None) -> subprocess.Popen[str]:
        """A process that makes a context on the device it sees and holds it."""
        env = {
            "VGPUMGR_AGENT": str(self.socket),
            "LD_LIBRARY_PATH": str(SHIM.parent),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", HOLD], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def lanes(self) -> list[int]:
        """How many processes each worker serves."""
        return [len(keeper.status().lanes) for keeper in self.keepers]


@contextmanager
def run_guest(transport: str) -> Iterator[Guest]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgs")))
        words = [str(AGENT), "--socket", str(directory / "guest.sock"), "--transport", transport]
        keepers = []
        # with rings alone, one that was between them has been detached. The number of a port is in its
        # name: of this host's sockets it is their order
        numbers = (0, 2) if transport == "ring" else (0, 1)
        for number, name in zip(numbers, NAMES, strict=True):
            keeper = Keeper(directory / str(number))
            serial = directory / f"{number}.sock"
            keeper.start(
                KeeperOptions(
                    worker=WORKER,
                    worker_args=(
                        "--cuda",
                        str(NULL_DRIVER),
                        f"--channel-number={number}",
                        f"--channel-device={name}",
                    ),
                    shm_size_bytes=1 << 20,
                    serial=serial,
                )
            )
            stack.callback(keeper.stop)
            keeper.wait_ready()
            keepers.append(keeper)
            if transport != "serial":
                words += ["--ivshmem-socket", str(keeper.ivshmem_socket)]
            if transport != "ring":
                words += ["--serial-listen", str(serial)]
        agent = subprocess.Popen(words)
        stack.callback(agent.wait)
        stack.callback(agent.terminate)
        ways = {"ring": 1, "serial": 1, "auto": 2}[transport]
        for keeper in keepers:
            wait_for(lambda k=keeper: len(k.status().transports) == ways, "hello")  # type: ignore[misc]
        yield Guest(tuple(keepers), directory / "guest.sock")


CHOICES = [
    (None, [1, 0]),
    ("0", [1, 0]),
    ("1", [0, 1]),
    (" 1,0", [0, 1]),
    (NAMES[1], [0, 1]),
    (NAMES[0][:13] + "," + NAMES[1], [1, 0]),
]
REFUSED = [
    ("2", "this VM has no device 2: CUDA_VISIBLE_DEVICES can name 0 to 1"),
    ("", "lets this process see no device"),
    ("-1", "lets this process see no device"),
    ("first", "lets this process see no device"),
    ("MIG-77777777", "none of this VM's devices is called so"),
]


@pytest.mark.parametrize("transport", ["ring", "serial", "auto"])
def test_a_process_has_the_device_that_it_asks_for(transport: str) -> None:
    with run_guest(transport) as guest:
        for visible, lanes in CHOICES:
            process = guest.start(visible)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()
            # a name is looked for on every channel; those of the others are given back at once
            wait_for(lambda wanted=lanes: guest.lanes() == wanted, f"lanes for {visible}")  # type: ignore[misc]
            process.communicate("\n", timeout=PATIENCE_S)
            wait_for(lambda: guest.lanes() == [0, 0], "lanes given back")
        for visible, words in REFUSED if transport == "auto" else REFUSED[:1]:
            process = guest.start(visible)
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode != 0
            assert words in said, visible


def test_both_are_used_at_once_and_one_may_end() -> None:
    with run_guest("auto") as guest:
        first, second = guest.start("0"), guest.start("1")
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        assert guest.lanes() == [1, 1]
        guest.keepers[0].restart_worker()
        wait_for(lambda: guest.keepers[0].status().worker.state == "ready", "worker")
        assert guest.lanes()[1] == 1, "the other one's session goes on"
        third = guest.start("0")
        assert third.stdout is not None
        assert third.stdout.readline() == "ready\n"
        for process in (first, second, third):
            process.communicate("\n", timeout=PATIENCE_S)
