"""``vgpumgr events``: each kind of event as a line for people."""

from __future__ import annotations

from typing import Any

import pytest

from vgpumgr.cli.daemon import describe
from vgpumgr.cli.http import HttpAnswer, HttpBackend, Stream

STEP = {"word": "do", "description": "start the worker"}
ACTION = {"subject": "vm01", "text": "started its keeper again", "done": True}
DRIFT = {"kind": "device-gone", "subject": "vm02", "text": "its definition has lost x"}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"type": "operation", "operation": "7f", "name": "attach", "subject": "vm01",
             "status": "running", "step": STEP},
            "7f  attach vm01  running  do: start the worker",
        ),
        (
            {"type": "vm", "change": "stopped", "vm": "vm01", "attachments": ["ab", "cd"],
             "device": None},
            "vm vm01  stopped  attachments: ab, cd",
        ),
        (
            {"type": "vm", "change": "device-removed", "vm": "vm01", "attachments": None,
             "device": "ua-vgpumgr-ab-ring"},
            "vm vm01  device-removed ua-vgpumgr-ab-ring",
        ),
        ({"type": "libvirt", "state": "lost", "problem": "it ended"}, "libvirt  lost: it ended"),
        ({"type": "libvirt", "state": "connected", "problem": None}, "libvirt  connected"),
        (
            {"type": "reconcile", "actions": [ACTION], "drift": [DRIFT], "error": None},
            "reconcile  vm01: started its keeper again; differs: vm02: its definition has lost x",
        ),
        ({"type": "reconcile", "actions": [], "drift": [], "error": None},
         "reconcile  all is as recorded"),
        (
            {"type": "reconcile", "actions": [], "drift": None, "error": {"error": "no libvirt"}},
            "reconcile  failed: no libvirt",
        ),
        (
            {"type": "device", "action": "bind", "subsystem": "pci", "name": "0000:3b:00.4",
             "driver": None},
            "device  action=bind  subsystem=pci  name=0000:3b:00.4",
        ),
    ],
)  # fmt: skip
def test_one_line_each(event: dict[str, Any], line: str) -> None:
    assert describe({"id": 1, "time_s": 0.0, **event})[8:] == f"  {line}"


def _connect_nowhere() -> Stream:
    raise AssertionError("nothing is asked over a stream")


class Interrupted(HttpBackend):
    """A daemon behind which Ctrl-C comes while an operation runs."""

    def __init__(self, **ended: Any) -> None:
        super().__init__(_connect_nowhere)
        self.asked: list[str] = []
        self._ended = ended

    def request(self, method: str, *_: object, **__: str) -> HttpAnswer:
        self.asked.append(method)
        return HttpAnswer(200, {}, b'{"operation": {"id": "3f2a"}}')

    def wait_operation(self, operation_id: str) -> dict[str, Any]:
        self.asked.append(f"wait {operation_id}")
        if len(self.asked) == 2:
            raise KeyboardInterrupt
        return self._ended


def test_who_interrupts_a_command_cancels_its_operation_and_waits_for_the_end() -> None:
    daemon = Interrupted(status="cancelled", error={"id": "VG351", "error": "cancelled"})
    with pytest.raises(KeyboardInterrupt):
        daemon.call("attach", vm="vm01", profile="1g.10gb")
    assert daemon.asked == ["POST", "wait 3f2a", "DELETE", "wait 3f2a"]
    late = Interrupted(status="succeeded", result={"plan": "done"})
    assert late.call("attach", vm="vm01", profile="1g.10gb") == {"plan": "done"}
