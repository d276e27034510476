"""Our own format, described for people in docs/layouts.md."""

from __future__ import annotations

import re

from vgpumgr.mig.layout.formats.reader import Value, shorten
from vgpumgr.mig.layout.formats.spec import (
    LONGEST_SELECTOR,
    MOST,
    Dialect,
    GpuChoice,
    GpuSpec,
    InstanceSpec,
    LayoutFile,
    check_sum,
    read_layouts,
    read_profile,
    read_vgpus,
)
from vgpumgr.model.mig import MigProfileName, Placement

SCHEMA = "vgpumgr/mig-layout/v1"
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
    return read_layouts(Dialect.OWN, keys["layouts"], _read_entry)


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
    if len(text) > LONGEST_SELECTOR:
        raise value.error(f'"{shorten(text)}" is too long to name a GPU')
    return text


def _one_or_many(value: Value) -> list[Value]:
    return value.read_items() if value.is_list else [value]


def _read_instances(value: Value) -> tuple[InstanceSpec, ...]:
    found = tuple(_read_instance(item) for item in value.read_items())
    check_sum(value, sum(one.count for one in found))
    return found


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
