"""HTTP to etcd's JSON gateway: several members, and which of them answers.

A read goes to the next member where one fails. So does a change that no member can have got; of another whose answer is
lost it is unknown whether it was made, which is an error of its own.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from vgpumgr.errors import (
    PoolHistoryError,
    PoolLeaseError,
    PoolOutcomeError,
    PoolStoreError,
    UsageError,
)
from vgpumgr.model.frozen import dataclass

_CONNECT_S = 2.0
_MAX_BYTES = 64 << 20
#: etcd answers at once where its member has no leader, in the place of waiting for one
_HEADERS = {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"}
#: refusals before anything is done, with the reason for people
_REFUSALS = {
    "no leader": "this member hears no leader: most members are down or cut off",
    "database space exceeded": "etcd is full, and takes no changes until it is compacted and its alarm disarmed",
    "too many requests": "etcd has more changes than it can write",
    "not capable": "etcd refuses changes",
    "permission denied": "etcd does not let this client do that",
    "user name is empty": "etcd asks for a user, and the pool's client has certificates only",
    "requested lease not found": "",
    "required revision has been compacted": "",
}
#: those of one member; another may do it
_OF_A_MEMBER = ("no leader",)
_INVALID = 3


@dataclass(frozen=True, slots=True)
class Endpoints:
    """How to reach the members of an etcd: URLs, and for TLS the files of its authority and of this client."""

    urls: tuple[str, ...]
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    timeout_s: float = 5.0


def check_endpoints(endpoints: Endpoints) -> None:
    """Raises UsageError for what is no such URL, and for files of TLS that cannot be."""
    if not endpoints.urls:
        raise UsageError("an etcd has at least one URL", hint="--etcd http://127.0.0.1:2379")
    for url in endpoints.urls:
        _split(url)
    if (endpoints.key is None) != (endpoints.certificate is None):
        raise UsageError("a client's certificate and its key go together")
    is_plain = any(not url.startswith("https://") for url in endpoints.urls)
    if is_plain and (endpoints.ca or endpoints.certificate):
        raise UsageError(
            "files of TLS are given, and a URL of etcd is not https://", hint="https:// for all"
        )
    if not is_plain:
        _make_context(endpoints)


def _split(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url)
        port = 2379 if parts.port is None else parts.port
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        shown = url.rpartition("@")[2]
        raise UsageError(f"no URL of an etcd: {shown}", cause=str(error)) from error
    if parts.username is not None or parts.password is not None:
        # the URL is not shown: a password may be in it
        raise UsageError(
            "a URL of etcd has a user or a password",
            hint="--etcd-cert and --etcd-key: certificates",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise UsageError(f"no URL of an etcd: {url}", hint="http://HOST:2379 or https://HOST:2379")
    if port == 0:
        raise UsageError(f"no URL of an etcd: {url}", why="there is no port 0")
    return parts.scheme, parts.hostname, port


def _make_context(endpoints: Endpoints) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=endpoints.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if endpoints.certificate:
            context.load_cert_chain(endpoints.certificate, endpoints.key)
    except (OSError, ValueError) as error:
        names = [endpoints.ca, endpoints.certificate, endpoints.key]
        files = ", ".join(name for name in names if name)
        raise UsageError(f"cannot use the files of TLS: {files}", cause=str(error)) from error
    return context


class Gateway:
    """Requests to whichever member answers, on one connection that stays open."""

    def __init__(self, endpoints: Endpoints) -> None:
        check_endpoints(endpoints)
        self._endpoints = endpoints
        is_tls = any(url.startswith("https://") for url in endpoints.urls)
        self._context = _make_context(endpoints) if is_tls else None
        self._at = 0
        self._connection: http.client.HTTPConnection | None = None

    @property
    def url(self) -> str:
        """The member that is asked first."""
        return self._endpoints.urls[self._at]

    def copy(self) -> Gateway:
        """Another one, for another thread, which begins with the member that answers this one."""
        found = Gateway(self._endpoints)
        found._at = self._at
        return found

    def request(self, path: str, body: dict[str, Any], *, changes: bool) -> dict[str, Any]:
        """The answer to a request. ``changes``: doing it twice is not the same as once. Raises PoolStoreError and its
        kinds.
        """
        failures: list[str] = []
        for _ in self._endpoints.urls:
            url = self.url
            try:
                connection = self._connect()
            except (OSError, http.client.HTTPException, ValueError) as error:
                failures.append(f"{url}: {error}")
                self.skip()
                continue
            try:
                return self._exchange(connection, path, body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.skip()
                if changes:
                    raise self._unknown(f"{url}: {error}") from error
                failures.append(f"{url}: {error}")
            except _RefusedError as error:
                self._judge(error, url, changes=changes)
                failures.append(f"{url}: {error}")
                self.skip()
        raise self._unreachable(failures)

    def open_stream(self, path: str, body: dict[str, Any]) -> Stream:
        """An answer of many lines, on a connection of its own. Raises PoolStoreError."""
        failures: list[str] = []
        for _ in self._endpoints.urls:
            url = self.url
            connection = self._make()
            try:
                connection.connect()
                connection.request("POST", path, json.dumps(body), _HEADERS)
                response = connection.getresponse()
                if response.status == http.client.OK:
                    return Stream(connection, response)
                failures.append(f"{url}: {response.read(1000).decode(errors='replace')}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                failures.append(f"{url}: {error}")
            connection.close()
            self.skip()
        raise self._unreachable(failures)

    def close(self) -> None:
        """Ends the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def skip(self) -> None:
        """The next request goes to the next member."""
        self.close()
        self._at = (self._at + 1) % len(self._endpoints.urls)

    def _make(self) -> http.client.HTTPConnection:
        scheme, host, port = _split(self.url)
        if scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=_CONNECT_S, context=self._context
            )
        return http.client.HTTPConnection(host, port, timeout=_CONNECT_S)

    def _connect(self) -> http.client.HTTPConnection:
        """One that the member has not closed meanwhile: a change on such a one has an unknown outcome for nothing."""
        if self._connection is not None and self._connection.sock is not None:
            readable, _, _ = select.select([self._connection.sock], [], [], 0)
            if not readable:
                return self._connection
        self.close()
        connection = self._make()
        connection.connect()
        connection.sock.settimeout(self._endpoints.timeout_s)
        self._connection = connection
        return connection

    def _exchange(
        self, connection: http.client.HTTPConnection, path: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        connection.request("POST", path, json.dumps(body), _HEADERS)
        response = connection.getresponse()
        data = response.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ValueError(f"an answer of more than {_MAX_BYTES} bytes")
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ValueError(_describe_foreign(response.status, response.reason, data))
        if response.status != http.client.OK:
            raise _RefusedError(
                str(answer.get("error", response.reason)), answer.get("code") == _INVALID
            )
        return answer

    def _judge(self, refusal: _RefusedError, url: str, *, changes: bool) -> None:
        """Raises what a refusal means; returns where another member may do it."""
        text = str(refusal)
        if "lease not found" in text:
            raise PoolLeaseError("a lease of the pool's store has ended", cause=text) from refusal
        if "compacted" in text:
            raise PoolHistoryError(
                "the pool's store no longer has the events asked for", cause=text
            ) from refusal
        known = next((name for name in _REFUSALS if name in text), None)
        if known in _OF_A_MEMBER or (known is None and not changes and not refusal.is_invalid):
            return
        if known is None and not refusal.is_invalid:
            raise self._unknown(f"{url}: {text}") from refusal
        raise PoolStoreError(
            "the pool's store refuses",
            cause=f"{url}: {text}",
            why=_REFUSALS[known] if known else None,
            hint="etcdctl endpoint status; etcdctl alarm list",
        ) from refusal

    def _unknown(self, cause: str) -> PoolOutcomeError:
        return PoolOutcomeError(
            "the pool's store has not answered to a change",
            cause=cause,
            why="it may have been made",
        )

    def _unreachable(self, failures: Sequence[str]) -> PoolStoreError:
        count = len(self._endpoints.urls)
        return PoolStoreError(
            "the pool's store does not answer",
            cause="; ".join(failures),
            why=_explain_failures(failures, count),
            hint="etcdctl endpoint status",
        )


def _describe_foreign(status: int, reason: str, data: bytes) -> str:
    """What is no answer of etcd."""
    if status == http.client.NOT_FOUND:
        return (
            f"HTTP {status} {reason}: not etcd, or it was started with --enable-grpc-gateway=false"
        )
    if status != http.client.OK:
        return f"HTTP {status} {reason}: not an answer of etcd: {data[:100]!r}"
    return f"not an answer of etcd: {data[:100]!r}"


def _explain_failures(failures: Sequence[str], count: int) -> str:
    if any("no leader" in one for one in failures):
        return _REFUSALS["no leader"]
    return "none of its members answers" if count > 1 else "its only URL does not answer"


class _RefusedError(Exception):
    """An answer of etcd that is an error."""

    def __init__(self, text: str, is_invalid: bool) -> None:
        super().__init__(text)
        self.is_invalid = is_invalid


class Stream:
    """Lines of JSON, as they come."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._response = response
        # from here on the next line may take any time
        if connection.sock is not None:
            connection.sock.settimeout(None)
        self._socket = connection.sock

    def read_line(self) -> dict[str, Any] | None:
        """The next one; None at the end. Raises OSError, HTTPException, ValueError."""
        line = self._response.readline(_MAX_BYTES)
        if not line:
            return None
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError(f"not an answer of etcd: {line[:100]!r}")
        return answer

    def close(self) -> None:
        """Ends it, also while another thread reads."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()
