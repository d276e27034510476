"""A VM with several channels: one agent for all, and a keeper, with its worker, for each attachment."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.calls_rig import NULL_DRIVER, PROGRAM_S, SHIM, WORKER
from tests.unit.transport_rig import AGENT, LIB, wait_for
from vgpumgr.sim import machine as machines
from vgpumgr.virtio.keeper import Keeper, KeeperOptions

NAMES = tuple(f"MIG-0000000{n}-0000-4000-8000-000000000000" for n in range(2))


@dataclass(frozen=True)
class Attachment:
    """What one keeper's sessions see of the host."""

    driver: Path
    name: str
    env: Mapping[str, str]


NULL_PAIR = tuple(Attachment(NULL_DRIVER, name, {}) for name in NAMES)


@dataclass
class Guest:
    """One agent with a keeper for each attachment."""

    keepers: tuple[Keeper, ...]
    socket: Path

    def environment(self, visible: str | None = None) -> dict[str, str]:
        """Of a guest process."""
        env = {
            "VGPUMGR_AGENT": str(self.socket),
            "LD_LIBRARY_PATH": str(SHIM.parent),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        return env if visible is None else env | {"CUDA_VISIBLE_DEVICES": visible}

    def start_python(self, code: str, visible: str | None = None) -> subprocess.Popen[str]:
        """A guest process of Python that has the driver API as ``cu``; see ``guest_cuda``."""
        command = [sys.executable, "-c", f"from tests.unit.guest_cuda import *\n{code}"]
        env, pipe = self.environment(visible), subprocess.PIPE
        return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A guest program, to its end."""
        return subprocess.run(
            command,
            env=self.environment() | env,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )

    def lanes(self) -> list[int]:
        """How many processes each worker serves."""
        return [len(keeper.status().lanes) for keeper in self.keepers]


@contextmanager
def run_guest(
    transport: str, attachments: Sequence[Attachment] = NULL_PAIR, *, shm_size_bytes: int = 1 << 20
) -> Iterator[Guest]:
    """A guest that has these attachments; ``transport`` is what its agent may use, or private."""
    lanes = ["--lanes", "private"] if transport == "private" else []
    transport = "ring" if transport == "private" else transport
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgs")))
        words = [str(AGENT), "--socket", str(directory / "guest.sock"), "--transport", transport]
        keepers = []
        # with rings alone, one that was between them has been detached. The number of a port is in its
        # name: of this host's sockets it is their order
        step = 2 if transport == "ring" else 1
        for number, one in zip(range(0, step * len(attachments), step), attachments, strict=True):
            keeper = Keeper(directory / str(number))
            serial = directory / f"{number}.sock"
            keeper.start(
                KeeperOptions(
                    worker=WORKER,
                    worker_args=(
                        "--cuda",
                        str(one.driver),
                        f"--channel-number={number}",
                        f"--channel-device={one.name}",
                    ),
                    shm_size_bytes=shm_size_bytes,
                    serial=serial,
                    env=one.env,
                )
            )
            stack.callback(keeper.stop)
            keeper.wait_ready()
            keepers.append(keeper)
            if transport != "serial":
                words += ["--ivshmem-socket", str(keeper.ivshmem_socket)]
            if transport != "ring":
                words += ["--serial-listen", str(serial)]
        agent = subprocess.Popen([*words, *lanes])
        stack.callback(agent.wait)
        stack.callback(agent.terminate)
        ways = {"ring": 1, "serial": 1, "auto": 2}[transport]
        for keeper in keepers:
            wait_for(lambda k=keeper: len(k.status().transports) == ways, "hello")  # type: ignore[misc]
        yield Guest(tuple(keepers), directory / "guest.sock")


@contextmanager
def run_simulated(
    transport: str, root: Path, devices: Sequence[str] = ("0", "1"), *, machine: str = "a30-pair"
) -> Iterator[Guest]:
    """The same on a simulated machine; ``devices`` are what each attachment's sessions see of it."""
    driver = LIB / "sim" / "libcuda.so.1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGPUMGR_SIM_ROOT", str(root))
        machines.create_machine(machine)
        try:
            for key, value in machines.machine_env(machine).items():
                patch.setenv(key, value)
            attachments = [
                Attachment(driver, f"GPU-{number}", {"CUDA_VISIBLE_DEVICES": device})
                for number, device in enumerate(devices)
            ]
            with run_guest(transport, attachments, shm_size_bytes=64 << 20) as guest:
                yield guest
        finally:
            machines.destroy_machine(machine)
