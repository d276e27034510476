"""The way to the application: behind the daemon's socket where one answers, else in this process.

The one module of the command line that loads the application. Everything else in ``cli`` sees
documents as plain data, as they come over HTTP from a daemon.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vgpumgr.cli.session import Backend, GlobalOptions, Streams
from vgpumgr.errors import VgpumgrError

if TYPE_CHECKING:
    from pathlib import Path

    from vgpumgr.app.application import Application
    from vgpumgr.cli.http import HttpBackend
    from vgpumgr.cli.remote_pool import RemotePool
    from vgpumgr.pool.control.records import GpuRecord
    from vgpumgr.pool.operations import PoolOperations
    from vgpumgr.pool.store.gateway import Endpoints
    from vgpumgr.state.tokens import TokenRecord, TokenStore

#: of a line, that the daemon's audit log gets
_MAX_WORDS = 64
_MAX_WORD = 512
#: from when a daemon owns the machine until it listens
DAEMON_START_S = 3.0


class LocalBackend:
    """Calls the application's methods by name and answers their documents as JSON-able data."""

    def __init__(
        self,
        application: Application,
        run_dir: Path | None = None,
        show: Callable[[str, str], None] = lambda _step, _word: None,
        find_daemon: Callable[[], Backend | None] = lambda: None,
    ) -> None:
        self._application = application
        self._run_dir = run_dir
        self._show = show
        self._find_daemon = find_daemon

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """See ``session.Backend``. Raises LockHeldError where a daemon that does not answer owns
        the machine.
        """
        perform = getattr(self._application, operation)
        if self._run_dir is not None:
            self._application.record_logged()
        if self._run_dir is None or not _is_change(operation, params):
            document = perform(**params)
        elif daemon := self._await_starting_daemon(self._run_dir):
            return daemon.call(operation, **params)
        else:
            document = self._change(self._run_dir, lambda: perform(**params))
        data: dict[str, Any] = document.as_data()
        return data

    def _await_starting_daemon(self, run_dir: Path) -> Backend | None:
        """The daemon that owns the machine since this process looked for one, once it listens."""
        from vgpumgr.host.clock import SystemClock
        from vgpumgr.host.lock import DAEMON_LOCK, find_holder

        clock = SystemClock()
        end_s = clock.monotonic_s() + DAEMON_START_S
        while find_holder(run_dir / DAEMON_LOCK) is not None and clock.monotonic_s() < end_s:
            if daemon := self._find_daemon():
                return daemon
            clock.sleep(0.05)
        return None

    def _change(self, run_dir: Path, perform: Callable[[], Any]) -> Any:
        """A change, whose steps a terminal shows."""
        from vgpumgr.app.application import check_change
        from vgpumgr.engine.executor import listening

        check_change(run_dir)
        try:
            with listening(lambda word, step: self._show(step, word)):
                return perform()
        finally:
            self._show("", "do")


def _is_change(operation: str, params: dict[str, Any]) -> bool:
    from vgpumgr.model.routes import BY_OPERATION, Kind

    route = BY_OPERATION.get(operation)
    return route is not None and route.kind is not Kind.READ and not params.get("dry_run")


class ChoosingBackend:
    """The daemon for what it serves; operations on this process's own files stay here."""

    def __init__(self, options: GlobalOptions, remote: HttpBackend) -> None:
        self._options = options
        self._remote = remote

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """See ``session.Backend``."""
        from vgpumgr.model.routes import BY_OPERATION

        if operation in BY_OPERATION and not self._is_before_the_daemon(operation, params):
            return self._remote.call(operation, **params)
        if operation == "read_metrics":
            # the daemon's: it has the last good values while the driver is stuck
            return self._remote.read_metrics(openmetrics=params.get("openmetrics", False))
        with open_local(self._options) as backend:
            return backend.call(operation, **params)

    def _is_before_the_daemon(self, operation: str, params: dict[str, Any]) -> bool:
        """Whether it is the boot's restore, and no daemon runs. systemd listens already for the daemon, which
        starts after this: a request would wait for that, and that for this.
        """
        if operation != "restore" or self._options.host or not (params["boot"] or params["early"]):
            return False
        from vgpumgr.host.lock import DAEMON_LOCK, find_holder
        from vgpumgr.host.machine import find_machine

        return find_holder(find_machine(self._options.machine).run_dir / DAEMON_LOCK) is None


@contextmanager
def open_backend(
    options: GlobalOptions, report: Callable[[VgpumgrError], None]
) -> Iterator[Backend]:
    """The application for the machine, the host or the hosts that the options name; ``report`` gets the
    errors of those of several that do not answer.
    """
    if options.hosts:
        from vgpumgr.cli.remote import FleetBackend

        yield FleetBackend(options, open_daemon, report)
        return
    from vgpumgr.errors import DaemonNotRunningError

    daemon = find_daemon(options)
    if daemon is not None:
        yield ChoosingBackend(options, daemon)
        return
    if options.no_wait:
        raise DaemonNotRunningError(
            "--no-wait needs a daemon",
            why="without one this command does the change itself, and its end would undo it",
            hint="systemctl start vgpumgr.socket, or the same without --no-wait",
        )
    with open_local(options) as backend:
        yield backend


@contextmanager
def open_local(options: GlobalOptions) -> Iterator[Backend]:
    """The application in this process."""
    from vgpumgr.app.application import open_application
    from vgpumgr.host.lock import reporting_waits

    streams = Streams(options)
    with open_application(options.machine) as application, reporting_waits(streams.note):
        run_dir = application.machine.run_dir
        yield LocalBackend(
            application, run_dir, streams.show_progress, lambda: find_daemon(options)
        )


def list_simulated() -> list[str]:
    """The simulated machines that run."""
    from vgpumgr.host.machine import list_machines

    return list_machines()


def find_socket(options: GlobalOptions) -> str:
    """Where this machine's daemon listens."""
    from vgpumgr.host.machine import find_machine

    return str(find_machine(options.machine).run_dir / "vgpumgr.sock")


def find_daemon(options: GlobalOptions) -> HttpBackend | None:
    """The daemon of the host or machine that the options name; None if none listens here."""
    from vgpumgr.errors import DaemonNotRunningError

    if not options.host and not os.path.lexists(find_socket(options)):
        return None  # without loading what speaks HTTP
    try:
        return open_daemon(options)
    except DaemonNotRunningError:
        return None


def open_daemon(options: GlobalOptions) -> HttpBackend:
    """The daemon, for what only a daemon can do. Raises DaemonNotRunningError, RemoteHostError."""
    from functools import partial

    from vgpumgr.cli.http import HttpBackend, connect_unix

    if options.host and options.host.lower().startswith(("https:", "http:")):
        from vgpumgr.cli.https import open_https

        found = open_https(options.host, os.environ)
        return HttpBackend(found.connect, Streams(options), no_wait=options.no_wait)
    if options.host:
        from vgpumgr.cli.remote import Remote

        connect = Remote(options.host, options.machine).connect
        return HttpBackend(connect, Streams(options), no_wait=options.no_wait)
    path = find_socket(options)
    connect_unix(path).close()
    return HttpBackend(partial(connect_unix, path), Streams(options), no_wait=options.no_wait)


def verify_audit(options: GlobalOptions, file: str | None) -> tuple[str, str | None, bool]:
    """The audit log, by default this machine's, what is wrong with it or its older files, and whether there is one:
    before the daemon's first start there is none. Raises UsageError, NotPermittedError where it cannot be read.
    """
    from pathlib import Path

    from vgpumgr.errors import NotPermittedError, UsageError
    from vgpumgr.host.machine import find_machine
    from vgpumgr.server.audit import FILE_NAME, has_none, verify_all

    path = Path(file) if file else find_machine(options.machine).state_dir / FILE_NAME
    try:
        return str(path), verify_all(path), True
    except OSError as error:
        if file is None and has_none(path) and isinstance(error, FileNotFoundError):
            return str(path), None, False
        if isinstance(error, PermissionError):
            raise NotPermittedError(
                f"cannot read {error.filename}", cause=error.strerror, hint="sudo vgpumgr audit"
            ) from error
        # an error of reading has no name
        where = error.filename or path
        raise UsageError(f"cannot read {where}", cause=error.strerror) from error


def run_daemon(options: GlobalOptions, settings: Sequence[str]) -> None:
    """Serves until it is asked to end. Raises DaemonRunningError, SettingsError."""
    from vgpumgr.server.server import run_daemon as run

    run(options.machine, settings)


def list_settings() -> Iterable[str]:
    """Every key of the configuration."""
    from vgpumgr.server.settings import KEYS

    return KEYS


def read_config(options: GlobalOptions, file: str | None = None) -> dict[str, Any]:
    """What a daemon that starts now would use, by this machine's files or another one. Raises SettingsError."""
    from pathlib import Path

    from vgpumgr.host.machine import find_machine
    from vgpumgr.server.settings import describe, read_configuration

    machine = find_machine(options.machine)
    path = Path(file) if file else machine.config_path
    configuration = read_configuration(path, must_be_there=file is not None)
    document = describe(configuration, machine, "files")
    data: dict[str, Any] = document.as_data()
    return data


def write_support_bundle(
    options: GlobalOptions, target: Path, *, serials: bool
) -> list[dict[str, str | None]]:
    """Writes the archive; answers its files, each with what kept it from being whole. Raises FileWriteError,
    NotPermittedError.
    """
    from vgpumgr.errors import FileWriteError, NotPermittedError
    from vgpumgr.host.machine import find_machine
    from vgpumgr.host.support import write_bundle

    try:
        parts = write_bundle(find_machine(options.machine), target, serials=serials)
    except OSError as error:
        kind = NotPermittedError if isinstance(error, PermissionError) else FileWriteError
        raise kind(f"cannot write {target}", cause=str(error)) from error
    return [{"name": part.name, "problem": part.problem} for part in parts]


def format_defaults() -> str:
    """A file of the configuration with every key, and none of them set."""
    from vgpumgr.server.settings import format_defaults as render

    return render()


@contextmanager
def open_pool(options: GlobalOptions) -> Iterator[PoolOperations]:
    """The pool that this host is in. Raises PoolNotFoundError, PoolStoreError."""
    from vgpumgr.pool.membership import open_pool as open_it
    from vgpumgr.pool.operations import PoolOperations

    with open_it(options.machine) as pool:
        try:
            yield PoolOperations(pool)
        finally:
            if pool.has_changed:
                record_pool_command(options)


def record_pool_command(options: GlobalOptions) -> None:
    """Lets the daemon's audit log have a line that has changed the pool; nothing without a daemon. What has changed
    stays, so a log that cannot be written is only said.
    """
    from vgpumgr.model.routes import POOL

    words = [word[:_MAX_WORD] for word in options.words[:_MAX_WORDS]]
    try:
        daemon = find_daemon(options)
        if daemon is not None and words:
            body = json.dumps({"words": words}).encode()
            answer = daemon.request("POST", f"{POOL}/commands", body)
            if answer.status not in (404, 405):  # an older daemon has no such path
                answer.document()
    except VgpumgrError as error:
        Streams(options).note(f"note: the audit log does not have this command: {error}")


@contextmanager
def open_any_pool(options: GlobalOptions) -> Iterator[PoolOperations | RemotePool]:
    """The pool that this host is in, or the host that the options name. Raises PoolNotFoundError, PoolStoreError,
    RemoteHostError.
    """
    if not options.host:
        with open_pool(options) as pool:
            yield pool
        return
    from vgpumgr.cli.remote_pool import RemotePool

    yield RemotePool(open_daemon(options))


def open_tokens(options: GlobalOptions) -> TokenStore:
    """The tokens of this machine's daemon."""
    from vgpumgr.host.machine import find_machine
    from vgpumgr.state.tokens import FILE_NAME, TokenStore

    return TokenStore(find_machine(options.machine).state_dir / FILE_NAME)


def create_token(options: GlobalOptions, **fields: Any) -> tuple[TokenRecord, str | None]:
    """A new token with these fields of a record, and its secret. Raises TokenExistsError, TokenFileError."""
    import secrets

    from vgpumgr.state.tokens import TokenRecord

    record = TokenRecord(id=secrets.token_hex(8), **fields)
    return record, open_tokens(options).create(record)


def init_pool(options: GlobalOptions, etcd: Endpoints | None, policy: str) -> dict[str, Any]:
    """Makes a pool. Raises PoolExistsError, PoolStoreError."""
    from vgpumgr.pool.membership import init_pool as init

    with init(options.machine, etcd, policy) as pool:
        made = {"id": pool.record(pool.view()).id, "store": pool.where}
    record_pool_command(options)
    return made


def join_pool(
    options: GlobalOptions, etcd: Endpoints | None, host: str, gpus: Sequence[GpuRecord]
) -> str:
    """Makes this host part of a pool; answers where its store is. Raises PoolMemberError, PoolStoreError."""
    from vgpumgr.pool.membership import join_pool as join

    with join(options.machine, etcd, host, gpus) as pool:
        where = pool.where
    record_pool_command(options)
    return where


def read_pool_identity(options: GlobalOptions, *, rotate: bool) -> dict[str, Any]:
    """This host's identity for links, which is made where there is none, or anew. Raises PoolNotFoundError,
    PoolMemberError, NotPermittedError.
    """
    from vgpumgr.pool.links import show_identity

    return show_identity(options.machine, rotate=rotate)


def find_pool_host(options: GlobalOptions) -> str | None:
    """This host's name in the pool that it has joined."""
    from vgpumgr.host.machine import find_machine
    from vgpumgr.pool.membership import read_membership

    membership = read_membership(find_machine(options.machine))
    return None if membership is None else membership.host


def leave_pool(options: GlobalOptions) -> str | None:
    """This host is in no pool then; its name there. Raises PoolMemberError, PoolStoreError."""
    from vgpumgr.pool.leaving import leave_pool as leave

    host = leave(options.machine)
    record_pool_command(options)
    return host
