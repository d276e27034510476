"""Transactions on a machine, and the registry of the families of operations that recovery knows.

A family is loaded only where it has something to recover.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from vgpumgr.app.context import Parts
from vgpumgr.engine.journal import Contents
from vgpumgr.engine.recovery import Family, Recovered, Unfinished, list_last_known
from vgpumgr.engine.transaction import Transaction, open_transaction
from vgpumgr.errors import JournalError, StoreError
from vgpumgr.host.process import has_ended
from vgpumgr.model.attachment import AttachmentState

_OPERATIONS = "vgpumgr.app.operations"
ATTACHMENTS = (f"{_OPERATIONS}.attachment_recovery", "AttachmentFamily")
LAYOUTS = (f"{_OPERATIONS}.layout_recovery", "LayoutFamily")
PCI = (f"{_OPERATIONS}.pci_recovery", "PciFamily")
VGPUS = (f"{_OPERATIONS}.vgpu_recovery", "VgpuFamily")
SHARES = (f"{_OPERATIONS}.shares", "ShareFamily")
DRAINS = (f"{_OPERATIONS}.gpus", "DrainFamily")
#: the family of each operation, by its name in the journal
FAMILIES = {
    "attach": ATTACHMENTS,
    "detach": ATTACHMENTS,
    "run": ATTACHMENTS,
    "restart": ATTACHMENTS,
    "recover": ATTACHMENTS,
    "apply": LAYOUTS,
    "passthrough bind": PCI,
    "passthrough unbind": PCI,
    "vf enable": PCI,
    "vf disable": PCI,
    "create vGPU": VGPUS,
    "delete vGPU": VGPUS,
    "define vGPU": VGPUS,
    "start vGPU": VGPUS,
    "stop vGPU": VGPUS,
    "adopt vGPU": VGPUS,
    "apply the layout of": VGPUS,
    "set share": SHARES,
    "drain": DRAINS,
    "resume": DRAINS,
}


class UnknownFamily(Family):
    """Operations of another version: they stay in the journal, and are reported."""

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:  # noqa: ARG002
        """It is not touched."""
        return False

    def recover(self, found: Unfinished) -> Recovered:
        """Raises JournalError."""
        raise JournalError(
            f"this version knows no operation {found.operation!r}",
            hint="vgpumgr recover, by the version that began it",
        )


class MachineFamilies:
    """The families of one machine; ``without``: those that must not be recovered now."""

    def __init__(self, parts: Parts, without: Collection[tuple[str, str]] = ()) -> None:
        self._parts = parts
        self._without = without
        self._open: dict[tuple[str, str], Family] = {}

    def find(self, operation: str) -> Family | None:
        """See ``Families``."""
        return self._load(FAMILIES[operation]) if operation in FAMILIES else UnknownFamily()

    def list_all(self, contents: Contents) -> Sequence[Family]:
        """See ``Families``."""
        asked = [ATTACHMENTS] if self._has_attachments_to_repair(contents) else []
        asked += [VGPUS] if self._has_vgpus_to_repair() else []
        return [family for name in asked if (family := self._load(name)) is not None]

    def _load(self, name: tuple[str, str]) -> Family | None:
        if name in self._without:
            return None
        if name not in self._open:
            module, class_ = name
            self._open[name] = getattr(import_module(module), class_)(self._parts)
        return self._open[name]

    def _has_attachments_to_repair(self, contents: Contents) -> bool:
        """Whether a record is half attached or half detached, of a command that has ended, lost, or not
        to be read.
        """
        store = self._parts.store
        if store.list_damage():
            return True
        try:
            records = store.list_attachments()
        except StoreError:
            return True
        expected = {id_ for id_, exists in list_last_known(contents).items() if exists}
        half = any(record.state is not AttachmentState.ATTACHED for record in records)
        ended = any(has_ended(record.run, self._parts.boot_id) for record in records)
        return half or ended or not expected <= {record.id for record in records}

    def _has_vgpus_to_repair(self) -> bool:
        """Whether one is recorded of an earlier boot, or mdevctl may know one, or the records cannot be read."""
        boot = self._parts.boot_id
        try:
            known = self._parts.vgpu_store.list_vgpus()
        except StoreError:
            return True
        return any((r.boot != boot and r.takes_room) or r.follows_mdevctl for r in known)


@contextmanager
def open_change(
    parts: Parts, what: str, spare: Callable[[], str | None] | None = None
) -> Iterator[Transaction]:
    """A transaction of one changing command, recovered but for what ``spare`` names. Raises as ``open_transaction``
    and ``Recovery.run``, and why attachments' records could not be repaired: without them nobody knows what is whose.
    """
    with open_transaction(parts, MachineFamilies(parts), what) as transaction:
        transaction.recover(spare() if spare else None)
        for problem in transaction.recovered.problems:
            raise problem
        yield transaction
