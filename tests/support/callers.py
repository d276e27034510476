"""Requests as other users, byte for byte: a child process becomes the user and sends them over the daemon's socket."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: reads requests as a JSON list of Latin-1 texts; prints [status, body] of each answer as one JSON line, with status 0
#: where the daemon hung up without one
_SCRIPT = """
import json, os, re, socket, sys
path, uid, groups, requests = json.load(sys.stdin)
os.setgroups(groups); os.setgid(4_000_000_002); os.setuid(uid)

def receive(s):
    data = b""
    while True:
        head, found, body = data.partition(b"\\r\\n\\r\\n")
        length = re.search(rb"(?i)\\r\\ncontent-length: *(\\d+)", head)
        if found and (head.startswith(b"HTTP/1.1 100 ") or not length or len(body) >= int(length[1])):
            if not head.startswith(b"HTTP/1.1 100 "):
                return [int(head.split()[1]), body.decode("latin-1")]
            data = body
        try:
            more = s.recv(65536)
        except ConnectionResetError:
            more = b""
        if not more:
            return [int(head.split()[1]) if found else 0, body.decode("latin-1")]
        data += more

for request in requests:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path); s.settimeout(60)
        try:
            s.sendall(request.encode("latin-1"))
        except (BrokenPipeError, ConnectionResetError):
            pass
        print(json.dumps(receive(s)), flush=True)
"""

#: opens a connection for each text and sends it, or of those behind "drip:" one byte after the other; for each line on
#: its standard input it prints what has come back on each: a status, 0 for nothing yet, -1 for an end without one
_HOLDER = """
import json, os, select, socket, sys
path, uid, groups, texts = json.loads(sys.stdin.readline())
os.setgroups(groups); os.setgid(4_000_000_002); os.setuid(uid)
held = []
for text in texts:
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    data = text.removeprefix("drip:").encode("latin-1")
    if not text.startswith("drip:"):
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        data = b""
    s.setblocking(False)
    held.append([s, data, b"", False])

def look(one):
    try:
        while more := one[0].recv(65536):
            one[2] += more
        one[3] = True
    except BlockingIOError:
        pass
    except ConnectionResetError:
        one[3] = True
    return int(one[2].split()[1]) if one[2].startswith(b"HTTP/1.1 ") else -1 if one[3] else 0

print("held", flush=True)
while True:
    if select.select([0], [], [], 0.1)[0]:
        if not os.read(0, 100):
            break
        print(json.dumps([[look(one), one[2].decode("latin-1")] for one in held]), flush=True)
    for one in held:
        if one[1]:
            try:
                one[0].send(one[1][:1]); one[1] = one[1][1:]
            except (BrokenPipeError, ConnectionResetError):
                one[1] = b""
"""


@dataclass(frozen=True)
class Reply:
    """What came back. ``status`` 0: nothing."""

    status: int
    body: str


def send_as(socket: Path, uid: int, groups: Sequence[int], requests: Sequence[str]) -> list[Reply]:
    """One connection for each request. Needs root."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], input=json.dumps([str(socket), uid, list(groups), list(requests)]),
        capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    return [Reply(*json.loads(line)) for line in done.stdout.splitlines()]


def make_request(method: str, target: str, body: str = "", headers: str = "") -> str:
    """A request whose parts are taken as they are."""
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}"
    if body or "ontent-" not in headers:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n{body}"


class Holder:
    """Connections that another process holds."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def look(self) -> list[Reply]:
        """What has come back so far on each: status 0 for nothing yet, -1 for an end without an answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        return [Reply(*reply) for reply in json.loads(self._process.stdout.readline())]

    def count(self) -> Counter[int]:
        """How many connections have which status."""
        return Counter(reply.status for reply in self.look())


@contextmanager
def hold_as(
    socket: Path, uid: int, groups: Sequence[int], texts: Sequence[str]
) -> Iterator[Holder]:
    """A connection for each text, sent as it is (behind ``drip:`` a byte each tenth of a second), held to the block's
    end. Needs root.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([str(socket), uid, list(groups), list(texts)]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "held\n"
            yield Holder(process)
        finally:
            process.kill()
