"""``vgpumgr gpu``."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Annotated, Any

from typer import Argument, Context, Option

from vgpumgr.cli import layout
from vgpumgr.cli.main import App
from vgpumgr.cli.output import ABSENT, Column, or_absent, print_list, print_single, value_column
from vgpumgr.cli.session import DryRun, Yes, call, get_streams, get_verbosity
from vgpumgr.cli.text import (
    as_row,
    describe_drain,
    describe_health,
    describe_memory,
    describe_mig,
    describe_owner,
    describe_placement,
    describe_power,
    describe_process,
    describe_refusing,
    describe_share_capacity,
    describe_slices,
    describe_temperature,
    describe_users,
    list_shares,
    name_holder,
)
from vgpumgr.model.text import format_size, shorten_type

app = App()
app.add_typer(layout.app, name="layout", help="Files of slices and vGPUs; also: mig layout.")
_WIDTH = 14
GpuArgument = Annotated[str, Argument(help="Index, UUID or unique prefix, bus address, MIG UUID.")]


def _short_model(gpu: dict[str, Any]) -> str:
    """The model without the vendor, which every one of them would repeat."""
    return str(gpu["model"]).removeprefix("NVIDIA ")


def _sense(gpu: dict[str, Any], what: str) -> Any:
    return (gpu.get("health") or gpu.get("sensors") or {}).get(what)


def _group(gpu: dict[str, Any]) -> Any:
    return gpu["iommu_group"] and gpu["iommu_group"]["number"]


COLUMNS = (
    value_column("index", right=True),
    Column("model", _short_model, lambda g: g["model"], wraps=True),
    value_column("uuid", wide=True),
    value_column("pci"),
    value_column("numa", "numa_node", spare=True),
    Column("iommu", lambda g: or_absent(_group(g)), _group, spare=True),
    value_column("driver", spare=True),
    value_column("driver_version", wide=True),
    Column("mig", lambda g: describe_mig(g["mig"])),
    Column("memory", describe_memory, lambda g: g["memory_total_bytes"], right=True),
    value_column("memory_used", "memory_used_bytes", wide=True, right=True),
    Column("temperature", describe_temperature, lambda g: _sense(g, "temperature_c"), wide=True),
    Column("power", describe_power, lambda g: _sense(g, "power_w"), wide=True),
    Column("slices", describe_slices, wraps=True),
    Column("used_by", describe_users, wraps=True),
    Column("drained", describe_drain, lambda g: g.get("drained"), wide=True, wraps=True),
)


@app.listing("list")
def list_gpus(context: Context) -> None:
    """List the GPUs with their addresses, slices and users.

    GPUs of all vendors; those without NVML have no index, but an address.

    \b
    Examples:
      vgpumgr gpu list
      vgpumgr gpu list -o csv --no-header --columns index,uuid,memory
      vgpumgr gpu list --sort -memory --filter driver=nvidia
      vgpumgr gpu list --watch 5
      vgpumgr --machine dgx-a100 gpu list -o json
    """
    document = call(context, "list_gpus")
    print_list(
        context,
        document,
        [*document["gpus"], *map(as_row, document["others"])],
        COLUMNS,
        name=lambda gpu: str(gpu["uuid"] or gpu["pci"]),
        sources=[*document["gpus"], *document["others"]],
    )
    for lost in document["lost"]:
        get_streams(context).note(
            f"warning: GPU {lost['index']} does not answer: "
            f"{lost['nvml_text']} (NVML {lost['nvml_code']})"
        )


@app.named("show")
def show_gpu(
    context: Context,
    gpu: GpuArgument,
) -> None:
    """Show one GPU, its slices, their users, and what still fits.

    \b
    Examples:
      vgpumgr gpu show 0
      vgpumgr gpu show 3b:00.0
      vgpumgr gpu show GPU-5c8f -o json
    """
    document = call(context, "show_gpu", selector=gpu)
    lines = map(get_streams(context).address, render(document))
    print_single(context, document, lines, lambda: _name(document))


@app.named("drain")
def drain_gpu(
    context: Context,
    gpu: GpuArgument,
    reason: Annotated[
        str | None, Option("--reason", metavar="TEXT", help="Shown wherever the drain is.")
    ] = None,
    yes: Yes = False,  # noqa: ARG001  # nothing is lost: it asks nothing
    dry_run: DryRun = False,
) -> None:
    """Let a GPU take no new slice, until it is resumed.

    attach, run, layouts that create instances, mdev create, define --type and start, passthrough bind
    and vf enable leave it alone, and refuse where they name it. What is on it goes on: who uses it is
    listed. The drain stays across reboots; restore and recover still bring back what was there.
    Draining again changes the reason only.

    \b
    Examples:
      vgpumgr gpu drain 0 --reason "new fan on Friday"
      vgpumgr gpu drain 3b:00.0 --dry-run
    """
    document = call(context, "drain_gpu", selector=gpu, reason=reason, dry_run=dry_run)
    _print_drain(context, document)


@app.named("resume")
def resume_gpu(
    context: Context,
    gpu: GpuArgument,
    yes: Yes = False,  # noqa: ARG001
    dry_run: DryRun = False,
) -> None:
    """Let a drained or unhealthy GPU take new slices again.

    \b
    Examples:
      vgpumgr gpu resume 0
    """
    _print_drain(context, call(context, "resume_gpu", selector=gpu, dry_run=dry_run))


def _print_drain(context: Context, document: dict[str, Any]) -> None:
    is_brief = get_verbosity(context, dry_run=document["dry_run"]) < 0
    lines = map(get_streams(context).address, _render_drain(document, is_brief=is_brief))
    print_single(context, document, lines, lambda: document["uuid"] or document["pci"])


def _render_drain(document: dict[str, Any], *, is_brief: bool) -> Iterator[str]:
    """What it is now, and who uses the GPU on; the first line only where it is brief."""
    is_so, is_drain = not document["steps"], document["change"] == "drain"
    word = "would be" if document["dry_run"] and not is_so else "is"
    if not is_drain:
        yield f"{document['name']} {'is not drained' if is_so else f'{word} resumed'}"
    else:
        yield f"{document['name']} {word} drained{' already' if is_so else ''}"
    if is_drain and not is_brief:
        yield f"  {document['drained']['text']}"
        yield "  used by" if document["used_by"] else "  not used"
        yield from (f"    {user}" for user in document["used_by"])
        place = document["pci"] if document["index"] is None else document["index"]
        yield f"  back: vgpumgr gpu resume {place}"
    yield from (f"  note: {note}" for note in document["notes"])


def _name(document: dict[str, Any]) -> str:
    gpu = document["gpu"]
    return str(gpu["uuid"] if gpu else document["other"]["pci"])


def render(document: dict[str, Any]) -> Iterator[str]:
    """The text, line by line: GPU, then instances with their users, then what fits."""
    gpu = document["gpu"]
    if gpu is None:
        yield from _render_other(document["other"])
        yield from _render_holders(document)
        yield from _render_devices(document["other"]["devices"])
        yield from _render_capacity(document)
        return
    yield f"GPU {gpu['index']}  {gpu['model']}"
    for label, value in _facts(gpu):
        yield f"  {label:<{_WIDTH}}{value}"
    if gpu["processes"]:
        yield "  processes"
        yield from (f"    {line}" for line in map(_describe_process, gpu["processes"]))
    yield from _render_holders(document)
    if gpu["mig"]["current"]:
        yield "  instances" + ("" if gpu["instances"] else "     none")
    for instance in gpu["instances"]:
        yield from _render_instance(instance)
    yield from _render_shares(gpu.get("shares"))
    yield from _render_devices(gpu["devices"])
    yield from _render_capacity(document)


def _render_shares(shares: dict[str, Any] | None) -> Iterator[str]:
    """Who has shares of it; nothing where it has none."""
    if not shares or not shares["holders"]:
        return
    yield f"  shares        {shares['policy']}"
    yield from (f"    {holder}  {share}" for holder, share in list_shares(shares))


def _describe_shares_left(shares: dict[str, Any], profiles: list[dict[str, Any]]) -> str:
    if not shares["why_not"]:
        return describe_share_capacity(shares)
    width = max((len(profile["name"]) for profile in profiles), default=5) + 2
    return f"{'share':<{width}}no: {shares['why_not']}"


def _render_capacity(document: dict[str, Any]) -> Iterator[str]:
    """What still fits, of every kind that the GPU has."""
    vfs = document.get("vf_capacity")  # an older daemon does not say
    shares = (document["gpu"] or {}).get("shares")
    if shares and document["gpu"]["mig"]["current"]:
        shares = None  # that has profiles
    if document["profiles"] or document["vgpu_types"] or document["vgpu_note"] or vfs or shares:
        yield "  room"
    if shares:
        yield f"    {_describe_shares_left(shares, document['profiles'])}"
    if document["profiles"]:
        yield from _render_profiles(document["profiles"])
    yield from _render_types(document["vgpu_types"])
    if document["vgpu_note"]:
        yield f"    {document['vgpu_note']}"
    if vfs:
        yield f"    {_describe_capacity(vfs)}"


def _render_devices(devices: list[dict[str, Any]]) -> Iterator[str]:
    """Its vGPUs, then its virtual functions that go to VMs as they are."""
    for kind, label in (("vgpu", "vGPUs"), ("vf", "virtual functions")):
        own = [device for device in devices if device["kind"] == kind]
        if own:
            yield f"  {label}"
        for device in own:
            place = f" on {device['function']}" if device["function"] != device["name"] else ""
            facts = [device["driver"]] if device["driver"] else []
            if device["memory_bytes"] is not None:
                facts.append(format_size(device["memory_bytes"]))
            if device["gpu_instance"] is not None:
                facts.append(f"GPU instance {device['gpu_instance']}")
            name = f"{device['profile']} {device['name']}" if kind == "vgpu" else device["name"]
            yield f"    {name}{place}, {', '.join([*facts, describe_owner(device)])}"


def _render_types(types: list[dict[str, Any]]) -> Iterator[str]:
    """vGPU types that still fit, then the others by their reason."""
    reasons: dict[str, list[str]] = {}
    width = max((len(type_["name"]) for type_ in types), default=0) + 2
    for type_ in types:
        if type_["free"]:
            yield f"    {type_['name']:<{width}}{type_['free']} more"
        else:
            reasons.setdefault(type_["reason"] or "no capacity", []).append(
                shorten_type(type_["name"])
            )
    for reason, names in reasons.items():
        yield f"    no: {reason}"
        yield from fill(
            ", ".join(names), 88, initial_indent=" " * 8, subsequent_indent=" " * 8
        ).splitlines()


def _render_holders(document: dict[str, Any]) -> Iterator[str]:
    if document["held_by"]:
        yield "  held by"
        yield from (f"    {holder}" for holder in document["held_by"])


def _render_other(gpu: dict[str, Any]) -> Iterator[str]:
    """A GPU without NVML."""
    facts = {
        "pci address": f"{gpu['pci']} ({gpu['vendor_id']:04x}:{gpu['device_id']:04x})",
        "numa node": or_absent(gpu["numa_node"]),
        "iommu group": _describe_group(gpu),
        "driver": or_absent(gpu["driver"]),
        "memory BARs": ", ".join(map(format_size, gpu["bar_bytes"])) or ABSENT,
    }
    facts |= dict(_sensor_facts(gpu))
    if gpu["vfs_total"] is not None:
        facts["VFs"] = _describe_vfs(gpu)
    if gpu["boot_display"]:
        facts["display"] = "the host's boot display"
    yield f"GPU {gpu['model']}"
    if gpu.get("drained"):
        facts["drained"] = describe_drain(gpu)
    if gpu["vms"]:
        facts["VMs"] = ", ".join(gpu["vms"])
    yield from (f"  {label:<{_WIDTH}}{value}" for label, value in facts.items())


def _sensor_facts(gpu: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What its driver shows of it."""
    if (memory := describe_memory(as_row(gpu))) != ABSENT:
        yield "memory", memory
    known = gpu.get("sensors") or {}
    shares = {"GPU": known.get("gpu_ratio"), "memory": known.get("memory_ratio")}
    if found := [f"{share:.0%} {what}" for what, share in shares.items() if share is not None]:
        yield "utilisation", ", ".join(found)
    if (degrees := describe_temperature(gpu)) != ABSENT:
        yield "temperature", degrees
    if (power := describe_power(gpu)) != ABSENT:
        yield "power", power


def _describe_vfs(gpu: dict[str, Any]) -> str:
    return f"{gpu['vfs_enabled']} of {gpu['vfs_total']} virtual functions"


def _describe_capacity(capacity: dict[str, Any]) -> str:
    """``vf  30 more; 31 of 31 enabled, 1 used``, ``vf  no: VMs have all that are enabled``."""
    if not capacity["free"]:
        return f"vf  no: {capacity['why_not']}"
    made = f"{capacity['enabled']} of {capacity['possible']} enabled"
    return f"vf  {capacity['free']} more; {made}, {capacity['used']} used"


def _facts(gpu: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "uuid", gpu["uuid"]
    yield "pci address", gpu["pci"]
    yield "numa node", or_absent(gpu["numa_node"])
    yield "iommu group", _describe_group(gpu)
    yield "driver", f"{or_absent(gpu['driver'])} {gpu['driver_version']}"
    if gpu["architecture"]:
        capability = gpu["compute_capability"]
        yield "architecture", f"{gpu['architecture']} (compute {capability})"
    yield "memory", describe_memory(gpu)
    if gpu["utilisation"]:
        use = gpu["utilisation"]
        yield "utilisation", f"{use['gpu_ratio']:.0%} GPU, {use['memory_ratio']:.0%} memory"
    yield "mig", _describe_mig(gpu["mig"])
    if gpu["vfs_total"] is not None:
        yield "VFs", _describe_vfs(gpu)
    if gpu["vms"]:
        yield "VMs", ", ".join(gpu["vms"])
    if gpu.get("health"):  # an older daemon does not say
        yield "health", describe_health(gpu)
    if gpu.get("drained"):
        yield describe_refusing(gpu), describe_drain(gpu).removeprefix("unhealthy ")


def _describe_group(gpu: dict[str, Any]) -> str:
    group = gpu["iommu_group"]
    if group is None:
        return ABSENT
    others = [member for member in group["members"] if member != gpu["pci"]]
    return f"{group['number']}" + (f", shared with {', '.join(others)}" if others else "")


def _describe_mig(mig: dict[str, Any]) -> str:
    if not mig["supported"]:
        return "not supported"
    if not mig["current"]:
        reset = ", a change needs a reset" if mig["needs_reset"] else ""
        return describe_mig(mig) + reset
    if not mig["memory_positions"]:
        return f"{describe_mig(mig)}; its instances are shown to root only"
    return (
        f"{describe_mig(mig)}; {mig['compute_slices_used']} of {mig['compute_slices']} "
        f"compute slices, {mig['memory_positions_used']} of {mig['memory_positions']} "
        "memory positions used"
    )


def _render_instance(instance: dict[str, Any]) -> Iterator[str]:
    place = describe_placement(instance["placement"])
    size = format_size(instance["memory_bytes"])
    yield f"    {instance['id']:<3} {instance['profile']} at {place}, {size}"
    shared = len({c["attachment"] for c in instance["compute_instances"] if c["attachment"]}) > 1
    for compute in instance["compute_instances"]:
        used = compute["memory_used_bytes"]
        memory = "" if used is None else f", {format_size(used)} used"
        owner = f", {_describe_holder(compute)}" if shared else ""
        yield f"        {compute['uuid'] or 'compute instance without UUID'}{memory}{owner}"
    if not instance["compute_instances"]:
        yield "        no compute instance: not usable yet"
    if shares := instance.get("shares"):
        yield f"        shares ({shares['policy']}), {describe_share_capacity(shares)}"
        yield from (f"          {holder}  {share}" for holder, share in list_shares(shares))
    elif not shared and (owner := _describe_holder(instance)):
        yield f"        {owner}"
    yield from (f"        {_describe_process(process)}" for process in instance["processes"])


def _describe_holder(instance: dict[str, Any]) -> str:
    """``vm vm01 (attachment 5c8f)``, the same of a run, a vGPU that no VM has, or nothing."""
    name, holder = name_holder(instance), instance.get("holder") or {"kind": "vm"}
    if not name or holder["kind"] == "vgpu":
        return name or ""
    return f"{holder['kind']} {name} (attachment {instance['attachment']})"


def _describe_process(process: dict[str, Any]) -> str:
    memory = process["memory_bytes"]
    size = "" if memory is None else f", {format_size(memory)}"
    return f"process {describe_process(process)}{size}"


def _render_profiles(profiles: list[dict[str, Any]]) -> Iterator[str]:
    width = max(len(profile["name"]) for profile in profiles) + 2
    for profile in profiles:
        yield f"    {profile['name']:<{width}}{_describe_fit(profile)}"


def _describe_fit(profile: dict[str, Any]) -> str:
    if profile["why_not"]:
        return f"no: {profile['why_not']}"
    places = " ".join(describe_placement(p) for p in profile["free_placements"])
    return f"{profile['free']} more, at {places}"
