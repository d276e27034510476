"""What the journal last said of attachments; loads nothing that only their recovery needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgpumgr.engine.journal import Contents


def list_attachment_ids(plan: Mapping[str, Any]) -> Sequence[str | None]:
    """The attachments that a plan in the journal is about; None for one that is about none."""
    result = plan.get("result", {})
    found: Sequence[str | None] = result.get("attachments") or [result.get("attachment")]
    return found


def list_last_known(contents: Contents) -> dict[str, bool]:
    """Attachments that the journal knows, and whether they exist after their last operation."""
    known: dict[str, bool] = {}
    begun: dict[str, Mapping[str, Any]] = {}
    for event in contents.events:
        if event.event == "begin":
            begun[event.op] = event.data
        elif event.event == "end" and event.op in begun:
            plan = begun.pop(event.op)
            for attachment in list_attachment_ids(plan):
                exists = _exists_after(str(plan.get("operation")), event.data, attachment)
                if attachment and exists is not None:
                    known[attachment] = exists
    return known


def _exists_after(operation: str, end: Mapping[str, Any], attachment: str | None) -> bool | None:
    exists = end.get("exists")
    if isinstance(exists, list):
        return attachment in exists
    if exists is not None:
        return bool(exists)
    outcome = end.get("outcome")
    if operation == "attach":
        return outcome == "done"
    return False if operation == "detach" and outcome == "done" else None
