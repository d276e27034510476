"""The interface of a backend: one way in which a profile reaches a VM.

``attach.py``, ``detach.py``, ``drift.py``, recovery and restore are generic. They call the backend of
the profile, or of an attachment's record. A backend observes only through the snapshot, plans, and
changes nothing itself; one file each (``mdev`` in ``vgpu.py``), registered in ``registry.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vgpumgr.domain.hypervisor import Scope
from vgpumgr.errors import UsageError
from vgpumgr.model.choices import Backend as BackendName
from vgpumgr.model.limits import Limits, parse_limits
from vgpumgr.model.request import parse_profile_request

if TYPE_CHECKING:
    from vgpumgr.domain.devices import Attachable
    from vgpumgr.domain.domain import Domain
    from vgpumgr.domain.hypervisor import Vm
    from vgpumgr.engine.step import Step
    from vgpumgr.errors import VgpumgrError
    from vgpumgr.model.attachment import AttachmentRecord
    from vgpumgr.model.choices import Display
    from vgpumgr.model.identity import GpuUuid
    from vgpumgr.model.request import AttachRequest, ProfileRequest
    from vgpumgr.planning.drift import Drift
    from vgpumgr.planning.snapshot import Snapshot
    from vgpumgr.state.leases import LeasedGpu
    from vgpumgr.virtio.channel import ChannelPaths


def read_profile(text: str) -> ProfileRequest:
    """What ``--profile`` asks for. Raises UsageError for a profile of no known form."""
    try:
        return parse_profile_request(text)
    except ValueError as error:
        raise UsageError(
            "cannot read --profile", cause=str(error), hint="vgpumgr mig profiles"
        ) from error


def read_limits(words: Sequence[str]) -> Limits:
    """What ``--limit`` asks for. Raises UsageError for a key or a value that cannot be."""
    try:
        return parse_limits(words)
    except ValueError as error:
        raise UsageError(
            "cannot read --limit",
            cause=str(error),
            hint="--limit device-memory=8GiB; docs/limits.md",
        ) from error


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that makes sense. ``backends``: those that may do it, the one that plans it first."""

    request: AttachRequest
    profile: ProfileRequest
    backends: tuple[BackendName, ...]
    display: Display

    @property
    def persist(self) -> bool:
        """Whether the host's devices are taken at every boot: what only the running machine has ends
        with it.
        """
        return not (self.request.live and not self.request.config)


@dataclass(frozen=True, slots=True)
class NewAttachment:
    """What an attachment is called before it exists; ``uuid`` names a vGPU made for it."""

    id: str
    paths: ChannelPaths
    uuid: str


@dataclass(frozen=True, slots=True)
class Target:
    """The VM as it was read for this attach, running or shut off, and the attachments it is to get."""

    vm: Vm
    names: tuple[NewAttachment, ...]
    now_s: float
    #: NUMA nodes that the VM is bound to; empty: none in particular
    nodes: frozenset[int] = frozenset()
    #: what a claim gives each of them; empty: no pool does
    leased: tuple[LeasedGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Scopes:
    """Where the devices go now, and why not into the running machine."""

    live: bool
    config: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrant(ABC):
    """What one attachment gives a VM: steps on the host, and devices of the domain."""

    backend: BackendName
    #: what it is called from now on: a type's full name, or what was asked for
    profile: str
    why: str
    gpu: GpuUuid | None = None
    memory_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def has_several(self) -> bool:
        """Whether it gives several functions, which share a slot of the definition."""
        return False

    @property
    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """The fields of the record that only this backend has, as they are before any step."""

    @property
    def details(self) -> dict[str, Any]:
        """What the plan's result says of it."""
        return {"transport": None, "gpu_index": None, "placement": None, "devices": []}

    @abstractmethod
    def list_host_steps(self, record: AttachmentRecord, vm: Vm, scopes: Scopes) -> Sequence[Step]:
        """The steps on the host, done after the record is written and before the domain changes."""

    @abstractmethod
    def make_devices(
        self, record: AttachmentRecord, scope: Scope, definition: Domain | None, *, in_slots: bool
    ) -> tuple[Attachable, ...]:
        """The domain's devices. ``definition``: with the devices of attachments planned before this one,
        None for the running machine. ``in_slots``: each function is told its slot.
        """

    def list_guest_steps(self, record: AttachmentRecord) -> Sequence[Step]:  # noqa: ARG002
        """The steps after the running machine has the devices."""
        return ()

    def list_last_steps(self, record: AttachmentRecord, vm: Vm, scopes: Scopes) -> Sequence[Step]:  # noqa: ARG002
        """The steps after the VM's metadata is written."""
        return ()

    @abstractmethod
    def describe_time(self, vm: Vm, request: AttachRequest, scopes: Scopes) -> tuple[str, ...]:
        """When the guest has it, in words."""

    def advise(self, vm: Vm) -> tuple[str, ...]:  # noqa: ARG002
        """What the VM's definition should say for it."""
        return ()


@dataclass(frozen=True, slots=True)
class Revocation:
    """How an attachment is taken back: the domain's steps first, then the host's."""

    domain: Sequence[Step] = ()
    host: Sequence[Step] = ()
    notes: Sequence[str] = ()
    #: what stands in the attachment's places and may be anybody's, in words
    kept: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """An attachment after a boot: its record as it is from now on, or why it is not back."""

    record: AttachmentRecord
    problem: str | None = None
    #: whether its channel is to run, started anew where the record has changed
    starts_channel: bool = False


class Backend(ABC):
    """One way in which a profile reaches a VM."""

    name: ClassVar[BackendName]
    #: why ``auto`` takes it, where others would do
    auto_note: ClassVar[str | None] = None
    #: whether a detach fails until the running guest has released the device
    needs_release: ClassVar[bool] = True
    #: whether a worker on the host does what the guest asks: ``--limit`` and ``--allow-unconfined`` are about it
    has_worker: ClassVar[bool] = False

    @abstractmethod
    def match(self, profile: ProfileRequest) -> bool:
        """Whether it gives such profiles; nothing is observed yet."""

    def has_display(self, profile: ProfileRequest) -> bool:  # noqa: ARG002
        """Whether ``--display`` means something for the profile."""
        return False

    def check(self, wanted: Wanted) -> None:  # noqa: B027 (nothing, usually)
        """Raises what cannot be in the request alone; called before anything is observed."""

    def check_vm(self, wanted: Wanted, vm: Vm) -> None:  # noqa: B027
        """Raises why the VM does not take it, whatever is chosen; called before ``choose``."""

    def check_profile(self, wanted: Wanted, snapshot: Snapshot) -> None:  # noqa: B027
        """Raises why no GPU here has the profile at all: said before what ``check_vm`` raises."""

    @abstractmethod
    def choose(self, wanted: Wanted, target: Target, snapshot: Snapshot) -> Sequence[DeviceGrant]:
        """A grant for each new attachment, in the order of ``target.names``; raises the reason where
        there is none. The machine is locked (not for a dry run), earlier operations are recovered,
        nothing has changed. Called again with a new snapshot where another program has changed the
        GPU or the domain in between.
        """

    @abstractmethod
    def explain(
        self, error: VgpumgrError, wanted: Wanted, target: Target, snapshot: Snapshot
    ) -> None:
        """Completes the reason that ``choose`` raised."""

    @abstractmethod
    def choose_scopes(self, wanted: Wanted, vm: Vm, grants: Sequence[DeviceGrant]) -> Scopes:
        """Running machine, definition or both; raises why the VM takes the devices nowhere."""

    @abstractmethod
    def list_aliases(self, record: AttachmentRecord) -> list[str]:
        """The domain's devices of an attachment, by alias."""

    @abstractmethod
    def make_again(
        self, record: AttachmentRecord, definition: Domain, paths: ChannelPaths
    ) -> tuple[Attachable, ...]:
        """The devices for a definition that has lost them; the attachment exists, the VM may run."""

    @abstractmethod
    def revoke(
        self, record: AttachmentRecord, vm: Vm | None, snapshot: Snapshot, timeout_s: float
    ) -> Revocation:
        """Takes back what the grant did; works with whatever is left of it. ``vm`` None: it is no longer
        defined; else it runs or not, and has all, some or none of the devices. Called for a detach, for
        a release and for the recovery of an interrupted attach or detach, also after a boot.
        """

    @abstractmethod
    def restore(self, record: AttachmentRecord, snapshot: Snapshot) -> Restored | None:
        """What is left to do for an attachment after a boot; None: nothing. MIG modes and layouts,
        functions, virtual functions and vGPUs are back by now, as far as they can be. At boot no VM
        runs yet, and libvirt is not asked; by hand (``vgpumgr restore``) VMs may run.
        """

    @abstractmethod
    def drift(self, record: AttachmentRecord, snapshot: Snapshot) -> Iterator[Drift]:
        """What is missing of a whole attachment on the host, for ``status`` and ``diff`` and the daemon;
        the VM may run, be shut off or be unknown.
        """

    def has_all(self, record: AttachmentRecord, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Whether the host has everything of it, so that an interrupted attach lacks only its mark."""
        return True

    def leave_out(self, record: AttachmentRecord, snapshot: Snapshot) -> Snapshot:  # noqa: ARG002
        """The snapshot as it is to be once the attachment is detached; ``records`` are without it."""
        return snapshot
