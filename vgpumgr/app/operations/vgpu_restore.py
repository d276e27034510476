"""After a boot: vGPUs that are to start by themselves, and those of attachments, in their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vgpumgr.app.operations.vgpus import VgpuService
from vgpumgr.app.parts import Parts
from vgpumgr.engine.transaction import Transaction
from vgpumgr.model.vgpu_record import VgpuRecord
from vgpumgr.steps.vgpu import describe_place

#: does an action, notes it or its failure in words, and goes on
Try = Callable[[str, Callable[[], object]], bool]


def restore_vgpus(parts: Parts, transaction: Transaction, try_one: Try) -> None:
    """Creates what is missing, in the order in which it was first created. MIG mode, virtual functions and layouts are
    back by now.
    """
    if not parts.vgpu_store.list_vgpus():
        return
    service = VgpuService(parts)
    for record in parts.vgpu_store.list_vgpus():
        if _is_wanted(record) and not _is_there(parts, record):
            what = f"vGPU {record.spec.type_name} {describe_place(record.spec)}"
            try_one(what, partial(service.restart, record.spec.uuid, transaction))


def _is_wanted(record: VgpuRecord) -> bool:
    return (record.defined and record.auto) or record.attachment is not None


def _is_there(parts: Parts, record: VgpuRecord) -> bool:
    return record.takes_room and parts.vgpus.find_device(record.spec) is not None
