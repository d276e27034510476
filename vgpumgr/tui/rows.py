"""The rows of both pages: GPUs with their slices as a tree, VMs as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from vgpumgr.model.choices import AWAITED
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import format_size, shorten_type
from vgpumgr.tui.sample import History, Sample, channel_key, vm_key

_GIB = 1 << 30
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a page. ``data`` is what its details show; ``history`` the key of its loads, with
    ``ratio`` for loads from 0 to 1.
    """

    key: str
    name: str
    used_by: str
    memory: str
    load: str
    history: str | None = None
    ratio: bool = False
    alert: bool = False
    parent: bool = False
    title: str = ""
    data: Mapping[str, Any] | None = None
    #: characters of ``name`` that only draw the tree
    indent: int = 0

    @property
    def label(self) -> str:
        """The name without its place in the tree."""
        return self.name[self.indent :]


def list_tree(
    sample: Sample, history: History, closed: Collection[str], symbols: Symbols
) -> Iterator[Row]:
    """GPUs, below each its slices, below each slice the guest's processes."""
    vms = {vm["name"]: vm for vm in sample.vms or ()}
    for gpu in sample.gpus or ():
        is_closed, instances = gpu["uuid"] in closed, gpu["instances"]
        mark = symbols.closed if is_closed else symbols.open
        has_more = bool(gpu["processes"] or gpu["devices"])
        yield _gpu_row(gpu, history, mark if instances or has_more else "  ")
        if is_closed:
            continue
        for number, instance in enumerate(instances, 1):
            last = number == len(instances) and not has_more
            mark = symbols.last if last else symbols.branch
            yield _slice_row(gpu, instance, vms, history, mark)
            trunk = "  " if last else symbols.trunk
            yield from _lane_rows(instance, vms.get(instance["vm"] or ""), "  " + trunk, symbols)
        yield from _device_rows(gpu["uuid"], gpu, vms, bool(gpu["processes"]), symbols)
        yield from _process_rows(gpu, symbols)
    for other in sample.others:
        is_closed = other["pci"] in closed
        mark = symbols.closed if is_closed else symbols.open
        yield _other_row(other, mark if other["devices"] else "  ")
        if not is_closed:
            yield from _device_rows(other["pci"], other, vms, False, symbols)
    for lost in sample.lost:
        name, why = f"  {lost['index']} lost", lost["nvml_text"]
        key = f"lost:{lost['index']}"
        yield Row(key, name, why, ABSENT, ABSENT, alert=True, title="Lost GPU", data=lost, indent=2)


def list_gpu_keys(sample: Sample) -> list[str]:
    """The keys of the rows of GPUs."""
    known = [gpu["uuid"] for gpu in sample.gpus or ()]
    return known + [other["pci"] for other in sample.others]


def list_vms(sample: Sample, history: History) -> Iterator[Row]:
    """Every VM, those with a slice first."""
    found = sorted(sample.vms or (), key=lambda vm: (vm["attachment"] is None, vm["name"]))
    for vm in found:
        memory = ABSENT
        if vm["channels"]:
            size = sum(a["memory_bytes"] for a in vm["attachments"])
            memory = _memory(sum(c["memory_bytes"] for c in vm["channels"]), size)
        yield Row(
            vm["name"],
            f"{vm['name']} ({vm['state']})",
            describe_first(vm["problems"]) or _describe_attachments(vm),
            memory,
            _rate(history, vm_key(vm["name"])),
            vm_key(vm["name"]),
            alert=bool(vm["problems"]),
            title="VM",
            data=vm,
        )


def _describe_attachments(vm: Mapping[str, Any]) -> str:
    words = [f"{a['profile']} {_describe_usable(vm, a)}" for a in vm["attachments"]]
    return ", ".join(words) or "no GPU"


def _describe_usable(vm: Mapping[str, Any], attachment: Mapping[str, Any]) -> str:
    is_live = any(attachment["id"] in alias for alias in vm["devices_live"])
    if is_live and attachment["usable"] == "next-start":
        return AWAITED
    return str(attachment["usable"] or "not usable")


def keep_matching(rows: Sequence[Row], wanted: str) -> list[Row]:
    """The rows that contain the text, whatever its case, each with the rows that it belongs to."""
    wanted = wanted.casefold()
    kept: list[Row] = []
    open_parents: list[Row] = []
    for row in rows:
        depth = row.key.count("/")
        open_parents = [p for p in open_parents if p.key.count("/") < depth]
        if wanted in f"{row.name} {row.used_by}".casefold():
            kept += [p for p in open_parents if p not in kept]
            kept.append(row)
        open_parents.append(row)
    return kept


def describe_first(problems: Sequence[str]) -> str:
    """The first problem, and that there are more."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"! {problems[0]}{more}" if problems else ""


def _gpu_row(gpu: Mapping[str, Any], history: History, mark: str) -> Row:
    use = gpu["utilisation"]
    loads = history.read(gpu["uuid"])
    load = f"{use['gpu_ratio']:.0%}" if use else _per_second(loads[-1] if loads else None)
    return Row(
        gpu["uuid"],
        f"{mark}{gpu['index']} {gpu['model'].removeprefix('NVIDIA ')}",
        _describe_drained(gpu) + _describe_cut(gpu),
        _memory(gpu["memory_used_bytes"], gpu["memory_total_bytes"]),
        load,
        gpu["uuid"],
        ratio=use is not None,
        parent=True,
        title="GPU",
        data=gpu,
        indent=len(mark),
    )


def _other_row(gpu: Mapping[str, Any], mark: str) -> Row:
    """A GPU without NVML."""
    return Row(
        gpu["pci"],
        f"{mark}{gpu['pci'].removeprefix('0000:')} {gpu['model']}",
        _describe_drained(gpu)
        + (_describe_vfs(gpu) or ", ".join(gpu["vms"]) or gpu["driver"] or "no driver"),
        ABSENT,
        ABSENT,
        parent=True,
        title="GPU",
        data=gpu,
        indent=len(mark),
    )


def _device_rows(
    key: str,
    gpu: Mapping[str, Any],
    vms: Mapping[str, Mapping[str, Any]],
    more: bool,
    symbols: Symbols,
) -> Iterator[Row]:
    """vGPUs and virtual functions of a GPU; ``more`` rows of it follow."""
    for number, device in enumerate(gpu["devices"], 1):
        mark = symbols.last if number == len(gpu["devices"]) and not more else symbols.branch
        vm, size = vms.get(device["vm"] or ""), device["memory_bytes"]
        used_by = device["vm"] or "free"
        if vm is not None:
            used_by = describe_first(vm["problems"]) or f"{vm['name']} ({vm['state']})"
        what = shorten_type(device["profile"]) if device["kind"] == "vgpu" else "VF"
        place = device["function"].removeprefix("0000:")
        yield Row(
            f"{key}/{device['name']}",
            f"  {mark}{what} {place}",
            used_by,
            ABSENT if size is None else format_size(size),
            ABSENT,
            alert=bool(vm and vm["problems"]),
            title="vGPU" if device["kind"] == "vgpu" else "Virtual function",
            data={**device, "of_vm": vm},
            indent=len(mark) + 2,
        )


def _describe_drained(gpu: Mapping[str, Any]) -> str:
    """First of all: what is free on it is not to be had."""
    drained = gpu.get("drained")
    if not drained:
        return ""
    return "unhealthy, " if drained.get("fault") else "drained, "


def _describe_cut(gpu: Mapping[str, Any]) -> str:
    """Where a GPU has vGPUs or virtual functions, these say more than that MIG is off."""
    mig, count = gpu["mig"], sum(device["kind"] == "vgpu" for device in gpu["devices"])
    if mig["current"] or mig["pending"] or not (count or gpu["vfs_enabled"]):
        return _describe_mig(mig)
    vgpus = f"{count} vGPU{'' if count == 1 else 's'}"
    return ", ".join(filter(None, [vgpus if count else "", _describe_vfs(gpu)]))


def _describe_vfs(gpu: Mapping[str, Any]) -> str:
    return f"{gpu['vfs_enabled']} of {gpu['vfs_total']} VFs" if gpu["vfs_enabled"] else ""


def _describe_mig(mig: Mapping[str, Any]) -> str:
    if mig["current"] != mig["pending"]:
        return f"MIG {'on' if mig['pending'] else 'off'} after reset"
    if not mig["current"]:
        return "MIG off" if mig["supported"] else "no MIG"
    free = mig["compute_slices"] - mig["compute_slices_used"]
    return f"{free}/{mig['compute_slices']} slices free"


def _slice_row(
    gpu: Mapping[str, Any],
    instance: Mapping[str, Any],
    vms: Mapping[str, Mapping[str, Any]],
    history: History,
    mark: str,
) -> Row:
    name = instance["vm"]
    vm = vms.get(name or "")
    key = channel_key(instance["attachment"]) if instance["attachment"] else None
    used = [c["memory_used_bytes"] for c in instance["compute_instances"]]
    known = [value for value in used if value is not None]
    place = instance["placement"]
    return Row(
        f"{gpu['uuid']}/{instance['id']}",
        f"  {mark}{instance['profile']} at {place['start']}:{place['size']}",
        _describe_owner(instance, vm),
        _memory(sum(known), instance["memory_bytes"]) if known else ABSENT,
        _rate(history, key) if key else ABSENT,
        key,
        alert=bool(vm and vm["problems"]),
        title="Slice",
        data={**instance, "of_vm": vm},
        indent=len(mark) + 2,
    )


def _describe_owner(instance: Mapping[str, Any], vm: Mapping[str, Any] | None) -> str:
    if vm is not None:
        return describe_first(vm["problems"]) or f"{vm['name']} ({vm['state']})"
    if instance["vm"]:
        return str(instance["vm"])
    users = [f"{p['name'] or 'process'} ({p['pid']})" for p in instance["processes"]]
    return ", ".join(users) or "free"


def _lane_rows(
    instance: Mapping[str, Any], vm: Mapping[str, Any] | None, indent: str, symbols: Symbols
) -> Iterator[Row]:
    channels = vm["channels"] if vm else []
    channel = next((c for c in channels if c["id"] == instance["attachment"]), None)
    lanes = channel["lanes"] if channel else []
    for number, lane in enumerate(lanes, 1):
        mark = symbols.last if number == len(lanes) else symbols.branch
        yield Row(
            f"{channel['id']}//{lane['id']}" if channel else "",
            f"{indent}{mark}{lane['name']} ({lane['pid']})",
            f"{lane['calls']} calls, {lane['transport']}",
            format_size(lane["memory_bytes"]),
            ABSENT,
            title="Process in the VM",
            data=lane,
            indent=len(indent + mark),
        )


def _process_rows(gpu: Mapping[str, Any], symbols: Symbols) -> Iterator[Row]:
    for number, process in enumerate(gpu["processes"], 1):
        mark = symbols.last if number == len(gpu["processes"]) else symbols.branch
        memory = process["memory_bytes"]
        yield Row(
            f"{gpu['uuid']}/p{process['pid']}",
            f"  {mark}{process['name'] or 'process'} ({process['pid']})",
            f"{process['kind']} on the host",
            ABSENT if memory is None else format_size(memory),
            ABSENT,
            title="Process on the host",
            data=process,
            indent=len(mark) + 2,
        )


def _memory(used_bytes: int, total_bytes: int) -> str:
    return f"{used_bytes / _GIB:.1f}/{total_bytes / _GIB:.0f} GiB"


def _rate(history: History, key: str) -> str:
    loads = history.read(key)
    return _per_second(loads[-1] if loads else None)


def _per_second(rate: float | None) -> str:
    if rate is None:
        return ABSENT
    for limit, unit, scale in ((1e3, "", 1.0), (1e6, "k", 1e3)):
        if rate < limit:
            return f"{rate / scale:.{0 if rate >= 10 * scale or not unit else 1}f}{unit}/s"
    return f"{rate / 1e6:.1f}M/s"


@dataclass(frozen=True, slots=True)
class Symbols:
    """``bars`` from nothing to full."""

    bars: str
    open: str
    closed: str
    branch: str
    last: str
    trunk: str
    ellipsis: str
    rule: str

    def draw_history(self, values: Sequence[float | None], width: int, full: float) -> str:
        """The newest ``width`` values, right-aligned; unknown ones are blank, more than ``full`` is
        full.
        """
        shown = values[-width:] if width else ()
        return "".join(self._draw_bar(value, full) for value in shown).rjust(width)

    def _draw_bar(self, value: float | None, full: float) -> str:
        if value is None:
            return " "
        share = min(max(value / full, 0.0), 1.0) if full > 0 else 0.0
        # the smallest bar is for nothing alone
        steps = len(self.bars) - 1
        return self.bars[0] if share == 0 else self.bars[max(1, round(share * steps))]

    def cut(self, text: str, width: int) -> str:
        """The text in exactly that many columns."""
        if len(text) <= width:
            return text.ljust(width)
        kept = max(width - len(self.ellipsis), 0)
        return (text[:kept] + self.ellipsis)[:width]


UNICODE = Symbols("▁▂▃▄▅▆▇█", "▾ ", "▸ ", "├ ", "└ ", "│ ", "…", "─")
ASCII = Symbols("_.:-=+*#", "- ", "+ ", "|-", "`-", "| ", "~", "-")
