"""Tries a channel of this host, as ``attach`` makes one, and takes it back: for ``vgpumgr doctor``.

Keeper, sandbox and worker are a VM's, with a driver that has no device (``native/trydriver``), so no GPU is touched.
The guest's agent stands in the place of QEMU, once for each transport, and ``vgpumgr-guest-check`` asks it for a lane.
A helper process does all this (``python -m vgpumgr.virtio.trial``): it ends what it has started when the command that
asked has been killed, too. What a helper that was killed left, the next one ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from vgpumgr.errors import ChannelStartError, VgpumgrError
from vgpumgr.host.files import DIRECTORY, make_directory, read_text
from vgpumgr.host.foreground import Agent
from vgpumgr.host.helper import HelperOnDemand
from vgpumgr.host.helper_server import serve
from vgpumgr.host.machine import LIB_DIR, Machine
from vgpumgr.host.process import read_state
from vgpumgr.model.codec import decode
from vgpumgr.model.frozen import dataclass
from vgpumgr.virtio.channel import LIVE_RING_BYTES, ChannelSpec, list_agent_options
from vgpumgr.virtio.keeper import AGENT_PROGRAM, Keeper, KeeperChannels, KeeperError
from vgpumgr.virtio.sandbox import ALLOW_UNCONFINED, FILTER, is_unconfined
from vgpumgr.virtio.sessions import KeeperStatus

GUEST_CHECK_PROGRAM = LIB_DIR / "guest" / "vgpumgr-guest-check"
DRIVER = LIB_DIR / "bin" / "try" / "libcuda.so.1"
TRANSPORTS = ("ring", "serial")
#: hidden, so that no operation takes it for the channel of an attachment
TRIED_ID = ".try"
#: from the keeper's start to the last answer, which a host without other load has within 0.2 s
DEADLINE_S = 3.0
#: until the helper is back, which also starts and cleans up; then it is left alone, and cleans up all the same
_ANSWER_S = 6.0
#: a keeper that needs longer hangs, even where the time is over
_KEEPER_ANSWER_S = 0.5
_POLL_S = 0.005
_WHAT = "the try of a channel"
_GPU_LINE = re.compile(r"^gpu 0 +(\w+) +(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it: ``passed`` are its steps in words, ``failed`` those that failed and why. ``gaps`` is what the
    worker's sandbox did not hold. ``log`` is the end of what the worker wrote, where a step failed.
    """

    passed: tuple[str, ...] = ()
    failed: dict[str, str] | None = None
    gaps: tuple[str, ...] = ()
    log: str = ""
    #: what to do about the error that ended it, where that says so
    hint: str = ""
    #: another command tries one, and nothing was done
    is_busy: bool = False


def try_channel(machine: Machine) -> Trial:
    """Tries it in a helper process. Raises HelperLateError, HelperDiedError, HostResourceError."""
    variables = {
        name: os.environ[name] for name in (ALLOW_UNCONFINED, FILTER) if name in os.environ
    }
    helper = HelperOnDemand(replace(machine, variables=variables), "vgpumgr.virtio.trial")
    helper.records.check_not_stuck(_WHAT, "an earlier try of a channel has not ended")
    try:
        params = {"run_dir": str(machine.run_dir), "deadline_s": DEADLINE_S}
        return decode(Trial, helper.call("run", params, _ANSWER_S, _WHAT))
    finally:
        helper.close()


class Handlers:
    """The helper's side."""

    def run(self, run_dir: str, deadline_s: float) -> Trial:
        """One try, from nothing to nothing."""
        directory = Path(run_dir) / "channels"
        make_directory(directory, DIRECTORY)
        end_s = time.monotonic() + deadline_s
        with _alone(directory, end_s) as is_alone:
            return _Try(Path(run_dir), end_s).run() if is_alone else Trial(is_busy=True)


@contextmanager
def _alone(directory: Path, end_s: float) -> Iterator[bool]:
    """Whether no other process tries a channel there until the end of the block."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while not (is_alone := _lock(descriptor)) and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        yield is_alone
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _StepError(Exception):
    """A step without which no other can be made has failed, and why."""

    def __init__(self, step: str, why: str) -> None:
        super().__init__(why)
        self.step = step


class _Try:
    def __init__(self, run_dir: Path, end_s: float) -> None:
        own = Machine(None, Path("/"), run_dir, run_dir, "", {"VGPUMGR_CUDA": str(DRIVER)})
        self._channels = KeeperChannels(own)
        self._paths = self._channels.paths(TRIED_ID)
        self._keeper = Keeper(Path(self._paths.ring).parent)
        self._begin_s = time.monotonic()
        self._end_s = end_s
        self._passed: list[str] = []
        self._failed: dict[str, str] = {}
        self._gaps: tuple[str, ...] = ()

    def run(self) -> Trial:
        """Raises nothing of its own: what fails is what it answers."""
        log = hint = ""
        try:
            self._clean()
            self._start()
            self._try_transports()
        except _StepError as error:
            self._failed[error.step] = str(error)
        except VgpumgrError as error:
            self._failed["keeper"] = _describe_error(error)
            hint = error.hint or ""
        finally:
            if self._failed:
                log = (read_text(self._keeper.worker_log) or "")[-300:]
            with suppress(VgpumgrError):
                self._clean()
        if self._keeper.directory.exists():
            self._failed["end"] = f"{self._keeper.directory} is left"
        return Trial(tuple(self._passed), self._failed or None, self._gaps, log, hint)

    def _start(self) -> None:
        """Keeper, sandbox and worker, as ``attach`` starts them."""
        confined = not is_unconfined(os.environ)
        self._channels.start(
            ChannelSpec(
                id=TRIED_ID,
                vm_name="",
                cuda_device="a driver without a GPU",
                ring=True,
                serial=True,
                memory_bytes=LIVE_RING_BYTES,
                confined=confined,
            )
        )
        self._note("keeper: its memory is sealed, and its sockets are there")
        while (worker := self._read_status("worker").worker).state != "ready":
            if worker.message or time.monotonic() > self._end_s:
                why = worker.message or f"{worker.state}, and not ready in time"
                raise _StepError("worker", why)
            time.sleep(_POLL_S)
        if not confined:
            self._note(f"worker: ready, without a sandbox, as {ALLOW_UNCONFINED} allows")
            return
        facts = self._channels.audit(TRIED_ID)
        self._gaps = tuple(f"{one.name}: {one.detail}" for one in facts if not one.holds)
        holds = f"{len(facts) - len(self._gaps)} of {len(facts)} facts of its sandbox hold"
        self._note(f"worker: ready, {holds}")

    def _read_status(self, step: str) -> KeeperStatus:
        left_s = self._end_s - time.monotonic()
        try:
            return self._keeper.status(timeout_s=max(left_s, _KEEPER_ANSWER_S))
        except KeeperError as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
            pid = self._keeper.find_process()
            state = read_state(pid) if pid is not None else None
            why = f"the keeper (pid {pid}, state {state}) does not answer"
            raise _StepError(step, why) from error

    def _try_transports(self) -> None:
        """All beside each other: one that hangs hides no other."""
        left = [_Transport(name, self._keeper.directory) for name in TRANSPORTS]
        started: list[_Transport] = []
        try:
            for one in left:
                started.append(one)
                one.start(list_agent_options(self._paths, one.socket, serial=one.name == "serial"))
            while left and time.monotonic() < self._end_s:
                transports = self._read_status("transports").transports
                for one in list(left):
                    if one.has_ended(is_heard=one.name in transports):
                        left.remove(one)
                        self._take(one)
                time.sleep(_POLL_S)
            for one in left:
                self._failed[one.name] = one.describe_wait()
        except ChannelStartError as error:
            raise _StepError("agent", _describe_error(error)) from error
        finally:
            for one in started:
                one.stop()

    def _take(self, transport: _Transport) -> None:
        if transport.why:
            self._failed[transport.name] = transport.why
        else:
            self._note(f"{transport.name}: {GUEST_CHECK_PROGRAM.name} has a lane: {transport.said}")

    def _note(self, text: str) -> None:
        took_ms = (time.monotonic() - self._begin_s) * 1000
        self._passed.append(f"{text} (after {took_ms:.0f} ms)")

    def _clean(self) -> None:
        """Ends and removes what there is of it, also of an earlier try, and of a keeper that hangs."""
        if not self._keeper.directory.exists():
            return
        try:
            self._keeper.status(timeout_s=_KEEPER_ANSWER_S)
        except KeeperError:
            self._keeper.kill()
        self._channels.stop(TRIED_ID)


class _Transport:
    """One of them: the guest's agent, and a program that asks it for a lane."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.socket = str(directory / f"{name}.sock")
        #: what the program said, and why that is no lane
        self.said = self.why = ""
        self._agent: Agent | None = None
        self._program: subprocess.Popen[str] | None = None

    def start(self, options: list[str]) -> None:
        """Raises ChannelStartError."""
        self._agent = Agent([str(AGENT_PROGRAM), *options])

    def has_ended(self, *, is_heard: bool) -> bool:
        """Whether it is known how it goes; ``is_heard``: the worker has heard the agent."""
        assert self._agent is not None
        if end := self._agent.describe_end():
            self.why = f"the guest's agent: {end}: {self._agent.read_log()[-200:]}"
        elif self._program is None and is_heard:
            self._program = self._ask()
        elif self._program is not None and self._program.poll() is not None:
            out, _ = self._program.communicate()
            found = _GPU_LINE.search(out)
            self.said = found[2] if found else out.strip()[:200]
            self.why = "" if found and found[1] == "ok" else f"no lane: {self.said}"
        else:
            return False
        return bool(self.why or self.said)

    def describe_wait(self) -> str:
        """What had not come when the time was over."""
        if self._program is not None:
            return f"{GUEST_CHECK_PROGRAM.name} waits for its lane"
        log = self._agent.read_log()[-200:] if self._agent is not None else ""
        return ": ".join(
            part for part in ("the worker does not hear the guest's agent", log) if part
        )

    def stop(self) -> None:
        """Ends both."""
        if self._program is not None and self._program.poll() is None:
            self._program.kill()
            self._program.communicate()
        if self._agent is not None:
            self._agent.stop()

    def _ask(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(GUEST_CHECK_PROGRAM)], env={"VGPUMGR_AGENT": self.socket}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip


def _describe_error(error: VgpumgrError) -> str:
    return ": ".join(part for part in (error.error, error.cause, error.why) if part)


if __name__ == "__main__":
    serve(int(sys.argv[1]), Handlers())
