"""Attaching to a running guest: what it can take now, and what waits for the next start."""

from __future__ import annotations

import pytest

from tests.guest.conftest import PROFILE, remove
from tests.guest.lab import GuestLab


@pytest.mark.parametrize("machine", ["pc", "q35"])
def test_a_running_guest_with_the_agent_uses_the_slice_at_once(
    scene: GuestLab, machine: str
) -> None:
    name = f"live-{machine}"
    scene.define(name, machine=machine)
    try:
        shell = scene.start(name)
        assert "PASS" not in shell.run("vectoradd").output
        done = scene.document("attach", name, "--profile", PROFILE, "--hello-timeout", "60")
        assert done["usable"] == "now", done["notes"]
        assert "PASS" in shell.check("vectoradd")
        assert "PASS" in shell.check("overlap")
        scene.destroy(name)
        assert "PASS" in scene.start(name).check("matmul")
    finally:
        remove(scene, name)


def test_a_guest_with_two_slices_uses_both_or_the_one_that_a_program_names(scene: GuestLab) -> None:
    scene.define("two", machine="q35")
    try:
        scene.vgpumgr("attach", "two", "--profile", PROFILE, "--count", "2")
        shell = scene.start("two")
        for visible in ("", "CUDA_VISIBLE_DEVICES=0 ", "CUDA_VISIBLE_DEVICES=1 "):
            assert "PASS" in shell.check(f"{visible}vectoradd")
        for visible, devices in (("", 2), ("CUDA_VISIBLE_DEVICES=1 ", 1)):
            assert f"PASS devices {devices}" in shell.check(f"{visible}devices")
        assert "PASS" not in shell.run("CUDA_VISIBLE_DEVICES=2 vectoradd").output
        channels = scene.document("virtio", "list")["channels"]
        assert [channel["hello"] for channel in channels] == [True, True]
        assert all(channel["calls"] for channel in channels), "each worker has served a program"
        ids = [channel["id"] for channel in channels]
        scene.vgpumgr("detach", "two", "--attachment", ids[0], "--yes")
        shell.check("sleep 2")
        assert "PASS" in shell.check("CUDA_VISIBLE_DEVICES=0 vectoradd"), "now the first of all"
    finally:
        scene.run("detach", "two", "--all", "--yes")
        remove(scene, "two")


def test_a_guest_without_the_agent_gets_it_at_the_next_start_and_is_told_why(
    scene: GuestLab,
) -> None:
    scene.define("mute", agent=False)
    try:
        scene.start("mute")
        done = scene.document("attach", "mute", "--profile", PROFILE, "--hello-timeout", "3")
        assert done["usable"] == "next-start"
        assert any("agent" in note for note in done["notes"]), done["notes"]
        scene.vgpumgr("detach", "mute", "--yes")
        strict = scene.run("attach", "mute", "--profile", PROFILE, "--live", "--hello-timeout", "3")
        assert strict.status in (7, 9)
        assert all(not gpu["instances"] for gpu in scene.document("gpu", "list")["gpus"])
    finally:
        remove(scene, "mute")
