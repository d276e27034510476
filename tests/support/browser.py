"""Requests to ``vgpumgr web``, byte for byte, and its gateway in this process, so that a test can be its clock."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vgpumgr.cli.gateway.gate import Gate
from vgpumgr.cli.gateway.server import Gateway, open_listener
from vgpumgr.cli.http import HttpBackend
from vgpumgr.host.clock import Clock, SystemClock

INDEX = b"<!doctype html><title>the page</title>"
ASSETS = {"app-1a2B_c.js": b"console.log(1)\n", "app-Zz9.css": b"body{}\n"}
SECRET = b"not a file of the page"
PATIENCE_S = 60


def write_bundle(directory: Path) -> None:
    """A bundle, and beside it what no request may reach."""
    assets = directory / "web/assets"
    assets.mkdir(parents=True)
    (directory / "web/index.html").write_bytes(INDEX)
    for name, data in ASSETS.items():
        (assets / name).write_bytes(data)
    names = ("secret.js", "web/secret.js", "web/assets/secret.pem", "web/assets/mark-0.svg")
    for secret in (directory / name for name in names):
        secret.write_bytes(SECRET)
    (assets / ".hidden.js").write_bytes(SECRET)
    (assets / "link.js").symlink_to(directory / "secret.js")
    (assets / "folder.js").mkdir()


@dataclass
class Answer:
    """What came back; status 0: nothing."""

    status: int
    headers: dict[str, str]
    body: bytes


def receive(connection: socket.socket) -> Answer:
    """All of it, until the other side ends."""
    data = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(65536):
            data += more
    return read_answer(data)


def read_answer(data: bytes) -> Answer:
    """The first answer in what came."""
    head, _, body = data.partition(b"\r\n\r\n")
    if not head:
        return Answer(0, {}, b"")
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines)
    return Answer(int(first.split()[1]), {n.lower(): v.strip() for n, _, v in fields}, body)


@dataclass
class Browser:
    """A browser at one gateway. It has a cookie, and for its code a key, once it has entered."""

    port: int
    token: str
    cookie: str = ""
    code: str = ""
    key: str = ""
    answers: list[Answer] = field(default_factory=list)

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(PATIENCE_S)
        return connection

    def send(self, data: bytes) -> Answer:
        """Bytes as they are, on a connection of their own."""
        with self.connect() as connection:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            answer = receive(connection)
        self.answers.append(answer)
        return answer

    def make(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *lines: str,
        host: str | None = None,
        cookie: str | None = None,
        key: str | None = None,
    ) -> bytes:
        """A request; lines are more fields of its head. The page sends its key to the API alone."""
        host = f"127.0.0.1:{self.port}" if host is None else host
        head = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
        if cookie := self.cookie if cookie is None else cookie:
            head.append(f"Cookie: {cookie}")
        if target.startswith("/1.0") and (key := self.key if key is None else key):
            head.append(f"X-Vgpumgr-Page: {key}")
        if body or method not in ("GET", "HEAD"):
            head.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*head, *lines, "", ""]).encode("latin-1") + body

    def ask(self, method: str, target: str, *args: bytes | str, **options: str) -> Answer:
        body = args[0] if args and isinstance(args[0], bytes) else b""
        lines = [arg for arg in args if isinstance(arg, str)]
        return self.send(self.make(method, target, body, *lines, **options))

    def enter(self, token: str | None = None) -> Answer:
        """Opens the address that the command prints."""
        answer = self.ask("GET", f"/ui/?token={token or self.token}", cookie="")
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
            self.code = answer.headers["location"].partition("#code=")[2]
            self.key = json.loads(self.exchange(self.code).body)["key"]
        return answer

    def exchange(self, code: str, **options: str) -> Answer:
        """Asks for the key, as the page does."""
        return self.ask("POST", "/ui/key", f"X-Vgpumgr-Page: {code}", **options)

    @contextmanager
    def follow(self, *lines: str) -> Iterator[Stream]:
        """An event stream."""
        with self.connect() as connection:
            connection.sendall(self.make("GET", "/1.0/events", b"", *lines))
            yield Stream(connection)


class Stream:
    """An event stream that is read as it comes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.data = b""

    def wait_for(self, text: bytes) -> bytes:
        """What came until the text, with it."""
        while text not in self.data:
            more = self.connection.recv(65536)
            assert more, f"the stream ended without {text!r}: {self.data!r}"
            self.data += more
        return self.data

    def wait_for_end(self) -> None:
        # the daemon's comments come for as long as it lasts
        end_s = time.monotonic() + PATIENCE_S
        with suppress(ConnectionResetError):
            while more := self.connection.recv(65536):
                self.data += more
                assert time.monotonic() < end_s, "the stream goes on"


class Served:
    """A gateway in a thread of this process."""

    def __init__(
        self,
        backend: HttpBackend,
        *,
        read_only: bool = False,
        clock: Clock | None = None,
        expires_s: float = 3600,
        prefix: str = "vgpumgr",
    ) -> None:
        self._listener = open_listener(0)
        port = self._listener.getsockname()[1]
        self.gate = Gate(
            clock or SystemClock(), port, expires_s, read_only=read_only, command="vgpumgr web"
        )
        self._backend, self._prefix = backend, prefix
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(PATIENCE_S)
        self.port = port

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self.gateway = Gateway(self.gate, self._backend, self._prefix)
        self._started.set()
        await self.gateway.serve(self._listener, self._end)

    def browse(self, *, entered: bool = True) -> Browser:
        """The browser that has the address."""
        token = find_token(self.gate.address)
        browser = Browser(self.port, token)
        if entered:
            assert browser.enter().status == 303
        return browser

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._listener.close()


def find_token(text: str) -> str:
    match = re.search(r"/ui/\?token=([\w-]{43})\b", text)
    assert match, text
    return match[1]


@contextmanager
def serving(backend: HttpBackend, **options: object) -> Iterator[Served]:
    served = Served(backend, **options)  # type: ignore[arg-type]
    try:
        yield served
    finally:
        served.close()


def pick(lines: Sequence[str], start: str) -> str:
    (line,) = (line for line in lines if line.startswith(start))
    return line
