"""A GPU's health: what its driver reports, what that means, and whether the GPU takes new slices all the same."""

from __future__ import annotations

from enum import StrEnum

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import PciAddress

#: Xids that a program causes, by NVIDIA's "XID Errors", and that the device plugin for Kubernetes therefore ignores
#: (k8s-device-plugin, internal/rm/health.go): the GPU goes on with the next program
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})

#: NVIDIA: XID Errors, "Xid Error Listing"; every Xid that is not here has its number only
XIDS = {
    8: "GPU stopped processing",
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "invalid or corrupted push buffer stream",
    38: "driver firmware error",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    48: "double-bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping was recorded",
    64: "ECC page retirement or row remapping could not be recorded",
    68: "video processor exception",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
    120: "GSP error",
    121: "C2C link error",
    140: "unrecovered ECC error",
}


def describe_xid(xid: int) -> str:
    """``Xid 79 (GPU has fallen off the bus)``."""
    return f"Xid {xid} ({XIDS[xid]})" if xid in XIDS else f"Xid {xid}"


class FaultKind(StrEnum):
    """How a GPU shows that it is unhealthy."""

    XID = "xid"
    ECC = "ecc"
    TEMPERATURE = "temperature"


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """What NVML's event set or the kernel's log reports of a GPU: an Xid, or uncorrectable ECC errors where ``xid`` is
    None.
    """

    address: PciAddress
    #: empty: NVML does not list the GPU
    uuid: str
    xid: int | None = None
    #: the MIG instance that the Xid is of
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None

    @property
    def is_fault(self) -> bool:
        """Whether the GPU takes no new slice from now on: also where only one MIG instance had it, as the cause may
        be what the instances share.
        """
        return self.xid not in APPLICATION_XIDS

    def __str__(self) -> str:
        told = "uncorrectable ECC errors" if self.xid is None else describe_xid(self.xid)
        if self.gpu_instance_id is None:
            return told
        return f"{told} in GPU instance {self.gpu_instance_id}"


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Why an unhealthy GPU takes no new slice. It ends with its boot."""

    kind: FaultKind
    #: in words
    text: str
    boot: str = ""
    xid: int | None = None
    #: uncorrectable errors that the driver had counted, for ECC
    errors: int = 0

    @property
    def key(self) -> str:
        """Which of a GPU's faults it is."""
        return f"{self.kind} {self.xid}" if self.xid is not None else self.kind


@dataclass(frozen=True, slots=True)
class XidCount:
    """How often an Xid was reported, and when last."""

    xid: int
    count: int
    last_s: float


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """What is remembered of a GPU's events, healthy or not."""

    address: PciAddress
    uuid: str
    #: by number
    xids: tuple[XidCount, ...] = ()
    #: uncorrectable ECC errors of that boot with which an administrator has resumed the GPU
    accepted_errors: int = 0
    boot: str = ""

    def count(self, xid: int, now_s: float, times: int = 1) -> tuple[XidCount, ...]:
        """The counts with so many more of that number."""
        known = next((one.count for one in self.xids if one.xid == xid), 0)
        others = [one for one in self.xids if one.xid != xid]
        return tuple(
            sorted([*others, XidCount(xid, known + times, now_s)], key=lambda one: one.xid)
        )
