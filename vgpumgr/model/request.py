"""What a user asks for with ``attach``: the options, and what ``--profile`` names."""

from __future__ import annotations

import re
import shlex
from typing import ClassVar

from vgpumgr.model.choices import HELLO_TIMEOUT_S, Display, Numa, Transport
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.shares import (
    OF_INSTANCE,
    PREFIX,
    Share,
    is_share_text,
    parse_best_effort,
    parse_parts,
    parse_share,
)
from vgpumgr.model.text import format_exact

MAX_HELLO_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """What a user asked for. ``live`` and ``config`` as with virsh; neither means both as far as
    possible. What is a plain string here is checked where the request is planned.
    """

    vm: str
    #: empty: the claim says it
    profile: str = ""
    gpu: str | None = None
    #: a ``Backend``, or ``auto``
    backend: str = "auto"
    live: bool = False
    config: bool = False
    transport: Transport = Transport.AUTO
    hello_timeout_s: float = HELLO_TIMEOUT_S
    #: on the emptiest GPU, not on the one where the least capacity is lost
    spread: bool = False
    #: besides what the VM has; without it a VM that has one is refused
    add: bool = False
    #: of a mediated device: a ``Display``
    display: str = Display.OFF
    #: so many, all or none
    count: int = 1
    #: a ``Numa``
    numa: str = Numa.PREFER
    #: ``KEY=VALUE``, see ``model.limits``: of a channel
    limits: tuple[str, ...] = ()
    #: whether a channel's worker may start without a sandbox, where the host can build none
    allow_unconfined: bool = False
    #: a ``ComputePolicy``, of a share; None: ``burst``
    compute_policy: str | None = None
    #: a ``Priority``, of a share; None: ``normal``
    priority: str | None = None
    #: of a pool, in the place of a profile and a GPU
    claim: str | None = None

    @property
    def option(self) -> str:
        """What it asks for, as the command line has it."""
        return (
            f"--profile {shlex.quote(str(self.profile))}"
            if self.claim is None
            else f"--claim {self.claim}"
        )


@dataclass(frozen=True, slots=True)
class MigRequest:
    """A MIG profile by name: ``1g.10gb``."""

    noun: ClassVar[str] = "a MIG profile"

    name: MigProfileName

    def __str__(self) -> str:
        return str(self.name)


@dataclass(frozen=True, slots=True)
class PassthroughRequest:
    """The whole PCI function."""

    noun: ClassVar[str] = "a whole GPU"

    def __str__(self) -> str:
        return "passthrough"


@dataclass(frozen=True, slots=True)
class VfRequest:
    """A virtual function of a GPU as its driver makes it. ``count``: how many the GPU is to be cut
    into where it is not yet; None: whatever it is cut into, or one.
    """

    noun: ClassVar[str] = "a virtual function"

    count: int | None = None

    def __str__(self) -> str:
        return "vf" if self.count is None else f"vf:{self.count}"


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """Memory and time of a GPU that others have a share of, too: so much of both, or one of ``parts`` equal shares of
    whichever GPU it is. ``instance``: of a GPU instance of that MIG profile instead.
    """

    noun: ClassVar[str] = "a share"

    share: Share | None = None
    parts: int | None = None
    #: whether no percentage was said, which only best-effort shares may leave out
    is_memory_only: bool = False
    instance: MigProfileName | None = None

    def __str__(self) -> str:
        return self.size if self.instance is None else f"{self.size}{OF_INSTANCE}{self.instance}"

    @property
    def size(self) -> str:
        """The share without what it is of."""
        if self.share is None:
            return f"{PREFIX}1/{self.parts}"
        if self.is_memory_only:
            return f"{PREFIX}{format_exact(self.share.memory)}"
        return str(self.share)


@dataclass(frozen=True, slots=True)
class VgpuRequest:
    """A vGPU type by its vendor's name: ``NVIDIA A100-2-10C``; resolved against the host, never by
    arithmetic.
    """

    noun: ClassVar[str] = "a vGPU type"

    type_name: str

    def __str__(self) -> str:
        return self.type_name


ProfileRequest = MigRequest | PassthroughRequest | ShareRequest | VfRequest | VgpuRequest


def parse_profile_request(text: str) -> ProfileRequest:
    """Reads ``--profile``. What is neither a MIG name, ``passthrough``, ``vf`` nor ``share:`` may be
    a vGPU type.

    Raises ValueError for an empty name, a malformed share and a malformed number of functions.
    """
    text = text.strip()
    if not text:
        raise ValueError("the profile is empty")
    if text.lower() == "passthrough":
        return PassthroughRequest()
    if text.lower() == "vf" or text.lower().startswith("vf:"):
        return _parse_vf(text)
    if is_share_text(text):
        return _parse_share(text)
    try:
        return MigRequest(MigProfileName.parse(text))
    except ValueError:
        if re.match(r"(?:MIG\s+)?(?:\d+c\.)?\d+g\.", text, re.IGNORECASE):
            raise
        return VgpuRequest(text)


def _parse_share(text: str) -> ShareRequest:
    size, of_instance, name = text.partition(OF_INSTANCE)
    instance = MigProfileName.parse(name) if of_instance else None
    if instance is not None and instance.compute_slices is not None:
        raise ValueError(
            f"a share is of a whole GPU instance, and {instance} is a part of one: write {instance.gpu_instance}"
        )
    if parts := parse_parts(size):
        return ShareRequest(parts=parts, instance=instance)
    if share := parse_best_effort(size):
        return ShareRequest(share, is_memory_only=True, instance=instance)
    return ShareRequest(parse_share(size), instance=instance)


def _parse_vf(text: str) -> VfRequest:
    count = text[3:]
    if not count and text.lower() == "vf":
        return VfRequest()
    if not (count.isascii() and count.isdigit() and 1 <= int(count[:6]) <= 65535):
        raise ValueError(f"not a number of virtual functions: {text!r}; write it like vf:4")
    return VfRequest(int(count))
