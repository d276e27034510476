"""The channel between two processes of this host, as ratios to what the machine itself can do."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from vgpumgr.virtio.keeper import LIB, Keeper, KeeperOptions

_BENCH = LIB / "bench"


def _numbers(program: str, *arguments: str, env: dict[str, str] | None = None) -> list[float]:
    done = subprocess.run(
        [str(_BENCH / program), *arguments], capture_output=True, text=True, check=True, env=env
    )
    return [float(word) for word in done.stdout.split()]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def measure() -> dict[str, float]:
    """Runs all of the channel's benchmarks; ``*_ratio`` compares with a floor taken in the same run.

    ``call_ratio``: a forwarded synchronous call to a raw ping-pong through shared memory (goal at most 3);
    ``posts_per_second``: calls without outputs to a worker that does nothing (goal at least a million);
    ``copy_ratio``: 16 MiB through the window to plain memcpy (goal at least 0.7).
    """
    with tempfile.TemporaryDirectory(prefix="vgb") as name:
        keeper = Keeper(Path(name) / "k")
        keeper.start(KeeperOptions(worker=LIB / "test" / "vgpumgr-test-echo"))
        agent_socket = Path(name) / "guest.sock"
        agent = subprocess.Popen(
            [
                *(str(LIB / "guest" / "vgpumgr-guestd"), "--transport", "ring"),
                *("--socket", str(agent_socket), "--ivshmem-socket", str(keeper.ivshmem_socket)),
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            keeper.wait_ready()
            while not agent_socket.exists() or keeper.status().guest.hello == "none":
                if agent.poll() is not None:
                    raise RuntimeError("the guest agent has ended")
            return _measure({**os.environ, "VGPUMGR_AGENT": str(agent_socket)})
        finally:
            agent.terminate()
            agent.wait()
            keeper.stop()


def _measure(env: dict[str, str]) -> dict[str, float]:
    floor, call, posts, copies = [], [], [], []
    for _ in range(5):
        floor += _numbers("vgpumgr-bench-pingpong")
        call += _numbers("vgpumgr-bench-channel", "call", env=env)
        posts += _numbers("vgpumgr-bench-channel", "post", env=env)
        copied, plain = _numbers("vgpumgr-bench-channel", "copy", env=env)
        copies.append(copied / plain)
    return {
        "pingpong_ns": _median(floor),
        "call_ns": _median(call),
        "call_ratio": _median(call) / _median(floor),
        "posts_per_second": _median(posts),
        "copy_ratio": _median(copies),
    }


if __name__ == "__main__":
    for key, value in measure().items():
        print(f"{key:20} {value:14.2f}")
