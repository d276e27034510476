"""An attach of several host devices that is killed at any step is undone as a whole by what comes next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.fake_host import AUDIO, GPU
from tests.support.hostdev_rig import ask, make
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.engine.executor import Executor
from vgpumgr.engine.journal import Journal


class Killed(BaseException):
    """The process is no more: nothing of it undoes anything."""


def die(*arguments: object) -> NoReturn:
    """In the place of what the executor does after an error."""
    raise arguments[-1]  # type: ignore[misc]


def die_at_once(*_: object) -> NoReturn:
    """In the place of a call to the host."""
    raise Killed


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


def test_killed_between_a_boot_and_restore_it_leaves_the_binding_to_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detach would leave the GPU bound; what was not attached is as the boot left it."""
    bench = make(tmp_path)
    PassthroughService(bench.service.parts).bind(selector=str(GPU), persist=True, confirmed=True)
    bench.pci.boot_id = "boot-2"
    bench.pci.functions[GPU] = replace(bench.pci.functions[GPU], driver="nvidia")
    bench.pci.functions[AUDIO] = replace(bench.pci.functions[AUDIO], driver="snd_hda_intel")
    bench.pci.overrides.clear()
    before, bindings = dict(bench.pci.functions), dict(bench.pci.bindings)
    service = AttachmentService(replace(bench.service.parts, boot_id="boot-2"))
    with monkeypatch.context() as patch:
        patch.setattr(Executor, "_fail", die)
        patch.setattr(bench.hypervisor, "attach_device", die_at_once)
        with pytest.raises(Killed):
            service.attach(ask(gpu=str(GPU)))
    assert bench.pci.functions != before
    Recovery(service.parts).recover(Policy())
    assert bench.pci.functions == before
    assert bench.pci.bindings == bindings
