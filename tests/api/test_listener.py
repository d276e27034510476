"""The network listener from outside: who comes in, as what, for how long, and what silence and noise hold up."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.api.conftest import Daemon, make_daemon, needs_root
from tests.api.test_access import ALL, target
from tests.api.test_access_matrix import list_paths
from tests.support.network import (
    PATIENCE_S,
    Answer,
    Authority,
    Network,
    listening,
    receive,
    write_request,
)
from vgpumgr.model.routes import FOR_PROCESSES, FOR_TENANTS, Role, Route
from vgpumgr.server.audit import verify_audit
from vgpumgr.server.gatekeeper import MAX_WRONG
from vgpumgr.server.listener import MAX_HANDSHAKES, count_as

pytestmark = needs_root
ROLES = {"admin": Role.ROOT, "operator": Role.ADMIN, "viewer": Role.VIEWER, "tenant": Role.TENANT}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with listening("connections_per_address = 64") as found:
        yield found


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "authority")


@pytest.fixture(scope="module")
def mutual(authority: Authority) -> Iterator[Network]:
    """One that takes certificates of clients."""
    with listening(f'client_ca = "{authority.file}"') as found:
        yield found


def await_true(is_so: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def read_audit(daemon: Daemon) -> list[dict[str, object]]:
    return [json.loads(one) for one in (daemon.directory / "audit.jsonl").read_text().splitlines()]


# by default there is none


def list_listening(daemon: Daemon) -> list[str]:
    """The TCP sockets on which the daemon's process listens."""
    assert daemon.process is not None
    links = Path(f"/proc/{daemon.process.pid}/fd").iterdir()
    mine = {str(one.readlink()) for one in links if one.is_symlink()}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{daemon.process.pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine]


def test_it_is_off_by_default(network: Network) -> None:
    assert len(list_listening(network.daemon)) == 1
    for daemon in make_daemon():
        assert daemon.get("/1.0")["listener"] is None
        assert list_listening(daemon) == []
        assert not (daemon.directory / "listener").exists()


# who may do what


@pytest.mark.parametrize("role", ROLES)
def test_every_route_for_every_role(network: Network, role: str) -> None:
    token = network.give(role, "vision" if role == "tenant" else "")
    for route in ALL:
        if route.operation == "stream_events" and ROLES[role] >= Role.VIEWER:
            continue
        answer = network.ask(route.method, target(route), token, "{}")
        assert (may(ROLES[role], route), answer.status) != (True, 403), (route, answer)
        assert may(ROLES[role], route) or answer.status == 403, (route, answer)
        assert answer.status not in (0, 401, 500), (route, answer)


def may(role: Role, route: Route) -> bool:
    if route.operation in FOR_PROCESSES:
        return False
    return role >= route.role or (role is Role.TENANT and route.operation in FOR_TENANTS)


def test_without_a_token_nothing_is_said(network: Network) -> None:
    """Neither of a route, nor of the page, nor whether there is one."""
    paths = [(one.method, target(one)) for one in ALL]
    more = (
        "HEAD /",
        "GET /none",
        "GET /ui",
        "HEAD /ui/",
        "PUT /1.0",
        "GET /1.0/",
        "GET /ui/assets/app.js",
    )
    for method, path in [*paths, *(tuple(one.split()) for one in more)]:
        answer = network.ask(method, path)
        assert answer.status == 401, (method, path)
        assert "www-authenticate: bearer" in answer.head.lower()
        if method != "HEAD":
            assert json.loads(answer.body)["error"]["id"] == "VG368"


def list_wrong(token: str) -> list[list[str]]:
    """Lines of a head that are not the token."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    words = [
        "", token[:-1], token + "x", token.upper(), token.removeprefix("vgpumgr_"), digest,
        f"vgpumgr_{digest}", "*", "%", f"{token},{token}", f"{token} {token}", f'"{token}"',
        f"{token}\x00", "x" * 129, "é" * 20,
    ]  # fmt: skip
    named = base64.b64encode(f"root:{token}".encode()).decode()
    lines = [[f"Authorization: Bearer {word}"] for word in words]
    lines += [
        [f"Authorization: {kind} {token}"]
        for kind in ("Basic", "Token", "Bearer:", "Negotiate", "BearerX")
    ]
    lines += [
        [f"Authorization: {token}"],
        [f"Authorization: Basic {named}"],
        [f"Authorization: Bearer\x0b{token}"],
    ]
    lines += [
        [f"Authorization: Bearer {token}", f"Authorization: Bearer {token}"],
        [f"Cookie: token={token}"],
    ]
    lines += [[f"X-Authorization: Bearer {token}"], [f"Proxy-Authorization: Bearer {token}"]]
    lines += [["X-Remote-User: root", "X-Forwarded-For: 127.0.0.1", "X-Role: admin"]]
    return lines


def test_what_is_not_the_token_is_refused(network: Network) -> None:
    token = network.give("admin")
    assert network.ask("GET", "/1.0", token).status == 200
    for number, lines in enumerate(list_wrong(token)):
        # an address each, as wrong ones of one address are limited
        there = network.at(f"127.0.1.{number + 1}")
        assert there.ask("GET", "/1.0", None, "", *lines).status in (400, 401), lines
    assert network.ask("GET", f"/1.0?token={token}").status == 401
    assert network.ask("GET", f"/1.0?access_token={token}").status == 401


def test_wrong_tokens_are_limited_by_address_and_the_right_one_never_is(network: Network) -> None:
    token, wrong = network.give("viewer", name="limited"), "vgpumgr_" + "A" * 43
    here, there = network.at("127.0.2.1"), network.at("127.0.2.2")
    found = [here.ask("GET", "/1.0", wrong).status for _ in range(MAX_WRONG + 3)]
    assert found == [401] * MAX_WRONG + [429] * 3
    assert here.ask("GET", "/1.0", token).status == 200
    assert there.ask("GET", "/1.0", wrong).status == 401
    log = network.daemon.directory / "audit.jsonl"
    entries = [one for one in read_audit(network.daemon) if one.get("address") == "127.0.2.1"]
    assert [(one["event"], one["attempt"]) for one in entries] == [("refused", "GET /1.0")]
    # the further ones are one entry a minute later; of no token any part is there
    assert verify_audit(log) is None
    assert not any(secret in log.read_text() for secret in (token, wrong, wrong[8:20]))
    assert token not in (network.daemon.directory / "tokens.json").read_text()
    assert (network.daemon.directory / "tokens.json").stat().st_mode & 0o777 == 0o600


def test_the_audit_log_and_the_operation_name_the_token(network: Network) -> None:
    token = network.give("operator", name="night-shift")
    answer = network.ask("POST", "/1.0/gpus/0/drain", token, '{"reason": "fan"}', "Prefer: wait=30")
    operation = json.loads(answer.body)["operation"]
    assert (operation["caller"], operation["uid"]) == ("token night-shift", -1)
    entry = next(one for one in read_audit(network.daemon) if one.get("id") == operation["id"])
    assert (entry["token"], entry["address"], entry["uid"]) == ("night-shift", "127.0.0.1", None)
    assert "by token night-shift" in str(network.daemon.get("/1.0/gpus/0"))
    who = json.loads(network.ask("GET", "/1.0/access", token).body)
    assert (who["caller"], who["role"]) == ("token night-shift", "operator")
    assert network.daemon.get("/1.0/access")["role"] == "admin"


# for how long


def follow(network: Network, token: str) -> ssl.SSLSocket:
    stream = network.connect()
    stream.sendall(write_request("GET", "/1.0/events", token))
    data = b""
    while b": vgpumgr events" not in data:
        data += stream.recv(1 << 16) or pytest.fail("no stream")
    return stream


def read_all(stream: socket.socket) -> None:
    while stream.recv(1 << 16):
        pass


def await_end(stream: socket.socket) -> None:
    """An event of before may come first."""
    stream.settimeout(PATIENCE_S)
    with suppress(ConnectionError, ssl.SSLError):
        read_all(stream)


def test_a_token_that_is_revoked_is_refused_at_once_with_its_streams(network: Network) -> None:
    token, other = network.give("viewer", name="gone"), network.give("viewer", name="stays")
    with (
        follow(network, token) as ended,
        follow(network, other) as kept,
        network.connect() as open_one,
    ):
        ask = write_request("GET", "/1.0/access", token).replace(b"close", b"keep-alive")
        open_one.sendall(ask)
        assert receive(open_one).status == 200
        network.tokens.revoke("gone")
        # on a connection that was open already, too
        open_one.sendall(ask)
        assert receive(open_one).status == 401
        assert network.ask("GET", "/1.0/access", token).status == 401
        await_end(ended)
        kept.settimeout(0.5)
        with pytest.raises(TimeoutError):
            read_all(kept)
    # another token of the same name does not bring it back
    again = network.give("viewer", name="gone")
    assert network.ask("GET", "/1.0/access", token).status == 401
    assert network.ask("GET", "/1.0/access", again).status == 200


def end(network: Network, name: str) -> None:
    path = network.daemon.directory / "tokens.json"
    data = json.loads(path.read_text())
    for one in data["tokens"]:
        if one["name"] == name:
            one["expires_s"] = time.time() - 1
    path.write_text(json.dumps(data))


def test_a_token_expires_with_its_streams(network: Network) -> None:
    token = network.give("viewer", name="brief", expires_s=3600)
    with follow(network, token) as stream:
        # as if the hour were over
        end(network, "brief")
        await_end(stream)
    assert network.ask("GET", "/1.0/access", token).status == 401
    assert network.ask("GET", "/1.0/access", network.give("viewer", expires_s=-1)).status == 401


def test_a_file_of_tokens_that_cannot_be_read_lets_no_one_in(network: Network) -> None:
    token, path = network.give("admin"), network.daemon.directory / "tokens.json"
    whole = path.read_text()
    try:
        for text in (
            "",
            "{}",
            "[" * 5000,
            whole.replace('"admin"', '"root"'),
            whole.replace('"form": 1', '"form": 2'),
        ):
            path.write_text(text)
            answer = network.ask("GET", "/1.0", token)
            assert (answer.status, json.loads(answer.body)["error"]["id"]) == (503, "VG342"), text[
                :40
            ]
        path.unlink()
        assert network.ask("GET", "/1.0", token).status == 401
    finally:
        path.write_text(whole)
    assert network.ask("GET", "/1.0", token).status == 200


# TLS


def test_it_speaks_tls_1_3_and_nothing_else(network: Network) -> None:
    with network.connect() as stream:
        assert stream.version() == "TLSv1.3"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        network.connect(ssl.TLSVersion.TLSv1_2)
    request = write_request("GET", "/1.0", network.give("admin"))
    for data in (request, b"\x00" * 64, b"\x16\x03\x01\xff\xff" + b"x" * 600, b"SSH-2.0-x\r\n"):
        with network.knock() as plain:
            plain.sendall(data)
            assert receive(plain).status == 0, data
    assert network.daemon.get("/1.0")["version"]


def test_the_key_of_its_certificate_is_private(network: Network) -> None:
    directory = network.daemon.directory / "listener"
    modes = {one.name: one.stat().st_mode & 0o777 for one in (directory, *directory.iterdir())}
    assert modes == {"listener": 0o700, "certificate.pem": 0o644, "key.pem": 0o600}


def test_a_certificate_is_what_a_token_stands_for_it(
    mutual: Network, authority: Authority, tmp_path: Path
) -> None:
    mutual.give("tenant", "vision", name="alice", subject="CN=alice,O=Lab")
    alice = authority.sign("CN=alice,O=Lab")
    ask = write_request("GET", "/1.0/access")
    who = json.loads(mutual.send(ask, alice).body)
    assert (who["caller"], who["role"], who["tenant"]) == ("token alice", "tenant", "vision")
    assert mutual.send(write_request("GET", "/1.0/gpus"), alice).status == 403
    # a wrong token beside it is wrong
    assert mutual.send(write_request("GET", "/1.0/access", "vgpumgr_x"), alice).status == 401
    # without one a token is enough, and without both there is nothing
    assert mutual.send(write_request("GET", "/1.0", mutual.give("viewer"))).status == 200
    assert mutual.send(ask).status == 401
    for subject in (
        "CN=alice",
        "CN=alice,O=Other",
        "CN=alice,O=Lab,C=DE",
        "O=Lab,CN=alice",
        "CN=Alice,O=Lab",
    ):
        assert mutual.send(ask, authority.sign(subject)).status == 401, subject
    # of another authority, of a time that is over, or by itself: TLS refuses it
    foreign = Authority(tmp_path, "authority")
    for files in (foreign.sign("CN=alice,O=Lab"), authority.sign("CN=alice,O=Lab", days=-1)):
        assert mutual.send(ask, files).status == 0
    mutual.tokens.revoke("alice")
    assert mutual.send(ask, alice).status == 401


def test_without_a_client_ca_certificates_prove_nothing(
    network: Network, authority: Authority
) -> None:
    network.give("admin", name="bob", subject="CN=bob")
    assert network.send(write_request("GET", "/1.0"), authority.sign("CN=bob")).status == 401


@pytest.mark.parametrize(
    "line",
    ["Origin: https://evil.example", "Origin: null", "Origin: http://gpu1:8443", "Origin: https://gpu1",
     "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site",
     "Origin: https://gpu1:8443\r\nOrigin: https://evil.example"],
)  # fmt: skip
def test_another_page_gets_nothing_by_a_browsers_certificate(
    mutual: Network, authority: Authority, line: str
) -> None:
    if not any(one.subject == "CN=carol" for one in mutual.tokens.read()):
        mutual.give("admin", name="carol", subject="CN=carol")
    files = authority.sign("CN=carol")
    for method, path in (
        ("GET", "/1.0/gpus"),
        ("POST", "/1.0/recover"),
        ("DELETE", "/1.0/operations/0"),
    ):
        answer = mutual.send(write_request(method, path, None, "", line), files)
        assert answer.status == 403
        assert "access-control" not in answer.head.lower()
    own = write_request("GET", "/1.0/gpus", None, "", "Origin: https://gpu1:8443")
    assert mutual.send(own, files).status == 200


def test_a_path_has_one_form_here_too(network: Network) -> None:
    token = network.give("tenant", "vision")
    for path in (
        list_paths("/1.0/audit")
        + list_paths("/1.0/gpus")
        + ["/1.0/access/../gpus", "/1.0/access%2f..%2fgpus"]
    ):
        raw = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        assert network.send(raw.encode("latin-1")).status in (400, 403, 404), path


# what holds up nothing


def test_silent_handshakes_hold_up_neither_the_socket_nor_other_addresses(network: Network) -> None:
    token = network.give("viewer")
    before = network.ask("GET", "/1.0", token).status
    held = [network.at(f"127.0.3.{number % 25 + 1}").knock() for number in range(500)]
    try:
        for number in range(5):
            assert network.daemon.get("/1.0")["version"]
            assert (
                network.at(f"127.0.4.{number + 1}").ask("GET", "/1.0", token).status
                == before
                == 200
            )
        # the oldest of too many have ended
        await_true(lambda: sum(has_ended(one) for one in held) >= len(held) - MAX_HANDSHAKES)
    finally:
        for one in held:
            one.close()


def has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_an_address_has_so_many_connections_and_a_handshake_its_time() -> None:
    with listening(
        "connections_per_address = 3\nhandshake_s = 2.5", "[limits]\nhead_s = 2.5"
    ) as network:
        token = network.give("viewer")
        silent = [network.knock() for _ in range(3)]
        assert network.ask("GET", "/1.0", token).status == 0
        assert network.at("127.0.0.2").ask("GET", "/1.0", token).status == 200
        for one in silent:
            await_end(one)
        # they are free again, and so is what is silent behind its handshake
        for _ in range(5):
            await_true(lambda: network.ask("GET", "/1.0", token).status == 200)
        with network.connect() as quiet, network.connect() as slow:
            await_end(quiet)
            slow.sendall(b"GET /1.0 HTTP/1.1\r\nHost: x\r\n")
            assert receive(slow).status == 408
        await_true(lambda: network.ask("GET", "/1.0", token).status == 200)
        large = network.send(b"GET /1.0 HTTP/1.1\r\nX: " + b"a" * (40 << 10) + b"\r\n\r\n")
        assert large.status in (0, 400)
        # and it ends with a client that waits
        with network.connect() as waiting, follow(network, token):
            assert network.daemon.end() == 0
            await_end(waiting)


def test_addresses_of_one_network_count_as_one() -> None:
    assert count_as("10.0.0.1") == "10.0.0.1" == count_as("::ffff:10.0.0.1")
    assert count_as("2001:db8::1") == count_as("2001:db8::ffff:2") == "2001:db8::/64"
    assert count_as("fe80::1%eth0") == "fe80::/64"
    assert count_as("2001:db8:0:1::1") != count_as("2001:db8::1")


def test_answers_are_whole(network: Network) -> None:
    """An answer larger than the buffers of TLS, which the client reads late."""
    answer = network.ask("GET", "/1.0/openapi.json", network.give("viewer"))
    assert isinstance(answer, Answer)
    api = json.loads(answer.body)
    assert api["components"]["securitySchemes"].keys() == {"token", "certificate"}
    assert len(answer.body) > 1 << 17
