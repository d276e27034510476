"""The store: everything that is remembered, of every kind, in one file and with one transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vgpumgr.errors import AlreadyAttachedError, StoreError
from vgpumgr.model.attachment import AttachmentRecord, SliceOwner
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import BY_DRIVER, Drain
from vgpumgr.model.health import FaultKind, GpuEvent, GpuFault, GpuHealth
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import DesiredLayout
from vgpumgr.model.pci import Binding, PciAddress, VfSetting
from vgpumgr.model.vgpu import VgpuRecord, stamp
from vgpumgr.state.records import (
    ATTACHMENT,
    DRAIN,
    FUNCTION,
    HEALTH,
    KEPT,
    LAYOUT,
    NAMES,
    VF_SETTING,
    VGPU,
    to_text,
)

if TYPE_CHECKING:
    from vgpumgr.state.database import Database

STATE_FILE = "state.sqlite"
#: read texts whose values a process keeps: more than the records of a large host
_KEPT_RECORDS = 1024
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreDamage:
    """Something in the store that does not check. ``kind``: state-damaged (the state file), state-copy,
    or state-lost (both; ``recover`` cannot repair that).
    """

    kind: str
    subject: str
    text: str
    hint: str = "vgpumgr recover"


class Store:
    """What is remembered of one machine. Reading makes no file. Every method may raise StoreError.

    Writers hold the machine's lock. ``boot_id``: the present boot, with which vGPUs are written.
    """

    def __init__(self, path: Path, boot_id: str = "") -> None:
        self.path = path
        self._boot_id = boot_id

    @cached_property
    def _database(self) -> Database:
        from vgpumgr.state.database import Database

        return Database(self.path)

    def held_open(self) -> AbstractContextManager[None]:
        """See ``Database.held_open``."""
        return self._database.held_open()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is written until its end, of whatever kind, is written as one, or not at all."""
        with self._database.transaction():
            yield

    # attachments

    def list_attachments(self) -> tuple[AttachmentRecord, ...]:
        """All, oldest first."""
        found = self._list(ATTACHMENT, AttachmentRecord)
        return tuple(sorted(found, key=lambda r: (r.created_s, r.number, r.id)))

    def list_owners(self) -> tuple[SliceOwner, ...]:
        """One entry for each recorded MIG slice."""
        return tuple(owner for r in self.list_attachments() if (owner := r.owner) is not None)

    def save_attachment(self, record: AttachmentRecord) -> None:
        """Writes one, in the place of the one with the same id. Raises AlreadyAttachedError."""
        self.save_attachments([record])

    def save_attachments(self, records: Sequence[AttachmentRecord]) -> None:
        """Writes several as one: all of them or none. Raises AlreadyAttachedError."""
        with self._database.transaction() as changes:
            known = changes.kinds[ATTACHMENT].rows
            if any(record.id not in known for record in records):
                self._check_numbers(records)
            for record in records:
                changes.put(ATTACHMENT, record.id, to_text(encode(record)))

    def _check_numbers(self, records: Sequence[AttachmentRecord]) -> None:
        """A number is given once in a VM. Raises AlreadyAttachedError."""
        taken = {(r.vm_uuid, r.number): r.id for r in self.list_attachments()}
        for record in records:
            holder = taken.setdefault((record.vm_uuid, record.number), record.id)
            if holder != record.id:
                raise AlreadyAttachedError(
                    f"{record.holder} has an attachment number {record.number} already",
                    cause=f"attachment {holder}",
                )

    def delete_attachment(self, attachment_id: str) -> None:
        """Forgets one; absent is no error."""
        self._drop(ATTACHMENT, attachment_id)

    # layouts

    def read_layouts(self) -> Mapping[str, DesiredLayout]:
        """All, by the GPU's UUID; none if nothing was ever applied."""
        found = self._list(LAYOUT, DesiredLayout)
        return {str(layout.gpu): layout for layout in sorted(found, key=lambda one: one.gpu)}

    def save_layouts(
        self, layouts: Sequence[DesiredLayout], forgotten: Collection[GpuUuid] = ()
    ) -> None:
        """Writes some, each in the place of that of the same GPU, and forgets those of other GPUs; all of
        it or nothing.
        """
        with self._database.transaction() as changes:
            for layout in layouts:
                changes.put(LAYOUT, str(layout.gpu), to_text(encode(layout)))
            for gpu in forgotten:
                changes.drop(LAYOUT, str(gpu))

    # functions taken from the host, and numbers of virtual functions

    def list_bindings(self) -> tuple[Binding, ...]:
        """In address order; none if nothing was ever bound."""
        return tuple(sorted(self._list(FUNCTION, Binding), key=lambda b: b.address))

    def save_binding(self, binding: Binding) -> None:
        """Writes one, in the place of that of the same address."""
        self._put(FUNCTION, str(binding.address), binding)

    def forget_binding(self, address: PciAddress) -> None:
        """Drops one; absent is no error."""
        self._drop(FUNCTION, str(address))

    def list_vf_settings(self) -> tuple[VfSetting, ...]:
        """In address order."""
        return tuple(sorted(self._list(VF_SETTING, VfSetting), key=lambda s: s.physical))

    def save_vf_setting(self, setting: VfSetting) -> None:
        """Writes one, in the place of that of the same address."""
        self._put(VF_SETTING, str(setting.physical), setting)

    def forget_vf_setting(self, physical: PciAddress) -> None:
        """Drops one; absent is no error."""
        self._drop(VF_SETTING, str(physical))

    # drained GPUs

    def list_drains(self) -> tuple[Drain, ...]:
        """In address order; faults of other boots are left out."""
        found = self._list(DRAIN, Drain)
        kept = [d for d in found if d.fault is None or d.fault.boot == self._boot_id]
        return tuple(sorted(kept, key=lambda d: d.address))

    def save_drain(self, drain: Drain) -> None:
        """Writes one, in the place of that of the same key."""
        with self.transaction():
            self._put(DRAIN, drain.key, drain)
            self._accept_errors(drain, 0)

    def forget_drain(self, drain: Drain) -> None:
        """See ``DrainStore``."""
        with self.transaction():
            self._drop(DRAIN, drain.key)
            if drain.fault is not None:
                self._accept_errors(drain, drain.fault.errors)

    def _accept_errors(self, drain: Drain, count: int) -> None:
        if drain.fault is not None and drain.fault.kind is FaultKind.ECC and drain.uuid:
            known = self._find_health(drain.address, drain.uuid)
            self._put(HEALTH, drain.uuid, replace(known, accepted_errors=count))

    def list_health(self) -> tuple[GpuHealth, ...]:
        """In address order."""
        found = [self._forget_errors(one) for one in self._list(HEALTH, GpuHealth)]
        return tuple(sorted(found, key=lambda one: one.address))

    def _find_health(self, address: PciAddress, uuid: str) -> GpuHealth:
        found = (h for h in self.list_health() if h.uuid == uuid and (uuid or h.address == address))
        return next(found, None) or GpuHealth(address, uuid, boot=self._boot_id)

    def _forget_errors(self, health: GpuHealth) -> GpuHealth:
        """Another boot counted others."""
        same = health.boot == self._boot_id
        return health if same else replace(health, accepted_errors=0, boot=self._boot_id)

    def save_event(self, event: GpuEvent, now_s: float, times: int = 1) -> Drain | None:
        """Counts an Xid that came so often; answers what makes the GPU unhealthy, if the event is the first to say so.
        It stands alone: writing it needs no lock of the machine.
        """
        with self.transaction():
            if event.xid is not None:
                known = self._find_health(event.address, event.uuid)
                counts = known.count(event.xid, now_s, times)
                changed = replace(known, address=event.address, xids=counts)
                self._put(HEALTH, event.uuid or str(event.address), changed)
            if not event.is_fault:
                return None
            kind = FaultKind.ECC if event.xid is None else FaultKind.XID
            fault = GpuFault(kind, str(event), self._boot_id, event.xid)
            drain = Drain(event.address, event.uuid or None, BY_DRIVER, now_s, fault=fault)
            if any(one.key == drain.key for one in self.list_drains()):
                return None
            self._put(DRAIN, drain.key, drain)
        return drain

    # vGPUs

    def list_vgpus(self) -> tuple[VgpuRecord, ...]:
        """All, in the order in which they were first written."""
        known = self._list(VGPU, VgpuRecord)
        return tuple(r if r.boot == self._boot_id else _forget_numbers(r) for r in known)

    def save_vgpu(self, record: VgpuRecord) -> None:
        """Writes one with the present boot, in the place of the one with the same UUID."""
        self._put(VGPU, record.spec.uuid, stamp(record, self._boot_id))

    def delete_vgpu(self, uuid: str) -> None:
        """Forgets one; absent is no error."""
        self._drop(VGPU, uuid)

    # damage

    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self.path.exists() or self.path.with_suffix(".copy").exists()

    def find_damage(self) -> str | None:
        """What is wrong with the state file, None if nothing is. See ``Database.find_damage``."""
        return self._database.find_damage() if self.exists() else None

    def list_damage(self) -> tuple[StoreDamage, ...]:
        """What is wrong with the state file, its copy, and each kind of record."""
        if not self.exists():
            return ()
        damage, copy_damage = self._database.list_damage()
        if damage:
            lost = self._list_lost()
            return lost or (StoreDamage("state-damaged", "state file", f"{self.path}: {damage}"),)
        if copy_damage:
            text = f"{self._database.copy}: {copy_damage}"
            return (StoreDamage("state-copy", "copy of the state file", text),)
        return ()

    def _list_lost(self) -> tuple[StoreDamage, ...]:
        """What neither the damaged file nor the copy has."""
        lost: dict[str, StoreDamage] = {}
        for name in KEPT:
            try:
                self._database.read(name)
            except StoreError as error:
                text = f"the state file and its copy are damaged: {error.cause}"
                lost[NAMES[name]] = StoreDamage("state-lost", NAMES[name], text, error.hint or "")
        return tuple(lost.values())

    def repair_copy(self) -> str | None:
        """Makes a damaged copy anew; answers what was wrong with it, None if nothing was."""
        damage = self._database.find_copy_damage() if self.exists() else None
        if damage is not None:
            self._database.rewrite_copy()
        return damage

    def put_away(self) -> tuple[AttachmentRecord, ...]:
        """Moves a damaged state file aside, and makes a new one of what is intact, there or in the copy;
        answers the attachments among that. Raises StoreError where both are damaged, and then changes
        nothing.
        """
        return tuple(_decode(AttachmentRecord, t) for t in self._database.put_away().values())

    def _list(self, name: str, kind: type[T]) -> list[T]:
        if not self.exists():
            return []
        hashable: Any = kind
        return [_decode(hashable, text) for text in self._database.read(name).values()]

    def _put(self, name: str, id_: str, value: object) -> None:
        with self._database.transaction() as changes:
            changes.put(name, id_, to_text(encode(value)))

    def _drop(self, name: str, id_: str) -> None:
        if not self.exists():
            return
        with self._database.transaction() as changes:
            changes.drop(name, id_)


@lru_cache(maxsize=_KEPT_RECORDS)
def _decode(kind: type[T], text: str) -> T:
    """A record never changes, and most are read several times in each operation."""
    try:
        return decode(kind, json.loads(text))
    except (ValueError, TypeError) as error:
        raise StoreError("a record cannot be read", cause=str(error)) from error


def _forget_numbers(record: VgpuRecord) -> VgpuRecord:
    """What another boot called them; this one has given the numbers to other devices."""
    return replace(record, iommu_group=None, gpu_instance_id=None)
