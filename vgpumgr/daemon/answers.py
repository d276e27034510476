"""Answers: documents and errors as HTTP responses."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response
from fastapi.exceptions import RequestValidationError

from vgpumgr.daemon.documents import SCHEMA, Document
from vgpumgr.errors import DaemonBusyError, UsageError, VgpumgrError

#: seconds; what waits in a daemon that is busy is done in about as many
RETRY_S = "1"


def answer_document(
    document: Document, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A document as it is with ``-o json``."""
    body = json.dumps(document.as_data(), separators=(",", ":"))
    return Response(body, status, headers, "application/json")


def encode_error(error: VgpumgrError) -> bytes:
    """The envelope of an error; text that is no Unicode is shown escaped."""
    return json.dumps({"schema": SCHEMA, "error": error.as_dict()}).encode()


def answer_error(error: VgpumgrError) -> Response:
    """An error with its HTTP status."""
    headers = dict(list_headers(error))
    return Response(encode_error(error), error.http_status, headers, "application/json")


def list_headers(error: VgpumgrError) -> list[tuple[str, str]]:
    """What an error says besides itself: when to ask a busy daemon again."""
    return [("Retry-After", RETRY_S)] if isinstance(error, DaemonBusyError) else []


def explain_invalid(error: RequestValidationError) -> UsageError:
    """What is wrong with a request, without repeating what was sent."""
    parts = [_explain_part(part) for part in error.errors()[:5]]
    return UsageError(
        "the request cannot be meant", cause="; ".join(parts), hint="/1.0/openapi.json"
    )


def _explain_part(part: dict[str, Any]) -> str:
    where = ".".join(str(p)[:40] for p in part["loc"])
    return f"{where}: {part['msg'][:200]}".encode(errors="backslashreplace").decode()
