"""Recovery of attachments: completes or undoes what was interrupted, and rebuilds records that were lost.

It observes and compares with the journal; it never assumes that the last step that was announced did or did not happen.
Doing it twice changes nothing the second time.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from vgpumgr.app.context import Parts
from vgpumgr.app.host_observation import list_absent, list_held
from vgpumgr.backends.detach import plan_cleanup, plan_detach
from vgpumgr.backends.drift import is_whole, list_rebuildable
from vgpumgr.backends.interrupted import (
    Interrupted,
    Way,
    choose_way,
    find_stranger,
    list_interrupted,
    may_be_running,
    plan_back,
    plan_finish,
    plan_forward,
)
from vgpumgr.backends.registry import find_backend
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.engine.executor import Executor
from vgpumgr.engine.journal import Contents
from vgpumgr.engine.recovery import (
    RECOVER,
    Family,
    Recovered,
    Report,
    Unfinished,
    list_attachment_ids,
    list_last_known,
)
from vgpumgr.engine.step import OnFailure, Plan
from vgpumgr.errors import NotAttachedError, VgpumgrError, VmNotFoundError
from vgpumgr.host.process import has_ended
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.pci import Binding
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.channel import RestartWorker
from vgpumgr.steps.domain import list_controllers
from vgpumgr.steps.pci import BindDriver
from vgpumgr.steps.vf import CreateVfs

#: for a guest that has been asked before to release a device
FINISH_TIMEOUT_S = 1.0


class AttachmentFamily(Family):
    """How interrupted attaches, detaches and recoveries of attachments are completed or undone."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._reports: list[Report] = []

    def repair(self, contents: Contents) -> Iterator[Report]:
        """Puts a damaged state file aside, and writes a damaged copy anew; what the file lost comes from the
        domains' metadata. Raises StoreError where both are damaged; then nothing is changed.
        """
        store = self._parts.store
        damage = store.find_damage()
        if damage is not None:
            kept = store.put_away()
            text = f"{damage}; put aside, {len(kept)} records of attachments read"
            yield Report("state file", text)
        elif (copy_damage := store.repair_copy()) is not None:
            yield Report("copy of the state file", f"{copy_damage}; written again")
        known = {record.id for record in store.list_attachments()}
        expected = {id_ for id_, exists in list_last_known(contents).items() if exists}
        if damage is not None or not expected <= known:
            yield from rebuild_records(self._parts, contents)

    def list_more(self, contents: Contents) -> list[Unfinished]:
        """Records that are half attached or half detached, or of a command of the host that has ended, and
        of which no unfinished operation is: a recovery that was interrupted is begun anew.
        """
        named = {i.attachment for i in list_interrupted(contents) if i.operation != RECOVER}
        begun = {
            id_: event.seq
            for event in contents.events
            if event.event == "begin"
            for id_ in list_attachment_ids(event.data)
        }
        return [
            Unfinished("", _name_operation(r), r.vm_name, order=begun.get(r.id, 0), about=r.id)
            for r in self._parts.store.list_attachments()
            if (_is_half(r) or has_ended(r.run, self._parts.boot_id)) and r.id not in named
        ]

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:  # noqa: ARG002
        """Whichever helper it is: it does not say for which attachment it works."""
        return found.is_late or any(map(may_be_running, self._list(found)))

    def concerns(self, found: Unfinished, subject: str) -> bool:
        """By name, UUID or attachment."""
        records = self._read_records()
        for one in self._list(found):
            names = {one.subject, one.attachment}
            record = records.get(one.attachment or "") or one.record
            if record is not None:
                names |= {record.vm_uuid, record.vm_name}
            if subject in names:
                return True
        return False

    def recover(self, found: Unfinished) -> Recovered:
        """All its attachments, the last one first."""
        self._reports = []
        if found.operation == "restart":
            return self._finish_restart(found)
        attachments = self._list(found)
        # anew for each: what was recovered before it may have changed its record
        ended = [self._recover_one(one) for one in reversed(attachments)]
        if not all(ended):
            return Recovered(self._reports, ended=False)
        records = self._read_records()
        if found.operation == RECOVER:
            self._count_from_now(records.get(one.attachment or "") for one in attachments)
        if not any(one.attachment in records for one in attachments):
            remember_earlier(self._parts, found)
        return Recovered(self._reports, more={"exists": list(records)})

    def _count_from_now(self, records: Iterable[AttachmentRecord | None]) -> None:
        """Devices that were being given again: from now on the definition counts as it is. Of one that is
        half attached, its own operation still asks what libvirt has added.
        """
        for record in records:
            if (
                record is not None
                and record.controllers_before is not None
                and record.state is AttachmentState.ATTACHED
            ):
                self._parts.store.save_attachment(replace(record, controllers_before=None))

    def _finish_restart(self, found: Unfinished) -> Recovered:
        """Goes on with the step that was begun last. One that fails now is ended all the same: what the channel
        lacks then is drift.
        """
        begun = [int(e.data["step"]) for e in found.events if e.event == "intent"]
        ids = list_attachment_ids(found.events[0].data)
        record = self._read_records().get(str(ids[0]))
        if not begun or record is None or found.boot != self._parts.boot_id:
            return Recovered(self._reports)
        context = self._parts.make_context(record)
        steps = [
            step
            for step in found.steps[begun[-1] :]
            if not (isinstance(step, RestartWorker) and step.observe(context))
        ]
        result = {"attachment": record.id, "vm": record.vm_name}
        plan = Plan(RECOVER, record.vm_name, tuple(steps), OnFailure.STOP, (), result)
        try:
            notes = self._run(plan, record)
        except VgpumgrError as error:
            text = f"the interrupted restart is not completed: {error}"
            self._report(record.vm_name, text, done=False)
        else:
            text = "; ".join(("the interrupted restart was completed", *notes))
            self._report(record.vm_name, text)
        return Recovered(self._reports)

    def _read_records(self) -> dict[str, AttachmentRecord]:
        return {record.id: record for record in self._parts.store.list_attachments()}

    def _list(self, found: Unfinished) -> list[Interrupted]:
        if found.about is not None:
            return [Interrupted("", found.operation, found.subject, found.about, None)]
        contents = self._look()
        return [i for i in list_interrupted(contents) if i.op == found.op]

    def _look(self) -> Contents:
        return self._parts.open_journal().look()

    def _recover_one(self, found: Interrupted) -> bool:
        """Whether it has ended."""
        records = self._read_records()
        record = records.get(found.attachment or "") or found.record
        known = list_last_known(self._look())
        if found.attachment not in records and (
            found.undone or known.get(found.attachment or "") is False
        ):
            record = None
        way = choose_way(found, record)
        if way is Way.CLOSE and record is not None and has_ended(record.run, self._parts.boot_id):
            way = Way.FINISH  # of a run that has ended nothing stays
        word = f"the interrupted {found.operation}"
        try:
            if found.operation == "detach" and found.attachment is None:
                self._finish_cleanup(found)
            elif way is not Way.CLOSE and record is not None:
                self._carry_out(found, record, way, known)
        except VgpumgrError as error:
            held = f", held by {', '.join(error.held_by)}" if error.held_by else ""
            text = f"{word} is not recovered: {error}{held}"
            self._report(found.subject, text, done=False)
            return False
        return True

    def _carry_out(
        self, found: Interrupted, record: AttachmentRecord, way: Way, known: Mapping[str, bool]
    ) -> None:
        # a host without VMs may have no libvirt
        observed = observe_attachments(self._parts, vms=None if record.run is None else ())
        whole = is_whole(observed, record)
        if found.intents is None and way is Way.BACK:
            # no journal: a whole attachment lacks only its mark, unless it was being undone
            way = Way.FORWARD if whole and known.get(record.id) is not False else Way.BACK
        elif way is Way.FORWARD and not whole:
            way = Way.BACK
        if way is Way.FORWARD:
            record = self._keep_controllers(record, observed)
        plan = self._plan(found, record, way, observed)
        if plan is None:
            text = f"an instance stands at {record.placement} that may have another owner"
            hint = f"vgpumgr detach {record.vm_word} removes it"
            text = f"the interrupted attach is kept: {text}; {hint}"
            self._report(record.vm_name, text, done=False)
            return
        short_waits = find_backend(record.backend).needs_release and (
            way is Way.FINISH or (found.undone and not _shows_live(observed, record))
        )
        notes = self._run(plan, record, short_waits=short_waits)
        if record.run is not None and found.intents is None:
            text = f"freed {record.profile}: its command has ended"
            self._report(record.vm_name, "; ".join((text, *plan.notes, *notes)))
            return
        words = {Way.FORWARD: "completed", Way.BACK: "undone", Way.FINISH: "finished"}
        text = "; ".join(
            (f"the interrupted {found.operation} was {words[way]}", *plan.notes, *notes)
        )
        self._report(record.vm_name, text)

    def _keep_controllers(self, record: AttachmentRecord, observed: Snapshot) -> AttachmentRecord:
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
        self, found: Interrupted, record: AttachmentRecord, way: Way, observed: Snapshot
    ) -> Plan | None:
        if way is Way.FORWARD:
            return plan_forward(record)
        vm = observed.find_vm(record.vm_uuid)
        if all(known.id != record.id for known in observed.records):
            observed = observed.replace(records=[*observed.records, record])
        if way is Way.FINISH and find_backend(record.backend).needs_release:
            # whoever runs a command does not wait for a guest that has had its time
            return plan_detach(record, vm, observed, FINISH_TIMEOUT_S)
        boot = found.boot or (record.run.boot_id if record.run else "")
        if boot not in ("", self._parts.boot_id):
            # whatever stands there now has been made by others since
            found = replace(found, slices_gone=True)
        if way is Way.FINISH:
            return plan_finish(record, vm, observed, found)
        gpu = observed.find_gpu_of(record)
        if found.intents is None and gpu and find_stranger(gpu, record, found):
            return None
        return plan_back(record, vm, observed, found)

    def _finish_cleanup(self, found: Interrupted) -> None:
        try:
            vm: Vm = self._parts.hypervisor.read_vm(found.subject)
            notes = self._run(plan_cleanup(vm), None)
        except (VmNotFoundError, NotAttachedError):
            return
        self._report(found.subject, "; ".join(("the interrupted detach was finished", *notes)))

    def _run(
        self, plan: Plan, record: AttachmentRecord | None, *, short_waits: bool = False
    ) -> Sequence[str]:
        """Does the steps; answers what they had to say."""
        context = self._parts.make_context(record)
        context.short_waits = short_waits
        with closing(self._parts.open_journal()) as journal:
            executor = Executor(context, journal, list_late=self._parts.list_late)
            executor.run(replace(plan, operation=RECOVER), secrets.token_hex(8))
        return context.notes

    def _report(self, subject: str, text: str, *, done: bool = True) -> None:
        self._reports.append(Report(subject, text, done))


def remember_earlier(parts: Parts, found: Unfinished) -> None:
    """What was to come back at boot before an attach that was undone has taken it is to come back again."""
    pci = parts.pci
    # also those not begun: giving a device back forgets all of its functions
    for step in found.steps:
        if not isinstance(step, BindDriver | CreateVfs):
            continue
        earlier = step.earlier
        if earlier is None or earlier.boot_id == pci.boot_id:
            continue
        if isinstance(earlier, Binding):
            if all(known.address != earlier.address for known in pci.list_bindings()):
                pci.save_binding(earlier)
        elif all(known.physical != earlier.physical for known in pci.list_vf_settings()):
            pci.save_vf_setting(earlier)


def rebuild_records(parts: Parts, contents: Contents) -> list[Report]:
    """Records again what only VMs' metadata know; reports of each."""
    store = parts.store
    found = list_interrupted(contents)
    observed = Snapshot(
        parts,
        records=store.list_attachments(),
        known=list_last_known(contents),
        busy=frozenset(i.attachment for i in found if i.attachment),
    )
    reports = []
    for record in list_rebuildable(observed):
        store.save_attachment(record)
        reports.append(
            Report(record.vm_name, f"recorded attachment {record.id} from its domain metadata")
        )
    return reports


def observe_attachments(
    parts: Parts,
    records: Sequence[AttachmentRecord] | None = None,
    vms: Sequence[Vm] | None = None,
    gpus: Sequence[Gpu] | None = None,
) -> Snapshot:
    """Everything that there is to compare with. What was read already, in this order, is given."""
    contents = parts.open_journal().look()
    if records is None:
        records = parts.store.list_attachments()
    found = [i for i in list_interrupted(contents) if i.operation != RECOVER]
    observed = Snapshot(parts, records=records)
    # all at one moment, before anything is repaired
    return observed.replace(
        vms=parts.hypervisor.list_vms() if vms is None else vms,
        gpus=observed.list_gpus_of_slices() if gpus is None else gpus,
        statuses={record.id: parts.channels.read_status(record.id) for record in records},
        channels=parts.channels.list_ids(),
        known=list_last_known(contents),
        busy=frozenset(i.attachment for i in found if i.attachment),
        ended=frozenset(r.id for r in records if has_ended(r.run, parts.boot_id)),
        absent=list_absent(parts, records),
        held=list_held(parts, records),
    )


def _is_half(record: AttachmentRecord) -> bool:
    return record.state is not AttachmentState.ATTACHED


def _name_operation(record: AttachmentRecord) -> str:
    """What a record that is half attached or half detached is half of; a run has none but itself."""
    if record.run is not None:
        return "run"
    return "attach" if record.state is AttachmentState.ATTACHING else "detach"


def _shows_live(observed: Snapshot, record: AttachmentRecord) -> bool:
    """Whether libvirt knows of any of its devices in the running machine: then the guest is asked. One
    that QEMU has and libvirt does not, because it was killed between the two, goes when the VM stops.
    """
    vm = observed.find_vm(record.vm_uuid)
    aliases = vm.live.own_aliases() if vm is not None and vm.live is not None else ()
    return any(alias in aliases for alias in find_backend(record.backend).list_aliases(record))
