"""Documents of the shares of a GPU; see ``documents.base`` for the rules."""

from __future__ import annotations

from typing import Literal

from vgpumgr.app.documents.base import Document, Field
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.shares import MIN_BYTES
from vgpumgr.model.vgpu import VgpuHost
from vgpumgr.planning.shares import find_obstacle, measure_shares
from vgpumgr.planning.snapshot import Snapshot


class ShareHolderDocument(Document):
    """A share of a GPU, and whose it is."""

    kind: Literal["vm", "run"]
    name: str = Field(description="the VM's or the run's")
    attachment: str
    memory_bytes: int
    compute: int = Field(description="percent of the GPU's time")


class GpuSharesDocument(Document):
    """The shares of a GPU, and what still fits beside them."""

    policy: Literal["burst", "fixed"] | None = Field(description="null: it has no shares")
    memory_total_bytes: int = Field(
        description="what the GPU has for shares: its memory less what driver and firmware keep"
    )
    memory_free_bytes: int = Field(description="of that, what no share has")
    compute_free: int = Field(description="percent of the GPU's time that no share has")
    why_not: str | None = Field(description="why it takes no share; null: it takes some")
    holders: list[ShareHolderDocument]


def describe_shares(snapshot: Snapshot, gpu: Gpu, drained: str | None) -> GpuSharesDocument:
    """The document of one GPU's shares."""
    use = measure_shares(gpu, snapshot.records)
    why = drained or find_obstacle(gpu, snapshot)
    if why is None and (use.free.memory < MIN_BYTES or use.free.compute < 1):
        why = (
            "its shares have all of its memory"
            if use.free.compute
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
            )
            for record in use.records
            if record.share_part is not None
        ],
    )


def make_snapshot(host: Snapshot, has_vgpu_parents: bool) -> Snapshot:
    """The snapshot for that: vGPUs are observed only where some function may have them."""
    return host if has_vgpu_parents else host.replace(vgpus=VgpuHost())
