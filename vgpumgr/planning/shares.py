"""Which GPU a share gets, and what GPUs and instances of MIG have left for shares: pure.

What counts is recorded, not observed: a share keeps its memory and its time while nothing runs in it. A GPU has for
shares what the driver calls its memory, less what driver and firmware keep of that (docs/shares.md), and 100 % of its
time. Every GPU with shares stays one of shares: of those on which a share fits, one that has shares already is taken
before an empty one, then the one that has least left afterwards, so that whole GPUs stay whole for as long as possible.
An instance of MIG has its memory for shares and 100 % of its own time; ``backends/mig_shares.py`` finds which there
are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vgpumgr.errors import GpuNotFoundError, NoRoomError
from vgpumgr.mig.instances import find_recorded_instance
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.choices import MAX_PARTS, ComputePolicy, Priority
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.shares import (
    MAX_COMPUTE,
    MIN_BYTES,
    MIN_COMPUTE,
    OF_INSTANCE,
    Share,
    describe_free,
    divide,
    format_percent,
    name_share,
)
from vgpumgr.model.text import format_exact
from vgpumgr.planning.snapshot import NumaPolicy

if TYPE_CHECKING:
    from vgpumgr.mig.placement import SlicePlacement
    from vgpumgr.model.gpu import Gpu
    from vgpumgr.model.identity import GpuUuid
    from vgpumgr.model.mig import GpuInstance, Placement
    from vgpumgr.model.request import AttachRequest, ShareRequest
    from vgpumgr.planning.snapshot import Snapshot
    from vgpumgr.virtio.channel import ChannelStatus


@dataclass(frozen=True, slots=True)
class ShareUse:
    """The shares of one GPU or instance, and what is left beside them. ``policy`` is None where there are none."""

    records: tuple[AttachmentRecord, ...]
    total: Share
    free: Share
    policy: ComputePolicy | None

    @property
    def holders(self) -> list[str]:
        """Who has them, for people."""
        return [r.share_holder for r in self.records]


def list_share_records(
    records: Iterable[AttachmentRecord], gpu: GpuUuid | None
) -> tuple[AttachmentRecord, ...]:
    """The attachments that have a share of that GPU as a whole, however far they are."""
    return tuple(r for r in records if r.is_gpu_share and r.gpu == gpu)


def list_instance_shares(
    records: Iterable[AttachmentRecord], gpu: GpuUuid, placement: Placement
) -> tuple[AttachmentRecord, ...]:
    """The attachments that have a share of the GPU instance at that place, however far they are."""
    return tuple(
        r for r in records if r.share_part is not None and r.gpu == gpu and r.placement == placement
    )


def mark_shares(gpus: Sequence[Gpu], records: Sequence[AttachmentRecord]) -> tuple[Gpu, ...]:
    """The GPUs with the holders of their shares: what else wants a GPU finds them there."""
    names: dict[str, list[str]] = {}
    for record in records:
        if record.is_gpu_share:
            names.setdefault(str(record.gpu), []).append(record.share_holder)
    return tuple(
        replace(gpu, shared_by=tuple(names[str(gpu.uuid)])) if str(gpu.uuid) in names else gpu
        for gpu in gpus
    )


def measure_shares(gpu: Gpu, records: Iterable[AttachmentRecord]) -> ShareUse:
    """What the GPU has for shares, whether it may have any now or not."""
    total = Share(max(0, gpu.memory.total_bytes - gpu.memory.reserved_bytes), MAX_COMPUTE)
    return _measure(total, list_share_records(records, gpu.uuid))


def measure_instance_shares(
    gpu: Gpu, instance: GpuInstance, records: Iterable[AttachmentRecord]
) -> ShareUse:
    """What an instance of MIG has for shares, whether it may have any now or not."""
    return measure_memory_shares(gpu, instance.placement, instance.memory_bytes, records)


def measure_memory_shares(
    gpu: Gpu, placement: Placement, memory: int, records: Iterable[AttachmentRecord]
) -> ShareUse:
    """The same of an instance that may be made yet, by its place and the memory that its profile has."""
    mine = list_instance_shares(records, gpu.uuid, placement)
    return _measure(Share(memory, MAX_COMPUTE), mine)


def _measure(total: Share, mine: tuple[AttachmentRecord, ...]) -> ShareUse:
    free, policy = total, None
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
    """A share in its place, and why there."""

    gpu: Gpu
    share: Share
    policy: ComputePolicy
    why: str
    priority: Priority = Priority.NORMAL
    #: of MIG; None: it is a share of the whole GPU
    instance: InstancePlace | None = None
    #: whether nothing has a share of that before it
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class InstancePlace:
    """The instance of MIG that shares are of: its place, and whether detach leaves it there."""

    seat: SlicePlacement
    taken: bool

    def __str__(self) -> str:
        choice, takes = self.seat.choice, self.seat.takes
        place = f"{choice.profile.name} at {choice.placement} on GPU {choice.gpu.index}"
        return f"{takes.compute.uuid} ({place})" if takes else place


@dataclass(frozen=True, slots=True)
class Candidate:
    """A GPU that may have shares, or an instance of MIG on it. ``refusal``: why it takes none of this policy, drained
    and stuck ones too.
    """

    gpu: Gpu
    use: ShareUse
    policy: ComputePolicy
    refusal: str | None = None
    #: how many shares more its arbiter serves
    left: int = MAX_PARTS
    instance: InstancePlace | None = None

    @classmethod
    def of(
        cls,
        gpu: Gpu,
        use: ShareUse,
        policy: ComputePolicy,
        refusal: str | None,
        instance: InstancePlace | None = None,
    ) -> Candidate:
        """As it is beside the shares that it has. ``refusal``: why it takes none, whatever their policy."""
        a, noun = ("a", "GPU") if instance is None else ("an", "instance")
        if refusal is None and use.policy not in (None, policy):
            refusal = f"its shares are {use.policy}, and one {noun} has one policy"
        elif refusal is None and len(use.records) >= MAX_PARTS:
            refusal = f"it has {MAX_PARTS} shares, the most that {a} {noun} can have"
        return cls(gpu, use, policy, refusal, MAX_PARTS - len(use.records), instance)

    @property
    def name(self) -> str:
        """For people."""
        return str(self.gpu if self.instance is None else self.instance)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is reserved."""
        return self.use.free == self.use.total

    def size(self, wanted: ShareRequest) -> Share:
        """The share that is asked for, as it is of this one."""
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
        """What it would take."""
        return _reserve(share, self.policy)

    def give(self, share: Share) -> Candidate:
        """The same as it is to be with it; ``records`` are as they were."""
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

    Raises NoRoomError, which says what would fit and who has the rest; GpuDrainedError; and what ``select_gpu`` does.
    Their first lines begin with ``refusal``.
    """
    policy = choose_policy(request, wanted)
    near = NumaPolicy.of(request.numa, nodes)
    gpus = _list_gpus(request, snapshot, near, refusal)
    snapshot.check_not_drained(refusal, *(gpu.pci for gpu in gpus))
    there = [_observe(gpu, snapshot, policy) for gpu in gpus]
    placed = place_shares(request, wanted, there, near)
    if placed is None:
        raise refuse_shares(request, wanted, policy, there, refusal)
    return placed


def choose_policy(request: AttachRequest, wanted: ShareRequest) -> ComputePolicy:
    """The policy that is asked for, said or not."""
    usual = ComputePolicy.BEST_EFFORT if wanted.is_memory_only else ComputePolicy.BURST
    return ComputePolicy(request.compute_policy or usual)


def place_shares(
    request: AttachRequest, wanted: ShareRequest, there: Sequence[Candidate], near: NumaPolicy
) -> tuple[SharePlacement, ...] | None:
    """All that is asked for, on these; None where they do not fit."""
    priority = Priority(request.priority or Priority.NORMAL)
    placed: list[SharePlacement] = []
    now = list(there)
    given: set[int] = set()
    while len(placed) < request.count:
        able = [number for number, one in enumerate(now) if one.takes(one.size(wanted))]
        if not able:
            return None
        if request.spread and any(now[n].instance and now[n].is_empty for n in able):
            # as long as there is one for each, they share no instance, near or far
            able = [number for number in able if number not in given]
        number = min(able, key=lambda n: _rank(now[n], now[n].size(wanted), near, request.spread))
        best = now[number]
        share = best.size(wanted)
        now[number] = best.give(share)
        given.add(number)
        named = request.gpu is not None
        why, is_first = _explain(best, share, near, named=named), best.left == MAX_PARTS
        seat = SharePlacement(best.gpu, share, best.policy, why, priority, best.instance, is_first)
        placed.append(seat)
    return tuple(placed)


def _list_gpus(
    request: AttachRequest, snapshot: Snapshot, near: NumaPolicy, refusal: str
) -> Sequence[Gpu]:
    gpus = snapshot.require_gpus()
    if request.gpu is not None:
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


def _observe(gpu: Gpu, snapshot: Snapshot, policy: ComputePolicy) -> Candidate:
    refusal = find_stop(gpu, snapshot) or find_obstacle(gpu, snapshot)
    return Candidate.of(gpu, measure_shares(gpu, snapshot.records), policy, refusal)


def find_stop(gpu: Gpu, snapshot: Snapshot) -> str | None:
    """Why the GPU takes nothing new now: it is drained, or a call on it has not come back."""
    if (drain := snapshot.find_drain(gpu.pci)) is not None:
        return str(drain)
    return snapshot.stuck.get(str(gpu.uuid))


def _rank(one: Candidate, share: Share, near: NumaPolicy, spread: bool) -> tuple[object, ...]:
    """The VM's own NUMA node; then a GPU that has shares already and least left; or the emptiest to spread."""
    left = one.use.free - one.reserve(share)
    rest = left.memory / max(1, one.use.total.memory) + left.compute / MAX_COMPUTE
    order = (-rest,) if spread else (one.is_empty, rest)
    return (near.is_far(one.gpu.numa_node), *order, one.gpu.index)


def _explain(one: Candidate, share: Share, near: NumaPolicy, *, named: bool) -> str:
    """``named``: --gpu says where."""
    left = describe_free(one.use.free - one.reserve(share))
    beside = "it has no shares yet"
    # turning MIG mode on is the last resort, also for a GPU that is near
    none = None if named else "none" if one.instance is None else "none in MIG mode"
    where = near.describe(one.gpu.numa_node, none)
    if not one.is_empty:
        whole = "whole GPUs stay whole" if one.instance is None else "whole instances stay whole"
        beside = f"it has shares already, and {whole}"
    elif one.instance is not None and one.instance.seat.creates:
        beside = f"made for it, {one.instance.seat.choice.why}"
        where = ""  # which the placement says
    return f"{one.name}: {beside}; {left} stays free{where}"


def refuse_shares(
    request: AttachRequest,
    wanted: ShareRequest,
    policy: ComputePolicy,
    there: Sequence[Candidate],
    refusal: str,
) -> NoRoomError:
    """Why they do not fit there, who has the rest, and what would."""
    counts = [(one, one.count(one.size(wanted))) for one in there]
    fits = sum(count for _, count in counts)
    if fits:
        each = ", ".join(f"{count} on {one.name}" for one, count in counts if count)
        return NoRoomError(
            f"{refusal}: {request.count} times {wanted} do not fit",
            why=f"{fits} fit: {each}",
            held_by=_list_holders(there),
            hint=f"vgpumgr why '{wanted}'",
        )
    return NoRoomError(
        f"{refusal}: no {wanted.instance or 'GPU'} has that much left"
        if len(there) != 1
        else f"{refusal}: {there[0].name} takes no such share",
        why="; ".join(_describe_refusals(wanted, there)),
        held_by=_list_holders(there),
        hint=_advise(request, wanted, policy, there),
    )


def _describe_refusals(wanted: ShareRequest, there: Sequence[Candidate]) -> Iterator[str]:
    if len(there) == 1:
        yield _describe_refusal(wanted, there[0])
        return
    for one in there[:8]:
        yield f"{one.name}: {_describe_refusal(wanted, one)}"
    if len(there) > 8:
        yield f"and {len(there) - 8} more (vgpumgr why '{wanted}')"


def _describe_refusal(wanted: ShareRequest, one: Candidate) -> str:
    share = one.size(wanted)
    if one.refusal is not None:
        return one.refusal
    if share.memory < MIN_BYTES:
        return f"{share} is less than the 128 MiB that one context needs"
    if not one.use.records:
        return f"it has {describe_free(one.use.free)} for shares, and {share} is more"
    return f"{describe_free(one.use.free)} more fits beside its shares, {share} does not"


def _list_holders(there: Sequence[Candidate]) -> list[str]:
    return [text for one in there[:8] for text in one.use.holders]


def _advise(
    request: AttachRequest,
    wanted: ShareRequest,
    policy: ComputePolicy,
    there: Sequence[Candidate],
) -> str:
    """The nearest share that fits, else what lets GPUs or instances take shares."""
    offers = [
        Share(min(share.memory, free.memory), min(share.compute, free.compute))
        for one in there
        if one.refusal is None
        for share, free in [(one.size(wanted), one.use.free)]
    ]
    able = [share for share in offers if share.memory >= MIN_BYTES and share.compute >= MIN_COMPUTE]
    if able:
        best = max(able, key=lambda share: (share.memory, share.compute))
        best_name = name_share(best, str(wanted.instance) if wanted.instance else None)
        or_else = "; or vgpumgr detach one of its holders" if _list_holders(there) else ""
        return f"--profile {best_name} fits{or_else}"
    others = [one.use.policy for one in there if one.use.policy not in (None, policy)]
    if others and would_take(there, wanted):
        return f"--compute-policy {others[0]}"
    if any(one.instance is not None for one in there):
        return f"vgpumgr why '{wanted}'; vgpumgr mig list"
    of_instance = f"or --profile {wanted}{OF_INSTANCE}PROFILE, for a share of an instance of MIG"
    if request.gpu is None and all(one.gpu.mig.current for one in there):
        index = there[0].gpu.index
        return (
            f"vgpumgr mig disable {index}; {of_instance}, or a MIG profile of vgpumgr mig profiles"
        )
    if len(there) == 1 and there[0].gpu.mig.current:
        return f"another GPU; {of_instance}; or vgpumgr mig disable {there[0].gpu.index}"
    return f"vgpumgr why '{wanted}'"


def would_take(there: Sequence[Candidate], wanted: ShareRequest) -> bool:
    """Whether one with shares of another policy would take it."""
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
    """Raises NoRoomError where GPU or instance of a share have not enough left for another size of it."""
    assert record.share_part is not None
    gpu = snapshot.find_gpu_of(record)
    refusal = f"cannot change the share of {record.vm_name} to {wanted}"
    others = [other for other in snapshot.records if other.id != record.id]
    instance = None if gpu is None else find_recorded_instance(gpu.instances, record)
    if gpu is not None and instance is not None:
        use, where = measure_instance_shares(gpu, instance, others), str(record.cuda_device)
    elif gpu is not None and record.is_gpu_share and not gpu.mig.current:
        use, where = measure_shares(gpu, others), str(gpu)
    else:
        why = f"its GPU {record.gpu} is gone" if gpu is None else f"{gpu} is in MIG mode now"
        if record.mig_part is not None and gpu is not None:
            why = f"its instance at {record.placement} on {gpu} is gone"
        raise NoRoomError(refusal, why=why, hint=f"vgpumgr detach {record.vm_word}")
    if wanted.fits_in(use.free):
        return
    nearest = Share(min(wanted.memory, use.free.memory), min(wanted.compute, use.free.compute))
    raise NoRoomError(
        refusal,
        why=f"{where} has {describe_free(use.free)} for it beside the shares of others",
        held_by=use.holders,
        hint=f"vgpumgr virtio set {record.id} --memory {format_exact(nearest.memory)} "
        f"--compute {format_percent(nearest.compute)}"
        if describe_free(use.free) != "nothing"
        else f"vgpumgr why '{wanted}'",
    )
