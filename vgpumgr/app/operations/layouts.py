"""Layouts as operations: plan, apply, compare, export; checkpoints; MIG mode.

A file arrives as its text, with the name that errors call it by; nobody here opens one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from vgpumgr.app.context import Parts
from vgpumgr.app.documents.layouts import (
    DifferenceDocument,
    LayoutAssertDocument,
    LayoutFileDocument,
    LayoutPlanDocument,
    LayoutStepDocument,
    compute_digest,
    describe_cost,
    describe_explanations,
    describe_step,
    describe_target,
    describe_vgpu_target,
    is_destructive,
    read_target,
    read_vgpu_target,
)
from vgpumgr.errors import (
    LayoutBusyError,
    LayoutFileError,
    MigNotSupportedError,
    NvmlInUseError,
    NvmlMissingError,
    PlanOutdatedError,
    VgpumgrError,
)
from vgpumgr.mig.layout.change import (
    LayoutPlan,
    MigStepSpec,
    PlanCost,
    Refusal,
    StepKind,
    advise_release,
)
from vgpumgr.mig.layout.formats.files import GpuSpec, check_sum, choose_layout, read_layout_root
from vgpumgr.mig.layout.formats.reader import Value, read_root
from vgpumgr.mig.layout.formats.resolve import resolve
from vgpumgr.mig.layout.planner import list_whole_users, plan_destruction, try_layout
from vgpumgr.mig.layout.target import (
    GpuTarget,
    find_slices,
    list_owner_pins,
    list_present_targets,
    name_pins,
)
from vgpumgr.mig.selection import check_visible, select_gpu
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.codec import ShapeError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu, Inventory, list_drains
from vgpumgr.model.text import tell_count

if TYPE_CHECKING:
    from vgpumgr.app.operations.layout_apply import LayoutChange
    from vgpumgr.app.operations.vgpu_layouts import VgpuLayouts
    from vgpumgr.planning.vgpus import VgpuChange, VgpuTarget


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a file asks of the GPUs that there are."""

    inventory: Inventory
    targets: tuple[GpuTarget, ...]
    vgpu_targets: tuple[VgpuTarget, ...] = ()
    places: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    layout: str | None = None
    source: str | None = None
    allowed: tuple[str, ...] = ()
    #: only instances that are named change
    partial: bool = False
    digest: str | None = None
    steps: Sequence[LayoutStepDocument] | None = None
    """Of a saved plan, as read; None otherwise."""


class LayoutService:
    """The operations on layouts of one machine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def plan(
        self, *, text: str, source: str, name: str | None = None, allow: Sequence[str] = ()
    ) -> LayoutPlanDocument:
        """The least change that brings the machine to a layout, or the error of the refusal."""
        wanted = self._read_wanted(text, source, name, allow)
        return self._describe(wanted, self._make_plan(wanted), self._plan_vgpus(wanted))

    def apply(
        self,
        *,
        text: str,
        source: str,
        name: str | None = None,
        allow: Sequence[str] = (),
        dry_run: bool = False,
        expected: str | None = None,
    ) -> LayoutPlanDocument:
        """Does what ``plan`` says. ``expected`` is the digest of a plan that was shown: where the
        state has moved since, nothing is done (PlanOutdatedError).
        """
        return self._change(
            lambda: self._read_wanted(text, source, name, allow), self._make_plan, dry_run, expected
        )

    def restore(
        self,
        *,
        text: str,
        source: str,
        allow: Sequence[str] = (),
        dry_run: bool = False,
        expected: str | None = None,
    ) -> LayoutPlanDocument:
        """As ``apply``, of a checkpoint."""
        from vgpumgr.mig.layout.formats.checkpoint import make_targets, read_checkpoint

        def read() -> _Wanted:
            inventory = self._read_inventory()
            targets = make_targets(read_checkpoint(read_root(text, source)), inventory.gpus)
            return _Wanted(inventory, targets, source=source, allowed=tuple(allow))

        return self._change(read, self._make_plan, dry_run, expected)

    def compare(self, *, text: str, source: str, name: str | None = None) -> LayoutAssertDocument:
        """How the machine differs from a layout."""
        from vgpumgr.mig.layout.target import list_differences

        wanted = self._read_wanted(text, source, name, ())
        found = list_differences(wanted.inventory.gpus, wanted.targets)
        if wanted.vgpu_targets:
            found += self._vgpus.compare(wanted.vgpu_targets, wanted.inventory.gpus)
        return LayoutAssertDocument(
            layout=wanted.layout or "",
            source=source,
            matches=not found,
            differences=[
                DifferenceDocument(gpu=gpu.uuid, gpu_index=gpu.index, text=t) for gpu, t in found
            ],
            notes=list(wanted.notes),
        )

    def export(self, *, dialect: str, label: str, placements: bool) -> LayoutFileDocument:
        """What there is, as a layout file."""
        from vgpumgr.mig.layout.formats.write import (
            list_losses,
            write_own,
            write_parted,
            write_vgpu_dm,
        )

        gpus = self._read_inventory().gpus
        if dialect == "mig-parted":
            return LayoutFileDocument(file=write_parted(gpus, label), notes=list_losses(gpus))
        vgpus = self._vgpus.count(gpus)
        if dialect == "vgpu-device-manager":
            return LayoutFileDocument(file=write_vgpu_dm(gpus, label, vgpus), notes=[])
        file = write_own(gpus, label, placements=placements, vgpus=vgpus)
        return LayoutFileDocument(file=file, notes=[])

    def checkpoint(self) -> LayoutFileDocument:
        """What there is, as mig-parted's checkpoint."""
        from vgpumgr.mig.layout.formats.checkpoint import write_checkpoint

        gpus = [gpu for gpu in self._read_inventory().gpus if gpu.mig.supported]
        return LayoutFileDocument(file=write_checkpoint(gpus), notes=[])

    def set_mode(
        self, *, gpu: str, enabled: bool, dry_run: bool = False, expected: str | None = None
    ) -> LayoutPlanDocument:
        """Turns MIG mode on or off.

        Raises MigModePendingError with the holders where somebody uses the GPU or a reset must
        follow: the request is then left with the driver, and nothing else is changed.
        """

        def read() -> _Wanted:
            inventory = self._read_inventory()
            chosen = select_gpu(inventory.gpus, gpu, inventory.lost)
            if not chosen.mig.supported:
                raise MigNotSupportedError(
                    f"cannot turn {_word(enabled)} MIG mode of {chosen}",
                    why=f"{chosen.model} has no MIG",
                    hint="vgpumgr gpu list",
                )
            return _Wanted(inventory, (GpuTarget(chosen.uuid, enabled),))

        def plan(wanted: _Wanted) -> LayoutPlan:
            (target,) = wanted.targets
            chosen = next(g for g in wanted.inventory.gpus if g.uuid == target.gpu_uuid)
            if enabled and chosen.shared_by:
                # a request that stays pending would take the GPU from them at its next reset
                raise LayoutBusyError(
                    f"cannot turn on MIG mode of {chosen}",
                    why="a GPU in MIG mode has no shares",
                    held_by=chosen.shared_by,
                    hint="vgpumgr detach its holders, then repeat",
                )
            users = list_whole_users(chosen) if chosen.mig.current != enabled else []
            if not users:
                return self._make_plan(wanted)
            request = _plan_mode(chosen, enabled, users)
            self._check_functions(request, wanted.inventory)
            return request

        return self._change(read, plan, dry_run, expected)

    def create_instances(
        self,
        *,
        gpu: str,
        profile: str,
        start: int | None = None,
        count: int = 1,
        dry_run: bool = False,
        expected: str | None = None,
    ) -> LayoutPlanDocument:
        """Creates GPU instances of a profile, each with a compute instance of its size; all others stay. They are
        the administrator's, as those of a layout that was applied.
        """
        from vgpumgr.planning.mig_instances import choose_instances

        def read() -> _Wanted:
            inventory = self._read_inventory()
            chosen = select_gpu(inventory.gpus, gpu, inventory.lost)
            owners, lost = self._parts.list_owners([chosen]), self._parts.list_lost([chosen])
            instances = choose_instances(chosen, profile, start, count, owners, lost)
            target = GpuTarget(chosen.uuid, True, instances)
            return _Wanted(inventory, (target,), partial=True)

        return self._change(read, self._make_plan, dry_run, expected)

    def destroy_instances(
        self,
        *,
        instances: Sequence[str] = (),
        gpus: Sequence[str] = (),
        dry_run: bool = False,
        expected: str | None = None,
    ) -> LayoutPlanDocument:
        """Destroys unused GPU instances with what is in them: those that are named, and all of the
        GPUs that are named.
        """
        from vgpumgr.planning.mig_instances import check_unused, find_gone

        def read() -> _Wanted:
            inventory = self._read_inventory()
            gone = find_gone(inventory, instances, gpus)
            targets = [
                GpuTarget(gpu.uuid, True, list_present_targets(gpu, ids)) for gpu, ids in gone
            ]
            return _Wanted(inventory, tuple(targets), partial=True)

        def plan(wanted: _Wanted) -> LayoutPlan:
            gone = find_gone(wanted.inventory, instances, gpus)
            owners = self._parts.list_owners([gpu for gpu, _ in gone])
            for gpu, ids in gone:
                check_unused(gpu, ids, owners)
            return sum((plan_destruction(gpu, ids) for gpu, ids in gone), start=LayoutPlan())

        return self._change(read, plan, dry_run, expected)

    def _change(
        self,
        read: Callable[[], _Wanted],
        make_plan: Callable[[_Wanted], LayoutPlan],
        dry_run: bool,
        expected: str | None,
    ) -> LayoutPlanDocument:
        """Observes and plans in the transaction that executes the plan. Also what is there already is done: it becomes
        what is desired.
        """
        if dry_run:
            return self._plan_checked(read(), make_plan, expected)[-1]
        from vgpumgr.app.operations.layout_apply import open_layout_change

        with open_layout_change(self._parts) as change:
            wanted = read()
            plan, changes, document = self._plan_checked(wanted, make_plan, expected)
            notes = (
                self._vgpus.run(change.transaction, plan, changes)
                if wanted.vgpu_targets
                else self._run(change, wanted, plan)
            )
        return document.replace(applied=True, notes=[*document.notes, *notes])

    def _run(self, change: LayoutChange, wanted: _Wanted, plan: LayoutPlan) -> Sequence[str]:
        """Executes the plan. Its notes name what a command made that named no place."""
        outcome = change.run(plan, partial=wanted.partial)
        if not wanted.partial:
            return outcome.notes
        made = {(s.gpu_uuid, s.placement) for s in plan.steps if s.kind is StepKind.GI_CREATE}
        return (
            *outcome.notes,
            *(
                f"{gpu.index}/{instance.id} is {compute.uuid} ({instance.profile})"
                for gpu in outcome.gpus
                for instance in gpu.instances
                if (gpu.uuid, instance.placement) in made
                for compute in instance.compute_instances
            ),
        )

    def _plan_checked(
        self, wanted: _Wanted, make_plan: Callable[[_Wanted], LayoutPlan], expected: str | None
    ) -> tuple[LayoutPlan, Sequence[VgpuChange], LayoutPlanDocument]:
        plan = make_plan(wanted)
        changes = self._plan_vgpus(wanted)
        document = self._describe(wanted, plan, changes)
        _check_moved(wanted, document, expected)
        return plan, changes, document

    def _read_wanted(
        self, text: str, source: str, name: str | None, allow: Sequence[str]
    ) -> _Wanted:
        root = read_root(text, source)
        if _is_saved_plan(root):
            return self._read_saved(root, text, source, allow)
        file = read_layout_root(root)
        label = choose_layout(file, name)
        inventory = self._read_inventory()
        resolved = resolve(file, label, inventory)
        return _Wanted(
            inventory=inventory,
            targets=resolved.targets,
            vgpu_targets=tuple(_make_vgpu_target(gpu, spec) for gpu, spec in resolved.vgpus),
            places=resolved.places,
            notes=resolved.notes,
            layout=label,
            source=source,
            allowed=tuple(allow),
        )

    def _read_saved(self, root: Value, text: str, source: str, allow: Sequence[str]) -> _Wanted:
        """A plan that ``plan --out`` wrote. It is made anew from its targets, so that nothing is
        done that the planner would not do.
        """
        if allow:
            raise root.error("a saved plan says itself what may be disrupted")
        saved = _parse_saved(text, source)
        for target in saved.targets:
            check_sum(root, len(target.instances or ()))
        inventory = self._read_inventory()
        return _Wanted(
            inventory=inventory,
            targets=tuple(read_target(target) for target in saved.targets),
            vgpu_targets=tuple(read_vgpu_target(target) for target in saved.vgpu_targets),
            notes=tuple(saved.notes),
            layout=saved.layout,
            source=source,
            allowed=tuple(saved.allowed),
            digest=saved.digest,
            steps=saved.steps,
        )

    def _read_inventory(self) -> Inventory:
        """Raises NotPermittedError for a user who would be shown a machine without instances, MigNotSupportedError
        where all GPUs are other vendors'.
        """
        # NUMA nodes and IOMMU groups, which take a walk through sysfs, do not matter here
        try:
            inventory = self._parts.nvml.read_inventory()
        except NvmlMissingError as error:
            from vgpumgr.app.refusal_hints import explain_no_mig  # a host without NVML is rare

            raise explain_no_mig(self._parts) or error from None
        check_visible(inventory.gpus)
        return self._parts.mark_shares(inventory)

    def _make_plan(self, wanted: _Wanted) -> LayoutPlan:
        gpus = wanted.inventory.gpus
        owners = self._list_owners(wanted)
        if wanted.digest is not None and wanted.digest != self._compute_digest(wanted):
            raise _outdated(wanted.source)
        allowed = find_slices(wanted.allowed, gpus, owners)
        outcome = try_layout(gpus, wanted.targets, list_owner_pins(owners), allowed)
        if isinstance(outcome, Refusal):
            raise _explain(outcome, wanted)
        self._check_functions(outcome, wanted.inventory)
        creates = (StepKind.GI_CREATE, StepKind.CI_CREATE)
        self._check_not_drained(wanted, {s.gpu_uuid for s in outcome.steps if s.kind in creates})
        if outcome.steps and (lost := self._parts.list_lost(gpus)):
            from vgpumgr.planning.reservations import check_places

            check_places(outcome, gpus, lost)
        return outcome

    def _check_functions(self, plan: LayoutPlan, inventory: Inventory) -> None:
        """Raises NvmlInUseError if a GPU whose MIG mode is to change has virtual functions."""
        modes = {StepKind.MODE_ENABLE: True, StepKind.MODE_DISABLE: False}
        changed = {step.gpu_uuid: modes[step.kind] for step in plan.steps if step.kind in modes}
        for gpu in self._parts.complete_inventory(inventory).gpus if changed else ():
            enabled = changed.get(str(gpu.uuid), gpu.mig.current)
            if gpu.vfs_enabled and enabled != gpu.mig.current:
                raise NvmlInUseError(
                    f"cannot turn {_word(enabled)} MIG mode of {gpu}",
                    why="MIG mode changes only while the GPU has no virtual functions",
                    held_by=[tell_count(gpu.vfs_enabled, "virtual function")],
                    hint=f"vgpumgr vf disable {gpu.index}, then repeat",
                )

    def _check_not_drained(self, wanted: _Wanted, uuids: Collection[str]) -> None:
        """Raises GpuDrainedError where one of these GPUs, which get new slices, is drained."""
        if not uuids or not list_drains(self._parts.store, wanted.inventory.gpus):
            return
        from vgpumgr.planning.snapshot import Snapshot

        snapshot = Snapshot(self._parts, gpus=wanted.inventory.gpus)
        for gpu in wanted.inventory.gpus:
            if str(gpu.uuid) in uuids:
                snapshot.check_not_drained("the layout needs new slices", gpu.pci)

    def _list_owners(self, wanted: _Wanted) -> Sequence[SliceOwner]:
        """Without the vGPUs that the same plan deletes."""
        owners = self._parts.list_owners(wanted.inventory.gpus)
        if not any(owner.vgpu for owner in owners):
            return owners
        deleted = {r.spec.uuid for change in self._plan_vgpus(wanted) for r in change.deletes}
        return [owner for owner in owners if owner.attachment_id not in deleted]

    @property
    def _vgpus(self) -> VgpuLayouts:
        """Loaded where a layout is about vGPUs; most are not."""
        from vgpumgr.app.operations.vgpu_layouts import VgpuLayouts

        return VgpuLayouts(self._parts)

    def _plan_vgpus(self, wanted: _Wanted) -> tuple[VgpuChange, ...]:
        if not wanted.vgpu_targets:
            return ()
        changes = self._vgpus.plan(wanted.vgpu_targets, wanted.inventory.gpus)
        self._check_not_drained(wanted, {str(one.gpu.uuid) for one in changes if one.creates})
        return changes

    def _compute_digest(self, wanted: _Wanted) -> str:
        gpus, state = wanted.inventory.gpus, []
        if wanted.vgpu_targets:
            state = self._vgpus.list_state(wanted.vgpu_targets, gpus)
        return compute_digest(gpus, wanted.targets, state)

    def _describe(
        self, wanted: _Wanted, plan: LayoutPlan, changes: Sequence[VgpuChange]
    ) -> LayoutPlanDocument:
        gpus = wanted.inventory.gpus
        vgpus = _describe_vgpu_steps(changes) if changes else []
        gone = [step for step in vgpus if step.kind == "mdev.delete"]
        new = [step for step in vgpus if step.kind == "mdev.create"]
        return LayoutPlanDocument(
            layout=wanted.layout,
            source=wanted.source,
            applied=False,
            steps=[*gone, *(describe_step(step, gpus) for step in plan.steps), *new],
            disruptive=plan.is_disruptive,
            destructive=is_destructive(plan) or bool(gone),
            cost=describe_cost(plan, changes),
            explanations=describe_explanations(plan, changes, gpus),
            notes=list(wanted.notes),
            targets=[describe_target(target) for target in wanted.targets],
            vgpu_targets=[describe_vgpu_target(target) for target in wanted.vgpu_targets],
            allowed=list(wanted.allowed),
            digest=self._compute_digest(wanted),
        )


def _describe_vgpu_steps(changes: Sequence[VgpuChange]) -> list[LayoutStepDocument]:
    from vgpumgr.app.operations.vgpu_layouts import describe_steps

    return describe_steps(changes)


def _make_vgpu_target(gpu: Gpu, spec: GpuSpec) -> VgpuTarget:
    from vgpumgr.planning.vgpus import VgpuTarget

    counts: Counter[str] = Counter()
    for one in spec.vgpus or ():
        counts[one.type] += one.count
    instances = None
    if spec.instances is not None:
        instances = Counter[str]()
        for instance in spec.instances:
            instances[str(instance.profile)] += instance.count
    return VgpuTarget(str(gpu.uuid), tuple(counts.items()), str(spec.where), instances)


def _word(enabled: bool) -> str:
    return "on" if enabled else "off"


def _plan_mode(gpu: Gpu, enabled: bool, users: Sequence[str]) -> LayoutPlan:
    """The request alone."""
    kind = StepKind.MODE_ENABLE if enabled else StepKind.MODE_DISABLE
    end = "pending until a reset" if gpu.mig.needs_reset else "pending until a reset, or refused"
    text = f"{gpu}: asks for MIG mode {_word(enabled)}; {', '.join(users)} uses it, so it is {end}"
    return LayoutPlan((MigStepSpec(kind, gpu.uuid),), PlanCost(mode_changes=1), ((gpu.uuid, text),))


def _is_saved_plan(root: Value) -> bool:
    return root.is_map and {"steps", "targets", "digest"} <= {key for key, _ in root.read_pairs()}


def _parse_saved(text: str, source: str) -> LayoutPlanDocument:
    try:
        return LayoutPlanDocument.from_data(json.loads(text))
    except ShapeError as error:
        raise LayoutFileError(
            f"{source}: {error.path}: not as a saved plan has it", cause=error.reason
        ) from error
    except (ValueError, RecursionError) as error:
        raise LayoutFileError(f"{source}: a saved plan is JSON", cause=str(error)) from error


def _check_moved(wanted: _Wanted, document: LayoutPlanDocument, expected: str | None) -> None:
    """What was shown is what is done: same state, and of a saved plan the same steps."""
    if expected is not None and expected != document.digest:
        raise _outdated(wanted.source)
    if wanted.steps is not None and wanted.steps != document.steps:
        raise _outdated(wanted.source)


def _outdated(source: str | None) -> PlanOutdatedError:
    return PlanOutdatedError(
        f"the plan{f' {source}' if source else ''} is out of date",
        why="the GPUs are not as they were when it was made; nothing was done",
        hint="vgpumgr mig layout plan" if source else "repeat the command: it plans anew",
    )


def _explain(refusal: Refusal, wanted: _Wanted) -> VgpumgrError:
    """The refusal with the place in the file, and the plan that would do it at somebody's
    expense.
    """
    error = refusal.as_error()
    causes = []
    if place := wanted.places.get(refusal.gpu_uuid or ""):
        causes.append(f"asked for by {place}")
    hint = error.hint
    if refusal.alternative is not None:
        causes.append(f"possible only so: {tell_steps(refusal.alternative)}")
    if pins := refusal.in_the_way:
        names = name_pins([pin for pin in pins if not pin.stays], wanted.inventory.gpus)
        flags = " ".join(f"--allow-disruptive {name}" for name in (*wanted.allowed, *names))
        # no file: a command on modes or instances, which has no such option
        hint = advise_release(pins, f"add {flags}" if wanted.source is not None else None)
    return type(error)(
        error.error,
        cause="\n".join(causes) or error.cause,
        why=error.why,
        held_by=error.held_by,
        hint=hint,
    )


def tell_steps(plan: LayoutPlan) -> str:
    """GPU instances that go and come, in a line."""
    words = {StepKind.GI_DESTROY: "-", StepKind.GI_CREATE: "+"}
    found = [
        f"{words[step.kind]} {step.profile} at {step.placement}"
        for step in plan.steps
        if step.kind in words
    ]
    return ", ".join(found) or f"{len(plan.steps)} changes of compute instances"
