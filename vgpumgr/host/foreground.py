"""A command in the foreground in the place of this program, and the agent that serves it.

The command keeps terminal, directory, streams and process group of this process. A signal reaches it once:
the terminal sends its own to both, what another process sends to this one alone is passed on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vgpumgr.errors import ChannelStartError, CommandNotExecutableError, CommandNotFoundError

#: the worker is ready, and is greeted over shared memory or a socket of this host
AGENT_TIMEOUT_S = 60.0
_POLL_S = 0.02
#: how soon the command has a signal that another thread got
_LOOK_S = 0.5
_PR_SET_PDEATHSIG = 1
#: from the kernel: of the terminal, to all that are in the foreground
_SI_KERNEL = 0x80
_PASSED_ON = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
#: these end this program
_ENDING = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def find_program(command: str) -> str:
    """The file that a shell would execute. Raises CommandNotFoundError, CommandNotExecutableError."""
    places = [command]
    if "/" not in command:
        directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
        places = [os.path.join(each or ".", command) for each in directories]  # noqa: PTH118
    there = [place for place in places if os.path.exists(place)]  # noqa: PTH110
    for place in there:
        if os.path.isfile(place) and os.access(place, os.X_OK):  # noqa: PTH113
            return place
    if there:
        directory = os.path.isdir(there[0])  # noqa: PTH112
        raise CommandNotExecutableError(
            f"cannot execute {command}",
            why=f"{there[0]} is {'a directory' if directory else 'not executable for this user'}",
            hint=f"ls -l {there[0]}",
        )
    raise CommandNotFoundError(
        f"there is no command {command}",
        why="PATH has none" if "/" not in command else "there is no such file",
        hint="its path, such as ./COMMAND",
    )


class Agent:
    """A process that ends with this one, of whatever kind this one's end is. It has no terminal."""

    def __init__(self, words: Sequence[str]) -> None:
        """Starts it. Raises ChannelStartError."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        try:
            self._process = _start(
                words,
                signal.SIGKILL,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ChannelStartError(
                "the guest agent of the command does not start", cause=str(error)
            ) from error

    def wait(self, condition: Callable[[], bool]) -> bool:
        """Polls until the condition holds; False if the agent ends before, or in time."""
        end_s = time.monotonic() + AGENT_TIMEOUT_S
        while not condition():
            if self._process.poll() is not None or time.monotonic() > end_s:
                return False
            time.sleep(_POLL_S)
        return True

    def describe_end(self) -> str | None:
        """How it ended; None: it runs."""
        code = self._process.poll()
        return None if code is None else f"it ended with status {code}"

    def read_log(self) -> str:
        """What it has written."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()

    def stop(self) -> None:
        """Ends it; ended is no error."""
        self._process.kill()
        self._process.wait()
        self._log.close()


def run_in_foreground(
    program: str,
    words: Sequence[str],
    environ: Mapping[str, str],
    ask: Callable[[], signal.Signals | None] = lambda: None,
) -> int:
    """Runs the file ``program`` with these words, the first of which is its name, to its end. Answers what
    a shell would: its status, or 128 and the number of the signal that ended it. It is asked to end
    (SIGTERM) where this process is killed. ``ask`` is called again and again, and what it answers is sent to it, too.

    Raises CommandNotExecutableError.
    """
    # signals are awaited; one that another thread of this process gets meanwhile comes by its handler
    others: list[int] = []
    heard = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    try:
        with _handling(lambda number, _frame: others.append(number), _PASSED_ON):
            try:
                child = _start(words, signal.SIGTERM, executable=program, env=dict(environ))
            except OSError as error:
                raise CommandNotExecutableError(
                    f"cannot execute {words[0]}", cause=str(error), hint=f"file {program}"
                ) from error
            while child.poll() is None:
                _pass_on(signal.sigtimedwait(heard, _LOOK_S), others, child)
                if (wanted := ask()) is not None:
                    child.send_signal(wanted)
            # what came after its end
            while signal.sigtimedwait(_PASSED_ON, 0) is not None:
                pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _pass_on(
    heard: signal.struct_siginfo | None, others: list[int], child: subprocess.Popen[bytes]
) -> None:
    if heard is not None and heard.si_signo != signal.SIGCHLD and heard.si_code != _SI_KERNEL:
        child.send_signal(heard.si_signo)
    while others:
        child.send_signal(others.pop(0))


def _start(words: Sequence[str], last: signal.Signals, **how: Any) -> subprocess.Popen[bytes]:
    """A child that gets the signal ``last`` when this process ends, and has none blocked. Raises OSError."""
    parent, libc = os.getpid(), ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(last), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + int(last))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return subprocess.Popen(list(words), preexec_fn=prepare, **how)


def _end(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(f"{signal.Signals(number).name}: interrupted")


def _wait(_number: int, _frame: object) -> None:
    """Nothing; SIG_IGN would be inherited by children."""


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt, but for those that are ignored (nohup)."""
    with _handling(_end, _ENDING):
        yield


@contextmanager
def ending_later() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP do nothing: what is done is short, and must be done."""
    with _handling(_wait, _ENDING):
        yield


@contextmanager
def _handling(
    handler: Callable[[int, Any], None], numbers: Sequence[signal.Signals]
) -> Iterator[None]:
    known = {number: signal.getsignal(number) for number in numbers}
    own = [number for number, before in known.items() if before is not signal.SIG_IGN]
    for number in own:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in own:
            signal.signal(number, known[number])
