"""What must hold on a machine at rest, whatever happened before."""

from __future__ import annotations

from collections.abc import Iterator

from tests.recovery.world import World
from vgpumgr.plan.record import AttachmentRecord, AttachmentState

#: the instance that a stranger made before anything else
STRANGER = 1


def list_violations(world: World) -> list[str]:
    """Everything that belongs to no attachment, and everything that an attachment lacks."""
    records = world.store.list_attachments()
    found = [text for record in records for text in _check_record(world, record)]
    found += _list_leaks(world, records)
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
    instances = world.nvml.gpus[record.gpu].instances
    if not any(
        record.mig
        and i.id == record.mig.gpu_instance_id
        and i.placement == record.placement
        and {c.uuid for c in i.compute_instances} == _list_inside(world, record)
        for i in instances
    ):
        yield f"{record.id} has no slice"


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
