"""Daemons of other hosts over their network listeners: ``--host https://gpu1:8443``; ``vgpumgr login`` and ``logout``.

A file of the user's has the token of each host and the fingerprint of its certificate. Nothing is sent before the
certificate is the one that is known, or one that the system's authorities have signed for the host's name.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import re
import socket
import ssl
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from typer import Argument, Context, Option

from vgpumgr.cli.http import HttpBackend, Stream
from vgpumgr.cli.main import App
from vgpumgr.cli.output import print_single
from vgpumgr.cli.session import Streams, get_session, get_session_here
from vgpumgr.errors import (
    FileWriteError,
    NotPermittedError,
    RemoteHostError,
    TokenNotFoundError,
    UsageError,
)
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.routes import API

app = App()
DEFAULT_PORT = 8443
_SCHEMA = "vgpumgr/v1"
_TIMEOUT_S = 20.0
_MAX_BYTES = 1 << 20
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_SECRET = re.compile(r"[A-Za-z0-9_.~+/=-]{1,128}")
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Target:
    """A host's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """What proves the user to a host, and the host to the user. Empty: nothing."""

    token: str = ""
    fingerprint: str = ""
    certificate: str = ""
    key: str = ""


def parse_target(address: str) -> Target:
    """``https://HOST:PORT``; the port is 8443 by default. Raises UsageError."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), 0
    extra = (
        parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password
    )
    if parts.scheme != "https" or not parts.hostname or port == 0 or extra:
        raise UsageError(
            f'no address of a listener: "{address}"',
            why="it is https://HOST:PORT",
            hint="--host https://gpu1:8443",
        )
    return Target(parts.hostname, port or DEFAULT_PORT)


def parse_fingerprint(text: str) -> str:
    """Hexadecimal digits, with colons or without, and ``sha256:`` before them or not. Raises UsageError."""
    digits = text.strip().lower().removeprefix("sha256:").replace(":", "")
    if not _FINGERPRINT.fullmatch(digits):
        raise UsageError(
            f"no fingerprint: {text!r}",
            why="it is SHA-256 of a certificate: 64 hexadecimal digits",
            hint="on that host: vgpumgr listener",
        )
    return digits


def find_file(environ: Mapping[str, str]) -> Path:
    """The file of logins."""
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "vgpumgr" / "hosts.json"


def read_logins(path: Path) -> dict[str, Login]:
    """The logins by address. Raises UsageError for a file that is no such one, NotPermittedError for one that others
    may read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(path, "it is no regular file")
        if status.st_mode & _OTHERS or status.st_uid != os.geteuid():
            raise NotPermittedError(
                f"{path} is not private",
                why="it has tokens, and other users may read or own it",
                hint=f"chmod 600 {path}",
            )
        data = file.read(_MAX_BYTES)
    try:
        hosts = json.loads(data)["hosts"]
        return {
            str(name): Login(**{k: str(v) for k, v in one.items()}) for name, one in hosts.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _unreadable(path, f"it has no logins: {error}") from error


def _unreadable(path: Path, cause: str) -> UsageError:
    return UsageError(
        f"cannot read {path}", cause=cause, hint=f"rm {path}, and vgpumgr login again"
    )


def write_logins(path: Path, logins: Mapping[str, Login]) -> None:
    """Replaces the file. Raises FileWriteError."""
    fields = ("token", "fingerprint", "certificate", "key")
    hosts = {name: {f: getattr(one, f) for f in fields} for name, one in sorted(logins.items())}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
            json.dump({"hosts": hosts}, file, indent=1)
            file.write("\n")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise FileWriteError(f"cannot write {path}", cause=str(error)) from error


def find_login(target: Target, environ: Mapping[str, str]) -> Login:
    """What is known of a host; VGPUMGR_TOKEN and VGPUMGR_HOST_FINGERPRINT precede the file. Raises UsageError,
    NotPermittedError.
    """
    login = read_logins(find_file(environ)).get(str(target), Login())
    if secret := environ.get("VGPUMGR_TOKEN"):
        login = replace(login, token=check_secret(secret, "VGPUMGR_TOKEN"), certificate="", key="")
    if text := environ.get("VGPUMGR_HOST_FINGERPRINT"):
        login = replace(login, fingerprint=parse_fingerprint(text))
    return login


def check_secret(text: str, source: str) -> str:
    """The token. Raises UsageError, which does not repeat it."""
    secret = text.strip()
    if not _SECRET.fullmatch(secret):
        raise UsageError(
            f"{source} has no token",
            why="one is a word such as vgpumgr_...",
            hint="there: vgpumgr token create NAME --role ROLE",
        )
    return secret


class _Connection:
    """A stream over TLS, and the fields that each request on it has."""

    def __init__(self, stream: ssl.SSLSocket, fields: Mapping[str, str]) -> None:
        self._stream = stream
        self.fields = fields
        self.sendall = stream.sendall
        self.makefile = stream.makefile
        self.close = stream.close

    def shutdown(self, how: int, /) -> object:
        """Ends a read that another thread is in."""
        socket.socket.shutdown(self._stream, how)
        return None


class TlsHost:
    """One host. Each request has a connection of its own."""

    def __init__(self, target: Target, login: Login) -> None:
        self._target = target
        self._login = login
        self._tls: ssl.SSLContext | None = None

    def connect(self) -> Stream:
        """A connection on which the host has proven itself. Raises RemoteHostError."""
        target = self._target
        try:
            self._tls = self._tls or self._make_tls()
            plain = socket.create_connection((target.host, target.port), _TIMEOUT_S)
        except OSError as error:
            raise self._explain(error) from error
        try:
            # a request would wait for the other side's word about the handshake
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = self._tls.wrap_socket(plain, server_hostname=target.host)
            self._check_fingerprint(stream)
            stream.settimeout(None)
        except (OSError, ValueError) as error:
            plain.close()
            raise self._explain(error) from error
        except BaseException:
            plain.close()
            raise
        fields = {"Host": str(target).removeprefix("https://")}
        if self._login.token:
            fields["Authorization"] = f"Bearer {self._login.token}"
        return _Connection(stream, fields)

    def _make_tls(self) -> ssl.SSLContext:
        tls = ssl.create_default_context()
        tls.minimum_version = ssl.TLSVersion.TLSv1_3
        if self._login.fingerprint:
            # the fingerprint is compared before anything is sent, and says more than a name
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if self._login.certificate:
            tls.load_cert_chain(
                self._login.certificate, self._login.key or None, password=lambda: ""
            )
        return tls

    def _check_fingerprint(self, stream: ssl.SSLSocket) -> None:
        if not self._login.fingerprint:
            return
        found = hashlib.sha256(stream.getpeercert(binary_form=True) or b"").hexdigest()
        if not hmac.compare_digest(found, self._login.fingerprint):
            stream.close()
            raise RemoteHostError(
                f"{self._target} is another host, or has a new certificate",
                cause=f"its fingerprint is {found}",
                why=f"it was {self._login.fingerprint}; nothing was sent",
                hint=f"vgpumgr login {self._target} --fingerprint SHA256 (there: vgpumgr listener)",
            )

    def _explain(self, error: Exception) -> RemoteHostError:
        cause, why, hint = str(error), None, "on that host: vgpumgr listener"
        if isinstance(error, ssl.SSLCertVerificationError):
            cause = error.verify_message or cause
            why = "no authority of this system has signed its certificate for that name"
            hint = f"vgpumgr login {self._target} --fingerprint SHA256 (there: vgpumgr listener)"
        elif isinstance(error, ssl.SSLError):
            why = "it does not speak TLS 1.3, or takes no such certificate"
        elif isinstance(error, FileNotFoundError | PermissionError):
            cause, hint = (
                f"{self._login.certificate}: {error.strerror}",
                f"vgpumgr login {self._target}",
            )
        elif isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            why = "nothing listens there: the key listen.address is empty by default"
        return RemoteHostError(f"cannot reach {self._target}", cause=cause, why=why, hint=hint)


def open_https(address: str, environ: Mapping[str, str]) -> TlsHost:
    """The host of ``--host``. Raises UsageError, NotPermittedError."""
    target = parse_target(address)
    return TlsHost(target, find_login(target, environ))


@app.single("login")
def log_in(
    context: Context,
    listener: Annotated[str, Argument(metavar="HOST", help="Its listener: https://gpu1:8443.")],
    fingerprint: Annotated[
        str | None,
        Option(
            "--fingerprint",
            metavar="SHA256",
            help="Of its certificate: vgpumgr listener prints it there.",
        ),
    ] = None,
    certificate: Annotated[
        str | None,
        Option(
            "--certificate", metavar="FILE", help="A client's certificate, in the place of a token."
        ),
    ] = None,
    key: Annotated[str | None, Option("--key", metavar="FILE", help="Its key.")] = None,
) -> None:
    """Keep a token of a host's listener.

    Then --host https://HOST reaches it. The token is read from VGPUMGR_TOKEN, else from standard
    input. Without --fingerprint an authority of this system must have signed the host's certificate.
    Both are kept in ~/.config/vgpumgr.

    \b
    Examples:
      vgpumgr login https://gpu1:8443 --fingerprint 5e884898da28047151d0e56f8dc62927...
      vgpumgr login https://gpu1:8443 --certificate alice.crt --key alice.key
    """
    session = get_session_here(context, "login")
    target = parse_target(listener)
    pinned = parse_fingerprint(fingerprint) if fingerprint else ""
    if key and not certificate:
        raise UsageError("--key goes with --certificate", hint="--certificate FILE --key FILE")
    if certificate:
        names = (str(Path(one).absolute()) if one else "" for one in (certificate, key))
        login = Login("", pinned, *names)
    else:
        login = Login(_read_secret(session.streams, target), pinned)
    backend = HttpBackend(TlsHost(target, login).connect, session.streams)
    access = backend.request("GET", f"{API}/access").document()
    path = find_file(os.environ)
    write_logins(path, {**read_logins(path), str(target): login})
    of = f" of tenant {access['tenant']}" if access["tenant"] else ""
    document = {**access, "host": str(target)}
    lines = [f"{target}: {access['caller']}, role {access['role']}{of}"]
    print_single(context, document, lines)
    session.streams.note(f"next: vgpumgr --host {target} claim list")


def _read_secret(streams: Streams, target: Target) -> str:
    if secret := os.environ.get("VGPUMGR_TOKEN"):
        return check_secret(secret, "VGPUMGR_TOKEN")
    if sys.stdin is not None and sys.stdin.isatty():
        import getpass

        return check_secret(getpass.getpass(f"token of {target}: ", streams.err), "the line")
    return check_secret(sys.stdin.readline(1024) if sys.stdin else "", "standard input")


@app.single("logout")
def log_out(
    context: Context,
    listener: Annotated[str, Argument(metavar="HOST", help="Its listener: https://gpu1:8443.")],
) -> None:
    """Forget a host's token and fingerprint.

    The token stays valid: vgpumgr token revoke on that host ends it.

    \b
    Examples:
      vgpumgr logout https://gpu1:8443
    """
    get_session_here(context, "logout")
    target, path = parse_target(listener), find_file(os.environ)
    logins = read_logins(path)
    if logins.pop(str(target), None) is None:
        known = ", ".join(logins) or "there are none"
        raise TokenNotFoundError(f"there is no login of {target}", why=f"known: {known}")
    write_logins(path, logins)
    print_single(context, {"schema": _SCHEMA, "host": str(target)}, [f"{target} is forgotten"])


@app.single("listener")
def show_listener(context: Context) -> None:
    """Show where the daemon listens on a network.

    The key listen.address of the configuration sets it; by default it listens on none.

    \b
    Examples:
      vgpumgr listener
      vgpumgr listener -o json
    """
    from vgpumgr.cli.backend import open_daemon

    session = get_session(context)
    found = open_daemon(session.options).request("GET", API).document().get("listener")
    document = {"schema": _SCHEMA, "listener": found}
    print_single(context, document, _render(found))


def _render(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["the daemon listens on no network", "next: [listen] address in vgpumgr.toml"]
    host = socket.gethostname()
    address = Target(host, found["port"])
    made = "made by vgpumgr" if found["self_made"] else "given"
    clients = "taken" if found["client_certificates"] else "not taken"
    return [
        f"listens on      {found['address']} port {found['port']}",
        f"certificate     {made}",
        f"fingerprint     {found['fingerprint']}",
        f"of clients      certificates are {clients}",
        f"from elsewhere  vgpumgr login {address} --fingerprint {found['fingerprint']}",
    ]
