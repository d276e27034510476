"""Attachments in the state file."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from vgpumgr.errors import AlreadyAttachedError, StoreError
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.slice import SliceOwner
from vgpumgr.plan.record import AttachmentRecord
from vgpumgr.store.database import Database


class SqliteAttachments:
    """The attachments of one machine; also answers whose a MIG instance is."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)

    def list_attachments(self) -> tuple[AttachmentRecord, ...]:
        """All, oldest first."""
        with self._database.reading() as connection:
            if connection is None:
                return ()
            rows = connection.execute("SELECT record FROM attachment ORDER BY created_s, id")
            return tuple(_decode_record(text) for (text,) in rows)

    def list_owners(self) -> tuple[SliceOwner, ...]:
        """One entry for each recorded MIG slice."""
        return tuple(owner for r in self.list_attachments() if (owner := r.owner) is not None)

    def save_attachment(self, record: AttachmentRecord) -> None:
        """Writes one, in the place of the one with the same id. Raises AlreadyAttachedError."""
        row = (
            record.id,
            record.vm_uuid,
            record.vm_name,
            str(record.gpu),
            str(record.state),
            record.created_s,
            json.dumps(encode(record), sort_keys=True),
        )
        with self._database.writing() as connection:
            try:
                connection.execute(
                    "INSERT INTO attachment VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
                    " SET vm_name = excluded.vm_name, state = excluded.state,"
                    " record = excluded.record",
                    row,
                )
            except sqlite3.IntegrityError as error:
                raise AlreadyAttachedError(
                    f'vm "{record.vm_name}" has an attachment already', cause=str(error)
                ) from error

    def delete_attachment(self, attachment_id: str) -> None:
        """Forgets one; absent is no error."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM attachment WHERE id = ?", (attachment_id,))


def _decode_record(text: str) -> AttachmentRecord:
    try:
        return decode(AttachmentRecord, json.loads(text))
    except ValueError as error:
        raise StoreError("a recorded attachment cannot be read", cause=str(error)) from error
