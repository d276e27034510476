"""The vGPUs of a layout: looking, planning, and carrying them out together with GPU instances."""

from __future__ import annotations

import secrets
import shlex
import uuid as uuids
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from vgpumgr.daemon.layout_apply import (
    check_permitted,
    list_owners,
    settle_layouts,
)
from vgpumgr.daemon.layout_store import plan_remembering
from vgpumgr.daemon.parts import Parts
from vgpumgr.daemon.sleeping import explain_sleeping, list_sleeping
from vgpumgr.daemon.vgpu_settle import make_world, settle_vgpus
from vgpumgr.errors import LayoutChangedError
from vgpumgr.host.lock import lock_file
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.model.gpu import Gpu
from vgpumgr.plan.executor import Executor
from vgpumgr.plan.layout_plan import check_fresh, make_step
from vgpumgr.plan.step import Plan
from vgpumgr.plan.vgpu_choice import VgpuObserved
from vgpumgr.plan.vgpu_layout import (
    VgpuChange,
    VgpuTarget,
    VgpuView,
    list_vgpu_differences,
    make_steps,
    plan_vgpus,
)
from vgpumgr.plan.vgpu_plan import LAYOUT
from vgpumgr.plan.vgpu_promises import list_promises
from vgpumgr.plan.vgpu_record import VgpuRecord
from vgpumgr.plan.vgpu_steps import list_holders
from vgpumgr.plan.vgpu_world import VgpuOperation


class VgpuLayouts:
    """What layouts need of a machine's vGPUs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def plan(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> tuple[VgpuChange, ...]:
        """See ``plan_vgpus``; a layout that says nothing of vGPUs costs no look."""
        return plan_vgpus(self._look_for(targets, gpus), targets) if targets else ()

    def compare(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> list[tuple[Gpu, str]]:
        """See ``list_vgpu_differences``."""
        if not targets:
            return []
        return list(list_vgpu_differences(self._look_for(targets, gpus), targets))

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
        self, plan: LayoutPlan, targets: Sequence[VgpuTarget], shown: Sequence[VgpuChange]
    ) -> Sequence[str]:
        """Does both parts as one operation: all of it or nothing. Raises as ``apply_layout``."""
        parts = self._parts
        check_permitted(parts)
        with lock_file(parts.run_dir / "vgpumgr.lock", clock=parts.clock):
            notes = [*settle_layouts(parts), *settle_vgpus(parts)]
            gpus = parts.read_inventory().gpus
            check_fresh(plan, gpus, list_owners(parts))
            changes = self.plan(targets, gpus)
            if [change.text for change in changes] != [change.text for change in shown]:
                raise LayoutChangedError(
                    "the vGPUs were changed since the plan was made",
                    hint="repeat the command: it plans anew",
                )
            self._carry_out(plan, changes, gpus)
        return notes

    def _carry_out(
        self, plan: LayoutPlan, changes: Sequence[VgpuChange], gpus: Sequence[Gpu]
    ) -> None:
        gone, new = make_steps(changes)
        steps = (*gone, *(make_step(spec) for spec in plan.steps), *new)
        last = plan_remembering(self._parts, plan, gpus)
        world = make_world(self._parts, gpus)
        if not steps:
            for step in last:
                step.do(world)
            return
        whole: Plan[VgpuOperation] = Plan(
            LAYOUT, "the GPUs", (*steps, *last), repair="vgpumgr mdev list, vgpumgr mig list"
        )
        with closing(self._parts.open_journal()) as journal:
            executor = Executor(world, journal, list_late=self._parts.list_late)
            executor.run(whole, secrets.token_hex(8))

    def _look_for(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> VgpuView:
        """Raises VgpuFunctionsOffError where the virtual functions come first."""
        view = self._look(gpus)
        boards = {board.name for board in view.observed.host.boards}
        for target in targets:
            gpu = next(gpu for gpu in gpus if str(gpu.uuid) == target.gpu_uuid)
            for name, count in target.wanted if str(gpu.pci) not in boards else ():
                found = list_sleeping(self._parts, name, target.gpu_uuid) if count else []
                if found:
                    place = f"{target.place}: " if target.place else ""
                    raise explain_sleeping(found, f"{place}{gpu} cannot have {count} x {name} yet")
        return view

    def _look(self, gpus: Sequence[Gpu]) -> VgpuView:
        records = self._parts.vgpu_store.list_vgpus()
        claims = [record.spec for record in records if record.takes_room]
        host = self._parts.vgpus.read_host()
        promises = list_promises(records, self._parts.vgpus.list_definitions(), host)
        observed = VgpuObserved(host, gpus, claims, promises=promises)
        return VgpuView(
            observed, records, self._list_users, lambda: str(uuids.uuid4()), self._tell_release
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

    def _tell_release(self, record: VgpuRecord) -> str | None:
        vm = self._find_vm(record.attachment) if record.attachment else None
        return f"vgpumgr detach {shlex.quote(vm)} --attachment {record.attachment}" if vm else None
