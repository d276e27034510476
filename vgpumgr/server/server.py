"""The daemon: one process that owns the machine, from its lock to its last operation.

``Heartbeat`` reports to systemd. The daemon lives while its event loop and its thread for changes run: a change
that takes longer than any wait that a request can ask for will not end. Then systemd starts another daemon,
which recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from vgpumgr.app.application import open_application
from vgpumgr.app.history import History
from vgpumgr.app.metrics import MetricsService
from vgpumgr.app.metrics_source import open_metrics
from vgpumgr.errors import DaemonRunningError, LockHeldError, UsageError
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.limits import check_limits, raise_descriptor_limit
from vgpumgr.host.lock import DAEMON_LOCK, lock_file
from vgpumgr.host.machine import Machine, find_machine
from vgpumgr.host.sockets import Peer, notify, read_watchdog_s, take_listening_socket
from vgpumgr.model.request import MAX_HELLO_TIMEOUT_S
from vgpumgr.model.routes import BY_OPERATION
from vgpumgr.server.access import Access, read_access
from vgpumgr.server.audit import FILE_NAME, AuditLog, RefusalLog
from vgpumgr.server.connections import DESCRIPTORS, Limits, PeerProtocol, QuietLoop
from vgpumgr.server.context import Context
from vgpumgr.server.events import EventHub
from vgpumgr.server.gatekeeper import Gatekeeper
from vgpumgr.server.health import hear_gpus
from vgpumgr.server.limits import watch_limits
from vgpumgr.server.links import serve_links
from vgpumgr.server.listener import Listener, open_listener
from vgpumgr.server.middleware import Middleware
from vgpumgr.server.operations import Operations
from vgpumgr.server.pool_host import serve_pool
from vgpumgr.server.pool_reader import PoolReader
from vgpumgr.server.reconciler import Reconciler, Sources, find_sources, watch
from vgpumgr.server.responses import ResponseCache
from vgpumgr.server.routes import build_api
from vgpumgr.server.runs import watch_runs
from vgpumgr.server.sampling import keep_history
from vgpumgr.server.settings import Configuration, read_configuration
from vgpumgr.server.workers import Opener, WorkerPools
from vgpumgr.state.tokens import FILE_NAME as TOKENS
from vgpumgr.state.tokens import TokenStore

SOCKET = "vgpumgr.sock"
_MAX_HEAD_BYTES = 32 << 10
# sun_path has 108 bytes with its end
_MAX_PATH = 107
#: a guest may be waited for that long; the rest is what everything else of an attach may take
HANG_S = MAX_HELLO_TIMEOUT_S + 600.0
_BEAT_S = 1.0


class DaemonServer(uvicorn.Server):
    """uvicorn that hangs up on listeners of events as soon as it is asked to end."""

    def __init__(self, config: uvicorn.Config, context: Context) -> None:
        super().__init__(config)
        self._context = context

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn; then the network's connections are accepted, too."""
        await super().startup(sockets)
        if self._context.listener is not None:
            self._context.listener.start(self.config, self.server_state, self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        if self._context.listener is not None:
            self._context.listener.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """SIGTERM, SIGINT. uvicorn would raise the signal again, and end us before we drain."""
        notify("STOPPING=1\nSTATUS=finishing the operation that runs")
        self._context.hub.close()
        self.should_exit = True


def run_daemon(machine_name: str | None, options: Sequence[str] = ()) -> None:
    """Serves until SIGTERM; ``options`` precede the files of the configuration. Raises DaemonRunningError,
    SettingsError.
    """
    machine = find_machine(machine_name)
    configuration = read_configuration(machine.config_path, options)
    with _only_daemon(machine), _listen(machine) as listener:
        opener = partial(open_application, machine_name)
        asyncio.run(serve(machine, listener, opener, configuration=configuration))


async def serve(
    machine: Machine,
    listener: socket.socket,
    opener: Opener,
    access: Access | None = None,
    sources: Sources | None = None,
    hang_s: float = HANG_S,
    configuration: Configuration | None = None,
) -> None:
    """Serves on a socket until asked to end, then lets what runs come to its end.

    Raises SettingsError, HostResourceError.
    """
    if configuration is None:
        configuration = read_configuration(machine.config_path)
    settings = configuration.settings
    raise_descriptor_limit(DESCRIPTORS)
    check_limits()
    asyncio.get_running_loop().set_exception_handler(QuietLoop())
    with open_metrics(machine) as metrics:
        limits = Limits(settings.limits, access or read_access())
        gatekeeper = Gatekeeper(TokenStore(machine.state_dir / TOKENS), SystemClock())
        network = open_listener(settings.listen, machine, limits, gatekeeper)
        context = build_context(
            machine, WorkerPools(opener), limits, metrics, configuration, gatekeeper, network
        )
        server = DaemonServer(_configure(context), context)
        try:
            sources = sources or find_sources(machine)
            async with (
                watch(context, settings, sources) as reconciler,
                hear_gpus(context, sources),
                watch_limits(context, sources),
                watch_runs(context, reconciler),
                serve_pool(context, reconciler.ask),
                serve_links(context),
                keep_history(context),
            ):
                _recover(context)
                heartbeat = Heartbeat(server, context, reconciler, hang_s)
                beating = asyncio.create_task(heartbeat.run())
                try:
                    await server.serve(sockets=[listener])
                finally:
                    beating.cancel()
        finally:
            context.hub.close()
            await context.operations.drain()
            await asyncio.to_thread(context.pools.close)
            await context.pool.close()
            context.refusals.close()


def build_context(
    machine: Machine,
    pools: WorkerPools,
    limits: Limits,
    metrics: MetricsService,
    configuration: Configuration | None = None,
    gatekeeper: Gatekeeper | None = None,
    network: Listener | None = None,
) -> Context:
    """The parts of a daemon; needs a running event loop."""
    clock = SystemClock()
    hub = EventHub(clock)
    cache = ResponseCache(clock)
    audit = AuditLog(machine.state_dir / FILE_NAME, clock)
    operations = Operations(
        machine.state_dir / "operations", pools.change, hub, audit, clock, cache.forget
    )
    return Context(
        access=limits.access,
        audit=audit,
        cache=cache,
        clock=clock,
        hub=hub,
        pools=pools,
        limits=limits,
        operations=operations,
        pool=PoolReader(machine, clock, lambda: cache.epoch),
        metrics=metrics,
        history=History(),
        refusals=RefusalLog(audit),
        configuration=configuration or Configuration(),
        machine=machine,
        gatekeeper=gatekeeper or Gatekeeper(TokenStore(machine.state_dir / TOKENS), clock),
        listener=network,
    )


def _configure(context: Context) -> uvicorn.Config:
    make_protocol: Any = partial(PeerProtocol, context.limits)
    return uvicorn.Config(
        Middleware(build_api(context), context),
        http=make_protocol,  # a class is asked for, and called
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        backlog=256,
        timeout_graceful_shutdown=30,
    )


def _recover(context: Context) -> None:
    """What an earlier daemon left: reported to listeners, and recovered."""
    for operation in context.operations.list_interrupted():
        context.hub.publish(
            "interrupted", operation=operation.id, name=operation.operation,
            subject=operation.subject,
        )  # fmt: skip
    peer = Peer(os.getpid(), os.geteuid(), frozenset())
    context.operations.start(BY_OPERATION["recover"], {}, peer, lambda app: app.recover())


@contextmanager
def _only_daemon(machine: Machine) -> Iterator[None]:
    try:
        # a moment for one that is about to end
        lock = lock_file(machine.run_dir / DAEMON_LOCK, timeout_s=0.5, what="the daemon")
        lock.__enter__()
    except LockHeldError as error:
        raise DaemonRunningError(
            "a daemon serves this machine already", cause=error.cause, held_by=error.held_by
        ) from error
    with contextlib.ExitStack() as stack:
        stack.push(lock)
        yield


@contextmanager
def _listen(machine: Machine) -> Iterator[socket.socket]:
    """systemd's socket, else one of our own. Anybody may connect: credentials decide, not modes."""
    passed = take_listening_socket()
    if passed is not None:
        with passed:
            yield passed
        return
    path = machine.run_dir / SOCKET
    if len(os.fsencode(path)) > _MAX_PATH:
        raise UsageError(f"the socket's path is too long: {path}", hint="VGPUMGR_RUN_DIR=...")
    _remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener:
        listener.bind(str(path))
        try:
            path.chmod(0o666)
            listener.listen(256)
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """A dead daemon's socket; we hold its lock, so nobody serves it."""
    if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
        path.unlink()


class Heartbeat:
    """One daemon's."""

    def __init__(
        self, server: uvicorn.Server, context: Context, reconciler: Reconciler, hang_s: float
    ) -> None:
        self._server = server
        self._context = context
        self._reconciler = reconciler
        self._hang_s = hang_s

    async def run(self) -> None:
        """Until cancelled."""
        while not self._server.started:
            await asyncio.sleep(0.01)
        period_s = read_watchdog_s()
        told = self._describe()
        notify(f"READY=1\nSTATUS={told}")
        while True:
            now = self._describe()
            if now != told:
                notify(f"STATUS={now}")
                told = now
            if period_s is not None and not self._hangs():
                notify("WATCHDOG=1")
            await asyncio.sleep(min(period_s or _BEAT_S, _BEAT_S))

    def _hangs(self) -> bool:
        return self._context.pools.change.read_longest_s() > self._hang_s

    def _describe(self) -> str:
        running = self._context.operations.count_running()
        noun = "operation" if running == 1 else "operations"
        parts = [f"{running} {noun} running" if running else "serving"]
        if self._hangs():
            parts.append("a change does not end")
        if self._reconciler.libvirt_problem is not None:
            parts.append("libvirt is not there")
        return "; ".join(parts)
