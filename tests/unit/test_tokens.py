"""The file of tokens, and what a listener refuses to start with."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vgpumgr.errors import (
    AccessDeniedError,
    SettingsError,
    TokenExistsError,
    TokenFileError,
    TokenNotFoundError,
    TooManyRequestsError,
)
from vgpumgr.host.sockets import Peer
from vgpumgr.model.callers import NetworkCaller
from vgpumgr.model.routes import Role
from vgpumgr.server.access import Access, Rank, find_scope
from vgpumgr.server.certificates import find_identity, make_tls, read_fingerprint, read_subject
from vgpumgr.server.connections import Limits
from vgpumgr.server.listener import _bind
from vgpumgr.server.settings import LimitSettings, read_configuration
from vgpumgr.state import tokens as module
from vgpumgr.state.tokens import TokenRecord, TokenStore, hash_secret


def make(name: str, **more: Any) -> TokenRecord:
    return TokenRecord(f"id-{name}", name, "viewer", 100.0, **more)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "state" / "tokens.json")


def test_a_secret_is_found_by_itself_alone(store: TokenStore) -> None:
    assert store.read() == ()
    secrets = [store.create(make(name)) or "" for name in ("a", "b")]
    assert len({*secrets}) == 2
    for name, secret in zip("ab", secrets, strict=True):
        found = store.find_secret(secret, 101)
        assert found is not None
        assert (found.name, found.sha256) == (name, hash_secret(secret))
        assert store.find_secret(found.sha256, 101) is None
        assert secret not in store.path.read_text()
    for wrong in ("", "vgpumgr_", secrets[0][:-1], secrets[0] + "x"):
        assert store.find_secret(wrong, 101) is None
    assert store.revoke("a").name == "a"
    assert store.find_secret(secrets[0], 101) is None
    # another process has written it
    assert TokenStore(store.path).find_secret(secrets[1], 101) is not None
    with pytest.raises(TokenNotFoundError, match="no token a"):
        store.revoke("a")


def test_a_name_is_taken_until_its_token_has_expired(store: TokenStore) -> None:
    first = store.create(make("a", expires_s=200.0)) or ""
    with pytest.raises(TokenExistsError, match="there is a token a"):
        store.create(make("a"))
    assert store.find_secret(first, 199.9) is not None
    assert store.find_secret(first, 200) is None
    later = TokenRecord("id-2", "a", "viewer", 200.0)
    second = store.create(later) or ""
    assert [one.id for one in store.read()] == ["id-2"]
    assert store.find_secret(first, 150) is None
    assert store.find_secret(second, 1e12) is not None


def test_a_subject_stands_for_one_token(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.create(make("a", subject="CN=a")) is None
    with pytest.raises(TokenExistsError) as caught:
        store.create(make("b", subject="CN=a"))
    assert caught.value.held_by == ("token a",)
    assert store.find_subject("CN=a", 101) is not None
    assert store.find_subject("", 101) is None
    # it has no secret: neither nothing nor its hash is one
    assert store.find_secret("", 101) is None
    monkeypatch.setattr(module, "MAX_TOKENS", 1)
    with pytest.raises(TokenExistsError, match="no more are taken"):
        store.create(make("c"))


def test_none_of_those_that_are_made_at_once_is_lost(store: TokenStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: TokenStore(store.path).create(make(f"t{n}")), range(16)))
    assert len(store.read()) == 16
    assert all(one and store.find_secret(one, 101) for one in made)


def test_a_file_that_another_could_have_written_is_not_taken(store: TokenStore) -> None:
    secret = store.create(make("a")) or ""
    other = store.path.with_name("other")
    store.path.rename(other)
    store.path.symlink_to(other)
    with pytest.raises(TokenFileError):
        store.find_secret(secret, 101)
    store.path.unlink()
    os.mkfifo(store.path)
    with pytest.raises(TokenFileError):
        store.find_secret(secret, 101)


BAD = [
    ('address = "gpu1"', "is no IP address"),
    ('address = "0.0.0.0"\ncertificate = "/x"', "given together"),
    ('address = "0.0.0.0"\nclient_ca = "ca.pem"', "is no absolute path"),
    ("port = 70000", "less than or equal to 65535"),
    ("connections = 1", "greater than or equal to 4"),
    ("adress = 1", "did you mean listen.address"),
]


@pytest.mark.parametrize(("line", "text"), BAD)
def test_a_configuration_that_cannot_be_is_refused(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "vgpumgr.toml"
    path.write_text(f"[listen]\n{line}\n")
    with pytest.raises(SettingsError) as caught:
        read_configuration(path)
    assert text in str(caught.value.cause)


def test_a_certificate_is_made_once_and_a_bad_one_refused(tmp_path: Path) -> None:
    made = find_identity(tmp_path, "", "", "::")
    before = made.certificate.read_bytes()
    assert find_identity(tmp_path, "", "", "127.0.0.1") == made
    assert made.certificate.read_bytes() == before
    assert len(read_fingerprint(made.certificate)) == 64
    make_tls(made, "")
    assert read_subject(b"x") is None
    junk = tmp_path / "junk.pem"
    junk.write_text("x")
    for certificate, key, client_ca in (
        (str(junk), str(junk), ""),
        (str(tmp_path / "none"), str(made.key), ""),
        (str(made.certificate), str(made.certificate), ""),
        (str(made.certificate), str(made.key), str(junk)),
        (str(made.certificate), str(made.key), str(tmp_path / "none")),
    ):
        with pytest.raises(SettingsError):
            make_tls(find_identity(tmp_path, certificate, key, "::"), client_ca)
    with pytest.raises(SettingsError):
        read_fingerprint(junk)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1 port {port}"):
            _bind("127.0.0.1", port)


def test_what_is_kept_for_root_no_caller_of_the_network_gets() -> None:
    access = Access(frozenset({0}), None, None)
    ranks = {role: access.find_rank(Peer.from_network(NetworkCaller("a", role))) for role in Role}
    assert ranks[Role.ROOT] is ranks[Role.ADMIN] is Rank.ADMIN
    assert ranks[Role.TENANT] is ranks[Role.NONE] is Rank.STRANGER
    assert access.find_rank(Peer(1, 0, frozenset())) is Rank.ROOT
    # nor slots of callers of this host
    limits = Limits(LimitSettings(requests_per_user=1), access)
    here, there = (
        Peer(1, 7, frozenset()),
        Peer.from_network(NetworkCaller("a", Role.ROOT, "n", "i")),
    )
    assert limits.find_requests(here) is not limits.find_requests(there)
    assert limits.find_listeners(here) is not limits.find_listeners(there)
    with limits.find_requests(there).hold(there, access.find_rank(there)):
        with pytest.raises(TooManyRequestsError, match="token n has too many"):
            limits.find_requests(there).take(there, access.find_rank(there))
        # another token has its own
        other = Peer.from_network(NetworkCaller("a", Role.ROOT, "n", "j"))
        limits.find_requests(other).take(other, access.find_rank(other))


def test_a_tenants_token_without_a_tenant_sees_nothing() -> None:
    with pytest.raises(AccessDeniedError, match="may not do this"):
        find_scope(Peer.from_network(NetworkCaller("a", Role.TENANT, "n", "i", "")))
    assert find_scope(Peer.from_network(NetworkCaller("a", Role.TENANT, "n", "i", "red"))) == "red"
    assert find_scope(Peer.from_network(NetworkCaller("a", Role.VIEWER, "n", "i"))) is None
