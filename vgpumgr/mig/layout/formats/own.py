"""Our own format, described for people in docs/layouts.md."""

from __future__ import annotations

import re

from vgpumgr.mig.layout.formats.reader import Value, check_label, shorten
from vgpumgr.mig.layout.formats.spec import (
    Dialect,
    GpuChoice,
    GpuSpec,
    InstanceSpec,
    LayoutFile,
    VgpuCount,
)
from vgpumgr.model.mig import MigProfileName, Placement

SCHEMA = "vgpumgr/mig-layout/v1"
#: more instances than any board has places; a larger number can only be a mistake
MOST = 64
#: as many as a PCI function can have virtual ones
MOST_VGPUS = 256
_LONGEST_SELECTOR = 128
_PLACEMENT = re.compile(r"(\d{1,3}):(\d{1,3})")
_SHORT = re.compile(r"(\d{1,2})c")


def read_own(root: Value) -> LayoutFile:
    """Reads a file with ``schema: vgpumgr/mig-layout/v1``. Raises LayoutFileError."""
    keys = root.read_keys(("schema", "layouts"), ("schema", "layouts"))
    schema = keys["schema"].read_text()
    if schema != SCHEMA:
        raise keys["schema"].error(
            f'unknown schema "{shorten(schema)}"', f"this vgpumgr reads {SCHEMA}"
        )
    layouts = {
        check_label(name, value.where): _read_layout(value)
        for name, value in keys["layouts"].read_pairs()
    }
    if not layouts:
        raise keys["layouts"].error("there is no layout in it")
    return LayoutFile(root.where.source, Dialect.OWN, layouts)


def _read_layout(value: Value) -> tuple[GpuSpec, ...]:
    entries = tuple(_read_entry(item) for item in value.read_items())
    if not entries:
        raise value.error("the layout is empty", "it says nothing about any GPU")
    return entries


def _read_entry(value: Value) -> GpuSpec:
    keys = value.read_keys(("gpus", "model", "mig", "instances", "vgpus"))
    if "gpus" not in keys and "model" not in keys:
        raise value.error("which GPUs?", "an entry has gpus, or model, or both")
    says_mig = "mig" in keys or "instances" in keys
    if not says_mig and "vgpus" not in keys:
        raise value.error("the entry says nothing about its GPUs", "it lacks mig and instances")
    mig = keys["mig"].read_bool() if "mig" in keys else True
    instances = _read_instances(keys["instances"]) if "instances" in keys else None
    if instances and not mig:
        raise keys["instances"].error("instances together with mig: false")
    vgpus = read_vgpus(keys["vgpus"]) if "vgpus" in keys else None
    choice = _read_choice(keys.get("gpus"), keys.get("model"))
    return GpuSpec(choice, mig, value.where, instances, vgpus=vgpus, says_mig=says_mig)


def read_vgpus(value: Value) -> tuple[VgpuCount, ...]:
    """``{A100-4C: 2}``; ``{}`` means none. A count of zero is as if it were not there."""
    found = []
    for name, count in value.read_pairs():
        if not name.strip() or len(name) > _LONGEST_SELECTOR:
            raise count.error(f'"{shorten(name)}" names no vGPU type', hint="vgpumgr mdev types")
        found.append(VgpuCount(name.strip(), count.read_int(0, MOST_VGPUS), count.where))
    if sum(one.count for one in found) > MOST_VGPUS:
        raise value.error(f"more than {MOST_VGPUS} vGPUs on one GPU")
    return tuple(one for one in found if one.count)


def _read_choice(gpus: Value | None, model: Value | None) -> GpuChoice:
    models = tuple(_read_selector(v) for v in _one_or_many(model)) if model else ()
    if gpus is None or (not gpus.is_list and gpus.read_text() == "all"):
        return GpuChoice(models=models)
    names = tuple((_read_selector(item), item.where) for item in _one_or_many(gpus))
    if not names:
        raise gpus.error("no GPU is named", "write all, or leave the entry out")
    return GpuChoice(names=names, models=models)


def _read_selector(value: Value) -> str:
    text = value.read_text()
    if len(text) > _LONGEST_SELECTOR:
        raise value.error(f'"{shorten(text)}" is too long to name a GPU')
    return text


def _one_or_many(value: Value) -> list[Value]:
    return value.read_items() if value.is_list else [value]


def _read_instances(value: Value) -> tuple[InstanceSpec, ...]:
    found = tuple(_read_instance(item) for item in value.read_items())
    check_sum(value, sum(one.count for one in found))
    return found


def check_sum(value: Value, count: int) -> None:
    """Refuses more instances than any GPU has places. Raises LayoutFileError."""
    if count > MOST:
        raise value.error(f"{count} instances on one GPU", f"no GPU has more than {MOST}")


def _read_instance(value: Value) -> InstanceSpec:
    """``3g.40gb``, or the same with a count, a place, compute instances."""
    if not value.is_map:
        return _make(value, read_profile(value), 1, None, None)
    keys = value.read_keys(("profile", "count", "placement", "compute"), ("profile",))
    profile = read_profile(keys["profile"])
    count = keys["count"].read_int(1, MOST) if "count" in keys else 1
    placement = _read_placement(keys["placement"]) if "placement" in keys else None
    if placement is not None and count > 1:
        raise keys["placement"].error(f"one place for {count} instances", "write one entry each")
    compute = _read_compute(keys["compute"], profile) if "compute" in keys else None
    return _make(value, profile, count, compute, placement)


def _make(
    value: Value,
    profile: MigProfileName,
    count: int,
    compute: tuple[MigProfileName, ...] | None,
    placement: Placement | None,
) -> InstanceSpec:
    """``1c.3g.40gb`` alone is a GPU instance with that one compute instance."""
    if profile.compute_slices is not None:
        if compute is not None:
            raise value.error(
                f"{profile} names a compute instance, and compute names others",
                f"write profile: {profile.gpu_instance}",
            )
        compute = (profile,)
    return InstanceSpec(profile.gpu_instance, count, value.where, compute, placement)


def read_profile(value: Value, text: str | None = None) -> MigProfileName:
    """A profile's name. Raises LayoutFileError."""
    text = value.read_text() if text is None else text
    try:
        if len(text) > 60:
            raise ValueError("names look like 1g.10gb or 3g.40gb+me")
        return MigProfileName.parse(text)
    except ValueError as error:
        words = str(error).partition("; ")
        raise value.error(
            f'"{shorten(text)}" is no MIG profile', words[2] or words[0], "vgpumgr mig profiles"
        ) from None


def _read_placement(value: Value) -> Placement:
    """``4:4``: start and size on the memory axis."""
    match = _PLACEMENT.fullmatch(value.read_text().strip())
    if match is None or int(match[2]) == 0:
        raise value.error(
            f'"{shorten(value.read_text())}" is no placement',
            "write start:size on the memory axis, as in 4:4",
            "vgpumgr mig profiles -o wide",
        )
    return Placement(int(match[1]), int(match[2]))


def _read_compute(value: Value, owner: MigProfileName) -> tuple[MigProfileName, ...]:
    """``[1c, 2c]`` or with full names; ``[]`` means none."""
    found = []
    for item in value.read_items():
        short = _SHORT.fullmatch(item.read_text().strip())
        name = read_profile(item, f"{short[1]}c.{owner.gpu_instance}" if short else None)
        if name.gpu_instance != owner.gpu_instance:
            raise item.error(f"{name} is no compute instance of {owner.gpu_instance}")
        found.append(name)
    if len(found) > MOST:
        raise value.error(f"{len(found)} compute instances", f"no GPU has more than {MOST}")
    return tuple(found)
