"""Our note in a domain's ``<metadata>``: which attachment the domain has, readable without our
store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from vgpumgr.domain.declare import At, Element

NAMESPACE = "https://vgpumgr.example/ns/attachment/1"
PREFIX = "vgpumgr"


@dataclass(frozen=True, kw_only=True)
class AttachmentNote(Element):
    """``<attachment id= profile= backend= device=/>`` (libvirt keeps the namespace beside it)."""

    tag: ClassVar[str] = "attachment"
    id: Annotated[str, At("@id")]
    profile: Annotated[str | None, At("@profile")] = None
    backend: Annotated[str | None, At("@backend")] = None
    #: what CUDA calls the slice
    device: Annotated[str | None, At("@device")] = None
