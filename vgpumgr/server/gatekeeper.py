"""Who calls over the network: a token, or a certificate that stands for one, makes a caller with a role.

Each request proves itself anew, so that a token that is revoked is refused by the next one. What runs longer, as an
event stream, is ended by ``listener``, which asks ``is_valid`` again and again.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import replace

from vgpumgr.errors import AccessDeniedError, AuthenticationError, TooManyRequestsError
from vgpumgr.host.clock import Clock
from vgpumgr.host.sockets import Peer
from vgpumgr.model.callers import ROLE_NAMES, NetworkCaller
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.routes import Role
from vgpumgr.server.page import PageAnswer
from vgpumgr.server.page_sessions import Sessions, enter, exchange_code, has_key
from vgpumgr.state.tokens import MAX_SECRET, TokenRecord, TokenStore

#: wrong tokens of one address that are answered in a minute; a right one is never refused for them
MAX_WRONG = 10
_WRONG_S = 60.0
#: addresses whose wrong tokens are counted
_ADDRESSES = 4096
_BEARER = re.compile(rb"[Bb]earer +([A-Za-z0-9_.~+/=-]{1,%d})" % MAX_SECRET)
_HINT = "vgpumgr login https://HOST:PORT"

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Origin:
    """What the connection says: its address, the one that limits count, and the subject of its certificate."""

    address: str
    counted: str
    subject: str | None = None


class Gatekeeper:
    """Lives on one event loop."""

    def __init__(self, tokens: TokenStore, clock: Clock) -> None:
        self._tokens = tokens
        self._sessions = Sessions(clock)
        self._clock = clock
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def authenticate(self, origin: Origin, headers: Headers, *, for_page: bool = False) -> Peer:
        """The caller, by a token, else by a session of the web page, else by the certificate. A session needs the
        page's key, too, unless the request is ``for_page``'s files. Raises AuthenticationError, TooManyRequestsError,
        AccessDeniedError for what a browser sends for another page, TokenFileError.
        """
        fields = list(headers)
        check_sender(fields)
        given = [value for name, value in fields if name == b"authorization"]
        now_s = self._clock.wall_s()
        if given:
            token = self._find_bearer(given, now_s)
            if token is None:
                raise self.count_wrong(origin)
            return Peer.from_network(_make_caller(token, origin))
        session = self._sessions.find(fields)
        if session is not None and (for_page or has_key(session, fields)):
            token = self._tokens.find_id(session.token_id, now_s)
            if token is not None:
                caller = _make_caller(token, origin)
                return Peer.from_network(replace(caller, session=session.id))
        token = self._tokens.find_subject(origin.subject, now_s) if origin.subject else None
        if token is None:
            raise _refuse(origin)
        return Peer.from_network(_make_caller(token, origin))

    def log_in(self, origin: Origin, secret: str) -> PageAnswer:
        """What a browser gets for a token: a session. Raises AuthenticationError, TooManyRequestsError,
        AccessDeniedError for a tenant's, TokenFileError.
        """
        token = self._find_bearer([b"Bearer " + secret.encode()], self._clock.wall_s())
        if token is None:
            raise self.count_wrong(origin)
        if ROLE_NAMES[token.role] < Role.VIEWER:
            raise AccessDeniedError(
                f"token {token.name} opens no page",
                why=f"its role is {token.role}, and the page shows the host",
                hint="vgpumgr --host https://HOST:PORT claim list",
            )
        return enter(*self._sessions.create(token.id))

    def exchange(self, origin: Origin, headers: Headers) -> PageAnswer:
        """The key of the page, for its code. Raises AuthenticationError, TooManyRequestsError."""
        fields = list(headers)
        session = self._sessions.find(fields)
        answer = session and exchange_code(session, fields)
        if not answer:
            raise self.count_wrong(origin)
        return answer

    def is_valid(self, caller: NetworkCaller) -> bool:
        """Whether its token is neither revoked nor expired, nor its session over. Raises TokenFileError."""
        if caller.session is not None and self._sessions.find_id(caller.session) is None:
            return False
        return self._tokens.find_id(caller.id or "", self._clock.wall_s()) is not None

    def read_expiry_s(self, caller: NetworkCaller) -> float | None:
        """When its token ends. Raises TokenFileError."""
        token = self._tokens.find_id(caller.id or "", self._clock.wall_s())
        return token.expires_s if token else None

    def _find_bearer(self, given: list[bytes], now_s: float) -> TokenRecord | None:
        match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
        return self._tokens.find_secret(match[1].decode(), now_s) if match else None

    def count_wrong(self, origin: Origin) -> AuthenticationError | TooManyRequestsError:
        """The refusal of a wrong token of an address, which counts."""
        now_s = self._clock.monotonic_s()
        wrong = self._wrong.setdefault(origin.counted, deque(maxlen=MAX_WRONG))
        self._wrong.move_to_end(origin.counted)
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)
        if len(wrong) == MAX_WRONG and now_s - wrong[0] < _WRONG_S:
            return TooManyRequestsError(
                "too many wrong tokens come from this address",
                why=f"{MAX_WRONG} are answered in a minute",
                hint="try again in a minute",
            )
        wrong.append(now_s)
        return AuthenticationError(
            "this token is not taken",
            why="it is wrong or revoked, or has expired",
            hint=_HINT,
        )


def _refuse(origin: Origin) -> AuthenticationError:
    if origin.subject is None:
        return AuthenticationError("the request has no token", hint=_HINT)
    return AuthenticationError(
        "this certificate is not taken",
        cause=f"its subject is {origin.subject}",
        why="no token stands for it, or that has expired",
        hint="there: vgpumgr token create NAME --role ROLE --subject SUBJECT",
    )


def _make_caller(token: TokenRecord, origin: Origin) -> NetworkCaller:
    return NetworkCaller(
        origin.address, ROLE_NAMES[token.role], token.name, token.id, token.tenant or None
    )


def check_sender(headers: list[tuple[bytes, bytes]]) -> None:
    """Raises AccessDeniedError for what another page makes a browser send: a browser adds the certificate of its user,
    and says which page it was.
    """
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    origins, sites = found.get(b"origin", []), found.get(b"sec-fetch-site", [])
    hosts = [b"https://" + host for host in found.get(b"host", [])]
    if any(one not in hosts for one in origins) or any(
        one not in (b"none", b"same-origin") for one in sites
    ):
        raise AccessDeniedError("the request comes from another page")
