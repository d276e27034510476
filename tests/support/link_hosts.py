"""Two hosts of one pool on one machine: the daemon of ``b`` offers its GPUs over the network, ``a`` uses them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.etcd import Etcd, find_ports
from tests.support.run_host import MACHINE, PATIENCE_S, Host, started_machine, wait_for


class LinkHosts:
    """Both hosts, and the store."""

    def __init__(self, etcd: Etcd, a: Host, b: Host, address: str) -> None:
        self.etcd, self.a, self.b, self.address = etcd, a, b, address
        self.daemons: dict[str, subprocess.Popen[str]] = {}

    def start_daemon(self, name: str) -> None:
        """And wait until its pool hears it."""
        host = self.a if name == "a" else self.b
        log = (host.root / "daemon.log").open("a")
        process = subprocess.Popen(
            host.words("daemon"), env=host.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            text=True,
        )  # fmt: skip
        self.daemons[name] = process
        wait_for(lambda: self.read_host(name)["state"] == "ready", f"host {name} is heard")

    def end_daemon(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it by a signal."""
        process = self.daemons.pop(name)
        process.send_signal(number)
        process.wait(PATIENCE_S)

    def read_host(self, name: str) -> dict[str, Any]:
        """What ``pool status`` says of a host."""
        hosts = self.a.read("pool", "status")["hosts"]
        return next((one for one in hosts if one["name"] == name), {"state": "none", "links": []})

    def await_offer(self) -> None:
        """Until ``b`` offers its GPUs, and knows ``a``."""
        wait_for(lambda: self.read_host("b")["links"] == [self.address], "b offers its GPUs")
        known = self.b.root / MACHINE / "host" / "run" / "link" / "peers" / "a.pem"
        wait_for(known.exists, "b knows a")

    def read_log(self, name: str) -> str:
        """What a daemon has printed."""
        return ((self.a if name == "a" else self.b).root / "daemon.log").read_text()


@contextmanager
def two_hosts(offers: bool = True, known: Host | None = None) -> Iterator[LinkHosts]:
    """Both, with their daemons, in a new pool. ``known``: the machine that is host ``a``."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgl")))
        etcd = stack.enter_context(Etcd(directory).running())
        a = known or stack.enter_context(started_machine())
        b = stack.enter_context(started_machine())
        for host in (a, b):  # users of their own go through it, as through /run/vgpumgr
            host.root.chmod(0o711)
        address = f"127.0.0.1:{find_ports(1)[0]}"
        if offers:
            (b.root / MACHINE / "host").mkdir(exist_ok=True)
            text = f'[link]\nlisten = ["{address}"]\n'
            (b.root / MACHINE / "host" / "vgpumgr.toml").write_text(text)
        b.call("pool", "init", "--etcd", etcd.urls[0])
        b.call("pool", "join", "--name", "b")
        a.call("pool", "join", "--name", "a", "--etcd", etcd.urls[0])
        hosts = LinkHosts(etcd, a, b, address)
        try:
            for name in ("b", "a"):
                hosts.start_daemon(name)
            if offers:
                hosts.await_offer()
            yield hosts
        finally:
            for name in list(hosts.daemons):
                hosts.end_daemon(name)
            end_listener(b)


def find_listener(host: Host) -> int | None:
    """The process of ``vgpumgr-link``."""
    path = host.root / MACHINE / "host" / "run" / "link" / "link.pid"
    with contextlib.suppress(OSError, ValueError):
        pid = int(path.read_text())
        os.kill(pid, 0)
        return pid
    return None


def end_listener(host: Host, number: signal.Signals = signal.SIGTERM) -> None:
    """Ends it, and waits for that."""
    pid = find_listener(host)
    if pid is None:
        return
    os.kill(pid, number)
    end_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/exe").exists() and time.monotonic() < end_s:
        time.sleep(0.02)
