"""The API as a table: what the daemon serves and the command line calls.

One row per operation of the application. Path parameters carry the names of the method's own
parameters; what is left comes from the query (GET) or from a JSON body. The answer is the method's
document. Every row has a role. The daemon checks the role of ``ROLES`` where the operation runs, and
refuses operations without a row.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from vgpumgr.model.frozen import dataclass

API = "/1.0"
OPERATIONS = f"{API}/operations"
EVENTS = f"{API}/events"
METRICS = f"{API}/metrics"
CONFIG = f"{API}/config"
POOL = f"{API}/pool"


class Role(IntEnum):
    """What a caller may do; each role includes those below it."""

    NONE = 0
    #: what belongs to one tenant of the pool: the routes that say so, and nothing of the host
    TENANT = 1
    VIEWER = 2
    ADMIN = 3
    #: root of this host, or a token of an administrator
    ROOT = 4


class Kind(StrEnum):
    """How a call runs: ``read`` beside others, ``change`` and ``long`` one after another.

    ``long`` answers at once with an operation (202); a dry run of it is a read.
    """

    READ = "read"
    CHANGE = "change"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the application over HTTP.

    ``guard`` names what an ETag of this route stands for (``vm``, ``gpu`` or ``layout``): a read
    answers it, a change compares it with If-Match. ``cached`` lets callers share an answer for a
    moment, unless they ask with ``Cache-Control: no-cache``. ``urgent`` reads never wait for others. A ``tenant`` may
    call it, too, and gets and changes what is its own. ``local`` is for processes of this host alone.
    """

    method: str
    path: str
    operation: str
    kind: Kind
    role: Role
    summary: str
    guard: str | None = None
    cached: bool = False
    cancellable: bool = False
    urgent: bool = False
    tenant: bool = False
    local: bool = False


_READ, _LONG, _CHANGE = Kind.READ, Kind.LONG, Kind.CHANGE
_VIEWER, _ADMIN, _ROOT = Role.VIEWER, Role.ADMIN, Role.ROOT

ROUTES: tuple[Route, ...] = (
    Route("GET", f"{API}/gpus", "list_gpus", _READ, _VIEWER, "Every GPU.", "layout", cached=True),
    Route("GET", f"{API}/gpus/{{selector}}", "show_gpu", _READ, _VIEWER, "One GPU.", "gpu"),
    Route(
        "POST", f"{API}/gpus/{{selector}}/drain", "drain_gpu", _LONG, _ADMIN, "No new slice on it.",
        "gpu",
    ),
    Route(
        "POST", f"{API}/gpus/{{selector}}/resume", "resume_gpu", _LONG, _ADMIN, "New slices again.",
        "gpu",
    ),
    Route(
        "GET", f"{API}/mig/instances", "list_mig_instances", _READ, _VIEWER, "MIG instances.",
        cached=True,
    ),
    Route(
        "GET", f"{API}/mig/profiles", "list_mig_profiles", _READ, _VIEWER,
        "MIG profiles and what still fits.", cached=True,
    ),
    Route("GET", f"{API}/vms", "list_vms", _READ, _VIEWER, "Every VM.", cached=True),
    Route("GET", f"{API}/vms/{{selector}}", "show_vm", _READ, _VIEWER, "One VM.", "vm"),
    Route(
        "GET", f"{API}/vms/{{selector}}/xml", "show_vm_xml", _READ, _VIEWER,
        "One VM's definition, as it is or as it would be after an attach.",
    ),
    Route("GET", f"{API}/channels", "list_channels", _READ, _VIEWER, "Channels.", cached=True),
    Route("GET", f"{API}/channels/{{selector}}", "show_channel", _READ, _VIEWER, "One channel."),
    Route(
        "POST", f"{API}/channels/{{vm}}/restart", "restart_channel", _LONG, _ADMIN,
        "End the worker of a VM's channels and start it anew.",
    ),
    Route(
        "POST", f"{API}/channels/{{vm}}/share", "set_share", _LONG, _ADMIN,
        "Memory and time of a share, while it is used.",
    ),
    Route(
        "POST", f"{API}/attachments", "attach", _LONG, _ADMIN, "Give a VM a slice.", "vm",
        cancellable=True,
    ),
    Route(
        "POST", f"{API}/attachments/{{vm}}/detach", "detach", _LONG, _ADMIN,
        "Take a VM's slice back.", "vm",
    ),
    Route(
        "POST", f"{API}/runs", "start_run", _LONG, _ADMIN,
        "Give a process of the host a slice and a channel.", cancellable=True, local=True,
    ),
    Route(
        "POST", f"{API}/pool/claims/{{claim}}/bind", "bind_claim", _READ, _ADMIN,
        "A claim that binds late gets a lease for a process of this host, or waits for one.", local=True,
    ),
    Route(
        "GET", f"{API}/pool/claims/{{claim}}/notice", "read_notice", _READ, _VIEWER,
        "Whether the lease that a claim has on this host ends.",
    ),
    Route("GET", f"{API}/status", "status", _READ, _VIEWER, "Is all as recorded?", urgent=True),
    Route(
        "GET", f"{API}/checks", "check_host", _READ, _VIEWER, "Is the host fit for VMs with GPUs?",
        urgent=True,
    ),
    Route("GET", f"{API}/checks/{{selector}}", "explain_check", _READ, _VIEWER, "One check."),
    Route("GET", f"{API}/diff", "diff", _READ, _VIEWER, "What differs from the record."),
    Route("POST", f"{API}/recover", "recover", _LONG, _ADMIN, "Recover what was interrupted, and repair drift."),
    Route("POST", f"{API}/restore", "restore", _LONG, _ADMIN, "Bring back what a boot took."),
    Route("GET", f"{API}/mig/why", "why", _READ, _VIEWER, "Why a profile cannot be had now."),
    Route("GET", f"{API}/mig/defrag", "plan_defrag", _READ, _VIEWER, "Moves that free capacity."),
    Route(
        "POST", f"{API}/mig/layout/plan", "plan_layout", _READ, _VIEWER,
        "The least change that brings the GPUs to a layout.", "layout",
    ),
    Route("POST", f"{API}/mig/layout/assert", "assert_layout", _READ, _VIEWER, "What differs."),
    Route("GET", f"{API}/mig/layout/export", "export_layout", _READ, _VIEWER, "As a file."),
    Route("POST", f"{API}/mig/layout/apply", "apply_layout", _LONG, _ADMIN, "Do it.", "layout"),
    Route("GET", f"{API}/mig/checkpoint", "checkpoint_mig", _READ, _VIEWER, "As a checkpoint."),
    Route("POST", f"{API}/mig/restore", "restore_mig", _LONG, _ADMIN, "Undo to one.", "layout"),
    Route("POST", f"{API}/mig/create", "create_mig", _LONG, _ADMIN, "New GPU instances.", "layout"),
    Route(
        "POST", f"{API}/mig/destroy", "destroy_mig", _LONG, _ADMIN, "GPU instances that go.", "layout"
    ),
    Route("POST", f"{API}/mig/mode", "set_mig_mode", _LONG, _ADMIN, "MIG mode.", "layout"),
    Route(
        "GET", f"{API}/passthrough/functions", "list_passthrough", _READ, _VIEWER,
        "GPUs as PCI functions, and whether they can go to a VM.",
    ),
    Route("GET", f"{API}/passthrough/groups", "list_pci_groups", _READ, _VIEWER, "IOMMU groups."),
    Route(
        "POST", f"{API}/passthrough/bind", "bind_pci", _LONG, _ADMIN, "Take one from the host.",
        cancellable=True,
    ),
    Route(
        "POST", f"{API}/passthrough/unbind", "unbind_pci", _LONG, _ADMIN, "Give one back.",
        cancellable=True,
    ),
    Route("GET", f"{API}/vfs", "list_vfs", _READ, _VIEWER, "Virtual functions, and their users."),
    Route("POST", f"{API}/vfs/enable", "enable_vfs", _LONG, _ADMIN, "Make virtual functions."),
    Route("POST", f"{API}/vfs/disable", "disable_vfs", _LONG, _ADMIN, "Remove those of one."),
    Route("GET", f"{API}/vgpus/types", "list_vgpu_types", _READ, _VIEWER, "Types and their capacity."),
    Route("GET", f"{API}/vgpus", "list_vgpus", _READ, _VIEWER, "Every vGPU.", cached=True),
    Route("POST", f"{API}/vgpus", "create_vgpu", _LONG, _ADMIN, "A new vGPU."),
    Route("POST", f"{API}/vgpus/define", "define_vgpu", _LONG, _ADMIN, "A definition."),
    Route("POST", f"{API}/vgpus/{{vgpu}}/delete", "delete_vgpu", _LONG, _ADMIN, "Remove a vGPU."),
    Route("POST", f"{API}/vgpus/{{vgpu}}/start", "start_vgpu", _LONG, _ADMIN, "As defined."),
    Route("POST", f"{API}/vgpus/{{vgpu}}/stop", "stop_vgpu", _LONG, _ADMIN, "Keep it defined."),
    Route("POST", f"{API}/vgpus/{{vgpu}}/adopt", "adopt_vgpu", _LONG, _ADMIN, "Take it over."),
)  # fmt: skip

#: where an operation is, below ``vgpumgr.app.operations``: a function of a machine's interfaces, or a
#: method of a class that is made of them; an operation that is not here is a method of the application
IMPLEMENTATIONS = {
    "drain_gpu": "gpus.drain_gpu",
    "resume_gpu": "gpus.resume_gpu",
    "list_vms": "attachments.AttachmentService.list_vms",
    "show_vm": "attachments.AttachmentService.show_vm",
    "show_vm_xml": "attachments.show_vm_xml",
    "list_channels": "attachments.AttachmentService.list_channels",
    "show_channel": "attachments.AttachmentService.show_channel",
    "attach": "attachments.attach",
    "detach": "attachments.AttachmentService.detach",
    "start_run": "runs.start_run",
    "bind_claim": "runs.bind_claim",
    "read_notice": "claims.read_notice",
    "restart_channel": "channels.restart_channel",
    "set_share": "shares.set_share",
    "status": "recovery.Recovery.status",
    "diff": "recovery.Recovery.diff",
    "recover": "recovery.recover",
    "restore": "restore.restore",
    "why": "capacity.why",
    "plan_defrag": "capacity.defrag",
    "plan_layout": "layouts.LayoutService.plan",
    "assert_layout": "layouts.LayoutService.compare",
    "export_layout": "layouts.LayoutService.export",
    "apply_layout": "layouts.LayoutService.apply",
    "checkpoint_mig": "layouts.LayoutService.checkpoint",
    "restore_mig": "layouts.LayoutService.restore",
    "create_mig": "layouts.LayoutService.create_instances",
    "destroy_mig": "layouts.LayoutService.destroy_instances",
    "set_mig_mode": "layouts.LayoutService.set_mode",
    "list_passthrough": "passthrough.PassthroughService.list_functions",
    "list_pci_groups": "passthrough.PassthroughService.list_groups",
    "bind_pci": "passthrough.PassthroughService.bind",
    "unbind_pci": "passthrough.PassthroughService.unbind",
    "list_vfs": "passthrough.PassthroughService.list_vfs",
    "enable_vfs": "passthrough.PassthroughService.enable_vfs",
    "disable_vfs": "passthrough.PassthroughService.disable_vfs",
    "list_vgpu_types": "vgpus.VgpuService.list_types",
    "list_vgpus": "vgpus.VgpuService.list_vgpus",
    "create_vgpu": "vgpus.VgpuService.create",
    "define_vgpu": "vgpus.VgpuService.define",
    "delete_vgpu": "vgpus.VgpuService.delete",
    "start_vgpu": "vgpus.VgpuService.start",
    "stop_vgpu": "vgpus.VgpuService.stop",
    "adopt_vgpu": "vgpus.VgpuService.adopt",
}

#: what the daemon answers itself
SYSTEM_ROUTES: tuple[Route, ...] = (
    Route("GET", API, "show_server", _READ, _VIEWER, "Which daemon this is, and its extensions."),
    Route("GET", f"{API}/access", "show_access", _READ, _VIEWER, "Who the caller is, and its role.", tenant=True),
    Route("GET", CONFIG, "show_config", _READ, _VIEWER, "The configuration, and where each value comes from."),
    Route("GET", f"{API}/openapi.json", "show_openapi", _READ, _VIEWER, "This API, as OpenAPI."),
    Route("GET", EVENTS, "stream_events", _READ, _VIEWER, "Events, as they happen (SSE)."),
    Route("GET", METRICS, "read_metrics", _READ, _VIEWER, "Metrics for Prometheus."),
    Route("GET", f"{API}/history", "read_history", _READ, _VIEWER, "Figures of the last hour, for plots."),
    Route("GET", POOL, "show_pool", _READ, _VIEWER, "The pool that this host is in, its hosts and totals."),
    Route("GET", f"{POOL}/hosts", "list_pool_hosts", _READ, _VIEWER, "Hosts of the pool."),
    Route("GET", f"{POOL}/classes", "list_pool_classes", _READ, _VIEWER, "How GPUs of the pool are provided."),
    Route(
        "GET", f"{POOL}/claims", "list_claims", _READ, _VIEWER, "Claims of the pool, and its queue.", tenant=True,
    ),
    Route("POST", f"{POOL}/claims", "create_claim", _CHANGE, _ADMIN, "A new claim.", tenant=True),
    Route("GET", f"{POOL}/claims/{{claim}}", "show_claim", _READ, _VIEWER, "One claim.", tenant=True),
    Route("PATCH", f"{POOL}/claims/{{claim}}", "resize_claim", _CHANGE, _ADMIN, "Another size.", tenant=True),
    Route("DELETE", f"{POOL}/claims/{{claim}}", "delete_claim", _CHANGE, _ADMIN, "End a claim.", tenant=True),
    Route(
        "POST", f"{POOL}/claims/{{claim}}/hold", "hold_claim", _CHANGE, _ADMIN,
        "A claim that binds late has its lease on this host, or waits for one, until it is released.", tenant=True,
    ),
    Route(
        "POST", f"{POOL}/claims/{{claim}}/release", "release_claim", _CHANGE, _ADMIN,
        "End the lease of a claim that binds late.", tenant=True,
    ),
    Route(
        "GET", f"{POOL}/claims/{{claim}}/explain", "explain_claim", _READ, _VIEWER,
        "Which host a claim has or would get, and why.", tenant=True,
    ),
    Route(
        "GET", f"{POOL}/tenants", "list_tenants", _READ, _VIEWER, "Tenants of the pool, and what they have.",
        tenant=True,
    ),
    Route("POST", f"{POOL}/tenants", "create_tenant", _CHANGE, _ROOT, "A new tenant."),
    Route("GET", f"{POOL}/tenants/{{tenant}}", "show_tenant", _READ, _VIEWER, "One tenant.", tenant=True),
    Route("PATCH", f"{POOL}/tenants/{{tenant}}", "change_tenant", _CHANGE, _ROOT, "Its quota, priority or weight."),
    Route("DELETE", f"{POOL}/tenants/{{tenant}}", "delete_tenant", _CHANGE, _ROOT, "Remove a tenant without claims."),
    Route(
        "POST", f"{POOL}/commands", "record_pool_command", _READ, _ADMIN,
        "A command has changed the pool: the audit log gets it.", local=True,
    ),
    Route(
        "GET", f"{POOL}/reservations", "list_reservations", _READ, _VIEWER,
        "GPUs that are a tenant's at a time of day.",
    ),
    Route(
        "GET", f"{POOL}/reservations/{{reservation}}", "show_reservation", _READ, _VIEWER,
        "One reservation.",
    ),
    Route("GET", f"{API}/audit", "list_audit", _READ, _ADMIN, "The last entries of the audit log."),
    Route("GET", OPERATIONS, "list_operations", _READ, _VIEWER, "Operations."),
    Route("GET", f"{OPERATIONS}/{{id}}", "show_operation", _READ, _VIEWER, "One operation."),
    Route(
        "GET", f"{OPERATIONS}/{{id}}/wait", "wait_operation", _READ, _VIEWER,
        "One operation, when it has ended or the time is over.",
    ),
    Route("DELETE", f"{OPERATIONS}/{{id}}", "cancel_operation", _READ, _ADMIN, "Cancel it."),
)  # fmt: skip

BY_OPERATION = {route.operation: route for route in ROUTES}

#: the role that each operation takes; an operation without an entry is refused
ROLES = {route.operation: route.role for route in (*ROUTES, *SYSTEM_ROUTES)}
#: what tenants may call, and what takes a process of this host
FOR_TENANTS = frozenset(one.operation for one in (*ROUTES, *SYSTEM_ROUTES) if one.tenant)
FOR_PROCESSES = frozenset(one.operation for one in (*ROUTES, *SYSTEM_ROUTES) if one.local)
