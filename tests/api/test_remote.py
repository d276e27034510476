"""Other hosts through ssh: a server of our own on loopback, which runs the genuine dial-stdio."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from tests.api.conftest import ROOT, Daemon
from tests.support.browser import INDEX, receive, serving, write_bundle
from vgpumgr.cli import remote
from vgpumgr.cli.http import HttpBackend
from vgpumgr.cli.remote import Remote


class Server(paramiko.ServerInterface):
    """Lets one key in, and runs what is asked for in the project's environment."""

    def __init__(self, key: paramiko.PKey, environment: dict[str, str]) -> None:
        self._key = key
        self._environment = environment

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = username == "operator" and key == self._key
        return paramiko.AUTH_SUCCESSFUL if known else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command.decode()), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        program, *words = command.split()
        assert program == "vgpumgr"
        if not self._environment:
            channel.recv(1)  # the client knows that the command was begun
            channel.sendall_stderr(b"sh: 1: vgpumgr: not found\n")
            channel.send_exit_status(127)
            channel.close()
            return
        process = subprocess.Popen(
            [sys.executable, "-m", "vgpumgr", *words], env=self._environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        threading.Thread(target=self._feed, args=(channel, process), daemon=True).start()
        while data := os.read(process.stdout.fileno(), 1 << 16):
            channel.sendall(data)
        channel.sendall_stderr(process.stderr.read())
        channel.send_exit_status(process.wait())
        channel.close()

    @staticmethod
    def _feed(channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        while data := channel.recv(1 << 16):
            process.stdin.write(data)
            process.stdin.flush()
        process.stdin.close()


class SshHost:
    """The server, and a home directory whose user may enter it."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.home = home
        (home / ".ssh").mkdir(mode=0o700, parents=True)
        self._host_key = paramiko.RSAKey.generate(2048)
        key = paramiko.RSAKey.generate(2048)
        key.write_private_key_file(str(home / ".ssh/id_rsa"))
        self.server = Server(key, environment)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.trust(self._host_key)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"ssh://operator@127.0.0.1:{self.port}"

    def trust(self, key: paramiko.PKey | None) -> None:
        line = f"[127.0.0.1]:{self.port} {key.get_name()} {key.get_base64()}\n" if key else ""
        (self.home / ".ssh/known_hosts").write_text(line)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """On a thread of its own: no client's end is the end of the server."""
        transport = paramiko.Transport(connection)
        transport.add_server_key(self._host_key)
        # a client that does not know our key is gone before the keys are agreed on
        with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
            transport.start_server(server=self.server)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def ssh(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    environment = os.environ | {"VGPUMGR_RUN_DIR": str(daemon.directory), "PYTHONPATH": str(ROOT)}
    environment.pop("VGPUMGR_HOST", None)
    host = SshHost(tmp_path_factory.mktemp("home"), environment)
    yield host
    host.close()


def vgpumgr(ssh: SshHost, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOME": str(ssh.home), "PYTHONPATH": str(ROOT)}
    environment.pop("SSH_AUTH_SOCK", None)
    return subprocess.run(
        [sys.executable, "-m", "vgpumgr", *words], env=environment, cwd="/", check=False,
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip


def test_a_remote_list_is_the_local_one(daemon: Daemon, ssh: SshHost) -> None:
    remote = vgpumgr(ssh, "--host", ssh.address, "api", "GET", "/1.0/gpus")
    assert remote.returncode == 0, remote.stderr
    local = daemon.client.request("GET", "/1.0/gpus").body.decode()
    assert remote.stdout == local + "\n"


def test_lists_of_several_hosts_are_one(ssh: SshHost) -> None:
    hosts = f"{ssh.address},{ssh.address.removeprefix('ssh://')}"
    done = vgpumgr(ssh, "--hosts", hosts, "vm", "list", "-o", "csv", "--columns", "name")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("host,")
    assert {line.split(",")[0] for line in lines[1:]} == set(hosts.split(","))
    assert len(lines) == 1 + 2 * 3
    refused = vgpumgr(ssh, "--hosts", hosts, "detach", "vm01", "--yes")
    assert refused.returncode == 2


def test_hosts_that_answer_are_listed_beside_one_that_does_not(ssh: SshHost) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"ssh://operator@127.0.0.1:{closed.getsockname()[1]}"
        words = ("vm", "list", "-o", "csv", "--columns", "name")
        done = vgpumgr(ssh, "--hosts", f"{nobody},{ssh.address}", *words)
        assert done.returncode == 1
        assert len(done.stdout.splitlines()) == 1 + 3
        assert done.stderr.startswith(f"error:   cannot reach {nobody}\n")
        port = nobody.rpartition(":")[2]
        assert f"ssh -p {port} operator@127.0.0.1 true" in done.stderr
        none = vgpumgr(ssh, "--hosts", f"{nobody},{nobody}", *words)
    assert none.returncode == 1
    assert none.stdout == ""
    assert none.stderr.count("error:") == 1


def test_names_of_ssh_configuration(ssh: SshHost) -> None:
    port = ssh.address.rpartition(":")[2]
    key = ssh.home / ".ssh/id_rsa"
    config = ssh.home / ".ssh/config"
    other = key.rename(key.with_name("lab_key"))
    config.write_text(
        f"Host lab1\n HostName 127.0.0.1\n Port {port}\n User operator\n IdentityFile {other}\n"
    )
    try:
        assert vgpumgr(ssh, "--host", "lab1", "vm", "list").returncode == 0
        refused = vgpumgr(ssh, "--host", ssh.address, "vm", "list")
        assert refused.returncode == 1
        assert "none of the agent's keys" in refused.stderr
    finally:
        config.unlink()
        other.rename(key)


def test_a_host_without_vgpumgr_is_told_as_that(
    ssh: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh.server, "_environment", {})
    done = vgpumgr(ssh, "--host", ssh.address, "gpu", "list")
    assert done.returncode == 1
    assert "no vgpumgr on" in done.stderr
    assert "not installed there" in done.stderr


def test_a_host_without_a_known_key_is_not_spoken_to(ssh: SshHost) -> None:
    known = (ssh.home / ".ssh/known_hosts").read_text()
    try:
        for key, word in ((None, "known_hosts"), (paramiko.RSAKey.generate(2048), "another host")):
            ssh.trust(key)
            done = vgpumgr(ssh, "--host", ssh.address, "gpu", "list")
            assert done.returncode == 1
            assert "VG361" in done.stderr
            assert word in done.stderr
    finally:
        (ssh.home / ".ssh/known_hosts").write_text(known)


@pytest.fixture
def silent(
    monkeypatch: pytest.MonkeyPatch, ssh: SshHost
) -> Iterator[tuple[str, list[socket.socket]]]:
    """A host that lets in and says nothing, and the connections to it."""
    monkeypatch.setenv("HOME", str(ssh.home))
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_take, args=(listener, taken), daemon=True)
        thread.start()
        yield f"ssh://operator@127.0.0.1:{listener.getsockname()[1]}", taken
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    for connection in taken:
        connection.close()


def _take(listener: socket.socket, taken: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while True:
            taken.append(listener.accept()[0])


def test_the_page_of_a_silent_host_ends_at_once(
    silent: tuple[str, list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for ssh does not hold the command, whose patience here is longer than the test's."""
    monkeypatch.setattr(remote, "_TIMEOUT_S", 600.0)
    address, taken = silent
    with serving(HttpBackend(Remote(address, None).connect)) as served:
        browser = served.browse()
        waiting = [browser.connect() for _ in range(5)]
        for connection in waiting:
            connection.sendall(browser.make("GET", "/1.0"))
        while not taken:
            threading.Event().wait(0.01)
    for connection in waiting:
        connection.close()


def test_of_one_try_all_learn_who_waited_for_it(
    silent: tuple[str, list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_TIMEOUT_S", 600.0)
    address, taken = silent
    shared, entered = Remote(address, None), list[int]()

    def connect() -> Any:
        entered.append(1)
        return shared.connect()

    with serving(HttpBackend(connect)) as served:
        browser = served.browse()
        waiting = [browser.connect() for _ in range(5)]
        for connection in waiting:
            connection.sendall(browser.make("GET", "/1.0"))
        while len(entered) < 5 or not taken:
            threading.Event().wait(0.01)
        threading.Event().wait(0.3)  # until each has reached the lock
        taken[0].close()
        assert [receive(connection).status for connection in waiting] == [503] * 5
        assert len(taken) == 1
        # who asks afterwards has a try of its own
        with browser.connect() as connection:
            connection.sendall(browser.make("GET", "/1.0"))
            while len(taken) < 2:
                threading.Event().wait(0.01)
        for connection in waiting:
            connection.close()


def test_the_web_page_of_another_host(
    ssh: SshHost, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, the API and an event stream side by side, over one connection of ssh."""
    write_bundle(daemon.directory)
    monkeypatch.setenv("HOME", str(ssh.home))
    backend = HttpBackend(Remote(ssh.address, None).connect)
    with serving(backend) as served:
        browser = served.browse()
        with browser.follow() as stream:
            stream.wait_for(b": vgpumgr events")
            assert browser.ask("GET", "/ui/").body == INDEX
            begun = browser.ask("POST", "/1.0/recover", b"{}")
            assert begun.status == 202
            stream.wait_for(b'"succeeded"')
            monkeypatch.setattr(ssh.server, "_environment", {})
            away = browser.ask("GET", "/1.0")
            assert away.status == 503
            assert b"VG361" in away.body
        monkeypatch.undo()
        monkeypatch.setenv("HOME", str(ssh.home))
        # a connection that has ended is made again
        backend.connect.__self__._client.close()  # type: ignore[attr-defined]
        assert browser.ask("GET", "/1.0").status == 200
