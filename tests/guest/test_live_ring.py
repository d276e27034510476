"""The ring alone, plugged into and out of a running guest: what its kernel must really do for us."""

from __future__ import annotations

import pytest

from tests.guest.conftest import PROFILE, remove
from tests.guest.lab import GuestLab

BRIDGE = "<controller type='pci' model='pcie-to-pci-bridge'/>"


@pytest.mark.parametrize(("machine", "ring_bytes"), [("pc", 64 << 20), ("q35", 1 << 20)])
def test_ring_comes_and_goes_while_the_guest_runs(
    scene: GuestLab, machine: str, ring_bytes: int
) -> None:
    name = f"ring-{machine}"
    scene.define(name, machine=machine)
    if machine == "q35":
        path = scene.directory / name / "bridge.xml"
        xml = scene.virsh("dumpxml", "--inactive", name)
        path.write_text(xml.replace("</devices>", f"{BRIDGE}</devices>"))
        scene.virsh("define", str(path))
    try:
        shell = scene.start(name)
        words = ("attach", name, "--profile", PROFILE, "--transport", "ring", "--live", "--config")
        done = scene.document(*words, "--hello-timeout", "60")
        assert done["usable"] == "now", done["notes"]
        channel = scene.document("virtio", "show", name)["channel"]
        assert (channel["transport"], channel["ring_bytes"]) == ("ring", ring_bytes)
        assert "PASS" in shell.check("vectoradd")
        gone = scene.document("detach", name, "--yes")
        assert gone["notes"] == [], "the guest's kernel releases the device when asked"
        vm = scene.document("vm", "show", name)["vm"]
        assert vm["devices_live"] == vm["devices_config"] == []
        assert "PASS" not in shell.run("vectoradd").output
    finally:
        remove(scene, name)
