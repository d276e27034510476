"""Who may come through: decides on each request of one session of ``vgpumgr web``.

The address that the command prints has a token that works once. The browser gets two secrets for it: a cookie, which is
enough for the page's files, and a key, without which no request reaches the API. Browsers send cookies of a host to all
its ports, also to those that another user serves; the page keeps the key where only pages of this port can read it. It
gets the key for a code that works once, too, and stands behind the ``#`` of an address, which no server receives: a
browser writes addresses down, and this one is of no use afterwards. The other checks refuse what another page, in the
same browser, makes the browser send.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from vgpumgr.cli.gateway.requests import Request
from vgpumgr.errors import AccessDeniedError, RouteNotFoundError, VgpumgrError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.page import PAGE, SECURITY_HEADERS
from vgpumgr.model.routes import API, ROUTES, SYSTEM_ROUTES, Role

if TYPE_CHECKING:
    from vgpumgr.host.clock import Clock

#: wrong tokens that are answered in a minute; more of them are refused unread, and the right one never is
MAX_WRONG = 10
_WRONG_S = 60.0
_BYTES = 32
#: where the page gets the key of the API for its code
KEY = f"{PAGE}/key"


def _find_reads_of_admins() -> re.Pattern[str]:
    """Paths that the daemon lets administrators alone read."""
    rows = [r for r in (*ROUTES, *SYSTEM_ROUTES) if r.method == "GET" and r.role >= Role.ADMIN]
    paths = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(row.path)) for row in rows]
    return re.compile("|".join(paths))


_ADMINS = _find_reads_of_admins()


@dataclass(frozen=True, slots=True)
class Reply:
    """What the gateway answers by itself."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Gate:
    """One session: from its start until it expires."""

    def __init__(
        self, clock: Clock, port: int, expires_s: float, *, read_only: bool, command: str
    ) -> None:
        self._clock = clock
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._end_s = clock.monotonic_s() + expires_s
        self.read_only = read_only
        self._command = command
        self._token: str | None = secrets.token_urlsafe(_BYTES)
        # cookies of one host go to all its ports: a name of its own keeps two sessions apart
        self._cookie_name = f"vgpumgr-{port}-{secrets.token_hex(4)}"
        self._cookie = secrets.token_urlsafe(_BYTES)
        self._key = secrets.token_urlsafe(_BYTES)
        self._code: str | None = secrets.token_urlsafe(_BYTES)
        self._wrong: deque[float] = deque(maxlen=MAX_WRONG)
        self.address = f"http://127.0.0.1:{port}{PAGE}/?token={self._token}"

    @property
    def left_s(self) -> float:
        """Seconds until the session expires."""
        return self._end_s - self._clock.monotonic_s()

    def check(self, request: Request) -> Reply | None:
        """What to answer; None: the request goes on to the daemon."""
        try:
            return self._check_sender(request) or self._check_session(request)
        except VgpumgrError as error:
            return answer_error(error, error.http_status)

    def _check_sender(self, request: Request) -> Reply | None:
        """Whether it comes from a page of this address, in a browser that was sent here by it."""
        host = request.find("host")
        if host not in self._hosts:
            error = AccessDeniedError(
                "the request is for another host", hint=f"{self._command}, and its address"
            )
            return answer_error(error, 421)
        origin, site = request.find("origin"), request.find("sec-fetch-site")
        if origin not in (None, f"http://{host}") or site not in (None, "none", "same-origin"):
            raise AccessDeniedError("the request comes from another page")
        return None

    def _check_session(self, request: Request) -> Reply | None:
        given = parse_qs(request.query).get("token") if request.path == f"{PAGE}/" else None
        expired = self.left_s <= 0
        if given and request.method == "GET" and not expired:
            if self._take(given):
                return self._enter(
                    ("Set-Cookie", self._format_cookie()), code=f"#code={self._code}"
                )
            if not self._has_cookie(request):
                return self._count_wrong()
        if expired or not self._has_cookie(request):
            return self._answer_stranger(request)
        # reloaded with the token in its address, or without a path
        if given or request.path == "/":
            return self._enter()
        if request.path == KEY and request.method == "POST":
            return self._exchange(request)
        is_page = _is_below(request, PAGE)
        if not is_page and not _is_same(request.find("x-vgpumgr-page") or "", self._key):
            return self._answer_stranger(request)
        self._check_request(request)
        return None

    def _exchange(self, request: Request) -> Reply:
        """The key, for the code, which is then used."""
        given = request.find("x-vgpumgr-page") or ""
        if self._code is None or not _is_same(given, self._code):
            return self._count_wrong()
        self._code = None
        return _answer_json(200, {"key": self._key})

    def _check_request(self, request: Request) -> None:
        """What the browser of the session may send."""
        if not _is_below(request, PAGE) and not _is_below(request, API):
            raise RouteNotFoundError("there is no such path", hint=f"{PAGE}/")
        if self.read_only and not request.reads:
            raise AccessDeniedError(
                "this page changes nothing", why="it was opened with --read-only"
            )
        if self.read_only and _ADMINS.fullmatch(request.path):
            raise AccessDeniedError(
                "this page shows what a viewer may read", why="it was opened with --read-only"
            )

    def _take(self, given: Sequence[str]) -> bool:
        """Whether it is the token, which is then used."""
        if self._token is None or len(given) != 1 or not _is_same(given[0], self._token):
            return False
        self._token = None
        return True

    def _enter(self, *headers: tuple[str, str], code: str = "") -> Reply:
        no_store = ("Cache-Control", "no-store")
        location = ("Location", f"{PAGE}/{code}")
        return Reply(303, (location, no_store, *headers, *SECURITY_HEADERS))

    def _format_cookie(self) -> str:
        return f"{self._cookie_name}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"

    def _has_cookie(self, request: Request) -> bool:
        pairs = (pair.strip() for line in request.find_all("cookie") for pair in line.split(";"))
        named = [p.partition("=")[2] for p in pairs if p.partition("=")[0] == self._cookie_name]
        return len(named) == 1 and _is_same(named[0], self._cookie)

    def _count_wrong(self) -> Reply:
        now_s = self._clock.monotonic_s()
        if len(self._wrong) == MAX_WRONG and now_s - self._wrong[0] < _WRONG_S:
            return _answer_text(429, "Too many wrong addresses. Try again in a minute.\n")
        self._wrong.append(now_s)
        return self._answer_outside()

    def _answer_stranger(self, request: Request) -> Reply:
        if _is_below(request, API):
            error = AccessDeniedError(
                "no session of the web page, or it has ended", hint=self._command
            )
            return answer_error(error, 401)
        return self._answer_outside()

    def _answer_outside(self) -> Reply:
        return _answer_text(
            401,
            "This browser has no session here, or it has ended.\n"
            f"Each address works once. For a new one, run again: {self._command}\n",
        )


def answer_error(error: VgpumgrError, status: int) -> Reply:
    """The envelope of every error, as the daemon has it."""
    more = (("Retry-After", "1"),) if status == 503 else ()
    return _answer_json(status, {"schema": "vgpumgr/v1", "error": error.as_dict()}, *more)


def _answer_json(status: int, data: object, *more: tuple[str, str]) -> Reply:
    kind = ("Content-Type", "application/json")
    headers = (kind, ("Cache-Control", "no-store"), *more, *SECURITY_HEADERS)
    return Reply(status, headers, json.dumps(data).encode())


def _answer_text(status: int, text: str) -> Reply:
    kind = ("Content-Type", "text/plain; charset=utf-8")
    return Reply(status, (kind, ("Cache-Control", "no-store"), *SECURITY_HEADERS), text.encode())


def _is_below(request: Request, path: str) -> bool:
    return request.path == path or request.path.startswith(f"{path}/")


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
