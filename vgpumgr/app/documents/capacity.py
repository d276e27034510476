"""Documents about room: why a profile cannot be had, and what would make room for it."""

from __future__ import annotations

from typing import Any, Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field, PlacementDocument


class ObstacleDocument(Document):
    """An instance in the way, and who holds it."""

    instance: int | None = Field(description="null: not there, its place is only kept")
    profile: str
    placement: PlacementDocument
    holders: list[str] = Field(description="VMs and processes; empty: nobody uses it")


class WhyRow(Document):
    """The answer for one GPU."""

    gpu_index: int
    gpu_uuid: str
    fits: bool
    places: list[PlacementDocument]
    rules: list[str] = Field(description="which rules forbid it, in words")
    remove: list[ObstacleDocument] = Field(description="the fewest whose removal makes room")
    kept: list[ObstacleDocument] = Field(
        description="slices that are gone since a boot and are to come back: places of theirs"
    )
    sentence: str
    moving: str | None = Field(description="which moves alone make room, where some do")


class WhyDocument(Document):
    """``vgpumgr why PROFILE -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    profile: str
    fits: bool = Field(description="on some GPU")
    gpus: list[WhyRow]


class MoveDocument(Document):
    """An instance that would go to another place."""

    instance: int
    profile: str
    from_: PlacementDocument = Field(in_json="from")
    to: PlacementDocument
    vms: list[str] = Field(description="VMs that have it and are shut off")
    onto: int | None = Field(description="the unused instance there that takes its part")


class DefragRow(Document):
    """How one GPU would get room. ``steps`` null: not without taking from running holders."""

    gpu_index: int
    gpu_uuid: str
    possible: bool
    moves: list[MoveDocument]
    remove: list[ObstacleDocument] = Field(description="unused instances that have to go")
    at: PlacementDocument | None = Field(description="where the new instance would be")
    steps: list[dict[str, Any]] | None = Field(description="as in mig layout plan")
    sentence: str


class DefragDocument(Document):
    """``vgpumgr mig defrag --plan PROFILE -o json``; the best option first."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    profile: str
    options: list[DefragRow]
