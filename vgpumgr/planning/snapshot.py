"""One snapshot of the host: what planners decide from, observed lazily and at most once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from vgpumgr.errors import (
    GpuDrainedError,
    GpuUnhealthyError,
    NoRoomError,
    NvmlMissingError,
    PciNotFoundError,
    VgpumgrError,
)
from vgpumgr.model.choices import Numa
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import find_drain, list_drains
from vgpumgr.model.pci import find_function
from vgpumgr.passthrough.selection import KnownGpu
from vgpumgr.planning.leased import PoolDrain, explain_leased
from vgpumgr.planning.reservations import is_reserved, list_reservations, reserve

if TYPE_CHECKING:
    from vgpumgr.domain.hypervisor import Vm
    from vgpumgr.model.attachment import AttachmentRecord, SliceOwner
    from vgpumgr.model.gpu import Drain, Gpu
    from vgpumgr.model.identity import GpuUuid
    from vgpumgr.model.mig import DesiredLayout, GpuInstance, Placement
    from vgpumgr.model.pci import Binding, Function, PciAddress, Release, User, VfSetting
    from vgpumgr.model.vgpu import (
        VgpuBoard,
        VgpuDefinition,
        VgpuHost,
        VgpuInstance,
        VgpuRecord,
        VgpuSpec,
    )
    from vgpumgr.planning.host import Host
    from vgpumgr.planning.reservations import Reservation
    from vgpumgr.state.leases import SeenPool
    from vgpumgr.virtio.channel import ChannelStatus


@dataclass(frozen=True, slots=True)
class NumaPolicy:
    """The nodes that a VM is bound to (none: anywhere), and whether it takes no others."""

    nodes: frozenset[int] = frozenset()
    strict: bool = False

    @classmethod
    def of(cls, numa: str, nodes: Collection[int]) -> NumaPolicy:
        """What ``--numa prefer|strict|off`` makes of a VM's nodes."""
        return cls() if numa == Numa.OFF else cls(frozenset(nodes), numa == Numa.STRICT)

    def is_far(self, node: int | None) -> bool:
        """Whether the VM is bound to other nodes than this; None is a node that nobody knows."""
        return bool(self.nodes) and node not in self.nodes

    def is_refused(self, node: int | None) -> bool:
        """Whether nothing on this node may be taken."""
        return self.strict and self.is_far(node)

    def describe(self, node: int | None, none: str | None = "none") -> str:
        """What a device on that node means to the VM. ``none``: what is not free on its own; None: it was named."""
        if not self.is_far(node):
            return f"; on the VM's NUMA node {node}" if self.nodes else ""
        where = "no known NUMA node" if node is None else f"NUMA node {node}"
        if none is None:
            return f"; on {where}, as --gpu asks: the VM's is {self._names()}"
        return f"; on {where}: {none} on the VM's ({self._names()}) is free"

    def explain(self, where: Collection[str], what: str = "GPU") -> NoRoomError:
        """The refusal where nothing is near; ``where`` says what there is, and on which nodes."""
        return NoRoomError(
            f"no {what} is on its NUMA nodes",
            why=f"it is bound to node {self._names()}; {', '.join(where)}",
            hint="--numa prefer takes one elsewhere",
        )

    def _names(self) -> str:
        return ", ".join(map(str, sorted(self.nodes)))


T = TypeVar("T")


class observed(Generic[T]):  # noqa: N801 (used as a decorator)
    """A part that is read from the host once, for a snapshot and all that are made from it."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, snapshot: Snapshot, owner: type | None = None) -> T:
        if snapshot is None:
            return self
        if self._name not in snapshot.seen:
            snapshot.seen[self._name] = self._read(snapshot)
        found: T = snapshot.seen[self._name]
        return found


class Snapshot:
    """The host as it is when an operation is planned.

    A part is observed when a planner first asks for it, and stays as it was then: planning a forwarded
    slice asks NVML alone. ``known`` are parts that are given instead of observed. Without a host what
    is not given is empty: so tests make one.
    """

    def __init__(self, host: Host | None = None, **known: Any) -> None:
        self._host = host
        #: what was observed, by the part's name
        self.seen: dict[str, Any] = {}
        self._put(known)

    def _put(self, known: Mapping[str, Any]) -> None:
        for name in known:
            if not hasattr(type(self), name):
                raise TypeError(f"a snapshot has no {name}")
        self.__dict__.update(known)

    def replace(self, **known: Any) -> Self:
        """The snapshot with other parts; what was observed already stays as it is."""
        changed = copy(self)
        changed._put(known)
        return changed

    # --- recorded

    @observed
    def records(self) -> Sequence[AttachmentRecord]:
        """Attachments."""
        return self._host.store.list_attachments() if self._host else ()

    @observed
    def layouts(self) -> Mapping[str, DesiredLayout]:
        """The layouts that were applied, by the GPU's UUID."""
        return self._host.store.read_layouts() if self._host else {}

    @observed
    def drains(self) -> Sequence[Drain]:
        """GPUs that take no new slice; what a restore brings back is not new."""
        if self._host is None:
            return ()
        with suppress(VgpumgrError):  # what needs NVML says itself that it does not answer
            return list_drains(self._host.store, self.gpus)
        return self._host.store.list_drains()

    def find_drain(self, address: PciAddress | None) -> Drain | None:
        """The drain of the GPU at an address; None: it takes slices."""
        if not (self.drains or self.leased) or address is None:
            return None
        gpu = self.find_gpu(address)
        drain = find_drain(self.drains, address, str(gpu.uuid) if gpu else None)
        uuid = str(gpu.uuid) if gpu else self._find_bound_uuid(address)
        claims = self.leased.get(uuid or "")
        return drain or (PoolDrain.make(address, str(uuid), claims) if claims else None)

    def _find_bound_uuid(self, address: PciAddress) -> str | None:
        """Of a GPU that NVML does not see, as it is bound away."""
        binding = self.find_binding(address)
        return binding.gpu_uuid if binding is not None else None

    def check_not_drained(self, refusal: str, *addresses: PciAddress | None) -> None:
        """Raises GpuDrainedError if there are GPUs, and all of them are drained; it begins with ``refusal``."""
        drains = [drain for one in addresses if (drain := self.find_drain(one)) is not None]
        if not drains or len(drains) < len(addresses):
            return
        gpus = {drain: self.find_gpu(drain.address) for drain in drains}
        names = [str(gpu or f"GPU {drain.address}") for drain, gpu in gpus.items()]
        told = [str(drain) for drain in gpus]
        if len(gpus) > 1:
            told = [f"{name}: {text}" for name, text in zip(names, told, strict=True)]
        if claims := [drain for drain in gpus if isinstance(drain, PoolDrain)]:
            is_leased = [isinstance(drain, PoolDrain) for drain in gpus]
            leased = [name for name, here in zip(names, is_leased, strict=True) if here]
            others = [text for text, here in zip(told, is_leased, strict=True) if not here]
            raise explain_leased(refusal, leased, claims, others)
        is_ill = all(drain.fault is not None for drain in drains)
        kind, state = (GpuUnhealthyError, "unhealthy") if is_ill else (GpuDrainedError, "drained")
        state = f"{' and '.join(names)} {'is' if len(gpus) == 1 else 'are'} {state}"
        raise kind(
            f"{refusal}: {state}" if refusal else state,
            why=f"{'; '.join(told)}; until it is resumed a GPU takes no new slice",
            hint="; ".join(d.describe_end(g.index if g else d.address) for d, g in gpus.items()),
        )

    @observed
    def vgpu_records(self) -> Sequence[VgpuRecord]:
        """vGPUs of ours, of attachments or not."""
        from vgpumgr.mdev.records import read_records  # which a change of layout does not need

        return read_records(self._host.vgpu_store, self._host.vgpus) if self._host else ()

    @observed
    def pool(self) -> SeenPool | None:
        """The pool as this host knew it last; None: it is in none, or has not served."""
        return self._host.leases.read_seen() if self._host else None

    @cached_property
    def boot_id(self) -> str:
        """The boot that the host is in."""
        return self._host.boot_id if self._host else ""

    @cached_property
    def claims(self) -> Sequence[VgpuSpec]:
        """vGPUs that take capacity as far as is recorded."""
        return [record.spec for record in self.vgpu_records if record.takes_room]

    @cached_property
    def instances(self) -> Sequence[VgpuInstance]:
        """GPU instances that were made for vGPUs, there or gone since a boot."""
        return [r.instance for r in self.vgpu_records if r.instance is not None]

    @cached_property
    def homes(self) -> Mapping[str, VgpuInstance | None]:
        """The GPU instances that were made for vGPUs, by the UUID of each that lives in one; None for
        one that has none, or whose own ended with an earlier boot: what stands there now may be
        anybody's.
        """
        homes = {
            device.vgpu.uuid: device.instance if record.instances_boot == self.boot_id else None
            for record in self.records
            for device in record.host_devices
            if device.vgpu is not None
        }
        known = [r for r in self.vgpu_records if r.takes_room]
        return homes | {r.spec.uuid: r.find_home(self.boot_id) for r in known}

    @cached_property
    def slices(self) -> Collection[tuple[GpuUuid | None, Placement | None]]:
        """GPU instances that VMs have by forwarding: by GPU and place."""
        return [(r.gpu, r.placement) for r in self.records if r.mig_part is not None]

    #: GPUs that the pool has leased to claims that are not this operation's, by UUID
    leased: Mapping[str, Sequence[str]] = {}
    #: GPUs on which a call has not come back, by UUID, and which
    stuck: Mapping[str, str] = {}
    #: GPU instances that an operation without an end has made or taken away: by GPU and place
    unsettled: Collection[tuple[GpuUuid, Placement]] = ()
    #: what the journal last said of attachments: whether they exist
    known: Mapping[str, bool] = {}
    #: attachments that an unfinished operation accounts for
    busy: frozenset[str] = frozenset()
    #: attachments whose device is not on the host, and what is missing
    absent: Mapping[str, str] = {}
    #: attachments of commands of the host that have ended
    ended: frozenset[str] = frozenset()
    #: who still has the devices of attachments that are half there
    held: Mapping[str, Sequence[str]] = {}

    # --- NVML

    @observed
    def gpus(self) -> Sequence[Gpu]:
        """NVML's GPUs; none on a host without NVML."""
        try:
            return self._host.read_inventory().gpus if self._host else ()
        except NvmlMissingError:
            return ()

    def require_gpus(self) -> Sequence[Gpu]:
        """NVML's GPUs. Raises NvmlMissingError where they cannot be known."""
        if "gpus" not in self.__dict__ and not self.seen.get("gpus") and self._host is not None:
            self.seen["gpus"] = self._host.read_inventory().gpus
        return self.gpus

    def list_gpus_of_slices(self) -> Sequence[Gpu]:
        """As ``require_gpus`` where an attachment has a slice of a GPU: without NVML nothing is decided
        about it.
        """
        has_slices = any(r.mig_part or r.share_part for r in self.records)
        return self.require_gpus() if has_slices else self.gpus

    @property
    def observed_gpus(self) -> Sequence[Gpu] | None:
        """NVML's GPUs if they were asked for; None: they were not."""
        known: Sequence[Gpu] | None = self.__dict__.get("gpus", self.seen.get("gpus"))
        return known

    @cached_property
    def reserved(self) -> Sequence[Gpu]:
        """The GPUs as if slices that are gone, and that a restore brings back, were there."""
        return reserve(self.gpus, self.records, self.instances)

    def list_reserved(self, address: PciAddress) -> list[GpuInstance]:
        """Slices of the GPU that are gone, and that a restore brings back."""
        gpu = next((gpu for gpu in self.reserved if gpu.pci == address), None)
        return [i for i in gpu.instances if is_reserved(i)] if gpu else []

    def find_gpu(self, address: PciAddress) -> Gpu | None:
        """NVML's GPU at an address."""
        return next((gpu for gpu in self.gpus if gpu.pci == address), None)

    def find_gpu_of(self, record: AttachmentRecord) -> Gpu | None:
        """The GPU of an attachment."""
        return next((gpu for gpu in self.gpus if gpu.uuid == record.gpu), None)

    # --- VMs

    #: whether libvirt may be asked; else no VM is known
    has_libvirt: bool = True

    @observed
    def vms(self) -> Sequence[Vm]:
        """All that libvirt knows."""
        return self._host.hypervisor.list_vms() if self._host and self.has_libvirt else ()

    def find_vm(self, uuid: str) -> Vm | None:
        """The VM of that UUID."""
        return next((vm for vm in self.vms if vm.uuid == uuid), None)

    #: the UUID of the VM that is to get devices
    vm_uuid: str | None = None
    #: what its NUMA nodes mean for the choice
    numa: NumaPolicy = NumaPolicy()

    # --- the PCI bus

    @observed
    def functions(self) -> Sequence[Function]:
        """All PCI functions."""
        return self._host.pci.list_functions() if self._host else ()

    @observed
    def bindings(self) -> Sequence[Binding]:
        """Functions that we took from their drivers."""
        return self._host.pci.list_bindings() if self._host else ()

    @observed
    def vf_settings(self) -> Sequence[VfSetting]:
        """Numbers of virtual functions that we set."""
        return self._host.pci.list_vf_settings() if self._host else ()

    #: attachments and vGPUs by the functions that they are on
    holders: Mapping[PciAddress, tuple[str, ...]] = {}
    #: what frees the functions from these holders
    releases: Mapping[PciAddress, Sequence[Release]] = {}
    #: UUIDs of mediated devices that these holders stand for
    ours: Collection[str] = ()
    #: VMs by the functions that their definitions name
    configured: Mapping[PciAddress, Sequence[str]] = {}
    #: what holds up the whole bus, in words
    stalls: Sequence[str] = ()

    @observed
    def kernel_words(self) -> Sequence[str]:
        """The kernel's parameters."""
        return self._host.pci.list_kernel_parameters() if self._host else ()

    @cached_property
    def focused(self) -> Sequence[Function]:
        """The functions whose users, regions and drivers are observed."""
        return self.functions

    def focus(self, functions: Sequence[Function]) -> Self:
        """The snapshot of which details are observed for these functions alone."""
        changed = self.replace(focused=functions)
        if self._host is not None:
            for name in ("users", "bars", "conventional", "variants", "takes_variants"):
                changed.__dict__.pop(name, None)
        return changed

    @cached_property
    def users(self) -> Mapping[PciAddress, tuple[User, ...]]:
        """Who uses a function now; those that nobody uses are left out."""
        return self._host.pci.list_users(self.focused) if self._host else {}

    @cached_property
    def bars(self) -> Mapping[PciAddress, tuple[int, ...]]:
        """Sizes of memory BARs, where they are known."""
        return {f.address: self._read_bars(f) for f in self.focused} if self._host else {}

    def _read_bars(self, function: Function) -> tuple[int, ...]:
        assert self._host is not None
        try:
            return self._host.pci.list_bars(function.address)
        except PciNotFoundError:
            return ()

    @cached_property
    def conventional(self) -> Collection[PciAddress]:
        """Functions that are no PCI Express devices; virtual functions always are."""
        pci = self._host.pci if self._host else None
        if pci is None:
            return ()
        physical = (f.address for f in self.focused if f.physical is None)
        return {address for address in physical if pci.is_conventional(address)}

    @cached_property
    def variants(self) -> Mapping[PciAddress, str]:
        """Drivers that know more of a function than vfio-pci."""
        addresses = [f.address for f in self.focused]
        return self._host.pci.list_variants(addresses) if self._host else {}

    @cached_property
    def takes_variants(self) -> bool:
        """Whether libvirt takes such drivers; asked only where it matters, also of virtual functions
        that are not there yet.
        """
        makes = any(f.vf_total and not f.vfs for f in self.focused)
        if self._host is None or not self.has_libvirt or not (self.variants or makes):
            return True
        return self._host.hypervisor.takes_variant_drivers()

    @observed
    def iommufd(self) -> bool:
        """Whether devices are given by /dev/iommu: libvirt and the kernel have it."""
        host = self._host if self.has_libvirt else None
        return host is not None and host.has_iommufd() and host.hypervisor.offers_iommufd()

    @cached_property
    def numa_matters(self) -> bool:
        """Whether there is more than one NUMA node."""
        return len({f.numa_node for f in self.functions if f.numa_node is not None}) > 1

    @cached_property
    def taken(self) -> Mapping[PciAddress, str]:
        """Whose a function is, by record or by a VM's definition: in words."""
        taken = {address: str(vm) for address, vm in self._list_owned()}
        for record in self.records:
            for device in record.host_devices:
                if device.address is not None:
                    taken[device.address] = f'vm "{record.vm_name}" (attachment {record.id})'
        shared = self.gpus if any(record.share_part for record in self.records) else ()
        return taken | {gpu.pci: "; ".join(gpu.shared_by) for gpu in shared if gpu.shared_by}

    @cached_property
    def tenants(self) -> Mapping[PciAddress, str]:
        """UUIDs of the VMs that have functions, by record or by their definitions."""
        found = {address: vm.uuid for address, vm in self._list_owned()}
        devices = ((r, d) for r in self.records for d in r.host_devices)
        return found | {d.address: r.vm_uuid for r, d in devices if d.address}

    def _list_owned(self) -> Iterable[tuple[PciAddress, Vm]]:
        for vm in self.vms:
            for domain in (vm.config, vm.live):
                for device in domain.pci_hostdevs if domain else ():
                    if device.source is not None:
                        yield device.source.pci, vm

    def give(self, functions: Iterable[Function]) -> Self:
        """The host as it is to be once the VM has these, too."""
        addresses = [function.address for function in functions]
        mine = dict.fromkeys(addresses, self.vm_uuid or "")
        taken = dict.fromkeys(addresses, "this attach")
        return self.replace(taken={**self.taken, **taken}, tenants={**self.tenants, **mine})

    def find(self, address: PciAddress) -> Function | None:
        """The function at an address."""
        return find_function(self.functions, address)

    def find_binding(self, address: PciAddress) -> Binding | None:
        """How the function was taken from the host, in this boot or an earlier one."""
        return next((b for b in self.bindings if b.address == address), None)

    def find_bound(self, address: PciAddress) -> Binding | None:
        """How the function was taken from the host in this boot."""
        binding = self.find_binding(address)
        return binding if binding is not None and binding.boot_id == self.boot_id else None

    def find_wanted(self, address: PciAddress) -> Binding | None:
        """The binding of this boot, or one that was to come back at this boot and has not."""
        binding = self.find_binding(address)
        return binding if binding is not None and binding.persist else self.find_bound(address)

    def name_gpu(self, address: PciAddress) -> KnownGpu:
        """What NVML calls a GPU, or called it before it was taken."""
        gpu, known = self.find_gpu(address), self.find_binding(address)
        if gpu is not None:
            return KnownGpu(address, gpu.index, str(gpu.uuid), gpu.model)
        if known is None:
            return KnownGpu(address)
        return KnownGpu(address, known.gpu_index, known.gpu_uuid, known.model)

    def count_instances(self, address: PciAddress) -> int:
        """How many MIG instances a GPU has: they do not outlive its driver."""
        gpu = self.find_gpu(address)
        return len(gpu.instances) if gpu else 0

    def list_companions(self, function: Function) -> tuple[Function, ...]:
        """Functions of the same card that go with it: audio, USB. Another GPU goes only where the
        IOMMU cannot tell the two apart.
        """
        return tuple(
            f
            for f in self.functions
            if f.address != function.address
            and f.is_beside(function)
            and not f.is_bridge
            and (not f.is_gpu or f.group == function.group)
        )

    # --- vGPUs

    @observed
    def vgpus(self) -> VgpuHost:
        """Types, parents and devices, as the kernel has them."""
        from vgpumgr.model.vgpu import VgpuHost

        return self._host.vgpus.read_host() if self._host else VgpuHost()

    def has_vgpu(self, spec: VgpuSpec) -> bool:
        """Whether the kernel shows a vGPU of ours; where not all were read, only this one is asked for."""
        if self._host and "vgpus" not in self.seen and "vgpus" not in self.__dict__:
            device = self._host.vgpus.find_device(spec)
            return device is not None and device.is_of(spec)
        return any(device.is_of(spec) for device in self.vgpus.devices)

    #: who has a vGPU of ours, by its UUID
    vgpu_holders: Mapping[str, Sequence[str]] = {}
    #: the commands that make these let it go, where there is one
    vgpu_releases: Mapping[str, str] = {}

    @observed
    def definitions(self) -> Sequence[VgpuDefinition]:
        """mdevctl's definitions."""
        return self._host.vgpus.list_definitions() if self._host else ()

    @cached_property
    def reservations(self) -> Sequence[Reservation]:
        """Definitions of vGPUs that are not there."""
        return list_reservations(self.vgpu_records, self.definitions, self.vgpus)

    def find_board_gpu(self, board: VgpuBoard) -> Gpu | None:
        """NVML's side of a board."""
        return next((gpu for gpu in self.gpus if str(gpu.pci) == board.name), None)

    def find_reserved(self, gpu: Gpu) -> Gpu:
        """The GPU with the places that are reserved."""
        return next((known for known in self.reserved if known.uuid == gpu.uuid), gpu)

    def find_node(self, board: VgpuBoard) -> int | None:
        """The board's NUMA node, as its functions tell."""
        parents = self.vgpus.list_parents(board.name)
        return next((p.numa_node for p in parents if p.numa_node is not None), None)

    @observed
    def vgpu_owners(self) -> Sequence[SliceOwner]:
        """Whose vGPUs are in the GPU instances that there are."""
        cut = [gpu for gpu in self.gpus if gpu.mig.current and gpu.instances]
        there = self._host is not None and self._host.vgpus.may_have_devices()
        if not cut or not (there or self.vgpu_records):
            return ()
        from vgpumgr.planning.vgpu_instance import find_vgpu_owners

        return find_vgpu_owners(cut, self.vgpus, self.vgpu_records, self.records, self.boot_id)

    # --- channels

    @cached_property
    def statuses(self) -> Mapping[str, ChannelStatus | None]:
        """The channels of attachments, by id; None for one whose keeper does not run."""
        channels = self._host.channels if self._host else None
        return {r.id: channels.read_status(r.id) for r in self.records} if channels else {}

    @observed
    def channels(self) -> Sequence[str]:
        """The channels that are there."""
        return self._host.channels.list_ids() if self._host else ()
