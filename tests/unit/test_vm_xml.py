"""What an attach would make of a VM's definition, and whose the GPUs are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.support.domains import UUID_Q35
from tests.support.fake_host import FLEX, GPU, OTHER_GPU
from tests.support.hostdev_rig import ask, make
from tests.support.service import Bench
from vgpumgr.app.documents.gpus import GpuListDocument, MachineDocument, PciGpuDocument
from vgpumgr.app.host_observation import name_holders
from vgpumgr.app.operations.attachments import render_vm_xml, show_vm_xml
from vgpumgr.cli.text import as_row, describe_users
from vgpumgr.domain.declare import parse_document
from vgpumgr.domain.domain import Domain
from vgpumgr.errors import VgpumgrError
from vgpumgr.model.request import AttachRequest


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make(tmp_path)


@pytest.mark.parametrize(
    ("name", "vm", "profile"),
    [
        ("passthrough", "vm02", "passthrough"),
        ("vf", "vm01", "vf:2"),
        ("mdev", "vm02", "mtty-2"),
        ("forward", "vm01", "1g.10gb"),
        ("plain", "vm01", ""),
    ],
)
def test_the_definition_as_it_would_be(
    bench: Bench, golden: Callable[[str, str], None], name: str, vm: str, profile: str
) -> None:
    before = bench.snapshot()
    gpu = str(GPU) if profile == "passthrough" else None
    document = render_vm_xml(bench.service.parts, AttachRequest(vm, profile, gpu=gpu))
    assert bench.snapshot() == before
    schema = etree.RelaxNG(etree.parse("/usr/share/libvirt/schemas/domain.rng"))
    assert schema.validate(parse_document(document.xml)), schema.error_log.last_error
    # no path of this test run in the golden file
    xml = document.xml.replace(str(bench.channels.paths("x").ring).rpartition("/x/")[0], "CHANNELS")
    notes = "".join(f"<!-- {note} -->\n" for note in document.notes)
    golden(f"vm-xml-{name}.xml", notes + xml)


@pytest.mark.parametrize(
    ("transport", "has_ring", "has_serial"),
    [("auto", True, True), ("ring", True, False), ("serial", False, True)],
)
def test_the_definition_for_a_transport(
    bench: Bench, transport: str, has_ring: bool, has_serial: bool
) -> None:
    document = show_vm_xml(
        bench.service.parts, selector="vm01", profile="1g.10gb", transport=transport
    )
    found = ("<shmem" in document.xml, "org.vgpumgr.0" in document.xml)
    assert found == (has_ring, has_serial)


#: what only looks; everything else of these interfaces changes something
LOOKING = (
    "is_conventional",
    "list_",
    "read_",
    "find_",
    "has_",
    "offers_",
    "boot_id",
    "hypervisor",
    "paths",
    "locate",
)


class Watch:
    """Lets every call through, and remembers its name."""

    def __init__(self, inner: object, calls: list[str]) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        self._calls.append(name)
        return getattr(self._inner, name)


def digest(directory: Path) -> str:
    """Of all files below: their names, modes and contents."""
    found = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        found.update(f"{path} {path.lstat().st_mode} ".encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


@pytest.mark.parametrize(
    ("vm", "profile", "gpu"),
    [
        ("vm02", "passthrough", str(GPU)),
        ("vm01", "vf:2", None),
        ("vm02", "mtty-2", None),
        ("vm01", "1g.10gb", None),
        ("vm02", "", None),
    ],
)
def test_nothing_is_touched(
    bench: Bench, tmp_path: Path, vm: str, profile: str, gpu: str | None
) -> None:
    bench.service.attach(ask("vf:2", vm="vm02"))  # there is something to spoil
    calls: list[str] = []
    names = ("hypervisor", "nvml", "pci", "vgpus", "channels", "store", "vgpu_store")
    real = bench.service.parts
    parts = replace(real, **{name: Watch(getattr(real, name), calls) for name in names})
    parts = replace(parts, read_inventory=parts.nvml.read_inventory)
    before = digest(tmp_path)
    render_vm_xml(parts, AttachRequest(vm, profile, gpu=gpu))
    assert digest(tmp_path) == before
    look = {"mtty-2": "read_host"}.get(profile, "list_functions")
    assert look in calls or profile in ("", "1g.10gb")
    assert [name for name in calls if not name.startswith(LOOKING)] == []


def test_the_preview_is_what_attach_does(bench: Bench) -> None:
    request = ask(gpu=str(GPU))
    preview = Domain.from_xml(render_vm_xml(bench.service.parts, request).xml)
    done = bench.service.attach(request)
    assert done.attachment is not None
    machine = bench.hypervisor.machines[UUID_Q35]
    assert machine.config is not None
    named = [
        d.changed(alias=str(d.alias).replace("preview", done.attachment.id))
        for d in preview.pci_hostdevs
    ]
    assert tuple(named) == machine.config.pci_hostdevs


def test_a_preview_refuses_what_attach_refuses(bench: Bench) -> None:
    bench.pci.users[GPU] = "process 9 (Xorg)"
    with pytest.raises(VgpumgrError) as caught:
        render_vm_xml(bench.service.parts, ask(gpu=str(GPU)))
    assert caught.value.id == "VG444"
    machine = bench.hypervisor.machines[UUID_Q35]
    machine.live, machine.config = machine.config, None
    with pytest.raises(VgpumgrError) as caught:
        render_vm_xml(bench.service.parts, ask(gpu=str(OTHER_GPU)))
    assert caught.value.id == "VG485"


def test_gpus_say_which_vms_have_them(bench: Bench) -> None:
    bench.service.attach(ask("vf:2"))
    bench.service.attach(ask(gpu=str(GPU), vm="vm01"))
    flex = PciGpuDocument(
        model="x", pci=str(FLEX), vendor_id=0, device_id=0, class_code=0, numa_node=None,
        iommu_group=None, driver=None, bar_bytes=[], vfs_total=7, vfs_enabled=2, boot_display=False,
    )  # fmt: skip
    machine = MachineDocument(
        name=None, simulated=False, driver_version=None, nvml_version=None, cuda_version=None
    )
    others = [flex, flex.replace(pci=str(GPU)), flex.replace(pci=str(OTHER_GPU))]
    document = GpuListDocument(machine=machine, gpus=[], others=others, lost=[])
    named = name_holders(document, bench.store.list_attachments(), {})
    assert [gpu.vms for gpu in named.others] == [["vm02"], ["vm01"], []]
    assert describe_users(as_row(named.others[0].as_data())) == "vm02"
