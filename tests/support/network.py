"""A client of the daemon's network listener, byte for byte, and certificates for it."""

from __future__ import annotations

import hashlib
import re
import secrets
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.api.conftest import Daemon, make_daemon
from vgpumgr.state.tokens import FILE_NAME, TokenRecord, TokenStore

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Answer:
    """Of one request; status 0: the other side hung up without one."""

    status: int
    head: str = ""
    body: str = ""


@dataclass(frozen=True)
class Network:
    """The listener of a daemon."""

    daemon: Daemon
    port: int
    fingerprint: str
    source: str = "127.0.0.1"
    files: tuple[Path, Path] | None = None

    @property
    def tokens(self) -> TokenStore:
        return TokenStore(self.daemon.directory / FILE_NAME)

    def give(
        self,
        role: str,
        tenant: str = "",
        *,
        name: str = "",
        expires_s: float | None = None,
        subject: str = "",
    ) -> str:
        """The secret of a new token, which ends in so many seconds; "" for a certificate's."""
        now_s = time.time()
        ends_s = None if expires_s is None else now_s + expires_s
        name = name or f"{role}-{secrets.token_hex(3)}"
        record = TokenRecord(
            secrets.token_hex(8), name, role, now_s, tenant, subject=subject, expires_s=ends_s
        )
        return self.tokens.create(record) or ""

    def at(self, source: str) -> Network:
        """The same, from another address of this host."""
        return replace(self, source=source)

    def knock(self) -> socket.socket:
        """A connection without TLS."""
        plain = socket.create_connection(
            ("127.0.0.1", self.port), PATIENCE_S, source_address=(self.source, 0)
        )
        plain.settimeout(PATIENCE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return plain

    def connect(
        self,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        files: tuple[Path, Path] | None = None,
    ) -> ssl.SSLSocket:
        """A connection with TLS; the host's certificate is compared."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.maximum_version = version
        if files is not None:
            tls.load_cert_chain(*files)
        stream = tls.wrap_socket(self.knock())
        found = hashlib.sha256(stream.getpeercert(binary_form=True) or b"").hexdigest()
        assert found == self.fingerprint
        return stream

    def send(self, request: bytes, files: tuple[Path, Path] | None = None) -> Answer:
        """What comes back on a connection of its own."""
        try:
            with self.connect(files=files or self.files) as stream:
                stream.sendall(request)
                return receive(stream)
        except (ConnectionError, ssl.SSLError):
            return Answer(0)

    def ask(
        self, method: str, path: str, token: str | None = None, body: str = "", *lines: str
    ) -> Answer:
        """One request with a token."""
        return self.send(write_request(method, path, token, body, *lines))


def write_request(
    method: str, path: str, token: str | None = None, body: str = "", *lines: str
) -> bytes:
    """Its bytes."""
    head = [f"{method} {path} HTTP/1.1", "Host: gpu1:8443", "Connection: close", *lines]
    if token is not None:
        head.append(f"Authorization: Bearer {token}")
    if body:
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", body]).encode("latin-1")


def receive(stream: socket.socket) -> Answer:
    """One answer."""
    data = b""
    while True:
        head, found, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if found and length and len(body) >= int(length[1]):
            break
        try:
            more = stream.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            more = b""
        if not more:
            break
        data += more
    status = int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else 0
    return Answer(status, head.decode("latin-1"), body.decode("latin-1"))


@contextmanager
def listening(settings: str = "", more: str = "") -> Iterator[Network]:
    """A daemon that listens on the loopback interface; ``settings`` are more keys of ``[listen]``, ``more`` other
    sections.
    """
    text = f'[listen]\naddress = "127.0.0.1"\nport = 0\n{settings}\n{more}\n'
    for daemon in make_daemon(settings=text):
        yield find_network(daemon)


def find_network(daemon: Daemon) -> Network:
    """Where a daemon listens."""
    found = daemon.get("/1.0")["listener"]
    return Network(daemon, found["port"], found["fingerprint"])


class Authority:
    """Signs certificates of clients."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.pem"
        made = self._build(self._name, self._key.public_key(), 1, is_ca=True)
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def sign(self, subject: str, days: int = 1) -> tuple[Path, Path]:
        """Files of a certificate and its key; with ``days`` below 0 it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._build(x509.Name.from_rfc4514_string(subject), key.public_key(), days)
        stem = f"{secrets.token_hex(4)}"
        files = (self._directory / f"{stem}.crt", self._directory / f"{stem}.key")
        files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int, *, is_ca: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
