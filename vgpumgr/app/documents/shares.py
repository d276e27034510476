"""Documents of the shares of a GPU or of an instance of MIG; see ``documents.base`` for the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field, VgpuPlanDocument
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.mig import GpuInstance
from vgpumgr.model.shares import MIN_BYTES, MIN_COMPUTE
from vgpumgr.model.text import format_exact, format_size
from vgpumgr.model.vgpu import VgpuHost
from vgpumgr.planning.shares import (
    ShareUse,
    find_obstacle,
    measure_instance_shares,
    measure_shares,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.virtio.channel import ChannelStatus


class ShareHolderDocument(Document):
    """A share of a GPU or of an instance of MIG, and whose it is."""

    kind: Literal["vm", "run"]
    name: str = Field(description="the VM's or the run's")
    attachment: str
    memory_bytes: int
    compute: float = Field(description="percent of the GPU's or the instance's time")
    memory_at_exit_bytes: int | None = Field(
        description="the memory that it has once its programs use no more than that; null: nothing waits"
    )
    priority: Literal["low", "normal", "high"] = Field(
        description="a higher class gets its turns first while it is within its part of the time"
    )


class GpuSharesDocument(Document):
    """The shares of a GPU or of an instance of MIG, and what still fits beside them."""

    policy: Literal["burst", "fixed", "best-effort"] | None = Field(
        description="null: it has no shares"
    )
    memory_total_bytes: int = Field(
        description="what there is for shares: the GPU's memory less what driver and firmware keep, or the instance's"
    )
    memory_free_bytes: int = Field(description="of that, what no share has")
    compute_free: float = Field(
        description="percent of its time that no share has; best-effort shares reserve none"
    )
    why_not: str | None = Field(description="why it takes no share; null: it takes some")
    holders: list[ShareHolderDocument] = Field(description="whose they are")


def describe_shares(snapshot: Snapshot, gpu: Gpu, drained: str | None) -> GpuSharesDocument:
    """The document of one GPU's shares."""
    why = drained or find_obstacle(gpu, snapshot)
    return _describe_use(measure_shares(gpu, snapshot.records), why)


def describe_instance_shares(
    records: Sequence[AttachmentRecord], gpu: Gpu, instance: GpuInstance, drained: str | None
) -> GpuSharesDocument | None:
    """The document of the shares of an instance of MIG; None where it has none."""
    use = measure_instance_shares(gpu, instance, records)
    return _describe_use(use, drained) if use.records else None


def _describe_use(use: ShareUse, why: str | None) -> GpuSharesDocument:
    if why is None and (use.free.memory < MIN_BYTES or use.free.compute < MIN_COMPUTE):
        why = (
            "its shares have all of its memory"
            if use.free.compute >= MIN_COMPUTE
            else "its shares have all of its time"
        )
    return GpuSharesDocument(
        policy=use.policy.value if use.policy else None,
        memory_total_bytes=use.total.memory,
        memory_free_bytes=use.free.memory,
        compute_free=use.free.compute,
        why_not=why,
        holders=[
            ShareHolderDocument(
                kind="vm" if record.run is None else "run",
                name=record.vm_name,
                attachment=record.id,
                memory_bytes=record.share_part.share.memory,
                compute=record.share_part.share.compute,
                memory_at_exit_bytes=record.share_part.memory_at_exit,
                priority=record.share_part.priority.value,
            )
            for record in use.records
            if record.share_part is not None
        ],
    )


def make_snapshot(host: Snapshot, has_vgpu_parents: bool) -> Snapshot:
    """The snapshot for that: vGPUs are observed only where some function may have them."""
    return host if has_vgpu_parents else host.replace(vgpus=VgpuHost())


class ShareDocument(Document):
    """What an attachment has of a GPU, or of an instance of MIG, that others have shares of, too."""

    memory_bytes: int = Field(description="the most that its programs hold together")
    compute: float = Field(description="percent of the GPU's or the instance's time")
    memory_at_exit_bytes: int | None = Field(
        description="the memory that it has once its programs use no more than that; null: nothing waits"
    )
    policy: Literal["burst", "fixed", "best-effort"] = Field(
        description="burst: time that others leave idle is used; fixed: never more than that; "
        "best-effort: a weight that no time is reserved for"
    )
    priority: Literal["low", "normal", "high"] = Field(
        description="a higher class gets its turns first while it is within its part of the time"
    )


class ChannelShareDocument(ShareDocument):
    """A share with what is used of its time since the keeper started."""

    used_s: float | None = Field(description="time on the GPU; null: no keeper says it")
    throttled_s: float | None = Field(description="how long work was held back")
    turns: int | None = Field(description="how often it had its turn on the GPU")
    kept: bool | None = Field(description="whether an arbiter keeps it; null: no keeper says it")
    overdue_s: float | None = Field(
        description="how long its work has been on the GPU after its turn, beside others; 0: it is not"
    )
    charged_percent: float | None = Field(
        default=None,
        description="of the GPU's time, that it was charged for in the last seconds compared",
    )
    driver_percent: float | None = Field(
        default=None, description="the same by the driver's word, of all its processes together"
    )
    unchecked: str | None = Field(
        default=None, description="why the daemon does not compare the two; null: it does"
    )
    uncharged_s: float | None = Field(
        default=None,
        description="GPU time that its processes had beyond what it was charged for, since the keeper started",
    )
    uncharged_pid: int | None = Field(
        default=None,
        description="of the process on the host that had most of that when it was seen last",
    )
    uncharged_at_s: int | None = Field(
        default=None, description="when that was, in seconds since 1970; null: never"
    )


def describe_share(record: AttachmentRecord) -> ShareDocument | None:
    part = record.share_part
    if part is None:
        return None
    return ShareDocument(
        memory_bytes=part.share.memory,
        compute=part.share.compute,
        memory_at_exit_bytes=part.memory_at_exit,
        policy=part.policy.value,
        priority=part.priority.value,
    )


def list_share_warnings(record: AttachmentRecord, status: ChannelStatus) -> Iterator[str]:
    """What an administrator should know of a share: that it is to shrink, and of its time."""
    who, share = record.vm_name, status.share
    waits = record.share_part.memory_at_exit if record.share_part else None
    if waits is not None:
        text = f"its share shrinks to {format_exact(waits)} once its programs use no more than that"
        yield f"{who}: {text}; they use {format_size(status.memory_used or 0)}"
    if share is not None and share.overdue_s:
        text = f"for {share.overdue_s:.0f} s its work has been on the GPU after its turn"
        yield f"{who}: {text}: others go on beside it, and it is charged"
    if share is not None and share.uncharged_s:
        text = (
            f"its processes had {share.uncharged_s:.0f} s of GPU time more than it was charged for"
        )
        yield (
            f"{who}: {text}, by the driver's word; most of it had process {share.uncharged_pid}: was it taken over? "
            f"`vgpumgr virtio restart {who}` ends them"
        )


def describe_channel_share(
    record: AttachmentRecord, status: ChannelStatus
) -> ChannelShareDocument | None:
    part, use = record.share_part, status.share
    if part is None:
        return None
    return ChannelShareDocument(
        memory_bytes=part.share.memory,
        compute=part.share.compute,
        memory_at_exit_bytes=part.memory_at_exit,
        policy=part.policy.value,
        priority=part.priority.value,
        used_s=use.used_s if use else None,
        throttled_s=use.throttled_s if use else None,
        turns=use.turns if use else None,
        kept=use.kept if use else None,
        overdue_s=use.overdue_s if use else None,
        charged_percent=_percent(use.charged) if use else None,
        driver_percent=_percent(use.driver) if use else None,
        unchecked=use.unchecked if use else None,
        uncharged_s=round(use.uncharged_s, 3) if use else None,
        uncharged_pid=use.uncharged_pid if use else None,
        uncharged_at_s=use.uncharged_at_s if use else None,
    )


def _percent(part: float | None) -> float | None:
    return None if part is None else round(part * 100, 1)


class SharePlanDocument(VgpuPlanDocument):
    """What a change of a share does, in order."""

    operation: Literal["set share"]
    subject: str = Field(description="the VM")


class ShareChangeDocument(Document):
    """``vgpumgr virtio set -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: SharePlanDocument
    notes: list[str] = Field(description="what happened besides the plan")
