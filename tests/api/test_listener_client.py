"""The command line and a network listener: login, what is sent to whom, and the commands over it."""

from __future__ import annotations

import io
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.conftest import ROOT, needs_root
from tests.api.test_pool import await_true, choose, make_pool, serves
from tests.support.browser import serving
from tests.support.network import Authority, Network, listening
from vgpumgr.cli.http import HttpBackend
from vgpumgr.cli.https import Login, Target, TlsHost
from vgpumgr.cli.main import main

pytestmark = needs_root


@dataclass
class Client:
    """The command line of a user with a home of its own."""

    network: Network
    home: Path

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self.network.port}"

    def run(
        self, *words: str, line: str = "", here: bool = False, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """``here``: on the daemon's machine."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("VGPUMGR_")}
        if here:
            there = str(self.network.daemon.directory)
            kept |= {f"VGPUMGR_{name}": there for name in ("SIM", "STATE_DIR", "RUN_DIR")}
        env = {**kept, "XDG_CONFIG_HOME": str(self.home), "HOME": str(self.home), **variables}
        return subprocess.run(
            [sys.executable, "-m", "vgpumgr", *words],
            cwd=ROOT, env=env, input=line, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def there(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run("--host", self.address, *words, **variables)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with pytest.MonkeyPatch.context() as patch, listening() as found:
        choose(found.daemon, patch)
        make_pool(found.daemon)
        await_true(lambda: serves(found.daemon))
        yield found


@pytest.fixture
def client(network: Network, tmp_path: Path) -> Client:
    return Client(network, tmp_path)


def test_from_a_token_to_a_claim(client: Client) -> None:
    """As an administrator and a user do it."""
    made = client.run("token", "create", "ops", "--role", "admin", "--expires", "1h", here=True)
    secret = made.stdout.strip()
    assert (made.returncode, secret[:8], len(secret)) == (0, "vgpumgr_", 51)
    assert "shown this once" in made.stderr
    listed = client.run("token", "list", "-o", "json", here=True)
    assert [one["name"] for one in json.loads(listed.stdout)["tokens"]] == ["ops"]
    assert secret not in listed.stdout
    shown = json.loads(client.run("listener", "-o", "json", here=True).stdout)["listener"]
    assert shown["fingerprint"] == client.network.fingerprint
    logged = client.run(
        "login", client.address, "--fingerprint", shown["fingerprint"], line=secret + "\n"
    )
    assert logged.stdout == f"{client.address}: token ops, role admin\n"
    hosts = client.home / "vgpumgr" / "hosts.json"
    assert hosts.stat().st_mode & 0o777 == 0o600
    for words in (
        "tenant create vision --gpus 1",
        "claim create train --profile share:8GiB,30% --tenant vision",
        "claim list",
        "claim explain train",
        "claim wait train",
        "claim resize train --profile share:4GiB,20%",
        "gpu list",
        "status",
        "tenant set vision --gpus 2",
        "claim delete train",
        "tenant delete vision",
    ):
        done = client.there(*words.split())
        assert (done.returncode, done.stderr) == (0, ""), (words, done)
    assert (
        client.run("--hosts", f"{client.address},{client.address}/", "gpu", "list").returncode == 0
    )
    mine = client.run("token", "create", "ops", "--role", "viewer", here=True)
    assert (mine.returncode, "there is a token ops" in mine.stderr) == (6, True)
    assert client.run("token", "revoke", "ops", here=True).stdout == "token ops is revoked\n"
    refused = client.there("claim", "list")
    assert (refused.returncode, "revoked, or has expired" in refused.stderr) == (4, True)
    assert client.run("logout", client.address).returncode == 0
    assert secret not in hosts.read_text()


@dataclass
class Impostor:
    """Another host at the same address: it keeps what it gets."""

    port: int
    got: list[bytes]


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Impostor]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*Authority(tmp_path, "127.0.0.1").sign("CN=127.0.0.1"))
    listener = socket.create_server(("127.0.0.1", 0))
    found = Impostor(listener.getsockname()[1], [])

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            try:
                with tls.wrap_socket(plain, server_side=True) as stream:
                    stream.settimeout(5)
                    found.got.append(stream.recv(1 << 16))
                    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            except OSError:
                continue

    threading.Thread(target=serve, daemon=True).start()
    yield found
    listener.close()


def test_nothing_is_sent_to_another_host(client: Client, impostor: Impostor) -> None:
    secret = client.network.give("admin")
    address = f"https://127.0.0.1:{impostor.port}"
    known = {
        "token": secret,
        "fingerprint": client.network.fingerprint,
        "certificate": "",
        "key": "",
    }
    hosts = client.home / "vgpumgr" / "hosts.json"
    hosts.parent.mkdir()
    hosts.touch(0o600)
    for login, words in (
        (known, "is another host, or has a new certificate"),
        ({**known, "fingerprint": ""}, "no authority of this system has signed"),
    ):
        hosts.write_text(json.dumps({"hosts": {address: login}}))
        for command in ("gpu list", "claim create train --profile whole", "events"):
            done = client.run("--host", address, *command.split())
            assert done.returncode == 1
            assert words in done.stderr
    wrong = client.run("login", client.address, "--fingerprint", "0" * 64, line=secret)
    assert (wrong.returncode, "nothing was sent" in wrong.stderr) == (1, True)
    assert [one for one in impostor.got if one] == []


BAD = [
    (("--host", "http://gpu1:8443", "gpu", "list"), "no address of a listener"),
    (("--host", "https://", "gpu", "list"), "no address of a listener"),
    (("--host", "https://gpu1:99999", "gpu", "list"), "no address of a listener"),
    (("--host", "https://user:pw@gpu1", "gpu", "list"), "no address of a listener"),
    (("--host", "https://gpu1/x", "gpu", "list"), "no address of a listener"),
    (("login", "gpu1"), "no address of a listener"),
    (("login", "https://gpu1", "--fingerprint", "abc"), "no fingerprint"),
    (("login", "https://gpu1", "--key", "x"), "--key goes with --certificate"),
    (("login", "https://127.0.0.1:1"), "has no token"),
    (("--hosts", "a,b", "claim", "list"), "is about one pool"),
    (("token", "create", "a b", "--role", "viewer"), "no name of a token"),
    (("token", "create", "a", "--role", "tenant"), "whose claims?"),
    (("token", "create", "a", "--role", "admin", "--tenant", "x"), "has no tenant"),
    (("token", "create", "a", "--role", "viewer", "--expires", "30"), "is no duration"),
    (("token", "create", "a", "--role", "viewer", "--expires", "0d"), "is no duration"),
    (("token", "create", "a", "--role", "root"), "no role: 'root'"),
]


@pytest.mark.parametrize(("words", "text"), BAD, ids=[" ".join(row[0]) for row in BAD])
def test_bad_input_is_one_clear_error(
    client: Client,
    words: tuple[str, ...],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(client.home))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    before = client.network.tokens.read()
    assert main(words) == 2
    said = capsys.readouterr()
    assert (text in said.err, "Traceback" in said.err, said.out) == (True, False, "")
    assert not (client.home / "vgpumgr").exists()
    assert client.network.tokens.read() == before


def test_a_file_of_logins_that_others_read_is_refused(client: Client) -> None:
    hosts = client.home / "vgpumgr" / "hosts.json"
    hosts.parent.mkdir()
    for text, mode, code in (("{}", 0o644, 4), ("{", 0o600, 2), ('{"hosts": {"x": 1}}', 0o600, 2)):
        hosts.write_text(text)
        hosts.chmod(mode)
        done = client.there("gpu", "list")
        assert (done.returncode, str(hosts) in done.stderr) == (code, True), done


def test_vgpumgr_web_goes_over_it_with_the_tokens_role(network: Network) -> None:
    token = network.give("viewer", name="screen")
    host = TlsHost(Target("127.0.0.1", network.port), Login(token, network.fingerprint))
    with serving(HttpBackend(host.connect)) as served:
        browser = served.browse()
        assert json.loads(browser.ask("GET", "/1.0/access").body)["caller"] == "token screen"
        assert browser.ask("POST", "/1.0/recover", b"{}").status == 403
        with browser.follow() as stream:
            stream.wait_for(b": vgpumgr events")
            network.tokens.revoke("screen")
            stream.wait_for_end()
        assert browser.ask("GET", "/1.0/access").status == 401
