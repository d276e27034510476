"""Links under attack: strangers, hosts that are not who they say, and both ends as an enemy's."""

from __future__ import annotations

import contextlib
import datetime
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.support.link_rig import Authority, Far, Near, client_name, encode, write
from tests.unit.transport_rig import PATIENCE_S, Rig, children, read_line, wait_for

pytestmark = pytest.mark.native

RESUME, DATA, ACK, PING = range(1, 5)
HELLO, WELCOME, REFUSED, FRAME, REPLY, END = range(1, 7)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with Far(Rig("ring"), tmp_path_factory.mktemp("b")) as made:
        yield made


@pytest.fixture
def near(far: Far) -> Iterator[Near]:
    with Near(far) as made:
        yield made


def record(kind: int, body: bytes = b"", *, taken: int = 0, flags: int = 0) -> bytes:
    return struct.pack("<IHHQ", len(body), kind, flags, taken) + body


def message(kind: int, body: bytes = b"", *fields: int) -> bytes:
    words = (*fields, 0, 0, 0, 0, 0, 0)[:6]
    return struct.pack("<8I", kind, len(body), *words) + body


def hello(name: str = "enemy") -> bytes:
    body = struct.pack("<4I32s32s", 1, 7, 4096, 0, name.encode(), b"1")
    return message(HELLO, body)


def say_open(far: Far, near: Near) -> tuple[str, str]:
    """What a guest process hears, and what the listener has logged meanwhile."""
    before = len(far.log.read_text())
    line = near.run("open")
    assert near.status().violations.count == 0
    assert near.status().worker.state == "ready"
    return line.strip(), far.log.read_text()[before:]


# ---- who may connect ----


def test_a_host_that_was_never_trusted(far: Far, near: Near) -> None:
    Authority.make("a").issue(near.link_directory, client_name())
    line, log = say_open(far, near)
    assert line == "open: EACCES: the other host refuses this host's certificate"
    assert "link: a connection is refused: its certificate is refused: " in log


@pytest.mark.parametrize(
    ("subject", "lasts"),
    [
        pytest.param(client_name(host="c"), 1, id="another-trusted-host's-name"),
        pytest.param(client_name(host="unknown"), 1, id="a-name-that-is-not-there"),
        pytest.param(client_name(host="../peers/a"), 1, id="a-path"),
        pytest.param({NameOID.COMMON_NAME: "b"}, 1, id="a-server's"),
        pytest.param(client_name(), -1, id="expired"),
    ],
)
def test_certificates_that_are_refused(
    far: Far, near: Near, subject: dict[x509.ObjectIdentifier, str], lasts: int
) -> None:
    far.trust(Authority.make("c"))
    far.other.issue(near.link_directory, subject, lasts=datetime.timedelta(days=lasts))
    line, log = say_open(far, near)
    assert line == "open: EACCES: the other host refuses this host's certificate"
    assert "its certificate is refused" in log


def test_a_host_that_is_not_the_gpus(far: Far, near: Near) -> None:
    for authority, name, why in (
        (Authority.make("b"), "b", "self-signed certificate in certificate chain"),
        (far.authority, "other", "hostname mismatch"),
    ):
        write(near.link_directory / "peer.pem", encode(authority.certificate))
        write(near.link_directory / "peer.name", name.encode())
        for path in near.link_directory.glob("peer.*"):
            path.chmod(0o644)
        line, _ = say_open(far, near)
        assert line.startswith("open: EACCES: its certificate is refused: "), line
        assert why in line or "unable to get" in line or "signature" in line, line


def test_nothing_older_than_tls_1_3_and_no_other_protocol(far: Far, near: Near) -> None:
    for old, protocol in ((True, "vgpumgr-link/1"), (False, "h2")):
        context = ssl.create_default_context(cafile=near.link_directory / "peer.pem")
        context.load_cert_chain(near.link_directory / "cert.pem", near.link_directory / "key.pem")
        context.set_alpn_protocols([protocol])
        if old:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert is_refused(far, context)


def is_refused(far: Far, context: ssl.SSLContext) -> bool:
    """Whether the connection ends, at the latest when both ends could speak."""
    plain = socket.create_connection(("127.0.0.1", far.port))
    plain.sendall(b"VGPULINK" + struct.pack("<II", 1, 0) + bytes(16))
    try:
        with context.wrap_socket(plain, server_hostname="b") as one:
            one.sendall(record(RESUME))
            return one.recv(100) == b""
    except OSError:
        return True


def test_what_the_daemon_says_is_told(
    far: Far, near: Near, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = 'claim "claim1" is not\n on this host'
    monkeypatch.setattr(far.broker, "answer", lambda _: {"error": said})
    line, _ = say_open(far, near)
    assert line == 'open: EACCES: claim "claim1" is not  on this host'
    request = far.broker.asked[-1]["link"]
    assert isinstance(request, dict)
    assert {k: request[k] for k in ("host", "claim", "attachment", "name")} == {
        "host": "a",
        "claim": "claim1",
        "attachment": "00000001",
        "name": "vgpumgr-test-client",
    }
    monkeypatch.setattr(far.broker, "answer", lambda _: {"ok": True})
    assert "gives no answer that makes sense" in say_open(far, near)[0]


def test_a_host_without_a_daemon_or_a_listener(tmp_path: Path) -> None:
    options = ("--sessions-of-host", "1")
    with Far(Rig("ring"), tmp_path / "b", options=options) as other, Near(other) as near:
        client = near.client("open", "hang")
        assert read_line(client) == "ok open"
        assert "as many processes of this host as it takes" in say_open(other, near)[0]
        client.kill()
        wait_for(lambda: not children(other.listener.pid), "its process has ended")
        other.broker.close()
        assert "the daemon of the GPU's host does not run" in say_open(other, near)[0]
        other.stop()
        near.wire.is_down = True
        assert "EACCES" in say_open(other, near)[0]


def test_a_channel_that_is_too_small_on_the_other_host(tmp_path: Path) -> None:
    with Far(Rig("ring", shm_size_bytes=1 << 20), tmp_path / "b") as far, Near(far) as near:
        assert "give the VM's channel less memory" in say_open(far, near)[0]


# ---- strangers ----


def test_the_session_of_another_cannot_be_cut_or_taken(far: Far, near: Near) -> None:
    client = near.client("open", "sleepy", "few", "close")
    assert read_line(client) == "ok open"
    identity = near.wire.heads[-1][16:]
    # with a certificate of the same host, for another attachment; and without any
    with Near(far, subject=client_name(attachment="00000002"), authority=far.other) as other:
        for _ in range(3):
            with contextlib.suppress(OSError), far.reach(other, identity) as one:
                one.sendall(record(RESUME))
                assert one.recv(100) == b""
    for _ in range(8):
        with socket.create_connection(("127.0.0.1", far.port)) as plain:
            plain.sendall(b"VGPULINK" + struct.pack("<II", 1, 0) + identity + b"no TLS at all")
    assert client.communicate(timeout=PATIENCE_S)[0].splitlines() == [
        "ok sleepy",
        "ok few",
        "ok close",
    ]
    assert near.wire.connections == 1


def test_strangers_who_say_nothing_keep_nobody_out_for_long(far: Far, near: Near) -> None:
    silent = [socket.create_connection(("127.0.0.1", far.port)) for _ in range(80)]
    for one in silent[::2]:
        one.send(b"VGPU")
    near.check("open", "few", "close")
    wait_for(lambda: all(is_closed(one) for one in silent), "they are hung up on")
    for one in silent:
        one.close()


def is_closed(one: socket.socket) -> bool:
    one.settimeout(0.01)
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


# ---- a host that was taken over ----


def test_a_relay_that_lies_ends_its_own_session_only(far: Far, near: Near) -> None:
    client = near.client("open", "hang")
    assert read_line(client) == "ok open"
    chance = random.Random(5)
    frame = message(FRAME, bytes(8), 14, 1, 1)  # ECHO_ACCOUNT shares memory, as far as links know
    lies = [
        record(DATA, hello()),  # before it has resumed
        record(RESUME, taken=5),
        record(RESUME) + record(RESUME),
        record(RESUME) + record(DATA, b"", taken=0),
        record(RESUME) + record(ACK, taken=1 << 40),
        record(RESUME) + record(DATA, message(FRAME, b"")),
        record(RESUME) + record(DATA, message(WELCOME, bytes(104))),
        record(RESUME) + record(DATA, hello() + hello()),
        record(RESUME) + record(DATA, struct.pack("<8I", FRAME, 1 << 31, 0, 0, 0, 0, 0, 0)),
        record(RESUME) + struct.pack("<IHHQ", 1 << 30, DATA, 0, 0) + bytes(100),
        record(RESUME) + bytes(chance.randrange(256) for _ in range(4000)),
    ]
    before = len(far.rig.status().lanes)
    for lie in lies:
        with far.reach(near) as one, contextlib.suppress(OSError):
            one.sendall(lie)
            while one.recv(4096):
                pass
    # one that is welcome first
    for rest, why in (
        (frame, b"the relay says what it must not"),
        (message(FRAME, bytes(8), 1, 1, 1, 1 << 30), b"the relay says what it must not"),
        (message(FRAME, b"", 999, 0, 0) * 2, b"the worker of this VM has ended the session"),
    ):
        data = b""
        with far.reach(near) as one, contextlib.suppress(OSError):
            one.sendall(record(RESUME) + record(DATA, hello()))
            while len(data) < 160:  # to the end of its welcome
                data += one.recv(4096)
            one.sendall(record(DATA, rest))
            while more := one.recv(4096):
                data += more
        assert why in data
    far.rig.wait_status(lambda s: len(s.lanes) == before, "their lanes are free")
    assert client.poll() is None
    near.check("open", "few", "close")
    client.kill()


class Enemy:
    """In the place of the GPU's host, with its key: says what it likes."""

    def __init__(self, far: Far, words: bytes) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        identity = far.directory / "identity"
        self._context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
        self._context.set_alpn_protocols(["vgpumgr-link/1"])
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._words = words
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._socket.accept()
                assert len(plain.recv(32)) == 32
                with (
                    contextlib.suppress(OSError),
                    self._context.wrap_socket(plain, server_side=True) as one,
                ):
                    one.sendall(self._words)
                    while one.recv(65536):
                        pass

    def close(self) -> None:
        self._socket.close()


def test_a_gpus_host_that_lies_ends_that_process_only(far: Far, near: Near) -> None:
    words = struct.pack("<II64s32s", 4096, 2, b"GPU", b"1") + struct.pack("<QQ", 5 << 48, 3 << 48)
    lies = [
        record(DATA, b"x"),
        record(RESUME, taken=1 << 50),
        record(RESUME) + record(DATA, message(REPLY, b"", 0, 5)),
        record(RESUME) + record(DATA, message(WELCOME, words)),
        record(RESUME) + record(DATA, message(WELCOME, words[:104])),
        record(RESUME) + record(DATA, message(REFUSED, b"no\x1b[31m\xff entry")),
        record(RESUME) + record(DATA, struct.pack("<8I", REPLY, 0, 0, 0, 0, 0xFFFFFFFF, 0, 0)),
        record(RESUME) + random.Random(3).randbytes(4000),
    ]
    said = []
    for lie in lies:
        enemy = Enemy(far, lie)
        near.wire._target = enemy.port
        line, _ = say_open(far, near)
        said.append(line.removeprefix("open: EACCES: "))
        enemy.close()
    near.wire._target = far.port
    assert said[5] == "no?[31m? entry"
    assert set(said[:5] + said[6:]) == {"the other host says what it must not"}
    assert near.status().sessions.lost == 0
    near.check("open", "few", "close")


def test_a_dialer_that_is_not_there_or_lies(far: Far, near: Near) -> None:
    assert near.dialer is not None
    near.dialer.kill()
    near.dialer.wait()
    assert "the dialer of this VM does not run" in say_open(far, near)[0]
    start = time.monotonic()
    write(near.link_directory / "address", b"tcp 127.0.0.1 1\n")
    (near.link_directory / "address").chmod(0o644)
    near.start_dialer()
    assert "cannot connect to 127.0.0.1:1: Connection refused" in say_open(far, near)[0]
    write(near.link_directory / "address", b"nothing\n")
    (near.link_directory / "address").chmod(0o644)
    assert "has no address" in say_open(far, near)[0]
    assert time.monotonic() - start < 60
