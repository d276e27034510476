"""Helper processes: where a call that may never return is made, with a deadline.

A helper answers one call after the other: a line of JSON each way over a socket pair. By its
deadline a call is answered or late. A late helper is never signalled: a signal frees no lock in the
kernel and can make the sleeper unkillable. It is recorded on disk, so that every later command can
show it, and left to finish. Ctrl-C does not reach it either: who presses it waits a moment for the
answer, since the call takes effect all the same, and after that the call is late.

    running    within the deadline
    late       past it; the caller has got HelperLateError
    stuck      still there after the grace period
    done       the process is gone: what it did must be observed again
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self

from vgpumgr.errors import (
    HelperDiedError,
    HelperLateError,
    HostResourceError,
    InternalError,
    TooManyStuckError,
    VgpumgrError,
)
from vgpumgr.host.clock import Clock, SystemClock
from vgpumgr.host.files import make_directory, replace_file
from vgpumgr.host.helper_server import HelperFaultError, serve
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import ProcessId, is_alive, read_identity, read_state
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.frozen import dataclass

__all__ = ["Helper", "HelperFaultError", "HelperState", "LateHelper", "LateRecords", "serve"]

GRACE_S = 10.0
#: for Python to start on a machine that is busy beyond measure; the deadline of a call counts from there
START_S = 120.0
MAX_STUCK = 32
#: how long an interrupted caller waits for the answer to what it has asked already
INTERRUPT_GRACE_S = 3.0
_MAX_ANSWER_BYTES = 64 << 20


class HelperState(StrEnum):
    """How far a recorded helper has got."""

    LATE = "late"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class LateHelper:
    """A helper past its deadline that still lives; ``scheduler_state`` D: asleep in the kernel.
    ``subject`` is what its call is about: a GPU's UUID; empty where the call is about none.
    """

    process: ProcessId
    what: str
    since_s: float
    state: HelperState
    scheduler_state: str | None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class _Record:
    """What a file says of a helper; its owner is the process that started it."""

    IGNORES_UNKNOWN: ClassVar[bool] = True

    pid: int
    start_ticks: int
    what: str
    since_s: float
    #: the wall clock may be set meanwhile; this one is the same for all processes of a boot
    since_monotonic_s: float
    subject: str = ""
    owner_pid: int = 0
    owner_start_ticks: int = 0

    @property
    def process(self) -> ProcessId:
        """The helper."""
        return ProcessId(self.pid, self.start_ticks)


class LateRecords:
    """The helpers of one machine: a file under its run directory for each that runs (``.run``), and for each that is
    late (``.json``). Failing to write one is no error of the call itself.
    """

    def __init__(self, run_dir: Path, clock: Clock | None = None) -> None:
        self._dir = run_dir / "late"
        self._clock = clock or SystemClock()

    def record(self, process: ProcessId, what: str, subject: str = "") -> None:
        """Notes that the helper is late."""
        self._write("json", process, what, subject, ProcessId(0, 0))

    def list_late(self) -> list[LateHelper]:
        """Helpers that still live, oldest first; records of those that are done are dropped."""
        found = [self._describe(record) for record in self._list("json")]
        return sorted(found, key=lambda late: late.since_s)

    def check_not_stuck(self, what: str, error: str) -> None:
        """Raises HelperLateError where a call of that name is late: another would only join it."""
        stuck = [late for late in self.list_late() if late.what == what]
        if stuck:
            raise HelperLateError(error, cause=f"process {stuck[0].process.pid} still runs")

    def note_start(self, process: ProcessId) -> None:
        """Notes a helper that starts, and its owner: if that is killed in the middle of a call, the helper still
        makes it.
        """
        owner = read_identity(os.getpid()) or ProcessId(os.getpid(), 0)
        self._write("run", process, "a call of a command that was killed", "", owner)

    def note_end(self, process: ProcessId) -> None:
        """Forgets a helper that its owner has seen the end of."""
        with suppress(OSError):
            self._path(process, "run").unlink()

    def list_running(self) -> list[ProcessId]:
        """Every helper that lives, idle or in a call."""
        return [record.process for record in self._list("run")]

    def list_orphans(self) -> list[LateHelper]:
        """Helpers that live though their owner does not: they may be in a call. Not those that are
        known to be late: what these do is known.
        """
        return [
            self._describe(record)
            for record in self._list("run")
            if not is_alive(ProcessId(record.owner_pid, record.owner_start_ticks))
            and not self._path(record.process, "json").exists()
        ]

    def _path(self, process: ProcessId, suffix: str) -> Path:
        return self._dir / f"{process.pid}-{process.start_ticks}.{suffix}"

    def _write(
        self, suffix: str, process: ProcessId, what: str, subject: str, owner: ProcessId
    ) -> None:
        since_s, since_monotonic_s = self._clock.wall_s(), self._clock.monotonic_s()
        record = _Record(
            process.pid,
            process.start_ticks,
            what,
            since_s,
            since_monotonic_s,
            subject,
            owner.pid,
            owner.start_ticks,
        )
        with suppress(OSError):
            make_directory(self._dir)
            replace_file(self._path(process, suffix), json.dumps(encode(record)))

    def _list(self, suffix: str) -> Iterator[_Record]:
        """The records of helpers that live; those of others are dropped."""
        for path in self._dir.glob(f"*.{suffix}"):
            record = None
            with suppress(OSError, ValueError):
                record = decode(_Record, json.loads(path.read_text()))
            if record is not None and is_alive(record.process):
                yield record
            else:
                path.unlink(missing_ok=True)
                path.with_suffix(".run").unlink(missing_ok=True)

    def check_room(self) -> None:
        """Raises TooManyStuckError where so many are stuck that one more would only join them."""
        late = self.list_late()
        if len(late) >= MAX_STUCK:
            raise TooManyStuckError(
                f"{len(late)} helper processes are stuck",
                why="no more are started: each new one would wait for the same lock",
                held_by=[f"process {entry.process.pid} ({entry.what})" for entry in late[:4]],
                hint="vgpumgr status",
            )

    def _describe(self, record: _Record) -> LateHelper:
        age_s = self._clock.monotonic_s() - record.since_monotonic_s
        state = HelperState.STUCK if age_s > GRACE_S else HelperState.LATE
        scheduler_state = read_state(record.pid)
        return LateHelper(
            record.process, record.what, record.since_s, state, scheduler_state, record.subject
        )


class _InterruptedError(Exception):
    """The caller was interrupted, and the answer did not come in time after that."""


class Helper:
    """One running helper. ``argv`` gets the number of its socket as last argument."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        records: LateRecords,
        clock: Clock | None = None,
    ) -> None:
        records.check_room()
        self._clock = clock or SystemClock()
        self._records = records
        self._buffer = b""
        self._late = False
        self._lost = False
        self._ready = False
        self._asked = False
        try:
            self._socket, self._process = _spawn(argv, env)
        except OSError as error:
            raise HelperDiedError(
                "a helper process cannot be started", cause=f"{argv[0]}: {error.strerror}"
            ) from error
        self._identity = read_identity(self._process.pid) or ProcessId(self._process.pid, 0)
        records.note_start(self._identity)

    @property
    def pid(self) -> int:
        """Process id of the helper."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it can take another call: alive, never late, and no answer of it was lost."""
        return not (self._late or self._lost) and self._process.poll() is None

    def call(
        self, method: str, params: Mapping[str, Any], timeout_s: float, what: str | None = None
    ) -> Any:
        """The handler's answer; ``what`` is the call in words, for messages and records. Raises
        HelperLateError, HelperDiedError, HelperFaultError; KeyboardInterrupt only after the answer.
        """
        what = what or method
        if self._late:
            raise self._late_error(f"{what} cannot be asked of a late helper")
        request = json.dumps({"method": method, "params": params}, default=encode) + "\n"
        self._await_start(what)
        self._asked = True
        try:
            line = self._ask(request.encode(), timeout_s)
        except (TimeoutError, _InterruptedError) as error:
            self._late = True
            self._records.record(self._identity, what, str(params.get("gpu", "")))
            interrupted = isinstance(error, _InterruptedError)
            how = "was interrupted, and" if interrupted else "has not answered"
            rest = "has not come back" if interrupted else f"within {timeout_s:g} s"
            raise self._late_error(f"{what} {how} {rest}") from None
        except OSError as error:
            self._lost = True
            raise self._died_error(what, error) from error
        return self._unpack(what, line)

    def close(self) -> None:
        """Hangs up; a helper that is not late ends by itself at once. One that was never asked has called nothing, may
        still be loading, and is not waited for.
        """
        self._socket.close()
        if not self._asked:
            self._process.kill()
        if not self._late:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2)
                self._records.note_end(self._identity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_start(self, what: str) -> None:
        """Until it can take calls. One that does not get there has called nothing, and is killed."""
        if self._ready:
            return
        try:
            self._read_line(self._clock.monotonic_s() + START_S)
        except OSError as error:
            self._lost = True
            self._process.kill()
            raise self._died_error(what, error) from error
        self._ready = True

    def _ask(self, request: bytes, timeout_s: float) -> bytes:
        deadline_s = self._clock.monotonic_s() + timeout_s
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(request)
            return self._read_line(deadline_s)
        except KeyboardInterrupt:
            self._outlast_interrupt(deadline_s)
            raise

    def _outlast_interrupt(self, deadline_s: float) -> None:
        """Takes the answer that is still to come: the next call would take it for its own."""
        try:
            self._read_line(min(deadline_s, self._clock.monotonic_s() + INTERRUPT_GRACE_S))
        except (TimeoutError, KeyboardInterrupt):
            raise _InterruptedError from None

    def _read_line(self, deadline_s: float) -> bytes:
        while b"\n" not in self._buffer:
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("end of file")
            self._buffer += data
            if len(self._buffer) > _MAX_ANSWER_BYTES:
                raise ConnectionAbortedError("the answer is too long")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _unpack(self, method: str, line: bytes) -> Any:
        answer = json.loads(line)
        if "fault" not in answer:
            return answer["result"]
        if answer["fault"] == "lack":
            data = answer["data"]
            raise HostResourceError(
                f"{method} failed", cause=data["cause"] or None, why=data["why"]
            )
        if answer["fault"] == "bug":
            raise InternalError(f"{method} failed", cause=answer["data"]["traceback"])
        raise HelperFaultError(answer["fault"], answer["data"])

    def _late_error(self, error: str) -> HelperLateError:
        state = read_state(self.pid)
        asleep = " in uninterruptible sleep" if state == "D" else ""
        return HelperLateError(
            error,
            cause=f"process {self.pid} still runs{asleep}; it is left alone and may yet finish",
            hint="vgpumgr status",
        )

    def _died_error(self, what: str, error: OSError) -> HelperDiedError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        code = self._process.returncode
        if code is None:
            how = f"gave no answer: {error}"
        else:
            how = f"ended by signal {-code}" if code < 0 else f"ended with status {code}"
        return HelperDiedError(f"{what} got no answer", cause=f"helper process {self.pid} {how}")


def _spawn(
    argv: Sequence[str], env: Mapping[str, str]
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    with ExitStack() as on_failure, theirs:
        on_failure.callback(ours.close)
        # its own session: neither Ctrl-C nor the end of this command signals it
        process = subprocess.Popen(
            [*argv, str(theirs.fileno())],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        on_failure.pop_all()
    return ours, process


class HelperOnDemand:
    """Calls of ``python -m module ARGUMENTS``, one process for all of them. A late or dead one is hung
    up, and the next call gets another; a late one then ends by itself when its call has come back.
    """

    def __init__(
        self, machine: Machine, module: str, *arguments: str, clock: Clock | None = None
    ) -> None:
        self._machine = machine
        self._words = (module, *arguments)
        self._clock = clock
        self._helper: Helper | None = None
        #: the machine's late helpers, of whatever module
        self.records = LateRecords(machine.run_dir, clock)

    def start_early(self) -> None:
        """Starts it now; if it cannot start, the first call says why."""
        with suppress(VgpumgrError):
            self._take()

    def call(
        self, method: str, params: Mapping[str, Any], timeout_s: float, what: str | None = None
    ) -> Any:
        """See ``Helper.call``; may also raise TooManyStuckError."""
        helper = self._take()
        try:
            return helper.call(method, params, timeout_s, what)
        except (HelperLateError, HelperDiedError):
            self.close()
            raise

    @property
    def has_ended(self) -> bool:
        """Whether there was one that takes no more calls."""
        return self._helper is not None and not self._helper.is_usable

    def close(self) -> None:
        """Ends the helper; the next call would start another."""
        if self._helper is not None:
            self._helper.close()
            self._helper = None

    def _take(self) -> Helper:
        if self._helper is None or not self._helper.is_usable:
            self.close()
            self._helper = self._start()
        return self._helper

    def _start(self) -> Helper:
        argv = [sys.executable, "-m", *self._words]
        return Helper(argv, self._machine.child_env(), self.records, self._clock)
