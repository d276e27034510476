"""The store of a pool of several hosts: etcd, through its JSON gateway.

Keys and values are base64 there, and numbers of 64 bits text. All entries of a pool begin with one name, so that an
etcd may have other users.
"""

from __future__ import annotations

import base64
import http.client
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vgpumgr.errors import PoolHistoryError, PoolLeaseError, PoolOutcomeError, PoolStoreError
from vgpumgr.host.clock import Clock
from vgpumgr.pool.store.gateway import Endpoints, Gateway, Stream
from vgpumgr.pool.store.interface import (
    At,
    Change,
    Compare,
    Entry,
    Event,
    Put,
    Snapshot,
    Transaction,
    check_key,
    end_of_prefix,
)

ROOT = "vgpumgr/"
_FAILURES = (OSError, http.client.HTTPException, ValueError, AttributeError, KeyError, TypeError)


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _encode_key(key: str) -> str:
    return _encode(ROOT + key)


def _decode(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()


def _decode_entry(data: dict[str, Any]) -> Entry:
    key = _decode(data["key"]).removeprefix(ROOT)
    created, revision = int(data["create_revision"]), int(data["mod_revision"])
    return Entry(key, _decode(data.get("value", "")), created, revision, int(data.get("lease", 0)))


def _encode_compare(compare: Compare) -> dict[str, Any]:
    compared: dict[str, Any] = {"key": _encode_key(compare.key), "result": "EQUAL"}
    if isinstance(compare, At):
        return compared | {"target": "MOD", "mod_revision": str(compare.revision)}
    return compared | {"target": "VALUE", "value": _encode(compare.value)}


def _encode_change(change: Change) -> dict[str, Any]:
    key = _encode_key(change.key)
    if not isinstance(change, Put):
        return {"request_delete_range": {"key": key}}
    put = {"key": key, "value": _encode(change.value), "lease": str(change.lease)}
    return {"request_put": put}


@contextmanager
def _understanding(
    answer: dict[str, Any], kind: type[PoolStoreError] = PoolStoreError
) -> Iterator[None]:
    """What is read from an answer; one that etcd does not give is an error of this kind."""
    try:
        yield
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise kind(
            "the pool's store does not answer as etcd does",
            cause=f"not an answer of etcd: {str(answer)[:200]}",
            why="something else has its URL",
        ) from error


class EtcdStore:
    """See ``interface.Store``. Reads are linearizable: they see every change that was answered before."""

    def __init__(self, endpoints: Endpoints, clock: Clock) -> None:
        self._endpoints = endpoints
        self._clock = clock
        self._gateway = Gateway(endpoints)

    def get(self, key: str) -> Entry | None:
        """See ``interface.Store``."""
        check_key(key)
        answer = self._read("/v3/kv/range", {"key": _encode_key(key)})
        with _understanding(answer):
            _read_revision(answer)
            found = [_decode_entry(one) for one in answer.get("kvs", [])]
        return found[0] if found else None

    def range(self, prefix: str) -> Snapshot:
        """See ``interface.Store``."""
        keys = {"key": _encode_key(prefix), "range_end": _encode_key(end_of_prefix(prefix))}
        answer = self._read("/v3/kv/range", keys)
        with _understanding(answer):
            entries = [_decode_entry(one) for one in answer.get("kvs", [])]
            return Snapshot({one.key: one for one in entries}, _read_revision(answer))

    def transact(self, transaction: Transaction) -> int | None:
        """See ``interface.Store``."""
        answer = self._change(
            "/v3/kv/txn",
            {
                "compare": [_encode_compare(one) for one in transaction.compares],
                "success": [_encode_change(one) for one in transaction.changes],
            },
        )
        with _understanding(answer, PoolOutcomeError):
            revision = _read_revision(answer)
            return revision if answer.get("succeeded") else None

    def grant_lease(self, ttl_s: int) -> int:
        """See ``interface.Store``. Of a lost answer a lease stays that nothing uses, until its time is over."""
        answer = self._read("/v3/lease/grant", {"TTL": str(ttl_s)})
        with _understanding(answer):
            return int(answer["ID"])

    def keep_alive(self, lease: int) -> None:
        """See ``interface.Store``."""
        answer = self._read("/v3/lease/keepalive", {"ID": str(lease)})
        if "error" in answer:
            raise PoolStoreError("the pool's store refuses", cause=str(answer["error"])[:500])
        with _understanding(answer):
            if int(answer["result"]["ID"]) != lease:
                raise ValueError("another lease")
            left_s = int(answer["result"].get("TTL", 0))
        if left_s <= 0:
            raise PoolLeaseError(f"lease {lease} of the pool's store has ended")

    def revoke_lease(self, lease: int) -> None:
        """See ``interface.Store``."""
        try:
            self._read("/v3/lease/revoke", {"ID": str(lease)})
        except PoolLeaseError:
            return

    def watch(self, prefix: str, revision: int) -> EtcdWatch:
        """See ``interface.Store``."""
        end_of_prefix(prefix)
        return EtcdWatch(self._gateway.copy(), self._clock, prefix, revision)

    def close(self) -> None:
        """See ``interface.Store``."""
        self._gateway.close()

    def _read(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What may be asked twice."""
        return self._gateway.request(path, body, changes=False)

    def _change(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._gateway.request(path, body, changes=True)


def _read_revision(answer: dict[str, Any]) -> int:
    return int(answer["header"]["revision"])


class EtcdWatch:
    """See ``interface.Watch``. A thread reads the stream; where it breaks, another member is asked for what follows."""

    def __init__(self, gateway: Gateway, clock: Clock, prefix: str, revision: int) -> None:
        self._gateway = gateway
        self._clock = clock
        self._prefix = prefix
        self._revision = revision
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._stream: Stream | None = None

    def read(self, timeout_s: float) -> Sequence[Event]:
        """See ``interface.Watch``."""
        end_s = self._clock.monotonic_s() + timeout_s
        while True:
            if self._stream is None:
                self._open()
            try:
                answer = self._lines.get(timeout=max(0.0, end_s - self._clock.monotonic_s()))
            except queue.Empty:
                return []
            if answer is None:
                self._reopen_later(end_s)
                continue
            with _understanding(answer):
                events = self._read_answer(answer)
            if events:
                return events

    def close(self) -> None:
        """See ``interface.Watch``."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._gateway.close()

    def _open(self) -> None:
        key, end = _encode_key(self._prefix), _encode_key(end_of_prefix(self._prefix))
        request = {"key": key, "range_end": end, "start_revision": str(self._revision)}
        stream = self._gateway.open_stream("/v3/watch", {"create_request": request})
        # of an earlier stream nothing must be taken for this one's
        self._stream, self._lines = stream, queue.SimpleQueue()
        threading.Thread(target=_read_lines, args=(stream, self._lines), daemon=True).start()

    def _reopen_later(self, end_s: float) -> None:
        """A member that ends each stream at once is not asked in a loop."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._gateway.skip()
        self._clock.sleep(max(0.0, min(0.1, end_s - self._clock.monotonic_s())))

    def _read_answer(self, answer: dict[str, Any]) -> list[Event]:
        result = answer.get("result", {})
        if int(result.get("compact_revision", 0)):
            self.close()
            raise PoolHistoryError(
                f"the pool's store no longer has the events of revision {self._revision}",
                why="etcd has compacted them",
            )
        if result.get("canceled") or "error" in answer:
            self._lines.put(None)
            return []
        events = []
        for one in result.get("events", []):
            revision = int(one["kv"]["mod_revision"])
            value = None if one.get("type") == "DELETE" else _decode(one["kv"].get("value", ""))
            events.append(Event(_decode(one["kv"]["key"]).removeprefix(ROOT), value, revision))
        if events:
            self._revision = events[-1].revision + 1
        return events


def _read_lines(stream: Stream, lines: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """Puts a None at the end, whatever ends it."""
    try:
        while (answer := stream.read_line()) is not None:
            lines.put(answer)
    except _FAILURES:
        # a stream that another thread closes breaks in many ways, and each means the same
        pass
    lines.put(None)
