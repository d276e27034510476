"""Each engine of a pool's store: processes and boots with SQLite, members of etcd and their loss."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.clock import FakeClock
from tests.support.etcd import Etcd
from vgpumgr.errors import (
    PoolLeaseError,
    PoolOutcomeError,
    PoolStoreError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.host.clock import SystemClock
from vgpumgr.pool.control.host import HostAgent
from vgpumgr.pool.control.records import HostRecord, Timing, put
from vgpumgr.pool.store.etcd import EtcdStore
from vgpumgr.pool.store.gateway import Endpoints, check_endpoints
from vgpumgr.pool.store.interface import At, Put, Store, Transaction
from vgpumgr.pool.store.sqlite import SqliteStore
from vgpumgr.pool.store.steps import drive

ROOT = Path(__file__).parents[2]


def write(store: Store, key: str, value: str, lease: int = 0) -> int:
    revision = store.transact(Transaction((), (Put(key, value, lease),)))
    assert revision is not None
    return revision


def write_often(store: Store, key: str, value: str) -> None:
    for _ in range(20):
        write(store, key, value)


# SQLite


def open_sqlite(path: Path, clock: FakeClock, boot: str = "boot") -> SqliteStore:
    return SqliteStore(path / "pool.sqlite", clock, boot)


def test_a_lease_ends_by_the_clock_that_only_grows(tmp_path: Path) -> None:
    clock = FakeClock()
    store, other = open_sqlite(tmp_path, clock), open_sqlite(tmp_path, clock)
    lease = store.grant_lease(10)
    written = write(store, "k", "1", lease)
    clock.sleep(9)
    store.keep_alive(lease)
    clock.sleep(9.9)
    clock.set_s = 1e6
    assert other.get("k") is not None
    clock.sleep(0.2)
    watch = other.watch("k", written + 1)
    # a reader ends it, as a writer does
    assert other.get("k") is None
    assert [event.value for event in watch.read(0)] == [None]
    with pytest.raises(PoolLeaseError):
        store.keep_alive(lease)
    for one in (store, other):
        one.close()
    watch.close()


def test_after_a_boot_a_lease_has_its_whole_time_again(tmp_path: Path) -> None:
    clock = FakeClock()
    store = open_sqlite(tmp_path, clock)
    write(store, "k", "1", store.grant_lease(10))
    clock.sleep(9)
    store.close()
    # the clock has begun anew, and a host that is off keeps nothing alive
    clock.now_s = 5.0
    store = open_sqlite(tmp_path, clock, "boot 2")
    assert store.get("k") is not None
    clock.sleep(9)
    assert store.get("k") is not None
    clock.sleep(2)
    assert store.get("k") is None
    store.close()


COUNTER = """
import sys
from pathlib import Path
from vgpumgr.host.clock import SleeplessClock
from vgpumgr.pool.store.interface import At, Put, Transaction
from vgpumgr.pool.store.sqlite import SqliteStore
store, won = SqliteStore(Path(sys.argv[1]), SleeplessClock(), "boot"), 0
while won < 40:
    found = store.get("counter")
    value, revision = (int(found.value), found.revision) if found else (0, 0)
    won += store.transact(Transaction((At("counter", revision),), (Put("counter", str(value + 1)),))) is not None
"""


def test_processes_that_compare_and_swap_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pool.sqlite"
    words = [sys.executable, "-c", COUNTER, str(path)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    processes = [subprocess.Popen(words, env=env) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    store = SqliteStore(path, SystemClock(), "boot")
    found = store.get("counter")
    assert found is not None
    assert found.value == "120"
    assert path.stat().st_mode & 0o777 == 0o600
    store.close()


def test_a_process_that_is_killed_loses_no_answered_change(tmp_path: Path) -> None:
    path = tmp_path / "pool.sqlite"
    code = COUNTER.replace("while won < 40:", "while True:") + "    print(won, flush=True)\n"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(30)][-1]
    process.kill()
    said = [said, *process.stdout.readlines()][-1]
    process.wait()
    store = SqliteStore(path, SystemClock(), "boot")
    found = store.get("counter")
    assert found is not None
    assert int(found.value) in (int(said), int(said) + 1)
    store.close()


def refused(kind: type[VgpumgrError], path: Path) -> VgpumgrError:
    with pytest.raises(kind) as caught:
        SqliteStore(path, FakeClock(), "boot").get("k")
    return caught.value


def test_a_file_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"no database at all" * 100)
    before = damaged.read_bytes()
    assert "damaged" in str(refused(PoolStoreError, damaged).why)
    assert damaged.read_bytes() == before
    newer = tmp_path / "newer.sqlite"
    SqliteStore(newer, FakeClock(), "boot").close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    assert "its format is 2" in str(refused(PoolStoreError, newer).cause)


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path, FakeClock())
    written = write(store, "k", "1")
    assert store._connection is not None
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(PoolStoreError) as caught:
        write_often(store, "k2", "x" * 40_000)
    assert "disk is full" in str(caught.value.why)
    found = store.get("k")
    assert found is not None
    assert found.revision == written
    store.close()


# etcd


def test_a_lease_of_etcd_ends_and_so_do_its_entries(tmp_path: Path) -> None:
    with Etcd(tmp_path).running() as etcd:
        store = etcd.open()
        lease = store.grant_lease(1)
        written = write(store, "k", "1", lease)
        watch = store.watch("k", written + 1)
        assert [event.value for event in watch.read(30)] == [None]
        with pytest.raises(PoolLeaseError):
            store.keep_alive(lease)
        watch.close()
        # the member is killed, and comes back with its data
        written = write(store, "k", "2")
        etcd.members[0].kill()
        with pytest.raises(PoolStoreError) as caught:
            store.get("k")
        assert "its only URL does not answer" in str(caught.value.why)
        etcd.members[0].start()
        etcd.await_leader()
        found = store.get("k")
        assert found is not None
        assert (found.value, found.revision) == ("2", written)
        store.close()


def test_a_heartbeat_writes_nothing(tmp_path: Path) -> None:
    """Of thousands of hosts, every few seconds: the time of a lease begins anew, and etcd's log has none of it."""
    with Etcd(tmp_path).running() as etcd:
        store = etcd.open()
        host = HostRecord("gpu-a", "machine")
        assert store.transact(Transaction((), (put(host),)))
        agent = HostAgent(host, Timing(), SystemClock().monotonic_s, boot="boot")
        drive(store, agent.step(lambda _: None))
        [lease] = etcd.ask("/v3/lease/leases")["leases"]

        def read_left_s() -> int:
            return int(etcd.ask("/v3/lease/timetolive", ID=lease["ID"])["TTL"])

        def read_log() -> int:
            return int(etcd.ask("/v3/maintenance/status")["raftIndex"])

        time.sleep(3)
        before, left_s = read_log(), read_left_s()
        assert left_s <= Timing().ttl_s - 2
        for _ in range(20):
            drive(store, agent.step(lambda _: None))
        assert read_left_s() > left_s
        assert read_log() == before
        # what is written is seen there
        assert store.transact(Transaction((), (Put("x", "1"),)))
        assert read_log() > before
        store.close()


def test_three_members_lose_one_and_then_most(tmp_path: Path) -> None:
    with Etcd(tmp_path, 3).running() as etcd:
        store = etcd.open()
        revision = write(store, "k", "0")
        watch = store.watch("k", revision + 1)
        assert watch.read(0.1) == []
        # the member that this client talks to: it goes on with another
        etcd.members[0].kill()
        etcd.await_leader()
        answered = 0
        for number in range(20):
            try:
                found = store.transact(Transaction((At("k", revision),), (Put("k", str(number)),)))
            except PoolOutcomeError:
                current = store.get("k")
                assert current is not None
                found = current.revision if current.value == str(number) else None
            if found is not None:
                revision, answered = found, answered + 1
        assert answered >= 19
        seen = list(watch.read(20))
        while len(seen) < answered:
            more = watch.read(10)
            assert more
            seen += more
        assert [event.revision for event in seen] == sorted({event.revision for event in seen})
        # most are lost: no change is taken, and none of those before is lost
        etcd.members[1].kill()
        with pytest.raises(PoolStoreError) as caught:
            write_often(store, "k", "lost")
        assert caught.value.cause
        with pytest.raises(PoolStoreError):
            store.get("k")
        etcd.members[1].start()
        etcd.await_leader()
        found_then = store.get("k")
        assert found_then is not None
        if isinstance(caught.value, PoolOutcomeError):
            assert found_then.value in ("19", "lost")
        else:
            assert (found_then.value, found_then.revision) == ("19", revision)
        watch.close()
        store.close()


def test_a_member_that_stands_still_is_left_for_another(tmp_path: Path) -> None:
    with Etcd(tmp_path, 3).running() as etcd:
        store = etcd.open(timeout_s=1.0)
        write(store, "k", "1")
        etcd.members[0].pause(True)
        with pytest.raises(PoolOutcomeError) as caught:
            write(store, "k", "2")
        assert "may have been made" in str(caught.value.why)
        for _ in range(50):
            try:
                found = store.get("k")
            except PoolStoreError:
                continue  # until another leads
            break
        assert found is not None
        assert found.value in ("1", "2")
        etcd.members[0].pause(False)
        store.close()


def test_an_etcd_that_is_full_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    with Etcd(tmp_path, options=("--quota-backend-bytes", "1500000")).running() as etcd:
        store = etcd.open()
        written = write(store, "k", "1")
        with pytest.raises(PoolStoreError) as caught:
            write_often(store, "k2", "x" * 300_000)
        assert not isinstance(caught.value, PoolOutcomeError)
        assert "full" in str(caught.value.why)
        found = store.get("k")
        assert found is not None
        assert found.revision == written
        store.close()


def make_certificate(
    directory: Path,
    name: str,
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate and its key, as files NAME.crt and NAME.key; without an authority its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = (authority[0].subject, authority[1]) if authority else (subject, key)
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (directory / f"{name}.crt").write_bytes(certificate.public_bytes(encoding))
    (directory / f"{name}.key").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, key


def test_etcd_over_tls_knows_its_clients(tmp_path: Path) -> None:
    authority = make_certificate(tmp_path, "ca", None)
    for name in ("server", "client"):
        make_certificate(tmp_path, name, authority)
    make_certificate(tmp_path, "foreign", make_certificate(tmp_path, "foreign-ca", None))
    file = {path.name: str(path) for path in tmp_path.iterdir()}
    tls = (
        "--cert-file", file["server.crt"], "--key-file", file["server.key"],
        "--trusted-ca-file", file["ca.crt"], "--client-cert-auth",
    )  # fmt: skip
    with Etcd(tmp_path, tls=tls).running(wait=False) as etcd:
        ours = Endpoints(etcd.urls, file["ca.crt"], file["client.crt"], file["client.key"])
        store = EtcdStore(ours, SystemClock())
        for _ in range(600):
            try:
                written = write(store, "k", "1")
                break
            except PoolStoreError:
                SystemClock().sleep(0.1)
        found = store.get("k")
        assert found is not None
        assert found.revision == written
        watch = store.watch("k", written)
        assert [event.value for event in watch.read(20)] == ["1"]
        watch.close()
        store.close()
        others = [
            Endpoints(etcd.urls, file["ca.crt"]),
            Endpoints(etcd.urls, file["ca.crt"], file["foreign.crt"], file["foreign.key"]),
            Endpoints(etcd.urls, file["foreign-ca.crt"], file["client.crt"], file["client.key"]),
        ]
        for endpoints in others:
            store = EtcdStore(endpoints, SystemClock())
            with pytest.raises(PoolStoreError):
                store.get("k")
            store.close()


def read_request(connection: socket.socket) -> bytes:
    """One, whole: to close a connection with some of it unread would take the answer away."""
    data, wanted = b"", None
    while wanted is None or len(data) < wanted:
        part = connection.recv(65536)
        if not part:
            return b""
        data += part
        head, end, _ = data.partition(b"\r\n\r\n")
        if end and wanted is None:
            found = re.search(rb"(?i)content-length: *(\d+)", head)
            wanted = len(head) + len(end) + int(found[1] if found else 0)
    return data


def is_whole(answer: bytes) -> bool:
    """Whether a client that has read it may ask again on its connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"


@contextmanager
def serving(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers so to each request, or closes; what it read."""
    listener, seen = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve_one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while request := read_request(connection):
                seen.append(request)
                connection.sendall(answer)
                if not is_whole(answer):
                    return

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def format_answer(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", PoolOutcomeError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", PoolOutcomeError),
        (format_answer("200 OK", "[1]"), PoolOutcomeError),
        (format_answer("200 OK", "<html>"), PoolOutcomeError),
        (format_answer("503 x", '{"error":"etcdserver: request timed out","code":14}'), PoolOutcomeError),
        (format_answer("503 x", '{"error":"etcdserver: no leader","code":14}'), PoolStoreError),
        (format_answer("400 x", '{"error":"etcdserver: bad","code":3}'), PoolStoreError),
        (format_answer("403 x", '{"error":"etcdserver: permission denied","code":7}'), PoolStoreError),
    ],
)  # fmt: skip
def test_a_change_without_an_answer_is_not_made_again(
    answer: bytes, kind: type[PoolStoreError]
) -> None:
    with serving(answer) as (first, seen_first), serving(answer) as (second, seen_second):
        store = EtcdStore(Endpoints((first, second)), SystemClock())
        with pytest.raises(PoolStoreError) as caught:
            write(store, "k", "1")
        assert type(caught.value) is kind
        requests = len(seen_first) + len(seen_second)
        assert requests == (2 if "no leader" in answer.decode() else 1)
        assert first in str(caught.value.cause)
        # a read may be asked for twice
        with pytest.raises(PoolStoreError) as caught:
            store.get("k")
        assert type(caught.value) is PoolStoreError
        store.close()


@pytest.mark.parametrize(
    "endpoints",
    [
        Endpoints(()),
        Endpoints(("127.0.0.1:2379",)),
        Endpoints(("ftp://127.0.0.1",)),
        Endpoints(("http://127.0.0.1:no",)),
        Endpoints(("http://127.0.0.1/v3",)),
        Endpoints(("http://127.0.0.1:0",)),
        Endpoints(("http://" + "a" * 80 + ":2379",)),
        Endpoints(("http://user:secret@127.0.0.1:2379",)),
        Endpoints(("http://user:secret@127.0.0.1:no",)),
        Endpoints(("http://127.0.0.1",), ca="/none"),
        Endpoints(("https://127.0.0.1",), ca="/none"),
        Endpoints(("https://127.0.0.1",), certificate="/none"),
    ],
)
def test_urls_and_files_that_cannot_be_are_refused(endpoints: Endpoints) -> None:
    with pytest.raises(UsageError) as caught:
        check_endpoints(endpoints)
    assert "secret" not in f"{caught.value.error} {caught.value.cause}"


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b'{"header":{}}',
        b'{"header":{"revision":"x"}}',
        b'{"header":{"revision":"5"},"kvs":[{}],"ID":"y","result":[]}',
        b'{"header":{"revision":"5"},"kvs":[{"key":"!!!!","create_revision":"1","mod_revision":"1"}],"ID":{}}',
        b'{"header":[],"kvs":7,"ID":null,"result":{"ID":"8","TTL":"5"}}',
        b"\xff\xfe",
        b"[1]",
        b"404 page not found",
    ],
)
def test_what_is_not_etcd_is_one_clear_error(answer: bytes) -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer)
    with serving(data) as (url, _):
        store = EtcdStore(Endpoints((url,)), SystemClock())
        calls: list[Callable[[], object]] = [
            lambda: store.get("k"), lambda: store.range("k"), lambda: store.grant_lease(5),
            lambda: store.keep_alive(7),
        ]  # fmt: skip
        if b'"5"' not in answer:
            calls.append(lambda: write(store, "k", "1"))
        for call in calls:
            with pytest.raises(PoolStoreError) as caught:
                call()
            assert "not an answer of etcd" in str(caught.value.cause)
            assert not isinstance(caught.value, PoolLeaseError)
        store.close()


def test_an_etcd_without_its_gateway_is_named() -> None:
    with serving(format_answer("404 Not Found", "404 page not found")) as (url, _):
        store = EtcdStore(Endpoints((url,)), SystemClock())
        with pytest.raises(PoolStoreError) as caught:
            store.get("k")
        assert "HTTP 404" in str(caught.value.cause)
        assert "--enable-grpc-gateway" in str(caught.value.cause)
        store.close()


def test_a_full_disk_that_sqlite_calls_an_error_is_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_sqlite(tmp_path, FakeClock())
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    assert "disk is full" not in str(store._explain("write", error).why)
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 9, 9, 9, 0, 255))
    monkeypatch.setattr("vgpumgr.pool.store.sqlite.os.statvfs", lambda _: full)
    assert "disk is full" in str(store._explain("write", error).why)
    store.close()
