"""Phrases about VMs, plans and channels that several commands share; all work on documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vgpumgr.cli.gpu_text import ABSENT, or_absent, tell_placement
from vgpumgr.cli.streams import Streams
from vgpumgr.model.sizes import format_size

_SIGNS = {"create": "+", "start": "+", "attach": "+", "enable": "+", "record": "+", "note": "+"}
_SIGNS |= {"define": "+", "adopt": "+"}
_MINUS = {"destroy", "stop", "detach", "disable", "forget", "remove", "delete", "undefine"}
_USABLE = {"now": "live now", "next-start": "at the next start", None: ABSENT}


def tell_usable(value: str | None) -> str:
    """When the guest can use its slice."""
    return _USABLE[value]


def render_plan(plan: dict[str, Any]) -> Iterator[str]:
    """The plan with ``+ ~ -``, then its notes."""
    for step in plan["steps"]:
        yield f"  {_sign(step['kind'])} {step['description']}"
    yield from (f"  {note}" for note in plan["notes"])


def _sign(kind: str) -> str:
    verb = kind.rpartition(".")[2]
    return "-" if verb in _MINUS else _SIGNS.get(verb, "~")


def tell_lane_users(channel: dict[str, Any] | None) -> str:
    """Guest processes on a channel: ``matmul (412), train (518)``."""
    lanes = channel["lanes"] if channel else []
    return ", ".join(f"{lane['name']} ({lane['pid']})" for lane in lanes) or ABSENT


def tell_worker(channel: dict[str, Any]) -> str:
    """The worker's state in a word or two."""
    if channel.get("hidden"):
        return "not permitted"
    if not channel["running"]:
        return "no keeper"
    if not channel["worker_ready"]:
        return "not ready"
    return "ready" if channel["hello"] else "waiting for the guest"


def note_hidden(streams: Streams, channels: Sequence[dict[str, Any]], verb: str) -> None:
    """Says, once, that channels are there that this user may not look at, and what to try."""
    count = sum(bool(channel.get("hidden")) for channel in channels)
    if count:
        some = "one channel answers" if count == 1 else f"{count} channels answer"
        advice = f"sudo vgpumgr {verb}"
        streams.note(
            f"note: {some} only to the user who attached it: {streams.address(advice)}; or by the "
            "daemon, which tells members of the groups vgpumgr and vgpumgr-ro"
        )


def render_channel(channel: dict[str, Any]) -> Iterator[str]:
    """Facts of a channel, then its lanes."""
    yield f"  worker        {tell_worker(channel)}, pid {or_absent(channel['worker_pid'])}"
    yield f"  keeper        pid {or_absent(channel['keeper_pid'])}"
    yield f"  transport     {or_absent(channel['transport'])}"
    if channel["ring_bytes"]:
        yield f"  ring          {format_size(channel['ring_bytes'])}"
    if channel["worker_restarts"]:
        yield f"  restarts      {channel['worker_restarts']}"
    if channel["problem"]:
        yield f"  problem       {channel['problem']}"
    yield "  processes" + ("" if channel["lanes"] else "     none")
    for lane in channel["lanes"]:
        moved = f"{format_size(lane['bytes_in'])} in, {format_size(lane['bytes_out'])} out"
        yield (
            f"    {lane['name']} (guest pid {lane['pid']}, {lane['transport']}): "
            f"{lane['calls']} calls, {moved}, holds {format_size(lane['memory_bytes'])}"
        )


def render_attachment(attachment: dict[str, Any]) -> Iterator[str]:
    """Facts of an attachment."""
    place = attachment["placement"]
    where = f"{tell_placement(place)} on " if place else ""
    size = format_size(attachment["memory_bytes"])
    transport = attachment["transport"]
    yield f"  attachment    {attachment['id']} ({attachment['state']})"
    if attachment["gpu"]:
        yield f"  slice         {attachment['profile']} at {where}{attachment['gpu']}, {size}"
    else:
        yield f"  slice         {attachment['profile']}"
    if not attachment["host_devices"]:
        yield f"  device        {or_absent(attachment['device'])}"
    yield f"  backend       {attachment['backend']}" + (
        f", transport {transport}" if transport else ""
    )
    for device in attachment["host_devices"]:
        yield f"  host device   {device['kind']} {device['address']} {device['uuid'] or ''}".rstrip()
    yield f"  usable        {tell_usable(attachment['usable'])}"
