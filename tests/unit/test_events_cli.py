"""``vgpumgr events``: each kind of event as a line for people."""

from __future__ import annotations

from typing import Any

import pytest

from vgpumgr.cli.events import describe

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
