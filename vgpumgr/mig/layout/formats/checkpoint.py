"""nvidia-mig-parted's checkpoints: JSON with every GPU, instance and placement as numbers of NVML."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.errors import GpuNotFoundError, LayoutImpossibleError
from vgpumgr.mig.layout.formats.files import VERSION, check_sum, check_version
from vgpumgr.mig.layout.formats.reader import Value, Where, shorten
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance, MigProfileName, Placement

# NVML_COMPUTE_INSTANCE_PROFILE_*: slices of each enumerator; 7 is the second revision of one slice
_SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6, 7: 1, 8: 7}
_ENUMS = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
_MOST = 255


@dataclass(frozen=True, slots=True)
class SavedInstance:
    """A GPU instance: its profile's enumerator, its place, slices of its compute instances."""

    enum: int
    placement: Placement
    compute_slices: tuple[int, ...]
    where: Where


@dataclass(frozen=True, slots=True)
class SavedGpu:
    """One GPU of a checkpoint."""

    uuid: str
    mig: bool
    instances: tuple[SavedInstance, ...]
    where: Where


def read_checkpoint(root: Value) -> tuple[SavedGpu, ...]:
    """Reads a checkpoint of version v1. Raises LayoutFileError."""
    keys = root.read_keys(("Version", "MigState"), ("Version", "MigState"), fold=True)
    check_version(keys["Version"])
    state = keys["MigState"].read_keys(("Devices",), ("Devices",), fold=True)
    return tuple(_read_gpu(value) for value in _read_list(state["Devices"]))


def _read_gpu(value: Value) -> SavedGpu:
    names = ("UUID", "MigMode", "GpuInstances")
    keys = value.read_keys(names, ("UUID", "MigMode"), fold=True)
    mig = bool(keys["MigMode"].read_int(0, 1))
    saved = _read_list(keys["GpuInstances"]) if "GpuInstances" in keys else []
    check_sum(value, len(saved))
    instances = tuple(_read_instance(one) for one in saved)
    if instances and not mig:
        raise keys["GpuInstances"].error("instances together with MIG mode off")
    return SavedGpu(shorten(keys["UUID"].read_text()), mig, instances, value.where)


def _read_instance(value: Value) -> SavedInstance:
    names = ("ProfileID", "Placement", "ComputeInstances")
    keys = value.read_keys(names, ("ProfileID", "Placement"), fold=True)
    place = keys["Placement"].read_keys(("Start", "Size"), ("Start", "Size"), fold=True)
    compute = _read_list(keys["ComputeInstances"]) if "ComputeInstances" in keys else []
    check_sum(value, len(compute))
    return SavedInstance(
        keys["ProfileID"].read_int(0, _MOST),
        Placement(place["Start"].read_int(0, _MOST), place["Size"].read_int(1, _MOST)),
        tuple(_read_compute(one) for one in compute),
        value.where,
    )


def _read_compute(value: Value) -> int:
    keys = value.read_keys(("ProfileID", "EngProfileID"), ("ProfileID",), fold=True)
    enum = keys["ProfileID"].read_int(0, _MOST)
    if enum not in _SLICES:
        raise keys["ProfileID"].error(f"NVML has no compute instance profile {enum}")
    if "EngProfileID" in keys and keys["EngProfileID"].read_int(0, _MOST) != 0:
        raise keys["EngProfileID"].error("only engine profile 0 (shared) exists")
    return _SLICES[enum]


def _read_list(value: Value) -> list[Value]:
    """Go writes null for an empty list."""
    return [] if value.is_null else value.read_items()


def make_targets(saved: Sequence[SavedGpu], gpus: Sequence[Gpu]) -> tuple[GpuTarget, ...]:
    """The checkpoint against the GPUs of this machine. GPUs that it does not name stay as they are.

    Raises GpuNotFoundError for a GPU that is not here, LayoutImpossibleError for a profile that its
    board has not.
    """
    by_uuid = {str(gpu.uuid): gpu for gpu in gpus}
    return tuple(_make_target(one, by_uuid) for one in saved if not _is_idle(one, by_uuid))


def _is_idle(saved: SavedGpu, gpus: dict[str, Gpu]) -> bool:
    """A board without MIG that is to have none."""
    gpu = gpus.get(saved.uuid)
    return gpu is not None and not gpu.mig.supported and not saved.mig


def _make_target(saved: SavedGpu, gpus: dict[str, Gpu]) -> GpuTarget:
    gpu = gpus.get(saved.uuid)
    if gpu is None:
        raise GpuNotFoundError(
            f'no GPU is "{saved.uuid}"',
            cause=f"asked for by {saved.where}",
            why="a checkpoint belongs to the GPUs that it was made of",
            hint="vgpumgr gpu list",
        )
    if not saved.mig:
        return GpuTarget(saved.uuid, mig_enabled=False)
    return GpuTarget(saved.uuid, True, tuple(_make_instance(gpu, i) for i in saved.instances))


def _make_instance(gpu: Gpu, saved: SavedInstance) -> TargetInstance:
    profile = next((p for p in gpu.profiles if p.enum == saved.enum), None)
    if profile is None:
        raise LayoutImpossibleError(
            f"{gpu} has no GPU instance profile {saved.enum}",
            cause=f"asked for by {saved.where}",
            why=f"{gpu.model} offers {', '.join(f'{p.enum} ({p.name})' for p in gpu.profiles)}",
        )
    name = profile.name
    compute = tuple(
        str(MigProfileName(name.slices, name.gigabytes, name.variant, min(slices, name.slices)))
        for slices in saved.compute_slices
    )
    return TargetInstance(str(name), compute, saved.placement)


def write_checkpoint(gpus: Sequence[Gpu]) -> dict[str, object]:
    """The checkpoint of these GPUs, as it goes into a file."""
    return {"Version": VERSION, "MigState": {"Devices": [_write_gpu(gpu) for gpu in gpus]}}


def _write_gpu(gpu: Gpu) -> dict[str, object]:
    enums = {profile.id: profile.enum for profile in gpu.profiles}
    return {
        "UUID": str(gpu.uuid),
        "MigMode": int(gpu.mig.current),
        "GpuInstances": [_write_instance(i, enums[i.profile_id]) for i in gpu.instances],
    }


def _write_instance(instance: GpuInstance, enum: int) -> dict[str, object]:
    place = instance.placement
    return {
        "ProfileID": enum,
        "Placement": {"Start": place.start, "Size": place.size},
        "ComputeInstances": [
            {"ProfileID": _ENUMS[compute.slices], "EngProfileID": 0}
            for compute in instance.compute_instances
        ],
    }
