"""Recovery of changes of layout: what a crash interrupted is undone, unless only its end was missing."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.app.context import Parts
from vgpumgr.engine.recovery import Family, Recovered, Unfinished
from vgpumgr.errors import VgpumgrError
from vgpumgr.planning.layouts import claim_begun, is_complete
from vgpumgr.steps.layouts import (
    ReleaseSlices,
    RememberLayouts,
    is_through,
)
from vgpumgr.steps.mig import MigStep

#: of reports
SUBJECT = "layout"


class LayoutFamily(Family):
    """How interrupted changes of layout, and restores of slices, are completed or undone."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def describe(self, found: Unfinished) -> tuple[str, str]:  # noqa: ARG002
        """There is one layout."""
        return SUBJECT, "an interrupted change of layout"

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:  # noqa: ARG002
        """While a call of the driver may be under way."""
        return bool(_list_of_mig(found)) and not self._find_complete(found)

    def recover(self, found: Unfinished) -> Recovered:
        """Undoes what was begun."""
        name = self.describe(found)[1]
        if found.boot != self._parts.boot_id:
            text = f"{name} ended with the boot it was made in"
            return Recovered.describe(SUBJECT, text, outcome="rebooted")
        if text := self._find_complete(found):
            return Recovered.describe(SUBJECT, text, outcome="done")
        return Recovered.describe(SUBJECT, f"{name} was undone", self._undo(found))

    def _find_complete(self, found: Unfinished) -> str:
        """That only its end is missing, in words; empty otherwise."""
        if is_complete(found.events):
            return "an interrupted restore of slices was complete"
        if is_through(found, self._parts.store):
            return "an interrupted change of layout was complete"
        return ""

    def _undo(self, found: Unfinished) -> Sequence[str]:
        """What the steps had to say. What is remembered comes first, records of attachments last."""
        steps = _list_of_mig(found)
        # what wrote nothing but the record needs no GPU
        context = self._parts.make_context(gpus=self._parts.read_inventory().gpus if steps else ())
        claim_begun(context.mig, steps)
        first = [step for step in found.begun if isinstance(step, RememberLayouts)]
        last = [step for step in found.begun if isinstance(step, ReleaseSlices)]
        for step in (*first, *reversed(steps), *last):
            try:
                step.undo(context)
            except VgpumgrError as error:
                error.error = f"cannot undo {step.describe()}: {error.error}"
                raise
        return context.notes


def _list_of_mig(found: Unfinished) -> list[MigStep]:
    return [step for step in found.begun if isinstance(step, MigStep)]
