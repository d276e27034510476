"""Real etcd members on the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.programs import find_program
from vgpumgr.host.clock import SystemClock
from vgpumgr.pool.store.etcd import EtcdStore
from vgpumgr.pool.store.gateway import Endpoints

#: a slow machine's election takes a while
START_S = 60.0


def find_ports(count: int) -> list[int]:
    """Ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Member:
    """One process, which can be killed, stopped and started again with its data."""

    def __init__(self, words: list[str], port: int, log: Path, scheme: str = "http") -> None:
        self.url = f"{scheme}://127.0.0.1:{port}"
        self._words = words
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self, is_paused: bool) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP if is_paused else signal.SIGCONT)


class Etcd:
    """A cluster of so many members."""

    def __init__(
        self,
        directory: Path,
        count: int = 1,
        options: tuple[str, ...] = (),
        tls: tuple[str, ...] | None = None,
    ) -> None:
        program = str(find_program("etcd", "VGPUMGR_ETCD"))
        ports = find_ports(2 * count)
        scheme = "https" if tls else "http"
        peers = [f"http://127.0.0.1:{port}" for port in ports[count:]]
        cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
        self.members = []
        for number, peer in enumerate(peers):
            url = f"{scheme}://127.0.0.1:{ports[number]}"
            words = [
                program, "--name", f"m{number}", "--data-dir", str(directory / f"m{number}"),
                "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, "--initial-cluster-state", "new",
                "--heartbeat-interval", "100", "--election-timeout", "1000", *options, *(tls or ()),
            ]  # fmt: skip
            self.members.append(Member(words, ports[number], directory / "log", scheme))

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    def open(self, timeout_s: float = 5.0) -> EtcdStore:
        return EtcdStore(Endpoints(self.urls, timeout_s=timeout_s), SystemClock())

    @contextmanager
    def running(self, wait: bool = True) -> Iterator[Etcd]:
        try:
            for member in self.members:
                member.start()
            if wait:
                self.await_leader()
            yield self
        finally:
            for member in self.members:
                member.kill()

    def ask(self, path: str, **body: object) -> Any:
        """What its first member answers by its JSON gateway, past our own client."""
        request = urllib.request.Request(self.urls[0] + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def await_leader(self) -> None:
        """Until it answers reads."""
        end_s = time.monotonic() + START_S
        while True:
            try:
                with_store = self.open()
                with_store.get("x")
                with_store.close()
                return
            except Exception:
                assert time.monotonic() < end_s, "etcd does not start"
                time.sleep(0.1)
