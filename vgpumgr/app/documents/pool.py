"""Documents of the pool that this host is in; see ``documents.base`` for the rules."""

from __future__ import annotations

from typing import Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field

ClaimState = Literal["granted", "waiting", "ending", "idle"]


class PoolGpuDocument(Document):
    """A GPU of a host of the pool."""

    index: int
    uuid: str
    model: str
    memory_bytes: int
    free_milli: int = Field(
        description="what no lease has of it, in thousandths; 0 where it is closed"
    )
    closed: str | None = Field(description="why it takes nothing new; null: it does")
    reserved: list[str] = Field(
        default_factory=list, description="for whom it is reserved, and when, in words"
    )


class PoolHostDocument(Document):
    """A host of the pool."""

    name: str = Field(description="its name in the pool")
    state: str = Field(description="ready, suspect or fenced")
    heard: bool = Field(description="whether its last heartbeat still counts")
    gpus: list[PoolGpuDocument]
    leases: int = Field(description="leases on its GPUs")
    links: list[str] = Field(
        default_factory=list,
        description="addresses at which it offers its GPUs to other hosts; none: it offers none",
    )


class ClaimCountsDocument(Document):
    """How many claims there are in each state."""

    granted: int = Field(description="that have a lease")
    waiting: int = Field(description="that wait for one")
    ending: int = Field(description="that are deleted, and whose host has not ended what runs")
    idle: int = Field(description="that bind late, and that nothing wants now")


class PoolPartDocument(Document):
    """The pool itself, and this host's part in it."""

    id: str
    version: int = Field(description="of the pool's records")
    store: str = Field(description="the URLs of its etcd, or its file on this host")
    engine: Literal["etcd", "sqlite"] = Field(description="what the store is")
    revision: int = Field(description="of the store, when it was read")
    ttl_s: float = Field(description="so long a heartbeat counts")
    fence_s: float = Field(description="so long after its last one a host ends claims that move")
    host: str | None = Field(description="this host's name there; null: it has not joined")
    server: str | None = Field(description="the process that serves for it now; null: none does")


class PoolDocument(Document):
    """``vgpumgr pool status -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    pool: PoolPartDocument = Field(description="the pool itself")
    leader: str | None = Field(description="the host that grants; null: none does")
    gpus: int = Field(description="of all hosts together")
    gpu_free_milli: int = Field(description="what new leases can have of them, in thousandths")
    gpu_allocated_milli: int = Field(description="what leases have of them, in thousandths")
    gpu_unusable_milli: int = Field(
        description="the free part that the mix of the pool's claims cannot use"
    )
    claims: ClaimCountsDocument = Field(description="how many there are in each state")
    hosts: list[PoolHostDocument] = Field(description="every host")


class PoolHostListDocument(Document):
    """The hosts of ``vgpumgr pool status -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    hosts: list[PoolHostDocument] = Field(description="every host")


class ClaimLeaseDocument(Document):
    """GPUs of one host that a claim has."""

    host: str = Field(description="the host's name in the pool")
    gpu_indices: list[int] = Field(description="the GPUs there")
    gpu_uuids: list[str] = Field(description="of these GPUs, where the pool still has them")
    gpu_milli: int = Field(description="of each of them, in thousandths")
    memory_bytes: int | None = Field(description="of each of them; null: all")
    compute_percent: float | None = Field(description="of the time of each; null: all")
    token: int = Field(description="of two grants of one claim the later has the higher one")
    until_s: float | None = Field(
        default=None, description="when it ends, in seconds since 1970; null: it has no end"
    )
    notice: str | None = Field(default=None, description="why it ends soon; null: it does not")


class ClaimUseDocument(Document):
    """What has its slice by a claim."""

    host: str = Field(description="where it is")
    kind: str = Field(description="vm or run")
    name: str = Field(description="of the VM or the run")
    uuid: str | None
    attachment: str = Field(description="id of the attachment; of several the first")
    attachments: list[str] = Field(description="ids of all of them, in the order of its GPUs")


class ClaimWantDocument(Document):
    """What wants the lease of a claim that binds late."""

    host: str = Field(description="where it is")
    pid: int | None = Field(description="of the process; null: anything there")


class ClaimDocument(Document):
    """A claim of the pool."""

    name: str = Field(description="its name in the pool")
    class_: str = Field(in_json="class", description="by which policy its GPUs are chosen")
    tenant: str | None = Field(description="whose quota it has; null: of none")
    anti_affinity: str | None = Field(description="no host has two claims of this group")
    where: list[str] = Field(
        description="names of the hosts that it may be on, and patterns of them; none: any"
    )
    binding: Literal["reserve", "late"] = Field(
        description="late: it has a lease only while something wants it"
    )
    wanted_by: ClaimWantDocument | None = Field(description="of one that binds late; null: nothing")
    state: ClaimState
    gpus: int = Field(description="how many it asks for")
    memory_bytes: int | None = Field(description="of each GPU; null: all")
    compute_percent: float | None = Field(description="of the time of each GPU; null: all")
    if_lost: str = Field(description="what becomes of it with its host: keep or move")
    lease: ClaimLeaseDocument | None = Field(description="null: it waits, or is idle")
    place: int | None = Field(description="in the queue, from 1; null: it does not wait")
    why: str | None = Field(description="why it waits, or keeps another size than it asks for")
    used_by: ClaimUseDocument | None = Field(description="null: nothing uses it")
    until_s: float | None = Field(
        default=None, description="when it ends, in seconds since 1970; null: it has no end"
    )
    for_s: float | None = Field(
        default=None, description="so long after its grant a lease ends; null: it does not"
    )
    preemptible: Literal["command", "vm"] | None = Field(
        default=None,
        description="what of it ends for a claim of a higher priority; vm: a VM, too; null: nothing",
    )
    preempted_by: str | None = Field(
        default=None, description="the claim for which its lease has ended; null: none"
    )


class ClaimListDocument(Document):
    """``vgpumgr claim list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    claims: list[ClaimDocument] = Field(description="those with a lease by age, then the queue")


class ClaimShowDocument(Document):
    """``vgpumgr claim show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    claim: ClaimDocument = Field(description="the claim")


class ClaimDeletedDocument(Document):
    """``vgpumgr claim delete -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    claim: str = Field(description="its name in the pool")
    deleted: bool = Field(description="whether it is gone; else its host still ends what runs")
    unheard_host: str | None = Field(description="that host, where it is not heard")


class TenantDeletedDocument(Document):
    """``vgpumgr tenant delete -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    tenant: str = Field(description="its name in the pool")
    deleted: bool = Field(description="that it is gone")


class ClaimCandidateDocument(Document):
    """GPUs of one model on one host, as the pool judges them for a claim."""

    name: str = Field(description="of the host")
    model: str
    free_milli: dict[str, int] = Field(description="of each GPU by its index, in thousandths")
    chosen: bool = Field(description="whether the claim has it, or would get it now")
    score: list[float] | None = Field(
        description="the least wins, by the first figure that differs; null: it cannot be had"
    )
    why: str = Field(description="the score in words, or why it cannot be had")


class ClaimVictimDocument(Document):
    """A claim whose lease would end for another one."""

    name: str = Field(description="of the claim")
    tenant: str | None = Field(description="whose it is; null: of none")
    priority: int = Field(description="of its tenant")
    host: str = Field(description="where its lease is")
    gpu_indices: list[int] = Field(description="the GPUs there")
    gpu_milli: int = Field(description="of each of them, in thousandths")
    ends: str = Field(description="the VM or the run that ends; or that nothing uses it")
    grace_s: float = Field(description="so long what uses it may go on")


class ClaimExplainDocument(Document):
    """``vgpumgr claim explain -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    claim: ClaimDocument = Field(description="the claim")
    hosts: list[ClaimCandidateDocument] = Field(description="the best one first")
    preempts: list[ClaimVictimDocument] = Field(
        default_factory=list, description="claims whose leases would end for it"
    )


class ClaimNoticeDocument(Document):
    """What the host of a lease says of its end."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    claim: str = Field(description="name of the claim")
    ending: bool = Field(description="whether what uses it has to end now")
    notice: str | None = Field(description="why its lease ends, now or soon; null: it does not")
    grace_s: float = Field(description="so long what uses it may go on once it is ending")


class ReservationDocument(Document):
    """GPUs that are a tenant's at a time of day."""

    name: str = Field(description="its name in the pool")
    state: Literal["planned", "active", "over"]
    tenant: str | None = Field(description="whose claims get the GPUs; null: see claims")
    claims: list[str] = Field(description="names of claims that get them, and patterns")
    class_: str = Field(in_json="class", description="of the GPUs")
    gpus: int = Field(description="how many GPUs")
    memory_bytes: int | None = Field(description="of each GPU; null: all")
    compute_percent: float | None = Field(description="of the time of each GPU; null: all")
    from_s: float = Field(description="when it begins, now or next, in seconds since 1970")
    until_s: float = Field(description="when it ends then, in seconds since 1970")
    from_: str = Field(in_json="from", description="the same by the clock of its zone")
    until: str = Field(description="the same by the clock of its zone")
    zone: str = Field(description="its time zone")
    every: Literal["week"] | None = Field(description="null: once")
    places: list[str] = Field(description="its GPUs, as HOST/INDEX")
    granted: list[str] = Field(description="claims that it is for, and that have leases")
    why: str | None = Field(description="which of its GPUs are not there; null: all are")


class ReservationListDocument(Document):
    """``vgpumgr reservation list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    reservations: list[ReservationDocument] = Field(description="that which comes next first")


class ReservationShowDocument(Document):
    """``vgpumgr reservation show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    reservation: ReservationDocument = Field(description="the reservation")


class TenantDocument(Document):
    """A tenant of the pool."""

    name: str = Field(description="its name in the pool")
    quota_milli: int | None = Field(description="of GPUs, in thousandths; null: no limit")
    used_milli: int = Field(description="what its leases have together, in thousandths")
    priority: int = Field(description="claims of tenants with a higher one are granted first")
    weight: int = Field(description="of equal priority, who has least for its weight is next")
    preemptible: bool = Field(
        default=False, description="whether its leases make way for claims of a higher priority"
    )
    claims: ClaimCountsDocument = Field(description="how many it has in each state")


class TenantListDocument(Document):
    """``vgpumgr tenant list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    tenants: list[TenantDocument] = Field(description="every tenant, by name")


class TenantShowDocument(Document):
    """``vgpumgr tenant show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    tenant: TenantDocument = Field(description="the tenant")


class PoolClassDocument(Document):
    """How GPUs are provided, and by which policy."""

    name: str = Field(description="its name in the pool")
    policy: str = Field(description="by which a host is chosen")
    whole: bool = Field(description="whether it gives whole GPUs only")
    preemptible: bool = Field(
        default=False, description="whether its leases make way for claims of a higher priority"
    )
    models: list[str] = Field(description="of GPUs; none: any")
    gpus: int = Field(description="of the pool that it may give")
    claims: int = Field(description="claims of this class")


class PoolClassListDocument(Document):
    """``vgpumgr pool class list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    classes: list[PoolClassDocument] = Field(description="every class, by name")


class PoolCommandDocument(Document):
    """That the audit log has a command."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    recorded: bool = Field(description="true")
