"""A daemon for a test, and requests as another user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import short
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.errors import VgpumgrError

ROOT = Path(__file__).parents[2]


# before pytest-xdist, which writes the groups into the ids
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One file's tests share a daemon, so they stay in one process."""
    for item in items:
        if "tests/api/" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


class Daemon:
    """A daemon in a directory; may be ended and started again."""

    def __init__(self, directory: Path, slow_s: float = 0) -> None:
        self.directory = directory
        self.socket = directory / "vgpumgr.sock"
        self._slow_s = slow_s
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> HttpBackend:
        return HttpBackend(partial(connect_unix, str(self.socket)))

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.api_daemon", str(self.directory), str(self._slow_s)],
            cwd=ROOT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            with suppress(VgpumgrError):
                self.client.request("GET", "/1.0").document()
                return
            assert self.process.poll() is None, "the daemon ended"
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def get(self, path: str) -> dict[str, Any]:
        return self.client.request("GET", path).document()

    def post(self, path: str, body: object, **headers: str) -> Any:
        return self.client.request("POST", path, json.dumps(body).encode(), **headers)


def make_daemon(slow_s: float = 0, settings: str = "") -> Iterator[Daemon]:
    directory = Path(tempfile.mkdtemp(prefix="vgapi.", dir=short()))
    directory.chmod(0o755)
    (directory / "vgpumgr.toml").write_text(settings)
    daemon = Daemon(directory, slow_s)
    try:
        daemon.start()
        yield daemon
    finally:
        if daemon.process is not None:
            daemon.end(signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One daemon for all tests of a file."""
    yield from make_daemon()


@pytest.fixture
def slow_daemon() -> Iterator[Daemon]:
    """One whose attach takes two seconds in its middle."""
    yield from make_daemon(2.0)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
