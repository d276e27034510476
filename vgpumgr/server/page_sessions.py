"""The web page over the network listener: a token, pasted into a form, becomes a session of one browser.

The rules are those of ``vgpumgr web``. The browser gets a cookie, which is enough for the page's files, and a code that
works once, for which the page gets the key of the API: browsers send cookies of a host to all its ports. Neither token
nor key is in an address. A session ends with its token.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from urllib.parse import parse_qs

from vgpumgr.host.clock import Clock
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.page import PAGE, SECURITY_HEADERS
from vgpumgr.server.page import PageAnswer

LOGIN = f"{PAGE}/login"
KEY = f"{PAGE}/key"
#: a browser sends it back over TLS only, and takes it for this host alone
COOKIE = "__Host-vgpumgr"
#: so long a session lasts
SESSION_S = 12 * 3600.0
#: sessions; one more ends the oldest
MAX_SESSIONS = 1024
#: of a form with a token
MAX_FORM_BYTES = 1024
_BYTES = 32

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class Session:
    """Of one browser. ``code`` is empty once it was used."""

    id: str
    token_id: str
    key: str
    code: str
    end_s: float


class Sessions:
    """Those of one daemon, in memory. Lives on one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: OrderedDict[str, Session] = OrderedDict()

    def create(self, token_id: str) -> tuple[str, Session]:
        """The cookie of a new session, of which only a hash is kept, and the session."""
        cookie = secrets.token_urlsafe(_BYTES)
        key, code = secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES)
        end_s = self._clock.monotonic_s() + SESSION_S
        session = Session(_hash(cookie), token_id, key, code, end_s)
        self._all[session.id] = session
        if len(self._all) > MAX_SESSIONS:
            self._all.popitem(last=False)
        return cookie, session

    def find(self, headers: Headers) -> Session | None:
        """That of the browser's cookie, if it has one, and only one."""
        found = [
            pair.strip()[len(COOKIE) + 1 :]
            for name, value in headers
            if name == b"cookie"
            for pair in value.decode("latin-1").split(";")
            if pair.strip().startswith(f"{COOKIE}=")
        ]
        return self.find_id(_hash(found[0])) if len(found) == 1 else None

    def find_id(self, session_id: str) -> Session | None:
        """A session that has not ended."""
        session = self._all.get(session_id)
        if session is not None and session.end_s <= self._clock.monotonic_s():
            del self._all[session_id]
            return None
        return session


def has_key(session: Session, headers: Headers) -> bool:
    """Whether a request has the key that only a page of this origin can send."""
    given = [value for name, value in headers if name == b"x-vgpumgr-page"]
    return len(given) == 1 and hmac.compare_digest(given[0], session.key.encode())


def exchange_code(session: Session, headers: Headers) -> PageAnswer | None:
    """The key, for the code, which is then used; None for a wrong or used one."""
    given = [value for name, value in headers if name == b"x-vgpumgr-page"]
    if not session.code or len(given) != 1:
        return None
    if not hmac.compare_digest(given[0], session.code.encode()):
        return None
    session.code = ""
    body = json.dumps({"key": session.key}).encode()
    return PageAnswer(200, (("Content-Type", "application/json"), *_HEADERS), body)


def enter(cookie: str, session: Session) -> PageAnswer:
    """The way from the form to the page, with the session's cookie."""
    attributes = "Secure; HttpOnly; SameSite=Strict; Path=/"
    headers = (
        ("Location", f"{PAGE}/#code={session.code}"),
        ("Set-Cookie", f"{COOKIE}={cookie}; {attributes}"),
        *_HEADERS,
    )
    return PageAnswer(303, headers)


def redirect() -> PageAnswer:
    """From an address without a path."""
    return PageAnswer(303, (("Location", f"{PAGE}/"), *_HEADERS))


def read_form(body: bytes) -> str | None:
    """The token of a form."""
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=1)
    except ValueError:
        return None
    given = fields.get("token", [])
    return given[0].strip() if len(given) == 1 else None


def show_form(text: str = "", status: int = 200) -> PageAnswer:
    """The form, with what was wrong with the token before."""
    body = _FORM.replace("TEXT", html.escape(text))
    kind = ("Content-Type", "text/html; charset=utf-8")
    return PageAnswer(status, (kind, *_FORM_HEADERS), body.encode())


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


_NO_STORE = ("Cache-Control", "no-store")
_HEADERS = (_NO_STORE, *SECURITY_HEADERS)
#: the form has neither scripts nor styles, and goes to this host alone; without a referrer a browser would not say that
#: the form is of this page
_FORM_HEADERS = (
    _NO_STORE,
    *(
        (name, re.sub(r"form-action '\w+'", "form-action 'self'", value))
        for name, value in SECURITY_HEADERS
        if name != "Referrer-Policy"
    ),
    ("Referrer-Policy", "same-origin"),
)
_FORM = f"""<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>vgpumgr</title>
    <link rel="icon" href="data:," />
  </head>
  <body>
    <main>
      <h1>vgpumgr</h1>
      <p role="alert">TEXT</p>
      <form method="post" action="{LOGIN}">
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="off" required autofocus maxlength="128" />
        <button>Log in</button>
      </form>
      <p>An administrator of this host makes one: vgpumgr token create NAME --role viewer</p>
    </main>
  </body>
</html>
"""
