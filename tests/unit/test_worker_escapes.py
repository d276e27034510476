"""One who has taken over the worker tries to get out: each way is refused, or it kills the worker.

A driver of ours (tests/native/sandbox/probes.c) tries one way in each worker, after the worker's lock-down and before
the first guest. The same driver in a worker without a sandbox shows that the probes can succeed at all.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.calls_rig import WORKER
from tests.unit.transport_rig import LIB, PATIENCE_S
from vgpumgr.virtio.keeper import Keeper, KeeperOptions

SOURCE = Path(__file__).parents[1] / "native/sandbox/probes.c"
DRIVER = LIB / "test" / "cuda-probes.so"
PROBES = tuple(
    dict.fromkeys(re.findall(r"PROBE\((\w+)\)", SOURCE.read_text())) if SOURCE.is_file() else ()
)
PROBES = tuple(name for name in PROBES if name != "f")
#: what root may do on any host, and does here to show that the probes notice
ROOT_MAY = (
    "shadow", "passwd", "secret", "host_process", "make_file", "sysctl",
    "make_node", "make_directory", "name_handle", "change_root", "internet", "netlink", "packet",
    "unix_socket", "keeper_socket", "abstract_socket", "trace", "read_memory", "kill_target",
    "kill_thread", "pidfd", "affinity", "limits", "new_mounts", "clone_user", "fork_process",
    "set_user", "set_personality", "terminal",
)  # fmt: skip
pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif("VGPUMGR_TEST_LIB" in os.environ, reason="sanitizers have no sandbox"),
]


@dataclass
class Outcome:
    """What a probe said, or how its worker ended."""

    said: str | None
    ended: str

    @property
    def escaped(self) -> bool:
        return self.said == "done"

    @property
    def held(self) -> bool:
        return "signal 31" in self.ended or self.said not in (None, "done", "unknown")


@dataclass
class Surroundings:
    """What a probe finds outside: a process, a file, sockets by path and by name."""

    env: dict[str, str]
    directory: Path

    def run(self, probe: str, *, confined: bool) -> Outcome:
        keeper = Keeper(self.directory / f"{probe}-{confined}")
        env = self.env | {"VGPUMGR_PROBE": probe, "VGPUMGR_PROBE_FILTERS": "2" if confined else "0"}
        options = KeeperOptions(
            worker=WORKER,
            worker_args=("--cuda", str(DRIVER)),
            shm_size_bytes=1 << 20,
            env=env | {"VGPUMGR_PROBE_SOCKET": str(keeper.control_socket)},
            confined=confined,
        )
        keeper.start(options)
        try:
            return self._await(keeper, probe)
        finally:
            keeper.stop()

    def _await(self, keeper: Keeper, probe: str) -> Outcome:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            text = keeper.worker_log.read_text() if keeper.worker_log.exists() else ""
            said = re.search(rf"said: probe {probe} (.*)$", text, re.MULTILINE)
            ended = re.search(r"session .* killed by signal .*", text)
            if said or ended:
                return Outcome(said[1] if said else None, ended[0] if ended else "")
            time.sleep(0.01)
        raise AssertionError(f"{probe} neither ended nor said anything")


@contextmanager
def surround() -> Iterator[Surroundings]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vge")))
        secret = directory / "secret"
        secret.write_text("x")
        victim = subprocess.Popen(["sleep", "1000"])
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"\0vgpumgr-probe-{os.getpid()}")
        listener.listen()
        env = {
            "VGPUMGR_PROBE_PID": str(victim.pid),
            "VGPUMGR_PROBE_FILE": str(secret),
            "VGPUMGR_PROBE_ABSTRACT": f"vgpumgr-probe-{os.getpid()}",
        }
        yield Surroundings(env, directory)


@pytest.fixture(scope="module")
def surroundings() -> Iterator[Surroundings]:
    with surround() as found:
        yield found


def test_there_are_enough_of_them() -> None:
    assert len(PROBES) >= 70
    assert set(ROOT_MAY) <= set(PROBES)


@pytest.mark.parametrize("probe", PROBES)
def test_no_way_leads_out(surroundings: Surroundings, probe: str) -> None:
    outcome = surroundings.run(probe, confined=True)
    assert not outcome.escaped, outcome
    assert outcome.held, outcome


@pytest.mark.skipif(os.geteuid() != 0, reason="shows what root may do")
@pytest.mark.parametrize("probe", ROOT_MAY)
def test_the_probes_notice_a_worker_without_a_sandbox(
    surroundings: Surroundings, probe: str
) -> None:
    assert surroundings.run(probe, confined=False).escaped


def test_a_filter_that_only_logs_lets_them_pass(surroundings: Surroundings) -> None:
    directory = surroundings.directory / "log"
    directory.mkdir()
    quiet = Surroundings(surroundings.env | {"VGPUMGR_WORKER_FILTER": "log"}, directory)
    assert quiet.run("fork_process", confined=True).escaped


def main(probes: list[str]) -> int:
    """Without a sandbox, for who has another lock: what each probe said, as JSON."""
    with surround() as found:
        print(json.dumps({probe: found.run(probe, confined=False).said for probe in probes}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
