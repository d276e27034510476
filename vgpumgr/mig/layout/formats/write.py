"""Writing what there is as a layout file, so that reading it back changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from vgpumgr.mig.layout.change import name_compute
from vgpumgr.mig.layout.formats.files import SCHEMA, VERSION
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance

Plain = dict[str, object]


#: how many vGPUs of which type each GPU has, by its UUID; a GPU that is no vGPU host is not in it
VgpuCounts = Mapping[str, Mapping[str, int]]


def write_own(
    gpus: Sequence[Gpu], label: str, *, placements: bool, vgpus: VgpuCounts | None = None
) -> Plain:
    """Our own format. Without ``placements`` it counts, and fits other hosts too."""
    states: list[tuple[int, Plain]] = []
    for gpu in gpus:
        state = _describe(gpu, placements=placements) if gpu.mig.supported else {}
        if vgpus and gpu.uuid in vgpus:
            state["vgpus"] = dict(vgpus[gpu.uuid])
        if state:
            states.append((gpu.index, state))
    layout = [{"gpus": indexes, **state} for indexes, state in _join_equal(states)]
    return {"schema": SCHEMA, "layouts": {label: layout}}


def _join_equal(states: Iterable[tuple[int, Plain]]) -> list[tuple[list[int], Plain]]:
    """GPUs in the same state share an entry."""
    entries: list[tuple[list[int], Plain]] = []
    for index, state in states:
        same = next((indexes for indexes, other in entries if other == state), None)
        if same is None:
            entries.append(([index], state))
        else:
            same.append(index)
    return entries


def _describe(gpu: Gpu, *, placements: bool) -> Plain:
    if not gpu.mig.current:
        return {"mig": False}
    if placements:
        return {
            "mig": True,
            "instances": [{**_name(i), "placement": str(i.placement)} for i in gpu.instances],
        }
    found: list[Plain] = []
    for instance in gpu.instances:
        one = _name(instance)
        same = next((f for f in found if {**f, "count": 0} == {**one, "count": 0}), None)
        if same is None:
            found.append({**one, "count": 1})
        else:
            count = same["count"]
            assert isinstance(count, int)
            same["count"] = count + 1
    return {"mig": True, "instances": found}


def _name(instance: GpuInstance) -> Plain:
    """Compute instances are left out where there is just one of full size."""
    sizes = [compute.slices for compute in instance.compute_instances]
    named: Plain = {"profile": str(instance.profile)}
    if sizes != [instance.slices]:
        named["compute"] = [f"{size}c" for size in sorted(sizes, reverse=True)]
    return named


def write_parted(gpus: Sequence[Gpu], label: str) -> Plain:
    """mig-parted's format, without zeros. A filter is written where boards differ."""
    capable = [gpu for gpu in gpus if gpu.mig.supported]
    mixed = len({gpu.pci_device_id for gpu in gpus}) > 1
    entries = _join_equal((gpu.index, _describe_parted(gpu, mixed=mixed)) for gpu in capable)
    everything = len(capable) == len(gpus)
    layout = [
        _join("all" if everything and len(indexes) == len(gpus) else indexes, state)
        for indexes, state in entries
    ]
    return {"version": VERSION, "mig-configs": {label: layout}}


def write_vgpu_dm(gpus: Sequence[Gpu], label: str, vgpus: VgpuCounts) -> Plain:
    """vgpu-device-manager's format, of the GPUs that are vGPU hosts."""
    hosts = [gpu for gpu in gpus if gpu.uuid in vgpus]
    # its own names are without the vendor's word
    entries = _join_equal(
        (gpu.index, {"vgpu-devices": {n.split()[-1]: c for n, c in vgpus[gpu.uuid].items()}})
        for gpu in hosts
    )
    layout = [
        {"devices": "all" if len(indexes) == len(gpus) else indexes, **state}
        for indexes, state in entries
    ]
    return {"version": VERSION, "vgpu-configs": {label: layout}}


def _join(devices: object, state: Plain) -> Plain:
    """In the order in which people write these files."""
    filters = {key: state[key] for key in ("device-filter",) if key in state}
    rest = {key: value for key, value in state.items() if key not in filters}
    return {**filters, "devices": devices, **rest}


def _describe_parted(gpu: Gpu, *, mixed: bool) -> Plain:
    state: Plain = {}
    if mixed and gpu.pci_device_id is not None:
        state["device-filter"] = f"0x{gpu.pci_device_id:08X}"
    state["mig-enabled"] = gpu.mig.current
    if gpu.mig.current:
        state["mig-devices"] = dict(count_devices(gpu))
    return state


def count_devices(gpu: Gpu) -> Counter[str]:
    """MIG devices of a GPU by name, compute instances that are parts with their ``c``."""
    return Counter(
        name_compute(instance.profile, compute.slices, instance.slices)
        for instance in gpu.instances
        for compute in instance.compute_instances
    )


def list_losses(gpus: Sequence[Gpu]) -> list[str]:
    """What mig-parted's format cannot say of these GPUs."""
    return [
        f"{gpu}: {instance.profile} at {instance.placement} has no compute instance, "
        "which mig-parted's format cannot say"
        for gpu in gpus
        for instance in gpu.instances
        if not instance.compute_instances
    ]
