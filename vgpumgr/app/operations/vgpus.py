"""vGPUs as operations: types and their room, list, create, delete, define, start, stop, adopt."""

from __future__ import annotations

import contextlib
import uuid as uuids
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vgpumgr.app.context import Parts, find_stuck_gpus
from vgpumgr.app.documents.base import VgpuPlanDocument, describe_plan
from vgpumgr.app.documents.vgpus import (
    VgpuChangeDocument,
    VgpuEntry,
    VgpuListDocument,
    VgpuPicture,
    VgpuTypesDocument,
    describe_entry,
    describe_types,
    find_state,
    find_type_name,
)
from vgpumgr.app.host_observation import list_instances, list_slices, list_unsettled
from vgpumgr.app.operations.vgpu_recovery import read_gpus
from vgpumgr.app.refusal_hints import (
    adding_hints,
    explain_no_types,
    explain_vfs_needed,
    find_enabling,
)
from vgpumgr.app.transactions import open_change
from vgpumgr.engine.step import Plan
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import (
    StoreError,
    UsageError,
    VgpuBusyError,
    VgpuDefinedError,
    VgpuForeignError,
    VgpumgrError,
    VgpuNotFoundError,
    VgpuParentGoneError,
    VgpuReleasingError,
    VgpuTakenError,
)
from vgpumgr.mdev.records import read_records
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.gpu import Gpu, list_drains
from vgpumgr.model.text import format_vm
from vgpumgr.model.vgpu import (
    Attributes,
    Framework,
    VgpuHost,
    VgpuRecord,
    VgpuSpec,
    VgpuState,
    find_record,
    is_uuid,
)
from vgpumgr.planning.reservations import (
    describe_fleeting,
    describe_shared,
    list_reservations,
    reserve,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_instance import NewInstance
from vgpumgr.planning.vgpu_selection import (
    Placing,
    VgpuChoice,
    check_place,
    choose_vgpu,
    keep_placeable,
    list_rooms,
    make_spec,
)
from vgpumgr.planning.vgpus import (
    ADOPT,
    START,
    STOP,
    Definition,
    Steps,
    list_instance_steps,
    plan_adopt,
    plan_create,
    plan_define,
    plan_delete,
    plan_mode_steps,
    plan_nothing,
    plan_start,
    plan_stop,
)
from vgpumgr.steps.mig import MigStep
from vgpumgr.steps.vgpu import AdoptVgpu, list_holders

Planner = Callable[[VgpuPicture], Plan]

#: why one of ours is not created again
_HELD = "it was removed while it was open: until its holder closes it, its capacity is taken"


class VgpuService:
    """The operations on vGPUs of one machine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def list_types(self, selector: str | None = None) -> VgpuTypesDocument:
        """Every type of every GPU, or of the one that is named, with its true remaining capacity."""
        observed = self._observe(self._read())
        rooms = list_rooms(observed, selector)
        types = list(describe_types(rooms, observed.gpus))
        return VgpuTypesDocument(types=types, note=None if types else explain_no_types(self._parts))

    def list_vgpus(self) -> VgpuListDocument:
        """Every vGPU, ours and others', there or only defined."""
        picture = self._read()
        return VgpuListDocument(
            vgpus=[
                describe_entry(entry, picture, self._list_holders)
                for entry in picture.list_entries()
            ]
        )

    def create(
        self,
        *,
        type: str,
        gpu: str | None = None,
        uuid: str | None = None,
        attributes: Sequence[str] = (),
        placement: int | None = None,
        mixed_sizes: bool = False,
        define: bool = False,
        auto: bool = False,
        spread: bool = False,
        dry_run: bool = False,
    ) -> VgpuChangeDocument:
        """A new vGPU of a type; with ``define`` or ``auto`` it comes back."""
        definition = Definition(define or auto, auto)
        parsed = parse_attributes(attributes)
        placing = Placing(placement, mixed_sizes)

        def plan(picture: VgpuPicture) -> Plan:
            name = self._choose_uuid(picture, uuid)
            with adding_hints(self._parts, gpu, type):
                observed = keep_placeable(self._observe(picture), type, gpu, placing)
                choice = choose_vgpu(observed, type, gpu, spread=spread, define=definition.wanted)
            # what has a place needs the mode again after a boot
            mixed = mixed_sizes or placement is not None
            spec = make_spec(choice, name, parsed, placement, mixed_sizes=mixed)
            mode = self._plan_mode(spec, picture)
            check_place(spec, picture.host)
            choice = self._note_fleeting(choice, picture, auto)
            return plan_create(spec, choice, definition, mode=mode)

        return self._change(plan, dry_run)

    def define(
        self,
        *,
        vgpu: str | None = None,
        type: str | None = None,
        gpu: str | None = None,
        attributes: Sequence[str] | None = None,
        auto: bool | None = None,
        dry_run: bool = False,
    ) -> VgpuChangeDocument:
        """A definition for a vGPU of ours, or with ``type`` for one that is to be started later; of
        one that there is, None leaves what it says.
        """
        parsed = None if attributes is None else parse_attributes(attributes)
        if vgpu is None and type is None:
            raise UsageError("define needs a vGPU, or --type for a new one")

        def plan(picture: VgpuPicture) -> Plan:
            if type is not None:
                name = self._choose_uuid(picture, vgpu)
                with adding_hints(self._parts, gpu, type):
                    choice = choose_vgpu(self._observe(picture), type, gpu, define=True)
                spec = make_spec(choice, name, parsed or ())
                choice = self._note_fleeting(choice, picture, auto)
                return plan_create(spec, choice, Definition(True, bool(auto)), start=False)
            record = self._find_own(picture, str(vgpu))
            _check_definable(record, picture)
            notes = _list_other_definitions(record, picture)
            if auto:
                notes += self._describe_fleeting(record.spec.parent, picture)
            written = picture.definitions
            return plan_define(record, auto=auto, attributes=parsed, written=written, notes=notes)

        return self._change(plan, dry_run)

    def delete(self, *, vgpu: str, dry_run: bool = False) -> VgpuChangeDocument:
        """The vGPU, its definition, and the GPU instance that was made for it."""

        def plan(picture: VgpuPicture) -> Plan:
            record = self._find_own(picture, vgpu)
            self._check_removable(record, picture)
            return plan_delete(record, self._instance_steps(record, picture))

        return self._change(plan, dry_run)

    def stop(self, *, vgpu: str, dry_run: bool = False) -> VgpuChangeDocument:
        """The vGPU goes, its definition stays. Raises VgpuDefinedError where it has none."""

        def plan(picture: VgpuPicture) -> Plan:
            record = self._find_own(picture, vgpu)
            if record.state is VgpuState.INACTIVE:
                return plan_nothing(STOP, record, "it is stopped already")
            self._check_removable(record, picture)
            if not record.defined:
                raise VgpuDefinedError(
                    f"cannot stop {record.spec.uuid}",
                    why="it has no definition, so it could not be started again; mdev delete removes "
                    "it for good",
                    hint=f"vgpumgr mdev define {record.spec.uuid}",
                )
            return plan_stop(record, self._instance_steps(record, picture))

        return self._change(plan, dry_run)

    def start(self, *, vgpu: str, dry_run: bool = False) -> VgpuChangeDocument:
        """A vGPU that is defined, or that is ours and was taken away without us."""

        def plan(picture: VgpuPicture) -> Plan:
            record = self._find_own(picture, vgpu)
            entry = picture.find(vgpu)
            if find_state(entry) == "active":
                return plan_nothing(START, record, "it is started already")
            self._check_startable(record, entry)
            spec, instance = self.resolve(record, picture, is_new=True)
            return plan_start(
                record, spec, instance, self._parts.boot_id, self._plan_mode(spec, picture)
            )

        return self._change(plan, dry_run)

    def _check_startable(self, record: VgpuRecord, entry: VgpuEntry) -> None:
        held_by = list_holders(self._parts.vgpus, record) if entry.device is None else ()
        if entry.device is not None or record.state is VgpuState.RELEASING or held_by:
            raise VgpuTakenError(
                f"cannot start {record.spec.uuid}",
                why=_HELD if held_by else f"it is {find_state(entry)}",
                held_by=held_by,
                hint="vgpumgr mdev list",
            )

    def adopt(self, *, vgpu: str, dry_run: bool = False) -> VgpuChangeDocument:
        """What somebody else created or defined becomes ours; the host is not changed."""

        def plan(picture: VgpuPicture) -> Plan:
            entry = picture.find(vgpu)
            if entry.record is not None:
                return plan_nothing(ADOPT, entry.record, "it is ours already")
            return plan_adopt(_make_adoption(entry, picture.host))

        return self._change(plan, dry_run)

    def resolve(
        self, record: VgpuRecord, picture: VgpuPicture, *, is_new: bool = False
    ) -> tuple[VgpuSpec, NewInstance | None]:
        """A recorded vGPU as it is to be created now: the type by its name, whose id may have
        changed with the driver, on its old parent; and the GPU instance that it needs. ``is_new``: a
        user asks for it, so that a drained GPU refuses it.
        """
        if picture.host.find_parent(record.spec.parent) is None:
            command = find_enabling(self._parts, record.spec.parent)
            first = f": the virtual functions come first, {command}" if command else ""
            raise VgpuParentGoneError(
                f"cannot create {record.spec.type_name} on {record.spec.parent}",
                why=f"{record.spec.parent} is gone, or offers no vGPUs{first}",
                hint=command or "vgpumgr mdev types",
            )
        observed = self._observe(picture, without=record.spec.uuid)
        if not is_new:
            observed = observed.replace(drains=())
        with adding_hints(self._parts, None):
            choice = choose_vgpu(observed, record.spec.type_name, record.spec.parent)
        old = record.spec
        spec = make_spec(
            choice, old.uuid, old.attributes, old.placement_id, mixed_sizes=old.mixed_sizes
        )
        return spec, choice.instance

    def _note_fleeting(
        self, choice: VgpuChoice, picture: VgpuPicture, auto: bool | None
    ) -> VgpuChoice:
        notes = self._describe_fleeting(choice.parent.name, picture) if auto else ()
        return replace(choice, notes=(*choice.notes, *notes))

    def _describe_fleeting(self, name: str, picture: VgpuPicture) -> tuple[str, ...]:
        """Whether what starts at boot finds its function there."""
        parent = picture.host.find_parent(name)
        if parent is None:
            return ()
        gpu = next((gpu for gpu in picture.gpus if str(gpu.pci) == parent.board), None)
        return describe_fleeting(self._parts.pci.list_vf_settings(), parent, gpu)

    def _plan_mode(self, spec: VgpuSpec, picture: VgpuPicture) -> Steps:
        parent = picture.host.find_parent(spec.parent)
        board = picture.host.find_board(parent.board) if parent else None
        if board is None:
            return ()
        gpu = next((gpu for gpu in picture.gpus if str(gpu.pci) == board.name), None)
        return plan_mode_steps(spec, board, gpu, len(picture.host.list_on(board.name)))

    def restart(self, uuid: str, transaction: Transaction) -> None:
        """Creates one of ours again; what is there already as it should be is completed."""

        def plan(picture: VgpuPicture) -> Plan:
            record = self._find_own(picture, uuid)
            device = picture.find(uuid).device
            if device is not None:
                return plan_start(record, record.spec, None, self._parts.boot_id)
            self._check_let_go(record)
            spec, instance = self.resolve(record, picture)
            return plan_start(
                record, spec, instance, self._parts.boot_id, self._plan_mode(spec, picture)
            )

        self._run(plan, transaction)

    def _check_let_go(self, record: VgpuRecord) -> None:
        """The kernel keeps the UUID of one that is removed and still held."""
        known = record.boot == self._parts.boot_id
        if held_by := list_holders(self._parts.vgpus, record) if known else ():
            raise VgpuTakenError(
                f"cannot create {record.spec.uuid} again",
                why=_HELD,
                held_by=held_by,
                hint="vgpumgr mdev list",
            )

    def _run(self, planner: Planner, transaction: Transaction) -> tuple[Plan, VgpuPicture]:
        picture = self._read()
        plan = planner(picture)
        # without MIG steps NVML is not asked anything
        cut = any(isinstance(step, MigStep) for step in plan.steps)
        transaction.execute(plan, self._parts.make_context(gpus=picture.gpus if cut else None))
        return plan, picture

    def _change(self, planner: Planner, dry_run: bool) -> VgpuChangeDocument:
        parts = self._parts
        if dry_run:
            return _describe(planner(self._read()), True, None)
        with open_change(parts, "change vGPUs") as transaction:
            plan, before = self._run(planner, transaction)
            after = self._read_again(before, str(plan.result["vgpu"]))
        return _describe(plan, False, after, transaction.notes)

    def _read_again(self, before: VgpuPicture, uuid: str) -> VgpuPicture:
        """The picture with that one vGPU as it is now."""
        parts = self._parts
        record = find_record(parts.vgpu_store, uuid)
        device = parts.vgpus.find_device(record.spec) if record else None
        if record and device and device.type_id == record.spec.type_id:
            device = replace(device, type_name=record.spec.type_name)
        host = replace(before.host, devices=(device,) if device else ())
        definitions = parts.vgpus.list_definitions()
        return replace(
            before, host=host, records=(record,) if record else (), definitions=definitions
        )

    def _read(self) -> VgpuPicture:
        parts = self._parts
        host = parts.vgpus.read_host()
        gpus: Sequence[Gpu] = ()
        if any(parent.pci is not None for parent in host.parents):
            gpus = read_gpus(parts)
        records = read_records(parts.vgpu_store, parts.vgpus)
        attachments: Sequence[AttachmentRecord] = ()
        with contextlib.suppress(StoreError):
            attachments = parts.store.list_attachments()
        vms = {record.id: record.vm_name for record in attachments}
        definitions = parts.vgpus.list_definitions()
        return VgpuPicture(host, records, definitions, gpus, vms, attachments)

    def _observe(self, picture: VgpuPicture, without: str | None = None) -> Snapshot:
        claims = [r.spec for r in picture.records if r.takes_room and r.spec.uuid != without]
        own = next((r.instance for r in picture.records if r.spec.uuid == without), None)
        kept = reserve(picture.gpus, picture.attachments, list_instances(self._parts), own)
        slices = list_slices(picture.attachments)
        reservations = list_reservations(
            picture.records, picture.definitions, picture.host, without
        )
        return Snapshot(
            vgpus=picture.host,
            gpus=picture.gpus,
            claims=claims,
            reserved=kept,
            slices=slices,
            unsettled=list_unsettled(self._parts),
            stuck=find_stuck_gpus(self._parts),
            reservations=reservations,
            drains=list_drains(self._parts.store, picture.gpus),
        )

    def _find_own(self, picture: VgpuPicture, selector: str) -> VgpuRecord:
        """Raises VgpuForeignError for what somebody else made: that is never touched."""
        entry = picture.find(selector)
        if entry.record is None:
            raise VgpuForeignError(
                f"cannot change {entry.name}",
                why="it is not ours: another program created or defined it",
                hint=f"vgpumgr mdev adopt {entry.name}",
            )
        return entry.record

    def _check_removable(self, record: VgpuRecord, picture: VgpuPicture) -> None:
        if record.attachment is not None and (vm := picture.vms.get(record.attachment)):
            raise VgpuBusyError(
                f"cannot remove {record.spec.uuid}",
                why=f"it belongs to attachment {record.attachment}",
                held_by=[f'vm "{vm}"'],
                hint=f"vgpumgr detach {format_vm(vm)}",
            )
        # one that waits for who has it open already says so below
        if record.state is not VgpuState.RELEASING and (
            held_by := list_holders(self._parts.vgpus, record)
        ):
            raise VgpuBusyError(
                f"cannot remove {record.spec.uuid}",
                why="a process has it open",
                held_by=held_by,
                hint="shut the VM down or detach the device, then repeat",
            )
        late = self._parts.list_late()
        if record.state is VgpuState.RELEASING and late:
            raise VgpuReleasingError(
                f"{record.spec.uuid} is being removed already",
                cause="; ".join(late),
                why="the kernel waits until its holder closes it; then it goes by itself",
                held_by=list_holders(self._parts.vgpus, record),
                hint="vgpumgr mdev list",
            )

    def _instance_steps(self, record: VgpuRecord, picture: VgpuPicture) -> Steps:
        home = record.find_home(self._parts.boot_id)
        others = [r for r in picture.records if r.takes_room]
        return list_instance_steps(replace(record, instance=home), picture.gpus, others)

    def _list_holders(self, entry: VgpuEntry) -> Sequence[str]:
        return list_holders(self._parts.vgpus, entry.record) if entry.record else ()

    def _choose_uuid(self, picture: VgpuPicture, wanted: str | None) -> str:
        """The one that is asked for, if it is free; else a new one. None is ever used twice."""
        if wanted is None:
            return str(uuids.uuid4())
        text = wanted.strip().lower()
        if not is_uuid(text):
            raise UsageError(f'not a UUID: "{wanted}"', hint="uuidgen, or leave it out")
        for entry in picture.list_entries():
            if text in entry.names:
                error = VgpuTakenError if entry.record else VgpuForeignError
                state = describe_entry(entry, picture, self._list_holders).state
                raise error(
                    f"UUID {text} is in use",
                    why=f"it is {state}, " + ("ours" if entry.record else "not ours"),
                    hint="vgpumgr mdev list" if entry.record else f"vgpumgr mdev adopt {text}",
                )
        return text


def describe_vgpu_types(parts: Parts, gpu: Gpu) -> dict[str, Any]:
    """For ``gpu show``: the vGPU types of a GPU with what still fits, or what it needs before it offers any.
    What does not answer is left out.
    """
    with contextlib.suppress(VgpumgrError):
        if any(board.name == str(gpu.pci) for board in parts.vgpus.read_host().boards):
            return {"vgpu_types": VgpuService(parts).list_types(str(gpu.pci)).types}
        if any(one.pci == gpu.pci and one.sr_iov for one in parts.nvml.list_vgpus()):
            return {"vgpu_note": explain_vfs_needed(gpu.index)}
    return {}


def parse_attributes(texts: Sequence[str]) -> Attributes:
    """``NAME=VALUE`` each, in order. Raises UsageError."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        parts = name.split("/")
        if not equals or not all(parts) or ".." in parts:
            raise UsageError(
                f'not an attribute: "{text}"', hint="--attr nvidia/vgpu_params=disable_vnc=1"
            )
        found.append((name, value))
    return tuple(found)


def _list_other_definitions(record: VgpuRecord, picture: VgpuPicture) -> tuple[str, ...]:
    """What else is defined on the function of one that gets a definition."""
    parent = picture.host.find_parent(record.spec.parent)
    if parent is None or record.defined:
        return ()
    others = list_reservations(picture.records, picture.definitions, picture.host, record.spec.uuid)
    return describe_shared(others, parent)


def _check_definable(record: VgpuRecord, picture: VgpuPicture) -> None:
    """What an attachment has made goes with it, and comes back with it."""
    if record.attachment is not None and (vm := picture.vms.get(record.attachment)):
        raise VgpuBusyError(
            f"cannot define {record.spec.uuid}",
            why=f"it belongs to attachment {record.attachment}, and comes back with that",
            held_by=[f'vm "{vm}"'],
            hint=f"vgpumgr detach {format_vm(vm)}",
        )


def _make_adoption(entry: VgpuEntry, host: VgpuHost) -> AdoptVgpu:
    device, definition = entry.device, entry.definition
    defined, auto = definition is not None, definition is not None and definition.auto
    if device is not None:
        # a definition's attributes are what was asked for; the driver shows them in its own words
        attributes = definition.attributes if definition else device.attributes
        spec = VgpuSpec(
            device.uuid or str(uuids.uuid4()),
            device.framework,
            device.parent,
            device.type_id,
            device.type_name,
            attributes,
        )
        return AdoptVgpu(spec, True, defined, auto, device.iommu_group)
    if definition is None:
        raise VgpuNotFoundError(f"{entry.name} is gone", hint="vgpumgr mdev list")
    name = find_type_name(host, definition.parent, definition.type_id)
    spec = VgpuSpec(
        definition.uuid,
        Framework.MDEV,
        definition.parent,
        definition.type_id,
        name,
        definition.attributes,
    )
    return AdoptVgpu(spec, False, True, auto)


def _describe(
    plan: Plan,
    dry_run: bool,
    after: VgpuPicture | None,
    notes: Sequence[str] = (),
) -> VgpuChangeDocument:
    name = str(plan.result["vgpu"])
    entries = after.list_entries() if after else []
    entry = next((e for e in entries if e.record and e.record.spec.uuid == name), None)
    return VgpuChangeDocument(
        dry_run=dry_run,
        plan=describe_plan(plan, VgpuPlanDocument),
        vgpu=describe_entry(entry, after) if entry and after else None,
        notes=list(notes),
    )
