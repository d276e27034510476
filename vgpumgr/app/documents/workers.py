"""Documents of channels' workers: what holds them, and the host's libraries that they load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vgpumgr.app.documents.base import Document, Field
from vgpumgr.host.confinement import Fact
from vgpumgr.virtio.channel import HostLibrary
from vgpumgr.virtio.links import LinkSession


class FactDocument(Document):
    """One thing that holds a worker's processes, or does not."""

    name: str
    holds: bool
    detail: str = Field(description="what the kernel shows, or why it does not hold")


class SandboxDocument(Document):
    """What holds the worker of one channel: read from the kernel when it was asked for."""

    id: str = Field(description="of the channel")
    confined: bool = Field(description="all of it holds")
    facts: list[FactDocument] = Field(
        description="none where no worker runs or this user may not look"
    )


class HostLibraryDocument(Document):
    """A library of NVIDIA's on the host, which a channel's sessions call for their guest."""

    id: str = Field(description="of the channel")
    name: str = Field(
        description="libcublas.so, libcublasLt.so, libcudnn.so, libcufft.so, libcusolver.so, libcusparse.so "
        "or libcurand.so"
    )
    path: str = Field(description="the file behind the links, whose name has the version")
    sessions: int = Field(description="how many have it loaded; 0: it is loaded by the first call")


def describe_sandbox(channel_id: str, facts: Sequence[Fact]) -> SandboxDocument:
    """The document of what holds a channel's worker."""
    return SandboxDocument(
        id=channel_id,
        confined=bool(facts) and all(fact.holds for fact in facts),
        facts=[FactDocument.of(fact) for fact in facts],
    )


def describe_libraries(
    channel_id: str, libraries: Sequence[HostLibrary]
) -> list[HostLibraryDocument]:
    """The documents of the libraries that a channel's sessions load."""
    return [
        HostLibraryDocument(id=channel_id, name=one.name, path=str(one.path), sessions=one.sessions)
        for one in libraries
    ]


class LinkSessionDocument(Document):
    """A guest process's link to another host of the pool, whose GPU the channel has."""

    channel: str = Field(description="the attachment's id")
    pid: int = Field(description="by the guest's word")
    name: str = Field(description="by the guest's word")
    state: Literal["dialing", "waiting", "up", "down"] = Field(
        description="waiting: for the lease of a claim that binds late"
    )
    since_s: int = Field(description="when that began, in seconds since 1970")
    connections: int = Field(description="how often it was connected: more than once after cuts")
    where: str = Field(description="address of the other host")
    text: str = Field(description="why it waits, or is down")


def describe_links(channel: str, sessions: Sequence[LinkSession]) -> list[LinkSessionDocument]:
    """The documents of a channel's links."""
    return [LinkSessionDocument.of(one, channel=channel) for one in sessions]
