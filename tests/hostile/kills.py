"""``python -m tests.hostile.kills [ROUNDS] [ring|serial|host]``: random kills while guest processes work.

``ring`` and ``serial`` kill a part of a channel: a session, the worker, its launcher, the keeper, the agent, a guest
process. ``host`` kills a part of a slice that a daemon gave to a command, the daemon and the command included. After
each kill every process answers or ends, the next one works, and nothing is left of what was killed. 300
rounds unless said.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.hostile.scene import LOOP, ONCE
from tests.lives.__main__ import list_descendants
from tests.sim.test_run import PROGRAM, PROGRAM_AND_MORE, PYTHON, RUN
from tests.support.run_host import Host
from tests.unit.calls_rig import run_python, simulated_channel, start_python
from tests.unit.transport_rig import PATIENCE_S, Rig, alive, open_fds, read_line, wait_for
from vgpumgr.virtio.keeper import KeeperError

PROCESSES = 3
CGROUPS = Path("/sys/fs/cgroup")


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def is_answering(process: subprocess.Popen[str]) -> bool:
    """Whether it has worked since; a process that does neither that nor end fails the test."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write("\n")
        process.stdin.flush()
    assert select.select([process.stdout], [], [], PATIENCE_S)[0], "a guest process hangs"
    return bool(read_line(process))


def read_cgroups(pid: int) -> set[Path]:
    """The directories of its cgroups, in each hierarchy."""
    found = set[Path]()
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            found.add(CGROUPS / controllers.removeprefix("name=") / path.lstrip("/"))
    return found


class ChannelKills:
    """Kills of a channel's parts, one after the other."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig, self.chance = rig, random.Random(seed)
        self.done = Counter[str]()
        self.seen = set[int]()
        self.files = self.list_files()

    def list_files(self) -> set[str]:
        return {path.name for path in self.rig.keeper.directory.iterdir()} - {"user"}

    def list_tree(self) -> set[int]:
        keeper = self.rig.status().keeper_pid
        return {keeper, *list_descendants(keeper)}

    def choose(self, guests: list[subprocess.Popen[str]]) -> tuple[str, int]:
        status = self.rig.status()
        launcher = list_descendants(status.keeper_pid)[0]
        assert self.rig.agent is not None
        targets = {
            "session": self.chance.choice(status.lanes).session_pid,
            "worker": status.worker.pid,
            "launcher": launcher,
            "keeper": status.keeper_pid,
            "agent": self.rig.agent.pid,
            "process": self.chance.choice(guests).pid,
        }
        name = self.chance.choice(sorted(targets))
        return name, targets[name]

    def repair(self, name: str) -> None:
        """What the daemon does for a keeper that is gone, and the guest's init for its agent."""
        if name in ("keeper", "launcher"):
            wait_for(lambda: not self.rig.keeper.is_running(), "the keeper ends")
            wait_for(self.restart_keeper, "another keeper")
        if name == "agent":
            self.rig.stop_agent(signal.SIGKILL)
            self.rig.start_agent()
        self.rig.wait_status(
            lambda s: s.worker.state == "ready" and s.guest.hello != "none", "the channel is back"
        )

    def restart_keeper(self) -> bool:
        with suppress(KeeperError):  # the last one still lets go of its lock
            self.rig.keeper.start(self.rig.options)
            return True
        return False

    def run_round(self) -> None:
        guests = [start_python(self.rig, LOOP) for _ in range(PROCESSES)]
        try:
            assert all(read_line(guest) == "up" for guest in guests)
            self.seen |= self.list_tree()
            name, target = self.choose(guests)
            time.sleep(self.chance.choice((0, 0, 0.001, 0.02)))
            kill(target)
            answering = sum(is_answering(guest) for guest in guests)
            if name in ("session", "process"):
                assert answering >= PROCESSES - 1, "a neighbour has suffered"
            self.done[name] += 1
        finally:
            for guest in guests:
                guest.kill()
                guest.communicate()
        self.repair(name)
        run_python(self.rig, ONCE)
        self.check_nothing_left()

    def check_nothing_left(self) -> None:
        status = self.rig.wait_status(lambda s: not s.lanes and not s.sessions.stuck, "no lanes")
        wait_for(lambda: len(list_descendants(status.worker.pid)) == 1, "only the spare is left")
        assert status.totals.memory_bytes == 0
        wait_for(
            lambda: not any(map(alive, self.seen - self.list_tree())), "what was there has ended"
        )
        self.seen &= self.list_tree()
        assert self.list_files() <= self.files, self.list_files() - self.files

    def run(self, rounds: int) -> str:
        self.run_round()
        assert self.rig.agent is not None
        most = open_fds(self.rig.status().keeper_pid)
        for _ in range(rounds - 1):
            self.run_round()
        wait_for(lambda: open_fds(self.rig.status().keeper_pid) <= most, "descriptors are closed")
        tree = self.list_tree()
        self.rig.stop_agent()
        self.rig.keeper.stop()
        wait_for(lambda: not any(map(alive, tree)), "all end")
        assert self.list_files() <= {"keeper.log", "worker.log"}
        return ", ".join(f"{name} {count}" for name, count in sorted(self.done.items()))


# ---- the daemon, and what it made ----


def find_processes(root: Path, name: str) -> list[int]:
    """Processes of this program whose words name the machine's directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name == name and any(str(root) in word for word in words):
                found.append(int(entry.name))
    return found


class HostKills:
    """Kills of the daemon, and of the parts of what it gave to a command."""

    TARGETS = ("daemon", "keeper", "worker", "session", "agent", "command")

    def __init__(self, host: Host, seed: int) -> None:
        self.host, self.chance = host, random.Random(seed)
        self.done = Counter[str]()
        self.cgroups = set[Path]()
        self.daemon = self.start_daemon()

    def start_daemon(self) -> subprocess.Popen[str]:
        process = self.host.start("daemon")

        def answers() -> bool:
            return self.host.call("op", "list", code=None).returncode == 0

        socket = next(iter(self.host.root.glob("*/host/run")), None)
        wait_for(lambda: socket is None or (socket / "vgpumgr.sock").exists(), "the daemon listens")
        wait_for(answers, "the daemon answers")
        return process

    def find(self, name: str, command: subprocess.Popen[str]) -> int:
        keepers = sorted(find_processes(self.host.root, "vgpumgr-keeper"))
        tree = [pid for pid in list_descendants(keepers[0]) if pid not in keepers]
        for pid in tree:
            self.cgroups |= read_cgroups(pid) - read_cgroups(os.getpid())
        finders: dict[str, Callable[[], int]] = {
            "daemon": lambda: self.daemon.pid,
            "keeper": lambda: keepers[0],
            "worker": lambda: tree[0],
            "session": lambda: tree[-1],
            "agent": lambda: find_processes(self.host.root, "vgpumgr-guestd")[0],
            "command": lambda: command.pid,
        }
        return finders[name]()

    def run_round(self, name: str) -> None:
        command = self.host.start(*RUN, *PYTHON, PROGRAM_AND_MORE)
        assert read_line(command) == "12345"
        target = self.find(name, command)
        kill(target)
        if name == "daemon":
            self.daemon.communicate()
        out, errors = command.communicate("\n", timeout=PATIENCE_S)
        if name == "daemon":
            assert (out, command.returncode) == ("more\n", 0), errors
            self.daemon = self.start_daemon()
        done = self.host.call(*RUN, *PYTHON, PROGRAM)
        assert done.stdout == "12345\n"
        self.host.call("recover")
        wait_for(lambda: self.host.list_left() == {}, "nothing is left")
        assert not [path for path in self.cgroups if path.exists()]
        self.done[name] += 1

    def run(self, rounds: int) -> str:
        names = list(self.TARGETS)
        self.chance.shuffle(names)
        for i in range(rounds):
            self.run_round(names[i] if i < len(names) else self.chance.choice(self.TARGETS))
        self.daemon.terminate()
        self.daemon.communicate(timeout=PATIENCE_S)
        return ", ".join(f"{name} {count}" for name, count in sorted(self.done.items()))


def run_on_host(root: Path, rounds: int, seed: int = 1) -> str:
    host = Host(root)
    sim = [sys.executable, "-m", "vgpumgr", "sim"]
    subprocess.run([*sim, "start", "dgx-a100"], env=host.env, check=True, capture_output=True)
    try:
        return HostKills(host, seed).run(rounds)
    finally:
        for process in host.started:
            process.kill()
            process.communicate()
        subprocess.run([*sim, "stop", "dgx-a100"], env=host.env, check=True, capture_output=True)


def main(words: list[str]) -> int:
    rounds, where = int(words[0]) if words else 300, (words[1:] or ["ring"])[0]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vgk") as root:
        if where == "host":
            found = run_on_host(Path(root), rounds)
        else:
            with simulated_channel(where, Path(root)) as rig:
                found = ChannelKills(rig, 1).run(rounds)
    print(f"{where}: {rounds} kills in {time.monotonic() - started:.0f} s ({found}); nothing left")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
