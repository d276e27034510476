"""What the dialects of layout files have in common."""

from __future__ import annotations

from collections.abc import Callable

from vgpumgr.mig.layout.formats.reader import Value, check_label, shorten
from vgpumgr.mig.layout.formats.spec import Dialect, GpuSpec, LayoutFile, VgpuCount
from vgpumgr.model.mig import MigProfileName

#: more instances than any board has places; a larger number can only be a mistake
MOST = 64
#: as many as a PCI function can have virtual ones
MOST_VGPUS = 256
#: of what names GPUs or a vGPU type
LONGEST_SELECTOR = 128


def read_layouts(
    dialect: Dialect, layouts: Value, read_entry: Callable[[Value], GpuSpec]
) -> LayoutFile:
    """Layouts by name, each a list of entries. Raises LayoutFileError."""
    found = {
        check_label(name, value.where): _read_layout(value, read_entry)
        for name, value in layouts.read_pairs()
    }
    if not found:
        raise layouts.error("there is no layout in it")
    return LayoutFile(layouts.where.source, dialect, found)


def _read_layout(value: Value, read_entry: Callable[[Value], GpuSpec]) -> tuple[GpuSpec, ...]:
    entries = tuple(read_entry(item) for item in value.read_items())
    if not entries:
        raise value.error("the layout is empty", "it says nothing about any GPU")
    return entries


def read_profile(value: Value, text: str | None = None) -> MigProfileName:
    """A profile's name. Raises LayoutFileError."""
    text = value.read_text() if text is None else text
    try:
        if len(text) > 60:
            raise ValueError("names look like 1g.10gb or 3g.40gb+me")
        return MigProfileName.parse(text)
    except ValueError as error:
        words = str(error).partition("; ")
        raise value.error(
            f'"{shorten(text)}" is no MIG profile', words[2] or words[0], "vgpumgr mig profiles"
        ) from None


def check_sum(value: Value, count: int) -> None:
    """Refuses more instances than any GPU has places. Raises LayoutFileError."""
    if count > MOST:
        raise value.error(f"{count} instances on one GPU", f"no GPU has more than {MOST}")


def read_vgpus(value: Value) -> tuple[VgpuCount, ...]:
    """``{A100-4C: 2}``; ``{}`` means none. A count of zero is as if it were not there."""
    found = []
    for name, count in value.read_pairs():
        if not name.strip() or len(name) > LONGEST_SELECTOR:
            raise count.error(f'"{shorten(name)}" names no vGPU type', hint="vgpumgr mdev types")
        found.append(VgpuCount(name.strip(), count.read_int(0, MOST_VGPUS), count.where))
    if sum(one.count for one in found) > MOST_VGPUS:
        raise value.error(f"more than {MOST_VGPUS} vGPUs on one GPU")
    return tuple(one for one in found if one.count)
