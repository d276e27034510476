"""Daemons of other hosts, one or several, over ssh: HTTP flows through ``vgpumgr host dial-stdio`` there, which is
here, too.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from typer import Context

from vgpumgr.cli.backend import find_socket
from vgpumgr.cli.http import Stream, connect_unix
from vgpumgr.cli.main import App
from vgpumgr.cli.session import Backend, GlobalOptions, get_session
from vgpumgr.errors import RemoteHostError, UsageError, VgpumgrError
from vgpumgr.model.frozen import dataclass

if TYPE_CHECKING:
    from paramiko import SSHException

app = App()
_TIMEOUT_S = 20.0
_KEEPALIVE_S = 30
#: hosts that are asked at a time
_AT_ONCE = 16
#: what a shell answers with where there is no such command
_NO_COMMAND = 127


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect, and as whom; ``port`` 0 and None are what ssh would take."""

    host: str
    port: int = 0
    user: str | None = None

    def format(self) -> str:
        """The words of an ssh command for it."""
        port = f"-p {self.port} " if self.port else ""
        return port + (f"{self.user}@{self.host}" if self.user else self.host)


def parse_target(address: str) -> Target:
    """``ssh://USER@HOST:PORT``, ``USER@HOST:PORT`` or a name. Raises UsageError."""
    parts = urlsplit(address if "://" in address else f"ssh://{address}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme != "ssh" or not parts.hostname or port == 0 or parts.path.strip("/"):
        raise UsageError(f'no host: "{address}"', hint="--host ssh://root@gpu1")
    return Target(parts.hostname, port or 0, parts.username)


class Remote:
    """One host. One connection serves all requests.

    Names, ports, users and keys come from ~/.ssh/config, as with ssh. The host's key must be
    in known_hosts. Keys come from the agent and ~/.ssh, never a password.
    """

    def __init__(self, address: str, machine: str | None) -> None:
        self.name = address
        self._target = parse_target(address)
        words = ["vgpumgr", *(["--machine", machine] if machine else []), "host", "dial-stdio"]
        self._command = shlex.join(words)
        self._client: Any = None
        self._lock = threading.Lock()
        self._failure: SSHException | OSError | EOFError | None = None
        self._failures = 0

    def connect(self) -> Stream:
        """A channel to the daemon there. Raises RemoteHostError."""
        from paramiko import SSHException

        asked_after = self._failures
        try:
            with self._lock:
                transport = self._open_once(asked_after)
            channel = transport.open_session(timeout=_TIMEOUT_S)
            channel.exec_command(self._command)
        except (SSHException, OSError, EOFError) as error:
            raise self._explain(error) from error
        return _Channel(channel, self.name)

    def _open_once(self, asked_after: int) -> Any:
        """The transport; of a try that fails all learn who waited for it meanwhile, and none tries again in turn."""
        from paramiko import SSHException

        transport = self._client.get_transport() if self._client else None
        if transport is not None and transport.is_active():
            return transport
        if self._failure is not None and self._failures != asked_after:
            raise self._failure
        try:
            return self._open()
        except (SSHException, OSError, EOFError) as error:
            self._failure = error
            self._failures += 1
            raise

    def _open(self) -> Any:
        """The transport of the connection, which is made again where it has ended."""
        import paramiko

        transport = self._client.get_transport() if self._client else None
        if transport is None or not transport.is_active():
            client = paramiko.SSHClient()
            client.load_system_host_keys()
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(
                **list_settings(self._target, read_config(self._target.host)),
                timeout=_TIMEOUT_S, banner_timeout=_TIMEOUT_S, auth_timeout=_TIMEOUT_S,
            )  # fmt: skip
            self._client, self._failure = client, None
            transport = self._client.get_transport()
            # of a page that is open and silent, too, a lost connection is noticed
            transport.set_keepalive(_KEEPALIVE_S)
        return transport

    def _explain(self, error: Exception) -> RemoteHostError:
        import paramiko

        cause, why = str(error), None
        hint = f"ssh {self._target.format()} true"
        if isinstance(error, paramiko.BadHostKeyException):
            why = "the host's key is not the one in known_hosts: perhaps it is another host"
        elif isinstance(error, paramiko.AuthenticationException) or "No auth" in cause:
            why, hint = "it accepts none of the agent's keys and those in ~/.ssh", "ssh-add"
        elif "known_hosts" in cause:
            why = "its key is not in known_hosts, so nothing proves which host it is"
            hint += "    (shows the key and, once you have compared it, adds it)"
        elif errors := getattr(error, "errors", None):
            # paramiko's own text lacks the reason of each address
            where = [f"{at[0]} port {at[1]}: {one.strerror}" for at, one in errors.items()]
            cause = "; ".join(where)
        return RemoteHostError(f"cannot reach {self.name}", cause=cause, why=why, hint=hint)


def read_config(host: str) -> Mapping[str, Any]:
    """What ~/.ssh/config says of a host. Raises RemoteHostError where it cannot be read."""
    import paramiko

    path = Path("~/.ssh/config").expanduser()
    if not path.exists():
        return {}
    try:
        return paramiko.SSHConfig.from_path(str(path)).lookup(host)
    except (paramiko.SSHException, OSError) as error:
        raise RemoteHostError(f"cannot read {path}", cause=str(error)) from error


def list_settings(target: Target, config: Mapping[str, Any]) -> dict[str, Any]:
    """What to connect with: what the address says, then the configuration, then ssh's defaults."""
    settings: dict[str, Any] = {
        "hostname": config.get("hostname", target.host),
        "port": target.port or int(config.get("port", 22)),
        "username": target.user or config.get("user") or os.environ.get("USER"),
    }
    if files := config.get("identityfile"):
        settings["key_filename"] = [file for file in files if Path(file).exists()]
    return settings


class _Channel:
    """A channel as a stream; an end without an answer is explained by what the other side said."""

    def __init__(self, channel: Any, name: str) -> None:
        self._channel = channel
        self._name = name

    def sendall(self, data: bytes, /) -> object:
        """Sends everything; an end of the command there is reported where its answer is read."""
        with contextlib.suppress(OSError):
            self._channel.sendall(data)
        return None

    def makefile(self, mode: str, /) -> Any:
        """Waits for the first bytes, so that a missing daemon is reported as missing."""
        if self._ended():
            raise self._explain()
        return self._channel.makefile(mode)

    def _ended(self) -> bool:
        """Whether the command there ended without a byte."""
        import select

        select.select([self._channel], [], [])
        return not self._channel.recv_ready()

    def _explain(self) -> RemoteHostError:
        said = self._channel.makefile_stderr("rb").read(4096).decode(errors="replace").strip()
        if self._channel.recv_exit_status() == _NO_COMMAND:
            return RemoteHostError(
                f"no vgpumgr on {self._name}",
                cause=said or None,
                why="it is not installed there, or not on the path of a command that ssh runs",
                hint="install it there; ansible/README.md",
            )
        return RemoteHostError(
            f"no daemon answers on {self._name}",
            cause=_find_cause(said) or "vgpumgr host dial-stdio ended",
            hint="there: systemctl start vgpumgr.socket",
        )

    def shutdown(self, _how: int, /) -> object:
        """Ends a read that another thread is in."""
        return self._channel.close()

    def close(self) -> None:
        """Hangs up."""
        self._channel.close()


def _find_cause(said: str) -> str:
    """Of an error of ours its cause, as a whole error within an error is hard to read."""
    for line in said.splitlines():
        label, _, text = line.partition(":")
        if label == "cause":
            return text.strip()
    return said


class FleetBackend:
    """Asks every host of ``--hosts``; only lists can be merged.

    The errors of hosts that do not answer go to ``report``: the command fails with the first of them, as a
    list without them would look complete.
    """

    def __init__(
        self,
        options: GlobalOptions,
        open_daemon: Callable[[GlobalOptions], Backend],
        report: Callable[[VgpumgrError], None],
    ) -> None:
        self._options = options
        self._open_daemon = open_daemon
        self._report = report

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """See ``session.Backend``. Raises the first error where no host answers."""
        if not operation.startswith("list_"):
            raise UsageError("--hosts goes with lists only", hint="--host NAME")
        hosts = list(dict.fromkeys(self._options.hosts))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(lambda host: self._ask(host, operation, params), hosts))
        results = dict(zip(hosts, found, strict=True))
        answers = {host: one for host, one in results.items() if isinstance(one, dict)}
        errors = [one for one in found if isinstance(one, VgpumgrError)]
        for error in errors if answers else errors[1:]:
            self._report(error)
        if not answers:
            raise errors[0]
        return merge(answers)

    def _ask(
        self, host: str, operation: str, params: dict[str, Any]
    ) -> dict[str, Any] | VgpumgrError:
        """One host's answer, or why it has none."""
        try:
            daemon = self._open_daemon(replace(self._options, host=host, hosts=()))
            return daemon.call(operation, **params)
        except VgpumgrError as error:
            if host not in error.error:
                error.error = f"{host}: {error.error}"
            return error


def merge(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One document: lists joined, each entry with ``host``; what is no list, by host."""
    merged: dict[str, Any] = {}
    for host, document in documents.items():
        for key, value in document.items():
            if isinstance(value, list):
                merged.setdefault(key, []).extend({"host": host, **row} for row in value)
            elif key == "schema":
                merged[key] = value
            else:
                merged.setdefault(key, {})[host] = value
    return merged


@app.command("dial-stdio")
def dial_stdio(context: Context) -> None:
    """Join standard input and output to the daemon's socket.

    \b
    Examples:
      ssh gpu1 vgpumgr host dial-stdio
    """
    stream = connect_unix(find_socket(get_session(context).options))
    assert isinstance(stream, socket.socket)
    threading.Thread(target=_send, args=(stream,), daemon=True).start()
    while data := stream.recv(1 << 16):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _send(stream: socket.socket) -> None:
    """Standard input to the socket; its end is passed on."""
    with contextlib.suppress(OSError):
        while data := os.read(0, 1 << 16):
            stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
