"""Documents of drift and recovery, of operations and of the daemon; see ``documents.base`` for the rules."""

from __future__ import annotations

from typing import Any, Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field
from vgpumgr.model.checks import Result

Status = Literal["waiting", "running", "succeeded", "failed", "cancelled", "interrupted"]


class ErrorPartsDocument(Document):
    """What happened; the parts of an error message."""

    id: str
    error: str
    cause: str | None
    why: str | None
    held_by: list[str]
    try_: str | None = Field(in_json="try")
    exit_code: int


class ErrorDocument(Document):
    """The body of every answer that is an error."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    error: ErrorPartsDocument


class ProgressDocument(Document):
    """A step that was begun."""

    time_s: float
    word: str = Field(description="do, undo, warn or wait")
    description: str


class OperationDocument(Document):
    """Long work."""

    id: str
    operation: str
    subject: str | None
    status: Status
    uid: int = Field(description="who asked for it; -1: no user of this host")
    caller: str | None = Field(
        default=None, description="the token by which it was asked for over the network; null: none"
    )
    created_s: float
    updated_s: float
    cancellable: bool
    progress: list[ProgressDocument]
    result: dict[str, Any] | None = Field(description="the document of what was done")
    error: dict[str, Any] | None = Field(description="why it was not; the parts of an error")


class OperationShowDocument(Document):
    """``vgpumgr op show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    operation: OperationDocument


class OperationListDocument(Document):
    """``vgpumgr op list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    operations: list[OperationDocument]


class ListenerDocument(Document):
    """The daemon's listener on a network."""

    address: str = Field(description="the address that it listens on")
    port: int = Field(description="the TCP port")
    fingerprint: str = Field(description="SHA-256 of its certificate, in hexadecimal digits")
    self_made: bool = Field(description="whether vgpumgr made the certificate")
    client_certificates: bool = Field(description="whether it takes certificates of clients")


class AccessDocument(Document):
    """``GET /1.0/access``: who the caller is."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    caller: str = Field(description="the user of this host, or the token")
    role: Literal["admin", "operator", "viewer", "tenant"] = Field(description="the caller's")
    tenant: str | None = Field(description="whose claims it sees; null: all")
    expires_s: float | None = Field(
        description="when the token ends, in seconds of Unix time; null: never"
    )


class ServerDocument(Document):
    """``GET /1.0``: which daemon answers, and what it can do."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    version: str
    api_version: Literal["1.0"] = "1.0"
    api_extensions: list[str] = Field(description="docs/api-extensions.md has a paragraph on each")
    pid: int
    machine: str | None = Field(description="null on the real machine")
    role: Literal["viewer", "admin"] = Field(description="the caller's")
    running_operations: int
    listener: ListenerDocument | None = Field(
        default=None, description="where it listens on a network; null: it does not"
    )
    pool: bool = Field(default=False, description="whether this machine is in a pool")


class SettingDocument(Document):
    """One key of the configuration."""

    key: str = Field(description="`SECTION.NAME`, or a variable of the environment")
    value: str = Field(description="as TOML has it")
    default: str = Field(description="the value where nothing sets it")
    origin: str = Field(
        description="`FILE:LINE`, `--set`, a variable of the environment, `default`"
    )
    meaning: str = Field(description="for people")


class ConfigDocument(Document):
    """``vgpumgr config show -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    source: Literal["daemon", "files"] = Field(
        description="what the running daemon uses, or what the next one would"
    )
    files: list[str] = Field(description="those that were read, in their order; later ones win")
    settings: list[SettingDocument] = Field(description="every key, set or not")


class MetricsDocument(Document):
    """The exposition, and the content type to serve it with."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    content_type: str
    text: str


class DriftDocument(Document):
    """One difference between what is recorded and what is."""

    kind: str = Field(description="a fixed name: slice-gone, keeper-gone, stray-devices, ...")
    subject: str = Field(description="the VM, or what else it is about")
    attachment: str | None
    text: str
    hint: str | None = Field(description="a command that repairs it")


class InterruptedDocument(Document):
    """An operation that began and has no end."""

    op: str
    operation: str
    subject: str
    waits: bool = Field(description="a helper process may still be doing one of its steps")


class ActionDocument(Document):
    """Something that recovery did, or could not do."""

    subject: str
    text: str
    done: bool


class PoolSeenDocument(Document):
    """The pool that this host is in, as the process that serves for it knew it last."""

    host: str = Field(description="this host's name there")
    server: str | None = Field(description="the process that serves for it now; null: none does")
    answers: bool = Field(description="whether the pool's store answered then")
    text: str = Field(description="for people")
    since_s: float = Field(description="since when it is so, in seconds since 1970")
    leases: int = Field(description="of this host")
    listens: list[str] = Field(
        default_factory=list,
        description="addresses at which this host offers its GPUs to others now; none: it offers none",
    )


class StatusDocument(Document):
    """``vgpumgr status -o json``. Null: could not be asked now, see ``problems``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    journal: Literal["ok", "failed", "corrupt"] | None
    attachments: int | None
    gpus: int | None
    vms: int | None
    interrupted: list[InterruptedDocument]
    late: list[str] = Field(description="helper processes past their deadline")
    drift: list[DriftDocument] | None = Field(
        description="all that is known; null: nothing, for what `problems` says"
    )
    problems: list[str]
    drained: list[str] = Field(
        default_factory=list, description="GPUs that take no new slice, in words"
    )
    warnings: list[str] = Field(
        default_factory=list,
        description="channels that work, and what needs an administrator's eye",
    )
    pool: PoolSeenDocument | None = Field(
        default=None, description="null: this host is in no pool, or nothing has served for it"
    )


class DiffDocument(Document):
    """``vgpumgr diff -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    drift: list[DriftDocument]
    interrupted: list[InterruptedDocument]


class RecoverDocument(Document):
    """``vgpumgr recover -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool = Field(description="whether it was only planned: `done` is then what would be")
    actions: list[ActionDocument]
    drift: list[DriftDocument] = Field(description="what still differs")


class HistorySeriesDocument(Document):
    """One figure of one GPU, of one channel of a VM, or of the pool that the machine is in."""

    gpu: str | None = Field(
        description="UUID, or address of one without NVML; null: of a VM, or of the pool"
    )
    vm: str | None = Field(description="name of the VM; null: of a GPU, or of the pool")
    attachment: int | None = Field(
        description="which of the VM's attachments, from 0; null: of a GPU, or of the pool"
    )
    figure: str = Field(
        description="of a GPU memory_used_bytes, utilisation_ratio, power_watts, temperature_celsius; of a "
        "channel calls_per_second, bytes_per_second, memory_used_bytes, throttled_ratio (the part of the "
        "time in which a share's work was held back); of the pool gpu_allocated_milli, gpu_free_milli (thousandths of "
        "GPUs), gpu_unusable_ratio (the free part of all GPUs that the mix of claims cannot use), claims_waiting"
    )
    values: list[float | None] = Field(description="one for each of ``times_s``; null: not known")


class HistoryDocument(Document):
    """Figures of the last hour, as the daemon collected them for the metrics."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    step_s: float = Field(description="seconds between two points, at least")
    times_s: list[float] = Field(description="when each point was collected, as Unix time")
    series: list[HistorySeriesDocument] = Field(description="in the order of GPUs, the pool, VMs")


class AuditListDocument(Document):
    """The last entries of the audit log, oldest first."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    entries: list[dict[str, Any]] = Field(description="as they stand in the log")


class CheckDocument(Document):
    """What one check of the host found."""

    id: str
    group: str = Field(description="firmware, kernel, gpu, virtualization, process or vgpumgr")
    title: str = Field(description="what is as it should be where the result is ok")
    result: Result
    text: str = Field(description="what was found; of a check that was skipped, why")
    evidence: list[str] = Field(description="files and commands, each with what it said")
    hint: str | None = Field(description="a command or a sentence that mends it")
    fixable: bool = Field(description="whether ``vgpumgr doctor --fix`` does something about it")


class CheckListDocument(Document):
    """``vgpumgr doctor -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    machine: str | None = Field(description="null on the real machine")
    version: str = Field(description="of the program that made the checks")
    checks: list[CheckDocument] = Field(description="in the order of their groups")


class RepairDocument(Document):
    """What is done about what one check found."""

    check: str = Field(description="the check's id")
    actions: list[str] = Field(description="in order; none: it was made, and waits for a reboot")
    needs_reboot: bool = Field(description="whether it takes effect with the next boot")
    state: Literal["planned", "done", "waiting", "failed"] = Field(
        description="waiting: made, and a reboot is to follow"
    )
    error: str | None = Field(default=None, description="why it failed")


class RepairListDocument(Document):
    """``vgpumgr doctor --fix -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    machine: str | None = Field(description="null on the real machine")
    dry_run: bool
    repairs: list[RepairDocument]


class ExplanationDocument(Document):
    """What a check means."""

    id: str
    group: str = Field(description="firmware, kernel, gpu, virtualization, process or vgpumgr")
    title: str = Field(description="its meaning in a sentence")
    how: str = Field(description="how it is checked")
    mend: str = Field(description="what to do where it is a problem")
    source: str = Field(description="a document that says more")


class CheckShowDocument(Document):
    """``vgpumgr doctor explain -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    check: ExplanationDocument = Field(description="the check that was asked for")


class RestoreDocument(Document):
    """``vgpumgr restore -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool = Field(description="whether it was only planned: `done` is then what would be")
    done: list[str] = Field(description="what was missing and is back, in words")
    problems: list[str] = Field(description="what could not be brought back, and why")
    notes: list[str] = Field(description="what else: vGPUs that ended with the boot, ...")
