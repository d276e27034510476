"""The documents of ``status``, ``diff``, ``recover`` and ``restore``; see ``documents`` for the rules."""

from __future__ import annotations

from typing import Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field


class DriftDocument(Document):
    """One difference between what is recorded and what is."""

    kind: str = Field(description="a fixed name: slice-gone, keeper-gone, stray-devices, ...")
    subject: str = Field(description="the VM, or what else it is about")
    attachment: str | None
    text: str
    hint: str | None = Field(description="a command that makes it good")


class InterruptedDocument(Document):
    """An operation that began and has no end."""

    op: str
    operation: str
    subject: str
    waits: bool = Field(description="a helper process may still be doing one of its steps")


class ActionDocument(Document):
    """Something that recovery did, or could not do."""

    subject: str
    text: str
    done: bool


class StatusDocument(Document):
    """``vgpumgr status -o json``. Null: could not be asked now, see ``problems``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    journal: Literal["ok", "failed", "corrupt"] | None
    attachments: int | None
    gpus: int | None
    vms: int | None
    interrupted: list[InterruptedDocument]
    late: list[str] = Field(description="helper processes past their deadline")
    drift: list[DriftDocument] | None = Field(
        description="all that is known; null: nothing, for what `problems` says"
    )
    problems: list[str]


class DiffDocument(Document):
    """``vgpumgr diff -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    drift: list[DriftDocument]
    interrupted: list[InterruptedDocument]


class RecoverDocument(Document):
    """``vgpumgr recover -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    actions: list[ActionDocument]
    drift: list[DriftDocument] = Field(description="what still differs")


class RestoreDocument(Document):
    """``vgpumgr restore -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    done: list[str] = Field(description="what was missing and is back, in words")
    problems: list[str] = Field(description="what could not be brought back, and why")
    notes: list[str] = Field(description="what else: vGPUs that ended with the boot, ...")
