"""``vgpumgr run``: a command of this host on a slice of its own, which it has as long as it runs.

The slice and its channel are made and removed by the application, behind the daemon or in this process. The
guest's agent and the command are children of this process and of its user; the agent ends with it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

from typer import Argument, Context, Option

from vgpumgr.cli.main import App, Single
from vgpumgr.cli.notice import LeaseWatch
from vgpumgr.cli.output import print_single
from vgpumgr.cli.session import (
    Backend,
    ClaimOption,
    DryRun,
    EqualOption,
    Format,
    GpuOption,
    LimitOption,
    PolicyOption,
    PriorityOption,
    Session,
    UnconfinedOption,
    choose_wanted,
    get_format,
    get_session,
    get_verbosity,
    number,
)
from vgpumgr.cli.text import render_plan
from vgpumgr.errors import (
    ChannelStartError,
    ClaimNotGrantedError,
    DaemonAnswerError,
    DaemonNotRunningError,
    PoolStoreError,
    RouteNotFoundError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.host.foreground import (
    Agent,
    ending_at_once,
    ending_later,
    find_program,
    run_in_foreground,
)
from vgpumgr.model.choices import RUN_NAME
from vgpumgr.model.text import describe_waiting

#: so often who waits for a lease asks, more often at first: where GPUs are free the lease is there at once
_ASK_S, _ASK_FIRST_S = 0.25, 0.05
_FIRST = 20
#: and while the pool's store, or the daemon, does not answer, which ends no waiting
_ASK_LATER_S = 2.0
_PASSING = (PoolStoreError, DaemonAnswerError, DaemonNotRunningError)

app = App()


class _Run(Single):
    """The verb: all behind ``--`` is the command's, and nothing else is."""

    refused: ClassVar[Sequence[Format] | None] = (Format.CSV, Format.MARKDOWN, Format.NAME)
    may_begin: ClassVar[bool] = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises UsageError where the command does not stand behind ``--``, and for ``--no-wait``."""
        words = list(args)
        if "--no-wait" in words[: words.index("--") if "--" in words else None]:
            raise UsageError(
                "run waits for its command: there is no --no-wait",
                why="the slice is freed when the command ends, and its exit code is the answer",
                hint="vgpumgr run --profile 1g.10gb -- COMMAND &",
            )
        rest = super().parse_args(ctx, args)
        given = ctx.params.get("command") or []
        behind = words[words.index("--") + 1 :] if "--" in words else []
        if list(given) != behind and not ctx.resilient_parsing:
            raise UsageError(
                f"not expected before the command: {' '.join(given[: len(given) - len(behind)])}",
                why="the command and its arguments stand behind --",
                hint="vgpumgr run --profile 1g.10gb -- COMMAND",
            )
        return rest


def _read_name(text: str) -> str:
    if not re.fullmatch(RUN_NAME, text):
        raise UsageError(
            f"{text!r} is not a name of a run",
            why="letters, digits, dots, hyphens and underscores, at most 64",
            hint="vgpumgr run --name train-1",
        )
    return text


@app.command("run", cls=_Run)
def run(
    context: Context,
    profile: Annotated[
        str | None,
        Option(
            "--profile",
            metavar="PROFILE",
            help="What it gets: a MIG profile, as 1g.10gb, or a share of a GPU, as share:2GiB,25%, or of a MIG "
            "instance, as share:2GiB,25%@1g.10gb.",
        ),
    ] = None,
    command: Annotated[
        list[str] | None,
        Argument(metavar="-- COMMAND [ARGS]...", help="What to run, behind two hyphens."),
    ] = None,
    name: Annotated[
        str | None,
        Option("--name", metavar="NAME", help="Of the run; else of the command and its process."),
    ] = None,
    equal: EqualOption = None,
    claim: ClaimOption = None,
    wait_s: Annotated[
        float | None,
        Option(
            "--wait",
            metavar="SECONDS",
            parser=number(float, 0),
            help="With --claim: wait so long for a lease. A claim that binds late is waited for without it.",
        ),
    ] = None,
    gpu: GpuOption = None,
    transport: Annotated[
        Literal["ring", "serial"],
        Option("--transport", help="Shared memory, or a socket as virtio-serial has it."),
    ] = "ring",
    compute_policy: PolicyOption = None,
    priority: PriorityOption = None,
    limit: LimitOption = None,
    allow_unconfined: UnconfinedOption = False,
    spread: Annotated[
        bool, Option("--spread/--pack", help="Emptiest GPU, or where the least capacity is lost.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Run a command of this host on a slice of a GPU.

    The command has CUDA by the libraries that VMs have, and a worker of its own; no VM and no
    container is needed. The slice is made before the command starts and freed when it ends, however
    it ends. Signals are passed on, and the exit code is the command's: 128 and the signal's number
    if one ended it, 127 if there is no such command, 126 if it cannot be executed.

    A program needs the shared CUDA runtime (nvcc -cudart shared). Its environment is yours, with
    LD_LIBRARY_PATH, LD_AUDIT and VGPUMGR_AGENT for the libraries, which come before those of Python
    wheels, and without CUDA_VISIBLE_DEVICES.

    By a claim that binds late the lease begins with the command and ends with it. Until GPUs are free
    the command waits in the pool's queue, and its place and the reason stand on standard error. A
    lease that ends, by its time or by preemption, is announced there: the command gets SIGTERM, and
    30 seconds later SIGKILL.

    \b
    Examples:
      vgpumgr run --profile 1g.10gb -- ./vectoradd
      vgpumgr run --profile 3g.40gb --gpu 2 --name train -- python3 train.py --epochs 3
      vgpumgr run --profile 1g.10gb --transport serial -- sh -c './a && ./b'
      vgpumgr run --profile 1g.10gb --limit device-memory=4GiB --limit calls=none -- ./vectoradd
      vgpumgr run --profile share:2GiB,25% -- ./vectoradd
      vgpumgr run --profile share:2GiB,25% --gpu MIG-6f1c2a2e -- ./vectoradd
      vgpumgr run --claim train -- ./vectoradd
      vgpumgr run --claim train --wait 600 -- ./vectoradd
      vgpumgr run --profile 1g.10gb --dry-run -- ./vectoradd
    """
    session = get_session(context)
    session.check_here("vgpumgr run")
    session.options.host = None
    if not command or not command[0]:
        raise UsageError(
            "no command to run",
            why="it stands behind --, with its arguments",
            hint="vgpumgr run --profile 1g.10gb -- COMMAND",
        )
    if get_format(context) is not None and not dry_run:
        raise UsageError(
            "-o is for --dry-run", why="what is printed else is the command's", hint="--dry-run"
        )
    if wait_s is not None and claim is None:
        raise UsageError(
            "--wait is for --claim", why="nothing else has a queue", hint="--claim CLAIM"
        )
    program = find_program(command[0])
    word = _make_word(command[0])
    asked = {
        "name": _read_name(name) if name is not None else f"{word}-{os.getpid()}",
        "command": word,
        **choose_wanted(profile, equal, claim, "run"),
        "pid": os.getpid(),
        "gpu": gpu,
        "transport": transport,
        "spread": spread,
        "limits": tuple(limit or ()),
        "allow_unconfined": allow_unconfined,
        "compute_policy": compute_policy,
    }
    asked |= {} if priority is None else {"priority": priority}  # an older daemon does not know it
    if dry_run:
        document = session.call("start_run", dry_run=True, **asked)
        print_single(context, document, _render(document, get_verbosity(context, dry_run=True)))
        return 0
    return _Runner(session, asked, wait_s).run(program, command)


def _make_word(command: str) -> str:
    """The command's name as a part of a run's."""
    word = re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(command))[:48]  # noqa: PTH119
    return word if re.fullmatch(RUN_NAME, word) else f"_{word}"


def _render(document: dict[str, Any], verbosity: int) -> Iterator[str]:
    result = document["plan"]["result"]
    yield f"would run {result['run']} on {result['profile']} on GPU {result['gpu_index']}:"
    yield from render_plan(document["plan"], verbosity)
    yield f"  ~ run the command ({result['transport']}), then undo all of this"


class _Runner:
    """One run, from the slice to its end."""

    def __init__(self, session: Session, asked: dict[str, Any], wait_s: float | None) -> None:
        self._session = session
        self._asked = asked
        self._wait_s = wait_s
        self._agent: Agent | None = None
        #: as it was when the command began
        self._channel: dict[str, Any] = {}
        self._attachment: dict[str, Any] = {}

    def run(self, program: str, command: Sequence[str]) -> int:
        """Makes all, runs the command, and frees all; answers its exit code."""
        freed = True
        with ending_at_once():
            try:
                document = self._prepare()
                environ = _make_environment(document["environment"])
                code = self._run_watched(program, command, environ)
                self._report_losses()
            finally:
                with ending_later():
                    if self._agent is not None:
                        self._agent.stop()
                    if self._attachment:
                        freed = self._free()
        return code if freed or code else 1

    def _run_watched(self, program: str, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """By a claim the command hears when its lease ends."""
        claim = self._asked.get("claim")
        if not claim:
            return run_in_foreground(program, command, environ)
        session = self._session
        watch = LeaseWatch(
            claim, lambda: session.open_backend(session.options), session.streams.note
        )
        watch.start()
        try:
            return run_in_foreground(program, command, environ, watch.ask)
        finally:
            watch.stop()

    def _prepare(self) -> dict[str, Any]:
        """Slice, channel and agent: what the command finds when it starts."""
        session = self._session
        with session.open_backend(session.options) as backend:
            if self._asked.get("claim"):
                self._await_lease(backend)
            document = backend.call("start_run", **self._asked)
            self._attachment = document["attachment"]
            for note in document["notes"]:
                session.streams.note(f"note: {note}")
            self._agent = Agent(document["agent"])

            def is_heard() -> bool:
                # by the name that libvirt need not be asked for
                selector = self._attachment["vm_uuid"]
                self._channel = backend.call("show_channel", selector=selector)["channel"]
                return bool(self._channel["hello"])

            if not self._agent.wait(is_heard):
                why = self._channel["problem"] or "the worker did not hear it"
                raise ChannelStartError(
                    "the guest agent of the command does not start",
                    cause=self._agent.read_log() or None,
                    why=self._agent.describe_end() or why,
                    hint="vgpumgr status",
                )
        return document

    def _await_lease(self, backend: Backend) -> None:
        """A claim that binds late gets its lease now; its place in the queue, and why it waits, are printed when they
        change. Raises ClaimNotGrantedError when the time is over.
        """
        from vgpumgr.host.clock import SleeplessClock

        claim, said, end_s, clock = self._asked["claim"], "", None, SleeplessClock()
        for attempt in count():
            try:
                found = backend.call("bind_claim", claim=claim, pid=self._asked["pid"])
            except RouteNotFoundError:
                return  # a daemon of before: it knows no claims that bind late
            except _PASSING as error:
                if not attempt or (end_s is not None and clock.monotonic_s() >= end_s):
                    raise
                # the pool still has this process in its queue
                if (text := f"claim {claim} waits: {error}") != said:
                    said = text
                    self._session.streams.note(text)
                clock.sleep(_ASK_LATER_S)
                continue
            wait_s = self._wait_s
            if found["state"] != "waiting" or (wait_s is None and found["binding"] != "late"):
                return  # what is not granted is refused with its reason
            now_s = clock.monotonic_s()
            end_s = end_s or (None if wait_s is None else now_s + wait_s)
            is_known = found["answered"] or attempt >= _FIRST
            if is_known and end_s is not None and now_s >= end_s:
                raise ClaimNotGrantedError(
                    f"claim {claim} gives nothing on this host now",
                    why=f"it waits after {wait_s:g} s: {found['why']}",
                    hint=f"vgpumgr claim show {claim}",
                )
            text = describe_waiting(claim, found["place"], found["why"])
            if text != said and is_known:
                said = text
                self._session.streams.note(text)
            clock.sleep(_ASK_FIRST_S if attempt < _FIRST else _ASK_S)

    def _report_losses(self) -> None:
        """Reports a channel that was lost: the command has seen errors of CUDA only."""
        streams = self._session.streams
        try:
            selector = self._attachment["vm_uuid"]
            now = self._session.call("show_channel", selector=selector)["channel"]
        except VgpumgrError as error:
            streams.note(f"the command lost its GPU while it ran: {error}")
            return
        keys = ("keeper_pid", "worker_restarts")
        assert self._agent is not None
        if (end := self._agent.describe_end()) is not None:
            streams.note(f"the command lost its GPU while it ran: its guest agent: {end}")
        elif not now["worker_ready"] or any(now[key] != self._channel[key] for key in keys):
            why = now["problem"] or "its worker ended, and another one was started"
            streams.note(f"the command lost its GPU while it ran: {why}")

    def _free(self) -> bool:
        """Whether the slice is freed; what hinders it is said, and hides no other error."""
        session, id_ = self._session, self._attachment["id"]
        try:
            session.call("detach", vm=id_)
        except VgpumgrError as error:
            with contextlib.suppress(VgpumgrError):
                known = session.call("list_channels")["channels"]
                if all(channel["id"] != id_ for channel in known):
                    return True  # another command has detached it
            hint = session.streams.address("vgpumgr recover")
            profile = self._attachment["profile"]
            session.streams.note(f"{profile} is not freed: {error}; {hint} frees it")
            return False
        return True


def _make_environment(added: Mapping[str, str]) -> dict[str, str]:
    environ = {**os.environ, **added}
    environ.pop("CUDA_VISIBLE_DEVICES", None)  # it means devices of the host
    for name in ("LD_LIBRARY_PATH", "LD_AUDIT"):
        if old := os.environ.get(name):
            environ[name] += f":{old}"
    return environ
