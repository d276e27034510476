"""Documents of PCI functions, IOMMU groups and virtual functions; see ``documents.base`` for the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field, StepDocument
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.pci_tree import name_pci_device
from vgpumgr.model.pci import Condition, Function, PciAddress, VfMethod, VfSupport
from vgpumgr.passthrough.groups import (
    ACS_OVERRIDE,
    Judgement,
    Verdict,
    explain_no_iommu,
    index_groups,
    judge_group,
    list_companions,
)
from vgpumgr.passthrough.selection import KnownGpu
from vgpumgr.passthrough.sriov import find_driver
from vgpumgr.planning.passthrough import BindRequest, plan_bind
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vfs import check_vf_parent

Change = Literal["passthrough bind", "passthrough unbind", "vf enable", "vf disable"]
VerdictWord = Literal["viable", "bindable", "shared", "in-use", "no-iommu"]


class BindingDocument(Document):
    """That a function was taken from the host by vgpumgr."""

    driver: str
    previous: str | None = Field(description="the driver of before; it comes back")
    persist: bool = Field(description="taken again at every boot")


class FunctionDocument(Document):
    """One PCI function."""

    address: str
    kind: str = Field(description="gpu, vf, audio, usb, ucsi, bridge, network, storage, ...")
    model: str
    vendor_id: str
    device_id: str
    driver: str | None
    iommu_group: int | None
    numa_node: int | None
    boot_display: bool
    physical: str | None = Field(description="of a virtual function: the physical one")
    users: list[str] = Field(description="who uses it now")
    binding: BindingDocument | None


class PassthroughRow(FunctionDocument):
    """A GPU or a virtual function of one, and whether it can go to a VM."""

    gpu_index: int | None
    gpu_uuid: str | None
    companions: list[str] = Field(description="functions that go with it")
    reset_methods: list[str] | None = Field(
        description="how it is reset between VMs; empty: not at all; null: the kernel does not say"
    )
    power_state: str | None = Field(description="D0 to D3cold")
    verdict: VerdictWord
    blockers: list[str] = Field(description="who is in the way")
    why: str | None
    hint: str | None


class PassthroughListDocument(Document):
    """``vgpumgr passthrough list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    functions: list[PassthroughRow]
    iommu: bool = Field(description="whether the kernel uses an IOMMU")
    notes: list[str]


class GroupDocument(Document):
    """An IOMMU group with all its members."""

    number: int
    members: list[FunctionDocument]
    verdict: VerdictWord
    blockers: list[str]
    why: str | None
    hint: str | None


class GroupListDocument(Document):
    """``vgpumgr passthrough groups -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    groups: list[GroupDocument]
    iommu: bool
    notes: list[str]


class PciChangeDocument(Document):
    """``passthrough bind`` and ``unbind``, ``vf enable`` and ``disable``, with ``-o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    change: Change
    subject: str = Field(description="the function's address")
    dry_run: bool
    steps: list[StepDocument]
    concerns: list[str] = Field(description="who uses it now, and may lose it")
    result: dict[str, Any]
    notes: list[str]


class VfDocument(Document):
    """One virtual function."""

    index: int = Field(description="from 0")
    address: str
    driver: str | None
    iommu_group: int | None
    users: list[str] = Field(description="who uses it now: VMs, processes")
    configured: list[str] = Field(description="VMs whose definition names it")
    quotas: dict[str, str]
    framebuffer_bytes: int | None = Field(
        description="its part of the GPU's memory, where the vendor's library says (AMD)"
    )


class PhysicalDocument(Document):
    """A function that can have virtual functions."""

    address: str
    model: str
    driver: str | None
    total: int
    count: int
    method: VfMethod | None = Field(description="how their number is set; null: see why_not")
    why_not: str | None
    persist: bool
    vfs: list[VfDocument]


class VfListDocument(Document):
    """``vgpumgr vf list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    physicals: list[PhysicalDocument]
    notes: list[str]


_name = cache(name_pci_device)


class PciView:
    """Documents of one snapshot of the bus."""

    def __init__(
        self,
        observed: Snapshot,
        gpus: Sequence[KnownGpu],
        notes: Sequence[str],
    ) -> None:
        self.observed = observed
        self.gpus = gpus
        self.notes = notes
        self._known = {gpu.address: gpu for gpu in gpus}
        self._functions = {f.address: f for f in observed.functions}
        self._groups = index_groups(observed.functions)
        self._buses: dict[tuple[int, int], list[Function]] = {}
        for function in observed.functions:
            key = (function.address.domain, function.address.bus)
            self._buses.setdefault(key, []).append(function)
        self._persistent = {s.physical for s in observed.vf_settings if s.persist}

    @property
    def has_iommu(self) -> bool:
        """Whether any function is in a group."""
        return bool(self._groups)

    def describe_functions(
        self, conditions: Mapping[PciAddress, Condition]
    ) -> PassthroughListDocument:
        """GPUs and their virtual functions."""
        rows = [
            self._describe_row(f, conditions.get(f.address, Condition()))
            for f in self.observed.functions
            if f.is_gpu
        ]
        return PassthroughListDocument(
            functions=rows, iommu=self.has_iommu, notes=self._list_notes()
        )

    def describe_groups(self, *, all_groups: bool) -> GroupListDocument:
        """Groups with a GPU, or all."""
        groups = [
            self._describe_group(number, members)
            for number, members in self._groups.items()
            if all_groups or any(f.is_gpu for f in members)
        ]
        return GroupListDocument(groups=groups, iommu=self.has_iommu, notes=self._list_notes())

    def describe_vfs(
        self,
        physicals: Sequence[Function],
        quotas: Sequence[Mapping[str, str]],
        supports: Mapping[PciAddress, VfSupport],
    ) -> VfListDocument:
        """Functions that can have virtual ones; ``quotas`` of each of these where it is one."""
        rows = [self._describe_physical(f, quotas, supports[f.address]) for f in physicals]
        return VfListDocument(physicals=rows, notes=list(self.notes))

    def _describe_row(self, function: Function, condition: Condition) -> PassthroughRow:
        members = self._list_members(function)
        known = self._known.get(function.address)
        judged = self._judge(members, function)
        near = self._list_near(function)
        return PassthroughRow.of(
            condition,
            **vars(self._describe(function)),
            **_describe_judgement(judged),
            gpu_index=known.index if known else None,
            gpu_uuid=known.uuid if known else None,
            companions=[str(f.address) for f in list_companions(near, function)],
        )

    def _list_near(self, function: Function) -> list[Function]:
        """Whatever goes with a function is in its group or on its bus."""
        bus = self._buses[(function.address.domain, function.address.bus)]
        beside = (f for f in bus if f.is_beside(function))
        return sorted({*self._list_members(function), *beside}, key=lambda f: f.address)

    def _list_members(self, function: Function) -> tuple[Function, ...]:
        return (function,) if function.group is None else self._groups[function.group]

    def _judge(self, members: Sequence[Function], chosen: Function | None) -> Judgement:
        """The verdict on a group; it is bindable only if ``passthrough bind`` takes the chosen function unasked."""
        judged = judge_group(members, self.observed.users)
        if judged.verdict is Verdict.BINDABLE and chosen is not None:
            return self._try_bind(chosen) or judged
        if judged.verdict is Verdict.NO_IOMMU:
            why, hint = explain_no_iommu(self.observed.kernel_words)
            return Judgement(Verdict.NO_IOMMU, why=why, hint=hint)
        return judged

    def _try_bind(self, chosen: Function) -> Judgement | None:
        """What bind refuses, or asks about first; None: nothing."""
        near = self.observed.replace(functions=self._list_near(chosen), variants={})
        try:
            plan = plan_bind(near, chosen, BindRequest())
        except VgpumgrError as error:
            blockers, why = tuple(error.held_by) or (error.error,), error.why or error.error
            return Judgement(Verdict.IN_USE, blockers, why, error.hint)
        if concerns := plan.result["concerns"]:
            assert isinstance(concerns, list)
            hint = f"vgpumgr passthrough bind {chosen.address}"
            return Judgement(Verdict.IN_USE, tuple(concerns), "the host uses it", hint)
        return None

    def _describe_group(self, number: int, members: Sequence[Function]) -> GroupDocument:
        gpu = next((f for f in members if f.is_gpu), None)
        judged = self._judge(members, gpu)
        return GroupDocument(
            number=number,
            members=[self._describe(f) for f in members],
            **_describe_judgement(judged),
        )

    def _describe(self, function: Function) -> FunctionDocument:
        model = self.observed.name_gpu(function.address).model
        binding = self.observed.find_bound(function.address)
        return FunctionDocument.of(
            function,
            model=model or _name(function.vendor_id, function.device_id),
            vendor_id=f"{function.vendor_id:04x}",
            device_id=f"{function.device_id:04x}",
            iommu_group=function.group,
            users=[str(user) for user in self.observed.users.get(function.address, ())],
            binding=BindingDocument.of(binding) if binding else None,
        )

    def _describe_physical(
        self, function: Function, quotas: Sequence[Mapping[str, str]], support: VfSupport
    ) -> PhysicalDocument:
        method, why_not = _describe_method(function, support)
        shares = support.shares_mib
        model = self.observed.name_gpu(function.address).model
        values = dict(enumerate(quotas))
        return PhysicalDocument(
            address=str(function.address),
            model=model or _name(function.vendor_id, function.device_id),
            driver=function.driver,
            total=support.total,
            count=len(function.vfs),
            method=method,
            why_not=why_not,
            persist=function.address in self._persistent,
            vfs=[
                self._describe_vf(index, address, values.get(index, {}), shares.get(address))
                for index, address in enumerate(function.vfs)
            ],
        )

    def _describe_vf(
        self, index: int, address: PciAddress, quotas: Mapping[str, str], share_mib: int | None
    ) -> VfDocument:
        vf = self._functions.get(address)
        return VfDocument(
            index=index,
            address=str(address),
            driver=vf.driver if vf else None,
            iommu_group=vf.group if vf else None,
            users=[str(user) for user in self.observed.users.get(address, ())],
            configured=list(self.observed.configured.get(address, ())),
            quotas=dict(quotas),
            framebuffer_bytes=None if share_mib is None else share_mib << 20,
        )

    def _list_notes(self) -> list[str]:
        overrides = [w for w in self.observed.kernel_words if w.startswith(ACS_OVERRIDE)]
        if self.has_iommu and overrides:
            what = f"the kernel was started with {overrides[0]}"
            return [
                *self.notes,
                f"{what}: IOMMU groups are as it claims, not as the hardware isolates",
            ]
        if self.has_iommu or not self.observed.functions:
            return list(self.notes)
        why, hint = explain_no_iommu(self.observed.kernel_words)
        return [*self.notes, f"no function can go to a VM: {why}; {hint}"]


def _describe_judgement(judged: Judgement) -> dict[str, Any]:
    return {
        "verdict": judged.verdict.value,
        "blockers": [str(blocker) for blocker in judged.blockers],
        "why": judged.why,
        "hint": judged.hint,
    }


def _describe_method(function: Function, support: VfSupport) -> tuple[VfMethod | None, str | None]:
    """How the number of its virtual functions is set, or why it cannot be."""
    try:
        check_vf_parent(function, support)
    except VgpumgrError as error:
        return None, error.why or error.error
    return find_driver(function).method, None
