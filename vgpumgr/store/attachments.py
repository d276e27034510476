"""Attachments in the state file."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path

from vgpumgr.errors import AlreadyAttachedError, StoreError
from vgpumgr.model.codec import encode
from vgpumgr.model.slice import SliceOwner
from vgpumgr.plan.record import AttachmentRecord, decode_record
from vgpumgr.store.database import COLUMNS, DAMAGE, Database, is_damage


class SqliteAttachments:
    """The attachments of one machine; also answers whose a MIG instance is."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)

    def held_open(self) -> AbstractContextManager[None]:
        """See ``Database.held_open``."""
        return self._database.held_open()

    def list_attachments(self) -> tuple[AttachmentRecord, ...]:
        """All, oldest first."""
        with self._database.reading() as connection:
            if connection is None:
                return ()
            rows = connection.execute(
                "SELECT record, crc FROM attachment ORDER BY created_s, number, id"
            )
            return tuple(_decode_record(text, crc) for text, crc in rows)

    def list_owners(self) -> tuple[SliceOwner, ...]:
        """One entry for each recorded MIG slice."""
        return tuple(owner for r in self.list_attachments() if (owner := r.owner) is not None)

    def save_attachment(self, record: AttachmentRecord) -> None:
        """Writes one, in the place of the one with the same id. Raises AlreadyAttachedError."""
        self.save_attachments([record])

    def save_attachments(self, records: Sequence[AttachmentRecord]) -> None:
        """Writes several as one: all of them or none. Raises AlreadyAttachedError."""
        with self._database.writing() as connection:
            for record in records:
                self._save(connection, record)

    @staticmethod
    def _save(connection: sqlite3.Connection, record: AttachmentRecord) -> None:
        text = json.dumps(encode(record), sort_keys=True)
        row = (
            record.id,
            record.vm_uuid,
            record.number,
            record.vm_name,
            record.gpu and str(record.gpu),
            str(record.state),
            record.created_s,
            text,
            zlib.crc32(text.encode()),
        )
        try:
            connection.execute(
                f"INSERT INTO attachment ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET vm_name = excluded.vm_name,"
                " state = excluded.state, record = excluded.record, crc = excluded.crc",
                row,
            )
        except sqlite3.IntegrityError as error:
            raise AlreadyAttachedError(
                f'vm "{record.vm_name}" has an attachment number {record.number} already',
                cause=str(error),
            ) from error

    def delete_attachment(self, attachment_id: str) -> None:
        """Forgets one; absent is no error."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM attachment WHERE id = ?", (attachment_id,))

    def find_damage(self) -> str | None:
        """What is wrong with the state file, None if nothing is. See ``Database.find_damage``."""
        damage = self._database.find_damage()
        if damage is None:
            try:
                self.list_attachments()
            except StoreError as error:
                if not is_damage(error.__cause__ or error):
                    raise
                damage = error.cause or error.error
        return damage

    def put_away(self) -> tuple[AttachmentRecord, ...]:
        """Moves a damaged state file aside, and answers the records of it that still check."""
        kept = []
        try:
            with closing(sqlite3.connect(self._database.path)) as connection:
                for text, crc in connection.execute("SELECT record, crc FROM attachment"):
                    with contextlib.suppress(StoreError):
                        kept.append(_decode_record(text, crc))
        except DAMAGE:
            pass  # what was read until then is good
        self._database.move_aside()
        return tuple(kept)


def _decode_record(text: object, crc: object) -> AttachmentRecord:
    try:
        if not isinstance(text, str) or crc not in (None, zlib.crc32(text.encode())):
            raise ValueError("its checksum does not fit")
        return decode_record(json.loads(text))
    except (ValueError, TypeError) as error:
        raise StoreError("a recorded attachment cannot be read", cause=str(error)) from error
