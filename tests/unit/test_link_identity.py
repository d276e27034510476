"""The identity of a host for links: its authority, and the certificates that it signs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vgpumgr.host.machine import Machine
from vgpumgr.virtio import identity
from vgpumgr.virtio.identity import (
    ensure_identity,
    get_directory,
    read_end_s,
    read_identity,
    write_client,
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine("m", tmp_path, tmp_path / "state", tmp_path / "run", "test:///default")


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def read_names(found: x509.Certificate) -> dict[str, str]:
    kinds = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME}
    kinds["OU"] = NameOID.ORGANIZATIONAL_UNIT_NAME
    names = found.subject
    return {
        key: str(one.value)
        for key, oid in kinds.items()
        for one in names.get_attributes_for_oid(oid)
    }


def make_client(machine: Machine, target: Path) -> bool:
    target.mkdir(exist_ok=True)
    return write_client(machine, "a", "train", "12345678", target, os.geteuid())


def test_each_certificate_says_what_it_is_for(machine: Machine, tmp_path: Path) -> None:
    assert read_identity(machine) is None
    made = ensure_identity(machine, "a")
    directory, target = get_directory(machine), tmp_path / "link"
    assert make_client(machine, target)
    authority, server, client = (
        load(directory / "ca.pem"), load(directory / "cert.pem"), load(target / "cert.pem"),
    )  # fmt: skip
    assert made.ca == (directory / "ca.pem").read_text()
    for one, use in (
        (server, ExtendedKeyUsageOID.SERVER_AUTH),
        (client, ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        one.verify_directly_issued_by(authority)
        # OpenSSL takes a certificate with its authority's own name for one that signs itself
        assert one.subject != authority.subject
        assert list(one.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [use]
        assert not one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert read_names(client) == {"CN": "train", "O": "a", "OU": "12345678"}
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a"]
    assert ensure_identity(machine, "a") == made == read_identity(machine)


def test_keys_are_readable_by_their_users_only(machine: Machine, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ensure_identity(machine, "a")
        target = tmp_path / "link"
        target.mkdir()
        user = 12345 if os.geteuid() == 0 else os.geteuid()
        write_client(machine, "a", "train", "1", target, user)
    finally:
        os.umask(before)
    keys = [*get_directory(machine).glob("*.key"), get_directory(machine) / "key.pem"]
    for path in keys:
        status = path.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, os.geteuid())
    status = (target / "key.pem").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, user)
    assert stat.S_IMODE(get_directory(machine).stat().st_mode) == 0o700


def test_what_is_due_is_made_anew(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, target = ensure_identity(machine, "a"), tmp_path / "link"
    make_client(machine, target)
    cert = get_directory(machine) / "cert.pem"
    server, client = cert.read_text(), (target / "cert.pem").read_text()
    assert not make_client(machine, target)
    monkeypatch.setattr(identity, "RENEW_PART", 1.1)
    assert ensure_identity(machine, "a").ca == made.ca
    assert cert.read_text() != server
    assert make_client(machine, target)
    assert (target / "cert.pem").read_text() != client
    end_s = read_end_s(target / "cert.pem")
    assert end_s is not None
    assert end_s < made.server_ends_s < made.ca_ends_s


def test_a_new_authority_signs_everything_anew(machine: Machine, tmp_path: Path) -> None:
    made, target = ensure_identity(machine, "a"), tmp_path / "link"
    make_client(machine, target)
    rotated = ensure_identity(machine, "a", rotate=True)
    assert rotated.fingerprint != made.fingerprint
    assert make_client(machine, target)
    for path in (get_directory(machine) / "cert.pem", target / "cert.pem"):
        load(path).verify_directly_issued_by(load(get_directory(machine) / "ca.pem"))
    # a host with another name is another one
    assert ensure_identity(machine, "b").fingerprint != rotated.fingerprint


def test_what_was_cut_off_is_made_whole(machine: Machine) -> None:
    """A full disk, or a power cut, between two files."""
    made = ensure_identity(machine, "a")
    (get_directory(machine) / "cert.pem").write_text("half")
    again = ensure_identity(machine, "a")
    load(get_directory(machine) / "cert.pem").verify_directly_issued_by(
        load(get_directory(machine) / "ca.pem")
    )
    assert again.fingerprint == made.fingerprint
    (get_directory(machine) / "ca.key").write_text("half")
    assert ensure_identity(machine, "a").fingerprint != made.fingerprint
