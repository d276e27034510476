"""Which NUMA nodes a VM's devices are to be on, whatever backend gives them: pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from vgpumgr.errors import NoRoomError
from vgpumgr.model.request import Numa


@dataclass(frozen=True, slots=True)
class NumaPolicy:
    """The nodes that a VM is bound to (none: anywhere), and whether it takes no others."""

    nodes: frozenset[int] = frozenset()
    strict: bool = False

    @classmethod
    def of(cls, numa: str, nodes: Collection[int]) -> NumaPolicy:
        """What ``--numa prefer|strict|off`` makes of a VM's nodes."""
        return cls() if numa == Numa.OFF else cls(frozenset(nodes), numa == Numa.STRICT)

    def is_far(self, node: int | None) -> bool:
        """Whether the VM is bound to other nodes than this; None is a node that nobody knows."""
        return bool(self.nodes) and node not in self.nodes

    def is_refused(self, node: int | None) -> bool:
        """Whether nothing on this node may be taken."""
        return self.strict and self.is_far(node)

    def describe(self, node: int | None) -> str:
        """What a device on that node means to the VM; empty where it is bound to none."""
        if not self.nodes:
            return ""
        if not self.is_far(node):
            return f"; on the VM's NUMA node {node}"
        return f"; on NUMA node {node}: none on the VM's ({self._names()}) is free"

    def explain(self, where: Collection[str], what: str = "GPU") -> NoRoomError:
        """The refusal where nothing is near; ``where`` says what there is, and on which nodes."""
        return NoRoomError(
            f"no {what} is on its NUMA nodes",
            why=f"it is bound to node {self._names()}; {', '.join(where)}",
            hint="--numa prefer takes one elsewhere",
        )

    def _names(self) -> str:
        return ", ".join(map(str, sorted(self.nodes)))
