"""A whole reboot of a simulated host with a genuine libvirtd: what its VMs had is there again before they start.

QEMUs are genuine (TCG, in their firmware), as are keepers and workers; nothing here needs a guest's system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.guest.conftest import wait_for
from tests.guest.lab import GuestLab, lab, simulate

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="a private libvirtd needs root"),
]
DOMAIN = (
    "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>"
    "<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>"
    "<devices><controller type='usb' model='none'/><memballoon model='none'/>"
    "<controller type='virtio-serial' index='0'/></devices></domain>"
)
#: the first one goes again, so that the last stands where nothing would put it on an empty GPU
WANTED = {"early": "1g.10gb", "train": "3g.40gb", "infer": "1g.10gb"}


@pytest.fixture
def host() -> Iterator[GuestLab]:
    """A host whose boards do not even keep MIG mode over a reboot."""
    with lab("hgx-h100") as scene:
        for name in WANTED:
            path = scene.directory / f"{name}.xml"
            path.write_text(DOMAIN.format(name=name))
            scene.virsh("define", str(path))
        yield scene


def read_slices(scene: GuestLab) -> dict[str, tuple[Any, ...]]:
    """For each VM: GPU, profile, placement, and the MIG device's UUID."""
    return {
        row["vm"]: (
            row["gpu_uuid"],
            row["profile"],
            row["placement"],
            [one["uuid"] for one in row["compute_instances"]],
        )
        for row in scene.document("mig", "list")["instances"]
    }


def read_devices(scene: GuestLab) -> dict[str, str]:
    """For each VM whose channel serves: the MIG device of its worker."""
    channels = scene.document("virtio", "list")["channels"]
    return {row["vm"]: row["device"] for row in channels if row["running"] and row["worker_ready"]}


def test_vms_find_their_slices_at_the_old_places(host: GuestLab) -> None:
    for name, profile in WANTED.items():
        host.vgpumgr("attach", name, "--profile", profile)
    host.vgpumgr("detach", "early", "--yes")
    host.virsh("start", "train")
    before, devices = read_slices(host), read_devices(host)
    assert set(before) == set(devices) == {"train", "infer"}

    host.libvirtd.stop()  # its QEMUs die with it, as in a power cut
    simulate(host, "reboot", host.machine)
    assert read_slices(host) == {}
    assert read_devices(host) == {}
    # libvirt, which starts the VMs, is not there yet
    assert host.document("restore")["problems"] == []
    assert read_slices(host) == before
    assert read_devices(host) == devices
    assert host.vgpumgr("restore") == "nothing is missing\n"

    host.libvirtd.start()
    for name in before:
        host.virsh("start", name)
    wait_for(lambda: host.run("diff").status == 0, "as it should be")
    rows = {row["name"]: row for row in host.document("vm", "list")["vms"]}
    for name in before:
        assert rows[name]["state"] == "running"
        assert rows[name]["problems"] == []
        assert rows[name]["devices_live"] == rows[name]["devices_config"] != []
    for name in before:
        host.vgpumgr("detach", name, "--yes")
    assert read_slices(host) == {}
