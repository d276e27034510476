"""Layouts as operations: plan, apply, compare, export; checkpoints; MIG mode.

A file arrives as its text, with the name that errors call it by; nobody here opens one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

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
    describe_vgpu_steps,
    describe_vgpu_target,
    is_destructive,
    read_target,
    read_vgpu_target,
)
from vgpumgr.errors import (
    LayoutFileError,
    MigNotSupportedError,
    PlanOutdatedError,
    VgpumgrError,
)
from vgpumgr.mig.layout.change import LayoutPlan, MigStepSpec, PlanCost, Refusal, StepKind
from vgpumgr.mig.layout.formats.files import choose_layout, read_layout_root
from vgpumgr.mig.layout.formats.reader import Value, read_root
from vgpumgr.mig.layout.formats.resolve import resolve
from vgpumgr.mig.layout.formats.spec import GpuSpec, check_sum
from vgpumgr.mig.layout.pins import find_slices, list_owner_pins, name_pins
from vgpumgr.mig.layout.planner import list_whole_users, try_layout
from vgpumgr.mig.layout.target import GpuTarget
from vgpumgr.mig.selection import check_visible, select_gpu
from vgpumgr.model.codec import ShapeError
from vgpumgr.model.gpu import Gpu, Inventory
from vgpumgr.model.slice import SliceOwner

if TYPE_CHECKING:
    from vgpumgr.engine.transaction import Transaction
    from vgpumgr.planning.vgpu_layouts import VgpuChange, VgpuTarget


class LayoutRun(Protocol):
    """The machine while its layout is changed; see ``layout_apply.LayoutChange``."""

    @property
    def transaction(self) -> Transaction:
        """For what is changed beside."""

    def apply(self, plan: LayoutPlan) -> Sequence[str]:
        """Carries a plan out and remembers the layout; answers notes."""


OpenChange = Callable[[], AbstractContextManager[LayoutRun]]
"""Locks and recovers the machine."""


class VgpuPart(Protocol):
    """The vGPUs of layouts; see ``vgpu_layouts.VgpuLayouts``."""

    def plan(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> tuple[VgpuChange, ...]:
        """The least change."""

    def compare(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> list[tuple[Gpu, str]]:
        """What differs."""

    def count(self, gpus: Sequence[Gpu]) -> Mapping[str, Mapping[str, int]]:
        """What there is, by GPU and type."""

    def list_state(self, targets: Sequence[VgpuTarget], gpus: Sequence[Gpu]) -> Any:
        """For the digest."""

    def run(
        self, transaction: Transaction, plan: LayoutPlan, changes: Sequence[VgpuChange]
    ) -> Sequence[str]:
        """Carries both parts out."""


OpenVgpus = Callable[[], VgpuPart]
"""Loaded where a layout speaks of vGPUs; most do not."""


CheckPlaces = Callable[[LayoutPlan, Sequence[Gpu]], None]


@dataclass(frozen=True)
class LayoutParts:
    """What the operations work with."""

    read_inventory: Callable[[], Inventory]
    list_owners: Callable[[], Sequence[SliceOwner]]
    open_change: OpenChange | None = None
    open_vgpus: OpenVgpus | None = None
    #: raises LayoutBusyError where a plan takes a place that is kept
    check_places: CheckPlaces | None = None


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a file asks of the GPUs that there are."""

    inventory: Inventory
    targets: tuple[GpuTarget, ...]
    vgpu_targets: tuple[VgpuTarget, ...] = ()
    places: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    layout: str | None = None
    source: str | None = None
    allowed: tuple[str, ...] = ()
    digest: str | None = None
    steps: Sequence[LayoutStepDocument] | None = None
    """Of a saved plan, as read; None otherwise."""


class LayoutService:
    """The operations on layouts of one machine."""

    def __init__(self, parts: LayoutParts) -> None:
        self._parts = parts

    def plan(
        self, *, text: str, source: str, name: str | None = None, allow: Sequence[str] = ()
    ) -> LayoutPlanDocument:
        """The least change that brings the machine to a layout, or the error of the refusal."""
        wish = self._read_wish(text, source, name, allow)
        return self._describe(wish, self._make_plan(wish), self._plan_vgpus(wish))

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
            lambda: self._read_wish(text, source, name, allow), self._make_plan, dry_run, expected
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

        def read() -> _Wish:
            inventory = self._read_inventory()
            targets = make_targets(read_checkpoint(read_root(text, source)), inventory.gpus)
            return _Wish(inventory, targets, source=source, allowed=tuple(allow))

        return self._change(read, self._make_plan, dry_run, expected)

    def compare(self, *, text: str, source: str, name: str | None = None) -> LayoutAssertDocument:
        """How the machine differs from a layout."""
        from vgpumgr.mig.layout.target import list_differences

        wish = self._read_wish(text, source, name, ())
        found = list_differences(wish.inventory.gpus, wish.targets)
        if wish.vgpu_targets:
            found += self._vgpus.compare(wish.vgpu_targets, wish.inventory.gpus)
        return LayoutAssertDocument(
            layout=wish.layout or "",
            source=source,
            matches=not found,
            differences=[
                DifferenceDocument(gpu=gpu.uuid, gpu_index=gpu.index, text=t) for gpu, t in found
            ],
            notes=list(wish.notes),
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
        vgpus = self._vgpus.count(gpus) if self._parts.open_vgpus else {}
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

        def read() -> _Wish:
            inventory = self._read_inventory()
            chosen = select_gpu(inventory.gpus, gpu, inventory.lost)
            if not chosen.mig.supported:
                raise MigNotSupportedError(
                    f"cannot turn MIG {_word(enabled)} on {chosen}",
                    why=f"{chosen.model} has no MIG",
                    hint="vgpumgr gpu list",
                )
            return _Wish(inventory, (GpuTarget(chosen.uuid, enabled),))

        def plan(wish: _Wish) -> LayoutPlan:
            (target,) = wish.targets
            chosen = next(g for g in wish.inventory.gpus if g.uuid == target.gpu_uuid)
            users = list_whole_users(chosen) if chosen.mig.current != enabled else []
            return _plan_mode(chosen, enabled, users) if users else self._make_plan(wish)

        return self._change(read, plan, dry_run, expected)

    def _change(
        self,
        read: Callable[[], _Wish],
        make_plan: Callable[[_Wish], LayoutPlan],
        dry_run: bool,
        expected: str | None,
    ) -> LayoutPlanDocument:
        """Observes and plans in the transaction that executes the plan. Also what is there already is done: it becomes
        what is desired.
        """
        if dry_run:
            return self._plan_checked(read(), make_plan, expected)[-1]
        if self._parts.open_change is None:
            raise TypeError("an application that only observes cannot change layouts")
        with self._parts.open_change() as change:
            wish = read()
            plan, changes, document = self._plan_checked(wish, make_plan, expected)
            notes = (
                self._vgpus.run(change.transaction, plan, changes)
                if wish.vgpu_targets
                else change.apply(plan)
            )
        return document.replace(applied=True, notes=[*document.notes, *notes])

    def _plan_checked(
        self, wish: _Wish, make_plan: Callable[[_Wish], LayoutPlan], expected: str | None
    ) -> tuple[LayoutPlan, Sequence[VgpuChange], LayoutPlanDocument]:
        plan = make_plan(wish)
        changes = self._plan_vgpus(wish)
        document = self._describe(wish, plan, changes)
        _check_moved(wish, document, expected)
        return plan, changes, document

    def _read_wish(self, text: str, source: str, name: str | None, allow: Sequence[str]) -> _Wish:
        root = read_root(text, source)
        if _is_saved_plan(root):
            return self._read_saved(root, text, source, allow)
        file = read_layout_root(root)
        label = choose_layout(file, name)
        inventory = self._read_inventory()
        resolved = resolve(file, label, inventory)
        return _Wish(
            inventory=inventory,
            targets=resolved.targets,
            vgpu_targets=tuple(_make_vgpu_target(gpu, spec) for gpu, spec in resolved.vgpus),
            places=resolved.places,
            notes=resolved.notes,
            layout=label,
            source=source,
            allowed=tuple(allow),
        )

    def _read_saved(self, root: Value, text: str, source: str, allow: Sequence[str]) -> _Wish:
        """A plan that ``plan --out`` wrote. It is made anew from its targets, so that nothing is
        done that the planner would not do.
        """
        if allow:
            raise root.error("a saved plan says itself what may be disrupted")
        saved = _parse_saved(text, source)
        for target in saved.targets:
            check_sum(root, len(target.instances or ()))
        inventory = self._read_inventory()
        return _Wish(
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
        """Raises NotPermittedError for a user who would be shown a machine without instances."""
        inventory = self._parts.read_inventory()
        check_visible(inventory.gpus)
        return inventory

    def _make_plan(self, wish: _Wish) -> LayoutPlan:
        gpus = wish.inventory.gpus
        owners = self._parts.list_owners()
        if wish.digest is not None and wish.digest != self._compute_digest(wish):
            raise _outdated(wish.source)
        allowed = find_slices(wish.allowed, gpus, owners)
        outcome = try_layout(gpus, wish.targets, list_owner_pins(owners), allowed)
        if isinstance(outcome, Refusal):
            raise _explain(outcome, wish)
        if self._parts.check_places is not None and outcome.steps:
            self._parts.check_places(outcome, gpus)
        return outcome

    @property
    def _vgpus(self) -> VgpuPart:
        if self._parts.open_vgpus is None:
            raise TypeError("an application that only looks at GPUs knows no vGPUs")
        return self._parts.open_vgpus()

    def _plan_vgpus(self, wish: _Wish) -> tuple[VgpuChange, ...]:
        if not wish.vgpu_targets:
            return ()
        return self._vgpus.plan(wish.vgpu_targets, wish.inventory.gpus)

    def _compute_digest(self, wish: _Wish) -> str:
        gpus, state = wish.inventory.gpus, []
        if wish.vgpu_targets:
            state = self._vgpus.list_state(wish.vgpu_targets, gpus)
        return compute_digest(gpus, wish.targets, state)

    def _describe(
        self, wish: _Wish, plan: LayoutPlan, changes: Sequence[VgpuChange]
    ) -> LayoutPlanDocument:
        gpus = wish.inventory.gpus
        vgpus = describe_vgpu_steps(changes)
        gone = [step for step in vgpus if step.kind == "mdev.delete"]
        new = [step for step in vgpus if step.kind == "mdev.create"]
        return LayoutPlanDocument(
            layout=wish.layout,
            source=wish.source,
            applied=False,
            steps=[*gone, *(describe_step(step, gpus) for step in plan.steps), *new],
            disruptive=plan.is_disruptive,
            destructive=is_destructive(plan) or bool(gone),
            cost=describe_cost(plan, changes),
            explanations=describe_explanations(plan, changes, gpus),
            notes=list(wish.notes),
            targets=[describe_target(target) for target in wish.targets],
            vgpu_targets=[describe_vgpu_target(target) for target in wish.vgpu_targets],
            allowed=list(wish.allowed),
            digest=self._compute_digest(wish),
        )


def _make_vgpu_target(gpu: Gpu, spec: GpuSpec) -> VgpuTarget:
    from vgpumgr.planning.vgpu_layouts import VgpuTarget

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


def _check_moved(wish: _Wish, document: LayoutPlanDocument, expected: str | None) -> None:
    """What was shown is what is done: same state, and of a saved plan the same steps."""
    if expected is not None and expected != document.digest:
        raise _outdated(wish.source)
    if wish.steps is not None and wish.steps != document.steps:
        raise _outdated(wish.source)


def _outdated(source: str | None) -> PlanOutdatedError:
    return PlanOutdatedError(
        f"the plan{f' {source}' if source else ''} is out of date",
        why="the GPUs are not as they were when it was made; nothing was done",
        hint="vgpumgr mig layout plan",
    )


def _explain(refusal: Refusal, wish: _Wish) -> VgpumgrError:
    """The refusal with the place in the file, and the plan that would do it at somebody's
    expense.
    """
    error = refusal.as_error()
    causes = []
    if place := wish.places.get(refusal.gpu_uuid or ""):
        causes.append(f"asked for by {place}")
    hint = error.hint
    if refusal.alternative is not None:
        names = name_pins(refusal.in_the_way, wish.inventory.gpus)
        causes.append(f"possible only so: {tell_steps(refusal.alternative)}")
        flags = " ".join(f"--allow-disruptive {name}" for name in (*wish.allowed, *names))
        hint = f"stop or detach the holders, or add {flags}"
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
