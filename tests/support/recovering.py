"""The one recovery, as every changing command begins with it."""

from __future__ import annotations

from vgpumgr.app.context import Parts
from vgpumgr.app.transactions import open_change


def recover_parts(parts: Parts) -> list[str]:
    """What was recovered, and what was not, in words."""
    with open_change(parts, "test") as transaction:
        return [report.text for report in transaction.recovered.reports]
