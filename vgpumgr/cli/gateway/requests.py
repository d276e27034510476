"""Heads of requests, read strictly: what two readers could read in two ways is refused.

A connection carries one request. So what follows a request is never another one, whatever its head says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vgpumgr.errors import RequestTooLargeError, UsageError
from vgpumgr.model.frozen import dataclass

MAX_HEAD_BYTES = 32 << 10
MAX_BODY_BYTES = 1 << 20
_LINE = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]{0,8191}) HTTP/1\.1")
# one way to match each byte: what is around the value is cut afterwards, as two runs of spaces take cubic time
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")


@dataclass(frozen=True, slots=True)
class Request:
    """One request, without its body. Names of ``fields`` are in small letters."""

    method: str
    path: str
    query: str
    fields: tuple[tuple[str, str], ...]
    length: int

    @property
    def target(self) -> str:
        """Path and query, as they arrived."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, by its method."""
        return self.method in ("GET", "HEAD")

    def find(self, name: str) -> str | None:
        """The value of a field that may stand there once. Raises UsageError if it stands there more often."""
        values = self.find_all(name)
        if len(values) > 1:
            raise UsageError(f"the request has {len(values)} fields {name}")
        return values[0] if values else None

    def find_all(self, name: str) -> Sequence[str]:
        """The values of a field, in order."""
        return [value for key, value in self.fields if key == name]


def read_head(head: bytes) -> Request:
    """The request whose head ends with an empty line. Raises UsageError, RequestTooLargeError."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise UsageError(
            "the request cannot be read", cause="its first line is not one of HTTP/1.1"
        )
    fields = []
    for each in lines:
        field = _FIELD.fullmatch(each)
        if field is None:
            raise UsageError("the request cannot be read", cause="a line of its head is no field")
        fields.append((field[1].decode().lower(), field[2].strip(b" \t").decode("latin-1")))
    path, _, query = line[2].decode().partition("?")
    request = Request(line[1].decode(), path, query, tuple(fields), 0)
    return Request(request.method, path, query, request.fields, _read_length(request))


def _read_length(request: Request) -> int:
    """The length of the body, in bytes."""
    if request.find_all("transfer-encoding"):
        raise UsageError("the request's body needs a Content-Length, and no Transfer-Encoding")
    text = request.find("content-length") or "0"
    if not re.fullmatch("[0-9]{1,10}", text):
        raise UsageError("the request's Content-Length is no number")
    length = int(text)
    if length > MAX_BODY_BYTES:
        raise RequestTooLargeError(
            "the request is too large", why=f"bodies may have {MAX_BODY_BYTES} bytes"
        )
    if length and request.reads:
        raise UsageError(f"a {request.method} has no body")
    return length
