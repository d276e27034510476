"""Commands without a daemon, many at once: all of them end well, and those that wait say for whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it changes a machine"),
]

Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """Starts commands on a simulated machine."""
    env = os.environ | {"VGPUMGR_SIM_ROOT": str(tmp_path / "sim"), "VGPUMGR_MACHINE": "a30-pair"}

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "vgpumgr", *words],
            env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    assert start("sim", "start", "a30-pair").wait() == 0
    yield start
    assert start("sim", "stop", "a30-pair").wait() == 0


def test_eight_clients_at_once(command: Command) -> None:
    for _ in range(3):
        children = [command("recover") for _ in range(8)]
        for child in children:
            _, error = child.communicate(timeout=120)
            assert child.returncode == 0, error


def test_a_command_says_for_whom_it_waits(command: Command, tmp_path: Path) -> None:
    held = tmp_path / "sim/a30-pair/host/run"
    script = (
        "import sys; from pathlib import Path; from vgpumgr.host.lock import lock_file\n"
        "with lock_file(Path(sys.argv[1]) / 'vgpumgr.lock', what='attach vm01'):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, held],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        waiting = command("recover")
        assert waiting.stderr
        assert waiting.stderr.readline().startswith(
            f"waiting for process {holder.pid}: attach vm01 ("
        )
        quiet = command("--quiet", "recover")
        interrupted = command("recover")
        assert interrupted.stderr
        assert interrupted.stderr.readline().startswith("waiting for process")
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.wait(20) == 130
    assert waiting.wait(20) == 0
    assert quiet.communicate(timeout=120)[1] == ""
    assert list((held / "vgpumgr.lock.queue").iterdir()) == []
