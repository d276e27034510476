"""One change of layout, as a command makes it."""

from __future__ import annotations

from vgpumgr.app.context import Parts
from vgpumgr.app.operations.layout_apply import LayoutOutcome, open_layout_change
from vgpumgr.mig.layout.change import LayoutPlan


def apply_layout(plan: LayoutPlan, parts: Parts) -> LayoutOutcome:
    """One plan as a transaction of its own; see ``LayoutChange.run``."""
    with open_layout_change(parts) as change:
        return change.run(plan)
