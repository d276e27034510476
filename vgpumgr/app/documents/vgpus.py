"""Documents of vGPUs. See ``documents`` for what they promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from vgpumgr.app.documents.base import SCHEMA, Document, Field, VgpuPlanDocument
from vgpumgr.app.documents.gpus import FrameworkName, ResolutionDocument, VgpuTypeDocument
from vgpumgr.errors import VgpuAmbiguousError, VgpuNotFoundError
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.text import list_near
from vgpumgr.model.vgpu import VgpuDefinition, VgpuDevice, VgpuHost, VgpuRecord, VgpuSpec, VgpuState

if TYPE_CHECKING:
    from vgpumgr.planning.vgpu_selection import TypeRoom


class VgpuTypesDocument(Document):
    """``vgpumgr mdev types -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    types: list[VgpuTypeDocument]
    note: str | None = Field(description="where there are none: what it takes")


class AttributeDocument(Document):
    """An attribute, in the order in which it is written."""

    name: str
    value: str


class VgpuDocument(Document):
    """A vGPU that is there, or defined, or on its way."""

    uuid: str | None = Field(description="null: a virtual function that is not ours")
    state: Literal["active", "defined", "creating", "releasing", "ghost", "missing"] = Field(
        description="releasing: removed while held, its capacity is not free yet; "
        "ghost: the same, removed without us; missing: ours, and gone without us"
    )
    ours: bool
    framework: FrameworkName
    type: str
    type_id: str
    parent: str
    gpu: str | None = Field(description="as in the list of types; null: its parent is gone")
    gpu_index: int | None
    defined: bool = Field(description="it is to come back")
    auto: bool = Field(description="at boot, not only when asked for")
    attributes: list[AttributeDocument]
    iommu_group: int | None
    placement: int | None = Field(description="where on the GPU, as the driver counts")
    gpu_instance: int | None
    attachment: str | None
    vm: str | None
    held_by: list[str] = Field(description="who keeps it from being released")


class VgpuListDocument(Document):
    """``vgpumgr mdev list -o json``."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    vgpus: list[VgpuDocument]


class VgpuChangeDocument(Document):
    """What ``mdev create``, ``delete``, ``define``, ``start``, ``stop`` and ``adopt`` answer."""

    schema: Literal["vgpumgr/v1"] = SCHEMA
    dry_run: bool
    plan: VgpuPlanDocument
    vgpu: VgpuDocument | None = Field(description="as it is afterwards; null: gone, or a dry run")
    notes: list[str] = Field(description="what happened besides the plan")


State = Literal["active", "defined", "creating", "releasing", "ghost", "missing"]
#: not there, though it should be or was just now: who has it open decides what it is
_AWAY = ("releasing", "missing")
#: a shorter prefix of a UUID is more likely a slip
_SHORTEST_PREFIX = 2


@dataclass(frozen=True, slots=True)
class VgpuEntry:
    """One vGPU with all that is known of it; at least one of the three is there."""

    device: VgpuDevice | None = None
    record: VgpuRecord | None = None
    definition: VgpuDefinition | None = None

    @property
    def spec(self) -> VgpuSpec | None:
        """What is recorded; None for what is not ours."""
        return self.record.spec if self.record else None

    @property
    def parent(self) -> str:
        """Where it is, or is to be."""
        one = self.device or self.spec or self.definition
        return one.parent if one else ""

    @property
    def names(self) -> list[str]:
        """All by which it may be asked for."""
        found = [self.device.uuid, self.device.key] if self.device else []
        if self.record:
            found += [self.record.spec.uuid]
        if self.definition:
            found += [self.definition.uuid]
        return list(dict.fromkeys(name for name in found if name))

    @property
    def name(self) -> str:
        """UUID, or the function's address."""
        return self.names[0]


@dataclass(frozen=True, slots=True)
class VgpuPicture:
    """Everything about a machine's vGPUs at one moment."""

    host: VgpuHost
    records: Sequence[VgpuRecord]
    definitions: Sequence[VgpuDefinition]
    gpus: Sequence[Gpu] = ()
    #: attachment to the name of its VM
    vms: Mapping[str, str] = field(default_factory=dict)
    attachments: Sequence[AttachmentRecord] = ()

    def list_entries(self) -> list[VgpuEntry]:
        """Devices first, then what is only recorded, then what is only defined."""
        definitions = {d.uuid: d for d in self.definitions}
        entries = [self._join(device, definitions) for device in self.host.devices]
        seen = {entry.record.spec.uuid for entry in entries if entry.record}
        for record in self.records:
            if record.spec.uuid not in seen:
                entries.append(VgpuEntry(None, record, definitions.pop(record.spec.uuid, None)))
        named = {name for entry in entries for name in entry.names}
        entries += [VgpuEntry(None, None, d) for d in definitions.values() if d.uuid not in named]
        return entries

    def _join(self, device: VgpuDevice, definitions: dict[str, VgpuDefinition]) -> VgpuEntry:
        record = next((r for r in self.records if is_its_record(r, device)), None)
        definition = definitions.get(device.uuid or "")
        return VgpuEntry(device, record, definition)

    def find(self, selector: str) -> VgpuEntry:
        """The one that a UUID, a unique prefix of one, or the address of a function names that has
        exactly one: what is there goes before what is only defined.

        Raises VgpuNotFoundError, VgpuAmbiguousError.
        """
        text = _full_name(selector)
        entries = self.list_entries()
        found = [e for e in entries if text in e.names]
        if not found and self._is_function(text):
            there = [e for e in entries if e.parent == text]
            found = [e for e in there if e.device] or there
        if not found and len(text) >= _SHORTEST_PREFIX:
            found = [e for e in entries if any(name.startswith(text) for name in e.names)]
        if len(found) == 1:
            return found[0]
        raise _explain(selector, entries, found)

    def _is_function(self, text: str) -> bool:
        """Whether it is the address of a virtual function, or of something that is gone."""
        parent = self.host.find_parent(text)
        return bool(PciAddress.read(text)) and (parent is None or parent.is_virtual_function)


def is_its_record(record: VgpuRecord, device: VgpuDevice) -> bool:
    """Whether a vGPU that is there is the recorded one. A virtual function has no UUID: there the
    record that claims it counts.
    """
    if device.uuid is not None:
        return record.spec.uuid == device.uuid
    same = (record.spec.framework, record.spec.parent) == (device.framework, device.parent)
    return same and record.takes_room


def describe_entry(
    entry: VgpuEntry,
    picture: VgpuPicture,
    list_holders: Callable[[VgpuEntry], Sequence[str]] = lambda _: (),
) -> VgpuDocument:
    """The document of one vGPU."""
    device, record, definition = entry.device, entry.record, entry.definition
    source = device or (record.spec if record else definition)
    assert source is not None
    parent = picture.host.find_parent(source.parent)
    gpu = next((g for g in picture.gpus if parent and str(g.pci) == parent.board), None)
    attributes = _find_attributes(entry)
    state = find_state(entry)
    held_by = list(list_holders(entry)) if state in _AWAY else []
    if held_by and state == "missing":
        state = "ghost"
    return VgpuDocument(
        uuid=record.spec.uuid if record else getattr(source, "uuid", None),
        state=state,
        ours=record is not None,
        framework="mdev" if isinstance(source, VgpuDefinition) else source.framework.value,
        type=_find_type_name(entry, picture),
        type_id=source.type_id,
        parent=source.parent,
        gpu=parent.board if parent else None,
        gpu_index=gpu.index if gpu else None,
        defined=definition is not None or (record is not None and record.defined),
        auto=definition.auto if definition else record is not None and record.auto,
        attributes=[AttributeDocument(name=name, value=value) for name, value in attributes],
        iommu_group=device.iommu_group if device else None,
        placement=device.placement_id if device else None,
        gpu_instance=device.gpu_instance_id if device else None,
        attachment=record.attachment if record else None,
        vm=picture.vms.get(record.attachment or "") if record else None,
        held_by=held_by,
    )


def find_state(entry: VgpuEntry) -> State:
    """What a user is told of it."""
    recorded = entry.record.state if entry.record else None
    if recorded is VgpuState.RELEASING:
        return "releasing"
    if entry.device is not None:
        return "active"
    if recorded is VgpuState.CREATING:
        return "creating"
    return "missing" if recorded is VgpuState.ACTIVE else "defined"


def _find_attributes(entry: VgpuEntry) -> Sequence[tuple[str, str]]:
    """As asked for, where that is known: drivers show them in their own words."""
    if entry.record is not None:
        return entry.record.spec.attributes
    if entry.definition is not None:
        return entry.definition.attributes
    return entry.device.attributes if entry.device else ()


def _find_type_name(entry: VgpuEntry, picture: VgpuPicture) -> str:
    if entry.device is not None:
        return entry.device.type_name
    if entry.record is not None:
        return entry.record.spec.type_name
    assert entry.definition is not None
    return find_type_name(picture.host, entry.definition.parent, entry.definition.type_id)


def find_type_name(host: VgpuHost, parent: str, type_id: str) -> str:
    """The name of a parent's type; its id where the parent is not there."""
    found = host.find_parent(parent)
    board = host.find_board(found.board) if found else None
    type_ = board.find_type(type_id) if board else None
    return type_.name if type_ else type_id


def describe_types(rooms: Sequence[TypeRoom], gpus: Sequence[Gpu]) -> Iterator[VgpuTypeDocument]:
    """The documents of types with their room."""
    by_address = {str(gpu.pci): gpu for gpu in gpus}
    for room in rooms:
        type_, gpu = room.type, by_address.get(room.board.name)
        yield VgpuTypeDocument.of(
            type_,
            gpu=room.board.name,
            gpu_index=gpu.index if gpu else None,
            resolution=_describe_resolution(type_.resolution),
            mig_profile=_find_profile(gpu, type_.gpu_instance_profile_id),
            free=room.room.free,
            reason=room.room.reason,
        )


def _describe_resolution(pixels: tuple[int, int] | None) -> ResolutionDocument | None:
    return None if pixels is None else ResolutionDocument(width=pixels[0], height=pixels[1])


def _find_profile(gpu: Gpu | None, profile_id: int | None) -> str | None:
    if profile_id is None:
        return None
    profiles = gpu.profiles if gpu else ()
    return next((str(p.name) for p in profiles if p.id == profile_id), str(profile_id))


def _full_name(selector: str) -> str:
    return str(PciAddress.read(selector) or selector.strip().lower())


def _explain(
    selector: str, entries: Sequence[VgpuEntry], found: Sequence[VgpuEntry]
) -> VgpuAmbiguousError | VgpuNotFoundError:
    if found:
        return VgpuAmbiguousError(
            f'"{selector}" is not one vGPU',
            why="it fits " + ", ".join(entry.name for entry in found[:8]),
            hint="vgpumgr mdev list" if PciAddress.read(selector) else "write more of the UUID",
        )
    near = list_near(selector, [n for e in entries for n in e.names], n=2)
    why = f"did you mean {' or '.join(near)}?" if near else f"there are {len(entries)} vGPUs"
    return VgpuNotFoundError(f'no vGPU is "{selector}"', why=why, hint="vgpumgr mdev list")
