"""What a pool's store holds: hosts, GPUs, classes, claims and leases, each under a key of its own.

A lease is a grant to one claim. The revision at which it was last written is its token: a host refuses an older one
than it has seen.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from vgpumgr.errors import ClaimNotFoundError, PoolStoreError, UsageError, VgpumgrError
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import format_vm, list_near
from vgpumgr.pool.control.times import EndRecord, ReservationRecord
from vgpumgr.pool.scheduler.model import GPU_MILLI
from vgpumgr.pool.store.interface import At, Entry, Put, Snapshot

#: all of a pool is below it, so that one read sees one moment
ROOT = "p/"
POOL = f"{ROOT}pool"
LEADER = f"{ROOT}leader"
#: of these records. A program of it serves in a pool of the version before, too, and writes only what that one reads;
#: other programs neither read nor write them
VERSION = 3
#: by which version a pool is the first to have it
TENANTS = ANTI_AFFINITY = USES = CLOSED_GPUS = WHERE = LATE = 2
RESERVATIONS = ENDS = PREEMPTION = LINKS = 3
#: of claims
STATES = ("granted", "waiting", "ending", "idle")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of a pool. A host that is not heard for ``ttl_s`` is suspect. By then, or ``fence_s`` after it was
    heard last, it ends the sessions that may move, within ``grace_s``; only when the controller has waited longer than
    both together do their claims get other leases. The tenth more is for clocks of different speed.
    """

    ttl_s: int = 10
    fence_s: int = 30
    grace_s: int = 10

    @property
    def away_s(self) -> float:
        """So long a controller sees a host suspect before it is fenced."""
        return 1.1 * (self.fence_s + self.grace_s)


class HostState(StrEnum):
    """Of a host, as the controller has it."""

    READY = "ready"
    SUSPECT = "suspect"
    FENCED = "fenced"


class IfLost(StrEnum):
    """What becomes of a claim's lease when its host is lost: it stays, with what runs; or it ends on both sides."""

    KEEP = "keep"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """The pool itself. ``id`` distinguishes it from one that was in the same store before."""

    id: str
    version: int
    timing: Timing
    IGNORES_UNKNOWN: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host that joined. ``id`` is its machine's. ``ca`` is the certificate of the authority that signs what it says
    to other hosts (PEM), and ``links`` the addresses at which it offers its GPUs to them; none: it offers none.
    """

    name: str
    id: str
    state: HostState = HostState.SUSPECT
    ca: str = ""
    links: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"{ROOT}host/{self.name}"


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """A GPU of a host. ``grants`` counts, so that each grant gives it another revision, which the next one compares.
    ``closed`` says why its host gives nothing new of it: it is drained, or unhealthy.
    """

    host: str
    index: int
    uuid: str
    model: str
    memory_bytes: int
    grants: int = 0
    closed: str = ""

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"{ROOT}gpu/{self.host}/{self.index:04}"


@dataclass(frozen=True, slots=True)
class ClassRecord:
    """How GPUs are provided: shares or whole ones only, by which policy, of which models (none: any). Leases of its
    claims may be ``preemptible``.
    """

    name: str
    policy: str = "fgd"
    whole: bool = False
    models: tuple[str, ...] = ()
    preemptible: bool = False

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"{ROOT}class/{self.name}"

    def accepts(self, gpu: GpuRecord) -> bool:
        """Whether it provides such GPUs."""
        return not self.models or gpu.model in self.models


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A team, a course or a user that claims. ``gpu_milli`` is the most that all its leases have together (None: no
    limit). Higher priorities are served first; of equal ones the tenant that has least for its weight. A claim that is
    made, and a grant, write the record again, so that its revision moves. Its leases may be ``preemptible``: they make
    way for claims of a higher priority.
    """

    name: str
    gpu_milli: int | None = None
    priority: int = 0
    weight: int = 1
    preemptible: bool = False

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"{ROOT}tenant/{self.name}"


#: of claims that name none
NO_TENANT = TenantRecord("")


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """What a VM, a process or a container may use: so many GPUs, of each so much memory and time; without both it is
    a whole one. ``host`` is where its lease is; ``why`` says why it has none, or not the one that it asks for.
    ``tenant`` is whose it is; empty: of none. Claims with the same ``anti_affinity`` are on different hosts. ``where``
    has names or patterns of the hosts that it may be on; empty: any. One that binds ``late`` has a lease only while
    something wants it. Its lease ends at ``until_s``, and ``for_s`` after its grant. ``preempt_vm``: preemption may
    also detach a VM that uses it. ``preempted_by`` had its lease last; ``nominated`` is the host, with these GPUs,
    that others make free for it.
    """

    name: str
    class_name: str
    gpus: int = 1
    memory_bytes: int | None = None
    compute_percent: float | None = None
    if_lost: IfLost = IfLost.KEEP
    is_ending: bool = False
    host: str | None = None
    why: str = ""
    tenant: str = ""
    anti_affinity: str = ""
    where: tuple[str, ...] = ()
    late: bool = False
    until_s: float | None = None
    for_s: float | None = None
    preempt_vm: bool = False
    preempted_by: str = ""
    nominated: str = ""
    nominated_gpus: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """Its place in the store."""
        return f"{ROOT}claim/{self.name}"

    def may_be_on(self, host: str) -> bool:
        """Whether it asks for that host, or for any."""
        return is_among(host, self.where)

    def count_milli(self, memory_bytes: int) -> int:
        """How much of a GPU with so much memory it takes, in thousandths; more than all: such a GPU is too small."""
        if self.memory_bytes is None and self.compute_percent is None:
            return GPU_MILLI
        memory = -(-(self.memory_bytes or 0) * GPU_MILLI // max(memory_bytes, 1))
        # of whole thousandths of a percent: binary fractions would take one more
        compute = -(-round((self.compute_percent or 0) * 1000) * GPU_MILLI // 100_000)
        return max(memory, compute, 1)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """GPUs of a host, by their indices, granted to a claim at ``granted_s``, until ``until_s`` (0: without an end).
    Once it is ``is_ending``, the host ends the session and removes the lease: the only proof that nothing runs on it.
    """

    claim: str
    host: str
    gpus: tuple[int, ...]
    milli: int
    memory_bytes: int | None = None
    compute_percent: float | None = None
    if_lost: IfLost = IfLost.KEEP
    is_ending: bool = False
    granted_s: float = 0.0
    until_s: float = 0.0

    @property
    def key(self) -> str:
        """Its place in the store."""
        return lease_key(self.host, self.claim)

    @property
    def total_milli(self) -> int:
        """Of all its GPUs together."""
        return self.milli * len(self.gpus)


@dataclass(frozen=True, slots=True)
class UseRecord:
    """What has its slice by a claim's lease on a host: an attachment there, of a VM or of a run. A lease of several
    GPUs has one for each, by its ``number`` in the lease. Their absence is compared where the claim is deleted or
    resized, and where the host removes the lease.
    """

    claim: str
    host: str
    #: ``vm`` or ``run``
    noun: str
    name: str
    uuid: str
    attachment: str
    #: of the lease
    token: int
    number: int = 0
    #: the host of the attachment, where that is another one than the lease's
    via: str = ""

    @property
    def key(self) -> str:
        """Its place in the store."""
        return use_key(self.host, self.claim, self.number)

    @property
    def user_host(self) -> str:
        """The host of the attachment."""
        return self.via or self.host

    @property
    def holder(self) -> str:
        """For people."""
        return f'{self.noun} "{self.name}" on host {self.user_host} (attachment {self.attachment})'

    def describe_end(self) -> str:
        """The command that gives it back."""
        return f"vgpumgr detach {format_vm(self.name, self.uuid)} --attachment {self.attachment}"


@dataclass(frozen=True, slots=True)
class WantRecord:
    """What wants the lease of a claim that binds late: a process of a host, while it runs; or anything there (None).
    ``where`` names the hosts that the lease may be on, where it need not be that of the process.
    """

    claim: str
    host: str
    pid: int | None = None
    #: of the process, and the boot that it belongs to: a number is given again
    start_ticks: int = 0
    boot: str = ""
    where: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its place in the store."""
        return want_key(self.claim)

    @property
    def holder(self) -> str:
        """For people."""
        process = "" if self.pid is None else f"process {self.pid} on "
        return f"{process}host {self.host}"


def want_key(claim: str) -> str:
    """The place of what wants a claim that binds late."""
    return f"{ROOT}want/{claim}"


def use_key(host: str, claim: str, number: int = 0) -> str:
    """The place of what uses one GPU of a claim's lease on a host."""
    return f"{ROOT}use/{host}/{claim}" + (f"/{number}" if number else "")


def list_use_keys(host: str, claim: str, gpus: int) -> list[str]:
    """The places of all that can use a claim's lease of so many GPUs on a host."""
    return [use_key(host, claim, number) for number in range(gpus)]


def is_among(host: str, where: tuple[str, ...]) -> bool:
    """Whether names or patterns of hosts mean that one; none mean any."""
    return not where or any(fnmatchcase(host, pattern) for pattern in where)


def check_name(name: str, what: str) -> None:
    """Raises UsageError."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"no name of a {what}: {name!r}",
            why="it has lower-case letters, digits, dots and dashes, and at most 63 of them",
        )


def find_named(records: Mapping[str, T], name: str, noun: str, error: type[VgpumgrError]) -> T:
    """A claim or a tenant by its name. Raises ``error`` with near names."""
    if name in records:
        return records[name]
    near = list_near(name, records, n=2)
    raise error(
        f"the pool has no {noun} {name}",
        why=f"did you mean {' or '.join(near)}?" if near else None,
        hint=f"vgpumgr {noun} list",
    )


def find_claim(view: View, name: str) -> ClaimRecord:
    """Raises ClaimNotFoundError with near names, which are the tenant's own in a view of one."""
    return find_named(view.list_own_claims(), name, "claim", ClaimNotFoundError)


def lease_key(host: str, claim: str) -> str:
    """The place of a claim's lease on a host."""
    return f"{ROOT}lease/{host}/{claim}"


def apart_key(group: str) -> str:
    """An entry that each grant to a claim of an anti-affinity group writes."""
    return f"{ROOT}apart/{group}"


def alive_key(host: str) -> str:
    """The entry that ends when the host is no longer heard."""
    return f"{ROOT}alive/{host}"


@dataclass(frozen=True, slots=True)
class Life:
    """What a host's entry says while it is heard: its machine, the boot, and the version of its program's records; 1
    where it does not say so.
    """

    machine: str
    boot: str = ""
    version: int = VERSION

    def __str__(self) -> str:
        return f"{self.machine} {self.boot} {self.version}"

    @classmethod
    def read(cls, entry: Entry) -> Life:
        """Of any program."""
        machine, boot, version = (*entry.value.split(" ", 2), "", "")[:3]
        return cls(machine, boot, int(version) if version.isdecimal() else 1)

    def is_of_boot(self, other: Life) -> bool:
        """Whether both are of the same boot of the same machine."""
        return (self.machine, self.boot) == (other.machine, other.boot)


Record = (
    HostRecord
    | GpuRecord
    | ClassRecord
    | TenantRecord
    | ClaimRecord
    | LeaseRecord
    | UseRecord
    | WantRecord
    | ReservationRecord
    | EndRecord
)


#: fields that the versions before do not know: those of version 2, and of 3
_LATER = frozenset({"tenant", "anti_affinity", "closed", "where", "number", "late"}) | {
    "preemptible", "until_s", "for_s", "preempt_vm", "preempted_by", "nominated", "nominated_gpus", "granted_s",
    "ca", "links", "via",
}  # fmt: skip


def format_record(record: object) -> str:
    """A record as the store's text. What the version before does not know is left out where it says nothing."""
    data = {key: value for key, value in encode(record).items() if value or key not in _LATER}
    return json.dumps(data, separators=(",", ":"), sort_keys=True)


def put(record: Record) -> Put:
    """The change that writes a record."""
    return Put(record.key, format_record(record))


def read_record(kind: type[T], entry: Entry) -> T:
    """Raises PoolStoreError for what no program of this version has written."""
    try:
        hashable: Any = kind
        record: T = _decode(hashable, entry.value)
        return record
    except (ValueError, TypeError) as error:
        raise PoolStoreError(
            f"the pool's store has an entry that cannot be read: {entry.key}", cause=str(error)
        ) from error


@lru_cache(maxsize=1 << 16)
def _decode(kind: Any, text: str) -> Any:
    """A record never changes, and most are the same from round to round."""
    return decode(kind, json.loads(text))


_KINDS: dict[str, Any] = {
    "host": HostRecord,
    "gpu": GpuRecord,
    "class": ClassRecord,
    "tenant": TenantRecord,
    "claim": ClaimRecord,
    "lease": LeaseRecord,
    "use": UseRecord,
    "want": WantRecord,
    "reservation": ReservationRecord,
    "end": EndRecord,
}


@lru_cache(maxsize=1 << 16)
def _split_key(key: str) -> tuple[str, str]:
    """What kind of record an entry has, and its name."""
    noun, _, name = key.removeprefix(ROOT).partition("/")
    return noun, name


class View:
    """A pool at one revision of its store."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.revision = snapshot.revision
        #: the tenant whose claims alone can be named and listed; None: all
        self.scope: str | None = None
        self._entries = snapshot.entries
        self.hosts: dict[str, HostRecord] = {}
        #: by HOST/INDEX
        self.gpus: dict[str, GpuRecord] = {}
        self.classes: dict[str, ClassRecord] = {}
        self.tenants: dict[str, TenantRecord] = {}
        self.claims: dict[str, ClaimRecord] = {}
        #: by HOST/CLAIM
        self.leases: dict[str, LeaseRecord] = {}
        #: by HOST/CLAIM, and HOST/CLAIM/NUMBER for GPUs of the lease after the first
        self.uses: dict[str, UseRecord] = {}
        #: of claims that bind late, by claim
        self.wants: dict[str, WantRecord] = {}
        self.reservations: dict[str, ReservationRecord] = {}
        #: by HOST/CLAIM
        self.ends: dict[str, EndRecord] = {}
        self.alive: dict[str, Entry] = {}
        found: dict[str, dict[str, Any]] = {
            "host": self.hosts,
            "gpu": self.gpus,
            "class": self.classes,
            "tenant": self.tenants,
            "claim": self.claims,
            "lease": self.leases,
            "use": self.uses,
            "want": self.wants,
            "reservation": self.reservations,
            "end": self.ends,
        }
        for key, entry in snapshot.entries.items():
            noun, name = _split_key(key)
            if noun == "alive":
                self.alive[name] = entry
            elif noun in _KINDS:
                found[noun][name] = read_record(_KINDS[noun], entry)

    def for_tenant(self, tenant: str) -> View:
        """The same, in which only the claims of a tenant can be named and listed."""
        view = copy.copy(self)
        view.scope = tenant
        return view

    def list_own_claims(self) -> Mapping[str, ClaimRecord]:
        """The claims that can be named and listed."""
        if self.scope is None:
            return self.claims
        return {name: one for name, one in self.claims.items() if one.tenant == self.scope}

    @property
    def pool(self) -> PoolRecord | None:
        """The pool's own record."""
        entry = self._entries.get(POOL)
        return None if entry is None else read_record(PoolRecord, entry)

    @property
    def leader(self) -> str | None:
        """The controller that leads."""
        entry = self._entries.get(LEADER)
        return None if entry is None else entry.value

    def list_apart(self) -> list[str]:
        """The entries of anti-affinity groups that no claim has any more."""
        known = {apart_key(claim.anti_affinity) for claim in self.claims.values()}
        prefix = apart_key("")
        return [key for key in self._entries if key.startswith(prefix) and key not in known]

    def list_forgotten(self) -> list[str]:
        """What wants claims that are no more, and announcements of leases that have ended."""
        wants = [want.key for want in self.wants.values() if want.claim not in self.claims]
        return wants + [end.key for name, end in self.ends.items() if name not in self.leases]

    @property
    def has_times(self) -> bool:
        """Whether all its hosts read what has times."""
        return self.pool is None or self.pool.version >= ENDS

    def add(self, record: Record) -> View:
        """The pool if that were written, too."""
        known = self._entries.get(record.key)
        now = self.revision + 1
        created = known.created if known else now
        entry = Entry(record.key, format_record(record), created, now)
        return View(Snapshot({**self._entries, record.key: entry}, now))

    def at(self, key: str) -> At:
        """The comparison that an entry, or its absence, is still as in this view."""
        entry = self._entries.get(key)
        return At(key, entry.revision if entry else 0)

    def age(self, record: Record) -> int:
        """The revision at which a record came into being: the order of the queue."""
        return self._entries[record.key].created

    def find_token(self, lease: LeaseRecord) -> int:
        """The revision of the lease's grant."""
        return self._entries[lease.key].revision

    def find_lease(self, claim: ClaimRecord) -> LeaseRecord | None:
        """The lease of a claim, where it is granted."""
        return self.leases.get(f"{claim.host}/{claim.name}") if claim.host else None

    def find_state(self, claim: ClaimRecord) -> str:
        """``granted``, ``waiting`` or ``ending``; ``idle`` where it binds late, and nothing wants it. A lease that
        ends, as of one that was given back, is none.
        """
        if claim.is_ending:
            return "ending"
        lease = self.find_lease(claim)
        if lease is not None and not lease.is_ending:
            return "granted"
        return "waiting" if self.is_wanted(claim) else "idle"

    def is_wanted(self, claim: ClaimRecord) -> bool:
        """Whether it is to have a lease."""
        return not claim.late or claim.name in self.wants

    def find_where(self, claim: ClaimRecord) -> tuple[str, ...]:
        """The hosts that it may be on: that of what wants it, where it binds late, or those that are wanted."""
        want = self.wants.get(claim.name) if claim.late else None
        return claim.where if want is None else want.where or (want.host,)

    def find_tenant(self, claim: ClaimRecord) -> TenantRecord:
        """Whose the claim is; one without limits where it names none, or one that is gone."""
        return self.tenants.get(claim.tenant, NO_TENANT)

    def list_use_keys(self, claim: ClaimRecord) -> list[str]:
        """The places of all that can use the claim's lease."""
        if claim.host is None:
            return []
        lease = self.find_lease(claim)
        gpus = max(claim.gpus, len(lease.gpus) if lease else 0)
        return list_use_keys(claim.host, claim.name, gpus)

    def list_uses(self, claim: ClaimRecord) -> list[UseRecord]:
        """What has slices by the claim's lease, in the order of its GPUs."""
        names = (key.removeprefix(f"{ROOT}use/") for key in self.list_use_keys(claim))
        return [self.uses[name] for name in names if name in self.uses]

    def find_host_state(self, host: str) -> str:
        """Its state; of one that is not heard since a moment ago, which no controller has written yet, too."""
        record = self.hosts.get(host)
        if record is None:
            return "gone"
        is_silent = record.state is HostState.READY and host not in self.alive
        return str(HostState.SUSPECT if is_silent else record.state)

    def is_ready(self, host: str) -> bool:
        """Whether something new may be granted there."""
        record = self.hosts.get(host)
        return record is not None and record.state is HostState.READY and host in self.alive
