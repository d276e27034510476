"""The types that the operations' annotations name.

The application imports a document's module where it makes one: a command that makes one document
does not define the hundred others. So who reads the annotations brings the names along.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, get_type_hints

from vgpumgr.daemon import documents

_MODULES = [
    import_module(f"vgpumgr.daemon.{name}")
    for name in (
        "attachment_documents",
        "documents",
        "layout_documents",
        "operation_documents",
        "pci_documents",
        "recovery_documents",
        "room_documents",
        "vgpu_documents",
    )
]
_DOCUMENTS = {
    name: kind
    for module in _MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, documents.Document)
}


def read_hints(function: Callable[..., Any] | type) -> dict[str, Any]:
    """As ``typing.get_type_hints`` with extras, of an operation or a class of parameters."""
    return get_type_hints(function, localns=_DOCUMENTS, include_extras=True)
