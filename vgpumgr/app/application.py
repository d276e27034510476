"""The application: every operation as a method that answers a document.

The command line calls it in its own process as long as no daemon answers; the daemon's REST API is
the same methods. What only some operations need is loaded by those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpumgr.errors import FileWriteError, LibraryNotFoundError, LockHeldError
from vgpumgr.errors.unexpected import advise_installation
from vgpumgr.host.helper import HelperOnDemand
from vgpumgr.host.kernel_log import KernelLog
from vgpumgr.host.limits import check_limits, raise_descriptor_limit
from vgpumgr.host.lock import DAEMON_LOCK, find_holder
from vgpumgr.host.machine import LIB_DIR, Machine, find_machine
from vgpumgr.mig.selection import check_visible, select_any
from vgpumgr.model.gpu import Inventory, PciGpu, find_drain, list_drains
from vgpumgr.model.routes import IMPLEMENTATIONS
from vgpumgr.nvml.client import NvmlClient

if TYPE_CHECKING:
    from vgpumgr.app.context import Parts
    from vgpumgr.app.documents.attachments import GuestPackageDocument
    from vgpumgr.app.documents.gpus import (
        GpuDocument,
        GpuListDocument,
        GpuShowDocument,
        MachineDocument,
        MigListDocument,
        MigProfilesDocument,
        Owners,
    )
    from vgpumgr.app.documents.operations import (
        CheckListDocument,
        CheckShowDocument,
        MetricsDocument,
        RecoverDocument,
        RepairListDocument,
    )
    from vgpumgr.app.metrics import MetricsService
    from vgpumgr.app.operations.recovery import Policy, Release
    from vgpumgr.model.gpu import Gpu, Inventory
    from vgpumgr.planning.snapshot import Snapshot


def find_operation(name: str) -> Callable[..., Any]:
    """The function of an operation, whose first parameter is no parameter of the operation. Raises KeyError."""
    own: Callable[..., Any] | None = getattr(Application, name, None)
    return own or _find(IMPLEMENTATIONS[name])


def _find(place: str) -> Any:
    module, *names = place.split(".")
    found: Any = import_module(f"vgpumgr.app.operations.{module}")
    for name in names:
        found = getattr(found, name)
    return found


class Application:
    """All operations on one machine; parameters and answers are plain data, as over HTTP.

    The operations in the table of routes are methods: ``application.attach(vm="vm01", profile="1g.10gb")``.
    """

    def __init__(
        self, machine: Machine, parts: Parts, metrics: MetricsService | None = None
    ) -> None:
        self.machine = machine
        self.parts = parts
        self._metrics = metrics

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """An operation of ``IMPLEMENTATIONS``, loaded now."""
        if name not in IMPLEMENTATIONS:
            raise AttributeError(name)
        owner, _, method = IMPLEMENTATIONS[name].rpartition(".")
        if "." not in owner:
            return partial(_find(IMPLEMENTATIONS[name]), self.parts)
        operation: Callable[..., Any] = getattr(_find(owner)(self.parts), method)
        return operation

    def list_gpus(self) -> GpuListDocument:
        """Every GPU with instances, owners and processes, and the VMs that have devices of it."""
        from vgpumgr.app.documents.gpus import (
            GpuListDocument,
            LostGpuDocument,
            describe_gpu,
            describe_health,
            describe_pci_gpu,
            mark_drained,
        )

        inventory = self.parts.read_inventory()
        owners = self._index_owners(inventory.gpus)
        drains = list_drains(self.parts.store, inventory.gpus)
        health = partial(describe_health, drains=drains, known=self.parts.store.list_health())
        sensors = self.parts.read_sensors([gpu.address for gpu in inventory.others])
        document = GpuListDocument(
            machine=self._describe_machine(inventory),
            gpus=[describe_gpu(gpu, owners).replace(health=health(gpu)) for gpu in inventory.gpus],
            others=[describe_pci_gpu(gpu, sensors.get(gpu.address)) for gpu in inventory.others],
            lost=[
                LostGpuDocument(index=lost.index, nvml_code=lost.code, nvml_text=lost.text)
                for lost in inventory.lost
            ],
        )
        if drains:
            document = mark_drained(document, drains)
        document = self._add_shares(inventory, document)
        records = self.parts.store.list_attachments()
        has_devices = inventory.has_vgpu_parents or any(gpu.vfs for gpu in inventory.gpus)
        if not (has_devices or document.others or any(record.host_devices for record in records)):
            return document
        from vgpumgr.app.host_observation import index_devices, name_holders, name_models

        devices = index_devices(self.parts, inventory, records)
        return name_holders(name_models(self.parts, document), records, devices)

    def show_gpu(self, selector: str) -> GpuShowDocument:
        """One GPU with every profile and what still fits, the VMs that have devices of it, and holders of
        its device files. Raises GpuNotFoundError, GpuAmbiguousError.
        """
        from vgpumgr.app.documents.gpus import (
            GpuShowDocument,
            describe_drain,
            describe_gpu,
            describe_health,
            describe_pci_gpu,
            describe_profile,
        )
        from vgpumgr.app.host_observation import measure_vfs, name_holders_of

        inventory = self.parts.read_inventory()
        drains = list_drains(self.parts.store, inventory.gpus)
        machine = self._describe_machine(inventory)
        gpu = select_any(inventory, selector)
        if isinstance(gpu, PciGpu):
            other = gpu
            drained = describe_drain(find_drain(drains, other.address))
            sensors = self.parts.read_sensors([other.address]).get(other.address)
            known = describe_pci_gpu(other, sensors).replace(drained=drained)
            document = GpuShowDocument(machine=machine, gpu=None, other=known, profiles=[])
            document = name_holders_of(self.parts, inventory, document)
            return document.replace(vf_capacity=measure_vfs(self.parts, other, document.other))
        drain = find_drain(drains, gpu.pci, gpu.uuid)
        seen = describe_gpu(gpu, self._index_owners([gpu]))
        health = describe_health(gpu, drains, self.parts.store.list_health())
        (described,) = self._describe_shares(
            inventory, [seen.replace(drained=describe_drain(drain), health=health)]
        )
        document = GpuShowDocument(
            machine=machine,
            gpu=described,
            other=None,
            profiles=[describe_profile(gpu, profile, drain) for profile in gpu.profiles],
        )
        document = name_holders_of(self.parts, inventory, document)
        if not gpu.vfs_total and not inventory.has_vgpu_parents:
            return document
        from vgpumgr.app.operations.vgpus import describe_vgpu_types

        return document.replace(**describe_vgpu_types(self.parts, gpu))

    def _add_shares(self, inventory: Inventory, document: GpuListDocument) -> GpuListDocument:
        return document.replace(gpus=self._describe_shares(inventory, document.gpus))

    def _describe_shares(
        self, inventory: Inventory, documents: Sequence[GpuDocument]
    ) -> list[GpuDocument]:
        """With the shares of each GPU and its instances; the host is observed once for all of them."""
        from vgpumgr.app.documents.gpus import add_instance_shares
        from vgpumgr.app.documents.shares import describe_shares, make_snapshot
        from vgpumgr.planning.snapshot import Snapshot

        host = Snapshot(self.parts, gpus=inventory.gpus)
        snapshot = make_snapshot(host, inventory.has_vgpu_parents)
        gpus = {str(gpu.uuid): gpu for gpu in inventory.gpus}
        return [
            seen.replace(
                shares=describe_shares(
                    snapshot, gpus[seen.uuid], seen.drained.text if seen.drained else None
                ),
                instances=add_instance_shares(
                    snapshot.records, gpus[seen.uuid], seen.instances, seen.drained
                ),
            )
            for seen in documents
        ]

    def list_mig_instances(self, selector: str | None = None) -> MigListDocument:
        """Every MIG instance of all GPUs, or of one. Raises NotPermittedError for a user who would
        be shown none of them.
        """
        from vgpumgr.app.documents.gpus import (
            MigInstanceRow,
            MigListDocument,
            add_instance_shares,
            describe_drain,
            describe_instance,
        )

        gpus = self.parts.select_gpus(selector)
        owners = self._index_owners(gpus)
        check_visible(gpu for gpu in gpus if gpu.mig.current)
        records = self.parts.store.list_attachments()
        drains = list_drains(self.parts.store, gpus)
        rows = []
        for gpu in gpus:
            drain = describe_drain(find_drain(drains, gpu.pci, gpu.uuid))
            seen = [describe_instance(gpu, instance, owners) for instance in gpu.instances]
            rows += [
                MigInstanceRow(gpu_index=gpu.index, gpu_uuid=gpu.uuid, **vars(one))
                for one in add_instance_shares(records, gpu, seen, drain)
            ]
        return MigListDocument(instances=rows, note=None if rows else self._explain_none(gpus))

    def list_mig_profiles(self, selector: str | None = None) -> MigProfilesDocument:
        """Every MIG profile of all GPUs, or of one, with how many more fit now."""
        from vgpumgr.app.documents.gpus import MigProfileRow, MigProfilesDocument, describe_profile

        gpus = self.parts.select_gpus(selector)
        drains = list_drains(self.parts.store, gpus)
        found = {gpu.uuid: find_drain(drains, gpu.pci, gpu.uuid) for gpu in gpus}
        rows = [
            MigProfileRow(
                gpu_index=gpu.index,
                gpu_uuid=gpu.uuid,
                **vars(describe_profile(gpu, profile, found[gpu.uuid])),
            )
            for gpu in gpus
            for profile in gpu.profiles
        ]
        return MigProfilesDocument(profiles=rows, note=None if rows else self._explain_none(gpus))

    def _explain_none(self, gpus: Sequence[Gpu]) -> str | None:
        """Why these GPUs have nothing of MIG; None where MIG mode is on."""
        able = [gpu for gpu in gpus if gpu.mig.supported]
        if any(gpu.mig.current for gpu in able):
            return None
        if able:
            return f"MIG mode is off: vgpumgr mig enable {able[0].index}"
        models: list[str] = [gpu.model for gpu in gpus or self.parts.read_inventory().others]
        return f"no GPU here has MIG: {', '.join(sorted(set(models)))}"

    def _index_owners(self, gpus: Sequence[Gpu]) -> Owners:
        from vgpumgr.app.documents.gpus import index_owners

        return index_owners(self.parts.list_owners(gpus))

    def _describe_machine(self, inventory: Inventory) -> MachineDocument:
        from vgpumgr.app.documents.gpus import MachineDocument

        cuda = inventory.cuda_version
        return MachineDocument(
            name=self.machine.name,
            simulated=self.machine.is_simulated,
            driver_version=inventory.driver_version or None,
            nvml_version=inventory.nvml_version or None,
            cuda_version=f"{cuda[0]}.{cuda[1]}" if cuda else None,
        )

    def reconcile(
        self, policy: Policy, choose_releases: Callable[[Snapshot], Sequence[Release]]
    ) -> RecoverDocument:
        """See ``Recovery.recover``; what the daemon does by itself."""
        from vgpumgr.app.operations.recovery import Recovery

        return Recovery(self.parts).recover(policy, choose_releases, needs_libvirt=True)

    def list_attachment_ids(self, vm_uuid: str) -> list[str]:
        """What a VM has, by the attachments' ids."""
        return [r.id for r in self.parts.store.list_attachments() if r.vm_uuid == vm_uuid]

    def write_guest_package(self, target: str, *, image: bool = False) -> GuestPackageDocument:
        """Writes the archive that a VM needs, or an image of a CD with it. Raises LibraryNotFoundError,
        FileWriteError.
        """
        from vgpumgr.app.documents.attachments import GuestPackageDocument
        from vgpumgr.virtio.channel import ImageError, guest_files, write_archive

        try:
            guest_files(LIB_DIR)
        except FileNotFoundError as error:
            raise LibraryNotFoundError(
                "the guest part of vgpumgr is not installed",
                cause=f"there is no {error}",
                why="the package vgpumgr-host has it",
                hint=advise_installation(),
            ) from error
        try:
            files = write_archive(LIB_DIR, Path(target), image=image)
        except ImageError as error:
            raise FileWriteError(
                f"cannot write {target}",
                cause=str(error),
                hint="install the package xorriso (Debian, RHEL); or --format tar",
            ) from error
        except OSError as error:
            raise FileWriteError(f"cannot write {target}", cause=str(error)) from error
        return GuestPackageDocument(path=target, files=files)

    def check_host(
        self, checks: str | None = None, client_version: str | None = None
    ) -> CheckListDocument:
        """See ``doctor.check_host``; it changes nothing."""
        from vgpumgr.app.operations.doctor import check_host

        lock = self.machine.run_dir / DAEMON_LOCK
        return check_host(self.machine, self.parts, lock, checks, client_version)

    def repair_host(
        self, checks: str, expected: Sequence[str] | None = None, *, dry_run: bool = False
    ) -> RepairListDocument:
        """See ``doctor.repair_host``. No route: the daemon's unit may not change the host."""
        from vgpumgr.app.operations.doctor import repair_host

        lock = self.machine.run_dir / DAEMON_LOCK
        return repair_host(self.machine, self.parts, lock, checks, expected, dry_run=dry_run)

    def explain_check(self, selector: str) -> CheckShowDocument:
        """See ``doctor.explain_check``."""
        from vgpumgr.app.operations.doctor import explain_check

        return explain_check(selector)

    def record_logged(self) -> None:
        """Records Xids that no daemon has heard, from the kernel's log, which is root's."""
        if not self.parts.is_privileged:
            return
        with closing(KernelLog(self.machine)) as log:
            if logged := log.read():
                from vgpumgr.app.operations.gpus import record_logged

                record_logged(self.parts, log, logged)

    def read_metrics(self, **asked: Any) -> MetricsDocument:
        """See ``MetricsService.read_metrics``."""
        assert self._metrics is not None
        return self._metrics.read_metrics(**asked)


@contextmanager
def open_application(machine_name: str | None) -> Iterator[Application]:
    """The application for the machine of that name (None: as the environment says)."""
    # what is started here (a channel's worker) inherits it
    raise_descriptor_limit()
    machine = find_machine(machine_name)
    # NVML's helper loads the driver's library while the rest is loaded here
    helper = HelperOnDemand(machine, "vgpumgr.nvml.helper")
    helper.start_early()
    with NvmlClient(machine, helper=helper) as nvml, ExitStack() as stack:
        from vgpumgr.app.context import defer, open_parts

        parts = stack.enter_context(open_parts(machine, nvml))
        metrics = defer(lambda: stack.enter_context(_open_metrics(machine)))
        yield Application(machine, parts, metrics)


@contextmanager
def _open_metrics(machine: Machine) -> Iterator[MetricsService]:
    from vgpumgr.app.metrics_source import open_metrics

    with open_metrics(machine) as metrics:
        yield metrics


def check_change(run_dir: Path) -> None:
    """Checks what every change in this process needs. Raises LockHeldError, HostResourceError.

    A daemon is the only writer. One that starts after this check is harmless: each change holds the
    machine's own lock, too.
    """
    check_limits()
    path = run_dir / DAEMON_LOCK
    holder = find_holder(path)
    if holder is not None:
        raise LockHeldError(
            "a daemon owns this machine, and does not answer",
            cause=f"flock {path}: held",
            held_by=[holder],
            hint="systemctl restart vgpumgr",
        )
