"""How a profile reaches a VM: which backends can, which one ``auto`` takes, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpumgr.domain.hostdev import Display
from vgpumgr.errors import (
    BackendUnsupportedError,
    UsageError,
    VgpumgrError,
    VgpuNotSupportedError,
    VgpuTypeNotFoundError,
)
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.near import list_near
from vgpumgr.model.request import (
    MigRequest,
    PassthroughRequest,
    ProfileRequest,
    ShareRequest,
    VfRequest,
    VgpuRequest,
    parse_profile_request,
)
from vgpumgr.model.slice import Backend
from vgpumgr.model.vgpu import Framework, VgpuHost, VgpuSpec, VgpuType
from vgpumgr.plan.attach import AttachObserved, AttachRequest, check_free, check_options
from vgpumgr.plan.attach_many import plan_attaches
from vgpumgr.plan.hostdev_attach import plan_hostdev_attaches
from vgpumgr.plan.hostdev_choice import choose_vfs, choose_whole_gpus
from vgpumgr.plan.hostdev_given import Given, give_vf, give_vgpu, give_whole_gpu
from vgpumgr.plan.hostdev_host import HostObserved
from vgpumgr.plan.instance_steps import plan_instance
from vgpumgr.plan.nearness import Nearness
from vgpumgr.plan.record import AttachmentRecord
from vgpumgr.plan.reserved import reserve
from vgpumgr.plan.step import Plan, Step
from vgpumgr.plan.vgpu_choice import VgpuChoice, VgpuObserved
from vgpumgr.plan.vgpu_many import choose_vgpus
from vgpumgr.plan.vgpu_plan import describe_instance
from vgpumgr.plan.vgpu_promises import tell_fleeting
from vgpumgr.plan.vgpu_steps import CreateVgpu
from vgpumgr.plan.world import World

#: the backends of each kind of profile; ``auto`` takes the first that the host can do
WAYS: dict[type[ProfileRequest], tuple[Backend, ...]] = {
    MigRequest: (Backend.FORWARD, Backend.MDEV, Backend.VF),
    ShareRequest: (Backend.FORWARD,),
    PassthroughRequest: (Backend.PASSTHROUGH,),
    VfRequest: (Backend.VF,),
    VgpuRequest: (Backend.MDEV, Backend.VF),
}
_FRAMEWORKS = {Framework.MDEV: Backend.MDEV, Framework.VENDOR_VFIO: Backend.VF}
_WORDS: dict[type[ProfileRequest], str] = {
    MigRequest: "a MIG profile",
    ShareRequest: "a share",
    PassthroughRequest: "a whole GPU",
    VfRequest: "a virtual function",
    VgpuRequest: "a vGPU type",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that makes sense; ``needs_host``: planning it asks what devices the host has."""

    profile: ProfileRequest
    ways: tuple[Backend, ...]
    display: Display

    @property
    def is_forward(self) -> bool:
        """Whether CUDA calls are forwarded, and no device is given."""
        return self.ways[0] is Backend.FORWARD

    @property
    def is_vgpu(self) -> bool:
        """Whether the vGPU types of the host matter."""
        return isinstance(self.profile, MigRequest | VgpuRequest) and not self.is_forward


def check_request(request: AttachRequest) -> Wanted:
    """What is asked for and the backends that may do it; needs nothing observed.

    Raises:
        UsageError: a profile of no known form, or contradicting options.
        BackendUnsupportedError: the profile does not reach a VM by that backend.
    """
    try:
        profile = parse_profile_request(request.profile)
    except ValueError as error:
        raise UsageError(
            "cannot read --profile", cause=str(error), hint="vgpumgr mig profiles"
        ) from error
    names = ("auto", *map(str, Backend))
    if request.backend not in names:
        raise UsageError(f"no backend {request.backend!r}", why=f"there are: {', '.join(names)}")
    if request.display not in tuple(Display):
        raise UsageError(f"no display {request.display!r}", why=f"there are: {', '.join(Display)}")
    possible = WAYS[type(profile)]
    chosen = possible if request.backend == "auto" else (Backend(request.backend),)
    if chosen[0] not in possible:
        raise BackendUnsupportedError(
            f"cannot attach {request.profile} by backend {request.backend}",
            why=f"{_WORDS[type(profile)]} reaches a VM by {' or '.join(possible)}",
            hint=f"vgpumgr attach {request.vm} --profile {request.profile} --backend {possible[0]}",
        )
    wanted = Wanted(profile, chosen, Display(request.display))
    if wanted.display is not Display.OFF and not wanted.is_vgpu:
        raise UsageError("--display is for mediated devices", hint="--display off")
    check_options(request)
    if wanted.is_forward and not isinstance(profile, MigRequest):
        raise BackendUnsupportedError(
            f"cannot attach {request.profile} to {request.vm}",
            why="backend forward takes MIG profiles, which look like 1g.10gb",
            hint="vgpumgr mig profiles",
        )
    return wanted


def plan_any_attach(
    request: AttachRequest, observed: AttachObserved, host: HostObserved, uuids: Sequence[str]
) -> tuple[tuple[AttachmentRecord, ...], Plan[World]]:
    """The new attachments' records and the plan, by whichever backend; ``uuids`` are for vGPUs, one
    for each that is asked for.

    Raises what stands in the way, before anything is changed.
    """
    wanted = check_request(request)
    if isinstance(wanted.profile, MigRequest) and wanted.is_forward:
        records, plan = plan_attaches(request, observed, wanted.profile.name)
        return records, _explain_forward(plan, host.vgpus) if request.backend == "auto" else plan
    check_free(request, observed.vm, observed.records)
    host = replace(
        host,
        vm_uuid=observed.vm.uuid,
        near=Nearness.of(request.numa, observed.nodes),
        reserved=reserve(host.gpus, observed.records, observed.instances),
    )
    names = (observed.id, *(id_ for id_, _ in observed.more))
    try:
        given = _give(request, wanted, host, names, uuids)
    except VgpumgrError as error:
        error.error = f"cannot attach {request.profile} to {observed.vm}: {error.error}"
        unknown = isinstance(error, VgpuNotSupportedError | VgpuTypeNotFoundError)
        if unknown and (near := _list_near(wanted, observed)):
            error.why = f"did you mean {' or '.join(near)}?"
            error.hint = f"vgpumgr attach {request.vm} --profile {near[0]} --dry-run"
        raise
    return plan_hostdev_attaches(request, observed, given)


def _list_near(wanted: Wanted, observed: AttachObserved) -> list[str]:
    """What else than a vGPU type may have been meant: words, and profiles of GPUs here."""
    profiles = {profile.name for gpu in observed.gpus for profile in gpu.profiles}
    known = ["passthrough", "vf", *sorted(map(str, profiles))]
    if not isinstance(wanted.profile, VgpuRequest):
        return []
    return list_near(wanted.profile.type_name.lower(), known, cutoff=0.75)


def _explain_forward(plan: Plan[World], vgpus: VgpuHost) -> Plan[World]:
    offered = any(t.is_mig_backed for board in vgpus.boards for t in board.types)
    other = "; --backend mdev or vf takes a MIG-backed vGPU type instead" if offered else ""
    note = f"auto: forward, because it needs no vGPU licence{other}"
    return replace(plan, notes=(note, *plan.notes))


def _give(
    request: AttachRequest,
    wanted: Wanted,
    host: HostObserved,
    names: Sequence[str],
    uuids: Sequence[str],
) -> list[Given]:
    """A device for each attachment in ``names``."""
    profile = wanted.profile
    # what only the running machine has ends with it
    persist = not (request.live and not request.config)
    if isinstance(profile, PassthroughRequest):
        gpus = choose_whole_gpus(host, request.gpu, request.count)
        return [
            give_whole_gpu(host, gpu, name, persist=persist)
            for gpu, name in zip(gpus, names, strict=True)
        ]
    if isinstance(profile, VfRequest):
        vfs = choose_vfs(host, request.gpu, profile.count, request.count)
        return [
            give_vf(host, vf, str(profile), name, persist=persist)
            for vf, name in zip(vfs, names, strict=True)
        ]
    return _give_vgpus(request, wanted, host, names, uuids)


def _give_vgpus(
    request: AttachRequest,
    wanted: Wanted,
    host: HostObserved,
    names: Sequence[str],
    uuids: Sequence[str],
) -> list[Given]:
    vgpus = _only(host.vgpus, wanted.ways)
    seen = VgpuObserved(
        vgpus, host.gpus, host.claims, host.reserved, host.near, host.slices, host.promises
    )
    types = [request.profile]
    if isinstance(wanted.profile, MigRequest):
        types = _list_backed_types(seen, wanted.profile.name)
    chosen = _choose_first(seen, types, request, uuids[: request.count])
    return [
        _give_vgpu(seen, host, choice, spec, name, wanted.display)
        for (choice, spec), name in zip(chosen, names, strict=True)
    ]


def _give_vgpu(
    seen: VgpuObserved,
    host: HostObserved,
    choice: VgpuChoice,
    spec: VgpuSpec,
    attachment: str,
    display: Display,
) -> Given:
    made = describe_instance(choice.instance)
    steps: list[Step[World]] = [*plan_instance(choice.instance)]
    steps.append(CreateVgpu(spec, attachment, made))
    gpu = seen.find_gpu(choice.board)
    backend = _FRAMEWORKS[choice.parent.framework]
    fleeting = tell_fleeting(host.vf_settings, choice.parent, gpu)
    form = "a mediated device" if backend is Backend.MDEV else "a vGPU on a virtual function"
    given = give_vgpu(
        host,
        spec,
        tuple(steps),
        "; ".join([f"{choice.type.name} is {form} here", choice.why, *choice.notes, *fleeting]),
        attachment,
        display,
        gpu.uuid if gpu else None,
        choice.type.framebuffer_bytes or 0,
    )
    return replace(given, devices=tuple(replace(d, instance=made) for d in given.devices))


def _only(vgpus: VgpuHost, ways: tuple[Backend, ...]) -> VgpuHost:
    """The parents whose framework is one of those backends."""
    parents = tuple(p for p in vgpus.parents if _FRAMEWORKS[p.framework] in ways)
    names = {parent.board for parent in parents}
    return replace(vgpus, parents=parents, boards=tuple(b for b in vgpus.boards if b.name in names))


def _list_backed_types(seen: VgpuObserved, name: MigProfileName) -> list[str]:
    """MIG-backed types that fill a GPU instance of that profile, those for computing first."""
    ids = {p.id for gpu in seen.gpus for p in gpu.profiles if p.name == name}
    found: dict[str, VgpuType] = {
        type_.id: type_
        for board in seen.host.boards
        for type_ in board.types
        if type_.gpu_instance_profile_id in ids and type_.max_per_gpu_instance in (None, 1)
    }
    ordered = sorted(found.values(), key=lambda t: (not t.name.upper().endswith("C"), t.name))
    if not ordered:
        raise VgpuTypeNotFoundError(
            f"no vGPU type here is backed by {name}",
            why="MIG-backed types need a vGPU host driver, and a GPU in MIG mode",
            hint="vgpumgr mdev types; or --backend forward, which needs neither",
        )
    return [type_.id for type_ in ordered]


def _choose_first(
    seen: VgpuObserved, types: list[str], request: AttachRequest, uuids: Sequence[str]
) -> tuple[tuple[VgpuChoice, VgpuSpec], ...]:
    problem: VgpumgrError | None = None
    for name in types:
        try:
            return choose_vgpus(seen, name, request.gpu, uuids, spread=request.spread)
        except VgpumgrError as error:
            problem = problem or error
    assert problem is not None
    raise problem
