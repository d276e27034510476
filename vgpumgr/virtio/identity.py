"""This host's identity for links to other hosts of a pool: a certificate authority of its own, and what it signs.

``STATE/link`` has the authority (``ca.pem``, ``ca.key``) and the certificate of this host's listener (``cert.pem``,
``key.pem``). The pool's store has the authority's certificate: a host trusts the authority of each host that is in the
pool, for that host's name only.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vgpumgr.host.files import PRIVATE, make_directory, replace_file
from vgpumgr.host.lock import lock_file
from vgpumgr.host.machine import Machine
from vgpumgr.model.frozen import dataclass

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

#: of the authority, the listener's certificate, and an attachment's
CA_DAYS, SERVER_DAYS, CLIENT_DAYS = 3650, 90, 14
#: a certificate is made anew when less than this part of its time is left
RENEW_PART = 0.5
#: the authority itself, a year before its end: other hosts hear of the new one from the pool's store
CA_RENEW_PART = 0.1
#: clocks of hosts may differ by so much
_EARLIER = datetime.timedelta(hours=1)
_LOCK_S = 10.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What this host shows: ``ca`` is the authority's certificate (PEM), ``fingerprint`` its SHA-256."""

    name: str
    ca: str
    fingerprint: str
    ca_ends_s: float
    server_ends_s: float


def get_directory(machine: Machine) -> Path:
    """Where the identity is."""
    return machine.state_dir / "link"


def ensure_identity(machine: Machine, name: str, *, rotate: bool = False) -> Identity:
    """The identity of the host of that name: made where there is none, or for another name, or to ``rotate`` it; the
    listener's certificate anew well before its end. Raises OSError.
    """
    directory = get_directory(machine)
    make_directory(directory, 0o700)
    with lock_file(directory / "lock", _LOCK_S, what="the identity for links"):
        is_known = not rotate and _has_authority(directory, name)
        if not is_known:
            _make_authority(directory, name)
        is_due = _is_due(directory / "cert.pem", _load(directory)[0])
        if not is_known or is_due or not (directory / "key.pem").exists():
            _make_server(directory, name)
        found = _read(directory)
    assert found is not None
    return found


def read_identity(machine: Machine) -> Identity | None:
    """The identity as it is; None where there is none. Raises OSError where it cannot be read."""
    return _read(get_directory(machine))


def write_client(
    machine: Machine, host: str, claim: str, attachment: str, target: Path, uid: int
) -> bool:
    """Writes ``cert.pem`` and ``key.pem`` of an attachment of this host into a directory, for the user ``uid``; whether
    it was due. Raises OSError.
    """
    ensure_identity(machine, host)
    authority, key = _load(get_directory(machine))
    if not _is_due(target / "cert.pem", authority) and (target / "key.pem").exists():
        return False
    own = _make_key()
    names = {"CN": claim, "O": host, "OU": attachment}
    signed = _sign(names, own, authority, key, CLIENT_DAYS, server=None)
    _write_key(target / "key.pem", own, uid)
    replace_file(target / "cert.pem", _encode(signed), 0o644)
    return True


def read_end_s(path: Path) -> float | None:
    """When a certificate ends, in seconds since 1970; None where it cannot be read."""
    from cryptography import x509

    with contextlib.suppress(OSError, ValueError):
        return _end(x509.load_pem_x509_certificate(path.read_bytes())).timestamp()
    return None


def _has_authority(directory: Path, name: str) -> bool:
    """Whether there is one of that name, with its key, and not near its end."""
    try:
        authority, _ = _load(directory)
    except (OSError, ValueError, TypeError):
        return False
    return _read_name(authority) == name and _left(authority) > CA_RENEW_PART


def _read_name(found: x509.Certificate) -> str:
    from cryptography.x509.oid import NameOID

    return str(found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _read(directory: Path) -> Identity | None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    try:
        text = (directory / "ca.pem").read_text()
        found = x509.load_pem_x509_certificate(text.encode())
        server = x509.load_pem_x509_certificate((directory / "cert.pem").read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return Identity(
        _read_name(found),
        text,
        found.fingerprint(hashes.SHA256()).hex(":"),
        _end(found).timestamp(),
        _end(server).timestamp(),
    )


def _is_due(path: Path, authority: x509.Certificate) -> bool:
    """Whether a certificate is to be made anew: less than half of its time is left, or another authority signed it."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        signer = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
        own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return True
    return signer.key_identifier != own.digest or _left(found) < RENEW_PART


def _left(found: x509.Certificate) -> float:
    """The part of its time that is left."""
    now = datetime.datetime.now(datetime.UTC)
    whole = _end(found) - _read_time(found, "not_valid_before")
    return (_end(found) - now) / whole


def _end(found: x509.Certificate) -> datetime.datetime:
    return _read_time(found, "not_valid_after")


def _read_time(found: x509.Certificate, name: str) -> datetime.datetime:
    """Debian 12 has a version that answers times without a zone only."""
    time: datetime.datetime | None = getattr(found, f"{name}_utc", None)
    if time is None:
        time = getattr(found, name).replace(tzinfo=datetime.UTC)
    assert time is not None
    return time


def _make_authority(directory: Path, name: str) -> None:
    key = _make_key()
    signed = _sign({"CN": name, "O": "vgpumgr"}, key, None, key, CA_DAYS, server=None)
    _write_key(directory / "ca.key", key)
    replace_file(directory / "ca.pem", _encode(signed), PRIVATE, sync=True)


def _make_server(directory: Path, name: str) -> None:
    authority, key = _load(directory)
    own = _make_key()
    signed = _sign({"CN": name}, own, authority, key, SERVER_DAYS, server=name)
    # the listener reads both again when they change: one that does not fit to the other is read again
    _write_key(directory / "key.pem", own)
    replace_file(directory / "cert.pem", _encode(signed), PRIVATE, sync=True)


def _load(directory: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    authority = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return authority, key


def _make_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _write_key(path: Path, key: EllipticCurvePrivateKey, uid: int | None = None) -> None:
    from cryptography.hazmat.primitives import serialization as form

    text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    replace_file(path, text, PRIVATE, sync=True)
    if uid is not None and os.geteuid() == 0:
        os.chown(path, uid, uid, follow_symlinks=False)


def _encode(signed: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return signed.public_bytes(Encoding.PEM)


def _sign(
    names: dict[str, str],
    own: EllipticCurvePrivateKey,
    authority: x509.Certificate | None,
    key: EllipticCurvePrivateKey,
    days: int,
    server: str | None,
) -> x509.Certificate:
    """A certificate of the key ``own``: of an authority where that signs itself (``authority`` None), of a listener for
    the name ``server``, or of an attachment.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.datetime.now(datetime.UTC)
    subject = _name(names)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )
    for extension, is_critical in _list_extensions(own, key, authority is None, server):
        made = made.add_extension(extension, is_critical)
    return made.sign(key, hashes.SHA256())


def _name(names: dict[str, str]) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    kinds = {
        "CN": NameOID.COMMON_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    }
    return x509.Name([x509.NameAttribute(kinds[key], text) for key, text in names.items()])


def _list_extensions(
    own: EllipticCurvePrivateKey,
    key: EllipticCurvePrivateKey,
    is_authority: bool,
    server: str | None,
) -> Iterator[tuple[x509.ExtensionType, bool]]:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    yield x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True
    yield x509.SubjectKeyIdentifier.from_public_key(own.public_key()), False
    yield x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False
    yield (
        x509.KeyUsage(
            digital_signature=not is_authority,
            key_cert_sign=is_authority,
            crl_sign=is_authority,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        ),
        True,
    )
    if is_authority:
        return
    use = ExtendedKeyUsageOID.CLIENT_AUTH if server is None else ExtendedKeyUsageOID.SERVER_AUTH
    yield x509.ExtendedKeyUsage([use]), False
    if server is not None:
        yield x509.SubjectAlternativeName([x509.DNSName(server)]), False
