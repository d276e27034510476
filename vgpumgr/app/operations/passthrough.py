"""Passthrough and virtual functions as operations: listings and changes."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Literal, cast

from vgpumgr.app.context import Parts
from vgpumgr.app.documents.base import list_steps
from vgpumgr.app.documents.functions import (
    Change,
    GroupListDocument,
    PassthroughListDocument,
    PciChangeDocument,
    PciView,
    VfListDocument,
)
from vgpumgr.app.operations.pci_recovery import execute_pci
from vgpumgr.app.transactions import open_change
from vgpumgr.engine.step import Plan
from vgpumgr.errors import NvmlMissingError, PciBusyError, PciNotFoundError, VgpumgrError
from vgpumgr.host.pci_tree import name_pci_device
from vgpumgr.model.attachment import AttachmentRecord, HostDeviceKind
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.pci import Binding, Function, PciAddress, Release, User, UserKind, find_function
from vgpumgr.passthrough.selection import KnownGpu, is_index, select_function
from vgpumgr.planning.passthrough import BindRequest, Companions, plan_bind, plan_unbind
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vfs import VfRequest, plan_no_vfs, plan_vfs

Make = Callable[[Snapshot, Function], Plan]


class PassthroughService:
    """The operations on PCI functions of one machine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def list_functions(self) -> PassthroughListDocument:
        """GPUs of all vendors and their virtual functions, and whether they can go to a VM."""
        view = self._observe()
        pci = self._parts.pci
        gpus = [f.address for f in view.observed.functions if f.is_gpu]
        return view.describe_functions({a: pci.read_condition(a) for a in gpus})

    def list_groups(self, *, all_groups: bool = False) -> GroupListDocument:
        """IOMMU groups with a GPU in them, or all."""
        return self._observe(everything=all_groups).describe_groups(all_groups=all_groups)

    def list_vfs(self, *, selector: str | None = None) -> VfListDocument:
        """Functions that can have virtual functions, and who uses these."""
        view = self._observe(everything=True)
        chosen = None if selector is None else self._select(view, selector)
        pci = self._parts.pci
        # each takes a helper process: too slow for all
        quotas = pci.list_quotas(chosen.address, len(chosen.vfs)) if chosen else ()
        physicals = [chosen] if chosen else [f for f in view.observed.functions if f.vf_total]
        supports = {f.address: pci.observe_vfs(f) for f in physicals}
        return view.describe_vfs(physicals, quotas, supports)

    def bind(
        self,
        *,
        selector: str,
        driver: str | None = None,
        companions: Literal["vfio", "stub", "keep"] = "vfio",
        whole_group: bool = False,
        persist: bool | None = None,
        confirmed: bool = False,
        dry_run: bool = False,
    ) -> PciChangeDocument:
        """Takes a function from the host. Raises PciBusyError where it is in use and that is not
        confirmed.
        """
        request = BindRequest(driver, Companions(companions), whole_group, persist, confirmed)

        def make(observed: Snapshot, chosen: Function) -> Plan:
            addresses = [f.address for f in observed.functions if not f.is_bridge]
            variants = self._parts.pci.list_variants(addresses)
            plan = plan_bind(observed.replace(variants=variants), chosen, request)
            plan = replace(plan, notes=(*plan.notes, *self._describe_condition(chosen)))
            if not dry_run and persist is not None:
                self._remember(plan, persist)
            return plan

        return self._change(selector, make, confirmed, dry_run)

    def _describe_condition(self, chosen: Function) -> list[str]:
        """What is to be known of a function that a VM will have."""
        condition = self._parts.pci.read_condition(chosen.address)
        if condition.reset_methods != () or chosen.physical is not None:
            return []
        return [
            f"{chosen.address} has no reset: what one VM leaves in it, the next one finds,"
            " and a hung one stays hung until the host's power is off"
        ]

    def unbind(
        self,
        *,
        selector: str,
        driver: str | None = None,
        only: bool = False,
        confirmed: bool = False,
        dry_run: bool = False,
    ) -> PciChangeDocument:
        """Gives a function back to the driver of before."""
        make = partial(plan_unbind, driver=driver, only=only, confirmed=confirmed)
        return self._change(selector, make, confirmed, dry_run, may_be_gone=True)

    def enable_vfs(
        self,
        *,
        selector: str,
        count: int | None = None,
        persist: bool = False,
        quotas: Mapping[str, int | str] = MappingProxyType({}),
        confirmed: bool = False,
        dry_run: bool = False,
    ) -> PciChangeDocument:
        """Makes virtual functions."""
        request = VfRequest(count, persist, tuple(quotas.items()))

        def make(observed: Snapshot, chosen: Function) -> Plan:
            pci = self._parts.pci
            if request.quotas:
                pci.check_quotas(chosen.address, request.quotas)
            return plan_vfs(observed, chosen, request, pci.observe_vfs(chosen))

        return self._change(selector, make, confirmed, dry_run)

    def disable_vfs(
        self, *, selector: str, confirmed: bool = False, dry_run: bool = False
    ) -> PciChangeDocument:
        """Removes all virtual functions of a physical one."""

        def make(observed: Snapshot, chosen: Function) -> Plan:
            return plan_no_vfs(observed, chosen, self._parts.pci.observe_vfs(chosen))

        return self._change(selector, make, confirmed, dry_run)

    def _change(
        self,
        selector: str,
        make: Make,
        confirmed: bool,
        dry_run: bool,
        *,
        may_be_gone: bool = False,
    ) -> PciChangeDocument:
        def plan() -> Plan:
            view = self._observe(everything=True)
            seen = view.observed
            gone = _find_gone(seen.functions, seen.bindings, selector) if may_be_gone else None
            made = make(seen, gone or self._select(view, selector, taken=may_be_gone))
            if not dry_run and not confirmed:
                _check_confirmed(made)
            return made

        if dry_run:
            return _describe(plan(), (), dry_run=True)
        with open_change(self._parts, "change PCI functions") as transaction:
            made = plan()
            execute_pci(self._parts, transaction, made)
        return _describe(made, transaction.notes, dry_run=False)

    def _remember(self, plan: Plan, persist: bool) -> None:
        """What is taken already is taken at every boot from now on, or no longer."""
        pci = self._parts.pci
        kept = cast(list[str], plan.result["kept"])
        for binding in pci.list_bindings():
            if str(binding.address) in kept:
                pci.save_binding(replace(binding, persist=persist))

    def _select(self, view: PciView, selector: str, *, taken: bool = False) -> Function:
        """``taken``: what was taken goes before others of its name, but for an index: that of one that was
        taken may be another's now, and either may be meant.
        """
        functions, gpus = view.observed.functions, view.gpus
        ours = [gpu for gpu in gpus if view.observed.find_bound(gpu.address)]
        if taken and ours and not is_index(selector):
            with contextlib.suppress(PciNotFoundError):
                return select_function(functions, ours, selector)
        return select_function(functions, gpus, selector)

    def _observe(self, *, everything: bool = False) -> PciView:
        """The snapshot of the operations. What NVML or libvirt does not report now is left out, and
        noted.
        """
        parts, notes = self._parts, []
        pci = parts.pci
        functions = pci.list_functions()
        gpus: Sequence[Gpu] = ()
        try:
            gpus = parts.read_inventory().gpus
        except NvmlMissingError:
            gpus = ()  # a host whose GPUs are all with VMs has no NVML
        except VgpumgrError as error:
            notes.append(f"NVML: {error}")
        relevant = [f for f in functions if everything or f.is_gpu or not f.is_free]
        users = dict(pci.list_users([f for f in relevant if not f.is_bridge]))
        running, configured = self._list_vm_functions(notes)
        for address, names in running.items():
            _add(users, address, [User(UserKind.PROCESS, f'vm "{name}"') for name in names])
        for gpu in gpus:
            known = {user.pid for user in users.get(gpu.pci, ())}
            more = [p for p in gpu.processes if p.pid not in known]
            _add(users, gpu.pci, [User(UserKind.PROCESS, str(p), p.pid) for p in more])
        holders = _find_holders(parts, gpus)
        observed = Snapshot(
            parts,
            functions=functions,
            gpus=gpus,
            users=users,
            holders=holders.texts,
            releases=holders.releases,
            ours=holders.vgpus,
            configured=configured,
            boot_id=pci.boot_id,
        )
        return PciView(observed, _list_known(observed), notes)

    def _list_vm_functions(
        self, notes: list[str]
    ) -> tuple[dict[PciAddress, list[str]], dict[PciAddress, list[str]]]:
        """Names of VMs by the functions that they have while running, and in their definition."""
        running: dict[PciAddress, list[str]] = {}
        configured: dict[PciAddress, list[str]] = {}
        try:
            vms = self._parts.hypervisor.list_vms()
        except VgpumgrError as error:
            notes.append(f"libvirt: {error}")
            return running, configured
        for vm in vms:
            for domain, found in ((vm.live, running), (vm.config, configured)):
                for device in domain.pci_hostdevs if domain else ():
                    if (at := device.source) is not None:
                        address = PciAddress(at.domain, at.bus, at.slot, at.function)
                        found.setdefault(address, []).append(vm.name)
        return running, configured


def _find_gone(
    functions: Sequence[Function], bindings: Sequence[Binding], text: str
) -> Function | None:
    """The function of a binding that has left the bus, by its address."""
    try:
        address = PciAddress.parse(text)
    except ValueError:
        return None
    known = next((b for b in bindings if b.address == address), None)
    if known is None or find_function(functions, address) is not None:
        return None
    return Function(address, known.vendor_id, known.device_id, 0)


def _check_confirmed(plan: Plan) -> None:
    concerns = plan.result["concerns"]
    assert isinstance(concerns, list)
    if concerns:
        raise PciBusyError(
            f"{plan.subject} is in use",
            why="its users lose it, and the kernel may wait until they close it",
            held_by=concerns,
            hint="stop them, or repeat with --yes",
        )


def _describe(plan: Plan, notes: Sequence[str], *, dry_run: bool) -> PciChangeDocument:
    result = dict(plan.result)
    concerns = cast(list[str], result.pop("concerns"))
    result.pop("kept", None)
    return PciChangeDocument(
        change=cast(Change, plan.operation),
        subject=plan.subject,
        dry_run=dry_run,
        steps=list_steps(plan),
        concerns=concerns,
        result=result,
        notes=[*plan.notes, *notes],
    )


def _add(
    users: dict[PciAddress, tuple[User, ...]], address: PciAddress, more: Sequence[User]
) -> None:
    if more:
        users[address] = (*users.get(address, ()), *more)


def _list_known(observed: Snapshot) -> list[KnownGpu]:
    """What each GPU is called; without NVML's word for its model, as the PCI database has it."""
    named = [(f, observed.name_gpu(f.address)) for f in observed.functions]
    return [
        replace(known, model=known.model or name_pci_device(f.vendor_id, f.device_id))
        for f, known in named
        if f.is_gpu and f.physical is None
    ]


class _Holders:
    """Attachments and vGPUs by the functions that they are on, and what removes them."""

    def __init__(self) -> None:
        self.texts: dict[PciAddress, tuple[str, ...]] = {}
        self.releases: dict[PciAddress, tuple[Release, ...]] = {}
        self.vgpus: set[str] = set()

    def add(self, address: PciAddress, text: str, release: Release) -> None:
        """Each text once: a VM may have several of a kind."""
        self.texts[address] = tuple(dict.fromkeys([*self.texts.get(address, ()), text]))
        self.releases[address] = (*self.releases.get(address, ()), release)


def _find_holders(parts: Parts, gpus: Sequence[Gpu]) -> _Holders:
    found = _Holders()
    by_uuid = {str(gpu.uuid): gpu.pci for gpu in gpus}
    records = parts.store.list_attachments()
    counts = Counter(record.vm_uuid for record in records)
    for record in records:
        count, vm = counts[record.vm_uuid], record.vm_word
        one = f" --attachment {record.id}" if count > 1 else ""
        release = Release(f"vgpumgr detach {vm}{one}", record.vm_name, count)
        found.vgpus |= {d.vgpu.uuid for d in record.host_devices if d.vgpu and d.vgpu.uuid}
        for address in _list_places(record, by_uuid.get(str(record.gpu))):
            found.add(address, f'vm "{record.vm_name}" ({record.profile})', release)
    for vgpu in parts.vgpu_store.list_vgpus():
        parent = PciAddress.read(vgpu.spec.parent)
        # a driver without a device, such as mtty, is on no function
        if vgpu.takes_room and vgpu.boot == parts.boot_id and parent is not None:
            found.vgpus.add(vgpu.spec.uuid)
            if vgpu.attachment is None:
                delete = Release(f"vgpumgr mdev delete {vgpu.spec.uuid}")
                found.add(parent, f"vGPU {vgpu.spec.uuid}", delete)
    return found


def _list_places(record: AttachmentRecord, gpu: PciAddress | None) -> set[PciAddress]:
    """The functions that it has; of a slice or a mediated device the GPU, and what it is made on."""
    devices = record.host_devices
    functions = {d.address for d in devices if d.kind is not HostDeviceKind.MDEV and d.address}
    parents = {PciAddress.read(d.vgpu.parent) for d in devices if d.vgpu is not None}
    return functions or {address for address in {gpu, *parents} if address is not None}
