"""Telling the formats apart, and choosing one layout of a file."""

from __future__ import annotations

from vgpumgr.errors import LayoutNotFoundError, UsageError
from vgpumgr.mig.layout.formats.own import SCHEMA, read_own
from vgpumgr.mig.layout.formats.parted import read_parted, read_vgpu_dm
from vgpumgr.mig.layout.formats.reader import Value, read_root, shorten
from vgpumgr.mig.layout.formats.spec import LayoutFile
from vgpumgr.model.text import list_near

# of a file that is something else, enough to guess by
_LOOKED_AT = 20
_MARKS = ("schema", "layouts", "version", "mig-configs", "vgpu-configs")


def read_layout_file(text: str, source: str) -> LayoutFile:
    """Reads a file in our own format or mig-parted's. Raises LayoutFileError with file, line and
    key.
    """
    return read_layout_root(read_root(text, source))


def read_layout_root(root: Value) -> LayoutFile:
    """As ``read_layout_file``, of a document that has been parsed."""
    keys = {key.lower(): value for key, value in root.read_pairs()}
    if "migstate" in keys:
        raise root.error("this is a checkpoint, not a layout", hint="vgpumgr mig restore FILE")
    if "mig-configs" in keys:
        return read_parted(root)
    if "vgpu-configs" in keys:
        return read_vgpu_dm(root)
    if "schema" in keys or "layouts" in keys:
        return read_own(root)
    if "version" in keys:
        return read_parted(root)
    raise root.error(
        "not a layout file",
        _guess(list(keys)) or f"it has neither schema: {SCHEMA} nor mig-configs",
        "docs/layouts.md has examples",
    )


def _guess(keys: list[str]) -> str | None:
    for key in map(shorten, keys[:_LOOKED_AT]):
        if near := list_near(key, _MARKS, n=1):
            return f'unknown key "{key}", did you mean {near[0]}?'
    return None


def choose_layout(file: LayoutFile, name: str | None) -> str:
    """The name of the layout that is meant; one that is alone needs none. Raises
    LayoutNotFoundError, UsageError.
    """
    known = list(file.layouts)
    if name is None:
        if len(known) == 1:
            return known[0]
        raise UsageError(
            f"{file.source} has {len(known)} layouts; which one?",
            why=_list_names(known),
            hint=f"-c {known[0]}",
        )
    if name in file.layouts:
        return name
    near = list_near(name, known, n=1)
    raise LayoutNotFoundError(
        f'{file.source} has no layout "{shorten(name)}"',
        why=f"did you mean {near[0]}?" if near else _list_names(known),
    )


def _list_names(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"it has {shown}{more}"
