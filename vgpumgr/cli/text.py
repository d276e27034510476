"""Phrases about GPUs, VMs, plans and channels that several commands share; all work on documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vgpumgr.cli.output import ABSENT, or_absent
from vgpumgr.cli.session import Streams
from vgpumgr.model.choices import AGENT_HINT, AWAITED, WORKER_NAMES, Priority
from vgpumgr.model.limits import LIMIT_KEYS
from vgpumgr.model.pci import is_host_driver
from vgpumgr.model.shares import Share, describe_time, format_percent
from vgpumgr.model.text import format_exact, format_size, format_time, shorten_type, tell_count

_ADDING = {
    "create", "start", "attach", "enable", "record", "note", "define", "adopt", "hold"
}  # fmt: skip
_REMOVING = {
    "destroy",
    "stop",
    "detach",
    "disable",
    "forget",
    "remove",
    "delete",
    "undefine",
    "release",
}
#: kinds of steps that change vgpumgr's own records only
_RECORDS = ("attachment.", "domain.note", "layout.remember", "vf.remember")
_USABLE = {"now": "live now", "next-start": "at the next start", None: ABSENT}


def as_row(other: dict[str, Any]) -> dict[str, Any]:
    """A GPU without NVML in the form of one with it; unknown values are None."""
    unknown = ("index", "uuid", "driver_version", "utilisation")
    mig = {"supported": False, "current": False, "memory_positions": 0}
    known = other.get("sensors") or {}  # an older daemon does not say
    memory = {key: known.get(key) for key in ("memory_total_bytes", "memory_used_bytes")}
    rest = {"mig": mig, "instances": [], "processes": []}
    return {**dict.fromkeys(unknown), **rest, **memory, **other}


def describe_mig(mig: dict[str, Any]) -> str:
    """``off``, ``on``, ``off, on after reset`` or a dash."""
    if not mig["supported"]:
        return ABSENT
    now, then = ("on" if mig[key] else "off" for key in ("current", "pending"))
    return now if now == then else f"{now}, {then} after reset"


def describe_memory(gpu: dict[str, Any]) -> str:
    """Used of total memory: ``0.6/80 GiB``."""
    if gpu["memory_total_bytes"] is None:
        return ABSENT
    if gpu["memory_used_bytes"] is None:
        return format_size(gpu["memory_total_bytes"])
    used_gib = gpu["memory_used_bytes"] / (1 << 30)
    return f"{used_gib:.1f}/{format_size(gpu['memory_total_bytes'])}"


def describe_slices(gpu: dict[str, Any]) -> str:
    """What the GPU is cut into and what is left: ``2x 1g.10gb, 3g.40gb; 2/7 free``, ``2x T4-4C``,
    ``4 of 31 VFs, 3 free``, ``0 of 31 VFs``. A drained or unhealthy GPU says so first.
    """
    mig, found = gpu["mig"], [state] if (state := describe_refusing(gpu)) else []
    if names := [shorten_type(d["profile"]) for d in gpu["devices"] if d["kind"] == "vgpu"]:
        found.append(_count_names(names))
    if mig["current"] and mig["memory_positions"]:  # without positions: shown to root only
        if gpu["instances"]:
            found.append(_count_names([instance["profile"] for instance in gpu["instances"]]))
        free = mig["compute_slices"] - mig["compute_slices_used"]
        found.append(f"{free}/{mig['compute_slices']} free")
    if shares := (gpu.get("shares") or {}).get("holders"):
        found.append(
            f"{tell_count(len(shares), 'share')}, {describe_share_capacity(gpu['shares'])}"
        )
    for instance in gpu["instances"]:
        if holders := (shares := instance.get("shares") or {}).get("holders"):
            count = tell_count(len(holders), "share")
            found.append(f"{count} of a {instance['profile']}, {describe_share_capacity(shares)}")
    if gpu["vfs_enabled"]:
        free = sum(is_free(device) for device in gpu["devices"] if device["kind"] == "vf")
        left = f", {free} free" if free else ""
        found.append(f"{gpu['vfs_enabled']} of {gpu['vfs_total']} VFs{left}")
    elif has_vfs_off(gpu):
        found.append(f"0 of {gpu['vfs_total']} VFs")
    return "; ".join(found) or ABSENT


def describe_share_capacity(shares: Mapping[str, Any]) -> str:
    """What still fits: ``share:12GiB,40% more``, or why nothing does."""
    if shares["why_not"]:
        return f"none more: {shares['why_not']}"
    return f"{Share(shares['memory_free_bytes'], shares['compute_free'])} more"


def list_shares(shares: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Whose each share is, ``vm vm01 (attachment 5c8f)``, and what it is."""
    for one in shares["holders"]:
        waits = one.get("memory_at_exit_bytes")  # an older daemon does not say
        at_exit = "" if waits is None else f", {format_exact(waits)} at exit"
        text = f"{Share(one['memory_bytes'], one['compute'])}{at_exit}{_describe_priority(one)}"
        yield f"{one['kind']} {one['name']} (attachment {one['attachment']})", text


def has_vfs_off(gpu: Mapping[str, Any]) -> bool:
    """Whether a GPU without NVML has no virtual functions, and a driver of the host, which may make some."""
    has_none = gpu.get("index") is None and gpu["vfs_total"] and not gpu["vfs_enabled"]
    return bool(has_none) and is_host_driver(gpu["driver"])


def describe_temperature(gpu: Mapping[str, Any]) -> str:
    """``46 °C``, as NVML or the kernel's driver says."""
    known = (gpu.get("health") or gpu.get("sensors") or {}).get("temperature_c")
    return ABSENT if known is None else f"{known:.0f} °C"


def describe_power(gpu: Mapping[str, Any]) -> str:
    """``38 W of 75 W``: what the card draws, and the most that it may."""
    known = gpu.get("health") or gpu.get("sensors") or {}
    power, limit = known.get("power_w"), known.get("power_limit_w")
    if power is None:
        return ABSENT
    return f"{power:.0f} W" + (f" of {limit:.0f} W" if limit else "")


def _count_names(names: Sequence[str]) -> str:
    counts = Counter(names)
    return ", ".join(name if n == 1 else f"{n}x {name}" for name, n in counts.items())


def describe_refusing(gpu: Mapping[str, Any]) -> str:
    """``drained`` or ``unhealthy``; empty for a GPU that takes new slices."""
    drained = gpu.get("drained")  # an older daemon does not say
    if not drained:
        return ""
    return "unhealthy" if drained.get("fault") else "drained"


def describe_health(gpu: dict[str, Any]) -> str:
    """``healthy; 34 °C; no uncorrectable ECC errors``."""
    health = gpu["health"]
    found = ["healthy" if health["healthy"] else "unhealthy"]
    if health["temperature_c"] is not None:
        found.append(f"{health['temperature_c']} °C")
    if (power := describe_power(gpu)) != ABSENT:
        found.append(power)
    if (errors := health["ecc_errors"]) is not None:
        found.append(f"{errors or 'no'} uncorrectable ECC error{'' if errors == 1 else 's'}")
    for one in health["xids"]:
        last = f"last on {format_time(one['last_s'])}"
        found.append(f"{one['text']} {one['count']} time{'' if one['count'] == 1 else 's'}, {last}")
    return "; ".join(found)


def describe_drain(gpu: dict[str, Any]) -> str:
    """By whom, when and why it takes no new slice."""
    drained = gpu.get("drained")  # an older daemon does not say
    return str(drained["text"]).removeprefix("drained ") if drained else ABSENT


def is_free(device: dict[str, Any]) -> bool:
    """Whether no attachment and no VM that the driver names has it."""
    return device["vm"] is None and device["attachment"] is None


def describe_owner(device: dict[str, Any]) -> str:
    """Which VM has a vGPU or a virtual function."""
    if device["vm"] is None:
        return "free"
    attachment = f" (attachment {device['attachment']})" if device["attachment"] else ""
    return f"vm {device['vm']}{attachment}"


def name_holder(instance: dict[str, Any]) -> str | None:
    """What a MIG instance belongs to, by name: a VM, a run or a vGPU."""
    holder = instance.get("holder")  # an older daemon has all in the VM's place
    name: str | None = holder["name"] if holder else instance["vm"]
    return name


def list_holders(instance: dict[str, Any]) -> list[str]:
    """The same: several, where they have shares of the instance."""
    names = [holder["name"] for holder in (instance.get("shares") or {}).get("holders", ())]
    return names or [name for name in [name_holder(instance)] if name]


def list_users(gpu: dict[str, Any]) -> list[str]:
    """What slices belong to, then processes that are in no such slice."""
    users = [name for instance in gpu["instances"] for name in list_holders(instance)]
    users += [holder["name"] for holder in (gpu.get("shares") or {}).get("holders", ())]
    users += [name for name in gpu["vms"] if name not in users]
    # what runs in a share is its holder's
    shared = bool((gpu.get("shares") or {}).get("holders"))
    loose = [p for p in gpu["processes"] if not (shared and p["name"] in WORKER_NAMES)]
    loose += [p for i in gpu["instances"] if not name_holder(i) for p in i["processes"]]
    return list(dict.fromkeys([*users, *(describe_process(p) for p in loose)]))


def describe_users(gpu: dict[str, Any]) -> str:
    """All users in one cell."""
    return ", ".join(list_users(gpu)) or ABSENT


def describe_process(process: dict[str, Any]) -> str:
    """``python3 (1234)``."""
    return f"{process['name'] or 'process'} ({process['pid']})"


def describe_placement(placement: dict[str, Any]) -> str:
    """``start:size`` on the memory axis."""
    return f"{placement['start']}:{placement['size']}"


def describe_usable(value: str | None, *, is_live: bool) -> str:
    """When the guest can use its slice. ``is_live``: its devices are in the running machine, so that of the next start
    only the agent is missing.
    """
    return AWAITED if is_live and value == "next-start" else _USABLE[value]


def is_live(vm: dict[str, Any], attachment: dict[str, Any]) -> bool:
    """Whether the attachment's devices are in the running machine."""
    return any(attachment["id"] in alias for alias in vm["devices_live"])


def render_plan(plan: dict[str, Any], verbosity: int = 0) -> Iterator[str]:
    """The plan with ``+ ~ -``, then its notes. Steps that only keep records come with -v; with -q there is nothing."""
    if verbosity < 0:
        return
    for step in plan["steps"]:
        if verbosity > 0 or not step["kind"].startswith(_RECORDS):
            yield f"  {_sign(step['kind'])} {step['description']}"
    yield from (f"  {note}" for note in plan["notes"])


def render_outcome(head: str, document: dict[str, Any], verbosity: int) -> Iterator[str]:
    """What an operation did or would do, its plan, and its notes; a colon only where something follows."""
    lines = [*render_plan(document["plan"], verbosity)]
    lines += [f"  note: {note}" for note in document["notes"]]
    yield f"{head}:" if lines else head
    yield from lines


def _sign(kind: str) -> str:
    verb = kind.rpartition(".")[2]
    return "-" if verb in _REMOVING else "+" if verb in _ADDING else "~"


def describe_lane_users(channel: dict[str, Any] | None) -> str:
    """Guest processes on a channel: ``matmul (412), train (518)``."""
    lanes = channel["lanes"] if channel else []
    return ", ".join(f"{lane['name']} ({lane['pid']})" for lane in lanes) or ABSENT


def describe_worker(channel: dict[str, Any]) -> str:
    """The worker's state in a word or two."""
    if channel.get("hidden"):
        return "not permitted"
    if not channel["running"]:
        return "no keeper"
    if not channel["worker_ready"]:
        return "not ready"
    return "ready" if channel["hello"] else "waiting for the agent"


def describe_share(channel: dict[str, Any]) -> str:
    """What a share's time is now: ``30% burst, 12.5 s used``; ``-`` for a channel of another slice."""
    share = channel.get("share")
    if not share:
        return or_absent(None)
    used = "" if share["used_s"] is None else f", {share['used_s']:.1f} s used"
    waits = share.get("memory_at_exit_bytes")  # an older daemon does not say
    at_exit = "" if waits is None else f", {format_exact(waits)} at exit"
    policy = f"{share['policy']}{_describe_priority(share)}"
    return f"{format_percent(share['compute'])} {policy}{used}{at_exit}"


def _describe_priority(share: Mapping[str, Any]) -> str:
    """Nothing for the usual one; an older daemon does not say."""
    priority = share.get("priority", Priority.NORMAL)
    return "" if priority == Priority.NORMAL else f", {priority} priority"


def render_share(channel: dict[str, Any]) -> Iterator[str]:
    """A share and what is used of its time; nothing for another slice."""
    share = channel.get("share")
    if not share:
        return
    text = describe_time(share["compute"], share["policy"])
    yield f"  share         {format_size(share['memory_bytes'])}, {text}{_describe_priority(share)}"
    if (waits := share.get("memory_at_exit_bytes")) is not None:
        yield f"  at exit       {format_exact(waits)}, once its programs use no more than that"
    if share["used_s"] is not None:
        waited = f"held back {share['throttled_s']:.1f} s"
        yield f"  time          {share['used_s']:.1f} s on the GPU, {waited}, {share['turns']} turns"
    if share.get("unchecked"):
        yield f"  of it         held by the sessions alone: {share['unchecked']}"
    elif share.get("driver_percent") is not None:
        figures = f"{share['driver_percent']:.0f} % by the driver's word, {share['charged_percent']:.0f} % charged"
        yield f"  of it         in the last seconds {figures}"
    if share.get("uncharged_s"):
        more = f"{share['uncharged_s']:.0f} s on the GPU beyond that, by the driver's word"
        yield f"  uncharged     {more}; process {share['uncharged_pid']} had most of it: was it taken over?"
    if share["kept"] is False:
        yield "  arbiter       does not run: the percentage is not kept"


def note_hidden(streams: Streams, channels: Sequence[dict[str, Any]], verb: str) -> None:
    """Says once that some channels are not open to this user, and what to try."""
    count = sum(bool(channel.get("hidden")) for channel in channels)
    if count:
        some = "one channel answers" if count == 1 else f"{count} channels answer"
        advice = f"sudo vgpumgr {verb}"
        streams.note(
            f"note: {some} only to the user who attached it: {streams.address(advice)}; or by the "
            "daemon, which answers members of the groups vgpumgr and vgpumgr-ro"
        )


def render_channel(channel: dict[str, Any]) -> Iterator[str]:
    """Facts of a channel, then its lanes."""
    yield f"  worker        {describe_worker(channel)}, pid {or_absent(channel['worker_pid'])}"
    if channel["running"] and channel["worker_ready"] and not channel["hello"]:
        yield f"  agent         usable {AWAITED}; to try: {AGENT_HINT}"
    yield f"  keeper        pid {or_absent(channel['keeper_pid'])}"
    yield f"  transport     {or_absent(channel['transport'])}"
    if channel["ring_bytes"]:
        yield f"  ring          {format_size(channel['ring_bytes'])}"
    if channel["worker_restarts"]:
        yield f"  restarts      {channel['worker_restarts']}"
    if channel["problem"]:
        yield f"  problem       {channel['problem']}"
    yield from _render_sessions(channel.get("sessions"))
    refused = channel.get("refused") or []
    if refused:
        total = sum(call["count"] for call in refused)
        yield f"  refused       {total} calls that are not supported"
        yield from (f"    {call['name']}: {call['count']}" for call in refused)
    yield "  processes" + ("" if channel["lanes"] else "     none")
    for lane in channel["lanes"]:
        moved = f"{format_size(lane['bytes_in'])} in, {format_size(lane['bytes_out'])} out"
        yield (
            f"    {lane['name']} (guest pid {lane['pid']}, {lane['transport']}): "
            f"{lane['calls']} calls, {moved}, holds {format_size(lane['memory_bytes'])}"
        )


def _render_sessions(sessions: dict[str, Any] | None) -> Iterator[str]:
    """Counts, then one line for each that needs an eye; nothing where all is well."""
    if not sessions or not (sessions["lost"] or sessions["overdue"] or sessions["events"]):
        return
    counts = f"{sessions['lost']} lost, {sessions['faults']} of them by a fault"
    if sessions["overdue"]:
        counts += f"; {sessions['overdue']} ended by the watchdog"
    if sessions.get("memory"):
        counts += f"; {sessions['memory']} ended for device memory that they did not count"
    yield f"  sessions      {counts}"
    for event in sessions["events"]:
        who = f"{event['name']} (guest pid {event['guest_pid']})" if event["name"] else "a process"
        where = f"lane {event['lane']}" + (f", pid {event['pid']}" if event["pid"] else "")
        when = format_time(event["since_s"])
        text = f"at {when}" if event["kind"] in ("ended", "memory") else f"since {when}"
        yield f"    {event['kind']}: {who}, {where}, {text}: {event['text']}"


def _format_used(limit: dict[str, Any]) -> str:
    return format_size(limit["used"]) if limit["unit"] == "bytes" else str(limit["used"])


def render_limits(channel: dict[str, Any]) -> Iterator[str]:
    """What the VM may take, and what it takes."""
    if channel["limits"]:
        yield "  limits"
    for limit in channel["limits"]:
        key = LIMIT_KEYS[limit["key"]]
        text = f"    {key.name:<14}{key.format(limit['limit'])}"
        if limit["used"] is not None:
            text += f", {_format_used(limit)} used"
        if limit.get("driver_used") is not None:
            text += f", {format_size(limit['driver_used'])} by the driver's word"
        if limit.get("unchecked"):
            text += f", held by the sessions alone: {limit['unchecked']}"
        if limit["refused"]:
            text += f", refused {limit['refused']} times"
        if limit["waited_s"]:
            text += f", calls waited {limit['waited_s']:.1f} s"
        yield text


def render_sandbox(sandboxes: Sequence[dict[str, Any]], channel_id: str) -> Iterator[str]:
    """What holds a channel's worker, and what does not."""
    for sandbox in sandboxes:
        if sandbox["id"] != channel_id or not sandbox["facts"]:
            continue
        missing = [fact for fact in sandbox["facts"] if not fact["holds"]]
        held = len(sandbox["facts"]) - len(missing)
        profile = [f for f in sandbox["facts"] if f["name"] == "AppArmor" and f["holds"]]
        more = f"; AppArmor: {profile[0]['detail']}" if profile else ""
        yield f"  sandbox       {held} of {len(sandbox['facts'])} facts hold{more}"
        for fact in missing:
            yield f"    {fact['name']} does not: {fact['detail']}"


def render_libraries(libraries: Sequence[dict[str, Any]], channel_id: str) -> Iterator[str]:
    """The host's libraries that a channel's sessions call."""
    head = "libraries"
    for one in (one for one in libraries if one["id"] == channel_id):
        count = one["sessions"]
        users = f"loaded by {count} session{'s' * (count != 1)}" if count else "not loaded yet"
        yield f"  {head:<13} {one['path']}, {users}"
        head = ""


def render_attachment(vm: dict[str, Any], attachment: dict[str, Any]) -> Iterator[str]:
    """Facts of an attachment of a VM."""
    place = attachment["placement"]
    where = f"{describe_placement(place)} on " if place else ""
    size = format_size(attachment["memory_bytes"])
    transport = attachment["transport"]
    yield f"  attachment    {attachment['id']} ({attachment['state']})"
    if attachment["gpu"]:
        yield f"  slice         {attachment['profile']} at {where}{attachment['gpu']}, {size}"
    else:
        yield f"  slice         {attachment['profile']}"
    if claim := attachment.get("claim"):  # an older daemon does not say
        yield f"  claim         {claim}"
    if not attachment["host_devices"]:
        yield f"  device        {or_absent(attachment['device'])}"
    yield f"  backend       {attachment['backend']}" + (
        f", transport {transport}" if transport else ""
    )
    for device in attachment["host_devices"]:
        yield f"  host device   {device['kind']} {device['address']} {device['uuid'] or ''}".rstrip()
    usable = describe_usable(attachment["usable"], is_live=is_live(vm, attachment))
    yield f"  usable        {usable}"
