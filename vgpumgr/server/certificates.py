"""The listener's certificate: one that is given, or one that vgpumgr makes; and the names in those of clients.

One that is made stays: clients know it by its fingerprint. It is valid for ten years, and names the host.
"""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from vgpumgr.errors import SettingsError, VgpumgrError
from vgpumgr.host.files import PRIVATE, READABLE, check_trusted, make_directory, replace_file
from vgpumgr.model.frozen import dataclass

DIRECTORY = "listener"
_YEARS = 10


@dataclass(frozen=True, slots=True)
class Identity:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path
    self_made: bool


def find_identity(state_dir: Path, certificate: str, key: str, address: str) -> Identity:
    """The files that the configuration names, else those that were made for this host, which are made where there are
    none. Raises SettingsError.
    """
    if certificate:
        return Identity(Path(certificate), Path(key), self_made=False)
    directory = state_dir / DIRECTORY
    made = Identity(directory / "certificate.pem", directory / "key.pem", self_made=True)
    try:
        make_directory(directory, 0o700)
        check_trusted(directory)
        if not (made.certificate.exists() and made.key.exists()):
            _make(made, address)
    except (OSError, VgpumgrError) as error:
        raise SettingsError(
            "the listener has no certificate",
            cause=f"{directory}: {error}",
            hint=f"ls -l {directory}",
        ) from error
    return made


def _make(files: Identity, address: str) -> None:
    # paramiko brings it
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    host = socket.gethostname()[:64] or "vgpumgr"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    names: list[x509.GeneralName] = [x509.DNSName(host)]
    if not ip_address(address).is_unspecified:
        names.append(x509.IPAddress(ip_address(address)))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form, encoding = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    text = key.private_bytes(encoding, form, serialization.NoEncryption())
    replace_file(files.key, text, PRIVATE, sync=True)
    replace_file(files.certificate, made.public_bytes(encoding), READABLE, sync=True)


def make_tls(files: Identity, client_ca: str) -> ssl.SSLContext:
    """What the listener speaks: TLS 1.3, and no session is resumed, so that each connection proves itself. Raises
    SettingsError.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.num_tickets = 0
    tls.set_alpn_protocols(["http/1.1"])
    try:
        # a key with a password would ask for it on the terminal
        tls.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            "the listener's certificate and key cannot be used",
            cause=f"{files.certificate}, {files.key}: {error}",
            why="both are PEM files, and the key is without a password",
            hint="vgpumgr config show",
        ) from error
    if client_ca:
        tls.verify_mode = ssl.CERT_OPTIONAL
        try:
            tls.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                "the listener's client_ca cannot be used",
                cause=f"{client_ca}: {error}",
                hint="a PEM file",
            ) from error
    return tls


def read_fingerprint(certificate: Path) -> str:
    """SHA-256 of the first certificate of a PEM file, in hexadecimal digits. Raises SettingsError."""
    try:
        text = certificate.read_text()
        end = "-----END CERTIFICATE-----"
        first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()
    except (OSError, ValueError) as error:
        raise SettingsError(
            "the listener's certificate cannot be read", cause=f"{os.fspath(certificate)}: {error}"
        ) from error


def read_subject(certificate: bytes) -> str | None:
    """The subject of a certificate, as RFC 4514 writes it; None where it has none, or none that can be read."""
    from cryptography import x509

    try:
        return x509.load_der_x509_certificate(certificate).subject.rfc4514_string() or None
    except ValueError:
        return None
