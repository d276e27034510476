"""The listener on a network: TLS connections that reach the same API as the daemon's socket.

Connections are counted from the moment they are accepted, by address, before a byte of TLS is read: silent ones take
neither the socket's slots nor those of other addresses. A handshake has its time; of too many under way the oldest
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import uvicorn

from vgpumgr.app.documents.operations import ListenerDocument
from vgpumgr.errors import SettingsError, VgpumgrError
from vgpumgr.host.machine import Machine
from vgpumgr.model.callers import NetworkCaller
from vgpumgr.model.frozen import dataclass
from vgpumgr.server.certificates import find_identity, make_tls, read_fingerprint, read_subject
from vgpumgr.server.connections import Limits, PeerProtocol
from vgpumgr.server.gatekeeper import Gatekeeper, Origin
from vgpumgr.server.settings import ListenSettings

#: handshakes under way, and no more than half of all connections; one more ends the oldest
MAX_HANDSHAKES = 128
#: so often long requests are compared with the tokens
WATCH_S = 0.25
#: what a peer that is gone, or reads nothing, may leave unacknowledged
_UNREAD_MS = 30_000
#: connections, however few files the daemon may open
_LEAST = 4
_ACCEPT_PAUSE_S = 0.2
#: in which a client answers the end of TLS
_SHUTDOWN_S = 1.0
#: of IPv6 one customer has as many addresses as it wants in its /64
_IPV6_PREFIX = 64


@dataclass(slots=True)
class Connection:
    """One that has shaken hands. ``caller`` is set while it has a request."""

    origin: Origin
    caller: NetworkCaller | None = None


class NetworkProtocol(PeerProtocol):
    """HTTP over TLS. Who calls is found out anew for each request."""

    # asyncio pauses a TLS stream at its limit, not above it: with 0 before anything is written
    unread_bytes = 1

    def __init__(self, listener: Listener, address: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(listener.limits, *args, **kwargs)
        self._listener = listener
        self._address = address
        self.connection: Connection | None = None

    def take_slot(self, transport: asyncio.Transport) -> None:
        """The slot was taken when the connection was accepted."""
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        subject = read_subject(certificate) if certificate else None
        self.connection = Connection(Origin(self._address, count_as(self._address), subject))
        self.app_state = {**self.app_state, "peer": None, "connection": self.connection}
        self._listener.connected.add(self)

    def give_slot_back(self) -> None:
        """It is given back with the connection's task."""
        self._listener.connected.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``PeerProtocol``. asyncio says so also of a handshake that failed, which has no connection."""
        if self.connection is not None:
            super().connection_lost(exc)
            self._listener.free(self._address)


class Listener:
    """Bound from its making on; serves from ``start`` to ``close``. Raises SettingsError."""

    def __init__(
        self, settings: ListenSettings, machine: Machine, limits: Limits, gatekeeper: Gatekeeper
    ) -> None:
        self._settings = settings
        self.limits = limits
        self._gatekeeper = gatekeeper
        files = find_identity(
            machine.state_dir, settings.certificate, settings.key, settings.address
        )
        self._total = max(_LEAST, min(settings.connections, limits.free_descriptors))
        self._tls = make_tls(files, settings.client_ca)
        self._fingerprint = read_fingerprint(files.certificate)
        self._self_made = files.self_made
        self._socket = _bind(settings.address, settings.port)
        self.connected: set[NetworkProtocol] = set()
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._addresses: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []

    def describe(self) -> ListenerDocument:
        """Where it listens."""
        address, port = self._socket.getsockname()[:2]
        return ListenerDocument(
            address=address,
            port=port,
            fingerprint=self._fingerprint,
            self_made=self._self_made,
            client_certificates=bool(self._settings.client_ca),
        )

    def start(self, config: uvicorn.Config, state: Any, app_state: dict[str, Any]) -> None:
        """Accepts connections, each with the protocol of the daemon's own server."""
        self._socket.listen(256)

        def make(address: str) -> NetworkProtocol:
            return NetworkProtocol(
                self, address, config=config, server_state=state, app_state=app_state
            )

        self._tasks = [
            asyncio.create_task(self._accept(make)),
            asyncio.create_task(self._watch_tokens()),
        ]

    def close(self) -> None:
        """Accepts no more; what is connected ends with the daemon's server."""
        for task in (*self._tasks, *self._handshakes):
            task.cancel()
        self._socket.close()

    def free(self, address: str) -> None:
        """One connection of an address is over."""
        key = count_as(address)
        self._addresses[key] -= 1
        if self._addresses[key] <= 0:
            del self._addresses[key]

    async def _accept(self, make: Callable[[str], NetworkProtocol]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, where = await loop.sock_accept(self._socket)
            except OSError as error:
                # no more descriptors, or a connection that is gone: the loop's own servers pause, too
                loop.call_exception_handler(
                    {"message": "a network connection cannot be accepted", "exception": error}
                )
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            self._take(connection, where[0], make)
            # where many wait, accepting them takes no turn of the loop
            await asyncio.sleep(0)

    def _take(
        self, connection: socket.socket, address: str, make: Callable[[str], NetworkProtocol]
    ) -> None:
        key = count_as(address)
        is_full = self._addresses.total() >= self._total
        if is_full or self._addresses[key] >= self._settings.connections_per_address:
            connection.close()
            return
        connection.setblocking(False)
        # asyncio sets this only for sockets that were made with a protocol
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        self._addresses[key] += 1
        if len(self._handshakes) >= min(MAX_HANDSHAKES, self._total // 2):
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        protocol = make(address)

        def end(done: asyncio.Task[None]) -> None:
            """The protocol frees the slot of its address; without a connection there is none."""
            self._handshakes.pop(done, None)
            if protocol.connection is None:
                self.free(address)
                connection.close()

        task = asyncio.create_task(self._shake_hands(connection, protocol))
        self._handshakes[task] = None
        task.add_done_callback(end)

    async def _shake_hands(self, connection: socket.socket, protocol: NetworkProtocol) -> None:
        with contextlib.suppress(OSError):  # also of the time, and of TLS
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=self._settings.handshake_s,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )

    async def _watch_tokens(self) -> None:
        """Ends requests whose token is revoked or has expired meanwhile. While the file of tokens cannot be read, none
        is ended, and no new request is taken.
        """
        while True:
            await asyncio.sleep(WATCH_S)
            for protocol in list(self.connected):
                caller = protocol.connection.caller if protocol.connection else None
                if caller is None:
                    continue
                with contextlib.suppress(VgpumgrError):
                    if not self._gatekeeper.is_valid(caller):
                        protocol.transport.abort()


def open_listener(
    settings: ListenSettings, machine: Machine, limits: Limits, gatekeeper: Gatekeeper
) -> Listener | None:
    """None where it is off. Raises SettingsError."""
    return Listener(settings, machine, limits, gatekeeper) if settings.address else None


def count_as(address: str) -> str:
    """The address by which connections are counted."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((found, _IPV6_PREFIX), strict=False))


def _bind(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {address} port {port}",
            cause=error.strerror,
            hint="vgpumgr config show, keys listen.address and listen.port",
        ) from error
    return listener
