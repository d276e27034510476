"""vgpumgr and mdevctl on the same mediated devices: a real kernel, its sample drivers, and the real mdevctl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.host import LabHost
from tests.lab.kernels import RealKernel, wait_for

BUS = "/sys/bus/mdev/devices"
OURS, THEIRS, THIRD = (f"{n}1111111-2222-3333-4444-555555555555" for n in "abc")


@pytest.fixture
def host(real_kernel: RealKernel) -> Iterator[LabHost]:
    host = real_kernel.host
    clean(real_kernel)
    yield host
    clean(real_kernel)


def clean(real_kernel: RealKernel) -> None:
    """No device, no definition, nothing remembered."""
    real_kernel.release_all()
    host = real_kernel.host
    for uuid in real_kernel.list(BUS):
        real_kernel.write(f"{BUS}/{uuid}/remove", 1)
    host.check("rm -rf /etc/mdevctl.d/mtty /etc/mdevctl.d/mdpy /var/lib/vgpumgr/*")


def list_vgpus(host: LabHost) -> dict[str, dict[str, Any]]:
    """What vgpumgr says there is, by UUID."""
    return {row["uuid"]: row for row in host.document("mdev", "list")["vgpus"]}


def list_free(host: LabHost) -> dict[str, int]:
    """How many more of each type vgpumgr says there can be."""
    return {row["id"]: row["free"] for row in host.document("mdev", "types")["types"]}


def list_mdevctl(host: LabHost, *options: str) -> dict[str, tuple[str, Any]]:
    """What mdevctl says there is: parent and device by UUID; with ``-d`` what is defined."""
    text = host.check(" ".join(["mdevctl", "list", "--dumpjson", *options]))
    parents = json.loads(text or "[]")
    return {
        uuid: (parent, device)
        for entry in parents
        for parent, devices in entry.items()
        for one in devices
        for uuid, device in one.items()
    }


def test_what_vgpumgr_makes_mdevctl_sees(host: LabHost) -> None:
    host.succeed("mdev", "create", "mtty-2", "--uuid", OURS, "--auto")
    device = {"mdev_type": "mtty-2", "start": "auto", "attrs": []}
    assert list_mdevctl(host, "-d") == {OURS: ("mtty", device)}
    assert list_mdevctl(host)[OURS][1]["mdev_type"] == "mtty-2"
    host.check(f"mdevctl stop -u {OURS}")
    row = list_vgpus(host)[OURS]
    assert (row["ours"], row["defined"], row["auto"]) == (True, True, True)
    assert row["state"] != "active"
    # what udev does when the parent appears at boot
    host.check("mdevctl start-parent-mdevs mtty")
    assert list_vgpus(host)[OURS]["state"] == "active"
    host.succeed("mdev", "delete", OURS)
    assert list_mdevctl(host) == list_mdevctl(host, "-d") == {}
    assert host.check(f"ls {BUS}") == ""


def test_what_mdevctl_makes_is_left_alone_until_it_is_adopted(host: LabHost) -> None:
    host.check(f"mdevctl define -u {THEIRS} -p mtty --type mtty-1")
    host.check(f"mdevctl start -u {THIRD} -p mtty --type mtty-1")
    rows = list_vgpus(host)
    assert {uuid: (row["ours"], row["state"]) for uuid, row in rows.items()} == {
        THEIRS: (False, "defined"),
        THIRD: (False, "active"),
    }
    for verb, uuid in (("start", THEIRS), ("delete", THIRD)):
        done = host.vgpumgr("mdev", verb, uuid)
        assert done.status == 6
        assert "VG409" in done.stderr
    host.succeed("mdev", "adopt", THEIRS)
    host.succeed("mdev", "start", THEIRS)
    assert set(list_mdevctl(host)) == {THEIRS, THIRD}
    host.succeed("mdev", "delete", THEIRS)
    assert set(list_mdevctl(host)) == {THIRD}
    assert list_mdevctl(host, "-d") == {}


def test_a_definition_changed_by_one_is_read_by_the_other(host: LabHost) -> None:
    host.succeed("mdev", "create", "mtty-2", "--uuid", OURS, "--define")
    host.check(f"mdevctl modify -u {OURS} --auto")
    assert list_vgpus(host)[OURS]["auto"] is True
    host.succeed("mdev", "define", OURS, "--manual")
    assert list_mdevctl(host, "-d")[OURS][1]["start"] == "manual"
    host.succeed("mdev", "stop", OURS)
    assert list_mdevctl(host) == {}
    host.check(f"mdevctl undefine -u {OURS}")
    assert list_mdevctl(host, "-d") == {}


def test_a_refused_attribute_leaves_nothing(host: LabHost) -> None:
    done = host.vgpumgr(
        "mdev", "create", "mtty-2", "--uuid", OURS, "--auto", "--attr", "vendor/sample_mdev_dev=1"
    )
    assert done.status == 9
    assert "EACCES" in done.stderr
    assert host.check(f"ls {BUS}") == ""
    assert list_mdevctl(host, "-d") == {}
    assert list_vgpus(host) == {}


def test_capacity_counts_every_type_of_the_parent(host: LabHost) -> None:
    free = list_free(host)
    assert (free["mtty-1"], free["mtty-2"]) == (24, 12)
    host.succeed("mdev", "create", "mtty-2", "--uuid", OURS)
    free = list_free(host)
    assert (free["mtty-1"], free["mtty-2"]) == (22, 11)


def test_a_device_in_use_is_not_deleted_and_its_holder_is_named(
    host: LabHost, real_kernel: RealKernel
) -> None:
    host.succeed("mdev", "create", "mtty-2", "--uuid", OURS)
    real_kernel.hold(OURS)
    done = host.vgpumgr("mdev", "delete", OURS)
    assert done.status == 6
    assert "vfio-hold" in done.stderr
    assert host.check(f"ls {BUS}") == OURS
    real_kernel.release(OURS)


def test_a_device_removed_under_its_holder_is_a_ghost(
    host: LabHost, real_kernel: RealKernel
) -> None:
    host.succeed("mdev", "create", "mtty-2", "--uuid", OURS)
    real_kernel.hold(OURS)
    remover = real_kernel.begin(f"{BUS}/{OURS}/remove", 1)
    assert not remover.finished()
    row = list_vgpus(host)[OURS]
    assert row["state"] == "ghost"
    assert "vfio-hold" in str(row["held_by"])
    assert list_free(host)["mtty-2"] == 11
    real_kernel.release(OURS)
    assert wait_for(remover)
    assert list_free(host)["mtty-2"] == 12
