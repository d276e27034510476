"""The pages of text: details of a row, and help."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from vgpumgr.model.sizes import format_size
from vgpumgr.tui.rows import Row

_LABEL = 24

HELP = """\
vgpumgr top shows what the GPUs of this host do and for whom. It only looks:
there are no actions here; vgpumgr attach and detach change what it shows.

  up, down, k, j        one row up or down
  Page Up, Page Down    a page; Ctrl+B, Ctrl+F do the same
  Home, End, g, G       first or last row
  right, l, Return      details of the row; unfold a folded GPU
  left, h               fold the GPU; from details back to the list
  Space                 fold or unfold the GPU of the row
  Tab, v                from GPUs to VMs and back
  /                     filter: rows that contain the text; Escape drops it
  r                     look at the machine now
  ?                     this page
  q                     quit

LOAD      a GPU: its utilisation as the driver gives it, and in MIG mode, where
          it gives none, the calls per second of the VMs on it.
          a slice, a VM: calls per second that its programs forward
HISTORY   the last loads, the newest at the right; per cent against 100, calls
          against the highest shown
!         a problem; its words are in the details""".splitlines()


def describe(row: Row) -> Iterator[str]:
    """Everything that the application says about the row."""
    yield f"{row.title} {row.label}"
    yield ""
    yield from _describe(row.data or {}, "")


def _describe(data: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in data.items():
        label = f"{indent}{key.removesuffix('_bytes').replace('_', ' ')}"
        if isinstance(value, Mapping) and value:
            yield label
            yield from _describe(value, indent + "  ")
        elif isinstance(value, list) and value:
            yield label
            for number, entry in enumerate(value):
                yield from _describe_entry(entry, indent + "  ", number)
        else:
            yield f"{label:{_LABEL}} {_format(key, value)}".rstrip()


def _describe_entry(entry: Any, indent: str, number: int) -> Iterator[str]:
    if isinstance(entry, Mapping):
        yield f"{indent}{number}"
        yield from _describe(entry, indent + "  ")
    else:
        yield f"{indent}{_format('', entry)}"


def _format(key: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if key.endswith("bytes") or key.startswith("bytes_"):
        return format_size(value)
    if key.endswith("_ratio"):
        return f"{value:.0%}"
    return json.dumps(value)
