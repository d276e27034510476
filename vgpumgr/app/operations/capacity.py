"""The operations ``why`` and ``plan_defrag``: observed GPUs and owners in, documents out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from vgpumgr.app.context import LIBVIRT_ERRORS, Parts, find_stuck_gpus
from vgpumgr.app.documents.base import PlacementDocument
from vgpumgr.app.documents.layouts import (
    DefragDocument,
    DefragRow,
    MoveDocument,
    ObstacleDocument,
    WhyDocument,
    WhyRow,
)
from vgpumgr.app.host_observation import list_instances, list_unsettled
from vgpumgr.app.operations.claims import resolve_claim
from vgpumgr.app.refusal_hints import adding_hints, list_vfs_off
from vgpumgr.backends.attach import check_request
from vgpumgr.backends.base import NewAttachment, Target, Wanted, read_profile
from vgpumgr.backends.device_selection import BY_NAME, find_selected, list_gpus
from vgpumgr.backends.registry import find_backend
from vgpumgr.domain.hypervisor import Vm, VmState
from vgpumgr.errors import GpuAmbiguousError, GpuNotFoundError, UsageError, VgpumgrError
from vgpumgr.mig.layout.capacity import Answer, Move, Obstacle, Option, explain_profile, plan_defrag
from vgpumgr.mig.layout.target import Pinned, list_owner_pins
from vgpumgr.mig.placement import explain_refusal, find_profile
from vgpumgr.mig.selection import check_visible
from vgpumgr.model.attachment import SliceOwner
from vgpumgr.model.choices import ComputePolicy
from vgpumgr.model.gpu import Drain, Gpu, find_drain, list_drains
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.request import (
    AttachRequest,
    PassthroughRequest,
    ProfileRequest,
    ShareRequest,
    VfRequest,
    VgpuRequest,
    parse_profile_request,
)
from vgpumgr.model.shares import PREFIX as SHARE
from vgpumgr.planning.leased import list_leased, make_drains
from vgpumgr.planning.reservations import (
    LostSlice,
    explain_kept,
    is_reserved,
    keep_places,
    list_kept_pins,
)
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_selection import list_boards, select_type

#: stands for a VM and its attachment where no VM is named
_VM, _ATTACHMENT, _UUID = "VM", "00000000", "00000000-0000-0000-0000-000000000000"


def why(
    parts: Parts, profile: str = "", selector: str | None = None, claim: str | None = None
) -> WhyDocument:
    """What keeps a profile from every GPU, or the one that is named, and what would make room; see ``describe_why``.
    For vGPU types, virtual functions and whole GPUs it is what ``attach`` says of each GPU; of a claim, what it says of
    its leased ones. Raises as ``resolve_claim``.
    """
    asked, given = resolve_claim(parts, AttachRequest(_VM, profile, selector, claim=claim))
    if not given:
        leased = list_leased(parts.leases.read_seen())
        return _explain(parts, asked.profile, asked.gpu, leased)
    # a share's GPU need be no PCI function that the kernel shows
    addresses = {str(gpu.uuid): str(gpu.pci) for gpu in parts.read_inventory().gpus}
    places = [addresses.get(one.gpu, one.gpu) for one in given]
    found = [_explain(parts, asked.profile, place, {}) for place in places]
    rows = [row for one in found for row in one.gpus]
    return found[0].replace(gpus=rows, fits=all(row.fits for row in rows))


def _explain(
    parts: Parts, profile: str, selector: str | None, leased: Mapping[str, Sequence[str]]
) -> WhyDocument:
    """See ``why``. ``leased``: the claims that GPUs are leased to, by UUID."""
    try:
        request: ProfileRequest | None = parse_profile_request(profile)
    except ValueError:
        request = None
        if profile.strip().lower().startswith(SHARE):
            read_profile(profile)
    with adding_hints(parts, selector, profile):
        if isinstance(request, VgpuRequest):
            boards = parts.vgpus.read_host().boards
            if boards or list_vfs_off(parts, profile, selector):
                return _explain_devices(parts, profile, selector, leased)
        elif isinstance(request, PassthroughRequest | ShareRequest | VfRequest):
            return _explain_devices(parts, profile, selector, leased)
        gpus = parts.select_gpus(selector)
        document = describe_why(
            gpus, profile, parts.list_owners(gpus), list_stopped_vms(parts), parts.list_lost(gpus)
        )
        drains = [*list_drains(parts.store, gpus), *make_drains(gpus, leased)]
        rows = [_refuse_drained(row, drains) for row in document.gpus]
        return document.replace(gpus=rows, fits=any(row.fits for row in rows))


def _refuse_drained(row: WhyRow, drains: Sequence[Drain]) -> WhyRow:
    """The answer for a GPU that may be drained: then that is the one rule."""
    drain = find_drain(drains, PciAddress.parse(str(row.gpu)), row.gpu_uuid)
    if drain is None:
        return row
    where = row.gpu_index if row.gpu_index is not None else row.gpu
    return row.replace(
        fits=False,
        places=[],
        rules=[str(drain)],
        remove=[],
        kept=[],
        sentence=f"does not fit: {drain}; {drain.describe_end(where)}",
        moving=None,
    )


def _explain_devices(
    parts: Parts, profile: str, selector: str | None, leased: Mapping[str, Sequence[str]]
) -> WhyDocument:
    """What the profile's backend says of each GPU; where libvirt does not answer, of the host alone."""
    snapshot = Snapshot(
        parts,
        stuck=find_stuck_gpus(parts),
        instances=list_instances(parts),
        unsettled=list_unsettled(parts),
        leased=leased,
    )
    try:
        return _ask_backend(parts, snapshot, profile, selector)
    except LIBVIRT_ERRORS as error:
        cause = f" ({error.cause})" if error.cause else ""
        note = f"VMs are not known, so what they have may look free: {error}{cause}"
        document = _ask_backend(parts, snapshot.replace(has_libvirt=False), profile, selector)
        return document.replace(notes=[note])


def _ask_backend(
    parts: Parts, snapshot: Snapshot, profile: str, selector: str | None
) -> WhyDocument:
    """Raises what the backend raises where no GPU can be asked, LIBVIRT_ERRORS too."""
    request, policy = parse_profile_request(profile), None
    if isinstance(request, ShareRequest) and request.is_memory_only:
        policy = str(ComputePolicy.BEST_EFFORT)
    wanted = check_request(AttachRequest(_VM, profile, selector, compute_policy=policy))
    places = [selector] if selector else _list_places(snapshot, wanted.profile)
    name = profile
    if isinstance(wanted.profile, VgpuRequest):
        name = select_type(list_boards(snapshot, selector), profile).name
    paths = parts.channels.paths(_ATTACHMENT)
    target = Target(
        vm=Vm(_VM, _UUID, VmState.SHUT_OFF, None, None, ""),
        names=(NewAttachment(_ATTACHMENT, paths, _UUID),),
        now_s=parts.clock.wall_s(),
    )
    if not places:
        find_backend(wanted.backends[0]).choose(wanted, target, snapshot)
    rows = [_explain_place(snapshot, wanted, target, place) for place in places]
    return WhyDocument(profile=name, fits=any(row.fits for row in rows), gpus=rows)


def _list_places(snapshot: Snapshot, profile: ProfileRequest) -> list[str]:
    """The GPUs that could have such a profile, by address."""
    if isinstance(profile, ShareRequest):
        return [str(gpu.pci) for gpu in snapshot.require_gpus()]
    if isinstance(profile, VgpuRequest):
        return [board.name for board in snapshot.vgpus.boards]
    gpus = list_gpus(snapshot)
    if isinstance(profile, VfRequest):
        gpus = [gpu for gpu in gpus if gpu.vf_total]
    return [str(gpu.address) for gpu in gpus]


def _explain_place(snapshot: Snapshot, wanted: Wanted, target: Target, place: str) -> WhyRow:
    """What the backend says of one GPU. Raises LIBVIRT_ERRORS, GpuNotFoundError, GpuAmbiguousError."""
    asked = replace(wanted, request=replace(wanted.request, gpu=place))
    rules: list[str] = []
    try:
        grant = find_backend(wanted.backends[0]).choose(asked, target, snapshot)[0]
        sentence = f"fits: {grant.why.removesuffix(f'; {place}: {BY_NAME}')}"
    except (*LIBVIRT_ERRORS, GpuNotFoundError, GpuAmbiguousError):
        raise
    except VgpumgrError as error:
        rules = [f"{error.error}: {error.why}" if error.why else error.error]
        if isinstance(wanted.profile, ShareRequest) and error.why:
            rules = [error.why]
        held = f" (held by {', '.join(error.held_by)})" if error.held_by else ""
        sentence = f"does not fit: {rules[0]}{held}"
    address = PciAddress.read(place) or find_selected(snapshot, place).address
    gpu = snapshot.find_gpu(address)
    return WhyRow(
        gpu=str(address),
        gpu_index=gpu.index if gpu else None,
        gpu_uuid=str(gpu.uuid) if gpu else None,
        fits=not rules,
        places=[],
        rules=rules,
        remove=[],
        kept=[],
        sentence=sentence,
        moving=None,
    )


def defrag(parts: Parts, profile: str, selector: str | None = None) -> DefragDocument:
    """The moves that make room for a profile; see ``describe_defrag``. Raises GpuDrainedError where all are drained."""
    with adding_hints(parts, selector):
        gpus = parts.select_gpus(selector)
        snapshot = Snapshot(parts, gpus=gpus)
        refusal = f"cannot free capacity for {profile}"
        snapshot.check_not_drained(refusal, *(gpu.pci for gpu in gpus))
        gpus = tuple(gpu for gpu in gpus if snapshot.find_drain(gpu.pci) is None)
        owners, lost = parts.list_owners(gpus), parts.list_lost(gpus)
        return describe_defrag(gpus, profile, owners, list_stopped_vms(parts), lost)


def list_stopped_vms(parts: Parts) -> frozenset[str]:
    """VMs that libvirt says are shut off. Without libvirt, none: what may run is not moved."""
    try:
        return frozenset(vm.name for vm in parts.hypervisor.list_vms() if vm.state == "shut off")
    except LIBVIRT_ERRORS:
        return frozenset()


def describe_why(
    gpus: Sequence[Gpu],
    profile: str,
    owners: Sequence[SliceOwner],
    stopped: Collection[str],
    lost: Sequence[LostSlice] = (),
) -> WhyDocument:
    """``stopped`` are the names of VMs that are shut off, ``lost`` slices whose places are kept.
    Raises UsageError, and ProfileNotFoundError or MigNotSupportedError where no GPU offers the
    profile, NotPermittedError where the driver hides what there is.
    """
    check_visible(gpus)
    name = _read_name(gpus, profile)
    gpus, owners = keep_places(gpus, lost), _list_present(owners, lost)
    kept = list_kept_pins(gpus, lost)
    options = {o.gpu.uuid: o for o in plan_defrag(gpus, name, *_split(owners, stopped), kept)}
    answers = explain_profile(gpus, name, list_owner_pins(owners), kept)
    rows = [_describe_answer(answer, options[answer.gpu.uuid]) for answer in answers]
    return WhyDocument(profile=str(name), fits=any(row.fits for row in rows), gpus=rows)


def describe_defrag(
    gpus: Sequence[Gpu],
    profile: str,
    owners: Sequence[SliceOwner],
    stopped: Collection[str],
    lost: Sequence[LostSlice] = (),
) -> DefragDocument:
    """As ``describe_why``; raises NoRoomError, too, where no GPU can get room."""
    check_visible(gpus)
    name = _read_name(gpus, profile)
    gpus, owners = keep_places(gpus, lost), _list_present(owners, lost)
    options = plan_defrag(gpus, name, *_split(owners, stopped), list_kept_pins(gpus, lost))
    if all(option.plan is None for option in options):
        error = explain_refusal(gpus, name, owners)
        explain_kept(error, lost)
        raise error
    return DefragDocument(profile=str(name), options=[_describe_option(o) for o in options])


def _list_present(owners: Sequence[SliceOwner], lost: Sequence[LostSlice]) -> list[SliceOwner]:
    """Without those whose slice is gone: its number may be another instance's by now."""
    gone = {one.attachment for one in lost}
    return [owner for owner in owners if owner.attachment_id not in gone]


def _split(
    owners: Sequence[SliceOwner], stopped: Collection[str]
) -> tuple[list[Pinned], list[Pinned]]:
    """Slices of VMs that may run, and of those that are shut off."""
    running = list_owner_pins(owners, free=stopped)
    return list(running), [pin for pin in list_owner_pins(owners) if pin not in running]


def _read_name(gpus: Sequence[Gpu], text: str) -> MigProfileName:
    try:
        name = MigProfileName.parse(text).gpu_instance
    except ValueError as error:
        raise UsageError(
            str(error),
            why="for vGPU types and whole GPUs the lists say it: mdev types -o wide, passthrough list",
            hint=_advise(text),
        ) from error
    if not any(find_profile(gpu, name) for gpu in gpus):
        refusal: VgpumgrError = explain_refusal(gpus, name)
        raise refusal
    return name


def _advise(text: str) -> str:
    """Where the kind of thing that was named is listed."""
    is_vgpu = re.search(r"-\d+[abcq]?$", text.strip(), re.IGNORECASE) is not None
    return "vgpumgr mdev types -o wide" if is_vgpu else "vgpumgr mig profiles"


def _describe_answer(answer: Answer, option: Option) -> WhyRow:
    moves = bool(option.moves) and not option.removed
    return WhyRow.of(
        answer,
        gpu=str(answer.gpu.pci),
        gpu_index=answer.gpu.index,
        gpu_uuid=answer.gpu.uuid,
        remove=[_describe_obstacle(o) for o in answer.remove],
        kept=[_describe_obstacle(o) for o in answer.kept],
        moving=option.sentence if moves else None,
    )


def _describe_option(option: Option) -> DefragRow:
    return DefragRow.of(
        option,
        gpu_index=option.gpu.index,
        gpu_uuid=option.gpu.uuid,
        possible=option.plan is not None,
        moves=[_describe_move(move) for move in option.moves],
        remove=[_describe_obstacle(Obstacle(instance, ())) for instance in option.removed],
        steps=[step.as_dict() for step in option.plan.steps] if option.plan else None,
    )


def _describe_move(move: Move) -> MoveDocument:
    return MoveDocument.of(
        move,
        instance=move.instance.id,
        profile=str(move.instance.profile),
        from_=PlacementDocument.of(move.instance.placement),
        onto=move.onto.id if move.onto else None,
    )


def _describe_obstacle(obstacle: Obstacle) -> ObstacleDocument:
    return ObstacleDocument.of(
        obstacle.instance,
        instance=None if is_reserved(obstacle.instance) else obstacle.instance.id,
        holders=list(obstacle.holders),
    )
