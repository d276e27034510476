"""Helper processes: answers, deadlines, deaths. The helpers are real processes running a small script."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpumgr.errors import HelperDiedError, HelperLateError, InternalError, TooManyStuckError
from vgpumgr.host import helper as helpers
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.helper import (
    GRACE_S,
    MAX_STUCK,
    Helper,
    HelperFaultError,
    HelperOnDemand,
    HelperState,
    LateRecords,
)
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import ProcessId, is_alive, read_identity

SCRIPT = """
import os, signal, sys, time
from vgpumgr.host.helper import HelperFaultError, serve

class Handlers:
    def add(self, a, b):
        return a + b
    def big(self, size):
        return "x" * size
    def wait_for(self, path):
        # a directory that has gone with its test has no more to say
        while not os.path.exists(path) and os.path.exists(os.path.dirname(path)):
            time.sleep(0.01)
        return "at last"
    def refuse(self):
        raise HelperFaultError("nvml", {"code": 19})
    def crash(self):
        os.kill(os.getpid(), signal.SIGKILL)
    def leave(self):
        os._exit(3)
    def stumble(self):
        raise KeyError("surprise")

serve(int(sys.argv[1]), Handlers())
"""
LONG_S = 60.0


class FakeClock:
    """Real time, of which the test lets more pass; it may set the wall clock, too."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.set_s = 0.0

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead_s

    def wall_s(self) -> float:
        return time.time() + self.ahead_s + self.set_s

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def wait(self, descriptor: int, timeout_s: float) -> bool:
        return SystemClock().wait(descriptor, timeout_s)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def records(tmp_path: Path, clock: FakeClock) -> LateRecords:
    return LateRecords(tmp_path / "run", clock)


@pytest.fixture
def helper(tmp_path: Path, records: LateRecords) -> Iterator[Helper]:
    script = tmp_path / "helper.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).parents[2])
    with Helper([sys.executable, str(script)], {"PYTHONPATH": root}, records) as running:
        yield running


def wait_until_gone(process: ProcessId) -> None:
    deadline = time.monotonic() + LONG_S
    while is_alive(process):
        assert time.monotonic() < deadline, "the helper still runs"
        time.sleep(0.01)


def test_calls_are_answered_in_turn(helper: Helper) -> None:
    assert [helper.call("add", {"a": n, "b": 1}, LONG_S) for n in range(5)] == [1, 2, 3, 4, 5]
    assert len(helper.call("big", {"size": 3 << 20}, LONG_S)) == 3 << 20


def test_a_fault_crosses_with_its_data(helper: Helper) -> None:
    with pytest.raises(HelperFaultError) as caught:
        helper.call("refuse", {}, LONG_S)
    assert (caught.value.kind, caught.value.data) == ("nvml", {"code": 19})
    assert helper.call("add", {"a": 1, "b": 1}, LONG_S) == 2


def test_a_bug_in_the_helper_is_told_with_its_traceback(helper: Helper) -> None:
    with pytest.raises(InternalError) as caught:
        helper.call("stumble", {}, LONG_S)
    assert "KeyError: 'surprise'" in str(caught.value.cause)
    with pytest.raises(InternalError):
        helper.call("_private", {}, LONG_S)


@pytest.mark.parametrize(("method", "how"), [("crash", "by signal 9"), ("leave", "with status 3")])
def test_a_dead_helper_is_reported(helper: Helper, method: str, how: str) -> None:
    with pytest.raises(HelperDiedError) as caught:
        helper.call(method, {}, LONG_S)
    assert how in str(caught.value.cause)
    assert not helper.is_usable


def test_a_late_helper_is_recorded_and_left_alone(
    helper: Helper, records: LateRecords, clock: FakeClock, tmp_path: Path
) -> None:
    process = read_identity(helper.pid)
    assert process is not None
    go = tmp_path / "go"
    with pytest.raises(HelperLateError) as caught:
        helper.call("wait_for", {"path": str(go)}, 0.3)
    assert caught.value.id == "VG120"
    assert not helper.is_usable
    with pytest.raises(HelperLateError):
        helper.call("add", {"a": 1, "b": 1}, LONG_S)
    helper.close()
    assert is_alive(process)
    assert [(late.process, late.what, late.state) for late in records.list_late()] == [
        (process, "wait_for", HelperState.LATE)
    ]
    # whoever sets the wall clock makes it no older, and no younger
    for days in (-3, 3):
        clock.set_s = days * 86400.0
        assert records.list_late()[0].state is HelperState.LATE
    clock.ahead_s = GRACE_S + 1
    for days in (-3, 3):
        clock.set_s = days * 86400.0
        assert records.list_late()[0].state is HelperState.STUCK
    go.touch()
    wait_until_gone(process)
    assert records.list_late() == []


def test_a_helper_ends_when_its_owner_is_gone(helper: Helper) -> None:
    helper.call("add", {"a": 1, "b": 1}, LONG_S)
    process = read_identity(helper.pid)
    assert process is not None
    helper.close()
    wait_until_gone(process)


def test_one_that_was_never_asked_is_not_waited_for(records: LateRecords) -> None:
    """It has called nothing of a driver's, and may still be loading."""
    with Helper([sys.executable, "-c", "import time; time.sleep(600)"], {}, records) as loading:
        identity = read_identity(loading.pid)
    assert identity is not None
    assert not is_alive(identity)
    assert records.list_running() == []


def test_a_helper_has_a_session_of_its_own(helper: Helper) -> None:
    helper.call("add", {"a": 1, "b": 1}, LONG_S)
    assert os.getsid(helper.pid) == helper.pid != os.getsid(0)


def test_no_more_helpers_beyond_the_limit(records: LateRecords, tmp_path: Path) -> None:
    """The records are of living processes: this one, under start times that cannot be told apart."""
    own = read_identity(os.getpid())
    assert own is not None
    for number in range(MAX_STUCK):
        records.record(own, f"call {number}")
    assert len(records.list_late()) == 1
    directory = tmp_path / "run" / "late"
    text = next(directory.glob("*.json")).read_text()
    for number in range(MAX_STUCK - 1):
        (directory / f"copy-{number}.json").write_text(text)
    with pytest.raises(TooManyStuckError) as caught:
        Helper(["/bin/false"], {}, records)
    assert caught.value.held_by[0].startswith(f"process {own.pid}")


def test_broken_records_are_dropped(records: LateRecords, tmp_path: Path) -> None:
    directory = tmp_path / "run" / "late"
    directory.mkdir(parents=True)
    (directory / "1.json").write_text("{")
    (directory / "2.json").write_text('{"pid": "x"}')
    assert records.list_late() == []
    assert list(directory.iterdir()) == []


def test_a_program_that_cannot_be_started_is_no_surprise(records: LateRecords) -> None:
    with pytest.raises(HelperDiedError) as caught:
        Helper(["/nowhere/python"], {}, records)
    assert caught.value.cause == "/nowhere/python: No such file or directory"
    assert records.list_running() == []


def test_an_answer_without_end_is_refused_and_the_helper_with_it(
    helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of it would be taken for the answer to the next call."""
    monkeypatch.setattr(helpers, "_MAX_ANSWER_BYTES", 1 << 16)
    with pytest.raises(HelperDiedError) as caught:
        helper.call("big", {"size": 1 << 20}, LONG_S)
    assert "too long" in str(caught.value.cause)
    assert not helper.is_usable


class Interrupted:
    """A socket whose reader is interrupted by Ctrl-C, that often."""

    def __init__(self, real: socket.socket, times: int) -> None:
        self._real = real
        self._times = times

    def recv(self, size: int) -> bytes:
        if self._times > 0:
            self._times -= 1
            raise KeyboardInterrupt
        return self._real.recv(size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def interrupt(monkeypatch: pytest.MonkeyPatch, helper: Helper, times: int) -> None:
    monkeypatch.setattr(helper, "_socket", Interrupted(helper._socket, times))


def test_the_answer_to_an_interrupted_call_is_not_taken_for_the_next_one_s(
    helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "INTERRUPT_GRACE_S", LONG_S)
    assert helper.call("add", {"a": 0, "b": 0}, LONG_S) == 0
    interrupt(monkeypatch, helper, 1)
    with pytest.raises(KeyboardInterrupt):
        helper.call("add", {"a": 1, "b": 1}, LONG_S)
    assert helper.call("add", {"a": 20, "b": 22}, LONG_S) == 42


@pytest.mark.parametrize(("times", "grace_s"), [(1, 0.1), (2, LONG_S)], ids=["once", "twice"])
def test_an_interrupted_call_that_goes_on_is_late(
    helper: Helper,
    records: LateRecords,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    grace_s: float,
) -> None:
    """Whoever undoes must know that it may still take effect; a second Ctrl-C waits no longer."""
    monkeypatch.setattr(helpers, "INTERRUPT_GRACE_S", grace_s)
    assert helper.call("add", {"a": 0, "b": 0}, LONG_S) == 0
    interrupt(monkeypatch, helper, times)
    with pytest.raises(HelperLateError) as caught:
        helper.call("wait_for", {"path": str(tmp_path / "go")}, LONG_S, "wait for it")
    assert str(caught.value) == "wait for it was interrupted, and has not come back"
    assert [late.what for late in records.list_late()] == ["wait for it"]
    assert not helper.is_usable
    (tmp_path / "go").touch()


def test_a_call_interrupted_before_the_helper_is_there_is_not_made(
    helper: Helper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, helper, 1)
        with pytest.raises(KeyboardInterrupt):
            helper.call("wait_for", {"path": str(tmp_path / "go")}, LONG_S)
    assert helper.call("add", {"a": 20, "b": 22}, LONG_S) == 42


def test_a_slow_start_is_no_part_of_the_call(records: LateRecords) -> None:
    slow = [sys.executable, "-c", f"import time; time.sleep(2)\n{SCRIPT}"]
    with Helper(slow, os.environ, records) as helper:
        assert helper.call("add", {"a": 1, "b": 1}, 1) == 2


def test_a_helper_that_does_not_start_is_killed(
    records: LateRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "START_S", 0.2)
    never = Helper([sys.executable, "-c", "import time; time.sleep(600)"], os.environ, records)
    with never, pytest.raises(HelperDiedError, match="add got no answer") as caught:
        never.call("add", {"a": 1, "b": 1}, LONG_S)
    assert "ended by signal 9" in str(caught.value.cause)
    assert records.list_late() == []


@pytest.fixture
def on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HelperOnDemand]:
    """Its helper is the script above, as a module."""
    (tmp_path / "script_helper.py").write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    machine = Machine("test", tmp_path, tmp_path / "state", tmp_path / "run", "test:///default")
    calls = HelperOnDemand(machine, "script_helper")
    yield calls
    calls.close()


def test_one_helper_serves_all_calls_until_it_is_closed(on_demand: HelperOnDemand) -> None:
    assert on_demand.records.list_running() == []
    on_demand.start_early()
    (early,) = on_demand.records.list_running()
    assert [on_demand.call("add", {"a": n, "b": 1}, LONG_S) for n in range(2)] == [1, 2]
    assert on_demand.records.list_running() == [early]
    on_demand.close()
    assert on_demand.records.list_running() == []
    assert on_demand.call("add", {"a": 1, "b": 1}, LONG_S) == 2


def test_a_dead_helper_is_replaced_and_forgotten(on_demand: HelperOnDemand, tmp_path: Path) -> None:
    with pytest.raises(HelperDiedError):
        on_demand.call("crash", {}, LONG_S)
    assert list((tmp_path / "run" / "late").iterdir()) == []
    assert on_demand.call("add", {"a": 1, "b": 1}, LONG_S) == 2
    (second,) = on_demand.records.list_running()
    os.kill(second.pid, signal.SIGKILL)  # while nobody asks it anything
    wait_until_gone(second)
    assert on_demand.call("add", {"a": 2, "b": 2}, LONG_S) == 4


def test_a_late_helper_is_replaced_and_ends_by_itself(
    on_demand: HelperOnDemand, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with pytest.raises(HelperLateError) as caught:
        on_demand.call("wait_for", {"path": str(go)}, 0.3, "wait for it")
    assert str(caught.value) == "wait for it has not answered within 0.3 s"
    assert on_demand.call("add", {"a": 1, "b": 1}, LONG_S) == 2
    (late,) = on_demand.records.list_late()
    go.touch()
    wait_until_gone(late.process)
    assert on_demand.records.list_late() == []


def test_a_helper_that_cannot_start_early_says_so_at_the_first_call(
    on_demand: HelperOnDemand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    on_demand.start_early()
    with pytest.raises(HelperDiedError, match="cannot be started"):
        on_demand.call("add", {"a": 1, "b": 1}, LONG_S)


def test_the_helper_does_not_see_our_signals(helper: Helper) -> None:
    """Ctrl-C goes to the foreground process group; the helper is not in it."""
    assert os.getpgid(helper.pid) != os.getpgrp()
    assert signal.getsignal(signal.SIGINT) is not None
