"""Which GPU instances ``mig create`` and ``mig destroy`` mean, on the GPUs that there are. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vgpumgr.errors import (
    LayoutBusyError,
    LayoutImpossibleError,
    MigNotSupportedError,
    NoRoomError,
    UsageError,
)
from vgpumgr.mig.layout.change import LayoutPlan, StepKind
from vgpumgr.mig.layout.planner import try_layout
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance, list_present_targets
from vgpumgr.mig.placement import (
    choose_placements,
    count_fits,
    explain_refusal,
    list_fits,
    refuse_mode,
)
from vgpumgr.mig.selection import select_gpu, select_instance, select_profile
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.gpu import Gpu, Inventory
from vgpumgr.model.mig import GpuInstance, MigProfile, Placement
from vgpumgr.model.text import format_vm
from vgpumgr.planning.reservations import LostSlice, explain_kept, keep_places


def choose_instances(
    gpu: Gpu,
    selector: str,
    start: int | None,
    count: int,
    owners: Sequence[SliceOwner] = (),
    lost: Sequence[LostSlice] = (),
) -> tuple[TargetInstance, ...]:
    """What the GPU has, with new instances of the profile; at ``start`` on the memory axis, else where they leave
    the most capacity. Places of slices that are gone (``lost``) are kept.

    Raises UsageError, ProfileNotFoundError, MigNotSupportedError, LayoutImpossibleError, NoRoomError.
    """
    _check_mode(gpu)
    profile = select_profile(gpu, selector)
    if start is not None and count != 1:
        raise UsageError(f"one place is named, and {count} instances are asked for")
    (full,) = keep_places([gpu], lost)
    try:
        if start is None:
            places = _choose_places(full, profile, count, owners)
        else:
            places = [_find_place(gpu, full, profile, start, owners)]
    except NoRoomError as error:
        if fits := [str(p.name) for p in gpu.profiles if count_fits(full, p)]:
            error.why = f"{error.why}; what still fits: {', '.join(fits)}"
        error.hint = f"vgpumgr why {profile.name} --gpu {gpu.index}"
        explain_kept(error, lost)
        raise
    new = tuple(TargetInstance(str(profile.name), None, place) for place in places)
    return (*list_present_targets(gpu), *new)


def _choose_places(
    gpu: Gpu, profile: MigProfile, count: int, owners: Sequence[SliceOwner]
) -> list[Placement]:
    """One goes where an attach would put it; several go together, as a layout's, to where most capacity is left.
    Raises NoRoomError.
    """
    found = choose_placements([gpu], profile.name, count, owners)
    if count > 1:
        new = [TargetInstance(str(profile.name))] * count
        target = GpuTarget(gpu.uuid, True, (*list_present_targets(gpu), *new))
        plan = try_layout([gpu], [target])
        if isinstance(plan, LayoutPlan):
            made = [step for step in plan.steps if step.kind is StepKind.GI_CREATE]
            return [step.placement for step in made if step.placement]
    return [one.choice.placement for one in found]


def _check_mode(gpu: Gpu) -> None:
    """Creating instances does not turn MIG mode on, which concerns all users of the GPU."""
    error = f"cannot create GPU instances on {gpu}"
    if not gpu.mig.supported:
        raise MigNotSupportedError(error, why=f"{gpu.model} has no MIG", hint="vgpumgr gpu list")
    hint = f"vgpumgr mig enable {gpu.index}, then repeat"
    if gpu.mig.current and (refusal := refuse_mode(gpu)):
        raise MigNotSupportedError(error, why=refusal.reason, hint=hint)
    if not gpu.mig.current:
        raise MigNotSupportedError(error, why="MIG mode is off", hint=hint)


def _find_place(
    gpu: Gpu, full: Gpu, profile: MigProfile, start: int, owners: Sequence[SliceOwner]
) -> Placement:
    place = next((place for place in profile.placements if place.start == start), None)
    if place is None:
        raise LayoutImpossibleError(
            f"cannot create {profile.name} at {start} on {gpu}",
            why=f"its places on this board are {', '.join(map(str, profile.placements))}",
            hint=f"vgpumgr mig profiles --gpu {gpu.index} -o wide",
        )
    free = list_fits(full, profile)
    if place in free:
        return place
    there = [i for i in full.instances if i.placement.overlaps(place)]
    if not there:
        raise explain_refusal([full], profile.name, owners)
    others = f"it fits at {', '.join(map(str, free))}" if free else "it fits nowhere else"
    raise NoRoomError(
        f"cannot create {profile.name} at {place} on {gpu}",
        why=f"the place is taken; {others}",
        held_by=[_describe(gpu, instance, owners) for instance in there],
    )


def _describe(gpu: Gpu, instance: GpuInstance, owners: Sequence[SliceOwner]) -> str:
    users = _list_users(gpu, instance, owners)
    who = f": {', '.join(users)}" if users else ""
    return f"{instance.profile} at {instance.placement}{who}"


def find_gone(
    inventory: Inventory, names: Sequence[str], gpus: Sequence[str]
) -> list[tuple[Gpu, frozenset[int]]]:
    """The GPU instances that are to go, GPU by GPU: those of the names, and all of the GPUs.

    Raises UsageError, SliceNotFoundError, and what ``select_gpu`` does.
    """
    if not names and not gpus:
        raise UsageError("no GPU instance is named", hint="vgpumgr mig destroy --help")
    gone: dict[str, set[int]] = {}
    parts: dict[tuple[str, int], set[int]] = {}
    for name in names:
        gpu, instance, compute = select_instance(inventory.gpus, name, inventory.lost)
        gone.setdefault(gpu.uuid, set()).add(instance.id)
        inside = instance.compute_instances if compute is None else (compute,)
        parts.setdefault((gpu.uuid, instance.id), set()).update(c.id for c in inside)
    for name in gpus:
        if name.strip().lower().startswith("mig-"):
            raise UsageError(f"{name} is no GPU", hint=f"vgpumgr mig destroy {name}")
        gpu = select_gpu(inventory.gpus, name, inventory.lost)
        gone.setdefault(gpu.uuid, set()).update(i.id for i in gpu.instances)
        parts.update({(gpu.uuid, i.id): {c.id for c in i.compute_instances} for i in gpu.instances})
    for gpu in inventory.gpus:
        for instance in gpu.instances:
            _check_whole(gpu, instance, parts.get((gpu.uuid, instance.id)))
    return [(gpu, frozenset(gone[gpu.uuid])) for gpu in inventory.gpus if gpu.uuid in gone]


def _check_whole(gpu: Gpu, instance: GpuInstance, named: Collection[int] | None) -> None:
    """Raises UsageError where only some of an instance's compute instances are named."""
    left = [c for c in instance.compute_instances if named is not None and c.id not in named]
    if left:
        others = ", ".join(str(compute.uuid) for compute in left)
        raise UsageError(
            f"{gpu.index}/{instance.id} ({instance.profile}) has other compute instances as well",
            why=f"a GPU instance is destroyed with all that is in it, also {others}",
            hint=f"vgpumgr mig destroy {gpu.index}/{instance.id}; or mig layout apply, for a part",
        )


def _list_users(gpu: Gpu, instance: GpuInstance, owners: Sequence[SliceOwner]) -> list[str]:
    """What an attachment's holder holds is held by its VM."""
    found = [o.holder for o in owners if (o.gpu, o.gpu_instance_id) == (gpu.uuid, instance.id)]
    running = [p for p in gpu.processes if p.gpu_instance_id == instance.id]
    found += [str(process) for process in running if not (process.is_holder and found)]
    return list(dict.fromkeys(found))


def _describe_release(owner: SliceOwner) -> str:
    if owner.is_run:
        return "end the run"
    if owner.is_vm:
        return f"vgpumgr detach {format_vm(owner.vm_name)}"
    return f"vgpumgr mdev delete {owner.attachment_id}"


def check_unused(gpu: Gpu, gone: Collection[int], owners: Sequence[SliceOwner]) -> None:
    """Before GPU instances are destroyed. Raises LayoutBusyError with who has which."""
    going = [instance for instance in gpu.instances if instance.id in gone]
    held = [
        f"{user} ({gpu.index}/{instance.id}, {instance.profile})"
        for instance in going
        for user in _list_users(gpu, instance, owners)
    ]
    if not held:
        return
    mine = [o for o in owners if o.gpu == gpu.uuid and o.gpu_instance_id in gone]
    ways = [_describe_release(owner) for owner in mine]
    owned = {owner.gpu_instance_id for owner in mine}
    if any(p.gpu_instance_id in gone and p.gpu_instance_id not in owned for p in gpu.processes):
        ways.append("end the processes")
    names = ", ".join(f"{i.profile} at {i.placement}" for i in going)
    raise LayoutBusyError(
        f"cannot destroy {names} on {gpu}",
        why="a GPU instance in use is not destroyed",
        held_by=held,
        hint=f"{', '.join(dict.fromkeys(ways))}; then repeat",
    )
