"""NUMA nodes of the host's CPUs."""

from __future__ import annotations

import re

from vgpumgr.host.machine import Machine
from vgpumgr.model.sets import parse_set

_NODES = "/sys/devices/system/node"


def read_cpu_nodes(machine: Machine) -> dict[int, int]:
    """The node of each CPU; empty where the kernel shows no nodes."""
    directory = machine.path(_NODES)
    if not directory.is_dir():
        return {}
    nodes: dict[int, int] = {}
    for entry in directory.iterdir():
        match = re.fullmatch(r"node(\d+)", entry.name)
        if match is not None:
            text = (entry / "cpulist").read_text().strip()
            nodes.update(dict.fromkeys(parse_set(text), int(match[1])))
    return nodes
