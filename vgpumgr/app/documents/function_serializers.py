"""What there is to see of PCI functions, as documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from vgpumgr.app.documents.functions import (
    BindingDocument,
    FunctionDocument,
    GroupDocument,
    GroupListDocument,
    PassthroughListDocument,
    PassthroughRow,
    PhysicalDocument,
    VfDocument,
    VfListDocument,
)
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.pci_names import name_pci_device
from vgpumgr.model.functions import Condition, Function, VfMethod, VfSupport
from vgpumgr.model.pci import PciAddress
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
from vgpumgr.planning.passthrough import PciObserved
from vgpumgr.planning.vfs import check_vf_parent

_name = cache(name_pci_device)


class PciView:
    """Documents of one snapshot of the bus."""

    def __init__(
        self,
        observed: PciObserved,
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
        judged = self._judge(members)
        # whatever goes with a function is in its group or on its bus
        bus = self._buses[(function.address.domain, function.address.bus)]
        near = sorted({*members, *(f for f in bus if f.is_beside(function))}, key=_by_address)
        return PassthroughRow(
            **vars(self._describe(function)),
            gpu_index=known.index if known else None,
            gpu_uuid=known.uuid if known else None,
            companions=[str(f.address) for f in list_companions(near, function)],
            reset_methods=None
            if condition.reset_methods is None
            else list(condition.reset_methods),
            power_state=condition.power_state,
            verdict=judged.verdict.value,
            blockers=[str(blocker) for blocker in judged.blockers],
            why=judged.why,
            hint=judged.hint,
        )

    def _list_members(self, function: Function) -> tuple[Function, ...]:
        return (function,) if function.group is None else self._groups[function.group]

    def _judge(self, members: Sequence[Function]) -> Judgement:
        judged = judge_group(members, self.observed.users)
        if judged.verdict is Verdict.NO_IOMMU:
            why, hint = explain_no_iommu(self.observed.kernel_words)
            return Judgement(Verdict.NO_IOMMU, why=why, hint=hint)
        return judged

    def _describe_group(self, number: int, members: Sequence[Function]) -> GroupDocument:
        judged = self._judge(members)
        return GroupDocument(
            number=number,
            members=[self._describe(f) for f in members],
            verdict=judged.verdict.value,
            blockers=[str(blocker) for blocker in judged.blockers],
            why=judged.why,
            hint=judged.hint,
        )

    def _describe(self, function: Function) -> FunctionDocument:
        model = self.observed.models.get(function.address)
        binding = self.observed.find_binding(function.address)
        return FunctionDocument(
            address=str(function.address),
            kind=function.kind,
            model=model or _name(function.vendor_id, function.device_id),
            vendor_id=f"{function.vendor_id:04x}",
            device_id=f"{function.device_id:04x}",
            driver=function.driver,
            iommu_group=function.group,
            numa_node=function.numa_node,
            boot_display=function.boot_display,
            physical=str(function.physical) if function.physical else None,
            users=[str(user) for user in self.observed.users.get(function.address, ())],
            binding=BindingDocument(
                driver=binding.driver, previous=binding.previous, persist=binding.persist
            )
            if binding
            else None,
        )

    def _describe_physical(
        self, function: Function, quotas: Sequence[Mapping[str, str]], support: VfSupport
    ) -> PhysicalDocument:
        method, why_not = _describe_method(function, support)
        shares = support.shares_mib
        model = self.observed.models.get(function.address)
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


def _by_address(function: Function) -> PciAddress:
    return function.address


def _describe_method(function: Function, support: VfSupport) -> tuple[VfMethod | None, str | None]:
    """How the number of its virtual functions is set, or why it cannot be."""
    try:
        check_vf_parent(function, support)
    except VgpumgrError as error:
        return None, error.why or error.error
    return find_driver(function).method, None
