"""mdevctl's persistent definitions: ``/etc/mdevctl.d/PARENT/UUID``, JSON.

``{"mdev_type": "nvidia-222", "start": "auto", "attrs": [{"nvidia/vgpu_params": "a=1"}]}``: ``start`` is
``auto`` or ``manual``, ``attrs`` an ordered list of objects with one key and a text each. mdevctl 1.2
stops with a panic at any value that is no text, so only such are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vgpumgr.errors import NotPermittedError, VgpuDefinitionError
from vgpumgr.host.files import make_directory, replace_file
from vgpumgr.host.machine import Machine
from vgpumgr.model.vgpu import Attributes, VgpuDefinition, is_uuid

DIRECTORY = "/etc/mdevctl.d"


class DefinitionFiles:
    """The definitions of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.directory = machine.path(DIRECTORY)

    def list_definitions(self) -> tuple[VgpuDefinition, ...]:
        """All that can be read, by parent and UUID. One that cannot hides no other."""
        found = []
        for path in self._list_paths():
            try:
                found.append(read_definition(path))
            except VgpuDefinitionError:
                continue
        return tuple(found)

    def write_definition(self, definition: VgpuDefinition) -> None:
        """Writes one; a reader sees the old file or the new one, never half of it.

        What else the file said before, and this program does not know, stays in it.
        Raises VgpuDefinitionError, NotPermittedError.
        """
        path = self._path(definition.parent, definition.uuid)
        document = _read_unknown(path) | {
            "mdev_type": definition.type_id,
            "start": "auto" if definition.auto else "manual",
            "attrs": [{name: value} for name, value in definition.attributes],
        }
        try:
            make_directory(path.parent)
            # by way of a hidden file, which mdevctl takes for no definition
            replace_file(path, json.dumps(document, indent=2) + "\n", sync=True)
        except OSError as error:
            raise _refused(path, error) from error

    def remove_definition(self, parent: str, uuid: str) -> None:
        """Removes one, and its parent's directory if that was the last one."""
        path = self._path(parent, uuid)
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        except OSError as error:
            raise _refused(path, error) from error

    def _path(self, parent: str, uuid: str) -> Path:
        if not is_uuid(uuid) or "/" in parent or parent in ("", ".", ".."):
            raise VgpuDefinitionError(f"cannot define {uuid} on {parent}", why="no such names")
        return self.directory / parent / uuid

    def _list_paths(self) -> Iterator[Path]:
        try:
            parents = sorted(path for path in self.directory.iterdir() if path.is_dir())
            for parent in parents:
                # beside parents there are callout scripts
                if parent.name not in ("scripts.d", "callouts.d", "notifiers.d"):
                    yield from sorted(path for path in parent.iterdir() if is_uuid(path.name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _refused(self.directory, error) from error


def read_definition(path: Path) -> VgpuDefinition:
    """One file. Raises VgpuDefinitionError."""
    try:
        return parse_definition(path.read_text(encoding="utf-8"), path.parent.name, path.name)
    except (OSError, ValueError) as error:
        raise VgpuDefinitionError(f"cannot read {path}", cause=str(error)) from error


def parse_definition(text: str, parent: str, uuid: str) -> VgpuDefinition:
    """A file's content. Raises ValueError."""
    document = _load(text)
    if not isinstance(document, dict) or not isinstance(document.get("mdev_type"), str):
        raise ValueError("no mdev_type")
    start = document.get("start", "manual")
    if start not in ("auto", "manual"):
        raise ValueError(f'start is "{start}", neither auto nor manual')
    attributes = _parse_attributes(document.get("attrs") or [])
    return VgpuDefinition(uuid, parent, document["mdev_type"], start == "auto", attributes)


def _load(text: str) -> Any:
    """Raises ValueError, also where it is nested more deeply than anybody reads."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _parse_attributes(rows: Any) -> Attributes:
    found = []
    for row in rows if isinstance(rows, list) else [None]:
        if not isinstance(row, dict) or len(row) != 1:
            raise ValueError("attrs is a list of objects with one key")
        ((name, value),) = row.items()
        if not isinstance(value, str):
            raise ValueError(f"attribute {name} is no text")
        found.append((name, value))
    return tuple(found)


def _read_unknown(path: Path) -> dict[str, Any]:
    try:
        document = _load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _refused(path: Path, error: OSError) -> VgpuDefinitionError | NotPermittedError:
    if isinstance(error, PermissionError):
        return NotPermittedError(
            f"cannot change {path} as this user", cause=str(error), hint="repeat it with sudo"
        )
    return VgpuDefinitionError(f"cannot change {path}", cause=str(error))
