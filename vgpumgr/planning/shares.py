"""Which GPU a share gets, and what GPUs have left for shares: pure.

What counts is recorded, not observed: a share keeps its memory and its time while nothing runs in it. A GPU has for
shares what the driver calls its memory, less what driver and firmware keep of that (docs/shares.md), and 100 % of its
time. Every GPU with shares stays one of shares: of those on which a share fits, one that has shares already is taken
before an empty one, then the one that has least left afterwards, so that whole GPUs stay whole for as long as possible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vgpumgr.errors import BackendUnsupportedError, GpuNotFoundError, NoRoomError
from vgpumgr.mig.selection import find_mig_device, select_gpu
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.choices import MAX_PARTS, ComputePolicy, Priority
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.shares import (
    MAX_COMPUTE,
    MIN_BYTES,
    MIN_COMPUTE,
    Share,
    describe_free,
    divide,
    format_percent,
)
from vgpumgr.model.text import format_exact
from vgpumgr.planning.snapshot import NumaPolicy

if TYPE_CHECKING:
    from vgpumgr.model.gpu import Gpu
    from vgpumgr.model.identity import GpuUuid
    from vgpumgr.model.request import AttachRequest, ShareRequest
    from vgpumgr.planning.snapshot import Snapshot
    from vgpumgr.virtio.channel import ChannelStatus


@dataclass(frozen=True, slots=True)
class ShareUse:
    """The shares of one GPU, and what is left beside them. ``policy`` is None where there are none."""

    records: tuple[AttachmentRecord, ...]
    total: Share
    free: Share
    policy: ComputePolicy | None

    @property
    def holders(self) -> list[str]:
        """Who has them, for people."""
        return [f"{r.holder} ({r.profile}, attachment {r.id})" for r in self.records]


def list_share_records(
    records: Iterable[AttachmentRecord], gpu: GpuUuid | None
) -> tuple[AttachmentRecord, ...]:
    """The attachments that have a share of that GPU, however far they are."""
    return tuple(r for r in records if r.share_part is not None and r.gpu == gpu)


def mark_shares(gpus: Sequence[Gpu], records: Sequence[AttachmentRecord]) -> tuple[Gpu, ...]:
    """The GPUs with the holders of their shares: what else wants a GPU finds them there."""
    names: dict[str, list[str]] = {}
    for record in records:
        if record.share_part is not None:
            text = f"{record.holder} ({record.profile}, attachment {record.id})"
            names.setdefault(str(record.gpu), []).append(text)
    return tuple(
        replace(gpu, shared_by=tuple(names[str(gpu.uuid)])) if str(gpu.uuid) in names else gpu
        for gpu in gpus
    )


def measure_shares(gpu: Gpu, records: Iterable[AttachmentRecord]) -> ShareUse:
    """What the GPU has for shares, whether it may have any now or not."""
    total = Share(max(0, gpu.memory.total_bytes - gpu.memory.reserved_bytes), MAX_COMPUTE)
    mine, free, policy = list_share_records(records, gpu.uuid), total, None
    for record in mine:
        assert record.share_part is not None
        policy = record.share_part.policy
        free -= _reserve(record.share_part.share, policy)
    return ShareUse(mine, total, Share(max(0, free.memory), max(0, free.compute)), policy)


def _reserve(share: Share, policy: ComputePolicy) -> Share:
    """What is reserved for it: no time where the policy reserves none."""
    return share if policy.reserves_time else Share(share.memory, 0)


def find_obstacle(gpu: Gpu, snapshot: Snapshot) -> str | None:
    """Why the GPU takes no share at all, whatever its size; None: it may."""
    if gpu.mig.current:
        return "it is in MIG mode"
    if gpu.mig.pending:
        return "MIG mode is to be turned on by a reset of it"
    kept = [r for r in snapshot.records if r.gpu == gpu.uuid and r.mig_part is not None]
    if kept:
        names = ", ".join(f"{r.profile} of {r.holder}" for r in kept)
        return f"MIG mode comes back on it with {names}"
    layout = snapshot.layouts.get(str(gpu.uuid))
    if layout is not None and layout.mig_enabled:
        return "the layout that was applied to it turns MIG mode on"
    if gpu.vfs_enabled:
        return f"it has {gpu.vfs_enabled} virtual functions"
    return _find_vgpus(gpu, snapshot)


def _find_vgpus(gpu: Gpu, snapshot: Snapshot) -> str | None:
    """vGPUs on it: their driver plans time and memory of the GPU by itself."""
    board = next((one for one in snapshot.vgpus.boards if one.name == str(gpu.pci)), None)
    if board is None:
        return None
    parents = {parent.name for parent in snapshot.vgpus.list_parents(board.name)}
    found = [d.type_name for d in snapshot.vgpus.devices if d.parent in parents]
    return f"it has vGPUs: {', '.join(found)}" if found else None


@dataclass(frozen=True, slots=True)
class SharePlacement:
    """A share on its GPU, and why there."""

    gpu: Gpu
    share: Share
    policy: ComputePolicy
    why: str
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A GPU that may have shares. ``refusal``: why it takes none of this policy, drained and stuck ones too."""

    gpu: Gpu
    use: ShareUse
    policy: ComputePolicy
    refusal: str | None = None
    #: how many shares more its arbiter serves
    left: int = MAX_PARTS

    def size(self, wanted: ShareRequest) -> Share:
        """The share that is asked for, as it is on this GPU."""
        if wanted.share is not None:
            return wanted.share
        assert wanted.parts is not None
        return divide(self.use.total.memory, wanted.parts)

    def takes(self, share: Share) -> bool:
        """Whether it fits."""
        if self.refusal is not None or self.left < 1:
            return False
        return share.memory >= MIN_BYTES and self.reserve(share).fits_in(self.use.free)

    def reserve(self, share: Share) -> Share:
        """What it would take of the GPU."""
        return _reserve(share, self.policy)

    def give(self, share: Share) -> _Candidate:
        """The GPU as it is to be with it; ``records`` are as they were."""
        use = replace(self.use, free=self.use.free - self.reserve(share))
        return replace(self, use=use, left=self.left - 1)

    def count(self, share: Share) -> int:
        """How many more of it fit."""
        if not self.takes(share):
            return 0
        return min(self.reserve(share).count_in(self.use.free), self.left)


def choose_shares(
    request: AttachRequest,
    wanted: ShareRequest,
    nodes: Collection[int],
    snapshot: Snapshot,
    refusal: str,
) -> tuple[SharePlacement, ...]:
    """GPUs for all that is asked for, near the NUMA ``nodes``. Exact: if they fit, they are placed.

    Raises NoRoomError, which says what would fit and who has the rest; GpuDrainedError; what ``select_gpu`` does; and
    BackendUnsupportedError for a MIG device. Their first lines begin with ``refusal``.
    """
    usual = ComputePolicy.BEST_EFFORT if wanted.is_memory_only else ComputePolicy.BURST
    policy = ComputePolicy(request.compute_policy or usual)
    priority = Priority(request.priority or Priority.NORMAL)
    near = NumaPolicy.of(request.numa, nodes)
    gpus = _list_gpus(request, snapshot, near, refusal)
    snapshot.check_not_drained(refusal, *(gpu.pci for gpu in gpus))
    there = [_observe(gpu, snapshot, policy) for gpu in gpus]
    placed: list[SharePlacement] = []
    now = there
    while len(placed) < request.count:
        able = [one for one in now if one.takes(one.size(wanted))]
        if not able:
            raise _refuse(request, wanted, policy, there, refusal)
        best = min(able, key=lambda one: _rank(one, one.size(wanted), near, request.spread))
        share = best.size(wanted)
        now = [one.give(share) if one is best else one for one in now]
        why = _explain(best, share, near)
        placed.append(SharePlacement(best.gpu, share, policy, why, priority))
    return tuple(placed)


def _list_gpus(
    request: AttachRequest, snapshot: Snapshot, near: NumaPolicy, refusal: str
) -> Sequence[Gpu]:
    gpus = snapshot.require_gpus()
    if request.gpu is not None:
        if find_mig_device(gpus, request.gpu) is not None:
            raise BackendUnsupportedError(
                f"{refusal}: {request.gpu} is a MIG device",
                why="a share is one of a whole GPU that is not in MIG mode",
                hint="--gpu with a GPU of vgpumgr gpu list; or a MIG profile of vgpumgr mig profiles",
            )
        gpus = [_select(gpus, request.gpu, snapshot, refusal)]
    left = [gpu for gpu in gpus if not near.is_refused(gpu.numa_node)]
    if gpus and not left:
        error = near.explain([f"{gpu} on {gpu.numa_node}" for gpu in gpus])
        error.error = f"{refusal}: {error.error}"
        raise error
    if not gpus:
        raise NoRoomError(
            f"{refusal}: NVML has no GPU here",
            why="a share is one of a GPU that the NVIDIA driver has",
            hint="vgpumgr gpu list",
        )
    return left


def _select(gpus: Sequence[Gpu], selector: str, snapshot: Snapshot, refusal: str) -> Gpu:
    try:
        return select_gpu(gpus, selector)
    except GpuNotFoundError:
        address = PciAddress.read(selector)
        function = snapshot.find(address) if address is not None else None
        if function is None or not function.is_gpu:
            raise
        holder = snapshot.taken.get(function.address)
        raise NoRoomError(
            f"{refusal}: {function.address} is not the NVIDIA driver's",
            why=f"its driver is {function.driver or 'none'}: a whole GPU has no shares",
            held_by=[holder] if holder else [],
            hint=f"vgpumgr passthrough unbind {function.address}; or another GPU",
        ) from None


def _observe(gpu: Gpu, snapshot: Snapshot, policy: ComputePolicy) -> _Candidate:
    use = measure_shares(gpu, snapshot.records)
    refusal = find_obstacle(gpu, snapshot)
    if (drain := snapshot.find_drain(gpu.pci)) is not None:
        refusal = str(drain)
    elif str(gpu.uuid) in snapshot.stuck:
        refusal = snapshot.stuck[str(gpu.uuid)]
    elif refusal is None and use.policy not in (None, policy):
        refusal = f"its shares are {use.policy}, and one GPU has one policy"
    elif refusal is None and len(use.records) >= MAX_PARTS:
        refusal = f"it has {MAX_PARTS} shares, the most that a GPU can have"
    return _Candidate(gpu, use, policy, refusal, MAX_PARTS - len(use.records))


def _rank(one: _Candidate, share: Share, near: NumaPolicy, spread: bool) -> tuple[object, ...]:
    """The VM's own NUMA node; then a GPU that has shares already and least left; or the emptiest to spread."""
    left = one.use.free - one.reserve(share)
    rest = left.memory / max(1, one.use.total.memory) + left.compute / MAX_COMPUTE
    is_empty = one.use.free == one.use.total
    order = (-rest,) if spread else (is_empty, rest)
    return (near.is_far(one.gpu.numa_node), *order, one.gpu.index)


def _explain(one: _Candidate, share: Share, near: NumaPolicy) -> str:
    left = describe_free(one.use.free - one.reserve(share))
    beside = "it has no shares yet"
    if one.use.free != one.use.total:
        beside = "it has shares already, and whole GPUs stay whole"
    return f"{one.gpu}: {beside}; {left} stays free{near.describe(one.gpu.numa_node)}"


def _refuse(
    request: AttachRequest,
    wanted: ShareRequest,
    policy: ComputePolicy,
    there: Sequence[_Candidate],
    refusal: str,
) -> NoRoomError:
    counts = [(one, one.count(one.size(wanted))) for one in there]
    fits = sum(count for _, count in counts)
    if fits:
        each = ", ".join(f"{count} on {one.gpu}" for one, count in counts if count)
        return NoRoomError(
            f"{refusal}: {request.count} times {wanted} do not fit",
            why=f"{fits} fit: {each}",
            held_by=_list_holders(there),
            hint=f"vgpumgr why '{wanted}'",
        )
    return NoRoomError(
        f"{refusal}: no GPU has that much left"
        if len(there) != 1
        else f"{refusal}: {there[0].gpu} takes no such share",
        why="; ".join(_describe_refusals(wanted, there)),
        held_by=_list_holders(there),
        hint=_advise(request, wanted, policy, there),
    )


def _describe_refusals(wanted: ShareRequest, there: Sequence[_Candidate]) -> Iterator[str]:
    if len(there) == 1:
        yield _describe_refusal(wanted, there[0])
        return
    for one in there[:8]:
        yield f"{one.gpu}: {_describe_refusal(wanted, one)}"
    if len(there) > 8:
        yield f"and {len(there) - 8} more GPUs (vgpumgr why '{wanted}')"


def _describe_refusal(wanted: ShareRequest, one: _Candidate) -> str:
    share = one.size(wanted)
    if one.refusal is not None:
        return one.refusal
    if share.memory < MIN_BYTES:
        return f"{share} is less than the 128 MiB that one context needs"
    return f"{describe_free(one.use.free)} more fits beside its shares, {share} does not"


def _list_holders(there: Sequence[_Candidate]) -> list[str]:
    return [text for one in there[:8] for text in one.use.holders]


def _advise(
    request: AttachRequest,
    wanted: ShareRequest,
    policy: ComputePolicy,
    there: Sequence[_Candidate],
) -> str:
    """The nearest share that fits, else what lets GPUs take shares."""
    offers = [
        Share(min(share.memory, free.memory), min(share.compute, free.compute))
        for one in there
        if one.refusal is None
        for share, free in [(one.size(wanted), one.use.free)]
    ]
    able = [share for share in offers if share.memory >= MIN_BYTES and share.compute >= MIN_COMPUTE]
    if able:
        best = max(able, key=lambda share: (share.memory, share.compute))
        return f"--profile {best} fits; or vgpumgr detach one of its holders"
    others = [one.use.policy for one in there if one.use.policy not in (None, policy)]
    if others and would_take(there, wanted):
        return f"--compute-policy {others[0]}"
    if request.gpu is None and all(one.gpu.mig.current for one in there):
        index = there[0].gpu.index
        return f"vgpumgr mig disable {index}; or a MIG profile of vgpumgr mig profiles"
    if len(there) == 1 and there[0].gpu.mig.current:
        return f"another GPU; or vgpumgr mig disable {there[0].gpu.index}"
    return f"vgpumgr why '{wanted}'"


def would_take(there: Sequence[_Candidate], wanted: ShareRequest) -> bool:
    """Whether a GPU of another policy would take it."""
    return any(
        one.use.policy is not None and one.size(wanted).fits_in(one.use.free) for one in there
    )


def find_due_shrink(record: AttachmentRecord, status: ChannelStatus) -> int | None:
    """The memory that a share is to have at its programs' end, if they use no more than that now."""
    wanted = record.share_part.memory_at_exit if record.share_part else None
    if wanted is None or not status.worker_ready or (status.memory_used or 0) > wanted:
        return None
    return wanted


def check_change(record: AttachmentRecord, wanted: Share, snapshot: Snapshot) -> None:
    """Raises NoRoomError where the GPU of a share has not enough left for another size of it."""
    assert record.share_part is not None
    gpu = snapshot.find_gpu_of(record)
    refusal = f"cannot change the share of {record.vm_name} to {wanted}"
    if gpu is None or gpu.mig.current:
        raise NoRoomError(
            refusal,
            why=f"its GPU {record.gpu} is gone" if gpu is None else f"{gpu} is in MIG mode now",
            hint=f"vgpumgr detach {record.vm_name}",
        )
    others = [other for other in snapshot.records if other.id != record.id]
    use = measure_shares(gpu, others)
    if wanted.fits_in(use.free):
        return
    nearest = Share(min(wanted.memory, use.free.memory), min(wanted.compute, use.free.compute))
    raise NoRoomError(
        refusal,
        why=f"{gpu} has {describe_free(use.free)} for it beside the shares of others",
        held_by=use.holders,
        hint=f"vgpumgr virtio set {record.id} --memory {format_exact(nearest.memory)} "
        f"--compute {format_percent(nearest.compute)}"
        if describe_free(use.free) != "nothing"
        else f"vgpumgr why '{wanted}'",
    )
