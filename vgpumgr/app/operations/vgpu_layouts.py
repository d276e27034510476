"""The vGPUs of a layout: looking, planning, and carrying them out together with GPU instances."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vgpumgr.app.context import Parts, find_stuck_gpus
from vgpumgr.app.documents.layouts import LayoutStepDocument
from vgpumgr.app.operations.layout_apply import plan_remembering
from vgpumgr.app.refusal_hints import explain_vfs_off, list_vfs_off
from vgpumgr.engine.step import Plan
from vgpumgr.engine.transaction import Transaction
from vgpumgr.errors import GpuStuckError
from vgpumgr.mdev.records import read_records
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.vgpu import VgpuRecord
from vgpumgr.planning.layouts import check_fresh
from vgpumgr.planning.reservations import list_reservations
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpus import (
    LAYOUT,
    VgpuChange,
    VgpuTarget,
    list_vgpu_differences,
    make_steps,
    plan_vgpus,
)
from vgpumgr.steps.mig import make_step
from vgpumgr.steps.vgpu import list_holders


class VgpuLayouts:
    """What layouts need of a machine's vGPUs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def plan(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> tuple[VgpuChange, ...]:
        """See ``plan_vgpus``; a layout that says nothing of vGPUs costs no look."""
        return plan_vgpus(self._observe_for(targets, gpus), targets) if targets else ()

    def compare(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> list[tuple[Gpu, str]]:
        """See ``list_vgpu_differences``."""
        if not targets:
            return []
        return list(list_vgpu_differences(self._observe_for(targets, gpus), targets))

    def count(self, gpus: Sequence[Gpu]) -> Mapping[str, Mapping[str, int]]:
        """For each GPU that is a vGPU host, how many of which type it has."""
        host = self._parts.vgpus.read_host()
        return {
            str(gpu.uuid): Counter(d.type_name for d in host.list_on(str(gpu.pci)))
            for gpu in gpus
            if host.find_board(str(gpu.pci)) is not None
        }

    def list_state(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> Any:
        """All that a plan rests on, as JSON-able data."""
        if not targets:
            return []
        host = self._parts.vgpus.read_host()
        named = {target.gpu_uuid for target in targets}
        return [
            [d.parent, d.type_id, d.uuid]
            for gpu in gpus
            if gpu.uuid in named
            for d in host.list_on(str(gpu.pci))
        ]

    def run(
        self, transaction: Transaction, plan: LayoutPlan, changes: Sequence[VgpuChange]
    ) -> Sequence[str]:
        """Does both parts as one operation: all of it or nothing. Raises as ``LayoutChange.run``."""
        gpus = self._parts.read_inventory().gpus
        deleted = {record.spec.uuid for change in changes for record in change.deletes}
        owners = self._parts.list_owners(gpus)
        check_fresh(plan, gpus, [o for o in owners if o.attachment_id not in deleted])
        self._carry_out(transaction, plan, changes, gpus)
        return transaction.notes

    def _carry_out(
        self,
        transaction: Transaction,
        plan: LayoutPlan,
        changes: Sequence[VgpuChange],
        gpus: Sequence[Gpu],
    ) -> None:
        self._check_not_stuck(changes)
        gone, new = make_steps(changes)
        steps = (*gone, *(make_step(spec) for spec in plan.steps), *new)
        last = plan_remembering(self._parts, plan, gpus)
        context = self._parts.make_context(gpus=gpus)
        if not steps:
            for step in last:
                step.do(context)
            return
        whole: Plan = Plan(
            LAYOUT, "the GPUs", (*steps, *last), repair="vgpumgr mdev list, vgpumgr mig list"
        )
        transaction.execute(whole, context)

    def _check_not_stuck(self, changes: Sequence[VgpuChange]) -> None:
        """Raises GpuStuckError: the driver could put a new vGPU into what a stuck call is making."""
        stuck = find_stuck_gpus(self._parts)
        for change in changes:
            if (why := stuck.get(str(change.gpu.uuid))) and (change.creates or change.deletes):
                raise GpuStuckError(
                    f"cannot change vGPUs of {change.gpu}: a call has not come back",
                    why="it may still make or take away a GPU instance there",
                    held_by=[why],
                    hint="vgpumgr status",
                )

    def _observe_for(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> Snapshot:
        """Raises VgpuFunctionsOffError where the virtual functions come first."""
        view = self._observe(gpus)
        boards = {board.name for board in view.vgpus.boards}
        for target in targets:
            gpu = next(gpu for gpu in gpus if str(gpu.uuid) == target.gpu_uuid)
            for name, count in target.wanted if str(gpu.pci) not in boards else ():
                found = list_vfs_off(self._parts, name, target.gpu_uuid) if count else []
                if found:
                    place = f"{target.place}: " if target.place else ""
                    raise explain_vfs_off(found, f"{place}{gpu} cannot have {count} x {name} yet")
        return view

    def _observe(self, gpus: Sequence[Gpu]) -> Snapshot:
        records = read_records(self._parts.vgpu_store, self._parts.vgpus)
        claims = [record.spec for record in records if record.takes_room]
        host = self._parts.vgpus.read_host()
        reservations = list_reservations(records, self._parts.vgpus.list_definitions(), host)
        releases = ((r.spec.uuid, self._name_release(r)) for r in records)
        return Snapshot(
            vgpus=host,
            gpus=gpus,
            claims=claims,
            vgpu_records=records,
            reservations=reservations,
            vgpu_holders={r.spec.uuid: self._list_users(r) for r in records},
            vgpu_releases={uuid: command for uuid, command in releases if command},
        )

    def _list_users(self, record: VgpuRecord) -> Sequence[str]:
        owner = self._name_vm(record.attachment) if record.attachment else None
        users = list_holders(self._parts.vgpus, record)
        # who has it open is most often that VM
        return users if owner is None else (owner, *(u for u in users if not owner.startswith(u)))

    def _name_vm(self, attachment: str) -> str:
        vm = self._find_vm(attachment)
        return f'vm "{vm}" (attachment {attachment})' if vm else f"attachment {attachment}"

    def _find_vm(self, attachment: str) -> str | None:
        records = self._parts.store.list_attachments()
        return next((r.vm_name for r in records if r.id == attachment), None)

    def _name_release(self, record: VgpuRecord) -> str | None:
        vm = self._find_vm(record.attachment) if record.attachment else None
        return f"vgpumgr detach {shlex.quote(vm)} --attachment {record.attachment}" if vm else None


def describe_steps(changes: Sequence[VgpuChange]) -> list[LayoutStepDocument]:
    """The documents of what happens to vGPUs: what goes, then what comes."""
    gone = [
        LayoutStepDocument(
            kind="mdev.delete",
            gpu=change.gpu.uuid,
            gpu_index=change.gpu.index,
            vgpu_type=record.spec.type_name,
            parent=record.spec.parent,
            vgpu=record.spec.uuid,
        )
        for change in changes
        for record in change.deletes
    ]
    return gone + [
        LayoutStepDocument(
            kind="mdev.create",
            gpu=change.gpu.uuid,
            gpu_index=change.gpu.index,
            vgpu_type=spec.type_name,
            parent=spec.parent,
        )
        for change in changes
        for spec in change.creates
    ]
