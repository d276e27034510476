"""The daemon's part of links between hosts: the listener of this host runs, and who may use what is answered.

A thread follows the pool's store: it writes what the listener reads of other hosts, keeps this host's offer in the
store, and ends what other hosts do not use any more. Questions of ``vgpumgr-link`` and of dialers come by a UNIX socket
(``server/broker.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from vgpumgr.app.operations.late_links import release_unused
from vgpumgr.app.operations.served import end_served
from vgpumgr.errors import VgpumgrError, explain_unexpected
from vgpumgr.host.machine import Machine, read_boot_id
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.pool.control.records import LINKS, POOL, HostRecord, View
from vgpumgr.pool.links import list_ended, list_peers, list_seen, write_offer, write_seen_links
from vgpumgr.pool.membership import Pool, open_pool_of, read_membership, read_stamp
from vgpumgr.pool.serving import Changes
from vgpumgr.pool.store.interface import Snapshot
from vgpumgr.server.broker import Broker
from vgpumgr.server.context import Context
from vgpumgr.server.settings import LinkSettings
from vgpumgr.state.store import STATE_FILE, Store
from vgpumgr.steps.channel import make_spec
from vgpumgr.virtio.identity import ensure_identity, get_directory
from vgpumgr.virtio.links import (
    find_listener,
    read_listen,
    save_peers,
    start_listener,
    stop_listener,
    write_link,
    write_peer_files,
)
from vgpumgr.virtio.sandbox import choose_user_id

#: between looks whether the machine is in a pool, and after an error
LOOK_S = 1.0
#: at the latest everything is compared again: also a listener that died
PAUSE_S = 2.0
#: the same of a host that offers nothing and uses nothing
IDLE_S = 30.0
#: certificates are read again so often: seconds
RENEW_S = 600.0
_END_S = 5.0


class LinkService:
    """From ``start`` to ``close``."""

    def __init__(self, context: Context, broker: Broker) -> None:
        self._context = context
        self._broker = broker
        self._machine: Machine = context.machine
        self._settings: LinkSettings = context.configuration.settings.link
        boot_id = read_boot_id(self._machine)
        self._store = Store(self._machine.state_dir / STATE_FILE, boot_id)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)
        self._revision = 0
        self._ca: tuple[str, float, int] | None = None
        self._said = ""

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def close(self) -> None:
        """Ends; the listener goes on."""
        self._end.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self._serve()
                self._said = ""
            except Exception as error:
                self._say(explain_unexpected(error, "links to other hosts"))
            self._end.wait(LOOK_S)

    def _say(self, error: VgpumgrError) -> None:
        """Once for each change."""
        text = f"{error.error}: {error.cause or error.why or ''}"
        if text != self._said:
            self._said = text
            print(f"links to other hosts: {text}", file=sys.stderr, flush=True)

    def _serve(self) -> None:
        """Until the end, or until the machine is in another pool, or in none."""
        stamp, membership = read_stamp(self._machine), read_membership(self._machine)
        if membership is None or membership.host is None:
            stop_listener(self._machine)
            return

        def is_over() -> bool:
            return self._end.is_set() or read_stamp(self._machine) != stamp

        with open_pool_of(self._machine) as pool:
            changes = Changes(pool.store, lambda: self._revision)
            try:
                while not is_over():
                    if self._is_idle():
                        self._keep_known(pool, membership.host, is_over)
                        continue
                    view = pool.view()
                    self._revision = view.revision
                    self.follow(pool, view, membership.host)
                    self._end.wait(LOOK_S / 2)  # a pool in which much happens is not read each time
                    changes.wait(PAUSE_S, is_over)
            finally:
                changes.close()
                changes.join()

    def _is_idle(self) -> bool:
        """Whether this host neither offers its GPUs nor uses those of others."""
        records = self._store.list_attachments()
        return not self._settings.listen and not any(
            one.served is not None or one.link_host is not None for one in records
        )

    def _keep_known(self, pool: Pool, host: str, is_over: Callable[[], bool]) -> None:
        """The store has this host's authority, so that others know it. Of a large pool nothing else is read."""
        keys = (POOL, HostRecord(host, "").key)
        found = {key: entry for key in keys if (entry := pool.store.get(key)) is not None}
        view = View(Snapshot(found, max((one.revision for one in found.values()), default=0)))
        is_known = POOL in found and self.follow(pool, view, host)
        # its heartbeat writes the same record
        pause_s = IDLE_S if is_known else LOOK_S
        written, end_s = self._read_written(), self._context.clock.monotonic_s() + pause_s
        while not is_over() and self._is_idle() and self._read_written() == written:
            if self._context.clock.monotonic_s() >= end_s:
                break
            self._end.wait(LOOK_S)

    def _read_written(self) -> int:
        """When this host's authority was made: a command may rotate it."""
        path = get_directory(self._machine) / "ca.pem"
        return path.stat().st_mtime_ns if path.exists() else 0

    def follow(self, pool: Pool, view: View, host: str) -> bool:
        """Compares everything with the store once; whether that has this host's offer now."""
        if pool.record(view).version < LINKS:
            return False  # hosts of the version before cannot read what is written for links
        ca, peers = self._read_ca(host), list_peers(view)
        save_peers(self._machine, peers)
        is_listening = self._listen(view)
        offer = self._settings.addresses if is_listening else ()
        is_known = write_offer(pool, view, ca, offer)
        records = self._store.list_attachments()
        served = {record.id: record.served for record in records if record.served is not None}
        ended = list_ended(view, host, served) if self._settings.listen else list(served)
        if ended:
            self._context.pools.change.submit(lambda app: end_served(app.parts, ended)).result()
        linked = [record for record in records if record.link_host is not None]
        write_seen_links(self._machine, list_seen(view, linked))
        self._renew(linked)
        self._release_unused(
            [one.id for one in linked if one.claim and one.claim.late and one.claim.is_bound]
        )
        return is_known

    def _read_ca(self, host: str) -> str:
        """The certificate of this host's authority; what it signs is made anew in time."""
        now_s = self._context.clock.monotonic_s()
        if self._ca is None or now_s - self._ca[1] > RENEW_S or self._ca[2] != self._read_written():
            found = ensure_identity(self._machine, host)
            self._ca = found.ca, now_s, self._read_written()
        return self._ca[0]

    def _listen(self, view: View) -> bool:
        """Whether the listener runs, which is started where it is to."""
        listen = tuple(self._settings.listen)
        if not listen:
            stop_listener(self._machine)
            return False
        write_peer_files(self._machine, list_peers(view))
        if read_listen(self._machine.run_dir) != listen:
            stop_listener(self._machine)
            start_listener(self._machine, listen)
        return find_listener(self._machine.run_dir) is not None

    def _release_unused(self, late: list[str]) -> None:
        """Leases whose dialer has gone without a word, as where the daemon was ended before it."""
        if unused := [id_ for id_ in late if id_ not in self._broker.dialing]:
            submit = self._context.pools.change.submit
            submit(lambda app: release_unused(app.parts, unused)).result()

    def _renew(self, records: list[AttachmentRecord]) -> None:
        """Certificates and addresses of attachments whose GPU is another host's."""
        for record in records:
            if record.state is not AttachmentState.ATTACHED:
                continue
            directory = self._machine.run_dir / "channels" / record.id
            spec = make_spec(record)
            if spec.link is None or not (directory / "link").is_dir():
                continue
            with contextlib.suppress(VgpumgrError, OSError):  # that host offers none now
                write_link(
                    self._machine, directory, spec.link, record.id, choose_user_id(directory)
                )


@asynccontextmanager
async def serve_links(context: Context) -> AsyncIterator[None]:
    """Serves until the end of the block, where the daemon serves as a host of the pool."""
    if not context.configuration.settings.pool.serve:
        yield
        return
    broker = Broker(context)
    service = LinkService(context, broker)
    try:
        await broker.start()
    except OSError as error:
        print(f"links to other hosts: {error}", file=sys.stderr, flush=True)
        yield
        return
    service.start()
    try:
        yield
    finally:
        await broker.close()
        await asyncio.to_thread(service.close)
