"""Recovery of changes of layout: what a crash interrupted is undone, unless only its end was missing."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.app.parts import Parts
from vgpumgr.engine.journal import Contents
from vgpumgr.engine.recovery import Recovered, Report, Unfinished
from vgpumgr.engine.step import Step
from vgpumgr.errors import VgpumgrError
from vgpumgr.planning.layouts import claim_begun, is_complete, list_begun
from vgpumgr.steps.desired_layout import find_begun, is_through
from vgpumgr.steps.lost_slices import find_release

#: of reports
SUBJECT = "layout"


class LayoutFamily:
    """How interrupted changes of layout, and restores of slices, are completed or undone."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def repair(self, contents: Contents) -> Sequence[Report]:  # noqa: ARG002
        """Nothing: a record that cannot be read is reported by what needs it."""
        return ()

    def list_more(self, contents: Contents) -> Sequence[Unfinished]:  # noqa: ARG002
        """None: all of them are in the journal."""
        return ()

    def describe(self, found: Unfinished) -> tuple[str, str]:  # noqa: ARG002
        """There is one layout."""
        return SUBJECT, "an interrupted change of layout"

    def concerns(self, found: Unfinished, subject: str) -> bool:  # noqa: ARG002
        """It is about no VM."""
        return False

    def may_wait_for(self, found: Unfinished, helper: str) -> bool:  # noqa: ARG002
        """While a call of the driver may be under way."""
        return bool(list_begun(found.events)) and not self._find_complete(found)

    def recover(self, found: Unfinished) -> Recovered:
        """Undoes what was begun."""
        name = self.describe(found)[1]
        if found.boot != self._parts.boot_id:
            text = f"{name} ended with the boot it was made in"
            return Recovered((Report(SUBJECT, text),), "rebooted")
        if text := self._find_complete(found):
            return Recovered((Report(SUBJECT, text),), "done")
        self._undo(found)
        return Recovered((Report(SUBJECT, f"{name} was undone"),))

    def _find_complete(self, found: Unfinished) -> str:
        """That only its end is missing, in words; empty otherwise."""
        if is_complete(found.events):
            return "an interrupted restore of slices was complete"
        if is_through(found.events, self._parts.store):
            return "an interrupted change of layout was complete"
        return ""

    def _undo(self, found: Unfinished) -> None:
        steps = list_begun(found.events)
        # what wrote nothing but the record needs no GPU
        context = self._parts.make_context(gpus=self._parts.read_inventory().gpus if steps else ())
        claim_begun(context.mig, steps)
        remembering, release = find_begun(found.events), find_release(found.events)
        first: list[Step] = [remembering] if remembering else []
        last: list[Step] = [release] if release else []
        for step in (*first, *reversed(steps), *last):
            try:
                step.undo(context)
            except VgpumgrError as error:
                error.error = f"cannot undo {step.describe()}: {error.error}"
                raise
