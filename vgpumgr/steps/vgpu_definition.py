"""Steps on what is remembered of vGPUs: definitions, and taking over what others made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.step import Step
from vgpumgr.errors import ReadBackError
from vgpumgr.model.vgpu import Framework, VgpuDefinition, VgpuSpec
from vgpumgr.model.vgpu_record import VgpuRecord, VgpuState, find_record, make_inactive
from vgpumgr.steps.vgpu import describe_place

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


def make_definition(spec: VgpuSpec, auto: bool) -> VgpuDefinition:
    """The definition as mdevctl has it."""
    return VgpuDefinition(spec.uuid, spec.parent, spec.type_id, auto, spec.attributes)


@dataclass(frozen=True)
class DefineVgpu(Step):
    """Writes down that a vGPU is to come back: for mdevctl as well, where it is a mediated device.

    ``before``: the definition that there was, None if there was none.
    """

    spec: VgpuSpec
    auto: bool
    before: VgpuSpec | None = None
    before_auto: bool = False
    kind: ClassVar[str] = "mdev.define"

    @property
    def target(self) -> Mapping[str, object]:
        """What is defined, and what was."""
        return {
            **self.spec.as_dict(),
            "auto": self.auto,
            "before": self.before and self.before.as_dict(),
            "before_auto": self.before_auto,
        }

    def describe(self) -> str:
        """For people."""
        when = "at boot" if self.auto else "when asked for"
        what = f"define vGPU {self.spec.type_name} {describe_place(self.spec)}, started {when}"
        said = ", ".join(f"{name}={value}" for name, value in self.spec.attributes)
        return f"{what}, with {said}" if said else what

    def do(self, context: OperationContext) -> None:
        """Writes the definition, and reads it back."""
        _define(context, self.spec, self.auto)
        if self.spec.framework is Framework.MDEV:
            wanted = make_definition(self.spec, self.auto)
            if wanted not in context.vgpus.list_definitions():
                raise ReadBackError(f"the definition of {self.spec.uuid} is not as it was written")

    def undo(self, context: OperationContext) -> None:
        """Puts back what there was."""
        if self.before is not None:
            _define(context, self.before, self.before_auto)
        else:
            _undefine(context, self.spec)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is defined so."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        if record is None or not record.defined:
            return False
        same = record.spec.attributes == self.spec.attributes
        return same and record.auto == self.auto


@dataclass(frozen=True)
class UndefineVgpu(Step):
    """Takes a definition of ours away; the vGPU itself stays."""

    spec: VgpuSpec
    auto: bool
    kind: ClassVar[str] = "mdev.undefine"

    @property
    def target(self) -> Mapping[str, object]:
        """What was defined."""
        return {**self.spec.as_dict(), "auto": self.auto}

    def describe(self) -> str:
        """For people."""
        return f"forget the definition of vGPU {self.spec.type_name} {describe_place(self.spec)}"

    def do(self, context: OperationContext) -> None:
        """Removes it."""
        _undefine(context, self.spec)

    def undo(self, context: OperationContext) -> None:
        """Writes it again."""
        _define(context, self.spec, self.auto)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is gone."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        return record is None or not record.defined


@dataclass(frozen=True)
class AdoptVgpu(Step):
    """Records a vGPU, or a definition, that somebody else made as ours. The host is not changed."""

    spec: VgpuSpec
    active: bool
    defined: bool
    auto: bool
    iommu_group: int | None = None
    kind: ClassVar[str] = "mdev.adopt"

    @property
    def target(self) -> Mapping[str, object]:
        """All of it."""
        return {
            **self.spec.as_dict(),
            "active": self.active,
            "defined": self.defined,
            "auto": self.auto,
            "iommu_group": self.iommu_group,
        }

    def describe(self) -> str:
        """For people."""
        return f"take over vGPU {self.spec.type_name} {describe_place(self.spec)}"

    def do(self, context: OperationContext) -> None:
        """Records it."""
        context.vgpu_store.save_vgpu(
            VgpuRecord(
                self.spec,
                VgpuState.ACTIVE if self.active else VgpuState.INACTIVE,
                defined=self.defined,
                auto=self.auto,
                iommu_group=self.iommu_group,
            )
        )

    def undo(self, context: OperationContext) -> None:
        """Forgets it."""
        context.vgpu_store.delete_vgpu(self.spec.uuid)

    def observe(self, context: OperationContext) -> bool:
        """Whether it is ours."""
        return find_record(context.vgpu_store, self.spec.uuid) is not None


@dataclass(frozen=True)
class ForgetVgpu(Step):
    """Drops the record of a vGPU that is gone."""

    spec: VgpuSpec
    kind: ClassVar[str] = "mdev.forget"

    @property
    def target(self) -> Mapping[str, object]:
        """Which."""
        return self.spec.as_dict()

    def describe(self) -> str:
        """For people."""
        return f"forget vGPU {self.spec.type_name} {describe_place(self.spec)}, which is gone"

    def do(self, context: OperationContext) -> None:
        """Drops it; what is defined stays so."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        if record is not None and record.defined:
            gone = make_inactive(record)
            context.vgpu_store.save_vgpu(gone)
        elif record is not None:
            context.vgpu_store.delete_vgpu(self.spec.uuid)

    def undo(self, context: OperationContext) -> None:
        """Nothing: it is gone whether we know it or not."""

    def observe(self, context: OperationContext) -> bool:
        """Whether nothing is recorded as there."""
        record = find_record(context.vgpu_store, self.spec.uuid)
        return record is None or not record.takes_room


def _define(context: OperationContext, spec: VgpuSpec, auto: bool) -> None:
    """The record first: with it, a crash leaves nothing that would not be ours."""
    record = find_record(context.vgpu_store, spec.uuid) or VgpuRecord(spec, VgpuState.INACTIVE)
    context.vgpu_store.save_vgpu(replace(record, spec=spec, defined=True, auto=auto))
    if spec.framework is Framework.MDEV:
        context.vgpus.write_definition(make_definition(spec, auto))


def _undefine(context: OperationContext, spec: VgpuSpec) -> None:
    if spec.framework is Framework.MDEV:
        context.vgpus.remove_definition(spec.parent, spec.uuid)
    record = find_record(context.vgpu_store, spec.uuid)
    if record is None:
        return
    if record.takes_room:
        context.vgpu_store.save_vgpu(replace(record, defined=False, auto=False))
    else:
        context.vgpu_store.delete_vgpu(spec.uuid)
