"""The life of VMs: when what a VM has is freed because of what happened to the VM.

Decided from what is there, not from events, which can be lost: an undefined VM must be missing for a
while, and no QEMU of it may run. Only that a VM was stopped is known from its event alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from vgpumgr.app.operations.recovery import Release
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.host.clock import Clock
from vgpumgr.host.process import find_qemu
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.server.settings import ReleaseSettings

#: a wall clock that differs by more has been set; time servers move it by less
_SET_S = 5.0


class Lifecycle:
    """What a daemon remembers of VMs between two looks. Safe to use from any thread."""

    def __init__(
        self,
        settings: ReleaseSettings,
        clock: Clock,
        find_running: Callable[[str], int | None] = find_qemu,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._find_running = find_running
        self._lock = threading.Lock()
        #: when each was stopped last, and by how much the wall clock was ahead of the other then; what
        #: it got since it keeps
        self._stopped_s: dict[str, tuple[float, float]] = {}
        self._missing_since_s: dict[str, float] = {}

    def note_stopped(self, vm_uuid: str) -> None:
        """A VM was stopped."""
        with self._lock:
            self._stopped_s[vm_uuid] = (self._clock.wall_s(), self._read_lead_s())

    def choose_releases(self, observed: Snapshot) -> Sequence[Release]:
        """What is to be freed now."""
        with self._lock:
            known = {record.id for record in observed.records}
            self._missing_since_s = {
                id_: since for id_, since in self._missing_since_s.items() if id_ in known
            }
            found = []
            for record in observed.records:
                why = self._choose(record, observed.find_vm(record.vm_uuid), observed)
                if why is not None:
                    found.append(Release(record, why))
            self._forget_started(observed)
            return found

    def read_next_s(self) -> float | None:
        """In how long something may be due that waits; None if nothing waits."""
        with self._lock:
            if not self._missing_since_s:
                return None
            due_s = min(self._missing_since_s.values()) + self._settings.delay_s
            return max(0.0, due_s - self._clock.monotonic_s())

    def _choose(self, record: AttachmentRecord, vm: Vm | None, observed: Snapshot) -> str | None:
        if record.state is not AttachmentState.ATTACHED or record.id in observed.busy:
            return None
        if vm is None:
            return self._choose_missing(record)
        self._missing_since_s.pop(record.id, None)
        if vm.is_active:
            return None
        if vm.migrated and self._settings.migrated:
            return "the VM runs on another host now"
        if self._settings.stopped and self._was_there(record, vm.uuid):
            return "the VM was stopped"
        return None

    def _was_there(self, record: AttachmentRecord, vm_uuid: str) -> bool:
        """Whether the VM had it when it was stopped. Nobody can tell once the wall clock has been set."""
        stopped_s, lead_s = self._stopped_s.get(vm_uuid, (float("-inf"), 0.0))
        was_set = abs(self._read_lead_s() - lead_s) > _SET_S
        return record.created_s <= stopped_s and not was_set

    def _read_lead_s(self) -> float:
        return self._clock.wall_s() - self._clock.monotonic_s()

    def _forget_started(self, observed: Snapshot) -> None:
        still = {vm.uuid for vm in observed.vms if not vm.is_active}
        self._stopped_s = {uuid: s for uuid, s in self._stopped_s.items() if uuid in still}

    def _choose_missing(self, record: AttachmentRecord) -> str | None:
        if not self._settings.undefined:
            return None
        now_s = self._clock.monotonic_s()
        since_s = self._missing_since_s.setdefault(record.id, now_s)
        if now_s - since_s < self._settings.delay_s:
            return None
        if self._find_running(record.vm_uuid) is not None:
            # libvirt has lost it; asked again when something happens, or by the clock
            self._missing_since_s[record.id] = now_s
            return None
        del self._missing_since_s[record.id]
        return "the VM is no longer defined"
