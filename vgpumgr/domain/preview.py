"""A definition as it would be with more devices, without asking libvirt."""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree

from vgpumgr.domain.attaching import Attachable
from vgpumgr.domain.devices import Channel, Shmem
from vgpumgr.domain.document import render_element
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hostdev import MdevHostdev, PciHostdev


def add_devices(domain: Domain, devices: Sequence[Attachable]) -> Domain:
    """The definition with the devices. What libvirt adds by itself (addresses, controllers) is not
    in it.
    """
    return domain.changed(
        shmems=(*domain.shmems, *(d for d in devices if isinstance(d, Shmem))),
        channels=(*domain.channels, *(d for d in devices if isinstance(d, Channel))),
        pci_hostdevs=(*domain.pci_hostdevs, *(d for d in devices if isinstance(d, PciHostdev))),
        mdev_hostdevs=(*domain.mdev_hostdevs, *(d for d in devices if isinstance(d, MdevHostdev))),
    )


def render_domain(domain: Domain) -> str:
    """The whole document as text, indented as libvirt does, with a newline at its end."""
    root = domain.to_element()
    etree.indent(root, "  ")
    return render_element(root) + "\n"
