"""``vgpumgr gpu show``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from vgpumgr.cli import gpu_text
from vgpumgr.cli.declarations import Argument, Context
from vgpumgr.cli.options import Output
from vgpumgr.cli.output import Format, check_single, print_single
from vgpumgr.cli.session import Session, get_session
from vgpumgr.model.sizes import format_size

_WIDTH = 14


def command(
    context: Context,
    gpu: Annotated[str, Argument(help="Index, UUID or unique prefix, bus address, MIG UUID.")],
    output: Output = None,
) -> None:
    """Show one GPU: its slices, whose they are, and what still fits.

    \b
    Examples:
      vgpumgr gpu show 0
      vgpumgr gpu show 3b:00.0
      vgpumgr gpu show GPU-5c8f -o json
    """
    run(get_session(context), gpu, output)


def run(session: Session, selector: str, output: Format | None) -> None:
    """Asks for one GPU and prints it."""
    check_single("gpu show", output, named=True, hint=f"vgpumgr gpu list -o {output}")
    document = session.call("show_gpu", selector=selector)
    print_single(session.streams, document, output, render(document), lambda: _name(document))


def _name(document: dict[str, Any]) -> str:
    gpu = document["gpu"]
    return str(gpu["uuid"] if gpu else document["other"]["pci"])


def render(document: dict[str, Any]) -> Iterator[str]:
    """The text, line by line: GPU, then instances with their users, then what fits."""
    gpu = document["gpu"]
    if gpu is None:
        yield from _render_other(document["other"])
        yield from _render_holders(document)
        return
    yield f"GPU {gpu['index']}  {gpu['model']}"
    for label, value in _facts(gpu):
        yield f"  {label:<{_WIDTH}}{value}"
    if gpu["processes"]:
        yield "  processes"
        yield from (f"    {line}" for line in map(_tell_process, gpu["processes"]))
    yield from _render_holders(document)
    if gpu["mig"]["current"]:
        yield "  instances" + ("" if gpu["instances"] else "     none")
    for instance in gpu["instances"]:
        yield from _render_instance(instance)
    if document["profiles"]:
        yield "  room"
        yield from _render_profiles(document["profiles"])


def _render_holders(document: dict[str, Any]) -> Iterator[str]:
    if document["held_by"]:
        yield "  held by"
        yield from (f"    {holder}" for holder in document["held_by"])


def _render_other(gpu: dict[str, Any]) -> Iterator[str]:
    """A GPU that NVML does not speak about."""
    facts = {
        "pci address": f"{gpu['pci']} ({gpu['vendor_id']:04x}:{gpu['device_id']:04x})",
        "numa node": gpu_text.or_absent(gpu["numa_node"]),
        "iommu group": _tell_group(gpu),
        "driver": gpu_text.or_absent(gpu["driver"]),
        "memory BARs": ", ".join(map(format_size, gpu["bar_bytes"])) or gpu_text.ABSENT,
    }
    if gpu["vfs_total"] is not None:
        facts["VFs"] = f"{gpu['vfs_enabled']} of {gpu['vfs_total']} enabled"
    if gpu["boot_display"]:
        facts["display"] = "the host's boot display"
    yield f"GPU {gpu['model']}"
    if gpu["vms"]:
        facts["VMs"] = ", ".join(gpu["vms"])
    yield from (f"  {label:<{_WIDTH}}{value}" for label, value in facts.items())


def _facts(gpu: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "uuid", gpu["uuid"]
    yield "pci address", gpu["pci"]
    yield "numa node", gpu_text.or_absent(gpu["numa_node"])
    yield "iommu group", _tell_group(gpu)
    yield "driver", f"{gpu_text.or_absent(gpu['driver'])} {gpu['driver_version']}"
    if gpu["architecture"]:
        capability = gpu["compute_capability"]
        yield "architecture", f"{gpu['architecture']} (compute {capability})"
    yield "memory", gpu_text.tell_memory(gpu)
    if gpu["utilisation"]:
        use = gpu["utilisation"]
        yield "utilisation", f"{use['gpu_ratio']:.0%} GPU, {use['memory_ratio']:.0%} memory"
    yield "mig", _tell_mig(gpu["mig"])
    if gpu["vms"]:
        yield "VMs", ", ".join(gpu["vms"])


def _tell_group(gpu: dict[str, Any]) -> str:
    group = gpu["iommu_group"]
    if group is None:
        return gpu_text.ABSENT
    others = [member for member in group["members"] if member != gpu["pci"]]
    return f"{group['number']}" + (f", shared with {', '.join(others)}" if others else "")


def _tell_mig(mig: dict[str, Any]) -> str:
    if not mig["supported"]:
        return "not supported"
    if not mig["current"]:
        reset = ", a change needs a reset" if mig["needs_reset"] else ""
        return gpu_text.tell_mig(mig) + reset
    if not mig["memory_positions"]:
        return f"{gpu_text.tell_mig(mig)}; its instances are shown to root only"
    return (
        f"{gpu_text.tell_mig(mig)}; {mig['compute_slices_used']} of {mig['compute_slices']} "
        f"compute slices, {mig['memory_positions_used']} of {mig['memory_positions']} "
        "memory positions used"
    )


def _render_instance(instance: dict[str, Any]) -> Iterator[str]:
    place = gpu_text.tell_placement(instance["placement"])
    size = format_size(instance["memory_bytes"])
    yield f"    {instance['id']:<3} {instance['profile']} at {place}, {size}"
    shared = len({c["attachment"] for c in instance["compute_instances"] if c["attachment"]}) > 1
    for compute in instance["compute_instances"]:
        used = compute["memory_used_bytes"]
        memory = "" if used is None else f", {format_size(used)} used"
        owner = f", vm {compute['vm']} ({compute['attachment']})" if shared else ""
        yield f"        {compute['uuid'] or 'compute instance without UUID'}{memory}{owner}"
    if not instance["compute_instances"]:
        yield "        no compute instance: not usable yet"
    if instance["vm"] and not shared:
        yield f"        vm {instance['vm']} (attachment {instance['attachment']})"
    yield from (f"        {_tell_process(process)}" for process in instance["processes"])


def _tell_process(process: dict[str, Any]) -> str:
    memory = process["memory_bytes"]
    size = "" if memory is None else f", {format_size(memory)}"
    return f"process {gpu_text.tell_process(process)}{size}"


def _render_profiles(profiles: list[dict[str, Any]]) -> Iterator[str]:
    width = max(len(profile["name"]) for profile in profiles) + 2
    for profile in profiles:
        yield f"    {profile['name']:<{width}}{_tell_fit(profile)}"


def _tell_fit(profile: dict[str, Any]) -> str:
    if profile["why_not"]:
        return f"no: {profile['why_not']}"
    places = " ".join(gpu_text.tell_placement(p) for p in profile["free_placements"])
    return f"{profile['free']} more, at {places}"
