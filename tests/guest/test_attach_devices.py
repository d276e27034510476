"""Host devices in the definitions of a genuine libvirtd, on simulated hosts: attach gives them, libvirt takes them, and
detach leaves everything as it was. No VFIO is here: a running guest gets its devices in the lab.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lxml import etree

from tests.guest.lab import ROOT, GuestLab, simulate
from tests.guest.libvirtd import PrivateLibvirtd, private_libvirtd
from tests.support.places import short
from vgpumgr.domain.domain import Domain

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a private libvirtd needs root"),
    pytest.mark.xdist_group("libvirtd"),
]


@pytest.fixture(scope="module")
def libvirtd() -> Iterator[PrivateLibvirtd]:
    with private_libvirtd() as daemon:
        for machine in ("q35", "pc"):
            path = daemon.scratch / f"{machine}.xml"
            path.write_text(
                f"<domain type='qemu'><name>{machine}</name><memory unit='MiB'>64</memory>"
                f"<os><type arch='x86_64' machine='{machine}'>hvm</type></os>"
                "<devices><controller type='usb' model='none'/></devices></domain>"
            )
            daemon.virsh("define", str(path))
        yield daemon


@contextmanager
def host(libvirtd: PrivateLibvirtd, kind: str) -> Iterator[GuestLab]:
    """A simulated host of that kind whose libvirt is the genuine one."""
    directory = Path(tempfile.mkdtemp(prefix="vghost.", dir=short()))
    environment = os.environ | {"VGPUMGR_SIM_ROOT": str(directory / "sim"), "PYTHONPATH": str(ROOT)}
    scene = GuestLab(kind, directory, libvirtd, environment)
    try:
        simulate(scene, "start", kind, "--libvirt", libvirtd.uri)
        yield scene
    finally:
        for vm in ("q35", "pc"):
            scene.run("detach", vm, "--all", "--yes")
        with contextlib.suppress(subprocess.CalledProcessError):
            simulate(scene, "stop", kind)
        shutil.rmtree(directory, ignore_errors=True)


def read(scene: GuestLab, vm: str) -> Domain:
    return Domain.from_xml(dump(scene, vm))


def dump(scene: GuestLab, vm: str) -> str:
    """The definition; libvirt leaves an empty element where metadata were."""
    return scene.virsh("dumpxml", "--inactive", vm).replace("  <metadata/>\n", "")


def driver(scene: GuestLab, address: str) -> str | None:
    path = scene.directory / "sim" / scene.machine / "root/sys/bus/pci/devices" / address / "driver"
    return path.readlink().name if path.is_symlink() else None


def test_a_whole_gpu_with_its_companions(libvirtd: PrivateLibvirtd) -> None:
    with host(libvirtd, "workstation") as scene:
        refused = scene.run("attach", "q35", "--profile", "passthrough", "--gpu", "04:00.0")
        assert refused.status == 6, refused.stderr
        assert "VG443" in refused.stderr, "its group has a disk of the host"
        free_display(scene)
        wanted = ("--profile", "passthrough", "--gpu", "01:00.0")
        for vm in ("q35", "pc"):
            before = dump(scene, vm)
            preview = Domain.from_xml(scene.vgpumgr("vm", "xml", vm, *wanted))
            done = scene.document("attach", vm, *wanted)
            given = read(scene, vm).pci_hostdevs
            assert [str(d.source.pci) for d in given if d.source] == done["plan"]["result"][
                "devices"
            ]
            assert [d.address for d in given] == [d.address for d in preview.pci_hostdevs]
            assert len(given) == 4, "audio, USB and UCSI go with it"
            assert len({(d.address.bus, d.address.slot) for d in given if d.address}) == 1
            assert {driver(scene, a) for a in done["plan"]["result"]["devices"]} == {"vfio-pci"}
            scene.vgpumgr("detach", vm)
            assert dump(scene, vm) == before
        assert driver(scene, "0000:01:00.0") == "vfio-pci", "bound by hand: it stays so"


def free_display(scene: GuestLab) -> None:
    """The host lets go of its screen: as an operator without one would have it."""
    scene.vgpumgr("passthrough", "bind", "0000:01:00.0", "--yes")


def test_an_intel_gpu_and_its_virtual_functions(libvirtd: PrivateLibvirtd) -> None:
    with host(libvirtd, "intel-flex") as scene:
        before = dump(scene, "q35")
        listed = scene.document("gpu", "list")["others"]
        assert "0000:4d:00.0" in [gpu["pci"] for gpu in listed]
        whole = ("--profile", "passthrough", "--gpu", "51:00.0")
        scene.vgpumgr("attach", "q35", *whole)
        assert driver(scene, "0000:51:00.0") == "vfio-pci"
        assert scene.document("status")["drift"] == []
        scene.vgpumgr("detach", "q35")
        assert driver(scene, "0000:51:00.0") == "i915"
        first = scene.document("attach", "q35", "--profile", "vf:4")
        second = scene.document("attach", "pc", "--profile", "vf")
        devices = first["plan"]["result"]["devices"] + second["plan"]["result"]["devices"]
        assert len(set(devices)) == 2
        assert [driver(scene, device) for device in devices] == ["vfio-pci", "vfio-pci"]
        scene.vgpumgr("detach", "q35")
        assert dump(scene, "q35") == before
        scene.vgpumgr("detach", "pc")
        shown = scene.document("gpu", "show", "4d:00.0")["other"]
        assert shown["vfs_enabled"] == 0, "made by attach, removed by the last detach"


@pytest.mark.parametrize(
    ("kind", "prepare", "profile", "backend"),
    [
        ("vgpu-t4", (), "T4-4Q", "mdev"),
        ("vgpu-l40s", ("vf enable 0",), "L40S-12Q", "vf"),
        ("vgpu-a100", ("mig enable 0 --yes", "vf enable 0"), "1g.5gb", "mdev"),
    ],
)
def test_vgpus_of_both_frameworks(
    libvirtd: PrivateLibvirtd, kind: str, prepare: tuple[str, ...], profile: str, backend: str
) -> None:
    with host(libvirtd, kind) as scene:
        for command in prepare:
            scene.vgpumgr(*command.split())
        before = dump(scene, "q35")
        wanted = ("--profile", profile, "--backend", backend)
        done = scene.document("attach", "q35", *wanted)
        assert done["attachment"]["backend"] == backend
        domain = etree.fromstring(dump(scene, "q35").encode())
        kinds = [str(e.get("type")) for e in domain.iterfind("devices/hostdev")]
        assert kinds == ["mdev" if backend == "mdev" else "pci"]
        listed = scene.document("mdev", "list")["vgpus"]
        assert len([v for v in listed if v["state"] == "active"]) == 1
        scene.vgpumgr("detach", "q35")
        assert dump(scene, "q35") == before
        assert [v for v in scene.document("mdev", "list")["vgpus"] if v["state"] == "active"] == []
