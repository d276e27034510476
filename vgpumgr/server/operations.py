"""Operations: long work with an id, its steps, its end; and what an earlier daemon left unfinished.

Each is a small file in the state directory, written when it starts and when it ends, so that the
next daemon knows what this one was doing when it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vgpumgr.app.application import Application
from vgpumgr.app.documents.base import Document
from vgpumgr.app.documents.operations import OperationDocument, ProgressDocument
from vgpumgr.engine.executor import listening
from vgpumgr.errors import (
    DaemonBusyError,
    InterruptedOperationError,
    NotCancellableError,
    OperationCancelledError,
    OperationNotFoundError,
    VgpumgrError,
    explain_unexpected,
)
from vgpumgr.host.clock import Clock
from vgpumgr.host.files import PRIVATE, make_directory, replace_file
from vgpumgr.host.lock import reporting_waits
from vgpumgr.host.sockets import Peer
from vgpumgr.model.routes import Route
from vgpumgr.server.access import Rank
from vgpumgr.server.audit import AuditLog
from vgpumgr.server.events import EventHub
from vgpumgr.server.workers import WorkerPool

KEPT = 200
_MAX_STEPS = 1000
_OVER = ("succeeded", "failed", "cancelled", "interrupted")
Work = Callable[[Application], Document]


class Operation:
    """One piece of long work. Changed by the thread that does it, read by everybody."""

    def __init__(self, document: OperationDocument) -> None:
        self.document = document
        self.cancelled = False
        self.over = asyncio.Event()
        if document.status in _OVER:
            self.over.set()


class Operations:
    """All operations of one daemon; runs them one after another in the pool for changes."""

    def __init__(
        self,
        directory: Path,
        pool: WorkerPool,
        hub: EventHub,
        audit: AuditLog,
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        self._on_change = on_change
        self._directory = directory
        self._pool = pool
        self._hub = hub
        self._audit = audit
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._draining = False
        self._all: dict[str, Operation] = {}
        with contextlib.suppress(
            OSError
        ):  # reports only: without them the daemon runs all the same
            make_directory(directory)
        self._load()

    def start(
        self,
        route: Route,
        params: Mapping[str, Any],
        peer: Peer,
        work: Work,
        rank: Rank = Rank.ROOT,
    ) -> Operation:
        """Begins one; ``rank`` is its caller's. Raises DaemonBusyError."""
        if self._draining:
            raise DaemonBusyError("the daemon is stopping", hint="try again when it is back")
        now_s = self._clock.wall_s()
        subject = params.get("vm") or params.get("selector") or params.get("gpu")
        operation = Operation(
            OperationDocument(
                id=secrets.token_hex(8), operation=route.operation,
                subject=None if subject is None else str(subject), status="waiting", uid=peer.uid,
                caller=None if peer.caller is None else str(peer.caller),
                created_s=now_s, updated_s=now_s, cancellable=route.cancellable, progress=[],
                result=None, error=None,
            )
        )  # fmt: skip
        entry = {
            "event": "operation", **peer.identify(), "operation": route.operation,
            "params": dict(params), "id": operation.document.id,
        }  # fmt: skip
        self._pool.submit(lambda application: self._work(operation, entry, application, work), rank)
        self._all[operation.document.id] = operation
        self._forget_old()
        self._publish(operation)
        return operation

    def find(self, operation_id: str) -> Operation:
        """One, by its id or a unique prefix. Raises OperationNotFoundError."""
        found = [o for key, o in self._all.items() if key.startswith(operation_id)]
        if len(found) != 1:
            raise OperationNotFoundError(f'no operation "{operation_id}"', hint="vgpumgr op list")
        return found[0]

    def list_all(self) -> list[OperationDocument]:
        """All that are remembered, oldest first."""
        return sorted((o.document for o in self._all.values()), key=lambda o: (o.created_s, o.id))

    def count_running(self) -> int:
        """How many have not ended."""
        return sum(not o.over.is_set() for o in self._all.values())

    def cancel(self, operation: Operation) -> None:
        """Asks it to stop before its next step. Raises NotCancellableError."""
        document = operation.document
        if operation.over.is_set() or not (document.cancellable or document.status == "waiting"):
            raise NotCancellableError(
                f"operation {document.id} cannot be cancelled",
                why="it has ended" if operation.over.is_set() else "it must run to its end",
                hint=f"vgpumgr op show {document.id}",
            )
        operation.cancelled = True

    async def drain(self) -> None:
        """Takes no more, and waits for those that run; those that only wait are cancelled."""
        self._draining = True
        for operation in self._all.values():
            if operation.document.status == "waiting":
                operation.cancelled = True
        await asyncio.gather(*(operation.over.wait() for operation in self._all.values()))

    def _work(
        self, operation: Operation, entry: dict[str, Any], application: Application, work: Work
    ) -> None:
        """In the pool's thread; raises nothing."""

        def hear(word: str, description: str) -> None:
            self._add_step(operation, word, description)
            if word == "do" and operation.cancelled and operation.document.cancellable:
                raise OperationCancelledError(
                    f"{entry['operation']} was cancelled", cause=f"before: {description}"
                )

        result: dict[str, Any] | None = None
        failure: VgpumgrError | None = None
        try:
            if operation.cancelled:
                raise OperationCancelledError(f"{entry['operation']} was cancelled")
            self._audit.append(entry)
            self._update(operation, status="running")
            with listening(hear), reporting_waits(lambda text: hear("wait", text)):
                result = work(application).as_data()
        except VgpumgrError as error:
            failure = error
        except BaseException as error:
            failure = explain_unexpected(error, str(entry["operation"]))
        self._end(operation, result, failure)

    def _end(
        self, operation: Operation, result: dict[str, Any] | None, failure: VgpumgrError | None
    ) -> None:
        self._on_change()
        status = "succeeded" if failure is None else "failed"
        if failure is not None and operation.cancelled:
            status = "cancelled"
        error = failure.as_dict() if failure else None
        entry = {"event": "end", "id": operation.document.id, "outcome": status}
        with contextlib.suppress(VgpumgrError):  # what was done is done; its begin is on record
            self._audit.append(entry | {"error": failure.id if failure else None})
        self._update(operation, status=status, result=result, error=error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(operation.over.set)

    def _add_step(self, operation: Operation, word: str, description: str) -> None:
        step = ProgressDocument(time_s=self._clock.wall_s(), word=word, description=description)
        steps = [*operation.document.progress, step][-_MAX_STEPS:]
        self._update(operation, progress=steps, save=False)

    def _update(self, operation: Operation, *, save: bool = True, **fields: Any) -> None:
        fields["updated_s"] = self._clock.wall_s()
        operation.document = operation.document.replace(**fields)
        if save:
            self._save(operation.document)
        self._publish(operation)

    def _publish(self, operation: Operation) -> None:
        document = operation.document
        step = document.progress[-1].as_data() if document.progress else None
        self._hub.publish(
            "operation", operation=document.id, name=document.operation,
            subject=document.subject, status=document.status, step=step,
        )  # fmt: skip
        if document.status == "succeeded" and document.operation in ("attach", "detach"):
            self._hub.publish("attachment", change=document.operation, vm=document.subject)

    def _save(self, document: OperationDocument) -> None:
        """A report for the next daemon; the journal, not this, is what recovery relies on."""
        path = self._directory / f"{document.id}.json"
        with contextlib.suppress(OSError):
            replace_file(path, json.dumps(document.as_data()), PRIVATE)

    def _load(self) -> None:
        for path in sorted(self._directory.glob("*.json")):
            try:
                document = OperationDocument.from_data(json.loads(path.read_text()))
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                _remove(path)
                continue
            self._all[document.id] = Operation(self._close_interrupted(document))
        self._forget_old()

    def _close_interrupted(self, document: OperationDocument) -> OperationDocument:
        if document.status in _OVER:
            return document
        error = InterruptedOperationError(
            f"the daemon ended while {document.operation} ran", hint="vgpumgr recover"
        )
        closed = document.replace(status="interrupted", error=error.as_dict())
        self._save(closed)
        return closed

    def list_interrupted(self) -> list[OperationDocument]:
        """Those that an earlier daemon did not end."""
        return [o for o in self.list_all() if o.status == "interrupted"]

    def _forget_old(self) -> None:
        over = [o.document for o in self._all.values() if o.over.is_set()]
        for document in sorted(over, key=lambda d: d.created_s)[: max(0, len(self._all) - KEPT)]:
            del self._all[document.id]
            _remove(self._directory / f"{document.id}.json")


def _remove(report: Path) -> None:
    with contextlib.suppress(OSError):
        report.unlink(missing_ok=True)
