"""The machine's lock between processes: first come, first served; nobody dead is waited for; a waiter says for whom."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.clock import FakeClock
from vgpumgr.app.application import check_change
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.errors import LockHeldError
from vgpumgr.host.lock import DAEMON_LOCK, lock_file, reporting_waits

ROOT = Path(__file__).parents[2]
FORK = multiprocessing.get_context("fork")
#: takes the lock, says so, and holds it until its standard input ends
HOLD = """\
import sys
from pathlib import Path
from typing import Any, cast
from vgpumgr.host.lock import DAEMON_LOCK, lock_file, reporting_waits
with reporting_waits(lambda text: print(text, file=sys.stderr, flush=True)):
    with lock_file(Path(sys.argv[1]), timeout_s=30, what=sys.argv[2]):
        print("held", flush=True)
        sys.stdin.read()
"""
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run/vgpumgr.lock"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Starts processes that take the lock; all of them are gone in the end."""
    started: list[subprocess.Popen[str]] = []

    def begin(what: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", HOLD, path, what], text=True, cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(child)
        return child

    yield begin
    for child in started:
        with child:
            child.kill()


def expect_held(child: subprocess.Popen[str]) -> None:
    assert child.stdout
    assert child.stdout.readline() == "held\n"


def count_waiting(path: Path) -> int:
    return len([p for p in list_queue(path) if not p.name.startswith(".")])


def list_queue(path: Path) -> list[Path]:
    queue = path.with_name(f"{path.name}.queue")
    # the lock's file is there before its queue
    return list(queue.iterdir()) if queue.exists() else []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def let_go(child: subprocess.Popen[str]) -> None:
    assert child.stdin
    child.stdin.close()


def work(path: Path, number: int, rounds: int, log: Path, hold_s: float, timeout_s: float) -> None:
    with log.open("a") as file:
        for turn in range(rounds):
            asked_s = time.monotonic()
            try:
                with lock_file(path, timeout_s=timeout_s):
                    got_s = time.monotonic()
                    time.sleep(hold_s)
                    file.write(f"{number} {turn} {asked_s} {got_s} {time.monotonic()}\n")
                    file.flush()
            except LockHeldError as error:
                file.write(f"late {error}\n")


def run_clients(path: Path, clients: int, *rest: float) -> Sequence[Sequence[float]]:
    """What each turn of each client says: number, turn, asked, got, ended; in the order of asking."""
    log = path.with_name("log")
    path.parent.mkdir(exist_ok=True)
    rounds, hold_s, timeout_s = rest
    children = [
        FORK.Process(target=work, args=(path, number, int(rounds), log, hold_s, timeout_s))
        for number in range(clients)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    lines = log.read_text().splitlines()
    assert not [line for line in lines if line.startswith("late")]
    return sorted(([float(word) for word in line.split()] for line in lines), key=lambda r: r[2])


def test_eight_clients_and_two_hundred_turns(path: Path) -> None:
    rows = run_clients(path, 8, 25, 0.01, 1.0)
    assert len(rows) == 200
    by_got = sorted(rows, key=lambda row: row[3])
    assert all(a[4] <= b[3] for a, b in itertools.pairwise(by_got))
    # of two that asked one clearly after the other, the first was first
    overtaken = [
        (first, second)
        for at, second in enumerate(by_got)
        for first in by_got[at + 1 :]
        if first[2] + 0.05 < second[2]
    ]
    assert not overtaken
    # nobody waits much longer than the seven others hold it
    waits = sorted(row[3] - row[2] for row in rows)
    assert waits[-1] < 10 * max(0.05, waits[100])
    assert count_waiting(path) == 0


def test_a_queue_that_moves_is_no_time_out(path: Path) -> None:
    rows = run_clients(path, 6, 1, 0.4, 1.0)
    assert max(row[3] - row[2] for row in rows) > 1.5


def test_only_the_time_in_which_nothing_moves_counts(path: Path, start: Start) -> None:
    expect_held(start("attach vm01"))
    began_s = time.monotonic()
    with pytest.raises(LockHeldError), lock_file(path, timeout_s=0.4):
        pass
    assert 0.4 <= time.monotonic() - began_s < 5
    assert count_waiting(path) == 1


def test_the_error_names_the_holder_and_who_waits(path: Path, start: Start) -> None:
    holder = start("attach vm01")
    expect_held(holder)
    start("detach vm02")
    wait_until(lambda: count_waiting(path) == 2)
    with pytest.raises(LockHeldError) as caught, lock_file(path, timeout_s=0.1):
        pass
    (held_by,) = caught.value.held_by
    assert f"process {holder.pid}: attach vm01" in held_by
    assert "1 other process waits before this one" in str(caught.value.why)
    assert str(path) in str(caught.value.cause)


def test_a_holder_that_gives_no_words_is_named_by_its_command(path: Path, start: Start) -> None:
    holder = start("")
    expect_held(holder)
    with pytest.raises(LockHeldError) as caught, lock_file(path, timeout_s=0):
        pass
    assert f"process {holder.pid}" in caught.value.held_by[0]
    assert Path(sys.executable).name in caught.value.held_by[0]


def test_a_waiter_says_for_whom_after_a_second(path: Path, start: Start) -> None:
    holder = start("attach vm01")
    expect_held(holder)
    second = start("detach vm02")
    wait_until(lambda: count_waiting(path) == 2)
    third = start("recover")
    wait_until(lambda: count_waiting(path) == 3)
    assert second.stderr
    assert third.stderr
    line = second.stderr.readline()
    assert line == f"waiting for process {holder.pid}: attach vm01 ({describe(holder)})\n"
    assert "1 other process waits before this one" in third.stderr.readline()
    let_go(holder)
    expect_held(second)
    # the new holder is named in its turn
    assert f"process {second.pid}: detach vm02" in third.stderr.readline()


def describe(child: subprocess.Popen[str]) -> str:
    words = Path(f"/proc/{child.pid}/cmdline").read_bytes().decode().split("\0")
    return " ".join([Path(words[0]).name, *words[1:]]).strip().partition("\n")[0][:60]


def test_a_short_wait_says_nothing(path: Path) -> None:
    heard: list[str] = []
    with ThreadPoolExecutor(1) as pool, reporting_waits(heard.append):
        with lock_file(path):
            waiting = pool.submit(lambda: work(path, 0, 1, path.with_name("log"), 0, 10))
            time.sleep(0.3)
        waiting.result()
    assert heard == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_holder_blocks_nobody(path: Path, start: Start, number: int) -> None:
    holder = start("attach vm01")
    expect_held(holder)
    second = start("detach vm02")
    wait_until(lambda: count_waiting(path) == 2)
    holder.send_signal(number)
    began_s = time.monotonic()
    expect_held(second)
    assert time.monotonic() - began_s < 2
    holder.wait()
    assert count_waiting(path) == 1


def test_a_killed_waiter_blocks_nobody_and_leaves_nothing(path: Path, start: Start) -> None:
    holder = start("attach vm01")
    expect_held(holder)
    waiting = []
    for number in range(4):
        waiting.append(start(f"number {number}"))
        wait_until(lambda: count_waiting(path) == len(waiting) + 1)
    for child in (waiting[0], waiting[2]):
        child.kill()
        child.wait()
    let_go(holder)
    expect_held(waiting[1])
    let_go(waiting[1])
    expect_held(waiting[3])
    let_go(waiting[3])
    waiting[3].wait()
    wait_until(lambda: count_waiting(path) == 0)


def test_all_killed_at_once_leave_a_free_lock(path: Path, start: Start) -> None:
    children = [start(f"number {number}") for number in range(4)]
    wait_until(lambda: path.exists() and count_waiting(path) == 4)
    for child in children:
        child.kill()
        child.wait()
    with lock_file(path, timeout_s=1):
        assert count_waiting(path) == 1
    assert list_queue(path) == []


def test_a_stopped_waiter_is_overtaken(path: Path, start: Start) -> None:
    holder = start("attach vm01")
    expect_held(holder)
    stopped = start("stopped")
    wait_until(lambda: count_waiting(path) == 2)
    last = start("last")
    wait_until(lambda: count_waiting(path) == 3)
    stopped.send_signal(signal.SIGSTOP)
    let_go(holder)
    expect_held(last)
    let_go(last)
    stopped.send_signal(signal.SIGCONT)
    expect_held(stopped)


def test_a_waiter_sleeps(path: Path, start: Start) -> None:
    expect_held(start("attach vm01"))
    waiter = start("detach vm02")
    wait_until(lambda: count_waiting(path) == 2)
    before = count_switches(waiter.pid)
    time.sleep(2)
    assert count_switches(waiter.pid) - before < 20


def count_switches(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError("no such line")


def hold_in_child(path: Path, forked: Event, over: Event) -> None:
    with lock_file(path):
        if os.fork() == 0:
            # a grandchild that outlives the holder, and has its descriptors
            forked.set()
            over.wait(30)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_child_of_a_dead_holder_does_not_hold_the_lock(path: Path) -> None:
    forked, over = FORK.Event(), FORK.Event()
    child = FORK.Process(target=hold_in_child, args=(path, forked, over))
    child.start()
    child.join()
    assert forked.wait(10)
    with lock_file(path, timeout_s=2):
        over.set()


def test_a_child_leaves_the_lock_of_its_parent_alone(path: Path) -> None:
    with lock_file(path):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with lock_file(path, timeout_s=0.2):
                    os.write(write_end, b"held")
            except LockHeldError:
                os.write(write_end, b"late")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read_end, 4) == b"late"
        os.close(read_end)
        os.close(write_end)
        assert count_waiting(path) == 1


def test_threads_of_one_process_take_turns(path: Path) -> None:
    order: list[int] = []

    def take(number: int) -> None:
        with lock_file(path, timeout_s=5):
            order.append(number)

    with lock_file(path):
        threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: count_waiting(path) == number + 2)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert order == list(range(6))


def test_a_lock_file_that_is_removed_meanwhile_is_made_again(path: Path, start: Start) -> None:
    """As a simulated machine's reboot does; two must not hold two files of one name."""
    holder = start("attach vm01")
    expect_held(holder)
    second = start("detach vm02")
    wait_until(lambda: count_waiting(path) == 2)
    path.unlink()
    let_go(holder)
    expect_held(second)
    with pytest.raises(LockHeldError), lock_file(path, timeout_s=0.2):
        pass


def test_time_may_be_the_tests_own(path: Path) -> None:
    clock = FakeClock()
    began_s = clock.now_s
    with lock_file(path), pytest.raises(LockHeldError), lock_file(path, 60.0, clock):
        pass
    assert clock.now_s - began_s >= 60


def test_no_room_for_a_queue_is_no_reason_to_change_nothing(path: Path) -> None:
    """As on a full disk: then waiting is polling, and the lock is as good as ever."""
    path.parent.mkdir()
    path.with_name(f"{path.name}.queue").write_text("no directory")
    with lock_file(path, timeout_s=1):
        with pytest.raises(LockHeldError) as caught, lock_file(path, timeout_s=0.2):
            pass
        assert f"process {os.getpid()}" in caught.value.held_by[0]


def test_asking_whether_a_daemon_runs_is_no_daemon(tmp_path: Path) -> None:
    """Eight commands at once: none of them takes another for a daemon."""
    with lock_file(tmp_path / DAEMON_LOCK):
        pass
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(ask_often, tmp_path) for _ in range(8)]:
            done.result()


def ask_often(run_dir: Path) -> None:
    for _ in range(300):
        check_change(run_dir)


def test_a_daemon_is_named(tmp_path: Path) -> None:
    with (
        lock_file(tmp_path / DAEMON_LOCK, what="daemon"),
        pytest.raises(LockHeldError, match="a daemon owns this machine") as caught,
    ):
        check_change(tmp_path)
    assert f"process {os.getpid()}" in caught.value.held_by[0]


class Starting:
    """A daemon that owns the machine, and listens when it has been looked for twice."""

    def __init__(self) -> None:
        self.looked, self.asked = 0, list[str]()

    def find(self) -> Starting | None:
        self.looked += 1
        return self if self.looked > 2 else None

    def call(self, operation: str, **_: object) -> dict[str, Any]:
        self.asked.append(operation)
        return {"by": "daemon"}


class Here:
    """An application of this process that must not be asked."""

    def record_logged(self) -> None: ...

    def drain_gpu(self, **_: object) -> None:
        raise AssertionError("two writers")


def test_a_change_goes_to_the_daemon_that_has_just_started(tmp_path: Path) -> None:
    """It had the machine, and did not listen yet when the command looked for it."""
    daemon = Starting()
    backend = LocalBackend(cast(Any, Here()), tmp_path, find_daemon=daemon.find)
    with lock_file(tmp_path / DAEMON_LOCK, what="daemon"):
        assert backend.call("drain_gpu", gpu="0") == {"by": "daemon"}
    assert (daemon.looked, daemon.asked) == (3, ["drain_gpu"])


def test_a_daemon_that_never_listens_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpumgr.cli.backend.DAEMON_START_S", 0.2)
    backend = LocalBackend(cast(Any, Here()), tmp_path)
    with (
        lock_file(tmp_path / DAEMON_LOCK, what="daemon"),
        pytest.raises(LockHeldError, match="does not answer"),
    ):
        backend.call("drain_gpu", gpu="0")
