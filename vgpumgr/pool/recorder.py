"""Keeps what leases of this host had and used: in a file of this host, and in the pool's store once an hour.

A thread of its own reads counters, which may hang, and writes; who serves only says what there is now. A process that
is killed loses nothing of the time that leases had: the next one of the same boot counts from where the file ends.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vgpumgr.errors import PoolStoreError, VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.host.files import PRIVATE, make_directory, replace_file
from vgpumgr.host.machine import Machine, read_boot_id
from vgpumgr.pool.control.records import ROOT
from vgpumgr.pool.ledger import DAYS, FORM, HOUR_S, HOURS, Day, Held, Ledger, Moment
from vgpumgr.pool.store.interface import Delete, Entry, Put, Store, Transaction
from vgpumgr.state.store import STATE_FILE
from vgpumgr.state.store import Store as StateStore
from vgpumgr.virtio.channel import Channels
from vgpumgr.virtio.keeper import KeeperChannels

#: in the state directory
LEDGER_NAME = "pool-ledger.json"
#: beside the pool's other entries, so that no round of a controller reads it
LEDGER = "ledger/"
#: so often counters are read, and the file is written while there are leases, and while there are none
USE_S = 5.0
SAVE_S = 10.0
IDLE_SAVE_S = 60.0
#: so often the store gets it
PUBLISH_S = 3600.0
#: one that has served for less than that leaves the store alone when it ends
_LEAST_S = 60.0
_JOIN_S = 3.0

#: of each claim with attachments here what each of their counters says; None: it does not say
Uses = Mapping[str, Mapping[str, float | None]]


def ledger_key(day: int, host: str) -> str:
    """The place of one day of a host."""
    return f"{LEDGER}{day:06}/{host}"


def read_uses(machine: Machine, channels: Channels | None = None) -> Uses:
    """What attachments by claims had of their GPUs' time, as their arbiter counts it. Raises VgpumgrError."""
    path = machine.state_dir / STATE_FILE
    if not path.exists():
        return {}
    found: dict[str, dict[str, float | None]] = {}
    channels = channels or KeeperChannels(machine)
    for record in StateStore(path, read_boot_id(machine)).list_attachments():
        if record.claim is None:
            continue
        used_s = None
        if record.channel:
            with contextlib.suppress(VgpumgrError, OSError):
                status = channels.read_status(record.id)
                used_s = status.share.used_s if status and status.share else None
        found.setdefault(record.claim.name, {})[record.id] = used_s
    return found


class Recorder:
    """From ``start`` to ``close``. Any thread may say what there is now."""

    def __init__(
        self,
        machine: Machine,
        pool: str,
        host: str,
        clock: Clock,
        open_store: Callable[[], Store],
        read: Callable[[Machine], Uses] = read_uses,
        use_s: float = USE_S,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._open_store = open_store
        self._read = read
        self._use_s = use_s
        self._boot = read_boot_id(machine)
        self._lock = threading.Lock()
        self.ledger = read_ledger(machine, pool, host)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool-ledger", daemon=True)
        #: whether this process leads the pool: then it removes days of hosts that are gone
        self.leads = False

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def close(self) -> None:
        """Writes what there is, and ends."""
        self._end.set()
        self._thread.join(_JOIN_S)

    def follow(self, leases: Mapping[str, Held], gpus: int) -> None:
        """The host's leases and GPUs from now on."""
        with self._lock:
            self.ledger.follow(leases, gpus, self._read_moment())

    def note_wait(self, claim: str, tenant: str, wait_s: float) -> None:
        """A claim was granted, which had waited so long."""
        with self._lock:
            self.ledger.wait(claim, tenant, wait_s, self._read_moment())

    def _read_moment(self) -> Moment:
        return Moment(self._boot, self._clock.monotonic_s(), self._clock.wall_s())

    def _run(self) -> None:
        began_s = published_s = self._clock.monotonic_s()
        saved_s = began_s - IDLE_SAVE_S
        while not self._end.wait(self._use_s):
            self.count_uses()
            now_s = self._clock.monotonic_s()
            if now_s - saved_s >= (SAVE_S if self.ledger.list_claims() else IDLE_SAVE_S):
                saved_s = now_s
                self.save()
            if now_s - published_s >= PUBLISH_S:
                published_s = now_s
                self.publish()
        self.count_uses()
        self.save()
        if self._clock.monotonic_s() - began_s >= _LEAST_S:
            self.publish()

    def count_uses(self) -> None:
        """Reads the counters once."""
        try:
            uses: Uses | None = self._read(self._machine)
        except (VgpumgrError, OSError):
            uses = None
        with self._lock:
            for claim in self.ledger.list_claims():
                self.ledger.use(claim, {"": None} if uses is None else uses.get(claim, {}))

    def save(self) -> None:
        """Writes the file; a full disk costs what has changed since it was written last."""
        with self._lock:
            text = json.dumps(self.ledger.encode(), separators=(",", ":"))
        with contextlib.suppress(OSError):
            make_directory(self._machine.state_dir)
            replace_file(self._machine.state_dir / LEDGER_NAME, text + "\n", PRIVATE)

    def publish(self) -> bool:
        """Writes days into the store: the current one, and those that it has not got whole. Whether it answered."""
        try:
            store = self._open_store()
            try:
                self._publish(store)
            finally:
                store.close()
        except PoolStoreError:
            return False
        return True

    def _publish(self, store: Store) -> None:
        ledger = self.ledger
        today = int(max(self._clock.wall_s(), 0.0) // (HOUR_S * HOURS))
        with self._lock:
            numbers = sorted(ledger.days)
        for number in numbers:
            key = ledger_key(number, ledger.host)
            self._load(store, number, key)
            with self._lock:
                data = ledger.days[number].encode()
            head = {"form": FORM, "pool": ledger.pool}
            text = json.dumps(head | data, separators=(",", ":"), sort_keys=True)
            store.transact(Transaction((), (Put(key, text),)))
            with self._lock:
                if number not in ledger.written:
                    ledger.written.append(number)
                if number != today and ledger.days[number].encode() == data:
                    del ledger.days[number]
        while len(ledger.written) > DAYS:
            self._remove(store, ledger.written[0])
            with self._lock:
                del ledger.written[0]
        self.save()

    def _load(self, store: Store, number: int, key: str) -> None:
        """What the store has of a day that was begun here without it: the file was lost, or the clock went back."""
        day = self.ledger.days[number]
        if day.is_loaded:
            return
        entry = store.get(key)
        with self._lock:
            found = None if entry is None else read_day(entry, self.ledger.pool)
            if found is not None:
                day.merge(found)
            day.is_loaded = True
        # before the store has it: what is killed between the two adds nothing twice
        self.save()

    def _remove(self, store: Store, number: int) -> None:
        """A day of this host; the one that leads removes it of hosts, too, that the pool does not have any more."""
        keys = [ledger_key(number, self.ledger.host)]
        if self.leads:
            hosts = {key.rpartition("/")[2] for key in store.range(f"{ROOT}host/").entries}
            found = store.range(f"{LEDGER}{number:06}/").entries
            keys += [key for key in found if key.rpartition("/")[2] not in hosts]
        for key in dict.fromkeys(keys):
            store.transact(Transaction((), (Delete(key),)))


def read_day(entry: Entry, pool: str) -> Day | None:
    """One day of a host; None where it is of another pool, or of a form that this program does not read."""
    try:
        data: Any = json.loads(entry.value)
        if (data["form"], data["pool"]) != (FORM, pool):
            return None
        return Day.decode(data, is_loaded=True)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def read_ledger(machine: Machine, pool: str, host: str) -> Ledger:
    """What this host has counted; empty where the file is of another pool, or cannot be read."""
    path: Path = machine.state_dir / LEDGER_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Ledger(pool, host)
    return Ledger.decode(data, pool, host)
