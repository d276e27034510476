"""HTTP to a daemon, over any connected stream: its socket, or a channel of ssh."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, Protocol
from urllib.parse import quote, urlencode

from vgpumgr import __version__
from vgpumgr.cli.session import OperationBegun, Streams
from vgpumgr.errors import (
    DaemonAnswerError,
    DaemonBusyError,
    DaemonNotRunningError,
    MethodNotAllowedError,
    RouteNotFoundError,
    TooManyRequestsError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.routes import API, BY_OPERATION, METRICS, OPERATIONS, Kind, Route

_WAIT_S = 30
#: how often a terminal asks for the step that runs
_WATCH_S = 1
_OVER = ("succeeded", "failed", "cancelled", "interrupted")
_MAX_HEAD = 64 << 10
_MAX_PART = 64 << 10
#: retries, and seconds between them, while a busy daemon refuses to report a running operation
_MAX_REFUSED = 120
_BUSY_S = 1.0


class Stream(Protocol):
    """A connected stream."""

    def sendall(self, data: bytes, /) -> object:
        """Sends everything."""

    def makefile(self, mode: Literal["rb"], /) -> Any:
        """A file to read from."""

    def shutdown(self, how: int, /) -> object:
        """Ends a read that another thread is in."""

    def close(self) -> None:
        """Hangs up."""


Connect = Callable[[], Stream]


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        """The JSON body. Raises the error that it carries, or DaemonAnswerError."""
        try:
            data = json.loads(self.body)
        except ValueError as error:
            raise DaemonAnswerError("the daemon's answer is no JSON", cause=str(error)) from error
        if not isinstance(data, dict):
            raise DaemonAnswerError("the daemon's answer is no document")
        if self.status >= 400:
            raise rebuild_error(data.get("error") or {})
        return data


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """An answer whose body still comes: ``parts`` are read as they arrive."""

    status: int
    headers: Mapping[str, str]
    parts: Iterator[bytes]


@contextlib.contextmanager
def exchange(
    stream: Stream,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[OpenAnswer]:
    """One request and its answer on a connected stream. Raises DaemonAnswerError, also while parts are read."""
    _send(stream, method, path, body, headers)
    with stream.makefile("rb") as file, _explaining_hang_up():
        status, fields = _read_head(file)
        yield OpenAnswer(status, fields, iter(()) if method == "HEAD" else _read_body(file, fields))


class HttpBackend:
    """The application behind a daemon's API; see ``session.Backend``."""

    def __init__(
        self, connect: Connect, streams: Streams | None = None, *, no_wait: bool = False
    ) -> None:
        self.connect = connect
        self._streams = streams
        self._no_wait = no_wait

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """One operation; waits for long ones, unless that is not wanted: then raises OperationBegun. Ctrl-C
        cancels, and waits for the end.
        """
        route = BY_OPERATION[operation]
        path, body = _address(route, params)
        try:
            document = self.request(route.method, path, body).document()
        except (RouteNotFoundError, MethodNotAllowedError, UsageError) as error:
            raise self.explain_version(error) from None
        if route.kind is Kind.READ or "operation" not in document or "plan" in document:
            return document
        if self._no_wait:
            raise OperationBegun(document["operation"])
        return self._wait(document["operation"]["id"])

    def explain_version(self, error: VgpumgrError) -> VgpumgrError:
        """What a daemon does not understand may be another version's: then the error says so."""
        try:
            theirs = str(self.request("GET", API).document()["version"])
        except (VgpumgrError, KeyError, TypeError):
            return error
        if theirs != __version__:
            error.why = f"the daemon is of version {theirs}, this command of version {__version__}"
            error.hint = "systemctl restart vgpumgr, where the package was updated"
        return error

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> HttpAnswer:
        """One request on a connection of its own."""
        with (
            contextlib.closing(self.connect()) as stream,
            exchange(stream, method, path, body, headers) as answer,
        ):
            return HttpAnswer(answer.status, answer.headers, b"".join(answer.parts))

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The document of one request that no operation stands for. Raises the error that it carries."""
        data = None if body is None else json.dumps(body).encode()
        try:
            return self.request(method, path, data).document()
        except (RouteNotFoundError, MethodNotAllowedError, UsageError) as error:
            raise self.explain_version(error) from None

    def read_metrics(self, openmetrics: bool) -> dict[str, Any]:
        """The daemon's metrics, which are text, as the application's document."""
        wanted = {"Accept": "application/openmetrics-text"} if openmetrics else {}
        answer = self.request("GET", METRICS, None, **wanted)
        if answer.status >= 400:
            answer.document()
        kind = answer.headers.get("content-type", "")
        return {"content_type": kind, "text": answer.body.decode()}

    def listen(self, path: str) -> Iterator[dict[str, Any]]:
        """Server-sent events, until either side ends."""
        with contextlib.closing(self.connect()) as stream, exchange(stream, "GET", path) as answer:
            if answer.status != 200:
                HttpAnswer(answer.status, answer.headers, b"".join(answer.parts)).document()
            for line in _read_lines(answer.parts):
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    def wait_operation(self, operation_id: str) -> dict[str, Any]:
        """The operation when it has ended; a terminal shows the step that runs. Asks again if a busy daemon refuses,
        because the operation runs on.
        """
        try:
            return self._wait_for_end(operation_id)
        finally:
            self._show("")

    def _show(self, step: str, word: str = "do") -> None:
        if self._streams is not None:
            self._streams.show_progress(step, word)

    def _wait_for_end(self, operation_id: str) -> dict[str, Any]:
        watched = self._streams is not None and self._streams.err.isatty()
        wait_s = _WATCH_S if watched else _WAIT_S
        path = f"{OPERATIONS}/{quote(operation_id, safe='')}/wait?timeout_s={wait_s}"
        refused = 0
        while True:
            try:
                operation: dict[str, Any] = self.request("GET", path).document()["operation"]
            except (DaemonBusyError, TooManyRequestsError):
                refused += 1
                if refused > _MAX_REFUSED:
                    raise
                select.select([], [], [], _BUSY_S)
                continue
            refused = 0
            if operation["progress"]:
                step = operation["progress"][-1]
                self._show(step["description"], step["word"])
            if operation["status"] in _OVER:
                return operation

    def _wait(self, operation_id: str) -> dict[str, Any]:
        try:
            operation = self.wait_operation(operation_id)
        except KeyboardInterrupt:
            if self._streams is not None:
                self._streams.note("stopping: waits until what was done is undone")
            with contextlib.suppress(VgpumgrError):
                self.request("DELETE", f"{OPERATIONS}/{operation_id}").document()
            operation = self.wait_operation(operation_id)
            if operation["status"] != "succeeded":
                raise
        if operation["status"] == "succeeded":
            result: dict[str, Any] = operation["result"]
            return result
        raise rebuild_error(operation["error"] or {})


def rebuild_error(parts: Mapping[str, Any]) -> VgpumgrError:
    """The error as it was raised on the other side."""
    kind = _find_class(str(parts.get("id")))
    return kind(
        str(parts.get("error", "the daemon answers an error without words")),
        cause=parts.get("cause"),
        why=parts.get("why"),
        held_by=parts.get("held_by") or (),
        hint=parts.get("try"),
    )


def _find_class(error_id: str) -> type[VgpumgrError]:
    kinds: list[type[VgpumgrError]] = [VgpumgrError]
    for kind in kinds:
        if vars(kind).get("id") == error_id:
            return kind
        kinds.extend(kind.__subclasses__())
    return DaemonAnswerError


def _address(route: Route, params: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """Path and body of a call: what the path names goes there, the rest where the method says."""
    path, rest = route.path, {}
    for name, value in params.items():
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        elif value is not None:
            rest[name] = value
    if route.method != "GET":
        return path, json.dumps(rest).encode()
    query = urlencode({k: str(v).lower() if isinstance(v, bool) else v for k, v in rest.items()})
    return f"{path}?{query}" if query else path, None


def _send(
    stream: Stream, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> None:
    # of a stream over a network: its host, and what proves the caller
    fields = {"Host": "vgpumgr", **getattr(stream, "fields", {})}
    lines = [f"{method} {path} HTTP/1.1", "Connection: close", "Cache-Control: no-cache"]
    lines += [
        *(f"{name}: {value}" for name, value in fields.items()),
        *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()),
    ]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    # a daemon that refuses a request need not read all of it; its answer says why
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))


def _read_head(file: BinaryIO) -> tuple[int, dict[str, str]]:
    lines: list[bytes] = []
    size = 0
    while line := file.readline(_MAX_HEAD):
        size += len(line)
        if line in (b"\r\n", b"\n") or size > _MAX_HEAD:
            break
        lines.append(line)
    words = lines[0].split() if lines else []
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise _hung_up()
    fields = (line.decode("latin-1").partition(":") for line in lines[1:])
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in fields}


def _hung_up(cause: str | None = None) -> DaemonAnswerError:
    return DaemonAnswerError(
        "the daemon hung up without an answer",
        cause=cause,
        why="what was asked for may have begun; the next daemon recovers it",
        hint="vgpumgr op list, vgpumgr status",
    )


@contextlib.contextmanager
def _explaining_hang_up() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise _hung_up(str(error)) from error


def _read_body(file: BinaryIO, fields: Mapping[str, str]) -> Iterator[bytes]:
    if "content-length" in fields:
        left = int(fields["content-length"])
        while left:
            part = file.read(min(left, _MAX_PART))
            if not part:
                raise DaemonAnswerError("the daemon's answer is cut off")
            left -= len(part)
            yield part
    elif fields.get("transfer-encoding") == "chunked":
        yield from _read_chunks(file)
    else:
        while part := file.read(_MAX_PART):
            yield part


def _read_chunks(file: BinaryIO) -> Iterator[bytes]:
    while size := int(file.readline(64).partition(b";")[0] or b"0", 16):
        yield file.read(size)
        file.readline(8)


def _read_lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from lines


def connect_unix(path: str) -> Stream:
    """The daemon's socket. Raises DaemonNotRunningError."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.connect(path)
    except OSError as error:
        stream.close()
        raise DaemonNotRunningError(
            "no daemon answers", cause=f"{path}: {error.strerror}", hint="vgpumgr daemon"
        ) from error
    return stream
