"""Host devices in domain XML: what libvirt's schema takes, where they fit, what the VM lacks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from tests.support.domains import FULL, PC, Q35
from vgpumgr.domain.declare import parse_document
from vgpumgr.domain.devices import (
    Controller,
    GivenFunction,
    GuestPciAddress,
    HostPciAddress,
    MdevHostdev,
    PciHostdev,
    mdev_hostdev,
    pci_hostdevs,
)
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hostdev_advice import DeviceFacts, advise
from vgpumgr.domain.slots import (
    check_hostdevs_config,
    check_hostdevs_live,
    choose_shared_slot,
    free_express_ports,
)
from vgpumgr.model.choices import Display
from vgpumgr.model.pci import PciAddress

GPU = GivenFunction(PciAddress(0, 0x3B, 0, 0))
AUDIO = GivenFunction(PciAddress(0, 0x3B, 0, 1))
MDEV = "6f1c2a2e-58d1-4c0e-9a55-3d4f0f6f8b11"
GIB = 1 << 30


@cache
def schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.parse("/usr/share/libvirt/schemas/domain.rng"))


def put(domain: Domain, *devices: PciHostdev | MdevHostdev) -> Domain:
    pci = tuple(d for d in devices if isinstance(d, PciHostdev))
    mdev = tuple(d for d in devices if isinstance(d, MdevHostdev))
    changed = domain.changed(
        pci_hostdevs=(*domain.pci_hostdevs, *pci), mdev_hostdevs=(*domain.mdev_hostdevs, *mdev)
    )
    assert schema().validate(changed.to_element()), schema().error_log.last_error
    return Domain.from_xml(changed.to_xml())


def port(index: int, *, hotplug: bool | None = None) -> Controller:
    return Controller(type="pci", index=index, model="pcie-root-port", hotplug=hotplug)


def q35(*controllers: Controller) -> Domain:
    """A q35 definition with these controllers and nothing on them."""
    bare = Domain.from_xml(
        "<domain type='kvm'><name>x</name><memory unit='GiB'>4</memory>"
        "<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>"
        "<devices><controller type='pci' index='0' model='pcie-root'/></devices></domain>"
    )
    return bare.changed(controllers=(*bare.controllers, *controllers))


def test_the_documents(golden: Callable[[str, str], None]) -> None:
    slot = GuestPciAddress(bus=5)
    devices: dict[str, tuple[PciHostdev | MdevHostdev, ...]] = {
        "one function": pci_hostdevs("7f3a", [GPU]),
        "a GPU that draws, with its audio function, in one slot": pci_hostdevs(
            "7f3a", [GivenFunction(GPU.address, rom=True), AUDIO], slot
        ),
        "by iommufd": pci_hostdevs("7f3a", [GPU], iommufd=True),
        "a mediated device": (mdev_hostdev("7f3a", MDEV),),
        "a mediated device with a display": (mdev_hostdev("7f3a", MDEV, Display.ON),),
        "a mediated device that boots": (mdev_hostdev("7f3a", MDEV, Display.BOOT),),
    }
    text = "".join(
        f"<!-- {name} -->\n" + "".join(f"{device.to_xml()}\n" for device in found)
        for name, found in devices.items()
    )
    golden("hostdev.xml", text)
    for name, found in devices.items():
        if name != "by iommufd":  # libvirt 12.1
            put(q35(), *found)


def test_devices_come_back_from_the_definition_as_they_went_in() -> None:
    devices = pci_hostdevs("a1", [GPU, AUDIO], GuestPciAddress(bus=7))
    domain = put(Domain.from_xml(PC), *devices, mdev_hostdev("a2", MDEV))
    assert domain.pci_hostdevs == devices
    assert domain.own_aliases() == (
        "ua-vgpumgr-a1-pci0",
        "ua-vgpumgr-a1-pci1",
        "ua-vgpumgr-a2-mdev",
    )
    assert domain.pci_hostdevs[1].source == HostPciAddress(bus=0x3B, function=1)
    assert [d.source.pci for d in domain.pci_hostdevs if d.source] == [GPU.address, AUDIO.address]


@given(st.integers(1, 8), st.booleans())
def test_functions_of_a_card_share_a_slot(count: int, rom: bool) -> None:
    functions = [GivenFunction(PciAddress(0, 1, 0, n), rom) for n in range(count)]
    devices = pci_hostdevs("a", functions, GuestPciAddress(bus=3, slot=0))
    addresses = [d.address for d in devices if d.address]
    assert {(a.bus, a.slot) for a in addresses} == {(3, 0)}
    assert [a.function for a in addresses] == list(range(count))
    # only function 0 says that there are more, and only if there are
    assert [a.multifunction for a in addresses] == [True if count > 1 else None] + [None] * (
        count - 1
    )
    assert all(d.managed is False and d.rom_bar is (None if rom else False) for d in devices)
    assert len({d.alias for d in devices}) == count


def test_a_running_q35_takes_one_device_for_each_free_port() -> None:
    machine = q35(port(1), port(2), port(3, hotplug=False))
    assert free_express_ports(machine) == (1, 2)
    assert check_hostdevs_live(machine, 2).fits
    refused = check_hostdevs_live(machine, 3)
    assert not refused.fits
    assert "2 free pcie-root-ports" in str(refused.why)
    taken = put(machine, *pci_hostdevs("a", [GPU], GuestPciAddress(bus=1)))
    assert free_express_ports(taken) == (2,)
    assert not check_hostdevs_live(q35(), 1).fits
    assert check_hostdevs_config(q35(), 3).fits, "libvirt adds root ports to the definition"


def test_a_running_q35_takes_a_conventional_device_on_a_bridge_only() -> None:
    ports = q35(port(1), port(2))
    refused = check_hostdevs_live(ports, 0, 1)
    assert not refused.fits
    assert "conventional PCI device" in str(refused.why)
    assert check_hostdevs_config(ports, 0, 1).fits, "libvirt adds a bridge to the definition"
    bridge = Controller(type="pci", index=3, model="pcie-to-pci-bridge")
    bridged = q35(port(1), port(2), bridge)
    assert check_hostdevs_live(bridged, 2, 1).fits
    assert not check_hostdevs_live(bridged, 3, 1).fits
    assert check_hostdevs_live(Domain.from_xml(PC), 0, 1).fits


def test_an_i440fx_takes_devices_on_its_bus() -> None:
    assert check_hostdevs_live(Domain.from_xml(PC), 3).fits
    assert not check_hostdevs_live(Domain.from_xml(FULL), 1).fits
    assert not check_hostdevs_config(Domain.from_xml(FULL), 1).fits
    assert choose_shared_slot(Domain.from_xml(FULL)) is None
    assert choose_shared_slot(Domain.from_xml(PC)) == GuestPciAddress(bus=0, slot=3)


def test_the_slot_of_a_card() -> None:
    assert choose_shared_slot(q35()) == GuestPciAddress(bus=1)
    assert choose_shared_slot(q35(port(1), port(2))) == GuestPciAddress(bus=1)
    used = put(q35(port(1), port(2)), *pci_hostdevs("a", [GPU], GuestPciAddress(bus=1)))
    assert choose_shared_slot(used) == GuestPciAddress(bus=2)
    assert choose_shared_slot(q35(port(4, hotplug=False))) == GuestPciAddress(bus=5)


def test_a_root_bus_that_is_full() -> None:
    document = parse_document(q35().to_xml())
    devices = document.find("devices")
    assert devices is not None
    for slot in range(1, 0x1F):
        etree.SubElement(devices, "sound", model="ac97").append(
            GuestPciAddress(slot=slot).to_element()
        )
    full = Domain.from_element(document)
    assert not check_hostdevs_config(full, 1).fits
    assert choose_shared_slot(full) is None


A100 = DeviceFacts(GPU.address, (16 << 20, 64 * GIB, 32 << 20), numa_node=1, numa_matters=True)
UEFI = "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>"


def with_xml(domain: Domain, path: str, xml: str) -> Domain:
    root = domain.to_element()
    parent = root.find(path) if path else root
    assert parent is not None
    parent.append(parse_document(xml))
    return Domain.from_element(root)


def test_advice_for_a_large_gpu(golden: Callable[[str, str], None]) -> None:
    hole = [c.changed(hole64=512, hole64_unit="GiB") for c in q35().controllers]
    tuned = with_xml(with_xml(q35(), "os", UEFI).changed(controllers=tuple(hole)), "",
                     "<cpu mode='host-passthrough'><maxphysaddr mode='passthrough'/></cpu>")  # fmt: skip
    tuned = with_xml(tuned, "", "<numatune><memory mode='strict' nodeset='0-3,^2'/></numatune>")
    cases = {
        "i440fx": advise(Domain.from_xml(PC), A100),
        "q35 with SeaBIOS": advise(q35(), A100),
        "q35 with UEFI": advise(with_xml(q35(), "os", UEFI), A100),
        "everything said": advise(tuned, A100),
        "memory elsewhere": advise(
            with_xml(q35(), "", "<numatune><memory mode='strict' nodeset='0,2'/></numatune>"),
            DeviceFacts(GPU.address, numa_node=1, numa_matters=True),
        ),
        "a hard limit": advise(
            with_xml(q35(), "", "<memtune><hard_limit unit='GiB'>4</hard_limit></memtune>"),
            DeviceFacts(GPU.address),
        ),
        "a small device": advise(q35(), DeviceFacts(GPU.address, (16 << 20,), numa_node=0)),
    }
    assert cases["everything said"] == ()
    assert cases["a small device"] == ()
    text = "".join(
        f"{name}:\n" + "".join(f"  {line}\n" for line in lines) for name, lines in cases.items()
    )
    golden("hostdev-advice.txt", text)


@pytest.mark.parametrize(
    ("nodeset", "fits"),
    [("1", True), ("0-3", True), ("0-3,^1", False), ("^1,0-3", True), ("x", False), ("", None)],
)
def test_numa_nodes_as_libvirt_writes_them(nodeset: str, fits: bool | None) -> None:
    domain = with_xml(
        q35(), "", f"<numatune><memory mode='strict' nodeset='{nodeset}'/></numatune>"
    )
    lines = advise(domain, DeviceFacts(GPU.address, numa_node=1, numa_matters=True))
    assert (lines == ()) is (fits is True)
    assert fits is not None or "may be anywhere" in lines[0]


def test_a_hard_limit_that_is_large_enough_is_no_matter() -> None:
    text = "<memtune><hard_limit unit='GiB'>5</hard_limit></memtune>"
    assert advise(with_xml(q35(), "", text), DeviceFacts(None)) == ()
    small = "<memtune><hard_limit unit='GiB'>4</hard_limit></memtune>"
    assert advise(with_xml(q35(), "", small), DeviceFacts(None, pins_memory=False)) == ()


def test_what_people_have_stays() -> None:
    before = Domain.from_xml(Q35)
    after = put(before, *pci_hostdevs("a", [GPU]))
    kept = after.changed(pci_hostdevs=before.pci_hostdevs)
    assert kept == before


def test_with_an_iommu_in_the_guest_each_device_pins_the_memory() -> None:
    limit = "<memtune><hard_limit unit='GiB'>8</hard_limit></memtune>"
    iommu = "<iommu model='intel'><driver caching_mode='on'/></iommu>"
    machine = with_xml(with_xml(q35(), "", limit), "devices", iommu)
    assert advise(machine, DeviceFacts(None)) == (), "4 GiB and 1 GiB"
    second = put(machine, *pci_hostdevs("a", [GPU]))
    (line,) = advise(second, DeviceFacts(None))
    assert "2 times" in line
    assert ">9437184<" in line, "8 GiB and 1 GiB"


@pytest.mark.parametrize("gib", [16, 128, 256])
def test_what_is_advised_for_a_large_bar_is_enough_and_taken_by_the_schema(gib: int) -> None:
    """The advice is XML that can be put into the definition as it stands."""
    facts = DeviceFacts(GPU.address, (gib * GIB, 32 << 20), numa_node=1, numa_matters=True)
    machine = q35()
    for _ in range(8):
        lines = advise(machine, facts)
        if not lines:
            break
        machine = follow(machine, lines[0])
        assert schema().validate(machine.to_element()), schema().error_log.last_error
    assert advise(machine, facts) == ()
    assert machine.controllers[0].hole64 in (None, 2 * gib)


def follow(machine: Domain, line: str) -> Domain:
    """Does what a line advises."""
    if "<pcihole64" in line:
        hole = int(line.partition("<pcihole64 unit='GiB'>")[2].partition("<")[0])
        first = machine.controllers[0].changed(hole64=hole, hole64_unit="GiB")
        return machine.changed(controllers=(first, *machine.controllers[1:]))
    if "<os firmware" in line:
        root = machine.to_element()
        found = root.find("os")
        assert found is not None
        found.set("firmware", "efi")
        return Domain.from_element(root)
    start = min(line.find(tag) for tag in ("<cpu ", "<numatune>") if tag in line)
    return with_xml(machine, "", line[start:])
