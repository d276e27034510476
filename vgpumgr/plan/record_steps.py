"""Steps on what is remembered."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import VmNotFoundError
from vgpumgr.plan.note import describe_record, save_note
from vgpumgr.plan.record import AttachmentRecord, AttachmentState
from vgpumgr.plan.world import World


def _find(world: World, attachment_id: str) -> AttachmentRecord | None:
    found = world.store.list_attachments()
    return next((record for record in found if record.id == attachment_id), None)


@dataclass(frozen=True)
class RecordAttachment:
    """Records the attachment before anything else is changed."""

    record: AttachmentRecord
    kind: ClassVar[str] = "attachment.record"
    is_account: ClassVar[bool] = True

    @property
    def target(self) -> Mapping[str, object]:
        """The attachment and its VM."""
        return {"id": self.record.id, "vm": self.record.vm_name, "vm_uuid": self.record.vm_uuid}

    def describe(self) -> str:
        """For people."""
        return f"record attachment {self.record.id}"

    def do(self, world: World) -> None:
        """Writes it."""
        world.store.save_attachment(self.record)

    def undo(self, world: World) -> None:
        """Forgets it."""
        world.store.delete_attachment(self.record.id)

    def observe(self, world: World) -> bool:
        """Whether it is recorded."""
        return _find(world, self.record.id) is not None


@dataclass(frozen=True)
class MarkAttachment:
    """Changes the recorded state of an attachment: attached, or being detached."""

    id: str
    state: AttachmentState
    before: AttachmentState
    kind: ClassVar[str] = "attachment.mark"

    @property
    def target(self) -> Mapping[str, object]:
        """The attachment and its new state."""
        return {"id": self.id, "state": str(self.state)}

    def describe(self) -> str:
        """For people."""
        return f"mark attachment {self.id} as {self.state}"

    def do(self, world: World) -> None:
        """Writes it."""
        world.remember(state=self.state)

    def undo(self, world: World) -> None:
        """Writes the earlier state."""
        world.remember(state=self.before)

    def observe(self, world: World) -> bool:
        """Whether it is recorded so."""
        found = _find(world, self.id)
        return found is not None and found.state is self.state


@dataclass(frozen=True)
class HandOverMigMode:
    """Leaves it to another attachment on the GPU to turn MIG mode off again when it goes."""

    gpu: str
    heir: AttachmentRecord
    kind: ClassVar[str] = "attachment.handover"

    @property
    def target(self) -> Mapping[str, object]:
        """The attachment that takes it over."""
        return {"id": self.heir.id, "vm": self.heir.vm_name, "gpu": self.gpu}

    def describe(self) -> str:
        """For people."""
        return f"leave MIG mode on for {self.heir.vm_name}, whose detach turns it off"

    def do(self, world: World) -> None:
        """Writes it into the other's record and note, if that is still there."""
        self._write(world, True)

    def undo(self, world: World) -> None:
        """Writes the other's record and note as they were."""
        self._write(world, False)

    def _write(self, world: World, enabled: bool) -> None:
        heir = _find(world, self.heir.id)
        if heir is None:
            return
        heir = heir.with_mig(mode_enabled=enabled)
        world.store.save_attachment(heir)
        with contextlib.suppress(VmNotFoundError):
            vm = world.hypervisor.read_vm(heir.vm_uuid)
            if vm.find_note(heir.id) is not None:
                save_note(world.hypervisor, vm, describe_record(heir))

    def observe(self, world: World) -> bool:
        """Whether the other has it."""
        heir = _find(world, self.heir.id)
        return heir is not None and heir.mig_mode_enabled


@dataclass(frozen=True)
class ForgetAttachment:
    """Removes the record of an attachment, last of all."""

    id: str
    kind: ClassVar[str] = "attachment.forget"

    @property
    def target(self) -> Mapping[str, object]:
        """The attachment."""
        return {"id": self.id}

    def describe(self) -> str:
        """For people."""
        return f"forget attachment {self.id}"

    def do(self, world: World) -> None:
        """Forgets it."""
        world.store.delete_attachment(self.id)

    def undo(self, world: World) -> None:
        """Writes it again."""
        world.store.save_attachment(world.record)

    def observe(self, world: World) -> bool:
        """Whether it is gone."""
        return _find(world, self.id) is None
