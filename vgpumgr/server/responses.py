"""HTTP responses: documents, errors, ETags, and a cache that callers share for a moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Response
from fastapi.exceptions import RequestValidationError

from vgpumgr.app.application import Application
from vgpumgr.app.documents.attachments import AttachmentDocument, VmShowDocument
from vgpumgr.app.documents.base import SCHEMA, Document
from vgpumgr.app.documents.gpus import GpuDocument, GpuListDocument, GpuShowDocument
from vgpumgr.errors import (
    AuthenticationError,
    DaemonBusyError,
    MethodNotAllowedError,
    PreconditionError,
    TooManyRequestsError,
    UsageError,
    VgpumgrError,
)
from vgpumgr.host.clock import Clock
from vgpumgr.model.frozen import dataclass

#: seconds; what waits in a daemon that is busy is done in about as many
RETRY_S = "1"
#: seconds for which callers share a response; pollers and dashboards repeat the same requests
MAX_AGE_S = 1.0


def answer_document(
    document: Document, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A document as it is with ``-o json``."""
    return Response(encode_document(document), status, headers, "application/json")


def encode_document(document: Document) -> bytes:
    """A document as it is with ``-o json``."""
    return json.dumps(document.as_data(), separators=(",", ":")).encode()


def encode_error(error: VgpumgrError) -> bytes:
    """The envelope of an error; text that is no Unicode is shown escaped."""
    return json.dumps({"schema": SCHEMA, "error": error.as_dict()}).encode()


def answer_error(error: VgpumgrError) -> Response:
    """An error with its HTTP status."""
    headers = dict(list_headers(error))
    return Response(encode_error(error), error.http_status, headers, "application/json")


def list_headers(error: VgpumgrError) -> list[tuple[str, str]]:
    """What an error says besides itself: when to ask a busy daemon again, which methods a path has."""
    if isinstance(error, MethodNotAllowedError):
        return [("Allow", ", ".join(error.allowed))]
    if isinstance(error, AuthenticationError):
        return [("WWW-Authenticate", "Bearer")]
    is_busy = isinstance(error, DaemonBusyError | TooManyRequestsError)
    return [("Retry-After", RETRY_S)] if is_busy else []


def explain_invalid(error: RequestValidationError) -> UsageError:
    """What is wrong with a request, without repeating what was sent."""
    parts = [_explain_part(part) for part in error.errors()[:5]]
    return UsageError(
        "the request cannot be meant", cause="; ".join(parts), hint="/1.0/openapi.json"
    )


def _explain_part(part: dict[str, Any]) -> str:
    where = ".".join(str(p)[:40] for p in part["loc"])
    return f"{where}: {part['msg'][:200]}".encode(errors="backslashreplace").decode()


def describe_state(document: Document) -> object | None:
    """The part of a document that an ETag covers; None for documents without one."""
    if isinstance(document, GpuListDocument):
        return [_gpu_state(gpu) for gpu in document.gpus]
    if isinstance(document, GpuShowDocument):
        if document.other is not None:
            return [document.other.pci, document.other.driver, document.other.vfs_enabled]
        return _gpu_state(document.gpu) if document.gpu else None
    if isinstance(document, VmShowDocument):
        vm = document.vm
        return [vm.uuid, vm.name, [_attachment_state(a) for a in vm.attachments], vm.devices_config]
    return None


def _attachment_state(attachment: AttachmentDocument) -> object:
    """All of it but when the guest can use it, which changes by itself."""
    return {key: value for key, value in attachment.as_data().items() if key != "usable"}


def _gpu_state(gpu: GpuDocument) -> object:
    instances = [[i.id, i.profile, i.placement.as_data(), i.vm] for i in gpu.instances]
    state = [gpu.uuid, gpu.mig.current, gpu.mig.pending, instances]
    shared = [gpu.shares, *(i.shares for i in gpu.instances)]
    holders = [one.as_data() for shares in shared if shares for one in shares.holders]
    return [*state, holders] if holders else state


def make_etag(document: Document) -> str | None:
    """The document's ETag with its quotes."""
    state = describe_state(document)
    if state is None:
        return None
    return '"' + hashlib.sha256(json.dumps(state).encode()).hexdigest()[:32] + '"'


_READERS: Mapping[str, Callable[[Any, Mapping[str, Any]], Document]] = {
    "vm": lambda app, params: app.show_vm(selector=params["vm"]),
    "gpu": lambda app, params: app.show_gpu(selector=params.get("gpu") or params["selector"]),
    "layout": lambda app, _params: app.list_gpus(),
}


def check_if_match(
    wanted: str | None, guard: str | None, application: Application, params: Mapping[str, Any]
) -> None:
    """Raises PreconditionError if what ``guard`` names is not as the caller saw it."""
    if wanted is None or guard is None or wanted.strip() == "*":
        return
    current = make_etag(_READERS[guard](application, params))
    if current not in [tag.strip() for tag in wanted.split(",")]:
        raise PreconditionError(
            f"the {guard} is not as it was when this was asked for",
            cause=f"If-Match {wanted[:100]}, now {current}",
            why="it has changed since",
            hint="read it again, then repeat",
        )


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A body as it goes over the wire."""

    body: bytes
    etag: str | None
    made_s: float
    epoch: int


class ResponseCache:
    """Keyed by path and query. A change ends every answer that began before it."""

    def __init__(self, clock: Clock, max_age_s: float = MAX_AGE_S, max_answers: int = 64) -> None:
        self._clock = clock
        self._max_age_s = max_age_s
        self._max_answers = max_answers
        self._answers: dict[str, CachedResponse] = {}
        self.epoch = 0

    def find(self, key: str) -> CachedResponse | None:
        """A young enough answer."""
        answer = self._answers.get(key)
        if answer is None or answer.epoch != self.epoch:
            return None
        age_s = self._clock.monotonic_s() - answer.made_s
        return answer if age_s <= self._max_age_s else None

    def keep(self, key: str, body: bytes, etag: str | None, epoch: int) -> None:
        """Keeps an answer whose reading began in ``epoch``."""
        if len(self._answers) >= self._max_answers:
            self._answers.clear()
        self._answers[key] = CachedResponse(body, etag, self._clock.monotonic_s(), epoch)

    def forget(self) -> None:
        """Something changes: nothing read before counts any more."""
        self.epoch += 1
