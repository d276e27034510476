"""Typed domain XML: one declaration for reading and writing, nothing unknown lost, libvirt's schema believed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from tests.support.domains import FULL, PC, Q35
from vgpumgr.domain import declare
from vgpumgr.domain.declare import (
    Declaration,
    Element,
    all_declarations,
    document_digest,
    parse_document,
    render_element,
)
from vgpumgr.domain.devices import (
    Channel,
    Controller,
    GuestPciAddress,
    HostPciAddress,
    MdevHostdev,
    PciHostdev,
    Shmem,
    control_device,
    ring_device,
)
from vgpumgr.domain.domain import AttachmentNote, AttachmentNotes, Domain
from vgpumgr.domain.slots import check_config, check_live, free_conventional_slots
from vgpumgr.errors import DocumentError

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
SAMPLES = {"pc": PC, "q35": Q35, "full": FULL}


@cache
def schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.parse(str(SCHEMA)))


def check_schema(domain: etree._Element) -> None:
    assert schema().validate(domain), schema().error_log.last_error


def put_into_domain(device: Element) -> etree._Element:
    """A small domain with the device: the schema knows whole domains only."""
    root = parse_document(
        "<domain type='qemu'><name>x</name><memory>1</memory><os><type>hvm</type></os>"
        "<devices/></domain>"
    )
    devices = root.find("devices")
    assert devices is not None
    devices.append(device.to_element())
    return root


@pytest.mark.parametrize("name", SAMPLES)
def test_what_was_only_read_is_rendered_as_it_stood(name: str) -> None:
    """Without looking at each value again; and a copy with other values writes these."""
    root = parse_document(SAMPLES[name])
    domain = Domain.from_element(root)
    with mock.patch.object(declare, "declarations_of") as declarations_of:
        assert domain.to_xml() == render_element(root)
        declarations_of.assert_not_called()
    changed = domain.changed(name="another")
    assert parse_document(changed.to_xml()).findtext("name") == "another"
    assert Domain.from_xml(changed.to_xml()) == changed != domain


def test_what_an_element_lacks_and_its_class_has_is_written() -> None:
    """A default that the text does not say: so it was before it was read, too."""
    address = GuestPciAddress.from_element(parse_document("<address type='pci' bus='0x02'/>"))
    assert (address.bus, address.slot) == (2, 0)
    assert 'slot="0x00"' in address.to_xml()


def test_equal_elements_are_read_once_and_not_kept_for_ever() -> None:
    first, again = Domain.from_xml(Q35), Domain.from_xml(Q35.replace("<name>", "<name>other-"))
    assert first.name != again.name
    assert all(a is b for a, b in zip(first.controllers, again.controllers, strict=True))
    for number in range(3 * declare._MAX_KNOWN):
        xml = f"<domain><name>x</name><devices><controller type='usb' index='{number}'/></devices></domain>"
        assert Domain.from_xml(xml).controllers[0].index == number
        assert declare._read_text.cache_info().currsize <= declare._MAX_KNOWN


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_what_libvirt_takes(name: str) -> None:
    check_schema(parse_document(SAMPLES[name]))


@pytest.mark.parametrize("name", SAMPLES)
def test_reading_and_writing_changes_not_a_byte(name: str) -> None:
    text = render_element(parse_document(SAMPLES[name]))
    assert Domain.from_xml(text).to_xml() == text


@pytest.mark.parametrize("name", SAMPLES)
def test_adding_and_removing_our_devices_leaves_the_rest_alone(name: str) -> None:
    domain = Domain.from_xml(SAMPLES[name])
    ring, control = ring_device("a1", "/run/r.sock"), control_device("a1", "/run/c.sock")
    more = domain.changed(
        shmems=(*domain.shmems, ring), channels=(*domain.channels, control), name="other"
    )
    check_schema(more.to_element())
    again = Domain.from_xml(more.to_xml())
    assert again == more
    assert again.own_aliases() == (
        "ua-vgpumgr-a1-ring",
        "ua-vgpumgr-a1-ctl",
        *domain.own_aliases(),
    )
    back = again.changed(shmems=domain.shmems, channels=domain.channels, name=domain.name)
    assert document_digest(back.to_xml()) == document_digest(SAMPLES[name])


@given(
    st.lists(st.sampled_from(["site", "note", "x"]), max_size=4),
    st.text(alphabet="abc <>&\"'äß\n", max_size=20),
    st.booleans(),
)
def test_unknown_content_survives(tags: list[str], text: str, attribute: bool) -> None:
    root = parse_document(Q35)
    for parent in (root, *root.iter("shmem"), *root.iter("controller")):
        for tag in tags:
            child = etree.SubElement(parent, tag)
            child.text = text
            if attribute:
                child.set("unknown", text)
    before = render_element(root)
    domain = Domain.from_xml(before)
    assert domain.to_xml() == render_element(parse_document(before))
    changed = domain.changed(name="new").changed(name=domain.name)
    assert document_digest(changed.to_xml()) == document_digest(before)


def test_equal_by_value() -> None:
    one = Shmem.from_xml("<shmem name='a'><model type='ivshmem-plain'/></shmem>")
    two = Shmem.from_xml("<shmem   name='a'>\n<!-- x --><model type='ivshmem-plain'/>\n</shmem>")
    assert one == two
    assert hash(one) == hash(two)
    assert one != one.changed(name="b")


def sample_values(declaration: Declaration) -> list[Any]:
    """Two values of a declared place that libvirt's schema allows."""
    special: dict[tuple[str, str], list[Any]] = {
        ("Shmem", "model"): ["ivshmem-doorbell", "ivshmem-plain"],
        ("Shmem", "size_unit"): ["M", "G"],
        ("Channel", "type"): ["unix", "pty"],
        ("Channel", "source_mode"): ["bind", "connect"],
        ("Channel", "target_type"): ["virtio", "virtio"],
        ("Channel", "target_state"): ["connected", "disconnected"],
        ("Controller", "type"): ["usb", "virtio-serial"],
        ("Controller", "hole64_unit"): ["GiB", "KiB"],
        ("PciHostdev", "driver"): ["vfio"],
        ("Controller", "model"): ["pcie-root-port", "pci-bridge"],
        ("PciHostdev", "source"): [HostPciAddress(bus=0x3B, function=4)],
        ("MdevHostdev", "uuid"): ["6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11"],
        ("MdevHostdev", "model"): ["vfio-pci", "vfio-ccw"],
        ("Domain", "uuid"): ["6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11"],
        ("Domain", "type"): ["kvm", "qemu"],
        ("Domain", "arch"): ["x86_64", "aarch64"],
        ("Domain", "machine"): ["pc-q35-7.2", "pc"],
    }
    key = (declaration.owner.__name__, declaration.name)
    if key in special:
        return special[key]
    if isinstance(declaration.place, declare.Inside):
        return nested_values(declaration)
    if declaration.place.is_presence or declaration.place.codec in (declare.YES_NO, declare.ON_OFF):
        return [True, False]
    if declaration.place.codec is declare.TEXT:
        return ["/a", "/b"] if "path" in declaration.name else ["ua-a", "ua-b"]
    return [1, 2]


def nested_values(declaration: Declaration) -> list[Any]:
    nested: dict[type[Element], Element] = {
        GuestPciAddress: GuestPciAddress(bus=1, slot=2),
        HostPciAddress: HostPciAddress(bus=0x3B, function=4),
        Controller: Controller(type="pci", index=3, model="pcie-root-port"),
        Shmem: Shmem(name="n", model="ivshmem-plain"),
        AttachmentNote: AttachmentNote(id="a", number=1),
        Channel: Channel(type="pty", target_type="virtio"),
        PciHostdev: PciHostdev(managed=True, source=HostPciAddress(bus=1)),
        MdevHostdev: MdevHostdev(uuid="6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11"),
    }
    assert isinstance(declaration.place, declare.Inside)
    assert declaration.place.cls is not None
    value = nested[declaration.place.cls]
    many = declaration.place.many
    return [(value,), ()] if many else [value, None]


def minimal(cls: type[Element]) -> Element:
    """An instance that the schema takes, with as little as possible."""
    made: dict[type[Element], Element] = {
        Domain: Domain.from_xml(Q35),
        Shmem: Shmem(name="a"),
        Channel: Channel(type="unix", source_mode="bind", target_type="virtio", target_name="a"),
        Controller: Controller(type="pci", index=1, model="pcie-root-port"),
        PciHostdev: PciHostdev(source=HostPciAddress(bus=1)),
        MdevHostdev: MdevHostdev(uuid="6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11"),
        GuestPciAddress: GuestPciAddress(),
        HostPciAddress: HostPciAddress(),
        AttachmentNote: AttachmentNote(id="a"),
        AttachmentNotes: AttachmentNotes(),
    }
    return made[cls]


#: what the schema wants beside the value
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("Shmem", "size_unit"): {"size": 1},
    ("Shmem", "msi_vectors"): {"msi": True},
    ("Shmem", "msi_ioeventfd"): {"msi": True},
    ("Controller", "type"): {"model": None},
    ("Controller", "hole64"): {"index": 0, "model": "pcie-root"},
    ("Controller", "hole64_unit"): {"index": 0, "model": "pcie-root", "hole64": 1},
    ("MdevHostdev", "ramfb"): {"display": True},
    ("Controller", "ports"): {"type": "virtio-serial", "model": None},
}
#: what the schema of libvirt 9.0 does not know yet
NEWER = {("PciHostdev", "iommufd")}
DECLARATIONS = list(all_declarations())


@pytest.mark.parametrize("d", DECLARATIONS, ids=lambda d: f"{d.owner.__name__}.{d.name}")
def test_every_declaration_is_read_as_it_was_written(d: Declaration) -> None:
    base = minimal(d.owner).changed(**BESIDE.get((d.owner.__name__, d.name), {}))
    seen = set()
    for value in sample_values(d):
        element = base.changed(**{d.name: value})
        text = element.to_xml()
        again = type(element).from_xml(text)
        assert getattr(again, d.name) == value
        assert again == element
        seen.add(text)
        if isinstance(element, Domain):
            check_schema(element.to_element())
        elif d.owner not in (GuestPciAddress, HostPciAddress, AttachmentNote, AttachmentNotes) and (
            (d.owner.__name__, d.name) not in NEWER
        ):
            check_schema(put_into_domain(element))
    assert len(seen) == len(set(map(str, sample_values(d)))), "the value is not in the document"


def test_our_devices_in_libvirts_words() -> None:
    ring = ring_device("7f3a", "/run/vgpumgr/7f3a/ring.sock")
    assert ring.to_xml() == (
        '<shmem name="vgpumgr-7f3a"><model type="ivshmem-doorbell"/>'
        '<server path="/run/vgpumgr/7f3a/ring.sock"/><msi/>'
        '<alias name="ua-vgpumgr-7f3a-ring"/></shmem>'
    )
    control = control_device("7f3a", "/run/c.sock")
    assert control.to_xml() == (
        '<channel type="unix"><source mode="bind" path="/run/c.sock"/>'
        '<target type="virtio" name="org.vgpumgr.0"/><alias name="ua-vgpumgr-7f3a-ctl"/></channel>'
    )
    check_schema(put_into_domain(ring))
    check_schema(put_into_domain(control))


@pytest.mark.parametrize(
    "text",
    [
        "<domain>",
        "",
        "\x00",
        '<!DOCTYPE d [<!ENTITY a "b">]><domain>&a;</domain>',
        '<!DOCTYPE d SYSTEM "file:///etc/passwd"><domain/>',
        "<domain>" + " " * (4 << 20) + "</domain>",
    ],
)
def test_hostile_documents_are_refused(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(text)
    assert caught.value.id == "VG200"


def test_entities_do_not_read_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    text = f'<!DOCTYPE d [<!ENTITY x SYSTEM "file://{secret}">]><domain><name>&x;</name></domain>'
    with pytest.raises(DocumentError):
        Domain.from_xml(text)


def test_a_value_of_the_wrong_form_names_its_place() -> None:
    with pytest.raises(DocumentError, match="@index"):
        Controller.from_xml("<controller type='pci' index='many'/>")
    with pytest.raises(DocumentError, match="expected <shmem>"):
        Shmem.from_xml("<channel/>")


def test_slots() -> None:
    pc, q35, full = (Domain.from_xml(SAMPLES[n]) for n in ("pc", "q35", "full"))
    assert free_conventional_slots(pc) == 29
    assert check_live(pc).fits
    assert check_config(pc).fits
    assert free_conventional_slots(q35) == 29
    assert check_live(q35).fits
    assert free_conventional_slots(full) == 0
    assert not check_live(full).fits
    refused = check_config(full)
    assert not refused.fits
    assert refused.why == "all slots of its i440fx PCI bus are taken"
    assert refused.hint is not None
    for check in (check_live, check_config):
        assert check(pc, 29).fits, "to the last one"
        assert not check(pc, 30).fits


def test_slots_of_a_running_q35_without_a_bridge() -> None:
    domain = Domain.from_xml(Q35)
    bare = domain.changed(
        controllers=tuple(c for c in domain.controllers if c.model != "pcie-to-pci-bridge"),
        shmems=(),
    )
    assert check_config(bare).fits, "libvirt adds the bridge to the definition"
    live = check_live(bare)
    assert not live.fits
    assert "no PCIe-to-PCI bridge" in str(live.why)
    crowded = parse_document(bare.to_xml())
    devices = crowded.find("devices")
    assert devices is not None
    for slot in range(1, 0x1F):
        device = etree.SubElement(devices, "sound", model="ac97")
        device.append(GuestPciAddress(slot=slot).to_element())
    full = check_config(Domain.from_element(crowded))
    # the root port (bus 1) is free again without the bridge
    assert full.fits
    etree.SubElement(devices, "sound", model="ac97").append(GuestPciAddress(bus=1).to_element())
    full = check_config(Domain.from_element(crowded))
    assert not full.fits
    assert "root bus is full" in str(full.why)
