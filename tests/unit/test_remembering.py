"""When an interrupted change of layout is complete: once it is remembered, and nothing is being undone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vgpumgr.engine.journal import Journal
from vgpumgr.engine.recovery import list_unfinished
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import DesiredLayout
from vgpumgr.state.store import Store
from vgpumgr.steps.layouts import RememberLayouts, is_through
from vgpumgr.steps.mig import EnableMigMode

GPU = GpuUuid("GPU-00000000-0000-4000-8000-000000000000")
OLD = DesiredLayout(GPU, False, (), 1.0)
NEW = replace(OLD, mig_enabled=True, saved_s=2.0)


@pytest.mark.parametrize("earlier", [(), (OLD,)])
def test_what_is_remembered_tells_whether_it_is_complete(
    tmp_path: Path, earlier: tuple[DesiredLayout, ...]
) -> None:
    layouts = Store(tmp_path / "state.sqlite")
    layouts.save_layouts(earlier)
    step = RememberLayouts((GPU,), earlier)
    journal = Journal(tmp_path / "journal", "boot")
    rows = [EnableMigMode(GPU).encode(), step.encode()]

    def is_complete() -> bool:
        (found,) = list_unfinished(journal.look())
        return is_through(found, layouts)

    journal.append("op", "begin", {"operation": "apply", "steps": rows})
    journal.append("op", "intent", {"step": 0, "kind": "mig.mode.enable"})
    assert not is_complete()
    journal.append("op", "intent", {"step": 1, "kind": step.kind})
    assert not is_complete()
    layouts.save_layouts([NEW])
    assert is_complete()
    journal.append("op", "undo", {"kind": step.kind})
    assert not is_complete(), "what is being undone is undone to its end"
