"""A layout of a file against the GPUs of this machine: targets for the planner, or a refusal that
names file, line and key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from vgpumgr.errors import (
    GpuLostError,
    GpuNotFoundError,
    LayoutContradictionError,
    MigNotSupportedError,
    ProfileNotFoundError,
    VgpumgrError,
)
from vgpumgr.mig.layout.board import list_near_profiles
from vgpumgr.mig.layout.compute import pack
from vgpumgr.mig.layout.formats.files import (
    Dialect,
    GpuChoice,
    GpuSpec,
    InstanceSpec,
    LayoutFile,
)
from vgpumgr.mig.layout.formats.reader import Where
from vgpumgr.mig.layout.formats.write import count_devices
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.mig.placement import find_profile
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu, Inventory, LostGpu
from vgpumgr.model.mig import MigProfile, MigProfileName


@dataclass(frozen=True, slots=True)
class Resolved:
    """Targets in the order of the GPUs; ``places`` says for each GPU's UUID what asked for it;
    ``notes`` is what the lint found.
    """

    targets: tuple[GpuTarget, ...]
    places: Mapping[str, Where]
    notes: tuple[str, ...]
    #: GPUs of which vGPUs are wanted, with the entry that says so
    vgpus: tuple[tuple[Gpu, GpuSpec], ...] = ()


def resolve(file: LayoutFile, label: str, inventory: Inventory) -> Resolved:
    """What the layout says about each GPU. GPUs that it does not name have no target.

    Raises GpuNotFoundError, GpuLostError, MigNotSupportedError, ProfileNotFoundError,
    LayoutContradictionError.
    """
    notes: list[str] = []
    chosen: dict[str, tuple[Gpu, GpuSpec]] = {}
    for spec in file.layouts[label]:
        if not spec.says_mig:
            continue
        for gpu in _match(file, spec, inventory, notes):
            if gpu.uuid in chosen:
                _overlap(file, gpu, chosen[gpu.uuid][1], spec, notes)
            chosen[gpu.uuid] = (gpu, spec)
    vgpus = _choose_vgpus(file, label, inventory, notes)
    if not chosen and not vgpus:
        raise _no_gpu(file, label, inventory)
    pairs = sorted(chosen.values(), key=lambda pair: pair[0].index)
    return Resolved(
        targets=tuple(_make_target(gpu, spec) for gpu, spec in pairs),
        places={str(gpu.uuid): spec.where for gpu, spec in pairs},
        notes=tuple(notes),
        vgpus=tuple(sorted(vgpus.values(), key=lambda pair: pair[0].index)),
    )


def _choose_vgpus(
    file: LayoutFile, label: str, inventory: Inventory, notes: list[str]
) -> dict[str, tuple[Gpu, GpuSpec]]:
    """GPUs of entries that say which vGPUs there are, with or without MIG."""
    found: dict[str, tuple[Gpu, GpuSpec]] = {}
    for spec in file.layouts[label]:
        if spec.vgpus is None:
            continue
        for gpu in _list_named(spec, inventory):
            if not _fits(spec.choice, gpu):
                continue
            if gpu.uuid in found:
                _overlap(file, gpu, found[gpu.uuid][1], spec, notes)
            found[gpu.uuid] = (gpu, spec)
    return found


def _match(
    file: LayoutFile, spec: GpuSpec, inventory: Inventory, notes: list[str]
) -> Iterator[Gpu]:
    """GPUs of one entry. Those that are named must be there; of the others, boards without MIG are
    passed over. A filter of the vendors' files may mean none: their default files list every board there is.
    """
    matched = 0
    for gpu in _list_named(spec, inventory):
        if not _fits(spec.choice, gpu):
            continue
        matched += 1
        if gpu.mig.supported:
            yield gpu
        elif spec.mig and not spec.choice.is_open:
            raise _no_mig(gpu, spec)
        elif spec.mig:
            notes.append(f"{spec.where}: {gpu} is passed over, {gpu.model} has no MIG")
    if not matched and file.dialect is Dialect.OWN:
        raise _no_model(spec, inventory)


def _list_named(spec: GpuSpec, inventory: Inventory) -> list[Gpu]:
    choice = spec.choice
    if choice.names is not None:
        return _unique((_select(name, where, inventory), where) for name, where in choice.names)
    if inventory.lost:
        raise _lost(inventory.lost[0], spec.where)
    return list(inventory.gpus)


def _unique(pairs: Iterable[tuple[Gpu, Where]]) -> list[Gpu]:
    found: dict[str, Gpu] = {}
    for gpu, where in pairs:
        if gpu.uuid in found:
            raise LayoutContradictionError(
                f"{where}: {gpu} is named twice", hint="name each GPU once"
            )
        found[gpu.uuid] = gpu
    return list(found.values())


def _select(name: str, where: Where, inventory: Inventory) -> Gpu:
    for lost in inventory.lost:
        if name == str(lost.index):
            raise _lost(lost, where)
    try:
        return select_gpu(inventory.gpus, name)
    except VgpumgrError as error:
        raise type(error)(f"{where}: {error.error}", why=error.why, hint=error.hint) from error


def _lost(lost: LostGpu, where: Where) -> GpuLostError:
    return GpuLostError(
        f"{where}: GPU {lost.index} is out of reach",
        cause=f"{lost.text} ({lost.code})",
        hint="name the GPUs that answer, or reset this one",
    )


def _fits(choice: GpuChoice, gpu: Gpu) -> bool:
    if choice.models and not any(_is_model(gpu.model, wanted) for wanted in choice.models):
        return False
    if not choice.filters:
        return True
    return any(
        gpu.pci_device_id == one.device and one.subsystem in (None, gpu.pci_subsystem_id)
        for one in choice.filters
    )


def _is_model(model: str, wanted: str) -> bool:
    """A word that is part of the model's name, or a pattern for the whole."""
    model, wanted = model.lower(), wanted.lower()
    if any(sign in wanted for sign in "*?["):
        return fnmatchcase(model, wanted)
    return wanted in model


def _overlap(file: LayoutFile, gpu: Gpu, first: GpuSpec, second: GpuSpec, notes: list[str]) -> None:
    """Two entries that say the same of a GPU give a note; two that differ are a mistake, also where
    the file's own tool would silently take the last one.
    """
    also = f"{second.where}: {gpu} is also meant by line {first.where.line}"
    if _normalize(first) == _normalize(second):
        notes.append(f"{also}, which says the same")
    else:
        own = file.dialect is Dialect.OWN
        order = "" if own else f"; {file.dialect} would let the later entry win"
        keys = "gpus or model" if own else "devices or device-filter"
        raise LayoutContradictionError(
            f"{also}, which says otherwise",
            why=f"a GPU can have one layout{order}",
            hint=f"narrow {keys} of one of them{'' if own else ', or delete it'}",
        )


def _normalize(spec: GpuSpec) -> tuple[object, ...]:
    """What an entry says of its GPUs, in a form that compares by meaning: without the order, and
    without counts of zero.
    """
    instances: Counter[object] = Counter()
    for one in spec.instances or ():
        compute = None if one.compute is None else tuple(sorted(map(str, one.compute)))
        instances[(one.profile, compute, one.placement)] += one.count
    devices = _count((one.profile, one.count) for one in spec.devices or ())
    vgpus = _count((one.type, one.count) for one in spec.vgpus or ())
    given = spec.instances is None, spec.vgpus is None
    return (spec.mig, spec.says_mig, *given, +instances, devices, vgpus)


def _count(pairs: Iterable[tuple[object, int]]) -> Counter[object]:
    counted: Counter[object] = Counter()
    for what, count in pairs:
        counted[what] += count
    return +counted


def _no_mig(gpu: Gpu, spec: GpuSpec) -> MigNotSupportedError:
    return MigNotSupportedError(
        f"{spec.where}: cannot partition {gpu}",
        why=f"{gpu.model} has no MIG",
        hint="vgpumgr gpu list",
    )


def _no_model(spec: GpuSpec, inventory: Inventory) -> GpuNotFoundError:
    models = ", ".join(sorted({gpu.model for gpu in inventory.gpus})) or "none"
    return GpuNotFoundError(
        f"{spec.where}: no GPU of this machine is meant",
        why=f"models here: {models}",
        hint="vgpumgr gpu list",
    )


def _no_gpu(file: LayoutFile, label: str, inventory: Inventory) -> VgpumgrError:
    error = f'the layout "{label}" of {file.source} means no GPU of this machine'
    if inventory.gpus and not any(gpu.mig.supported for gpu in inventory.gpus):
        models = ", ".join(sorted({gpu.model for gpu in inventory.gpus}))
        return MigNotSupportedError(error, why=f"{models} has no MIG", hint="vgpumgr gpu list")
    return GpuNotFoundError(error, hint="vgpumgr gpu list")


def _make_target(gpu: Gpu, spec: GpuSpec) -> GpuTarget:
    if not spec.mig:
        return GpuTarget(gpu.uuid, mig_enabled=False)
    if spec.devices is not None:
        return GpuTarget(gpu.uuid, True, tuple(_group_devices(gpu, spec.devices)))
    if spec.instances is None:
        return GpuTarget(gpu.uuid, True)
    found = [one for entry in spec.instances for one in _repeat(gpu, entry)]
    return GpuTarget(gpu.uuid, True, tuple(found))


def _repeat(gpu: Gpu, spec: InstanceSpec) -> list[TargetInstance]:
    _get_profile(gpu, spec.profile, spec.where)
    compute = None if spec.compute is None else tuple(str(name) for name in spec.compute)
    return [TargetInstance(str(spec.profile), compute, spec.placement)] * spec.count


def _get_profile(gpu: Gpu, name: MigProfileName, where: Where) -> MigProfile:
    """The board's profile of that name. Raises ProfileNotFoundError with near names."""
    if (profile := find_profile(gpu, name)) is not None:
        return profile
    raise ProfileNotFoundError(
        f"{where}: {gpu} has no profile {name.gpu_instance}",
        why=f"{gpu.model} has near it: {', '.join(list_near_profiles(gpu.profiles, name))}",
        hint=f"vgpumgr mig profiles --gpu {gpu.index}",
    )


def _group_devices(gpu: Gpu, devices: Sequence[InstanceSpec]) -> Iterator[TargetInstance]:
    """GPU instances around MIG devices. Where the GPU has just these devices, however they are
    grouped, that is what is meant.
    """
    slices = {one.profile: _get_profile(gpu, one.profile, one.where).slices for one in devices}
    wanted: Counter[str] = Counter()
    for one in devices:
        wanted[str(one.profile)] += one.count
    if gpu.mig.current and wanted == count_devices(gpu):
        yield from _list_present(gpu)
        return
    by_owner: dict[MigProfileName, list[int]] = {}
    for one in devices:
        size = one.profile.compute_slices or slices[one.profile]
        by_owner.setdefault(one.profile.gpu_instance, []).extend([size] * one.count)
    for owner, sizes in by_owner.items():
        whole = next(slices[p] for p in slices if p.gpu_instance == owner)
        for group in _fill(whole, sorted(sizes, reverse=True)):
            yield TargetInstance(str(owner), tuple(f"{size}c.{owner}" for size in group))


def _list_present(gpu: Gpu) -> Iterator[TargetInstance]:
    """What there is. Instances without devices are not seen by mig-parted, and go."""
    for instance in gpu.instances:
        if instance.compute_instances:
            compute = tuple(f"{c.slices}c.{instance.profile}" for c in instance.compute_instances)
            yield TargetInstance(str(instance.profile), compute, instance.placement)


def _fill(slices: int, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Compute instances into as few GPU instances as first-fit finds; a size that fits nowhere is
    alone, and the planner says why it cannot be.
    """
    groups: list[tuple[int, ...]] = []
    for size in sizes:
        for index, group in enumerate(groups):
            if sum(group) + size <= slices and pack(slices, (*group, size), ()) is not None:
                groups[index] = (*group, size)
                break
        else:
            groups.append((size,))
    return groups
