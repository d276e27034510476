"""What a user can choose of an attachment. The command line reads it at every start: it imports nothing of ours."""

from __future__ import annotations

from enum import StrEnum

#: seconds to wait for the running guest
HELLO_TIMEOUT_S = 15.0
#: when a running guest can use the devices that it has, and what to try if it cannot
AWAITED = "once its agent answers"
AGENT_HINT = (
    "systemctl status vgpumgr-guestd in the VM; if it has no agent: vgpumgr virtio guest-package"
)
#: the processes of a channel on the host, as the kernel names them: a session runs the file that its worker runs
WORKER_NAMES = ("vgpumgr-hold", "vgpumgr-worker", "exe")
#: the guest's agent serves so many channels
MAX_COUNT = 16
#: a GPU or a MIG instance has at most so many shares: its arbiter serves no more
MAX_PARTS = 64
#: of a run: a word of a command line that is no option
RUN_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
#: forms of ``--profile`` that every host knows, as the help has them; ``model.request`` reads them
PROFILE_WORDS = {
    "share:": "share:8GiB,30% (memory and time of a GPU that VMs share; share:1/4: a quarter; "
    "share:1/4@1g.10gb: of a MIG instance)",
    "passthrough": "passthrough (a whole GPU)",
    "vf": "vf or vf:N (a virtual function; one of N if none is enabled yet)",
}


class Backend(StrEnum):
    """How a slice reaches a VM."""

    PASSTHROUGH = "passthrough"
    VF = "vf"
    MDEV = "mdev"
    FORWARD = "forward"
    #: calls are forwarded to another host of the pool, by a claim whose lease is there
    LINK = "link"


class BackendChoice(StrEnum):
    """``--backend``: one of them, or the first that the profile and the host allow."""

    AUTO = "auto"
    FORWARD = Backend.FORWARD.value
    PASSTHROUGH = Backend.PASSTHROUGH.value
    VF = Backend.VF.value
    MDEV = Backend.MDEV.value


class Transport(StrEnum):
    """``--transport``: how the guest reaches its worker; AUTO gives it both devices."""

    AUTO = "auto"
    RING = "ring"
    SERIAL = "serial"

    @property
    def has_ring(self) -> bool:
        """Whether the domain gets shared memory."""
        return self is not Transport.SERIAL

    @property
    def has_serial(self) -> bool:
        """Whether the domain gets a virtio-serial channel."""
        return self is not Transport.RING


class ComputePolicy(StrEnum):
    """``--compute-policy``: what a share's percentage of a GPU's time means. All shares of a GPU have the same."""

    #: a weight: time that others leave idle is used
    BURST = "burst"
    #: the most, also where the GPU is idle otherwise
    FIXED = "fixed"
    #: a weight that nothing is reserved for: the weights of a GPU may be more than 100 together
    BEST_EFFORT = "best-effort"

    @property
    def reserves_time(self) -> bool:
        """Whether the percentages of a GPU are never more than 100 together."""
        return self is not ComputePolicy.BEST_EFFORT


class Priority(StrEnum):
    """``--priority``: of a share; a higher class gets its turns first while it is within its part of the time."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class Display(StrEnum):
    """``--display``: whether a mediated device draws the guest's screen."""

    #: it computes only
    OFF = "off"
    #: its picture is shown once the guest's driver runs
    ON = "on"
    #: as ``on``, and firmware draws on it before that (``ramfb``): the guest's first display
    BOOT = "boot"


class Numa(StrEnum):
    """``--numa``: what the NUMA nodes that a VM is bound to mean for the choice of a GPU."""

    #: a GPU on one of them is taken first
    PREFER = "prefer"
    #: no other GPU is taken
    STRICT = "strict"
    #: they do not matter
    OFF = "off"
