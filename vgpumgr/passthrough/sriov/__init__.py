"""SR-IOV: one driver per vendor behind one protocol (``base.SrIovDriver``), and which one a function has."""

from __future__ import annotations

from vgpumgr.model.pci import Function
from vgpumgr.passthrough.sriov.amd import AmdSriov
from vgpumgr.passthrough.sriov.base import GenericSriov, SrIovDriver, SrIovHost
from vgpumgr.passthrough.sriov.intel import IntelSriov
from vgpumgr.passthrough.sriov.nvidia import NvidiaSriov

__all__ = ["DRIVERS", "SrIovDriver", "SrIovHost", "find_driver"]

#: in the order of probing; the last one takes every function
DRIVERS: list[SrIovDriver] = [NvidiaSriov(), AmdSriov(), IntelSriov(), GenericSriov()]


def find_driver(physical: Function) -> SrIovDriver:
    """The driver for a physical function: the first whose ``probe`` says so."""
    return next(driver for driver in DRIVERS if driver.probe(physical))
