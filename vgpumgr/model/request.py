"""What a user asks for by name with ``--profile``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.sizes import parse_size

_SHARE = re.compile(r"share:(?P<memory>[^,]+)(?:,(?P<percent>\d{1,3})%)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MigRequest:
    """A MIG profile by name: ``1g.10gb``."""

    name: MigProfileName

    def __str__(self) -> str:
        return str(self.name)


@dataclass(frozen=True, slots=True)
class PassthroughRequest:
    """The whole PCI function."""

    def __str__(self) -> str:
        return "passthrough"


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """A quota on a GPU: memory, and the share of compute time (1 = all)."""

    memory_bytes: int
    compute_ratio: float = 1.0

    def __str__(self) -> str:
        return f"share:{self.memory_bytes},{round(self.compute_ratio * 100)}%"


@dataclass(frozen=True, slots=True)
class VgpuRequest:
    """A vGPU type by its vendor's name: ``NVIDIA A100-2-10C``; resolved against the host, never by
    arithmetic.
    """

    type_name: str

    def __str__(self) -> str:
        return self.type_name


ProfileRequest = MigRequest | PassthroughRequest | ShareRequest | VgpuRequest


def parse_profile_request(text: str) -> ProfileRequest:
    """Reads ``--profile``. What is neither a MIG name, ``passthrough`` nor ``share:`` may be a vGPU
    type.

    Raises ValueError for an empty name and for a malformed share.
    """
    text = text.strip()
    if not text:
        raise ValueError("the profile is empty")
    if text.lower() == "passthrough":
        return PassthroughRequest()
    if text.lower().startswith("share:"):
        return _parse_share(text)
    try:
        return MigRequest(MigProfileName.parse(text))
    except ValueError:
        if re.match(r"(?:MIG\s+)?(?:\d+c\.)?\d+g\.", text, re.IGNORECASE):
            raise
        return VgpuRequest(text)


def _parse_share(text: str) -> ShareRequest:
    match = _SHARE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a share: {text!r}; write it like share:8GiB,30%")
    percent = int(match["percent"] or 100)
    memory_bytes = parse_size(match["memory"])
    if not 1 <= percent <= 100 or memory_bytes == 0:
        raise ValueError(f"{text!r}: the memory must be above 0, the share between 1% and 100%")
    return ShareRequest(memory_bytes, percent / 100)
