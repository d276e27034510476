"""Tokens: who may call the daemon over a network, as what, and until when.

A file of root's has them. Of a secret it has the SHA-256 only, which is enough for 256 random bits. A token without
a secret stands for the subject of a client's certificate. The daemon reads the file again whenever it is another one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vgpumgr.errors import (
    NotPermittedError,
    TokenExistsError,
    TokenFileError,
    TokenNotFoundError,
    UntrustedPathError,
)
from vgpumgr.host.files import PRIVATE, make_directory, read_private, replace_file
from vgpumgr.host.lock import lock_file
from vgpumgr.model.callers import ROLE_NAMES
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import list_near

FILE_NAME = "tokens.json"
#: what every secret begins with, so that a search for leaked ones finds it
PREFIX = "vgpumgr_"
#: of a secret, with its prefix
MAX_SECRET = 128
MAX_TOKENS = 4096
_BYTES = 32
_FORM = 1
_LOCK_S = 5.0


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token. Either ``sha256`` or ``subject`` is empty."""

    id: str
    name: str
    role: str
    created_s: float
    tenant: str = ""
    #: of the secret, in hexadecimal digits
    sha256: str = ""
    #: of a client's certificate, as RFC 4514 writes it
    subject: str = ""
    #: by the clock of the day; None: never
    expires_s: float | None = None

    def is_valid(self, now_s: float) -> bool:
        """Whether it has not expired."""
        return self.expires_s is None or now_s < self.expires_s


class TokenStore:
    """The file. Any thread of one process may ask it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: object = None
        self._tokens: tuple[TokenRecord, ...] = ()

    def read(self) -> tuple[TokenRecord, ...]:
        """Every token, by name; read again where the file is another one. Raises TokenFileError, NotPermittedError."""
        stamp = self._read_stamp()
        if stamp != self._stamp or stamp is None:
            self._tokens = () if stamp is None else self._parse()
            self._stamp = stamp
        return self._tokens

    def find_secret(self, secret: str, now_s: float) -> TokenRecord | None:
        """The valid token of a secret. Takes as long for every secret. Raises as ``read``."""
        digest = hash_secret(secret)
        found = None
        for token in self.read():
            # of a token that stands for a certificate the digest is empty, and equals none
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return found if found is not None and found.is_valid(now_s) else None

    def find_subject(self, subject: str, now_s: float) -> TokenRecord | None:
        """The valid token that stands for a certificate. Raises as ``read``."""
        found = (one for one in self.read() if one.subject and one.subject == subject)
        return next((one for one in found if one.is_valid(now_s)), None)

    def find_id(self, token_id: str, now_s: float) -> TokenRecord | None:
        """The valid token of that id. Raises as ``read``."""
        return next((t for t in self.read() if t.id == token_id and t.is_valid(now_s)), None)

    def create(self, token: TokenRecord) -> str | None:
        """Adds a token, and answers its secret, which is kept nowhere; None where it stands for a certificate. One of
        the same name that has expired goes. Raises TokenExistsError, TokenFileError, NotPermittedError.
        """
        secret = None if token.subject else PREFIX + secrets.token_urlsafe(_BYTES)
        if secret is not None:
            token = replace(token, sha256=hash_secret(secret))

        def add(tokens: tuple[TokenRecord, ...]) -> tuple[TokenRecord, ...]:
            kept = [t for t in tokens if t.name != token.name or t.is_valid(token.created_s)]
            _check_new(kept, token)
            return (*kept, token)

        self._change(add)
        return secret

    def revoke(self, name: str) -> TokenRecord:
        """Removes a token, which is refused from then on. Raises TokenNotFoundError, TokenFileError."""
        gone: list[TokenRecord] = []

        def remove(tokens: tuple[TokenRecord, ...]) -> tuple[TokenRecord, ...]:
            gone.extend(one for one in tokens if one.name == name)
            if not gone:
                near = list_near(name, [one.name for one in tokens], n=2)
                raise TokenNotFoundError(
                    f"there is no token {name}",
                    why=f"did you mean {' or '.join(near)}?" if near else None,
                    hint="vgpumgr token list",
                )
            return tuple(one for one in tokens if one.name != name)

        self._change(remove)
        return gone[0]

    def _change(self, change: Callable[[tuple[TokenRecord, ...]], tuple[TokenRecord, ...]]) -> None:
        with self._explaining("written"):
            make_directory(self.path.parent)
            with lock_file(self.path.with_suffix(".lock"), _LOCK_S, what="tokens"):
                tokens = sorted(change(self.read()), key=lambda one: one.name)
                data = {"form": _FORM, "tokens": [encode(one) for one in tokens]}
                replace_file(self.path, json.dumps(data, indent=1) + "\n", PRIVATE, sync=True)

    def _read_stamp(self) -> object:
        with self._explaining("read"):
            try:
                found = self.path.stat()
            except FileNotFoundError:
                return None
            return (found.st_ino, found.st_mtime_ns, found.st_size)

    def _parse(self) -> tuple[TokenRecord, ...]:
        with self._explaining("read"):
            text = read_private(self.path)
        try:
            data = json.loads(text)
            if data["form"] != _FORM:
                raise ValueError(f"it is of form {data['form']}, and this is a program of {_FORM}")
            tokens = tuple(decode(TokenRecord, one) for one in data["tokens"])
            if unknown := {one.role for one in tokens} - ROLE_NAMES.keys():
                raise ValueError(f"there is no role {sorted(unknown)[0]!r}")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise TokenFileError(
                "the file of tokens cannot be read",
                cause=f"{self.path}: {error}",
                why="no token is taken until it can",
                hint=f"restore {self.path}, or remove it and create the tokens again",
            ) from error
        return tokens

    @contextmanager
    def _explaining(self, verb: str) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise NotPermittedError(
                f"the file of tokens cannot be {verb}",
                cause=f"{self.path}: {error.strerror}",
                hint="sudo vgpumgr ...",
            ) from error
        except (UntrustedPathError, OSError) as error:
            raise TokenFileError(
                f"the file of tokens cannot be {verb}",
                cause=f"{self.path}: {error}",
                hint=f"ls -l {self.path}",
            ) from error


def hash_secret(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _check_new(tokens: list[TokenRecord], token: TokenRecord) -> None:
    if any(one.name == token.name for one in tokens):
        raise TokenExistsError(
            f"there is a token {token.name}", hint=f"vgpumgr token revoke {token.name}"
        )
    same = [one.name for one in tokens if token.subject and one.subject == token.subject]
    if same:
        raise TokenExistsError(
            f"a token stands for {token.subject} already",
            held_by=(f"token {same[0]}",),
            hint=f"vgpumgr token revoke {same[0]}",
        )
    if len(tokens) >= MAX_TOKENS:
        raise TokenExistsError(
            f"there are {MAX_TOKENS} tokens, and no more are taken", hint="vgpumgr token list"
        )
