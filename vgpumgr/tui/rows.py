"""The rows of both pages: GPUs with their slices as a tree, VMs as a table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from vgpumgr.model.choices import AWAITED, WORKER_NAMES
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import is_host_driver
from vgpumgr.model.shares import Share
from vgpumgr.model.text import format_size, shorten_type
from vgpumgr.tui.sample import History, Sample, channel_key, vm_key

_GIB = 1 << 30
ABSENT = "-"


class Column(StrEnum):
    """What a row shows, and what rows are sorted by."""

    NAME = "NAME"
    USED_BY = "USED BY"
    MEMORY = "MEMORY"
    LOAD = "LOAD"
    TEMPERATURE = "TEMP"
    POWER = "POWER"
    HEALTH = "HEALTH"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a page. ``data`` is what its details show; ``history`` the key of its loads, with
    ``ratio`` for loads from 0 to 1; ``values`` are what it is sorted by, where that is not its text.
    """

    key: str
    label: str
    used_by: str
    memory: str = ABSENT
    load: str = ABSENT
    temperature: str = ""
    power: str = ""
    health: str = ""
    history: str | None = None
    ratio: bool = False
    alert: bool = False
    title: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[Column, float | None] = field(default_factory=dict)
    #: 0 for a GPU or a VM, 1 for what is on a GPU, 2 for a process in a VM
    depth: int = 0
    #: draws the tree in front of the label
    mark: str = ""

    @property
    def name(self) -> str:
        """The label in its place in the tree."""
        return self.mark + self.label

    def sort_key(self, column: Column) -> tuple[Any, ...] | None:
        """Its place by a column, numbers in a text as numbers; None: the row has no value there."""
        if column in (Column.NAME, Column.USED_BY):
            text = self.label if column is Column.NAME else self.used_by
            words = re.split(r"(\d+)", text.casefold())
            return tuple((int(word), "") if word.isdecimal() else (-1, word) for word in words)
        value = self.values.get(column)
        return None if value is None else (value,)


def list_tree(
    sample: Sample, history: History, closed: Collection[str], order: Order, symbols: Symbols
) -> list[Row]:
    """GPUs, below each its slices, below each slice the guest's processes."""
    vms = {vm["name"]: vm for vm in sample.vms or ()}
    branches: list[_Branch] = []
    for gpu in sample.gpus or ():
        below = [_Branch(row, rows) for row, rows in _list_below(gpu, vms, history)]
        branches.append(_Branch(_gpu_row(gpu, history), below))
    for other in sample.others:
        below = [_Branch(row) for row in _device_rows(other["pci"], other, vms)]
        branches.append(_Branch(_other_row(other), below))
    for lost in sample.lost:
        key, label = f"lost:{lost['index']}", f"{lost['index']} lost"
        row = Row(key, label, lost["nvml_text"], alert=True, title="Lost GPU", data=lost)
        branches.append(_Branch(row))
    return [row for branch in order.sort(branches) for row in branch.draw(closed, order, symbols)]


def _list_below(
    gpu: Mapping[str, Any], vms: Mapping[str, Mapping[str, Any]], history: History
) -> Iterator[tuple[Row, list[_Branch]]]:
    for instance in gpu["instances"]:
        below = list(_list_shares(gpu, instance, vms, history, depth=2))
        if not below:
            lanes = _lane_rows(instance, vms.get(instance["vm"] or ""))
            below = [_Branch(row) for row in lanes]
        yield _slice_row(gpu, instance, vms, history), below
    for branch in _list_shares(gpu, gpu, vms, history, depth=1):
        yield branch.row, list(branch.below)
    for row in (*_device_rows(gpu["uuid"], gpu, vms), *_process_rows(gpu)):
        yield row, []


def _list_shares(
    gpu: Mapping[str, Any],
    whole: Mapping[str, Any],
    vms: Mapping[str, Mapping[str, Any]],
    history: History,
    depth: int,
) -> Iterator[_Branch]:
    """The shares of a GPU or of an instance (``whole``), each with the processes in it."""
    for holder in (whole.get("shares") or {}).get("holders", ()):  # an older daemon does not say
        lanes = _lane_rows(holder, vms.get(holder["name"]))
        below = [_Branch(replace(row, depth=depth + 1)) for row in lanes]
        yield _Branch(replace(_share_row(gpu, holder, vms, history), depth=depth), below)


@dataclass(frozen=True, slots=True)
class _Branch:
    """A row and what is below it."""

    row: Row
    below: Sequence[_Branch] = ()

    def draw(self, closed: Collection[str], order: Order, symbols: Symbols) -> Iterator[Row]:
        """The rows of a GPU with the tree in front of them."""
        is_closed = self.row.key in closed
        mark = (symbols.closed if is_closed else symbols.open) if self.below else "  "
        yield replace(self.row, mark=mark)
        if not is_closed:
            yield from self._draw_below("  ", order, symbols)

    def _draw_below(self, indent: str, order: Order, symbols: Symbols) -> Iterator[Row]:
        for number, branch in enumerate(order.sort(self.below), 1):
            last = number == len(self.below)
            yield replace(branch.row, mark=indent + (symbols.last if last else symbols.branch))
            trunk = "  " if last else symbols.trunk
            yield from branch._draw_below(indent + trunk, order, symbols)


@dataclass(frozen=True, slots=True)
class Order:
    """By which column rows are sorted; None: as the machine lists them. Rows without a value come last."""

    column: Column | None = None
    reverse: bool = False

    def follow(self, columns: Sequence[Column]) -> Order:
        """The next column, then none. Numbers begin with the largest."""
        cycle = (None, *columns)
        at = cycle.index(self.column) if self.column in cycle else 0
        column = cycle[(at + 1) % len(cycle)]
        return Order(column, column not in (None, Column.NAME, Column.USED_BY))

    def sort(self, branches: Iterable[_Branch]) -> list[_Branch]:
        """The branches in this order; equal ones stay as they are."""
        column, known, unknown = self.column, [], []
        if column is None:
            found = list(branches)
            return found[::-1] if self.reverse else found
        for branch in branches:
            key = branch.row.sort_key(column)
            unknown.append(branch) if key is None else known.append((key, branch))
        known.sort(key=lambda pair: pair[0], reverse=self.reverse)
        return [branch for _key, branch in known] + unknown


def list_gpu_keys(sample: Sample) -> list[str]:
    """The keys of the rows of GPUs."""
    known = [gpu["uuid"] for gpu in sample.gpus or ()]
    return known + [other["pci"] for other in sample.others]


def list_vms(sample: Sample, history: History, order: Order) -> list[Row]:
    """Every VM, those with a slice first."""
    found = sorted(sample.vms or (), key=lambda vm: (vm["attachment"] is None, vm["name"]))
    return [branch.row for branch in order.sort(_Branch(_vm_row(vm, history)) for vm in found)]


def _vm_row(vm: Mapping[str, Any], history: History) -> Row:
    memory, used = ABSENT, None
    if vm["channels"]:
        size = sum(a["memory_bytes"] for a in vm["attachments"])
        used = sum(c["memory_bytes"] for c in vm["channels"])
        memory = _memory(used, size)
    rate = history.read_last(vm_key(vm["name"]))
    return Row(
        vm["name"],
        f"{vm['name']} ({vm['state']})",
        describe_first(vm["problems"]) or _describe_attachments(vm),
        memory,
        _per_second(rate),
        history=vm_key(vm["name"]),
        alert=bool(vm["problems"]),
        title="VM",
        data=vm,
        values={Column.MEMORY: used, Column.LOAD: rate},
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
        open_parents = [p for p in open_parents if p.depth < row.depth]
        if wanted in f"{row.name} {row.used_by}".casefold():
            kept += [p for p in open_parents if p not in kept]
            kept.append(row)
        open_parents.append(row)
    return kept


def describe_first(problems: Sequence[str]) -> str:
    """The first problem, and that there are more."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"! {problems[0]}{more}" if problems else ""


def _gpu_row(gpu: Mapping[str, Any], history: History) -> Row:
    use, health = gpu["utilisation"], gpu.get("health") or {}
    rate = history.read_last(gpu["uuid"])
    degrees, power = health.get("temperature_c"), health.get("power_w")
    is_ill = bool(health) and not health["healthy"]
    return Row(
        gpu["uuid"],
        f"{gpu['index']} {gpu['model'].removeprefix('NVIDIA ')}",
        _describe_drained(gpu) + _describe_cut(gpu),
        _memory(gpu["memory_used_bytes"], gpu["memory_total_bytes"]),
        f"{use['gpu_ratio']:.0%}" if use else _per_second(rate),
        ABSENT if degrees is None else f"{degrees}C",
        _describe_power(power, health.get("power_limit_w")),
        _describe_health(health) if health else ABSENT,
        gpu["uuid"],
        ratio=use is not None,
        alert=is_ill,
        title="GPU",
        data=gpu,
        values={
            Column.MEMORY: gpu["memory_used_bytes"],
            Column.LOAD: use["gpu_ratio"] if use else rate,
            Column.TEMPERATURE: degrees,
            Column.POWER: power,
            Column.HEALTH: _count_faults(health) if health else None,
        },
    )


def _describe_power(power_w: float | None, limit_w: float | None) -> str:
    if power_w is None:
        return ABSENT
    return f"{power_w:.0f}/{limit_w:.0f}W" if limit_w else f"{power_w:.0f}W"


def _describe_health(health: Mapping[str, Any]) -> str:
    """``ok``, or what was last reported: ``Xid 79``, ``2 ECC``, ``too hot``. A program's Xid leaves the GPU ok."""
    xids = sorted(health["xids"], key=lambda one: one["last_s"])
    if health["ecc_errors"]:
        return f"{health['ecc_errors']} ECC"
    if xids:
        return f"Xid {xids[-1]['xid']}"
    return "ok" if health["healthy"] else "ill"


def _count_faults(health: Mapping[str, Any]) -> float:
    """Unhealthy GPUs before all others, then by how much was reported."""
    reported: float = sum(one["count"] for one in health["xids"]) + (health["ecc_errors"] or 0)
    return reported if health["healthy"] else reported + 1e9


def _other_row(gpu: Mapping[str, Any]) -> Row:
    """A GPU without NVML."""
    known = gpu.get("sensors") or {}  # an older daemon does not say
    total, used = known.get("memory_total_bytes"), known.get("memory_used_bytes")
    degrees, power, load = (known.get(k) for k in ("temperature_c", "power_w", "gpu_ratio"))
    return Row(
        gpu["pci"],
        f"{gpu['pci'].removeprefix('0000:')} {gpu['model']}",
        _describe_drained(gpu)
        + (_describe_vfs(gpu) or ", ".join(gpu["vms"]) or _describe_vfs_off(gpu)),
        ABSENT if used is None or total is None else _memory(used, total),
        ABSENT if load is None else f"{load:.0%}",
        ABSENT if degrees is None else f"{degrees:.0f}C",
        _describe_power(power, known.get("power_limit_w")),
        ABSENT,
        title="GPU",
        data=gpu,
        values={
            Column.MEMORY: used,
            Column.LOAD: load,
            Column.TEMPERATURE: degrees,
            Column.POWER: power,
        },
    )


def _device_rows(
    key: str, gpu: Mapping[str, Any], vms: Mapping[str, Mapping[str, Any]]
) -> Iterator[Row]:
    """vGPUs and virtual functions of a GPU."""
    for device in gpu["devices"]:
        vm, size = vms.get(device["vm"] or ""), device["memory_bytes"]
        used_by = device["vm"] or "free"
        if vm is not None:
            used_by = describe_first(vm["problems"]) or f"{vm['name']} ({vm['state']})"
        what = shorten_type(device["profile"]) if device["kind"] == "vgpu" else "VF"
        yield Row(
            f"{key}/{device['name']}",
            f"{what} {device['function'].removeprefix('0000:')}",
            used_by,
            ABSENT if size is None else format_size(size),
            alert=bool(vm and vm["problems"]),
            title="vGPU" if device["kind"] == "vgpu" else "Virtual function",
            data={**device, "of_vm": vm},
            values={Column.MEMORY: size},
            depth=1,
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


def _describe_vfs_off(gpu: Mapping[str, Any]) -> str:
    """What it could be cut into, where a driver of the host may make some; else the driver."""
    if gpu["vfs_total"] and is_host_driver(gpu["driver"]):
        return f"0 of {gpu['vfs_total']} VFs"
    return str(gpu["driver"] or "no driver")


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
) -> Row:
    vm = vms.get(instance["vm"] or "")
    key = channel_key(instance["attachment"]) if instance["attachment"] else None
    used = [c["memory_used_bytes"] for c in instance["compute_instances"]]
    known = [value for value in used if value is not None]
    rate = history.read_last(key) if key else None
    place = instance["placement"]
    return Row(
        f"{gpu['uuid']}/{instance['id']}",
        f"{instance['profile']} at {place['start']}:{place['size']}",
        _describe_owner(instance, vm),
        _memory(sum(known), instance["memory_bytes"]) if known else ABSENT,
        _per_second(rate),
        history=key,
        alert=bool(vm and vm["problems"]),
        title="Slice",
        data={**instance, "of_vm": vm},
        values={Column.MEMORY: sum(known) if known else None, Column.LOAD: rate},
        depth=1,
    )


def _share_row(
    gpu: Mapping[str, Any],
    holder: Mapping[str, Any],
    vms: Mapping[str, Mapping[str, Any]],
    history: History,
) -> Row:
    """A share of the GPU, and what is used of its memory."""
    vm = vms.get(holder["name"]) if holder["kind"] == "vm" else None
    channels = vm["channels"] if vm else ()
    used = [c["memory_bytes"] for c in channels if c["id"] == holder["attachment"]]
    key = channel_key(holder["attachment"])
    rate = history.read_last(key)
    owner = f"{holder['name']} ({vm['state']})" if vm else str(holder["name"])
    return Row(
        f"{gpu['uuid']}/{holder['attachment']}",
        str(Share(holder["memory_bytes"], holder["compute"])),
        (describe_first(vm["problems"]) or owner) if vm else owner,
        _memory(sum(used), holder["memory_bytes"]) if used else ABSENT,
        _per_second(rate),
        history=key,
        alert=bool(vm and vm["problems"]),
        title="Share",
        data={**holder, "of_vm": vm},
        values={Column.MEMORY: sum(used) if used else None, Column.LOAD: rate},
        depth=1,
    )


def _describe_owner(instance: Mapping[str, Any], vm: Mapping[str, Any] | None) -> str:
    if vm is not None:
        return describe_first(vm["problems"]) or f"{vm['name']} ({vm['state']})"
    holder = instance.get("holder")  # an older daemon has all in the VM's place
    if name := holder["name"] if holder else instance["vm"]:
        return str(name)
    users = [f"{p['name'] or 'process'} ({p['pid']})" for p in instance["processes"]]
    return ", ".join(users) or "free"


def _lane_rows(instance: Mapping[str, Any], vm: Mapping[str, Any] | None) -> Iterator[Row]:
    channels = vm["channels"] if vm else []
    channel = next((c for c in channels if c["id"] == instance["attachment"]), None)
    for lane in channel["lanes"] if channel else []:
        yield Row(
            f"{instance['attachment']}//{lane['id']}",
            f"{lane['name']} ({lane['pid']})",
            f"{lane['calls']} calls, {lane['transport']}",
            format_size(lane["memory_bytes"]),
            title="Process in the VM",
            data=lane,
            values={Column.MEMORY: lane["memory_bytes"]},
            depth=2,
        )


def _process_rows(gpu: Mapping[str, Any]) -> Iterator[Row]:
    # what runs in a share is its holder's
    shared = bool((gpu.get("shares") or {}).get("holders"))
    for process in gpu["processes"]:
        if shared and process["name"] in WORKER_NAMES:
            continue
        memory = process["memory_bytes"]
        yield Row(
            f"{gpu['uuid']}/p{process['pid']}",
            f"{process['name'] or 'process'} ({process['pid']})",
            f"{process['kind']} on the host",
            ABSENT if memory is None else format_size(memory),
            title="Process on the host",
            data=process,
            values={Column.MEMORY: memory},
            depth=1,
        )


def _memory(used_bytes: int, total_bytes: int) -> str:
    return f"{used_bytes / _GIB:.1f}/{total_bytes / _GIB:.0f} GiB"


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
    falling: str
    rising: str

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


UNICODE = Symbols("▁▂▃▄▅▆▇█", "▾ ", "▸ ", "├ ", "└ ", "│ ", "…", "▼", "▲")
ASCII = Symbols("_.:-=+*#", "- ", "+ ", "|-", "`-", "| ", "~", "v", "^")
