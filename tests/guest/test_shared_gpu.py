"""Two VMs compute on shares of one GPU, and one of the shares changes while its VM runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.guest.conftest import remove
from tests.guest.lab import GuestLab

VMS = ("sharer1", "sharer2")


@pytest.fixture
def vms(scene: GuestLab) -> Iterator[tuple[str, ...]]:
    for name in VMS:
        scene.define(name)
    try:
        yield VMS
    finally:
        for name in VMS:
            remove(scene, name)


def test_two_vms_compute_on_shares_of_one_gpu(scene: GuestLab, vms: tuple[str, ...]) -> None:
    one, two = vms
    scene.vgpumgr("attach", one, "--profile", "share:8GiB,30%", "--gpu", "3")
    scene.vgpumgr("attach", two, "--equal", "4", "--gpu", "3")
    for name in vms:
        assert "PASS" in scene.start(name).check("vectoradd")
    holders = scene.document("gpu", "show", "3")["gpu"]["shares"]["holders"]
    assert {holder["name"] for holder in holders} == set(vms)
    assert scene.document("gpu", "show", "3")["gpu"]["mig"]["current"] is False
    scene.vgpumgr("virtio", "set", one, "--memory", "6GiB", "--compute", "40")
    channel = scene.document("virtio", "show", one)["channel"]
    assert channel["share"]["compute"] == 40
    assert channel["share"]["kept"] is True
    assert "PASS" in scene.shell(one).check("vectoradd")
    # what a lost state file is rebuilt from follows
    xml = scene.virsh("dumpxml", "--inactive", one)
    (note,) = re.findall(r"<[^<]*attachment [^>]*>", xml)
    assert "share:6GiB,40%" in note
    assert re.search(r"compute=.40.", note)
    # the next start of the VM has it, too
    scene.destroy(one)
    assert "PASS" in scene.start(one).check("vectoradd")
    assert scene.document("virtio", "show", one)["channel"]["share"]["compute"] == 40
    # detach of one leaves the other
    scene.destroy(one)
    scene.vgpumgr("detach", one, "--yes")
    assert "PASS" in scene.shell(two).check("vectoradd")
    shares = scene.document("gpu", "show", "3")["gpu"]["shares"]
    assert [holder["name"] for holder in shares["holders"]] == [two]
