"""What a tenant reads of a pool has no names of others."""

from __future__ import annotations

import pytest

from vgpumgr.pool.control.records import ClaimRecord, View, format_record
from vgpumgr.pool.scope import hide_others
from vgpumgr.pool.store.interface import Entry, Snapshot


def make_view(scope: str | None) -> View:
    claims = [
        ClaimRecord(name, "default", tenant=of)
        for name, of in (("mine", "me"), ("all", "you"), ("x-1", ""))
    ]
    entries = {one.key: Entry(one.key, format_record(one), 1, 1) for one in claims}
    view = View(Snapshot(entries, 1))
    return view if scope is None else view.for_tenant(scope)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("all are in use", "all are in use"),
        (
            "all are in use; claim all has preempted it",
            "all are in use; another claim has preempted it",
        ),
        ("it is preempted by claim x-1", "it is preempted by another claim"),
        (
            "it waits until what was preempted for it has ended: claim mine, x-1",
            "it waits until what was preempted for it has ended: claim mine, another claim",
        ),
        (
            "GPU 1 is reserved for tenant you from 2026-12-07 08:00 until 2026-12-07 12:00 (course)",
            "GPU 1 is reserved for others from 2026-12-07 08:00 until 2026-12-07 12:00",
        ),
        (
            "reserved for claims exam-*, x-* from 2026-12-07 08:00 until 2026-12-07 12:00, every week (exam)",
            "reserved for others from 2026-12-07 08:00 until 2026-12-07 12:00, every week",
        ),
        ("claim mine waits", "claim mine waits"),
    ],
)
def test_reasons_name_no_others(text: str, shown: str) -> None:
    assert hide_others(make_view("me"), text) == shown
    assert hide_others(make_view(None), text) == text


def test_a_reservation_of_its_own_is_named() -> None:
    text = "reserved for tenant me from 2026-12-07 08:00 until 2026-12-07 12:00 (course)"
    assert hide_others(make_view("me"), text) == text
