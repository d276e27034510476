"""ETags: what a change is decided on, without the counters that change by themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from vgpumgr.daemon.application import Application
from vgpumgr.daemon.attachment_documents import AttachmentDocument, VmShowDocument
from vgpumgr.daemon.documents import Document, GpuDocument, GpuListDocument, GpuShowDocument
from vgpumgr.errors import PreconditionError


def describe_state(document: Document) -> object | None:
    """The part of a document that an ETag covers; None for documents without one."""
    if isinstance(document, GpuListDocument):
        return [_gpu_state(gpu) for gpu in document.gpus]
    if isinstance(document, GpuShowDocument):
        if document.other is not None:
            return [document.other.pci, document.other.driver, document.other.vfs_enabled]
        return _gpu_state(document.gpu) if document.gpu else None
    if isinstance(document, VmShowDocument):
        vm = document.vm
        return [vm.uuid, vm.name, [_attachment_state(a) for a in vm.attachments], vm.devices_config]
    return None


def _attachment_state(attachment: AttachmentDocument) -> object:
    """All of it but when the guest can use it, which changes by itself."""
    return {key: value for key, value in attachment.as_data().items() if key != "usable"}


def _gpu_state(gpu: GpuDocument) -> object:
    instances = [[i.id, i.profile, i.placement.as_data(), i.vm] for i in gpu.instances]
    return [gpu.uuid, gpu.mig.current, gpu.mig.pending, instances]


def make_etag(document: Document) -> str | None:
    """The document's ETag with its quotes."""
    state = describe_state(document)
    if state is None:
        return None
    return '"' + hashlib.sha256(json.dumps(state).encode()).hexdigest()[:32] + '"'


_READERS: Mapping[str, Callable[[Any, Mapping[str, Any]], Document]] = {
    "vm": lambda app, params: app.show_vm(selector=params["vm"]),
    "gpu": lambda app, params: app.show_gpu(selector=params.get("gpu") or params["selector"]),
    "layout": lambda app, _params: app.list_gpus(),
}


def check_if_match(
    wanted: str | None, guard: str | None, application: Application, params: Mapping[str, Any]
) -> None:
    """Raises PreconditionError if what ``guard`` names is not as the caller saw it."""
    if wanted is None or guard is None or wanted.strip() == "*":
        return
    current = make_etag(_READERS[guard](application, params))
    if current not in [tag.strip() for tag in wanted.split(",")]:
        raise PreconditionError(
            f"the {guard} is not as it was when this was asked for",
            cause=f"If-Match {wanted[:100]}, now {current}",
            why="somebody else has changed it",
            hint="look at it again, then repeat",
        )
