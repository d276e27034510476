"""Which NUMA nodes of the host a domain is bound to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from lxml import etree

from vgpumgr.domain.domain import Domain
from vgpumgr.model.sets import parse_set


def find_nodes(
    domain: Domain | None, read_cpu_nodes: Callable[[], Mapping[int, int]]
) -> frozenset[int]:
    """The nodes that its memory is bound to (``numatune``), or else those of the CPUs that its
    virtual CPUs or its emulator are pinned to; empty: it is bound to none in particular.
    """
    if domain is None:
        return frozenset()
    element = domain.to_element()
    nodes = frozenset(_parse_all(element, ("numatune/memory", "numatune/memnode"), "nodeset"))
    if nodes:
        return nodes
    for paths in (("cputune/vcpupin", "vcpu"), ("cputune/emulatorpin",)):
        cpus = set(_parse_all(element, paths, "cpuset"))
        if cpus:
            known = read_cpu_nodes()
            bound = frozenset(known[cpu] for cpu in cpus if cpu in known)
            # pinned to CPUs of every node is bound to none
            return frozenset() if bound == frozenset(known.values()) else bound
    return frozenset()


def _parse_all(element: etree._Element, paths: tuple[str, ...], attribute: str) -> Iterator[int]:
    for path in paths:
        for found in element.findall(path):
            yield from parse_set(found.get(attribute) or "")
