"""A forwarded CUDA call from a guest under TCG, against a raw ping-pong through shared memory in the same guest.

Under software emulation both sides are slowed, so only the ratio says anything, and that about the protocol alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.registry import Figure, at_most
from tests.guest.lab import LIBRARY, GuestLab, guest_image_with, lab

ROUNDS = 12
FLOOR_NAME = "vgpumgr-bench-floor"
FLOOR_XML = f"""
<shmem name='{FLOOR_NAME}'><model type='ivshmem-plain'/><size unit='M'>1</size></shmem>
"""


def run() -> Iterable[Figure]:
    """Boot one guest with both devices; worker on the null driver. Shared lanes: with private ones
    this measures how slowly TCG changes between two processes (adr/0014).
    """
    programs = {
        f"/opt/bin/{name}": LIBRARY / "bench" / name
        for name in ("vgpumgr-bench-shm", "vgpumgr-bench-cuda")
    }
    with lab("dgx-a100") as scene:
        use_null_driver(scene)
        scene.define("bench", initrd=guest_image_with(programs), devices=FLOOR_XML)
        scene.vgpumgr("attach", "bench", "--profile", "1g.10gb", "--transport", "ring")
        shell = scene.start("bench")
        floors, calls = [], []
        with echoing(Path("/dev/shm") / FLOOR_NAME):
            device = shell.check(
                "for d in /sys/bus/pci/devices/*; do [ $(cat $d/device) = 0x1110 ] && "
                "[ $(stat -c %s $d/resource2) = 1048576 ] && echo 1 >$d/enable && echo $d; done; true"
            ).split()[0]
            shell.check(
                "kill $(cat /tmp/guestd.pid); /usr/sbin/vgpumgr-guestd --lanes shared "
                ">/tmp/guestd.log 2>&1 & echo $! >/tmp/guestd.pid; usleep 500000"
            )
            for _ in range(ROUNDS):
                floors.append(
                    float(shell.check(f"vgpumgr-bench-shm measure {device}/resource2 20000"))
                )
                calls.append(float(shell.check("vgpumgr-bench-cuda 5000")))
    goal, met = at_most(3, min(calls), min(floors))
    yield Figure(
        "cuMemGetInfo from a guest", min(calls) / 1e9, min(floors) / 1e9, "s",
        "raw ping-pong guest to host", goal, met, "guest under TCG, null driver",
    )  # fmt: skip


def use_null_driver(scene: GuestLab) -> None:
    """The scene's workers load a driver that does nothing, so that the channel alone is measured."""
    env = Path(scene.environment["VGPUMGR_SIM_ROOT"]) / scene.machine / "env"
    null = LIBRARY / "bin" / "null"
    env.write_text(env.read_text().replace("LD_LIBRARY_PATH=", f"LD_LIBRARY_PATH={null}:"))


@contextmanager
def echoing(memory: Path) -> Iterator[None]:
    """The host's side of the raw ping-pong."""
    process = subprocess.Popen([str(LIBRARY / "bench/vgpumgr-bench-shm"), "echo", str(memory)])
    try:
        yield
    finally:
        process.kill()
        process.wait()
        if memory.exists():
            memory.unlink()
