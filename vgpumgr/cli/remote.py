"""Daemons of other hosts, over ssh: HTTP flows through ``vgpumgr host dial-stdio`` there."""

from __future__ import annotations

import os
import shlex
from typing import Any
from urllib.parse import urlsplit

from vgpumgr.cli.http import Stream
from vgpumgr.errors import RemoteHostError, UsageError

_TIMEOUT_S = 20.0


class Remote:
    """One host, ``ssh://USER@HOST:PORT`` or just its name. One connection serves all requests.

    The host's key must be in known_hosts. Keys come from the agent and ~/.ssh, never a password.
    """

    def __init__(self, address: str, machine: str | None) -> None:
        parts = urlsplit(address if "://" in address else f"ssh://{address}")
        try:
            port = parts.port or 22
        except ValueError:
            port = 0
        if parts.scheme != "ssh" or not parts.hostname or not port or parts.path.strip("/"):
            raise UsageError(f'no host: "{address}"', hint="--host ssh://root@gpu1")
        self.name = address
        self._host, self._port, self._user = parts.hostname, port, parts.username
        words = ["vgpumgr", *(["--machine", machine] if machine else []), "host", "dial-stdio"]
        self._command = shlex.join(words)
        self._client: Any = None

    def connect(self) -> Stream:
        """A channel to the daemon there. Raises RemoteHostError."""
        from paramiko import SSHException

        try:
            channel = self._open().get_transport().open_session(timeout=_TIMEOUT_S)
            channel.exec_command(self._command)
        except (SSHException, OSError) as error:
            raise self._explain(error) from error
        return _Channel(channel, self.name)

    def _open(self) -> Any:
        import paramiko

        if self._client is None:
            client = paramiko.SSHClient()
            client.load_system_host_keys()
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(
                self._host, self._port, self._user or os.environ.get("USER"),
                timeout=_TIMEOUT_S, banner_timeout=_TIMEOUT_S, auth_timeout=_TIMEOUT_S,
            )  # fmt: skip
            self._client = client
        return self._client

    def _explain(self, error: Exception) -> RemoteHostError:
        import paramiko

        why, hint = None, f"ssh {self._host} vgpumgr version"
        if isinstance(error, paramiko.BadHostKeyException):
            why = "the host's key is not the one in known_hosts: perhaps it is another host"
        elif isinstance(error, paramiko.AuthenticationException):
            why, hint = "it accepts none of the agent's keys and those in ~/.ssh", "ssh-add"
        elif "known_hosts" in str(error):
            why = "its key is not in known_hosts, so nothing proves which host it is"
            hint = f"ssh-keyscan {self._host}, compare, and add it"
        return RemoteHostError(f"cannot reach {self.name}", cause=str(error), why=why, hint=hint)


class _Channel:
    """A channel as a stream; an end without an answer is explained by what the other side said."""

    def __init__(self, channel: Any, name: str) -> None:
        self._channel = channel
        self._name = name

    def sendall(self, data: bytes, /) -> object:
        """Sends everything."""
        return self._channel.sendall(data)

    def makefile(self, mode: str, /) -> Any:
        """Waits for the first bytes, so that a daemon that is not there is told as that."""
        if self._ended():
            said = self._channel.makefile_stderr("rb").read(4096).decode(errors="replace").strip()
            raise RemoteHostError(
                f"no daemon answers on {self._name}",
                cause=said or "vgpumgr host dial-stdio ended",
                hint="systemctl start vgpumgr.socket (there)",
            )
        return self._channel.makefile(mode)

    def _ended(self) -> bool:
        """Whether the command there ended without a byte."""
        import select

        select.select([self._channel], [], [])
        return not self._channel.recv_ready()

    def close(self) -> None:
        """Hangs up."""
        self._channel.close()
