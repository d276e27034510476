"""An attach of several host devices that is killed at any step is undone as a whole by what comes next."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.hostdev_rig import ask, make
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.engine.executor import Executor
from vgpumgr.engine.journal import Journal


class Killed(BaseException):
    """The process is no more: nothing of it undoes anything."""


def die(*arguments: object) -> NoReturn:
    """In the place of what the executor does after an error."""
    raise arguments[-1]  # type: ignore[misc]


@pytest.mark.parametrize("profile", ["passthrough", "vf", "mtty-2"])
@pytest.mark.parametrize("event", ["intent", "done"])
def test_killed_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, event: str
) -> None:
    """``intent``: it was announced and not done; ``done``: it was done, and that not written."""
    real = Journal.append
    # every other one: those between are the other event's
    point, points = int(event == "done"), 99
    while point < points:
        bench = make(tmp_path / str(point))
        before = bench.snapshot()
        steps = bench.service.attach(ask(profile, count=2), dry_run=True).plan.steps
        points = len(steps)

        def append(
            self: Journal, op: str, kind: str, data: dict[str, object], at: int = point
        ) -> None:
            here = kind == event and data.get("step") == at
            if not (here and event == "done"):
                real(self, op, kind, data)  # type: ignore[arg-type]
            if here:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(Executor, "_fail", die)
            patch.setattr(Journal, "append", append)
            with pytest.raises(Killed):
                bench.service.attach(ask(profile, count=2))
        told = Recovery(bench.service.parts).recover(Policy())
        assert told.drift == [], (point, steps[point].kind)
        left = [record.state.value for record in bench.store.list_attachments()]
        if steps[point].kind == "attachment.mark":
            # all is there but a mark
            assert left == ["attached", "attached"]
            bench.service.detach("vm02", every=True)
        assert bench.snapshot() == before, (point, steps[point].kind, told.actions)
        point += 2
