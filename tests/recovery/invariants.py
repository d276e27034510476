"""What must hold on a machine at rest, whatever happened before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from tests.recovery.world import World, read_layouts
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.planning.shares import measure_shares

#: the instance that a stranger made before anything else
STRANGER = 1


def list_violations(world: World) -> list[str]:
    """Everything that belongs to no attachment, and everything that an attachment lacks."""
    records = world.store.list_attachments()
    found = [text for record in records for text in _check_record(world, record)]
    found += _list_leaks(world, records)
    found += list_wrong_sums(world, records)
    if world.parts.open_journal().unfinished():
        found.append("the journal has unfinished operations")
    return found


def _check_record(world: World, record: AttachmentRecord) -> Iterator[str]:
    if record.state is not AttachmentState.ATTACHED:
        yield f"{record.id} is {record.state}"
    machine = world.hypervisor.machines[record.vm_uuid]
    known = {r.id for r in world.store.list_attachments() if r.vm_uuid == record.vm_uuid}
    aliases = machine.config.own_aliases() if machine.config else ()
    if not all(alias.split("-")[2] in known for alias in aliases):
        yield f"{record.vm_name} has devices of other attachments than {known}"
    if sum(record.id in alias for alias in aliases) != 2:
        yield f"{record.vm_name} lacks devices"
    if record.id not in [note.id for note in machine.notes]:
        yield f"{record.vm_name} lacks its note"
    if record.id not in world.channels.running:
        yield f"{record.id} has no keeper"
    spec = world.channels.specs.get(record.id)
    if spec is not None and spec.cuda_device != str(record.cuda_device):
        yield f"{record.id} is on {spec.cuda_device}, and {record.cuda_device} is recorded"
    if record.share_part is not None:
        yield from _list_wrong_share(world, record)
    if record.is_gpu_share:
        return
    instances = world.nvml.gpus[record.gpu].instances
    if not any(
        record.mig
        and i.id == record.mig.gpu_instance_id
        and i.placement == record.placement
        and {c.uuid for c in i.compute_instances} == _list_inside(world, record)
        for i in instances
    ):
        yield f"{record.id} has no slice"


def _list_wrong_share(world: World, record: AttachmentRecord) -> Iterator[str]:
    """What the channel keeps to, beside what is recorded."""
    part = record.share_part
    assert part is not None
    kept = world.channels.shares.get(record.id)
    if kept != (part.share.memory, part.share.compute):
        yield f"{record.id} keeps to {kept}, and {record.profile} is recorded"
    if world.channels.priorities.get(record.id) != part.priority:
        yield f"{record.id} has another priority than {part.priority}, which is recorded"
    if (
        record.profile.partition("@")[0] != str(part.share)
        or record.memory_bytes != part.share.memory
    ):
        yield f"{record.id} is recorded as {record.profile} and as {part.share}"


def list_wrong_sums(world: World, records: Sequence[AttachmentRecord]) -> Iterator[str]:
    """What shares of one GPU or one instance have together, and who turns MIG mode off again."""
    by_place: dict[tuple[GpuUuid, Placement | None], list[AttachmentRecord]] = {}
    for record in records:
        if record.share_part is not None and record.gpu is not None:
            by_place.setdefault((record.gpu, record.placement), []).append(record)
    for (uuid, place), mine in by_place.items():
        parts = [record.share_part for record in mine if record.share_part is not None]
        where = uuid if place is None else f"the instance at {place} of {uuid}"
        total = _find_total(world.nvml.gpus[uuid], mine[0])
        if sum(part.share.memory for part in parts) > total:
            yield f"shares of {where} have more memory together than its {total}"
        reserved = [Fraction(str(p.share.compute)) for p in parts if p.policy.reserves_time]
        if sum(reserved) > 100:
            yield f"shares of {where} have {float(sum(reserved))}% of its time together"
        if len({part.policy for part in parts}) > 1:
            yield f"shares of {where} have several policies"
        if place is not None and len({record.is_taken for record in mine}) > 1:
            yield f"shares of {where} disagree on whether the last one leaves it there"
    for uuid, count in Counter(r.gpu for r in records if r.mig_mode_enabled).items():
        if count > 1:
            yield f"{count} attachments are to turn MIG mode of {uuid} off"


def _find_total(gpu: Gpu, record: AttachmentRecord) -> int:
    """The memory for shares of what the record has one of."""
    if record.mig_part is None:
        return measure_shares(gpu, ()).total.memory
    wanted = record.mig_part.gpu_profile_id
    return next(profile.memory_bytes for profile in gpu.profiles if profile.id == wanted)


def _list_inside(world: World, record: AttachmentRecord) -> set[str]:
    """The compute instances that must be in the record's GPU instance."""
    place = (record.gpu, record.placement)
    records = world.store.list_attachments()
    return {r.mig.uuid for r in records if r.mig and (r.gpu, r.placement) == place}


def _list_leaks(world: World, records: tuple[AttachmentRecord, ...]) -> Iterator[str]:
    slices = {(r.gpu, r.mig.gpu_instance_id) for r in records if r.mig}
    for uuid, gpu in world.nvml.gpus.items():
        for instance in gpu.instances:
            if instance.id != STRANGER and (uuid, instance.id) not in slices:
                yield f"instance {instance.id} on {uuid} belongs to nobody"
    known = {record.vm_uuid for record in records}
    for machine in world.hypervisor.machines.values():
        if machine.uuid in known:
            continue
        for domain in (machine.config, machine.live):
            if domain is not None and domain.own_aliases():
                yield f"{machine.name} has devices of nobody"
        if machine.notes:
            yield f"{machine.name} has a note of nobody"
        if machine.name == "vm03" and machine.config and machine.config.has_serial_controller:
            yield "vm03 kept the controller that was added for a device"
    for id_ in set(world.channels.running) - {record.id for record in records}:
        yield f"channel {id_} belongs to nobody"
    enabled = {record.gpu for record in records}
    for uuid, gpu in world.nvml.gpus.items():
        if gpu.mig.current and not gpu.instances and uuid not in enabled:
            yield f"MIG mode of {uuid} was left on"


def describe_machine(world: World) -> list[str]:
    """The machine and what is recorded of it, without ids: what two ways to the same state have in common."""
    index = {str(gpu.uuid): gpu.index for gpu in world.nvml.gpus.values()}
    vms = {record.id: record.vm_name for record in world.store.list_attachments()}
    return sorted(
        [
            *_describe_gpus(world),
            *_describe_vms(world),
            *_describe_records(world, index),
            *(f"channel of {vms.get(id_)}" for id_ in world.channels.running),
            *_describe_functions(world),
            *_describe_vgpus(world, index),
            *(
                f"layout of GPU {index[uuid]}: MIG {kept.mig_enabled}, {sorted(map(str, kept.instances))}"
                for uuid, kept in read_layouts(world.root).items()
            ),
            *(f"drained {one.address} {one.reason}" for one in world.parts.store.list_drains()),
        ]
    )


def _describe_gpus(world: World) -> Iterator[str]:
    for gpu in world.nvml.gpus.values():
        yield f"GPU {gpu.index} MIG {gpu.mig.current}"
        for i in gpu.instances:
            inside = sorted(str(c.placement) for c in i.compute_instances)
            yield f"GPU {gpu.index} has {i.profile} at {i.placement} with {inside}"


def _describe_vms(world: World) -> Iterator[str]:
    for machine in world.hypervisor.machines.values():
        for scope in ("config", "live"):
            domain = getattr(machine, scope)
            if domain is not None:
                aliases = sorted(a.split("-", 3)[-1] for a in domain.own_aliases())
                devices = len(domain.pci_hostdevs), len(domain.mdev_hostdevs)
                more = len(domain.controllers), len(machine.notes)
                yield f"{machine.name} {scope}: {aliases}, {devices} hostdevs, {more} controllers and notes"


def _describe_records(world: World, index: dict[str, int]) -> Iterator[str]:
    for record in world.store.list_attachments():
        devices = [
            (
                str(d.kind),
                str(d.address),
                d.vgpu and d.vgpu.type_name,
                d.instance and str(d.instance.placement),
            )
            for d in record.host_devices
        ]
        yield (
            f"attachment of {record.vm_name}: {record.profile} on GPU {index.get(str(record.gpu))} at "
            f"{record.placement}, {record.state}, mode {record.mig_mode_enabled}, {devices}"
            f", limits {record.channel.limits if record.channel else ()}"
        )


def _describe_functions(world: World) -> Iterator[str]:
    pci = world.pci
    for function in pci.functions.values():
        yield f"function {function.address}: {function.driver}, {len(function.vfs)} VFs"
    for binding in pci.bindings.values():
        yield f"binding {binding.address} to {binding.driver}, {binding.previous}, {binding.persist}"
    for setting in pci.settings.values():
        yield f"setting of {setting.physical}: {setting.count}, {setting.persist}"
    for address, driver in pci.overrides.items():
        yield f"override of {address}: {driver}"


def _describe_vgpus(world: World, index: dict[str, int]) -> Iterator[str]:
    vgpus = world.vgpus
    for device in vgpus.devices.values():
        yield f"vGPU {device.type_name} on {device.parent}"
    for key in vgpus.inside:
        gpu, _ = vgpus.inside[key]
        yield f"a vGPU in an instance of GPU {index[str(gpu)]}"
    for definition in vgpus.definitions.values():
        yield f"definition of {definition.type_id} on {definition.parent}, {definition.auto}"
    for record in world.vgpu_store.list_vgpus():
        place = record.instance and (
            index[str(record.instance.gpu)],
            str(record.instance.placement),
        )
        # a boot took it away, which counts only as long as it is not there
        gone = not record.takes_room and record.is_missing(world.parts.boot_id)
        yield (
            f"vGPU record: {record.spec.type_name} on {record.spec.parent}, {record.state}, {record.defined}, "
            f"{record.auto}, {record.attachment is not None}, {place}, {gone}"
        )


def list_broken_links(world: World) -> list[str]:
    """What names something that is not there, and what is there and named by nothing; nothing is unfinished."""
    records = {record.id: record for record in world.store.list_attachments()}
    found = [text for record in records.values() for text in _list_broken(world, record)]
    for machine in world.hypervisor.machines.values():
        aliases = {
            alias
            for domain in (machine.config, machine.live)
            for alias in (domain.own_aliases() if domain else ())
        }
        named = {alias.split("-")[2] for alias in aliases} | {note.id for note in machine.notes}
        found += [
            f"{machine.name} knows {id_}, which nobody records" for id_ in named - set(records)
        ]
    found += [
        f"channel {id_} belongs to nobody" for id_ in set(world.channels.running) - set(records)
    ]
    vgpus = {record.spec.uuid: record for record in world.vgpu_store.list_vgpus()}
    for vgpu in vgpus.values():
        if vgpu.attachment is not None and vgpu.attachment not in records:
            found.append(f"vGPU {vgpu.spec.uuid} is of {vgpu.attachment}, which nobody records")
    if world.parts.open_journal().unfinished():
        found.append("the journal has unfinished operations")
    return found


def _list_broken(world: World, record: AttachmentRecord) -> Iterator[str]:
    machine = world.hypervisor.machines[record.vm_uuid]
    if record.state is not AttachmentState.ATTACHED:
        yield f"{record.id} is {record.state}"
    if record.id not in [note.id for note in machine.notes]:
        yield f"{record.vm_name} lacks its note"
    if record.channel is not None and record.id not in world.channels.running:
        yield f"{record.id} has no keeper"
    if record.mig is not None and record.gpu is not None:
        found = next(
            (
                i
                for i in world.nvml.gpus[record.gpu].instances
                if i.id == record.mig.gpu_instance_id
            ),
            None,
        )
        inside = {c.uuid for c in found.compute_instances} if found else set()
        if record.mig.uuid not in inside or (found and found.placement != record.placement):
            yield f"{record.id} has no slice at {record.placement}"
    for device in record.host_devices:
        if device.vgpu is not None and world.vgpus.find_device(device.vgpu) is None:
            yield f"{record.id} has no vGPU"
