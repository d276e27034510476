"""GPUs over the network, on one machine: a *host A* with a relay in the worker's place, and a *host B* with a channel.

Identities are certificate authorities of the test; the broker of B is a thread that gives the channel's agent.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.unit.transport_rig import LIB, Rig, wait_for
from vgpumgr.virtio.sandbox import choose_user_id

RELAY = LIB / "bin" / "vgpumgr-relay"
DIAL = LIB / "bin" / "vgpumgr-dial"
LINK = LIB / "bin" / "vgpumgr-link"
ECHO_LINK = LIB / "test" / "vgpumgr-test-link"
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A host's own, which signs what that host uses."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str) -> Self:
        """Another one of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"vgpumgr {name}")])
        builder = _begin(subject, subject, key, DAY).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        return cls(name, key, builder.sign(key, hashes.SHA256()))

    def issue(
        self,
        directory: Path,
        subject: dict[x509.ObjectIdentifier, str],
        *,
        lasts: datetime.timedelta = DAY,
    ) -> None:
        """Writes ``cert.pem`` and ``key.pem``; a certificate that lasts less than no time has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(oid, text) for oid, text in subject.items()])
        builder = _begin(name, self.certificate.subject, key, lasts)
        is_client = NameOID.ORGANIZATION_NAME in subject
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if is_client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if not is_client:
            names = [x509.DNSName(subject[NameOID.COMMON_NAME])]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        directory.mkdir(exist_ok=True)
        write(directory / "cert.pem", encode(certificate))
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write(directory / "key.pem", text)
        (directory / "key.pem").chmod(0o644)


def encode(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def write(path: Path, text: bytes) -> None:
    """At once, as what reads it may be running."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(text)
    new.rename(path)


def _begin(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    lasts: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    first = now - DAY if lasts > datetime.timedelta() else now - 2 * DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(now + lasts)
    )


def client_name(
    host: str = "a", claim: str = "claim1", attachment: str = "00000001"
) -> dict[x509.ObjectIdentifier, str]:
    """The subject of an attachment's certificate."""
    return {
        NameOID.ORGANIZATION_NAME: host,
        NameOID.ORGANIZATIONAL_UNIT_NAME: attachment,
        NameOID.COMMON_NAME: claim,
    }


class Broker:
    """In the place of a daemon: answers each line by ``answer``; a path in it is connected to and given along."""

    def __init__(
        self, path: Path, answer: Callable[[dict[str, object]], dict[str, object] | None]
    ) -> None:
        self.answer = answer
        self.asked: list[dict[str, object]] = []
        self.connections: list[socket.socket] = []
        self.open = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Nobody connects any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self.open += 1
        self.connections.append(connection)
        with connection, contextlib.suppress(OSError, ValueError):
            for line in connection.makefile("rb"):
                self.asked.append(json.loads(line))
                answer = self.answer(self.asked[-1])
                if answer is not None:
                    self.reply(connection, answer)
        self.open -= 1

    def reply(self, connection: socket.socket, answer: dict[str, object]) -> None:
        agent = answer.pop("agent", None)
        text = json.dumps(answer).encode() + b"\n"
        if agent is None:
            connection.sendall(text)
            return
        with socket.socket(socket.AF_UNIX) as given:
            given.connect(str(agent))
            socket.send_fds(connection, [text], [given.fileno()])


class Wire:
    """A network that can be cut: forwards connections to a port of this host."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.connections = 0
        #: refuses new connections, and swallows what comes
        self.is_down = False
        self.is_silent = False
        self._pairs: list[socket.socket] = []
        #: what connections began with, in clear
        self.heads: list[bytes] = []
        #: cut after so many bytes, from each connection's beginning
        self.cut_after: list[int] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """All connections end, without a word to TLS."""
        for one in self._pairs:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._pairs = []

    def close(self) -> None:
        self.is_down = True
        self.cut()
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            if self.is_down:
                near.close()
                continue
            self.connections += 1
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            limit = [self.cut_after.pop(0) if self.cut_after else -1]
            self._pairs += [near, far]
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._copy, args=(one, other, limit), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket, limit: list[int]) -> None:
        head = b""
        with contextlib.suppress(OSError, ValueError):
            while data := one.recv(1 << 16):
                if len(head) < 32 and (head := head + data)[:8] == b"VGPULINK" and len(head) >= 32:
                    self.heads.append(head[:32])
                while self.is_silent and not self.is_down:
                    if one not in self._pairs:
                        return
                    threading.Event().wait(0.05)
                if limit[0] >= 0:
                    data, limit[0] = data[: limit[0]], max(limit[0] - len(data), 0)
                    other.sendall(data)
                    if not limit[0]:
                        break
                    continue
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@dataclass
class Far:
    """Host B: a channel and its listener for links."""

    rig: Rig
    directory: Path
    program: Path = ECHO_LINK
    options: Sequence[str] = ()
    authority: Authority = field(default_factory=lambda: Authority.make("b"))
    name: str = "b"
    #: host A's
    other: Authority = field(default_factory=lambda: Authority.make("a"))

    def __enter__(self) -> Self:
        self.rig.__enter__()
        for name in ("identity", "peers"):
            (self.directory / name).mkdir(parents=True)
        self.authority.issue(self.directory / "identity", {NameOID.COMMON_NAME: self.name})
        self.broker = Broker(self.directory / "broker.sock", self.answer)
        self.log = self.directory / "link.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.start()
        return self

    def answer(self, _: dict[str, object]) -> dict[str, object] | None:
        """Each one gets this channel."""
        return {"ok": True, "agent": str(self.rig.socket)}

    def start(self) -> None:
        """The listener, and waits until it listens."""
        words = [
            self.program,
            "--listen",
            f"127.0.0.1:{self.port}",
            "--identity",
            self.directory / "identity",
        ]
        words += ["--peers", self.directory / "peers", "--broker", self.directory / "broker.sock"]
        if os.geteuid() == 0:
            words += ["--user", "1879048186:1879048186"]
        with self.log.open("ab") as log:
            self.listener = subprocess.Popen([*map(str, words), *self.options], stderr=log)

        def listens() -> bool:
            assert self.listener.poll() is None, self.log.read_text()
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", self.port)) == 0

        wait_for(listens, "the listener")

    def stop(self) -> None:
        """Ends the listener; its processes serve on."""
        self.listener.send_signal(signal.SIGTERM)
        self.listener.wait()

    def reach(self, near: Near, identity: bytes | None = None) -> ssl.SSLSocket:
        """A connection with the attachment's certificate, by one who does not speak as the relay does."""
        context = ssl.create_default_context(cafile=near.link_directory / "peer.pem")
        context.load_cert_chain(near.link_directory / "cert.pem", near.link_directory / "key.pem")
        context.set_alpn_protocols(["vgpumgr-link/1"])
        plain = socket.create_connection(("127.0.0.1", self.port))
        plain.sendall(b"VGPULINK" + struct.pack("<II", 1, 0) + (identity or os.urandom(16)))
        return context.wrap_socket(plain, server_hostname=self.name)

    def trust(self, *authorities: Authority) -> None:
        """The hosts that may connect."""
        for one in authorities:
            write(self.directory / "peers" / f"{one.name}.pem", encode(one.certificate))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.listener.poll() is None:
            self.stop()
        self.broker.close()
        self.rig.__exit__(kind, value, trace)


class Near(Rig):
    """Host A: a VM's channel whose GPU is the other host's."""

    def __init__(
        self,
        far: Far,
        *,
        transport: str = "ring",
        shm_size_bytes: int = 64 << 20,
        relay_options: Sequence[str] = (),
        subject: dict[x509.ObjectIdentifier, str] | None = None,
        authority: Authority | None = None,
    ) -> None:
        self.link_directory = Path(tempfile.mkdtemp(prefix="vgl"))
        super().__init__(
            transport,
            shm_size_bytes=shm_size_bytes,
            worker=RELAY,
            worker_args=(f"--link={self.link_directory}", *relay_options),
        )
        self.authority = authority or far.other
        self.far = far
        self.wire = Wire(far.port)
        self.authority.issue(self.link_directory, subject or client_name())
        write(self.link_directory / "peer.pem", encode(far.authority.certificate))
        write(self.link_directory / "peer.name", f"{far.name}\n".encode())
        write(self.link_directory / "address", f"tcp 127.0.0.1 {self.wire.port}\n".encode())
        for path in (self.link_directory, *self.link_directory.iterdir()):
            path.chmod(path.stat().st_mode | 0o055)
        self.dialer: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.far.trust(self.authority)
        self.start_dialer()
        return super().__enter__()

    def start_dialer(self) -> None:
        words = [str(DIAL), "--dir", str(self.link_directory)]
        if os.geteuid() == 0 and "VGPUMGR_ALLOW_UNCONFINED" not in os.environ:
            user = choose_user_id(self.keeper.directory)
            words += ["--owner", f"{user}:{user}"]
        (self.link_directory / "dial.sock").unlink(missing_ok=True)
        self.dialer = subprocess.Popen(words)
        wait_for((self.link_directory / "dial.sock").exists, "the dialer")

    def read_dialer(self) -> list[dict[str, object]]:
        """What the dialer says of its sessions."""
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(self.link_directory / "dial.sock"))
            one.sendall(b"status\n")
            found: dict[str, list[dict[str, object]]] = json.loads(one.makefile().readline())
            return found["sessions"]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, value, trace)
        if self.dialer is not None:
            self.dialer.kill()
            self.dialer.wait()
        self.wire.close()
