"""Recovery: settling what a crash interrupted, rebuilding what was lost, and telling what differs.

It looks again and compares with the journal; it never assumes that the last step that was announced
did or did not happen. Doing it twice changes nothing the second time.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from vgpumgr.daemon.hostdev_observing import (
    list_absent,
    list_held,
    map_homes,
    read_gpus_for,
)
from vgpumgr.daemon.parts import Parts
from vgpumgr.daemon.recovery_documents import ActionDocument
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.errors import (
    NotAttachedError,
    OutcomePendingError,
    VgpumgrError,
    VmNotFoundError,
)
from vgpumgr.model.gpu import Gpu
from vgpumgr.plan.detach import DetachObserved, plan_cleanup, plan_detach
from vgpumgr.plan.domain_steps import list_controllers
from vgpumgr.plan.drift import Observed, is_whole, list_rebuildable
from vgpumgr.plan.executor import Executor
from vgpumgr.plan.interrupted import (
    Interrupted,
    Way,
    choose_way,
    find_stranger,
    list_interrupted,
    list_settled,
    plan_back,
    plan_finish,
    plan_forward,
)
from vgpumgr.plan.journal import Contents, Journal
from vgpumgr.plan.record import AttachmentRecord, AttachmentState
from vgpumgr.plan.step import Plan
from vgpumgr.plan.world import World

#: a helper whose command was killed ends by itself when its call is done
_ORPHAN_WAIT_S = 5.0
_POLL_S = 0.1
#: for a guest that has been asked before to release a device
FINISH_TIMEOUT_S = 1.0
#: operations whose interruption this module understands
_OPERATIONS = ("attach", "detach", "recover")


class Settler:
    """One pass over everything that is not settled; the caller holds the machine's lock."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.actions: list[ActionDocument] = []
        #: what interrupted operations were about that could not be settled
        self.waits: set[str] = set()

    def settle(self, spare: str | None = None) -> list[Interrupted]:
        """Settles all that was interrupted but what concerns the VM ``spare`` (name, UUID or
        attachment), which the caller is about to settle; that is returned. Then the caller settles
        once more: what began before it is left until it is through.

        Raises:
            JournalFailedError: an fdatasync failed; only ``recover`` goes on from there.
            OutcomePendingError: ``spare`` itself waits for a helper process.
        """
        with closing(self._parts.open_journal()) as journal:
            if journal.has_failed:
                raise journal.refusal()
            contents = self._read_journal(journal)
            self._repair_store(contents)
            return self._settle_all(journal, contents, spare)

    def start_journal_anew(self) -> None:
        """After a failed fdatasync: the journal is put away, and looking decides everything."""
        with closing(self._parts.open_journal()) as journal:
            if journal.has_failed:
                kept = journal.put_away("failed")
                self._tell("journal", f"had failed; kept as {kept}, a new one is begun", True)

    def _read_journal(self, journal: Journal) -> Contents:
        contents = journal.look()
        if contents.problem is not None:
            kept = journal.put_away("corrupt")
            self._tell("journal", f"{contents.problem}; kept as {kept}, looking decides", True)
            contents = Contents()
        return contents

    def _repair_store(self, contents: Contents) -> None:
        """Puts a damaged state file away; what it lost comes from the VMs' notes."""
        store = self._parts.store
        damage = store.find_damage()
        kept: Sequence[AttachmentRecord] = ()
        if damage is not None:
            kept = store.put_away()
            for record in kept:
                store.save_attachment(record)
        known = {record.id for record in store.list_attachments()}
        expected = {id_ for id_, exists in list_settled(contents).items() if exists}
        if damage is None and expected <= known:
            return
        rebuilt = self.rebuild_records(contents)
        if damage is not None:
            text = f"{damage}; put aside, {len(kept)} records read, {rebuilt} rebuilt"
            self._tell("state file", text, True)

    def rebuild_records(self, contents: Contents) -> int:
        """Records again what only VMs' notes know; returns how many."""
        store = self._parts.store
        found = list_interrupted(contents)
        observed = Observed(
            records=store.list_attachments(),
            vms=self._parts.hypervisor.list_vms(),
            gpus=(),
            statuses={},
            settled=list_settled(contents),
            busy=frozenset(i.attachment for i in found if i.attachment),
        )
        rebuilt = list_rebuildable(observed)
        for record in rebuilt:
            store.save_attachment(record)
            self._tell(record.vm_name, f"recorded attachment {record.id} from its metadata", True)
        return len(rebuilt)

    def _settle_all(
        self, journal: Journal, contents: Contents, spare: str | None
    ) -> list[Interrupted]:
        found = [i for i in list_interrupted(contents) if i.operation in _OPERATIONS]
        records = {record.id: record for record in self._parts.store.list_attachments()}
        # an interrupted recovery is begun anew: what it was about counts as half done, whoever began it
        named = {i.attachment for i in found if i.operation != "recover"}
        found += [_make_half(r) for r in records.values() if _is_half(r) and r.id not in named]
        if not found:
            return []
        late = self._wait_for_helpers()
        spared: list[Interrupted] = []
        #: operations on several attachments end when all of these are settled
        open_ops = Counter(i.op for i in found)
        # in reverse: one that turned MIG mode on goes after those that made instances in it since; and
        # recoveries last: what they were about is settled by then
        newest_first = found[::-1]
        for interrupted in sorted(newest_first, key=lambda i: i.operation == "recover"):
            # anew: what was settled before this one may have changed its record
            records = {record.id: record for record in self._parts.store.list_attachments()}
            record = records.get(interrupted.attachment or "") or interrupted.record
            if interrupted.undone and interrupted.attachment not in records:
                record = None
            if interrupted.operation != "recover" and _concerns(spare, interrupted, record):
                self._check_not_late(interrupted, record, late)
                spared.append(interrupted)
                continue
            if spared:
                continue  # earlier ones after it: the caller settles once more
            if self._settle_one(journal, interrupted, record, late, list_settled(contents)):
                open_ops[interrupted.op] -= 1
                if not open_ops[interrupted.op]:
                    self._close(journal, interrupted)
        return spared

    def _check_not_late(
        self, found: Interrupted, record: AttachmentRecord | None, late: Sequence[str]
    ) -> None:
        if choose_way(found, record, late) is Way.WAIT:
            raise OutcomePendingError(
                f"the {found.operation} of {found.subject} waits for a helper process",
                why="it may still take effect",
                held_by=late,
                hint="vgpumgr status",
            )

    def _wait_for_helpers(self) -> Sequence[str]:
        clock = self._parts.clock
        end_s = clock.monotonic_s() + _ORPHAN_WAIT_S
        while (late := self._parts.list_late()) and clock.monotonic_s() < end_s:
            clock.sleep(_POLL_S)
        return late

    def _settle_one(
        self,
        journal: Journal,
        found: Interrupted,
        record: AttachmentRecord | None,
        late: Sequence[str],
        settled: dict[str, bool],
    ) -> bool:
        """Whether it is settled now."""
        way = choose_way(found, record, late)
        word = f"the interrupted {found.operation}"
        try:
            if found.operation == "detach" and found.attachment is None:
                self._finish_cleanup(journal, found)
            elif way is Way.WAIT:
                self._tell(found.subject, f"{word} waits for {'; '.join(late)}", False)
                return False
            elif way is not Way.CLOSE and record is not None:
                self._carry_out(journal, found, record, way, settled)
        except VgpumgrError as error:
            held = f", held by {', '.join(error.held_by)}" if error.held_by else ""
            self._tell(found.subject, f"{word} is not settled: {error}{held}", False)
            self.waits.add(found.subject)
            return False
        return True

    def _close(self, journal: Journal, found: Interrupted) -> None:
        if found.op:
            records = self._parts.store.list_attachments()
            for record in records:
                if record.id == found.attachment and record.controllers_before is not None:
                    # devices that were being given again: from now on the definition counts as it is
                    self._parts.store.save_attachment(replace(record, controllers_before=None))
            exists = [record.id for record in records]
            journal.append(found.op, "end", {"outcome": "recovered", "exists": exists})

    def _carry_out(
        self,
        journal: Journal,
        found: Interrupted,
        record: AttachmentRecord,
        way: Way,
        settled: dict[str, bool],
    ) -> None:
        observed = self.observe()
        whole = is_whole(observed, record)
        if found.intents is None and way is Way.BACK:
            # no journal: a whole attachment lacks only its mark, unless it was being undone
            way = Way.FORWARD if whole and settled.get(record.id) is not False else Way.BACK
        elif way is Way.FORWARD and not whole:
            way = Way.BACK
        if way is Way.FORWARD:
            record = self._settle_controllers(record, observed)
        plan = self._plan(found, record, way, observed)
        if plan is None:
            text = f"an instance stands at {record.placement} that may be somebody else's"
            hint = f"vgpumgr detach {record.vm_name} removes it"
            self._tell(record.vm_name, f"the interrupted attach is kept: {text}; {hint}", False)
            return
        hurried = bool(record.host_devices) and (
            way is Way.FINISH or (found.undone and not _shows_live(observed, record))
        )
        self._run(journal, plan, record, hurried=hurried)
        words = {Way.FORWARD: "completed", Way.BACK: "undone", Way.FINISH: "finished"}
        text = "; ".join((f"the interrupted {found.operation} was {words[way]}", *plan.notes))
        self._tell(record.vm_name, text, True)

    def _settle_controllers(self, record: AttachmentRecord, observed: Observed) -> AttachmentRecord:
        """What libvirt added with its devices is the attachment's from now on, and what others add is not."""
        vm = observed.find_vm(record.vm_uuid)
        if record.controllers_before is None or vm is None:
            return record
        there = list_controllers(vm.config)
        added = tuple(
            c for c in there if c not in (*record.controllers_before, *record.controllers)
        )
        record = replace(record, controllers=(*record.controllers, *added), controllers_before=None)
        self._parts.store.save_attachment(record)
        return record

    def _plan(
        self, found: Interrupted, record: AttachmentRecord, way: Way, observed: Observed
    ) -> Plan[World] | None:
        if way is Way.FORWARD:
            return plan_forward(record)
        vm = observed.find_vm(record.vm_uuid)
        homes = map_homes(self._parts, [*observed.records, record])
        seen = DetachObserved(record, vm, observed.gpus, observed.records, homes)
        if way is Way.FINISH and record.host_devices:
            # whoever runs a command does not wait for a guest that has had its time
            return plan_detach(seen, FINISH_TIMEOUT_S)
        if found.boot not in ("", self._parts.boot_id):
            # whatever stands there now has been made by others since
            found = replace(found, slices_gone=True)
        if way is Way.FINISH:
            return plan_finish(seen, found)
        gpu = observed.find_gpu(record)
        if found.intents is None and gpu and find_stranger(gpu, record, found):
            return None
        return plan_back(seen, found)

    def _finish_cleanup(self, journal: Journal, found: Interrupted) -> None:
        try:
            vm: Vm = self._parts.hypervisor.read_vm(found.subject)
            self._run(journal, plan_cleanup(vm), None)
        except (VmNotFoundError, NotAttachedError):
            return
        self._tell(found.subject, "the interrupted detach was finished", True)

    def _run(
        self,
        journal: Journal,
        plan: Plan[World],
        record: AttachmentRecord | None,
        *,
        hurried: bool = False,
    ) -> None:
        world = self._parts.make_world(record)
        world.hurried = hurried
        executor = Executor(world, journal, list_late=self._parts.list_late)
        executor.run(replace(plan, operation="recover"), secrets.token_hex(8), world.facts)

    def observe(
        self,
        records: Sequence[AttachmentRecord] | None = None,
        vms: Sequence[Vm] | None = None,
        gpus: Sequence[Gpu] | None = None,
    ) -> Observed:
        """Everything that there is to compare with. What was read already, in this order, is given."""
        parts = self._parts
        contents = parts.open_journal().look()
        if records is None:
            records = parts.store.list_attachments()
        found = [i for i in list_interrupted(contents) if i.operation != "recover"]
        return Observed(
            records=records,
            vms=parts.hypervisor.list_vms() if vms is None else vms,
            gpus=read_gpus_for(parts, records) if gpus is None else gpus,
            statuses={record.id: parts.channels.read_status(record.id) for record in records},
            channels=parts.channels.list_ids(),
            settled=list_settled(contents),
            busy=frozenset(i.attachment for i in found if i.attachment),
            absent=list_absent(parts, records),
            held=list_held(parts, records),
        )

    def end_spared(self, spared: Sequence[Interrupted]) -> None:
        """Closes operations that the caller has settled by its own."""
        with closing(self._parts.open_journal()) as journal:
            for interrupted in spared:
                self._close(journal, interrupted)

    def _tell(self, subject: str, text: str, done: bool) -> None:
        self.actions.append(ActionDocument(subject=subject, text=text, done=done))


def _is_half(record: AttachmentRecord) -> bool:
    return record.state is not AttachmentState.ATTACHED


def _make_half(record: AttachmentRecord) -> Interrupted:
    """What is known of a record that is half attached or half detached, and of which the journal
    says nothing.
    """
    operation = "attach" if record.state is AttachmentState.ATTACHING else "detach"
    return Interrupted("", operation, record.vm_name, record.id, None)


def _shows_live(observed: Observed, record: AttachmentRecord) -> bool:
    """Whether libvirt knows of any of its devices in the running machine: then the guest is asked. One
    that QEMU has and libvirt does not, because it was killed between the two, goes when the VM stops.
    """
    vm = observed.find_vm(record.vm_uuid)
    aliases = vm.live.own_aliases() if vm is not None and vm.live is not None else ()
    return any(device.alias in aliases for device in record.host_devices)


def _concerns(spare: str | None, found: Interrupted, record: AttachmentRecord | None) -> bool:
    names = {found.subject, found.attachment}
    if record is not None:
        names |= {record.vm_uuid, record.vm_name}
    return spare is not None and spare in names
